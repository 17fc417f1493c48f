// Package lane is one named seat of work: its lock, and the record in it that
// outlives its owner.
//
// A lane is owned while its file is locked, or while its record names an agent
// that still runs; the kernel frees the lock on any crash of the owner, and the
// record keeps the lane for an agent that lives on (L1, S5 to S9). Whoever takes
// a lane is told who has it, from the kernel first and then from the record
// (L3). A lane can be handed on by passing its descriptor: Adopt proves that what
// came is this lane's file and that the lock is held through it (L6).
//
// The package starts and ends nothing, knows no queue, and decides no order among
// those who wait for one lane but the kernel's. It does not protect against
// another process of the same user that ignores the locks, or removes the file of
// a lane that is owned.
package lane

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/proc"
)

// State is what a look at one lane found (S7).
type State int

const (
	Free         State = iota
	Owned              // locked by a living owner
	Orphaned           // unlocked, but the recorded agent still runs
	Unverifiable       // unlocked, but the recorded agent cannot be looked at from here
)

func (s State) String() string {
	return [...]string{"free", "held", "orphaned", "unverifiable"}[s]
}

// Seen is one lane at one look.
type Seen struct {
	Name   string // empty where only a shortened file name is known of it
	File   string // in the directory of lanes
	State  State
	Record *Record // what the file says, nil when there is nothing that can be read
}

// Owner says in words who has the lane, as far as that can be told: the record
// is believed only of processes that can be looked at (L3).
func (s Seen) Owner() string {
	r := s.Record
	switch {
	case s.State == Free:
		return "nobody"
	case r == nil || r.Holder == nil:
		return "a process that has not said who it is"
	}
	holder, child := strconv.Itoa(r.Holder.Pid), ""
	if r.Child != nil {
		child = strconv.Itoa(r.Child.Pid)
	}
	switch s.State {
	case Orphaned:
		return "the orphaned agent " + child + " of pid " + holder + s.work()
	case Unverifiable:
		return "agent " + child + " of pid " + holder + ", which cannot be looked at from here" + s.work()
	}
	text := "pid " + holder
	if r.Role != RoleRun && r.Role != "" {
		text = r.Role + " " + text
	}
	if proc.Judge(r.HolderClaim()) == proc.Gone {
		text += ", which is gone and has handed it on"
	}
	if child != "" {
		text += " (child " + child + ")"
	}
	return text + s.work()
}

// work names the attempt or run by which people know the work.
func (s Seen) work() string {
	switch r := s.Record; {
	case r.Attempt != "":
		return ", attempt " + r.Attempt
	case r.Run != "":
		return ", run " + r.Run
	}
	return ""
}

// Held refuses to take a lane that somebody has. Nothing was taken; the same
// may succeed later.
type Held struct {
	Seen
	Waited time.Duration
}

func (e *Held) Error() string {
	text := fmt.Sprintf("lane %s is owned by %s", strconv.QuoteToASCII(e.Name), e.Owner())
	if e.Waited >= time.Second {
		text = fmt.Sprintf("waited %ds; %s", int(e.Waited/time.Second), text)
	}
	return text
}

// Mismatch refuses a lane whose file holds the record of another: two long names
// were shortened to one, or somebody moved files about (C11).
type Mismatch struct{ Name, File, Other string }

func (e *Mismatch) Error() string {
	return fmt.Sprintf("lane %s: its file %s is that of lane %s",
		strconv.QuoteToASCII(e.Name), e.File, strconv.QuoteToASCII(e.Other))
}

// Newer refuses a lane whose record a later version has written, which is never
// rewritten (C12).
type Newer struct {
	Name       string
	Have, Want int
}

func (e *Newer) Error() string {
	return fmt.Sprintf("lane %s: its record has version %d, and this program knows %d: update it", strconv.QuoteToASCII(e.Name), e.Have, e.Want)
}

// InUse refuses to free a lane that somebody has, or to remove the file of one
// that is not idle or has had a fence (L2).
type InUse struct {
	Seen
	Why string
}

func (e *InUse) Error() string { return fmt.Sprintf("lane file %s stays as it is: %s", e.File, e.Why) }

// Hold is a lane that is ours. It is for one goroutine at a time. The lock ends
// with Release, with Keep, or with the last copy of its descriptor; nothing is
// ever unlocked (S8).
type Hold struct {
	file   *flock.File
	rec    Record
	marked bool // the agent is wholly recorded
}

// Fd is the descriptor that holds the lock, for passing it on. It stays the
// Hold's; −1 after Release or Keep.
func (h *Hold) Fd() int {
	if h.file == nil {
		return -1
	}
	return h.file.Fd()
}

// Name is the lane's.
func (h *Hold) Name() string { return h.rec.Lane }

// Record is what the lane's file says now.
func (h *Hold) Record() Record { return h.rec }

// SetOwner writes who owns the lane from now on. The name stays, and the fence
// never falls. On an error the file may say either.
func (h *Hold) SetOwner(rec Record) error {
	rec.V, rec.Lane, rec.Fence = version, h.rec.Lane, max(rec.Fence, h.rec.Fence)
	h.rec = rec
	_, named := h.rec.ChildClaim()
	h.marked = false
	if err := h.write(); err != nil {
		return err
	}
	h.marked = named
	return nil
}

// Grant gives the lane the next fence, for an owner that comes by no grant of the
// dispatcher's: a direct run, on taking the lane (P9). It returns the fence. An
// error means that the owner has none, whatever the file now holds.
func (h *Hold) Grant() (uint64, error) {
	rec := h.rec
	if rec.Fence >= math.MaxInt64 { // as far as the dispatcher's database counts
		return 0, fmt.Errorf("lane %s: fence %d leaves no greater one", strconv.QuoteToASCII(rec.Lane), rec.Fence)
	}
	rec.Fence++
	if err := h.SetOwner(rec); err != nil {
		return 0, err
	}
	return rec.Fence, nil
}

// SetChild writes the agent's identity into the lane. An error means that the
// lane would not be kept for the agent if we died, whatever the file now holds
// (S12).
func (h *Hold) SetChild(id proc.ID) error {
	rec := h.rec
	rec.Child = &Process{id.Pid, id.Ticks}
	return h.SetOwner(rec)
}

// Marked tells whether the record holds the agent's whole identity, so that it
// would keep the lane without the lock.
func (h *Hold) Marked() bool { return h.marked && h.rec.Child.Ticks != 0 }

// Release leaves name and fence in the record and then closes the lock, so that
// a free lane names nobody. An error says that the record stayed: it then names
// an agent that is gone, or keeps the lane for one that is not. It is safe to
// call again.
func (h *Hold) Release() error {
	if h.file == nil {
		return nil
	}
	h.rec, h.marked = h.rec.idle(), false
	err := h.write()
	failpoint.Hit("lane.cleared")
	h.Keep()
	failpoint.Hit("lane.released")
	return err
}

// Keep closes the lock and leaves the record: the lane reads owned while the
// recorded agent runs.
func (h *Hold) Keep() {
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
}

func (h *Hold) write() error {
	if h.file == nil {
		return fmt.Errorf("write lane %s: %w", strconv.QuoteToASCII(h.rec.Lane), errNotHeld)
	}
	text, err := h.rec.encode()
	if err == nil {
		err = h.file.WriteAt(text, 0)
	}
	if err != nil {
		return fmt.Errorf("write lane %s: %w", strconv.QuoteToASCII(h.rec.Lane), err)
	}
	return nil
}

var errNotHeld = errors.New("the lane was let go of")
