//go:build unix

package handoff

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/home"
	"golang.org/x/sys/unix"
)

// Listener is the dispatcher's end of the handoff socket.
//
// The number of its connections is bounded. When it is reached, a new one takes
// the place of the one that has kept us waiting longest: of those from which no
// whole message ever came, else of those from which none comes now. If all are
// being served, it is told that we are busy. So neither sleepers nor crowds of
// them keep a claim from being read (C136).
type Listener struct {
	// To be set before the first Accept, or left as they are.
	Connections int           // open at once
	FrameTime   time.Duration // see the constant
	// Refused hears of each connection that was closed without being returned
	// by Accept, or taken away afterwards. It is called from Accept.
	Refused func(Peer, error)

	sock    *net.UnixListener
	waiting clock

	mu   sync.Mutex
	open int
	mute []*Conn // those from which no whole message came yet, oldest first
	idle []*Conn // those that we wait for again, oldest first
}

// place says where a connection stands; it is guarded by its listener's mutex.
type place int

const (
	served place = iota // a message came and nothing more is waited for
	mute
	idle
	ousted // sent away; its place is another's
	left   // closed by whoever has it
)

// Listen makes the handoff socket of a home, replacing the one that is there:
// the caller holds the dispatcher's lock (L19).
func Listen(d home.Dir) (*Listener, error) {
	sock, err := d.ListenUnix(home.HandoffSocket)
	if err != nil {
		return nil, err
	}
	return newListener(sock), nil
}

// ListenerFrom makes a Listener of a descriptor from systemd, or from the
// dispatcher that is being relieved (L21). On success the descriptor is the
// listener's; otherwise it stays the caller's.
func ListenerFrom(fd int) (*Listener, error) {
	sock, err := home.UnixListenerFrom(fd)
	if err != nil {
		return nil, err
	}
	return newListener(sock), nil
}

func newListener(sock *net.UnixListener) *Listener {
	return &Listener{
		Connections: Connections, FrameTime: FrameTime,
		sock:    sock,
		waiting: clock{set: sock.SetDeadline},
	}
}

// Fd is a descriptor of the socket to hand over. The caller closes it.
func (l *Listener) Fd() (int, error) { return home.UnixListenerFd(l.sock) }

// Close stops listening here; the socket's name stays, and so do connections.
func (l *Listener) Close() error { return l.sock.Close() }

// retryAccept is how long Accept waits when the kernel has no descriptor for
// another connection and nobody can be sent away.
const retryAccept = 20 * time.Millisecond

// Accept returns the next connection of a process of our own user. Others are
// closed with what they sent. The error is the cause when ctx ended, and
// net.ErrClosed after Close; nothing a client does is one.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer l.waiting.begin(ctx, 0)()
	for {
		sock, err := l.sock.AcceptUnix()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !l.waiting.expired(err):
			// It was of an Accept whose context ended.
		case err == nil:
			if c := l.admit(sock); c != nil {
				return c, nil
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !scarce(err):
			return nil, err
		case !l.oust():
			wait(ctx, retryAccept)
		}
	}
}

func scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// admit judges a new connection, and closes it if it cannot stay. Nothing here
// reads, or waits for, anybody.
func (l *Listener) admit(sock *net.UnixConn) *Conn {
	peer, err := peerOf(sock, true)
	if err == nil && peer.UID != self {
		err = &Foreign{UID: peer.UID, Ours: self}
	}
	if err != nil {
		l.dismiss(sock, peer, err)
		return nil
	}
	c, err := newConn(sock, peer)
	if err != nil {
		return nil
	}
	c.listener = l
	c.keep = 1
	c.silence, c.frame, c.send = l.FrameTime, l.FrameTime, l.FrameTime
	for !l.enter(c) {
		if !l.oust() {
			l.dismiss(sock, peer, &Broken{Code: CodeBusy, Why: "too many connections"})
			return nil
		}
	}
	return c
}

// dismiss closes a connection after a word, which is not waited for.
func (l *Listener) dismiss(sock *net.UnixConn, peer Peer, err error) {
	if l.Refused != nil {
		l.Refused(peer, err)
	}
	peer.close()
	if raw, closed := sock.SyscallConn(); closed == nil {
		tell(raw, Complaint(err))
	}
	sock.Close()
}

// tell writes a message if that can be done at once.
func tell(raw syscall.RawConn, msg Message) {
	frame, err := encode(msg)
	if err != nil {
		return
	}
	_ = raw.Write(func(fd uintptr) bool {
		_, _ = unix.Write(int(fd), frame)
		return true
	})
}

func (l *Listener) enter(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.Connections {
		return false
	}
	l.open++
	l.move(c, mute)
	return true
}

// oust sends away who has kept us waiting longest. Its Receive returns an error,
// and whoever has it closes it as ever.
func (l *Listener) oust() bool {
	c := l.longest()
	if c == nil {
		return false
	}
	if l.Refused != nil {
		l.Refused(Peer{Pid: c.peer.Pid, UID: c.peer.UID, Pidfd: -1}, errOusted)
	}
	tell(c.raw, Complaint(errOusted))
	c.sock.Close()
	return true
}

func (l *Listener) longest() *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range [][]*Conn{l.mute, l.idle} {
		if len(line) > 0 {
			c := line[0]
			l.move(c, ousted)
			l.open--
			return c
		}
	}
	return nil
}

// listens notes that we wait for a message.
func (l *Listener) listens(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place == served {
		l.move(c, idle)
	}
}

// heard notes that a whole message came; false if the connection was sent away
// before.
func (l *Listener) heard(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place == mute || c.place == idle {
		l.move(c, served)
	}
	return c.place != ousted
}

func (l *Listener) ousted(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.place == ousted
}

// leave gives the connection's place back.
func (l *Listener) leave(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place != ousted && c.place != left {
		l.move(c, left)
		l.open--
	}
}

// move changes where a connection stands. The caller holds the mutex.
func (l *Listener) move(c *Conn, to place) {
	drop := func(line []*Conn) []*Conn {
		if i := slices.Index(line, c); i >= 0 {
			return slices.Delete(line, i, i+1)
		}
		return line
	}
	switch l.mute, l.idle = drop(l.mute), drop(l.idle); to {
	case mute:
		l.mute = append(l.mute, c)
	case idle:
		l.idle = append(l.idle, c)
	}
	c.place = to
}
