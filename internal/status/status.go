// Package status is one look at pools, slots, lanes and the line, as one plain
// value that every window renders.
//
// It changes nothing, creates nothing, and answers within two seconds whatever
// is dead or stopped (S28): locks that do not come free are left alone, and the
// answer says so. It is a look, not a promise: what it shows may be over when
// it is read.
package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/slot"
)

// Places are the directories that are looked at.
type Places struct{ Leases, Waiting string }

// Cap is the cap in force for a pool, as the reader sees it.
type Cap struct {
	Pool string `json:"pool"`
	Cap  int    `json:"cap"`
	From string `json:"from"`
}

// The states of a slot that is taken.
const (
	Starting     = "starting" // held, and no child recorded yet
	Running      = "running"
	Orphaned     = "orphaned"     // the holder is gone, its child lives
	Unverifiable = "unverifiable" // the child cannot be looked at from here
)

// Snapshot is the whole picture (S29).
type Snapshot struct {
	V        int             `json:"v"`
	Root     string          `json:"root"` // the home
	RootFrom string          `json:"root_from"`
	At       Time            `json:"at"`
	Caps     []Cap           `json:"caps"`
	Pools    map[string]Pool `json:"pools"`
	Waiting  []Waiter        `json:"waiting"`
	Lanes    []Lane          `json:"lanes"` // those that somebody has
	// QueuedAll is the cap of the pool all that queued work runs under where none
	// is set (L13a); 0: one is set, or nothing is queued here.
	QueuedAll int      `json:"queued_all,omitempty"`
	Agents    []Agent  `json:"agents"` // those that are confined, or whose output is read
	Strays    []Stray  `json:"strays"`
	Holds     []Hold   `json:"holds"`    // orders that hold starts back
	Sources   []string `json:"sources"`  // what was read to know this
	Problems  []string `json:"problems"` // what could not be read
}

// Time is shown in UTC with milliseconds (C12).
type Time struct{ time.Time }

// MarshalJSON writes RFC 3339 in UTC with milliseconds, null for no time.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// Pool is one budget.
type Pool struct {
	Cap       int      `json:"cap"` // 0: none
	Held      int      `json:"held"`
	Effective int      `json:"effective_cap"` // the smallest cap in play, holders' included; 0: none
	Holders   []Holder `json:"holders"`
}

// Draining tells whether more is held than may be taken: a cap was lowered.
func (p Pool) Draining() bool { return p.Effective != 0 && p.Held > p.Effective }

// Holder is one slot that is taken.
type Holder struct {
	Slot     int    `json:"slot"`
	State    string `json:"state"`
	Engine   string `json:"engine,omitempty"`
	Workload string `json:"workload,omitempty"`
	// Interactive tells that a person sits in it; its run's record says so.
	Interactive bool   `json:"interactive,omitempty"`
	Argv0       string `json:"argv0,omitempty"`
	Run         string `json:"run,omitempty"`
	Holder      int    `json:"holder_pid,omitempty"`
	Child       int    `json:"child_pid,omitempty"`
	Cap         int    `json:"cap"` // as the holder read it
	Since       Time   `json:"since"`
}

// Waiter is one place in line.
type Waiter struct {
	Place    int        `json:"place"`
	Run      string     `json:"run,omitempty"`
	Engine   string     `json:"engine,omitempty"`
	Workload string     `json:"workload,omitempty"`
	Pid      int        `json:"pid"`
	Pools    []PoolWish `json:"pools"`
	Priority int        `json:"priority"`
	Since    Time       `json:"since"`
	Reason   string     `json:"reason"` // pool_full, line, stopped, or why it is parked
	Pool     string     `json:"pool,omitempty"`
	Lane     string     `json:"lane,omitempty"` // that it waits for
	Until    *Time      `json:"until,omitempty"`
	Passes   int        `json:"passes"`
}

// PoolWish is a pool that a waiter wants, with the cap it read.
type PoolWish struct {
	Name string `json:"name"`
	Cap  int    `json:"cap"`
}

