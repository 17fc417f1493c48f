package acceptance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/fakeagent"
)

// hourly is a configuration whose fallback poll comes too late for any test: a
// waiter that wakes was woken by an event.
const hourly = "[admission]\npoll = \"1h\"\n"

// awaits waits until n starts stand in line.
func (p *place) awaits(n int) {
	p.t.Helper()
	dwindles(p.t, fmt.Sprintf("%d stand in line", n), func() int { return n - len(p.status().Waiting) }, p.says)
}

// logged waits until a log has n events of a kind, and returns them all.
func (p *place) logged(log, kind string, n int) (events []fakeagent.Event) {
	p.t.Helper()
	dwindles(p.t, fmt.Sprintf("%d events %s in %s", n, kind, log), func() int {
		all, err := fakeagent.ReadLog(log)
		if err != nil {
			p.t.Fatal(err)
		}
		events = slices.DeleteFunc(all, func(e fakeagent.Event) bool { return e.Kind != kind })
		return n - len(events)
	}, p.says)
	return events
}

// TestWaiterIsWokenByEvents is S15 with the poll at an hour: each way in which
// a slot comes free leads to the next admission at once.
func TestWaiterIsWokenByEvents(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nall = 1\n" + hourly)
	for _, tt := range []struct {
		name string
		free func(t *testing.T, holder *process, agent identity)
	}{
		{"after a release", func(_ *testing.T, holder *process, _ identity) { holder.closeIn() }},
		{"after SIGKILL of the holder", func(t *testing.T, holder *process, agent identity) {
			// Stopped, it cannot release when its agent ends.
			holder.id.signal(syscall.SIGSTOP)
			eventually(t, "the holder is stopped", func() bool { return allStopped(holder.id.pid) })
			agent.signal(syscall.SIGKILL)
			eventually(t, "the agent is gone", func() bool { return !agent.alive() })
			holder.id.signal(syscall.SIGKILL)
		}},
		{"after the end of an orphan", func(t *testing.T, holder *process, agent identity) {
			holder.id.signal(syscall.SIGKILL)
			until(t, "status shows the orphan", func() string { return p.status().states("all") }, "orphaned")
			if n := len(p.status().Waiting); n != 1 || !agent.alive() {
				t.Errorf("with the orphan alive (%v), %d wait", agent.alive(), n)
			}
			holder.closeIn() // it is the agent's stdin
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := strings.ReplaceAll(tt.name, " ", "-")
			log := p.file("log-" + name)
			holder, agent := p.holding(name)
			next := start(t, p.agent("--", "log", log))
			p.awaits(1)
			tt.free(t, holder, agent)
			p.logged(log, "E", 1) // by the poll it would be an hour
			if end := next.wait(); end != "exit 0" {
				t.Errorf("the waiter: %s, %q", end, next.said())
			}
		})
	}
	p.settled()
}

// TestIdleWaiterCostsNothing is S15: at most 20 voluntary context switches in
// ten seconds, also with the usual poll, for the first in line and the second.
// It runs by itself; on a machine that is busy otherwise a second and a third
// ten seconds are looked at.
func TestIdleWaiterCostsNothing(t *testing.T) {
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, _ := p.holding("holder")
	var waiters []*process
	for range 2 {
		waiters = append(waiters, start(t, p.agent("--", "exit", "0")))
		p.awaits(len(waiters))
	}
	timer := time.NewTimer(time.Second) // the rest of their start is no waiting
	<-timer.C
	least := []int{math.MaxInt, math.MaxInt}
	for range 3 {
		var before []int
		for _, w := range waiters {
			before = append(before, switches(w.id.pid))
		}
		timer.Reset(10 * time.Second)
		<-timer.C
		for i, w := range waiters {
			least[i] = min(least[i], switches(w.id.pid)-before[i])
		}
		if max(least[0], least[1]) <= 20 {
			break
		}
		t.Logf("so far the quietest ten seconds of each had %v switches", least)
	}
	for i, n := range least {
		if n > 20 {
			t.Errorf("waiter %d switched %d times in ten seconds", i+1, n)
		}
	}
	holder.closeIn()
	for _, w := range waiters {
		if end := w.wait(); end != "exit 0" {
			t.Errorf("%s, %q", end, w.said())
		}
	}
	p.settled()
}

// switches sums the voluntary context switches of a process's threads.
func switches(pid int) (n int) {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range all {
		text, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		one, _ := strconv.Atoi(strings.TrimSpace(line))
		n += one
	}
	return n
}

