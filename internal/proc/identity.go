// Package proc knows processes: which one a record means, who its ancestors
// are, how a tree of them is started and how all of it is ended.
//
// A process is its pid and its start time, and not a zombie: a pid alone is a
// number that the kernel gives away again. Start times are compared as the
// kernel's own ticks since boot together with the boot's id, never as computed
// wall time, so that no step of the clock changes a verdict (S7). Nothing here
// judges by a process's name.
package proc

import (
	"bytes"
	"errors"
	"math"
	"os"
	"sync/atomic"

	"github.com/handsel/handsel/internal/machine"
)

// ErrGone reports that no process has the pid.
var ErrGone = errors.New("no such process")

// ID is a process that was seen alive.
type ID struct {
	Pid   int
	Ticks uint64 // start, in clock ticks since boot (proc(5) field 22); 0 = not known
	Boot  string // the boot it belongs to
	NS    uint64 // the pid namespace in which Pid is its number; 0 = not known
}

// Claim is what a record says of a process; records of other programs may say
// less than ours (S6).
type Claim struct {
	Pid     int
	Ticks   uint64  // 0 = not recorded
	Started float64 // seconds since the epoch, as psutil computes it; 0 = not recorded
	Boot    string  // "" = not recorded
	NS      uint64  // 0 = not recorded
}

// Claim states the identity the way a record does.
func (id ID) Claim() Claim {
	return Claim{Pid: id.Pid, Ticks: id.Ticks, Started: id.StartedEpoch(), Boot: id.Boot, NS: id.NS}
}

// Verdict is what can be said of a Claim.
type Verdict int

const (
	// Gone: no process, another start, another boot, a zombie, or no start recorded.
	Gone Verdict = iota
	// Alive: pid and start agree and it is not a zombie; stopped counts as alive.
	Alive
	// Unverifiable: it cannot be looked at from here, so it must count as alive.
	Unverifiable
)

func (v Verdict) String() string {
	return [...]string{"gone", "alive", "unverifiable"}[v]
}

// Stat is one process at one look.
type Stat struct {
	Pid, PPid, Pgrp, Session int
	TTY, Tpgid               int  // controlling terminal's device and its foreground group; 0 and -1 without one
	State                    byte // R S D T t Z X … as in proc(5)
	Threads                  int  // of its thread group; 0 = not known
	Exiting                  bool // it is on its way out: it runs no more, and what it held may be free already
	Ticks                    uint64
	Comm                     string // name, at most 15 bytes, chosen by the process itself: never proof of anything
}

// Zombie tells whether the process has ended and only waits to be reaped. One
// whose first thread has left while others go on shows as Z too, and lives.
func (s Stat) Zombie() bool {
	return s.State == 'Z' && s.Threads <= 1 || s.State == 'X' || s.State == 'x'
}

// Stopped tells whether the process is stopped by a signal or a tracer. It
// still owns what it holds, but it will not act (S16).
func (s Stat) Stopped() bool { return s.State == 'T' || s.State == 't' }

// ID is the identity of the process that was looked at.
func (s Stat) ID() ID {
	return ID{Pid: s.Pid, Ticks: s.Ticks, Boot: machine.BootID(), NS: machine.PidNS()}
}

// Identify looks at pid now. ErrGone when it is not there or is a zombie.
func Identify(pid int) (ID, error) {
	st, err := ReadStat(pid)
	if err != nil {
		return ID{}, err
	}
	if st.Zombie() {
		return ID{}, ErrGone
	}
	return st.ID(), nil
}

// startTolerance is how far two computed start times of one process may lie
// apart (S7: within 2 s), where a record has no ticks.
const startTolerance = 2.0

// Judge tells whether the process a record names is still that process (S7).
func Judge(c Claim) Verdict {
	v, _ := judge(c)
	return v
}

// Ended tells whether the process a record names can do nothing more: it is gone,
// or the kernel is taking it apart. A process that dies closes its descriptors
// before it shows as a zombie, and on a busy machine the time between is long
// enough to look at: whoever finds a lock free must not conclude from a holder
// that "still lives" that it let go by itself.
func Ended(c Claim) bool {
	v, st := judge(c)
	return v == Gone || v == Alive && st.Exiting
}

// judge is Judge, with what was seen of the process where it was looked at.
func judge(c Claim) (Verdict, Stat) {
	if c.Pid <= 0 || c.Pid > math.MaxInt32 || c.Ticks == 0 && c.Started == 0 {
		return Gone, Stat{}
	}
	if c.Boot != "" && c.Boot != machine.BootID() {
		return Gone, Stat{}
	}
	if ns := machine.PidNS(); c.NS != 0 && ns != 0 && c.NS != ns {
		return Unverifiable, Stat{}
	}
	st, err := ReadStat(c.Pid)
	switch {
	case errors.Is(err, ErrGone):
		return Gone, Stat{}
	case err != nil:
		return Unverifiable, Stat{}
	case st.Zombie():
		return Gone, Stat{}
	case c.Ticks != 0:
		return verdict(st.Ticks == c.Ticks), st
	default:
		return verdict(math.Abs(st.ID().StartedEpoch()-c.Started) <= startTolerance), st
	}
}

func verdict(same bool) Verdict {
	if same {
		return Alive
	}
	return Gone
}

// Ancestors lists the parents of pid, nearest first, up to pid 1 or to where
// the process table cannot be read any more.
func Ancestors(pid int) []Stat {
	var line []Stat
	st, err := ReadStat(pid)
	for err == nil && st.PPid > 0 && len(line) < maxAncestors {
		if st, err = ReadStat(st.PPid); err == nil {
			line = append(line, st)
		}
	}
	if pid == os.Getpid() {
		lineage.Store(&line)
	}
	return line
}

// lineage is what Ancestors last found for this process.
var lineage atomic.Pointer[[]Stat]

// Lineage is the parents of this process as they were last looked up: good for
// showing who started us, not for deciding anything.
func Lineage() []Stat {
	if line := lineage.Load(); line != nil {
		return *line
	}
	return Ancestors(os.Getpid())
}

// maxAncestors bounds a walk over a table that changes under it.
const maxAncestors = 512

// LookEnv finds name in the NUL-separated text of an environment. The first
// entry counts, as it does for getenv(3).
func LookEnv(text []byte, name string) (string, bool) {
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if len(entry) > len(name) && entry[len(name)] == '=' && string(entry[:len(name)]) == name {
			return string(entry[len(name)+1:]), true
		}
	}
	return "", false
}
