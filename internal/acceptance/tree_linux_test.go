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
	"time"

	"github.com/handsel/handsel/internal/fakeagent"
)

// members are what the step tree of a stand-in leaves behind: a shell's child,
// daemons, a double fork without an environment, one that ignores TERM in the
// group and one outside, one that holds stdout, a stopped one, and what an
// agent's shell tool leaves.
var members = []string{"daemon", "nested-shell", "scrubbed", "shell", "stdout", "stopped", "stubborn", "stubborn-daemon"}

// tree waits until all members of a tree have noted themselves.
func (p *place) tree(file string, want []string) (all []identity) {
	p.t.Helper()
	var names []string
	until(p.t, "the tree stands", func() int {
		list, err := fakeagent.ReadPids(file)
		if err != nil {
			return -1
		}
		slices.SortFunc(list, func(a, b fakeagent.Process) int { return strings.Compare(a.Name, b.Name) }) // they come up in any order
		names, all = nil, nil
		for _, m := range list {
			names = append(names, m.Name)
			all = append(all, identity{m.Pid, m.Ticks})
		}
		return len(list)
	}, len(want))
	if !slices.Equal(names, want) {
		p.t.Fatalf("the tree is %q, want %q", names, want)
	}
	for _, id := range all {
		if !id.alive() {
			p.t.Fatalf("%v of the tree is gone already", id)
		}
	}
	return all
}

// recordOf reads the one record there is.
func (p *place) recordOf() (r struct {
	State, Outcome string
	Survivors      []struct{ Pid int }
}) {
	p.t.Helper()
	files, _ := filepath.Glob(filepath.Join(p.home, "runs", "*", "*", "run.json"))
	if len(files) != 1 {
		p.t.Fatalf("%d records: %q", len(files), files)
	}
	text, err := os.ReadFile(files[0])
	if err := errors.Join(err, json.Unmarshal(text, &r)); err != nil {
		p.t.Fatal(err)
	}
	return r
}

