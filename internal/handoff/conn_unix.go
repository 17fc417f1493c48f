//go:build unix

package handoff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/home"
	"golang.org/x/sys/unix"
)

// self is the user whose processes may talk to each other here. Tests put
// another one in its place.
var self = os.Geteuid()

// Conn is one connection. One Receive and any number of Sends may be under way
// at a time. Whoever has it closes it.
type Conn struct {
	sock *net.UnixConn
	raw  syscall.RawConn
	peer Peer
	read clock

	// The next belong to the Receive under way.
	control []byte
	silence time.Duration // before a frame, if its context says nothing; 0 = for ever
	frame   time.Duration
	keep    int
	inFrame bool
	ended   error // of a Receive after which there is no knowing where a frame begins

	sending sync.Mutex
	write   clock
	send    time.Duration
	cut     error // a Send that left its frame unfinished: nothing can follow

	listener *Listener // nil if dialled
	place    place     // the listener's
	closed   sync.Once
}

// newConn makes the socket and the peer the connection's, or closes them.
func newConn(sock *net.UnixConn, peer Peer) (*Conn, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		sock.Close()
		peer.close()
		return nil, err
	}
	return &Conn{
		sock: sock, raw: raw, peer: peer,
		read:    clock{set: sock.SetReadDeadline},
		write:   clock{set: sock.SetWriteDeadline},
		control: make([]byte, unix.CmsgSpace(MaxFds*4)),
		frame:   FrameTime, send: FrameTime, keep: MaxFds,
	}, nil
}

// Dial connects to the dispatcher of a home. It is *home.Nobody when none
// listens, *Foreign when the socket is somebody else's.
func Dial(ctx context.Context, d home.Dir) (*Conn, error) {
	sock, err := d.DialUnix(ctx, home.HandoffSocket)
	if err != nil {
		return nil, err
	}
	peer, err := peerOf(sock, false)
	if err == nil && peer.UID != self && peer.UID != 0 { // root's: systemd listens for a user
		err = &Foreign{UID: peer.UID, Ours: self}
	}
	if err != nil {
		sock.Close()
		return nil, err
	}
	return newConn(sock, peer)
}

// Peer is who is on the other side.
func (c *Conn) Peer() Peer { return c.peer }

// TakePidfd makes the peer's pidfd the caller's; −1 if there is none.
func (c *Conn) TakePidfd() int {
	fd := c.peer.Pidfd
	c.peer.Pidfd = -1
	return fd
}

// Allow says how many descriptors a frame may bring, 0 to MaxFds. It is 1 on a
// connection that was accepted, MaxFds on one that was dialled. More than that
// are closed as they come, and counted in Frame.Came.
func (c *Conn) Allow(fds int) { c.keep = fds }

// Close ends the connection. It may be called again.
func (c *Conn) Close() {
	c.closed.Do(func() {
		c.sock.Close()
		c.peer.close()
		if c.listener != nil {
			c.listener.leave(c)
		}
	})
}

