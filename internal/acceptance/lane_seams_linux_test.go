//go:build failpoint

package acceptance

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestSeamLaneAtEachStep: SIGKILL at each step of a run that owns a lane and is
// not counted. While its agent lives nobody gets the lane, also where the agent
// was not recorded (C022); else everybody does, and how a run ended is written
// before the lane is let go (L17).
func TestSeamLaneAtEachStep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		step   string
		lives  bool // an agent was started, and lives
		record bool // the run's record says how it ended
	}{
		{step: "lane.opened"},
		{step: "lane.locked"},
		{step: "lane.recorded"},
		{step: "run.spawned", lives: true},
		{step: "run.identified", lives: true},
		{step: "run.recorded", lives: true},
		{step: "run.ended"},
		{step: "run.released"},
		{step: "job.recorded", record: true},
		{step: "lane.cleared", record: true},
		{step: "lane.released", record: true},
	} {
		t.Run(tt.step, func(t *testing.T) {
			t.Parallel()
			p := ordinary(t)
			note, fired := p.file("note"), p.file("fired")
			steps := []string{"pid", note}
			if tt.lives {
				steps = append(steps, "then", "sleep", "600")
			}
			q := p.with("HANDSEL_FAILPOINT="+tt.step+"=kill", "HANDSEL_FAILPOINT_LOG="+fired)
			c := start(t, q.agent(append([]string{"--lane", "l", "--"}, steps...)...))
			if end := c.wait(); end != "signal SIGKILL" {
				t.Fatalf("%s: %q", end, c.said())
			}
			if text, _ := os.ReadFile(fired); !strings.Contains(string(text), tt.step) {
				t.Fatalf("the step was not reached: %q", text)
			}
			if tt.lives {
				agent := p.noted(note)
				_, errs := must(t, "exit 75", p.agent("--lane", "l", "--wait", "0", "--", "touch", p.file("never")))
				oneLine(t, errs, "orphaned agent")
				if all := p.seats(); len(all) != 1 || all[0].State != "orphaned" || all[0].Child != agent.pid {
					t.Errorf("status shows %+v, the agent is %v", all, agent)
				}
				must(t, "exit 0", p.handsel("cancel", "lane:l"))
				if agent.alive() {
					t.Error("the agent outlives cancel")
				}
			}
			if tt.record && p.recordOf().State != "ended" {
				t.Errorf("the record says %+v", p.recordOf())
			}
			must(t, "exit 0", p.agent("--lane", "l", "--wait", "0", "--", "exit", "0"))
			if len(p.seats()) != 0 || exists(p.file("never")) {
				t.Errorf("status shows %+v", p.seats())
			}
			p.settled()
		})
	}
}

// TestSeamCleanerAtAStoppedTaker is C060: B is stopped between opening the lane's
// file and locking it, the cleaner removes the file, C takes the lane. B, going
// on, is told that it is C's.
func TestSeamCleanerAtAStoppedTaker(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(p *place){
		"gc": func(p *place) { must(p.t, "exit 0", p.handsel("gc", "--yes")) },
		"rm": func(p *place) { must(p.t, "exit 0", p.command("rm", p.laneFile("l"))) },
		"the directory": func(p *place) {
			must(p.t, "exit 0", p.command("sh", "-c", `cd "$HANDSEL_HOME" && mv lanes old && mkdir -m 700 lanes`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := ordinary(t)
			b := start(t, p.with("HANDSEL_FAILPOINT=lane.opened#1=stop,lane.opened#1=sleep:50ms").agent("--lane", "l", "--wait", "0", "--", "touch", p.file("b")))
			eventually(t, "B is stopped", func() bool { return allStopped(b.id.pid) })
			if !exists(p.laneFile("l")) {
				t.Fatal("B has not opened the lane's file")
			}
			remove(p)
			if exists(p.laneFile("l")) {
				t.Fatal("the lane's file was not removed")
			}
			note := p.file("note")
			c := start(t, p.agent("--lane", "l", "--wait", "0", "--", "pid", note, "then", "stdin"))
			p.noted(note)
			eventually(t, "the lane knows its agent", func() bool { all := p.seats(); return len(all) == 1 && all[0].Child != 0 })
			b.id.signal(syscall.SIGCONT)
			if end := b.wait(); end != "exit 75" || exists(p.file("b")) {
				t.Errorf("B: %s, %q", end, b.said())
			}
			if all := p.seats(); len(all) != 1 || all[0].Owner != c.id.pid {
				t.Errorf("status shows %+v, C is %d", all, c.id.pid)
			}
			c.closeIn()
			if end := c.wait(); end != "exit 0" {
				t.Errorf("C: %s", end)
			}
			p.settled()
		})
	}
}
