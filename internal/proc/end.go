package proc

import (
	"errors"
	"time"
)

// Grace is how long a tree has between TERM and KILL, and once more after
// KILL, unless the caller says otherwise (S21).
const Grace = 5 * time.Second

// Survivor is a process that is still there after the end of its run.
type Survivor struct {
	Pid  int
	ID   ID
	Comm string
	Why  string
}

// Ending says how to end what a run has left (S21, S21a).
type Ending struct {
	Child *Child
	// Grace is the time from TERM to KILL, Kill the time after it. 0 = 5 s.
	Grace, Kill time.Duration
	// Now, when closed, ends the grace (a second signal, S22).
	Now <-chan struct{}
	// Run finds strays by HANDSEL_RUN in their environment where orphans of
	// the tree do not come to us.
	Run string
	// Adopting says that this process is a subreaper, so that every orphan
	// below it is of the tree.
	Adopting bool
	// LeaveDaemons keeps descendants that made their own session.
	LeaveDaemons bool
	// PassOver tells whether a descendant is the recorded holder of a lease,
	// a lane or the dispatcher's lock. It and all below it are kept.
	PassOver func(pid int, id ID) bool
}

// Report is what an ending left behind.
type Report struct {
	// LeaderGone holds when the child itself has ended (and was reaped).
	LeaderGone bool
	// Survivors withstood KILL. Kept were left on purpose.
	Survivors, Kept []Survivor
}

// Orphan is a child whose supervisor is gone (S23).
type Orphan struct {
	Child       Claim  // as the slot or the run recorded it
	Run         string // the run's id; "" = not known
	Grace, Kill time.Duration
	Now         <-chan struct{}
	PassOver    func(pid int, id ID) bool
}

var (
	// ErrUnverifiable reports that a recorded process cannot be looked at from
	// here, so nothing was signalled.
	ErrUnverifiable = errors.New("the recorded process cannot be looked at from here")
	// ErrNotToEnd reports a record that names init, this process or one of its
	// ancestors. Nothing was signalled.
	ErrNotToEnd = errors.New("the record names init, this process or one it runs under")
)

func orGrace(d time.Duration) time.Duration {
	if d == 0 {
		return Grace
	}
	return d
}

// Capabilities is what this system lets us promise when a run ends.
type Capabilities struct {
	Subreaper  bool // descendants that left group and session are found
	Pidfd      bool // signals go to a process, never to a number
	PidfdGroup bool // the same for groups (Linux 6.9)
	Handover   bool // the terminal can be handed over, stops are seen
}
