package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/handsel/handsel/internal/fakeagent"
)

// seat is one lane as `handsel status --json` shows it.
type seat struct {
	Name, State, Role, Run string
	Owner                  int `json:"owner_pid"`
	Child                  int `json:"child_pid"`
}

// seats are the lanes that somebody has.
func (p *place) seats() []seat {
	p.t.Helper()
	out, _ := must(p.t, "exit 0", p.handsel("status", "--json"))
	var s struct{ Lanes []seat }
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	return s.Lanes
}

// laneFile is the file of a lane whose name stands for itself.
func (p *place) laneFile(name string) string {
	return filepath.Join(p.home, "lanes", name+".lock")
}

// TestNeverTwoAgentsInOneLane is L1, L2 and C060, C070: takers, killed
// supervisors and cleaners at once, and never two agents in the lane.
func TestNeverTwoAgentsInOneLane(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	log := p.file("log")
	const runs, killed = 24, 6
	var all []*process
	for i := range runs {
		c := start(t, p.agent("--lane", "l", "--wait", "5m", "--", "log", log, "id", fmt.Sprint(i), "hold", "20ms"))
		all = append(all, c)
	}
	var cleaners sync.WaitGroup
	stop := make(chan struct{})
	over := sync.OnceFunc(func() { close(stop); cleaners.Wait() })
	defer over()
	cleaners.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if end, _, errs := ends(t, p.handsel("gc", "--yes")); end != "exit 0" {
				t.Errorf("gc: %s, %q", end, errs)
			}
		}
	})
	for _, c := range all[:killed] {
		eventually(t, "a supervisor holds or waits for the lane", func() bool { return exists(p.laneFile("l")) || c.ended() })
		c.id.signal(syscall.SIGKILL)
	}
	allEnd(t, "every run ends", all)
	for i, c := range all {
		if end := c.wait(); end != "exit 0" && i >= killed {
			t.Errorf("run %d: %s, %q", i, end, c.said())
		}
	}
	over()
	events, err := fakeagent.ReadLog(log)
	if err != nil {
		t.Fatal(err)
	}
	if most, at := fakeagent.Peak(events); most != 1 {
		t.Errorf("%d agents in the lane at %d", most, at)
	}
	if len(events) < 2*(runs-killed) {
		t.Errorf("%d events of %d runs", len(events), runs)
	}
	eventually(t, "the lane is free", func() bool { return len(p.seats()) == 0 })
	must(t, "exit 0", p.handsel("gc", "--yes"))
	if !exists(p.laneFile("l")) {
		t.Error("the lane's fence is lost with its file")
	}
	p.settled()
}

// TestKilledSupervisorsLaneIsOrphaned is L1 and S23, uncapped: while the agent
// lives, every taker is refused and told; who waits gets the lane when it ends.
func TestKilledSupervisorsLaneIsOrphaned(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *place, agent identity){
		"cancelled by the lane": func(p *place, _ identity) { must(p.t, "exit 0", p.handsel("cancel", "lane:l")) },
		"cancelled by its name": func(p *place, _ identity) { must(p.t, "exit 0", p.handsel("cancel", "l")) },
		"killed":                func(_ *place, agent identity) { agent.signal(syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := ordinary(t)
			note := p.file("note")
			c := start(t, p.agent("--lane", "l", "--", "pid", note, "then", "sleep", "600"))
			agent := p.noted(note)
			eventually(t, "the lane knows its agent", func() bool {
				all := p.seats()
				return len(all) == 1 && all[0].Child == agent.pid && all[0].State == "held"
			})
			c.id.signal(syscall.SIGKILL)
			c.wait()
			_, errs := must(t, "exit 75", p.agent("--lane", "l", "--wait", "0", "--", "touch", p.file("never")))
			oneLine(t, errs, "refused: ", `lane "l"`, fmt.Sprint("orphaned agent ", agent.pid), fmt.Sprint("pid ", c.id.pid))
			if all := p.seats(); len(all) != 1 || all[0].State != "orphaned" || all[0].Owner != c.id.pid {
				t.Errorf("status shows %+v", all)
			}
			next := start(t, p.agent("--lane", "l", "--wait", "5m", "--", "touch", p.file("next")))
			next.says("orphaned agent")
			end(p, agent)
			if got := next.wait(); got != "exit 0" || !exists(p.file("next")) || exists(p.file("never")) {
				t.Errorf("who waited: %s, %q", got, next.said())
			}
			if agent.alive() {
				t.Error("the agent outlives it")
			}
			if len(p.seats()) != 0 {
				t.Errorf("status shows %+v", p.seats())
			}
			p.settled()
		})
	}
}