// Send sends one message and, on its first byte, copies of descriptors, which
// stay the caller's. That it returned nil says that the kernel has taken it, not
// that anybody read it.
func (c *Conn) Send(ctx context.Context, msg Message, fds ...int) error {
	if len(fds) > MaxFds {
		return fmt.Errorf("handoff: %d descriptors in one message; it may have %d", len(fds), MaxFds)
	}
	frame, err := encode(msg)
	if err != nil {
		return err
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.cut != nil {
		return c.cut
	}
	failpoint.Hit("handoff.send")
	if err := c.put(ctx, frame, fds); err != nil {
		return fmt.Errorf("handoff: send %s: %w", msg.Type(), err)
	}
	failpoint.Hit("handoff.sent")
	return nil
}

func (c *Conn) put(ctx context.Context, frame []byte, fds []int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer c.write.begin(ctx, c.send)()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for rest := frame; len(rest) > 0; {
		n, err := c.sendmsg(rest, rights)
		if err != nil {
			err = c.unsent(ctx, err)
			if len(rest) < len(frame) {
				c.cut = err
			}
			return err
		}
		rest, rights = rest[n:], nil
	}
	return nil
}

// sendmsg is one sendmsg(2) that sends something.
func (c *Conn) sendmsg(p, control []byte) (n int, err error) {
	for {
		var said error
		err = c.raw.Write(func(fd uintptr) bool {
			n, said = unix.SendmsgN(int(fd), p, control, nil, 0)
			for said == unix.EINTR {
				n, said = unix.SendmsgN(int(fd), p, control, nil, 0)
			}
			if said == unix.EAGAIN {
				c.write.wait()
			}
			return said != unix.EAGAIN
		})
		switch {
		case err == nil:
			return n, said
		case !errors.Is(err, os.ErrDeadlineExceeded) || c.write.expired(err):
			return 0, err
		}
	}
}

// unsent turns what the socket said into what happened.
func (c *Conn) unsent(ctx context.Context, err error) error {
	switch cause := ctx.Err(); {
	case cause != nil:
		return cause
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Broken{Code: CodeSlow, Why: fmt.Sprintf("the other side did not read a message within %s", c.send), Err: err}
	}
	return err
}

// Receive waits for the next message and reads it. The caller closes or takes
// the descriptors of what it returns. The error is io.EOF when the other side
// closed between messages, *Broken or *VersionError for what cannot be
// accepted, the cause when ctx ended. After an error nothing can be received any
// more, except when ctx ended before anything came; but an answer may be sent.
//
// On a connection that was accepted the first byte must come within FrameTime,
// or else by the deadline of ctx, if it has one.
func (c *Conn) Receive(ctx context.Context) (*Frame, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.ended != nil {
		return nil, c.ended
	}
	silence := c.silence
	if _, ok := ctx.Deadline(); ok {
		silence = 0
	}
	defer c.read.begin(ctx, silence)()
	if c.listener != nil {
		c.listener.listens(c)
	}
	c.inFrame = false
	r := reader{recv: c.recv, begun: c.begun, keep: c.keep, serving: c.listener != nil}
	f, err := r.frame()
	if err == nil && c.listener != nil && !c.listener.heard(c) {
		f.CloseFds()
		err = errOusted
	}
	if err != nil {
		err = c.explain(ctx, err)
		if c.inFrame || ctx.Err() == nil {
			c.ended = err
		}
		return nil, err
	}
	failpoint.Hit("handoff.received")
	return f, nil
}

func (c *Conn) begun() {
	c.inFrame = true
	c.read.allow(c.frame)
}

// explain turns what the socket said into what happened.
func (c *Conn) explain(ctx context.Context, err error) error {
	switch cause := ctx.Err(); {
	case c.listener != nil && c.listener.ousted(c):
		return errOusted
	case cause != nil:
		return cause
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case c.inFrame:
		return &Broken{Code: CodeSlow, Why: fmt.Sprintf("a frame was not finished within %s", c.frame), Err: err}
	}
	return &Broken{Code: CodeSlow, Why: fmt.Sprintf("nothing came within %s", c.silence), Err: err}
}

// errOusted is what the owner of a connection reads that made room for another.
var errOusted = &Broken{Code: CodeBusy, Why: "too many connections: this one had sent nothing whole"}

// recv is one recvmsg(2) that receives something. Its control space holds as
// many descriptors as a message can have, so what is cut off was cut off for
// want of descriptors that we may open.
func (c *Conn) recv(p []byte) (int, []int, error) {
	n, controln, flags, err := c.recvmsg(p)
	if err != nil {
		return 0, nil, err
	}
	fds, sound := rights(c.control[:controln])
	switch {
	case flags&unix.MSG_CTRUNC != 0:
		err = &Broken{Code: CodeDescriptors, Why: "descriptors that came with a frame were lost: this process may not open more"}
	case !sound:
		err = &Broken{Code: CodeMisplaced, Why: "something else than descriptors came with a frame"}
	case n == 0:
		err = io.EOF
	}
	if err != nil {
		closeAll(fds)
		return 0, nil, err
	}
	return n, fds, nil
}

func (c *Conn) recvmsg(p []byte) (n, controln, flags int, err error) {
	for {
		var said error
		err = c.raw.Read(func(fd uintptr) bool {
			n, controln, flags, said = recvmsg(int(fd), p, c.control)
			for said == unix.EINTR {
				n, controln, flags, said = recvmsg(int(fd), p, c.control)
			}
			if said == unix.EAGAIN {
				c.read.wait()
			}
			return said != unix.EAGAIN
		})
		switch {
		case err == nil:
			return n, controln, flags, said
		case !errors.Is(err, os.ErrDeadlineExceeded) || c.read.expired(err):
			return 0, 0, 0, err
		}
	}
}

// rights takes the descriptors out of control data. All that are there are
// returned, also when there is something else besides, which is not sound.
func rights(control []byte) (fds []int, sound bool) {
	if len(control) == 0 {
		return nil, true
	}
	messages, err := unix.ParseSocketControlMessage(control)
	sound = err == nil
	for i := range messages {
		m := &messages[i]
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			sound = false
			continue
		}
		some, err := unix.ParseUnixRights(m)
		sound = sound && err == nil
		fds = append(fds, some...)
	}
	return fds, sound
}

// closeFd is exchanged by tests that count.
var closeFd = func(fd int) { unix.Close(fd) }

// Exchange sends a message and receives what is answered. What the other side
// said before it closed is received even when the message could not be sent
// whole: a refusal may come before the request is read.
func (c *Conn) Exchange(ctx context.Context, msg Message, fds ...int) (*Frame, error) {
	sent := c.Send(ctx, msg, fds...)
	if sent != nil && !errors.Is(sent, unix.EPIPE) && !errors.Is(sent, unix.ECONNRESET) {
		return nil, sent
	}
	f, err := c.Receive(ctx)
	if _, said := errors.AsType[*VersionError](err); err != nil && sent != nil && !said {
		return nil, sent
	}
	return f, err
}

// Refuse answers a Receive that returned err, if there is anybody to answer,
// and closes the connection.
func (c *Conn) Refuse(ctx context.Context, err error) {
	defer c.Close()
	_, broken := errors.AsType[*Broken](err)
	_, version := errors.AsType[*VersionError](err)
	if broken || version {
		_ = c.Send(ctx, Complaint(err))
	}
}
