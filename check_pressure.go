package handsel

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/doctor"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/pressure"
	"github.com/handsel/handsel/internal/slot"
)

const (
	// pressureAgain is how often a start that pressure holds back asks again: no
	// event tells that memory came free.
	pressureAgain = time.Second

	// pressureForgets is after how long without asking it is forgotten what a
	// start was told: it asks every second, so it is somebody else's business by
	// then, or the process was stopped.
	pressureForgets = time.Minute

	// causeEvery bounds how often it is looked up who has the memory, which reads
	// the whole process table.
	causeEvery = 10 * time.Second
)

// told is what starts were told by pressure, by their runs. A row of the
// dispatcher may stand in line several times before it is admitted.
type told struct {
	mu sync.Mutex
	of map[string]pressed
}

type pressed struct {
	pressure.Told
	asked  time.Duration // CLOCK_BOOTTIME
	cause  string
	looked time.Duration // when cause was looked up
}

// take is what a start was told, and forgets what is old of others.
func (t *told) take(run string, now time.Duration) pressed {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.of {
		if now-p.asked > pressureForgets || now < p.asked {
			delete(t.of, id)
		}
	}
	return t.of[run]
}

func (t *told) keep(run string, p pressed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(p.Held) == 0 {
		delete(t.of, run)
		return
	}
	if t.of == nil {
		t.of = map[string]pressed{}
	}
	t.of[run] = p
}

func pressureOf(c config.PressureConf) pressure.Settings {
	return pressure.Settings{
		MinFreeMemory: c.MinFreeMemory, MaxMemoryPressure: c.MaxMemoryPressure, MaxCPUPressure: c.MaxCPUPressure, MaxIOPressure: c.MaxIOPressure,
		MinFreeDisk: c.MinFreeDisk, DiskPaths: c.DiskPaths, MaxLoadPerCore: c.MaxLoadPerCore,
		MaxHold: c.MaxHold, FailClosed: c.Fail == "closed", Margin: c.Margin,
	}
}

// countedForPressure tells whether starts are counted because pressure must know
// whether any runs. Windows can count none.
func countedForPressure(c config.PressureConf) bool { return c.On() && runtime.GOOS != "windows" }

// pressure asks whether the machine bears one more (P2). While it does not, no
// event tells when it does, so the answer says when to ask again.
func (a *asker) pressure() lease.Answer {
	a.through = lease.Answer{}
	s := pressureOf(a.settings.Pressure)
	if !s.On() {
		return lease.Answer{}
	}
	now := machine.SinceBoot()
	was := a.home.told.take(a.start.Run, now)
	at := a.home.places(a.settings.Settings)
	seen := pressure.Look(s, a.home.dir.Path)
	alone := func() bool {
		alone, err := lease.Alone(at, a.start.Only)
		return err == nil && alone // what cannot be counted, admission refuses
	}
	answer, next := pressure.Decide(s, seen, was.Told, now, alone)
	if answer.Code() == "" && len(was.Held) == 0 {
		// Who comes now does not pass those who are held until it is better by the
		// margin, or a value that swings about its limit would starve them.
		if held, err := lease.ParkedFor(at); err == nil && len(held) > 0 {
			answer, next = pressure.Decide(s, seen, pressure.Told{Held: held}, now, alone)
		}
	}
	for _, m := range answer.Blind {
		a.note(fmt.Sprintf(`%s; fail = "open" starts all the same`, m.Say()))
	}
	was.Told, was.asked = next, now
	if memoryShort(answer) && (was.looked == 0 || now-was.looked > causeEvery) {
		was.cause, was.looked = a.home.cause(at), now
	}
	a.home.told.keep(a.start.Run, was)
	if answer.Code() == "" {
		return lease.Answer{}
	}
	out := lease.Answer{Class: "resource", Code: answer.Code(), Message: answer.String(), Again: pressureAgain}
	if memoryShort(answer) && was.cause != "" {
		out.Message += "; " + was.cause
	}
	switch {
	case answer.Over:
		out.Sole = true
		a.through = out
	case answer.Idle:
		out.Until = machine.Now().Add(answer.Left)
		out.Message += fmt.Sprintf("; %s, so one start goes all the same after max_hold, %v", nobodyRuns(a.start.Only), s.MaxHold)
	}
	return out
}

func nobodyRuns(gate bool) string {
	if gate {
		return "no gated command runs"
	}
	return "no agent runs"
}

func memoryShort(a pressure.Answer) bool {
	return slices.ContainsFunc(a.Short, func(m pressure.Measure) bool { return m.Code == pressure.Memory && m.Err == nil })
}

// cause names the agents of this home that have most of the memory.
func (h *Home) cause(at lease.Places) string {
	taken, err := lease.Taken(at.Leases)
	if err != nil {
		return ""
	}
	var trees []pressure.Tree
	seen := map[int]bool{}
	for _, t := range taken {
		if t.Child == 0 || seen[t.Child] || t.State == slot.Unverifiable.String() {
			continue
		}
		seen[t.Child] = true
		name := fmt.Sprintf("pid %d", t.Child)
		if t.Engine != "" {
			name = t.Engine + ", " + name
		}
		if t.Run != "" {
			name += " of run " + t.Run
		}
		trees = append(trees, pressure.Tree{Pid: t.Child, Name: name})
	}
	return pressure.Cause(trees)
}

// letThrough says of a start that was let through why that was (P2, P11).
func (a *asker) letThrough() {
	if !a.through.Sole {
		return
	}
	a.home.told.keep(a.start.Run, pressed{})
	held := a.settings.Pressure.MaxHold
	text := fmt.Sprintf("let through after max_hold, %v, as %s: %s", held, nobodyRuns(a.start.Only), a.through.Message)
	a.note(text)
	err := journal.Append(a.home.dir, journal.Event{
		Permission: journal.Resource, What: "let_through", Lane: a.start.lane, Attempt: a.start.Run, Engine: a.start.Engine,
		From: "pressure", To: "agent", Evidence: []string{a.through.Message}, By: "pressure.max_hold", Code: a.through.Code, Text: text,
	})
	if err != nil {
		a.note(err.Error())
	}
}

// measured is what the doctor says of pressure.
func (h *Home) measured(s *config.Settings) (out []Finding) {
	set := pressureOf(s.Pressure)
	if !set.On() {
		return []Finding{{Level: doctor.Note, Code: "pressure", Text: "pressure: no limit is set: caps count agents, and nothing looks at memory, load or disk"}}
	}
	for _, m := range pressure.Look(set, h.dir.Path) {
		answer, _ := pressure.Decide(set, []pressure.Measure{m}, pressure.Told{}, 0, func() bool { return false })
		f := Finding{Level: doctor.OK, Code: "pressure", Text: "pressure: " + m.Say()}
		switch {
		case len(answer.Blind) > 0:
			f.Level, f.Text = doctor.Warn, f.Text+`; fail = "open" starts all the same`
		case len(answer.Short) > 0:
			f.Level, f.Text = doctor.Note, "pressure: "+answer.String()+"; new starts wait"
		}
		out = append(out, f)
	}
	return out
}
