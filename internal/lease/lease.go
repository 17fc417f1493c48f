// Package lease is the right to run one agent: a slot in every pool it counts
// against, or none.
//
// Acquire admits at once, waits in line, or refuses; it hides pools, admission
// locks, the order of those who wait, and how they are woken. It holds nothing
// while it waits but its place in line. Nothing here starts or ends a process,
// and nothing depends on any other process being alive: a cap is held by
// kernel locks, and every wait ends by a kernel event or, where the kernel
// gives none, by a slow poll (S10 to S17).
package lease

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/slot"
)

// Pool is a budget that a start counts against.
type Pool struct {
	Name    string
	Cap     int    // 0 = no cap: counted, never full by itself
	CapFrom string // the variable or file that says so
}

// Places are the directories that admission works in.
type Places struct {
	Leases  string
	Waiting string
	Holds   string // watched while an answer of Want.Check makes a start wait
}

// Answer is what an admission check says of a start (P1).
type Answer struct {
	Class   string // of the reason (C13); empty = hold
	Code    string // empty = go
	Deny    bool   // final for this request; else it may wait
	Message string
	Until   time.Time // when the answer ends by itself; zero = not known
	Err     error     // the check could not be made, so nothing starts

	// Again is after how long to ask again, though no event tells of a change;
	// 0 leaves it to the fallback poll.
	Again time.Duration
	// Turn is what the start waits for that comes to one start after the other; see
	// Want.Turns.
	Turn string
	// Sole turns the answer into a go that is good for one: while nothing of its
	// kind holds a slot (Alone). What the answer says else holds for the others.
	Sole bool
}

func (a Answer) stops() bool { return a.Code != "" && !a.Sole }

// Want describes the start that asks to be admitted.
type Want struct {
	// Pools says what the start counts against, under the caps in force now. It
	// is asked at every admission, so that a changed cap needs no restart (S2).
	// No pools at all means that nothing is counted (S4).
	Pools func() ([]Pool, error)

	// Check is asked before pools are counted; nil means go.
	Check func() Answer

	// Turns are what starts of this kind come to one after the other, whatever pools
	// have room: of those whom only the same turn holds back, the first in line is
	// first, and not whoever wakes first.
	Turns []string

	// Changed tells, cheaply and without opening a file, whether Pools may
	// answer differently by now; nil means no.
	Changed func() bool

	Engine   string
	Workload string
	Run      string // the run's id
	Argv0    string

	Wait     time.Duration // longest wait for admission; 0 refuses at once
	Patience time.Duration // how long an admissible ticket may leave its turn unused; 0 means 250 ms (S16)
	Poll     time.Duration // fallback where the kernel gives no event; 0 means DefaultPoll
	Priority int
	Start    time.Duration // arrival, CLOCK_BOOTTIME; 0 means now
	ID       string        // ties between equal keys; empty means random

	// OnWait is told when the wait begins and when its reason changes. It must
	// not block.
	OnWait func(Waiting)
}

// GateWorkload is the class under which a heavy command's slot is recorded.
const GateWorkload = "gate"

// DefaultPoll is the fallback poll, jittered by a quarter either way (S15).
const DefaultPoll = 2 * time.Second

// Codes say why a start waits or was refused.
const (
	PoolFull       = "pool_full"
	InLine         = "line"            // a slot is free, and somebody ahead may take it
	OwnAncestors   = "own_ancestors"   // final: only our own ancestors hold the pool
	LockStuck      = "lock_stuck"      // an admission lock did not come free
	SlotUnwritable = "slot_unwritable" // the child could not be recorded
	Unsupported    = "cap_unsupported" // this platform cannot hold a cap
)

// Holder is one slot of a pool that is not free.
type Holder struct {
	Pool     string
	Index    int
	Slot     string // pool/index, as people see it
	Ticks    uint64 // start of Pid; 0 = not known
	State    string // held, orphaned, unverifiable
	Pid      int    // the process that took it; 0 = not known
	Child    int    // the agent; 0 = none yet, or not known
	Engine   string
	Workload string
	Run      string
	Argv0    string
	Since    time.Time
}

