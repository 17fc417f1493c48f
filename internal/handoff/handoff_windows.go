package handoff

import (
	"context"
	"net"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// Conn is not supported on Windows.
type Conn struct{}

// Listener is not supported on Windows.
type Listener struct {
	Connections int
	FrameTime   time.Duration
	Refused     func(Peer, error)
}

var errNone = &home.Nobody{Path: home.HandoffSocket}

// Dial finds nobody on Windows.
func Dial(ctx context.Context, d home.Dir) (*Conn, error) {
	_, err := d.DialUnix(ctx, home.HandoffSocket)
	return nil, err
}

// Listen is not supported on Windows.
func Listen(d home.Dir) (*Listener, error) {
	_, err := d.ListenUnix(home.HandoffSocket)
	return nil, err
}

// ListenerFrom is not supported on Windows.
func ListenerFrom(int) (*Listener, error) { return nil, errNone }

// Own is not supported on Windows.
func Own(*net.UnixConn) (Peer, error) { return Peer{Pidfd: -1}, errNone }

// Accept is not supported on Windows.
func (*Listener) Accept(context.Context) (*Conn, error) { return nil, errNone }

// Fd is not supported on Windows.
func (*Listener) Fd() (int, error) { return -1, errNone }

// Close does nothing.
func (*Listener) Close() error { return nil }

// Peer is nobody.
func (*Conn) Peer() Peer { return Peer{Pidfd: -1} }

// TakePidfd has none.
func (*Conn) TakePidfd() int { return -1 }

// Allow does nothing.
func (*Conn) Allow(int) {}

// Close does nothing.
func (*Conn) Close() {}

// Send is not supported on Windows.
func (*Conn) Send(context.Context, Message, ...int) error { return errNone }

// Receive is not supported on Windows.
func (*Conn) Receive(context.Context) (*Frame, error) { return nil, errNone }

// Exchange is not supported on Windows.
func (*Conn) Exchange(context.Context, Message, ...int) (*Frame, error) { return nil, errNone }

// Refuse does nothing.
func (*Conn) Refuse(context.Context, error) {}

// closeFd has nothing to close: no descriptor arrives here.
var closeFd = func(int) {}
