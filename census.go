package handsel

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// Uncounted is an agent's process that holds no slot and belongs to no run of this
// home: it was started around us (W9).
type Uncounted struct {
	Pid     int         `json:"pid"`
	Ticks   uint64      `json:"start_ticks"`
	Started record.Time `json:"started"`
	UID     int         `json:"uid"`
	Engine  string      `json:"engine"`
	How     string      `json:"how"` // how it was proven to be that: executable, script, path, title
	Exe     string      `json:"exe"` // what it executes
	Cwd     string      `json:"cwd,omitempty"`
	Parent  int         `json:"parent_pid"`
	With    int         `json:"with"`          // processes of engines below it, which are its own
	Run     string      `json:"run,omitempty"` // of handsel all the same: one that has ended, or of another home
}

// Census is a look at the agents of the machine.
type Census struct {
	Counted    int         `json:"counted"`    // processes of engines that belong to runs of this home
	Unreadable int         `json:"unreadable"` // processes that could not be looked at
	Agents     []Uncounted `json:"agents"`
	Problems   []string    `json:"problems"`
}

// Census looks for agents that were started around us, by what they are proven to
// be. It changes nothing, and ends none.
func (h *Home) Census() (*Census, error) {
	all, unreadable, err := proc.Images()
	if err != nil {
		return nil, err
	}
	s, _ := h.lenient()
	known := s.known()
	known.Resolve = behindShims
	at, problems := h.runsPlace()
	live, err := at.List(RunFilter{})
	if err != nil {
		return nil, err
	}
	c := &Census{Unreadable: unreadable, Agents: []Uncounted{}, Problems: append([]string{}, append(problems, live.Problems...)...)}
	look := &census{known: known, table: map[int]*proc.Image{}, ours: map[int]uint64{}, runs: map[string]bool{}, engines: map[int]int{}}
	for i := range live.Runs {
		look.owns(&live.Runs[i])
	}
	look.sort(all, c)
	return c, nil
}

// census is one look at the process table.
type census struct {
	known   engine.Known
	table   map[int]*proc.Image
	ours    map[int]uint64  // supervisors and agents of live runs, by pid, to their starts
	runs    map[string]bool // live runs
	engines map[int]int     // the place in Census.Agents of each process that is listed
}

// owns notes a run of this home that has not ended.
func (l *census) owns(r *KnownRun) {
	if r.Ended() {
		return
	}
	l.runs[r.ID] = true
	l.ours[r.Handsel.Pid] = r.Handsel.Ticks
	if r.Child != nil {
		l.ours[r.Child.Pid] = r.Child.Ticks
	}
}

// sort tells the engines' processes apart, the oldest first: one below another
// that is listed is a part of that.
func (l *census) sort(all []proc.Image, c *Census) {
	slices.SortFunc(all, func(a, b proc.Image) int {
		if a.Ticks != b.Ticks {
			return int(int64(a.Ticks) - int64(b.Ticks))
		}
		return a.Pid - b.Pid
	})
	for i := range all {
		l.table[all[i].Pid] = &all[i]
	}
	for _, p := range all {
		if p.Pid == os.Getpid() {
			continue
		}
		name, how, ok := l.known.Proven(engine.Process{Exe: p.Exe, Argv: p.Argv, Comm: p.Comm, Dir: p.Dir})
		if !ok {
			continue
		}
		switch top, ours := l.above(&p); {
		case ours:
			c.Counted++
		case top >= 0:
			c.Agents[top].With++
		default:
			l.engines[p.Pid] = len(c.Agents)
			c.Agents = append(c.Agents, Uncounted{
				Pid: p.Pid, Ticks: p.Ticks, Started: startOf(&p), UID: p.UID, Engine: name, How: how, Exe: p.Exe, Cwd: p.Dir, Parent: p.PPid, Run: p.Run,
			})
		}
	}
}

// above looks for what the process belongs to: a run of ours, or the agent at that
// place of the list; -1 = neither.
func (l *census) above(p *proc.Image) (top int, ours bool) {
	top = -1
	if l.runs[p.Run] {
		return top, true
	}
	for steps := 0; p != nil && steps < len(l.table)+1; steps++ {
		if ticks, known := l.ours[p.Pid]; known && (ticks == 0 || ticks == p.Ticks) {
			return top, true
		}
		if at, listed := l.engines[p.Pid]; listed {
			top = at
		}
		p = l.table[p.PPid]
	}
	return top, false
}

func startOf(p *proc.Image) record.Time {
	return record.At(time.UnixMilli(int64(p.ID().StartedEpoch() * 1000)).UTC())
}

// behindShims finds a command as a start of ours would, and where it leads.
func behindShims(command string) string {
	path, err := proc.LookPath(command, os.Environ(), "")
	if err != nil && strings.Contains(command, "/") {
		path, err = command, nil // a script for an interpreter need not be executable
	}
	if err != nil {
		return ""
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return ""
	}
	return path
}