// TestLineStartsByKey is S16 and C5: fifty of mixed priority and pools start in
// the order of arrival − 60 s × priority. One killed and one stopped in the
// middle delay nobody; the stopped one has its turn when it goes on. It is passed
// by at once, not after its patience, which nobody here outlives.
func TestLineStartsByKey(t *testing.T) {
	p := here(t).config("[pools]\nall = 1\nextra = 1\n" + hourly + "patience = \"1h\"\n")
	dice := rand.New(rand.NewPCG(seed(t), 0))
	log := p.file("log")
	holder, _ := p.holding("holder")
	type waiter struct {
		*process
		name     string
		priority int
	}
	var line []waiter
	for i := range 50 {
		w := waiter{name: fmt.Sprint("n", i), priority: dice.IntN(5) - 2}
		flags := []string{"--priority", strconv.Itoa(w.priority)}
		if dice.IntN(4) == 0 {
			flags = append(flags, "--pool", "extra")
			w.name += "+extra"
		}
		w.process = start(t, p.agent(append(flags, "--", "log", log, "id", w.name)...))
		line = append(line, w)
		w.says("waiting") // so the next one arrives later
	}
	p.awaits(len(line))
	slices.SortStableFunc(line, func(a, b waiter) int { return b.priority - a.priority })
	shown := p.status().Waiting
	for i, w := range line {
		if shown[i].Pid != w.id.pid || shown[i].Priority != w.priority {
			t.Fatalf("place %d in status is %+v, want %s (pid %d, priority %d)", i+1, shown[i], w.name, w.id.pid, w.priority)
		}
	}

	killed, stopped := line[20], line[30]
	killed.id.signal(syscall.SIGKILL)
	stopped.id.signal(syscall.SIGSTOP)
	eventually(t, "one in the middle is stopped", func() bool { return allStopped(stopped.id.pid) })
	holder.closeIn()
	events := p.logged(log, "E", len(line)-2)
	stopped.id.signal(syscall.SIGCONT)
	p.logged(log, "E", len(line)-1)
	line = slices.Delete(line, 30, 31)
	line = slices.Delete(line, 20, 21)
	var want, got []string
	for _, w := range line {
		want = append(want, w.name)
		if end := w.wait(); end != "exit 0" {
			t.Errorf("%s: %s, %q", w.name, end, w.said())
		}
	}
	for _, e := range events {
		got = append(got, e.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("started\n%q, want\n%q", got, want)
	}
	p.settled()
}

// TestSmallerCapBlocksNobody is S16 and C009: a waiter that reads a smaller cap
// in its own shell stands in line by itself.
func TestSmallerCapBlocksNobody(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nall = 2\n" + hourly)
	first, _ := p.holding("first")
	timid := start(t, p.with("HANDSEL_MAX_AGENTS=1").agent("--", "exit", "0"))
	timid.says(`pool "all" is at its cap of 1 (HANDSEL_MAX_AGENTS)`)
	p.awaits(1)
	second, _ := p.holding("second", "--wait", "0")
	second.closeIn()
	if end := second.wait(); end != "exit 0" {
		t.Errorf("the second: %s, %q", end, second.said())
	}
	if timid.ended() {
		t.Errorf("the timid one did not wait: %q", timid.said())
	}
	first.closeIn()
	if end := timid.wait(); end != "exit 0" {
		t.Errorf("the timid one: %s, %q", end, timid.said())
	}
	p.settled()
}

// TestPartlyFullBlocksNobody is S16: one that waits for another pool, too, is
// passed by those who can start now.
func TestPartlyFullBlocksNobody(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nall = 2\nextra = 1\n" + hourly)
	extra := start(t, p.handsel("gate", "extra", "--", fakeagent.Build(t), "pid", p.file("gate"), "then", "stdin"))
	p.noted(p.file("gate"))
	both := start(t, p.agent("--priority", "10", "--pool", "extra", "--", "exit", "0"))
	both.says(`pool "extra" is at its cap of 1`)
	p.awaits(1)
	for range 5 {
		must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
	}
	if both.ended() {
		t.Errorf("it did not wait: %q", both.said())
	}
	extra.closeIn()
	for _, c := range []*process{extra, both} {
		if end := c.wait(); end != "exit 0" {
			t.Errorf("%s, %q", end, c.said())
		}
	}
	p.settled()
}

// TestOddNamesAreAlive is S7 and C056: an orphan is alive by its pid and start,
// whatever it is called and however long it is silent.
func TestOddNamesAreAlive(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	for i, name := range []string{"bun", "a) R 1 (b", "two words"} {
		link, note := p.file(name), p.file(fmt.Sprint("note", i))
		if err := os.Symlink(fakeagent.Build(t), link); err != nil {
			t.Fatal(err)
		}
		h := start(t, p.handsel("run", "--", link, "pid", note, "me", "then", "stdin"))
		agent := p.noted(note)
		until(t, "it is recorded", func() string { return p.status().states("all") }, "running")
		h.id.signal(syscall.SIGKILL)
		h.wait()
		if state := p.status().states("all"); state != "orphaned" {
			t.Errorf("%q: its slot is %q", name, state)
		}
		must(t, "exit 75", p.agent("--wait", "0", "--", "exit", "0"))
		agent.signal(syscall.SIGSTOP)
		eventually(t, "it is stopped", agent.stopped)
		must(t, "exit 75", p.agent("--wait", "0", "--", "exit", "0")) // stopped is alive
		agent.signal(syscall.SIGKILL)
		eventually(t, "it is gone", func() bool { return !agent.alive() })
		must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
	}
	p.settled()
}