// TestTreeEndsHoweverTheRunEnds is S21, S21a, S22 and C036, C037, C038, C043,
// C044, C046: of a whole tree nobody is alive when handsel has ended, which it
// does before any of it would end by itself, and in the way a shell expects.
func TestTreeEndsHoweverTheRunEnds(t *testing.T) {
	t.Parallel()
	// Who gets the terminal's signal first, the agent or we, is chance.
	const either = "cancelled or signaled"
	for _, tt := range []struct {
		name    string
		last    string // what the agent does when its tree stands
		flags   []string
		console bool // on a terminal of its own
		shell   bool // on a terminal, called by a shell that goes on
		end     func(id identity, c *console)
		want    string // how handsel, or the shell, ends
		outcome string
	}{
		{name: "normal exit", last: "until GO then exit 0", end: func(identity, *console) {}, want: "exit 0", outcome: "exited"},
		{name: "exit with a status", last: "until GO then exit 7", end: func(identity, *console) {}, want: "exit 7", outcome: "exited"},
		{name: "crash", last: "until GO then kill SEGV", end: func(identity, *console) {}, want: "signal SIGSEGV", outcome: "signaled"},
		{name: "SIGINT", last: "sleep 600", end: func(id identity, _ *console) { id.signal(syscall.SIGINT) }, want: "signal SIGINT", outcome: "cancelled"},
		{name: "SIGTERM", last: "sleep 600", end: func(id identity, _ *console) { id.signal(syscall.SIGTERM) }, want: "signal SIGTERM", outcome: "cancelled"},
		{name: "SIGHUP", last: "sleep 600", end: func(id identity, _ *console) { id.signal(syscall.SIGHUP) }, want: "signal SIGHUP", outcome: "cancelled"},
		{name: "SIGTERM to one that ignores it", last: "stubborn", end: func(id identity, _ *console) { id.signal(syscall.SIGTERM) }, want: "signal SIGTERM", outcome: "cancelled"},
		{name: "time limit", last: "sleep 600", flags: []string{"--timeout", "15s"}, end: func(identity, *console) {}, want: "exit 124", outcome: "timed_out"},
		{name: "silence", last: "sleep 600", flags: []string{"--idle", "15s"}, end: func(identity, *console) {}, want: "exit 124", outcome: "timed_out"},
		{name: "Ctrl-C", last: "sleep 600", console: true, end: func(_ identity, c *console) { c.key("\x03") }, want: "signal SIGINT", outcome: "signaled"},
		{name: "Ctrl-C under a shell", last: "sleep 600", shell: true, end: func(_ identity, c *console) { c.key("\x03") }, want: "signal SIGINT", outcome: either},
		{name: "closed terminal", last: "sleep 600", console: true, end: func(_ identity, c *console) { c.hangUp() }, want: "signal SIGHUP", outcome: either},
		{name: "closed terminal under a shell", last: "sleep 600", shell: true, end: func(_ identity, c *console) { c.hangUp() }, want: "signal SIGHUP", outcome: either},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
			file, ready := p.file("tree"), p.file("go")
			steps := strings.Fields(strings.ReplaceAll(tt.last, "GO", ready))
			c := p.agent(append(append(tt.flags, "--", "tree", file, "then"), steps...)...)
			var id identity
			var wait func() string
			var on *console
			switch {
			case tt.console, tt.shell:
				if tt.shell {
					// Not its last command, so that the shell does not become it.
					script := append([]string{"sh", "-c", `"$@"; status=$?; exit $status`, "sh"}, c.Args...)
					c = p.command(script...)
				}
				on = sit(t, c)
				id, wait = on.id, on.wait
			default:
				one := start(t, c)
				id, wait = one.id, one.wait
			}
			tree := p.tree(file, members)
			supervisor := id
			if tt.shell {
				supervisor = processes(func(pid int) bool { return parentOf(pid) == id.pid })[0]
			}
			p.write("go", "now\n")
			tt.end(id, on)
			eventually(t, "handsel ends", func() bool { return !supervisor.alive() })
			for _, m := range tree {
				if m.alive() {
					t.Errorf("%v outlives the run", m)
				}
			}
			if end := wait(); end != tt.want {
				t.Errorf("it ended with %s, want %s", end, tt.want)
			}
			if r := p.recordOf(); r.State != "ended" || !strings.Contains(tt.outcome, r.Outcome) || len(r.Survivors) != 0 {
				t.Errorf("its record says %+v, want %s", r, tt.outcome)
			}
			p.settled()
		})
	}
}

// grace is what a tree has between TERM and KILL (S21).
const grace = 5 * time.Second

// inTheGrace plays until once what was asked for came before the grace was over.
// More than once, because the machine may be too busy for that; what waits for the
// grace never does.
func inTheGrace(t *testing.T, play func(t *testing.T) (took time.Duration)) {
	t.Helper()
	var all []time.Duration
	for range 5 {
		took := play(t)
		if took < grace || t.Failed() {
			return
		}
		all = append(all, took)
	}
	t.Errorf("the second is not heard before the grace is over: %v", all)
}

