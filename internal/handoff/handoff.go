// Package handoff is the handoff socket of a home, both ends of it: frames, the
// descriptors that travel with them, and who is on the other side (L23).
//
// It guarantees that descriptors arrive with the frame they were sent with, all
// of them or none, close-on-exec from the moment they exist where the kernel
// can do that; that every descriptor that arrives is in a Frame that was
// returned, or closed; that no more than a frame of a megabyte is ever read, in
// five seconds from its first byte; that an accepted connection is from a
// process of our own user, by the kernel's word; and that no client, slow,
// silent, greedy or many, keeps another from being served.
//
// It does not say what a message means, who may ask for what, or whether a
// descriptor shows the lane it is said to be: dispatch and lane do. A message
// that was sent has not been received, and one whose answer does not come may
// have been acted on (L9). Pids in messages are nobody's business here: a peer
// is who the kernel says it is (C132).
package handoff

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Protocol is the version every frame carries. Both sides refuse another one.
const Protocol = 1

const (
	// MaxFrame is the size of the largest JSON object in a frame, in bytes.
	MaxFrame = 1 << 20
	// MaxFds is how many descriptors one frame can bring: the most the kernel
	// takes in one message (SCM_MAX_FD).
	MaxFds = 253
	// FrameTime is how long a frame may take from its first byte to its last,
	// how long a client may take for the first byte of its first frame, and how
	// long sending a frame may take (L23).
	FrameTime = 5 * time.Second
	// Connections is how many may be open at a Listener.
	Connections = 256
)

// Peer is the process on the other side of a connection as the kernel knows it.
// Of one that was accepted it is the process that connected. Of one that was
// dialled it is the process that began to listen, which may be systemd, or a
// dispatcher that was relieved: there only UID tells something.
type Peer struct {
	Pid int // 0 = not known, as of a process of another pid namespace
	UID int
	// Pidfd refers to the process itself, so that it cannot come to mean another
	// one; −1 where the kernel has none to give. It is the connection's, which
	// closes it; see TakePidfd.
	Pidfd int
	// Gone says that the process has ended and was reaped already.
	Gone bool
}

// Message is what can be sent: a struct whose JSON is an object.
type Message interface {
	// Type is the name under which the message travels.
	Type() string
}

// Frame is one message that arrived, with what it brought.
type Frame struct {
	Type string
	Body json.RawMessage // the whole object, "v" and "type" included
	// Fds are the descriptors that came on its first byte. They are the frame's:
	// closed by CloseFds, unless Take took them before.
	Fds []int
	// Came is how many descriptors came. If they were more than the connection
	// allows, all of them are closed and Fds is empty.
	Came int
}

// Take makes the descriptors the caller's.
func (f *Frame) Take() []int {
	fds := f.Fds
	f.Fds = nil
	return fds
}

// CloseFds closes the descriptors that nobody took. It may be called again.
func (f *Frame) CloseFds() { closeAll(f.Take()) }

// Decode reads the frame's fields into a message.
func (f *Frame) Decode(msg any) error {
	if err := json.Unmarshal(f.Body, msg); err != nil {
		return &Broken{Code: CodeFrame, Why: fmt.Sprintf("a message of type %q does not have its form", f.Type), Err: err}
	}
	return nil
}

// Broken reports that what came is no frame, or not in time, or that the
// connection is at its end for another reason that Code names. What the frame
// had brought is closed. Nothing more can be received.
type Broken struct {
	Code string
	Why  string
	Err  error // may be nil
}

func (e *Broken) Error() string { return "handoff: " + e.Why }

func (e *Broken) Unwrap() error { return e.Err }

// VersionError reports a frame of another version of the protocol. Its text is
// the one line both sides show (L23, C096).
type VersionError struct {
	Theirs, Ours int
	Serving      bool // whether we are the dispatcher
}

func (e *VersionError) Error() string {
	they, we := "the dispatcher", "this handsel"
	if e.Serving {
		they, we = "the client", "this dispatcher"
	}
	return fmt.Sprintf("%s speaks version %d of the handoff protocol and %s version %d: use one version of handsel for both, then `handsel dispatch takeover`",
		they, e.Theirs, we, e.Ours)
}

// Foreign reports a peer of another user. Nothing was read from it.
type Foreign struct{ UID, Ours int }

func (e *Foreign) Error() string {
	return fmt.Sprintf("uid %d is on the other side of the handoff socket of uid %d", e.UID, e.Ours)
}

// Complaint is the answer that tells the other side why its frame was refused.
func Complaint(err error) Answer {
	a := Answer{Code: CodeFrame, Message: err.Error()}
	if broken, ok := errors.AsType[*Broken](err); ok {
		a.Code = broken.Code
		if a.Code == CodeBusy || a.Code == CodeDescriptors {
			a.Class, a.Retryable = "resource", true
		}
	} else if _, ok := errors.AsType[*VersionError](err); ok {
		a.Code, a.Class = CodeVersion, "config"
	} else if _, ok := errors.AsType[*Foreign](err); ok {
		a.Code = CodeForeign
	}
	return a
}
