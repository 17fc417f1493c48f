package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/fakeagent"
)

// shimmed is the place with a stand-in called claude on PATH, and a shim before it.
func (p *place) shimmed(entries ...string) *place {
	p.t.Helper()
	bin := p.file("bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		p.t.Fatal(err)
	}
	for _, name := range []string{"claude", "codex"} {
		if err := os.Symlink(fakeagent.Build(p.t), filepath.Join(bin, name)); err != nil {
			p.t.Fatal(err)
		}
	}
	q := p.with(append([]string{"PATH=" + filepath.Join(p.home, "shims") + ":" + bin + ":/usr/bin:/bin"}, entries...)...)
	if out, err := q.handsel("shim", "install", "claude", "codex").CombinedOutput(); err != nil {
		p.t.Fatalf("shim install: %v: %s", err, out)
	}
	return q
}

// TestShimAtATerminal is W6: a session behind a shim has the terminal, hears of a
// new size, stops and goes on under the shell's job control, ends by Ctrl-C, and is
// shown as interactive all the while.
func TestShimAtATerminal(t *testing.T) {
	t.Parallel()
	p := ordinary(t).shimmed("HANDSEL_MAX_AGENTS=1")
	s := p.shell()
	note := p.file("note")
	s.key(fmt.Sprintf("FAKEAGENT='pid %s then tty then sleep 600' claude\r", note))
	agent := p.noted(note)
	s.sees(`foreground`)
	if got := p.holderOf("all"); !got.Interactive || got.Workload != "heavy" {
		t.Errorf("status shows %+v", got)
	}
	s.key("\x1a")
	s.sees(`Stopped`)
	eventually(t, "the agent is stopped", agent.stopped)
	s.resize(40, 100)
	s.key("fg\r")
	eventually(t, "the agent goes on", func() bool { return !agent.stopped() })
	eventually(t, "the agent has the terminal", func() bool { return s.foreground() != s.id.pid })
	s.key("\x03")
	s.sees(`ready> `)
	s.key("echo status=$?\r")
	s.sees(`status=130\r`)
	if agent.alive() {
		t.Error("the agent outlives Ctrl-C")
	}
	s.key("FAKEAGENT=tty claude\r")
	s.sees(`40.100`)
	s.sees(`ready> `)
	s.key("exit 0\r")
	s.wait()
	p.settled()
}

// TestInteractiveSessionsMayCountAsLight: with light-count a session that a person
// sits in takes no slot of heavy, and one that nobody sits in does.
func TestInteractiveSessionsMayCountAsLight(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[nesting]\ninteractive = \"light-count\"\n[pools]\nheavy = 1\nall = 9\n").shimmed()
	note, other := p.file("note"), p.file("other")
	headless := p.with("FAKEAGENT=pid "+other+" then sleep 600").command(filepath.Join(p.home, "shims", "claude"), "-p", "x")
	if err := headless.Start(); err != nil {
		t.Fatal(err)
	}
	p.noted(other)
	s := p.shell()
	s.key(fmt.Sprintf("FAKEAGENT='pid %s then sleep 600' claude\r", note))
	agent := p.noted(note) // it did not wait for the one slot of heavy
	eventually(t, "status shows both, and that one is interactive", func() bool {
		all := p.holders("all")
		return len(all) == 2 && (all[0].Interactive || all[1].Interactive)
	})
	for _, h := range p.holders("all") {
		if want := h.Child == agent.pid; h.Interactive != want || (h.Workload == "light") != want {
			t.Errorf("status shows %+v", h)
		}
	}
	if got := p.holders("heavy"); len(got) != 1 || got[0].Child == agent.pid {
		t.Errorf("heavy is held by %+v", got)
	}
	out, err := p.handsel("runs").Output()
	if err != nil || !strings.Contains(string(out), "run, interactive") {
		t.Errorf("runs shows %s, %v", out, err)
	}
	s.key("\x03")
	s.sees(`ready> `)
	s.key("exit 0\r")
	s.wait()
	if err := headless.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = headless.Wait()
	p.settled()
}

// shown is a holder as status shows it.
type shown struct {
	Workload    string `json:"workload"`
	Interactive bool   `json:"interactive"`
	Child       int    `json:"child_pid"`
}

func (p *place) holders(pool string) []shown {
	p.t.Helper()
	out, err := p.handsel("status", "--json").Output()
	if err != nil {
		p.t.Fatal(err)
	}
	var s struct {
		Pools map[string]struct {
			Holders []shown `json:"holders"`
		} `json:"pools"`
	}
	if err := json.Unmarshal(out, &s); err != nil {
		p.t.Fatal(err)
	}
	return s.Pools[pool].Holders
}

// holderOf is the one holder of a pool, once its run is on record.
func (p *place) holderOf(pool string) (h shown) {
	p.t.Helper()
	eventually(p.t, "status shows who holds "+pool, func() bool {
		all := p.holders(pool)
		if len(all) == 1 {
			h = all[0]
		}
		return len(all) == 1 && h.Interactive
	})
	return h
}