// Hold is an order in force that holds starts back.
type Hold struct {
	Scope  string `json:"scope"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	By     string `json:"by"`
	Since  Time   `json:"since"`
	Until  Time   `json:"until"` // null: until it is removed
}

// Agent is what the record of a live run tells of its agent.
type Agent struct {
	Run         string `json:"run"`
	Engine      string `json:"engine,omitempty"`
	Confinement string `json:"confinement"`
	// LastEvent is when its output last told something; null: it is not read.
	LastEvent Time            `json:"last_event_at"`
	Trouble   *record.Trouble `json:"trouble,omitempty"` // what it fights with just now
	Limits    *record.Limits  `json:"limits,omitempty"`  // that end it; nil: none
}

// Stray is an agent for which neither a slot nor a lane stands: its supervisor
// was killed in the instant between starting it and recording it, or it ran
// uncapped.
type Stray struct {
	Pid  int    `json:"pid"`
	Comm string `json:"comm"`
	Run  string `json:"run"`
}

// lockPatience bounds all waiting for locks in one look (S10).
const lockPatience = time.Second

// builtin pools are shown first, in this order.
var builtin = []string{"all", "heavy"}

// Look takes the picture. Caps says what is in force for the reader.
func Look(ctx context.Context, at Places, root, rootFrom string, caps []Cap) *Snapshot {
	s := &Snapshot{
		V: 1, Root: root, RootFrom: rootFrom, At: Time{machine.Now()}, Caps: caps,
		Pools: map[string]Pool{}, Waiting: []Waiter{}, Lanes: []Lane{}, Agents: []Agent{}, Strays: []Stray{}, Holds: []Hold{}, Sources: []string{}, Problems: []string{},
	}
	if s.Caps == nil {
		s.Caps = []Cap{}
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	names := s.poolNames(at)
	release := s.quiet(ctx, at, names)
	counts := s.countAll(at, names)
	s.line(at, counts)
	release() // what follows takes longer, and nobody has to wait for it
	s.seeLanes()
	s.findStrays()
	return s
}

func (s *Snapshot) problem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

// Order lists the pools as they are shown: all, heavy, then by name.
func (s *Snapshot) Order() []string {
	names := make([]string, 0, len(s.Pools))
	for name := range s.Pools {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		ia, ib := slices.Index(builtin, a), slices.Index(builtin, b)
		switch {
		case ia >= 0 && ib >= 0:
			return ia - ib
		case ia >= 0:
			return -1
		case ib >= 0:
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

func (s *Snapshot) countAll(at Places, names []string) map[string]slot.Count {
	counts := map[string]slot.Count{}
	for _, name := range names {
		c, err := count(at, name)
		if err != nil {
			s.problem("pool %q: %v", name, err)
			continue
		}
		counts[name] = c
	}
	for _, c := range s.Caps {
		if _, ok := counts[c.Pool]; !ok {
			counts[c.Pool] = slot.Count{Pool: c.Pool}
		}
	}
	for name, c := range counts {
		s.Pools[name] = s.pool(name, c)
	}
	if len(names) > 0 {
		s.Sources = append(s.Sources, "slot locks and records")
	}
	return counts
}

// settleTries repeats a count that catches a slot changing hands.
const settleTries = 5

func count(at Places, name string) (slot.Count, error) {
	p, err := slot.Open(at.Leases, name, false)
	if errors.Is(err, fs.ErrNotExist) {
		return slot.Count{Pool: name}, nil
	}
	if err != nil {
		return slot.Count{}, err
	}
	defer p.Close()
	var c slot.Count
	for range settleTries {
		if c, err = p.Count(); err != nil || c.Doubts == 0 {
			break
		}
		time.Sleep(2 * time.Millisecond) // a release clears the record a moment before the lock goes
	}
	return c, err
}

func (s *Snapshot) pool(name string, c slot.Count) Pool {
	p := Pool{Held: c.Held, Holders: []Holder{}}
	for _, limit := range s.Caps {
		if limit.Pool == name {
			p.Cap = limit.Cap
		}
	}
	p.Effective = c.Limit(p.Cap)
	for _, seen := range c.Slots {
		p.Holders = append(p.Holders, holder(seen))
	}
	slices.SortFunc(p.Holders, func(a, b Holder) int { return a.Slot - b.Slot })
	return p
}

func holder(seen slot.Seen) Holder {
	h := Holder{Slot: seen.Index, State: Starting}
	if r := seen.Record(); r != nil {
		h.Engine, h.Workload, h.Argv0, h.Run, h.Holder, h.Cap = r.Engine, r.Workload, r.Argv0, r.Run, r.HolderPid, r.Cap
		h.Since = Time{r.SinceTime()}
		if r.ChildPid != nil {
			h.Child, h.State = *r.ChildPid, Running
		}
	}
	switch seen.State {
	case slot.Orphaned:
		h.State = Orphaned
	case slot.Unverifiable:
		h.State = Unverifiable
	}
	return h
}

// findStrays looks for agents by the mark in their environment (C022).
func (s *Snapshot) findStrays() {
	marked, err := proc.FindMarked("HANDSEL_RUN")
	if err != nil {
		return // no process table to look in, as on Windows
	}
	counted := map[string]bool{}
	for _, l := range s.Lanes {
		counted[l.Run] = true
	}
	for _, p := range s.Pools {
		for _, h := range p.Holders {
			counted[h.Run] = true
		}
	}
	of := map[int]string{}
	for _, m := range marked {
		of[m.Pid] = m.Value
	}
	for _, m := range marked {
		if counted[m.Value] || of[m.PPid] == m.Value || !isAgent(m.Pid) || !s.ours(m.Pid) || supervised(m.Pid) {
			continue
		}
		s.Strays = append(s.Strays, Stray{Pid: m.Pid, Comm: m.Comm, Run: m.Value})
	}
}

// ours tells whether the process was started under this home.
func (s *Snapshot) ours(pid int) bool {
	home, _, err := proc.Env(pid, "HANDSEL_HOME")
	return err == nil && (home != "" && filepath.Clean(home) == s.Root || home == "" && s.RootFrom == "passwd")
}

func isAgent(pid int) bool {
	depth, ok, err := proc.Env(pid, "HANDSEL_AGENT_DEPTH")
	return err == nil && ok && depth != ""
}

// supervised tells whether one of ours still looks after pid.
func supervised(pid int) bool {
	return slices.ContainsFunc(proc.Ancestors(pid), func(st proc.Stat) bool { return strings.HasPrefix(st.Comm, "handsel:d") })
}

var errStuck = errors.New("an admission lock did not come free")

func stuckText(f *flock.File) string {
	if pids := f.Owners(); len(pids) > 0 {
		return fmt.Sprintf("held by pid %d", pids[0])
	}
	return "holder not known"
}
