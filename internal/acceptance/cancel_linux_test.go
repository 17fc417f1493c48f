package acceptance

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestCancelEndsAnOrphan is S23 and C020: the supervisor is killed, its agent
// lives on with a tree; status shows it, an admission waits for it, and cancel
// ends all of it, after which the slot is free and the record says so.
func TestCancelEndsAnOrphan(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nall = 1\n" + hourly)
	file := p.file("tree")
	want := []string{"nested-shell", "shell", "stubborn"}
	c := start(t, p.agent(append([]string{"--", "tree", file}, append(slices.Clone(want), "then", "sleep", "600")...)...))
	tree := p.tree(file, want)
	until(t, "it is recorded", func() string { return p.status().states("all") }, "running")
	c.id.signal(syscall.SIGKILL)
	c.wait()
	s := p.status()
	if s.states("all") != "orphaned" {
		t.Fatalf("its slot is %q", s.states("all"))
	}
	run, agent := s.Pools["all"].Holders[0].Run, identify(s.Pools["all"].Holders[0].Child)
	waiter := start(t, p.agent("--", "exit", "0"))
	p.awaits(1)
	must(t, "exit 0", p.handsel("cancel", run))
	for _, m := range append(tree, agent) {
		if m.alive() {
			t.Errorf("%v is alive", m)
		}
	}
	if end := waiter.wait(); end != "exit 0" {
		t.Errorf("the waiter: %s, %q", end, waiter.said())
	}
	// Again, and again: it has ended, which is no error (C053).
	for range 2 {
		_, errs := must(t, "exit 0", p.handsel("cancel", run))
		if strings.Contains(errs, "panic") || strings.Count(errs, "\n") > 1 {
			t.Errorf("it said %q", errs)
		}
	}
	if r := p.recordFor(run); r.State != "ended" || r.Outcome != "cancelled" {
		t.Errorf("its record says %+v", r)
	}
	p.settled()
}

// TestCancelOfWhatIsGone is C053: agent and supervisor were killed from outside;
// the record is closed as lost, once, and nobody is signalled.
func TestCancelOfWhatIsGone(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, agent := p.holding("holder")
	run := p.status().Pools["all"].Holders[0].Run
	holder.id.signal(syscall.SIGSTOP)
	agent.signal(syscall.SIGKILL)
	holder.id.signal(syscall.SIGKILL)
	holder.wait()
	for range 3 {
		must(t, "exit 0", p.handsel("cancel", run))
	}
	if r := p.recordFor(run); r.State != "ended" || r.Outcome != "lost" {
		t.Errorf("its record says %+v", r)
	}
	p.settled()
}

// TestCancelOfARunAndOfAWaiter: each ends as if it had been asked itself.
func TestCancelOfARunAndOfAWaiter(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, agent := p.holding("holder")
	waiter := start(t, p.agent("--", "touch", p.file("started")))
	waiter.says("waiting")
	s := p.status()
	must(t, "exit 0", p.handsel("cancel", s.Waiting[0].Run))
	if end := waiter.wait(); !strings.HasPrefix(end, "signal ") && end == "exit 0" || exists(p.file("started")) {
		t.Errorf("the waiter: %s", end)
	}
	must(t, "exit 0", p.handsel("cancel", s.Pools["all"].Holders[0].Run))
	if agent.alive() {
		t.Error("the agent is alive")
	}
	if end := holder.wait(); end == "exit 0" {
		t.Errorf("the run: %s", end)
	}
	must(t, "exit 3", p.handsel("cancel", "no-such-run"))
	// An agent cancels nothing but its own (C15, S26).
	other, _ := p.with("HANDSEL_MAX_AGENTS").holding("other")
	id := p.status().Pools["all"].Holders[0].Run
	q := p.config("[pools]\nall = 2\n").with("HANDSEL_MAX_AGENTS")
	_, errs := must(t, "exit 1", q.handsel("run", "--wait", "5", "--", q.bin, "cancel", id))
	if !strings.Contains(errs, "inside") {
		t.Errorf("it said %q", errs)
	}
	other.closeIn()
	if end := other.wait(); end != "exit 0" {
		t.Errorf("the other: %s", end)
	}
	p.settled()
}

// recordFor reads the record of a run.
func (p *place) recordFor(run string) (r struct{ State, Outcome string }) {
	p.t.Helper()
	files, _ := filepath.Glob(filepath.Join(p.home, "runs", "*", run, "run.json"))
	if len(files) != 1 {
		p.t.Fatalf("%d records of %s", len(files), run)
	}
	text, err := os.ReadFile(files[0])
	if err := errors.Join(err, json.Unmarshal(text, &r)); err != nil {
		p.t.Fatal(err)
	}
	return r
}