// TestLaneReachesNobody is S9 and C062: neither the agent nor what it leaves
// behind has the lane's descriptor, and the lane is free while that lives.
func TestLaneReachesNobody(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	out, _ := must(t, "exit 0", p.agent("--lane", "l", "--", "fds"))
	if strings.Contains(out, "lanes") || strings.Contains(out, ".lock") {
		t.Errorf("the agent has %s", out)
	}
	file := p.file("tree")
	must(t, "exit 0", p.agent("--lane", "l", "--leave-daemons", "--", "tree", file, "daemon", "then", "exit", "0"))
	daemon := p.tree(file, []string{"daemon"})[0]
	must(t, "exit 0", p.agent("--lane", "l", "--wait", "0", "--", "exit", "0"))
	if !daemon.alive() {
		t.Error("the daemon did not outlive its run, so nothing was shown")
	}
	p.killAll()
	p.settled()
}

// TestInnerOwnerOutlivesTheOuterRun is S21a: what a seat has left behind as the
// owner of a lane is no part of its tree, though nothing is counted.
func TestInnerOwnerOutlivesTheOuterRun(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_SEAT_PROFILES=boss")
	note := p.file("note")
	script := fmt.Sprintf(`setsid %s run --lane inner -- %s pid %s then sleep 600 >%s 2>&1 </dev/null & exec %s until %s 1`,
		p.bin, fakeagent.Build(t), note, p.file("inner.log"), fakeagent.Build(t), note)
	must(t, "exit 0", p.handsel("run", "--profile", "boss", "--lane", "outer", "--", "sh", "-c", script))
	agent := p.noted(note)
	all := p.seats()
	if len(all) != 1 || all[0].Name != "inner" || all[0].State != "held" || !agent.alive() {
		log, _ := os.ReadFile(p.file("inner.log"))
		t.Fatalf("status shows %+v, the inner agent is alive: %v; %s", all, agent.alive(), log)
	}
	must(t, "exit 0", p.handsel("cancel", "lane:inner"))
	p.settled()
}

// TestOwnLaneIsNotWaitedFor is S13: a seat that asks for the lane it is in would
// wait for itself, and is refused for good.
func TestOwnLaneIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_SEAT_PROFILES=boss")
	outcome := p.file("outcome")
	_, errs := must(t, "exit 1", p.handsel("run", "--profile", "boss", "--lane", "l", "--",
		p.bin, "run", "--lane", "l", "--wait", "5m", "--outcome", outcome, "--", "true"))
	oneLine(t, errs, "refused: ", `lane "l"`, "waiting would never end")
	text, _ := os.ReadFile(outcome)
	if !strings.Contains(string(text), `"own_ancestors"`) || !strings.Contains(string(text), `"retryable": false`) {
		t.Errorf("the outcome says %s", text)
	}
	p.settled()
}

// TestRefusedStartLetsTheLaneGo: whatever keeps a start from running after it has
// the lane, the lane is let go.
func TestRefusedStartLetsTheLaneGo(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, _ := p.holding("holder")
	for name, how := range map[string]func() *process{
		"pool full": func() *process { return start(t, p.agent("--lane", "l", "--wait", "0", "--", "exit", "0")) },
		"waited in vain": func() *process {
			return start(t, p.agent("--lane", "l", "--wait", "300ms", "--", "exit", "0"))
		},
		"cancelled": func() *process {
			c := start(t, p.agent("--lane", "l", "--wait", "5m", "--", "exit", "0"))
			c.says(`pool "all"`)
			if all := p.seats(); len(all) != 1 || all[0].Owner != c.id.pid || all[0].Child != 0 {
				t.Errorf("while it waits for a slot, status shows %+v", all)
			}
			c.id.signal(syscall.SIGINT)
			return c
		},
		"killed": func() *process {
			c := start(t, p.agent("--lane", "l", "--wait", "5m", "--", "exit", "0"))
			c.says(`pool "all"`)
			c.id.signal(syscall.SIGKILL)
			return c
		},
	} {
		c := how()
		if end := c.wait(); end == "exit 0" {
			t.Errorf("%s: it ran", name)
		}
		if all := p.seats(); len(all) != 0 {
			t.Errorf("%s: status shows %+v", name, all)
		}
	}
	holder.closeIn()
	holder.wait()
	must(t, "exit 0", p.agent("--lane", "l", "--wait", "0", "--", "exit", "0"))
	p.settled()
}