// TestSecondSignalEndsAtOnce is S22: who asks twice does not wait for the grace.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("SIGTERM twice", func(t *testing.T) {
		t.Parallel()
		inTheGrace(t, func(t *testing.T) time.Duration {
			p := ordinary(t)
			file := p.file("tree")
			c := start(t, p.agent("--", "tree", file, "shell", "stubborn", "then", "stubborn", file))
			tree := p.tree(file, []string{"shell", "stubborn", "stubborn"})
			took := p.secondEnds(tree, c.id, func() { c.id.signal(syscall.SIGTERM) }, func() bool { return !tree[0].alive() })
			if end := c.wait(); end != "signal SIGTERM" {
				t.Errorf("it ended with %s", end)
			}
			return took
		})
	})
	t.Run("Ctrl-C twice", func(t *testing.T) {
		t.Parallel()
		inTheGrace(t, func(t *testing.T) time.Duration {
			p := ordinary(t)
			file := p.file("tree")
			// The stubborn ones linger; the agent itself goes at the first key.
			c := sit(t, p.agent("--", "tree", file, "shell", "stubborn", "stubborn-daemon", "then", "sleep", "600"))
			tree := p.tree(file, []string{"shell", "stubborn", "stubborn-daemon"})
			agent := processes(func(pid int) bool { return parentOf(pid) == c.id.pid })
			took := p.secondEnds(tree, c.id, func() { c.key("\x03") }, func() bool { return !agent[0].alive() && c.foreground() == c.id.pid })
			if end := c.wait(); end != "signal SIGINT" {
				t.Errorf("it ended with %s", end)
			}
			return took
		})
	})
	t.Run("Ctrl-C twice at one that ignores it", func(t *testing.T) {
		t.Parallel()
		inTheGrace(t, func(t *testing.T) time.Duration {
			p := ordinary(t)
			file := p.file("tree")
			c := sit(t, p.command("sh", "-c", `"$@"; exit $?`, "sh", p.bin, "run", "--", fakeagent.Build(t), "tree", file, "shell", "then", "stubborn", file))
			tree := p.tree(file, []string{"shell", "stubborn"})
			supervisor := processes(func(pid int) bool { return parentOf(pid) == c.id.pid })[0]
			took := p.secondEnds(tree, supervisor, func() { c.key("\x03") }, func() bool { return !tree[0].alive() })
			if end := c.wait(); end != "exit 130" && end != "signal SIGINT" {
				t.Errorf("it ended with %s", end)
			}
			return took
		})
	})
}

// secondEnds asks, waits until the first has had its effect, and asks again. It
// says how long after the first the end came.
func (p *place) secondEnds(tree []identity, supervisor identity, ask func(), first func() bool) (took time.Duration) {
	p.t.Helper()
	from := time.Now()
	ask()
	eventually(p.t, "the first has an effect", first)
	if took = time.Since(from); !supervisor.alive() && took >= grace {
		return took // it was not seen in time
	}
	if !supervisor.alive() {
		p.t.Fatal("the first ended it")
	}
	ask()
	eventually(p.t, "the second ends it", func() bool { return !supervisor.alive() })
	took = time.Since(from)
	for _, m := range tree {
		if m.alive() {
			p.t.Errorf("%v outlives the run", m)
		}
	}
	p.settled()
	return took
}

// TestGateKeepsItsDaemon is S21a: what made its own session lives on under a
// gate, the rest ends with it; and its slot is free.
func TestGateKeepsItsDaemon(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nbuild = 1\n")
	file := p.file("tree")
	must(t, "exit 0", p.handsel("gate", "build", "--", fakeagent.Build(t), "tree", file, "shell", "daemon", "then", "exit", "0"))
	list, err := fakeagent.ReadPids(file)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, m := range list {
		id := identity{m.Pid, m.Ticks}
		if id.alive() != (m.Name == "daemon") {
			t.Errorf("%s %v: alive %v", m.Name, id, id.alive())
		}
	}
	// The daemon keeps no slot (S9, C062).
	must(t, "exit 0", p.handsel("gate", "build", "--wait", "0", "--", "true"))
	p.killAll()
	p.settled()
}

// TestDaemonOfAGateEndsWithItsAgent is S21a: inside an agent a gate's daemon is
// a descendant like any other, also when --leave-daemons was not asked for.
func TestDaemonOfAGateEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nbuild = 1\n")
	file := p.file("tree")
	must(t, "exit 0", p.handsel("run", "--", p.bin, "gate", "build", "--", fakeagent.Build(t), "tree", file, "daemon", "then", "exit", "0"))
	list, err := fakeagent.ReadPids(file)
	if err != nil || len(list) != 1 || list[0].Alive() {
		t.Errorf("%v, %v: alive", list, err)
	}
	p.settled()
}

// TestLeaveDaemonsIsAsked: S21a, the flag of run.
func TestLeaveDaemonsIsAsked(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	file := p.file("tree")
	must(t, "exit 0", p.agent("--leave-daemons", "--", "tree", file, "shell", "daemon", "then", "exit", "0"))
	list, err := fakeagent.ReadPids(file)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, m := range list {
		if m.Alive() != (m.Name == "daemon") {
			t.Errorf("%s: alive %v", m.Name, m.Alive())
		}
	}
	must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
	p.killAll()
}