func (h Holder) String() string {
	var b strings.Builder
	switch {
	case h.Pid == 0:
		b.WriteString("slot " + h.Slot)
	case h.State == slot.Unverifiable.String():
		return "slot " + h.Slot + ", whose agent cannot be looked at from here (handsel gc --slot " + h.Slot + ")"
	case h.State == slot.Orphaned.String():
		b.WriteString("orphaned child " + strconv.Itoa(h.Child) + " of pid " + strconv.Itoa(h.Pid))
		return b.String()
	default:
		b.WriteString("pid " + strconv.Itoa(h.Pid))
	}
	if h.Child != 0 {
		b.WriteString(" (child " + strconv.Itoa(h.Child) + ")")
	}
	return b.String()
}

// HolderOf describes a slot that was seen taken.
func HolderOf(pool string, s slot.Seen) Holder {
	h := Holder{Pool: pool, Index: s.Index, Slot: pool + "/" + strconv.Itoa(s.Index), State: s.State.String()}
	if r := s.Record(); r != nil {
		h.Pid, h.Ticks = r.HolderPid, r.HolderTicks
		h.Engine, h.Workload, h.Run, h.Argv0, h.Since = r.Engine, r.Workload, r.Run, r.Argv0, r.SinceTime()
		if r.ChildPid != nil {
			h.Child = *r.ChildPid
		}
	}
	return h
}

// Waiting is why a start is not admitted yet.
type Waiting struct {
	Class   string // of the reason, where a check gave it; else the code tells
	Code    string
	Pool    string // the pool that is full, or whose free slot is somebody else's turn
	Cap     int
	CapFrom string
	Holders []Holder
	Place   int // in line, from 1
	Message string
	Until   time.Time
	Deny    bool // a check refused for good
	Waited  time.Duration
}

// Refused reports that a start was not admitted. Nothing was started, or, with
// SlotUnwritable, nothing is left of it.
type Refused struct {
	Waiting
	Engine   string
	Workload string
	Gate     bool
	Cause    error
}

// Retryable tells whether the same request may be admitted later.
func (r *Refused) Retryable() bool { return r.Code != OwnAncestors && !r.Denied() }

// Denied tells whether a check refused for good.
func (r *Refused) Denied() bool { return r.Deny }

func (r *Refused) Unwrap() error { return r.Cause }

// Error is the one line of S18.
func (r *Refused) Error() string {
	var b strings.Builder
	b.WriteString(r.who())
	if r.Waited >= time.Second {
		fmt.Fprintf(&b, " waited %ds", int(r.Waited/time.Second))
	} else {
		b.WriteString(" not admitted")
	}
	b.WriteString("; " + r.Waiting.Reason())
	return b.String()
}

func (r *Refused) who() string {
	if r.Gate {
		return "command"
	}
	words := []string{r.Workload, r.Engine, "agent"}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// Reason says in words what is in the way.
func (w Waiting) Reason() string {
	switch w.Code {
	case PoolFull, OwnAncestors:
		text := fmt.Sprintf("pool %q is at its cap of %d", w.Pool, w.Cap)
		if w.CapFrom != "" {
			text += " (" + w.CapFrom + ")"
		}
		if len(w.Holders) > 0 {
			text += ", held by " + listHolders(w.Holders)
		}
		if w.Code == OwnAncestors {
			text += "; those slots end only when we do, so waiting would never end"
		}
		return text
	case InLine:
		return fmt.Sprintf("pool %q has room, but %s", w.Pool, w.Message)
	}
	if w.Message != "" {
		return w.Message
	}
	return w.Code
}

// maxListed bounds how many holders one line of text names.
const maxListed = 8

func listHolders(holders []Holder) string {
	var names []string
	for i, h := range holders {
		if i == maxListed {
			names = append(names, fmt.Sprintf("and %d more", len(holders)-maxListed))
			break
		}
		names = append(names, h.String())
	}
	return strings.Join(names, ", ")
}

// Lease is the right to run one agent until it is released. It is safe for use
// by several goroutines.
type Lease struct {
	mu    sync.Mutex
	slots []*slot.Hold
	line  queue // whom a release may have to wake; nil = nothing is counted
	// How the line looked at admission: if nobody stood in it and nobody came
	// or left since, there is nobody to wake.
	company bool
	mark    lineMark
	after   func()      // closes what the wait left open, once the child runs
	unlist  func()      // gives up our place in line first of that, where it was kept
	soon    *time.Timer // closes it also when the child is late
	waited  time.Duration
	taken   time.Time
}

// Empty tells whether nothing is counted, so that there is nothing to record.
func (l *Lease) Empty() bool { return len(l.slots) == 0 }

// Waited is how long admission took.
func (l *Lease) Waited() time.Duration { return l.waited }

// Taken is when the slots were taken, by the wall clock: what was known of the
// machine and of an account before that is what the start went by.
func (l *Lease) Taken() time.Time { return l.taken }

// Slot is one slot of a lease, with the descriptor that holds its lock. The
// descriptor stays the lease's.
type Slot struct {
	Pool  string
	Index int
	Cap   int // as the holder read it; 0 = none
	Fd    int
}

// Slots lists the lease's slots in the order of their pools' names.
func (l *Lease) Slots() []Slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Slot
	for _, h := range l.slots {
		all = append(all, Slot{Pool: h.Pool, Index: h.Index, Cap: h.Record().Cap, Fd: h.Fd()})
	}
	return all
}

// RecordChild writes the child's identity into every slot (S12). On a *Refused
// the caller ends the child's tree and releases the lease: a slot that was not
// written whole would read free once we died while the child ran on.
func (l *Lease) RecordChild(id proc.ID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.slots {
		if err := h.SetChild(id); err != nil {
			rec := h.Record()
			return &Refused{
				Waiting: Waiting{Code: SlotUnwritable, Pool: h.Pool, Cap: rec.Cap,
					Message: fmt.Sprintf("slot %s in pool %q cannot record the child: %v", h, h.Pool, err)},
				Engine: rec.Engine, Workload: rec.Workload, Gate: rec.Workload == GateWorkload, Cause: err,
			}
		}
	}
	l.settle()
	return nil
}

// settleBy bounds how long those behind us sleep on although we were admitted.
const settleBy = 10 * time.Millisecond

// settle closes what the wait left open, and lets those behind us in line look
// in their turn. Closing an inotify instance can take 15 ms and waking others
// takes a processor, so both are kept off the path between admission and the
// child; but not for long, as the child may be slow to start. l.mu is held.
func (l *Lease) settle() {
	if l.after == nil {
		return
	}
	l.soon.Stop()
	after := l.after
	l.after = nil
	l.unlist()
	go func() {
		after()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake(l.pools())
	}()
}

// pools are those of the lease's slots. l.mu is held.
func (l *Lease) pools() []string {
	var names []string
	for _, h := range l.slots {
		names = append(names, h.Pool)
	}
	return names
}

// Release gives all slots back and wakes whoever must be woken. An error says
// that a record could not be cleared; its slot is free all the same once the
// child is gone. It is safe to call again.
func (l *Lease) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
	pools := l.pools()
	// All are cleared before the first is let go: else somebody might find room
	// in one pool while another still seems full to one before it in line, and
	// pass (S16).
	var errs []error
	for _, h := range l.slots {
		errs = append(errs, h.Clear())
	}
	for _, h := range slices.Backward(l.slots) {
		h.Keep()
	}
	l.slots = nil
	l.advance(pools)
	return errors.Join(errs...)
}

// ErrLocksKept reports that a lease kept its locks because not every slot
// holds its child's whole record.
var ErrLocksKept = errors.New("a slot lacks the child's whole record, so the slots stay locked until this process ends")

// Keep gives up the locks and leaves the records, for a child whose tree could
// not be ended: the slots then read held while it runs. When a record is not
// whole the locks stay instead, until this process ends, and the error is
// ErrLocksKept: slots are kept or given up together (S12).
func (l *Lease) Keep() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
	for _, h := range l.slots {
		if !h.Marked() {
			return ErrLocksKept // descriptors are plain numbers: nothing closes them but Release
		}
	}
	for _, h := range l.slots {
		h.Keep()
	}
	pools := l.pools()
	l.slots = nil
	l.advance(pools)
	return nil
}

// lineMark is how the line's directory looked at one time.
type lineMark struct{ sec, nsec int64 }
