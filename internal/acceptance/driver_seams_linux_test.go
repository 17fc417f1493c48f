//go:build failpoint

package acceptance

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/record"
)

// driverSteps are the named steps of a driver, in their order, and what has
// become of the start by then.
var driverSteps = []struct {
	step  string
	asked bool // the claim is on its way
	begun bool
	ended bool // the outcome is on record
}{
	{step: "claim.token"},
	{step: "claim.connected"},
	{step: "claim.sent", asked: true},
	{step: "claim.received", asked: true},
	{step: "claim.proved", asked: true},
	{step: "claim.recorded", asked: true},
	{step: "claim.begun", asked: true, begun: true},
	{step: "claim.acked", asked: true, begun: true},
	{step: "drive.spawn", asked: true, begun: true},
	{step: "drive.outcome", asked: true, begun: true, ended: true},
	{step: "drive.told", asked: true, begun: true, ended: true},
	{step: "drive.closed", asked: true, begun: true, ended: true},
}

// armed is a clerk whose drivers do this at a step.
func armed(t *testing.T, step, act string) *clerk {
	t.Helper()
	p := here(t).capped()
	c := hire(t, p, "", "log", p.file("ran"), "then", "exit", "3")
	c.p = p.with("HANDSEL_FAILPOINT="+step+"="+act+","+step+"=sleep:50ms", "HANDSEL_FAILPOINT_LOG="+p.file("fired"))
	return c
}

func (c *clerk) fired(step string) bool {
	return strings.Contains(lines(c.p.file("fired")), step+"\n")
}

func (c *clerk) starts() int {
	return strings.Count(lines(c.p.file("ran")), "S ")
}

// TestSeamDriverStoppedAtEachStep: at no step of the handover can a third party
// have the lane or a slot, and no agent runs before the start is begun (L14).
func TestSeamDriverStoppedAtEachStep(t *testing.T) {
	t.Parallel()
	for _, tt := range driverSteps {
		t.Run(tt.step, func(t *testing.T) {
			t.Parallel()
			c := armed(t, tt.step, "stop")
			d := c.driver("drive")
			done := make(chan handoff.Ended, 1)
			go func() {
				defer close(done)
				c.settlesFirst()
				done <- c.listens()
			}()
			eventually(t, "it is stopped", func() bool { return c.fired(tt.step) && allStopped(d.id.pid) })
			if begun := c.decided() != ""; begun != tt.begun {
				t.Errorf("begun %v, want %v", begun, tt.begun)
			}
			if ran := c.starts() > 0; ran != tt.ended {
				t.Errorf("ran %v, want %v", ran, tt.ended)
			}
			switch {
			case tt.step == "drive.closed":
				c.mustFind("with all done", allFree)
			case tt.ended:
				c.mustFind("when it has ended", "lane held")
			default:
				c.mustFind("on the way", atStart)
			}
			d.id.signal(unix.SIGCONT)
			if e := <-done; e.Outcome != "exited" || e.ExitCode == nil || *e.ExitCode != 3 {
				t.Errorf("told %+v", e)
			}
			if end := d.wait(); end != "exit 0" {
				t.Errorf("the driver: %s, %q", end, d.said())
			}
			if n := c.starts(); n != 1 {
				t.Errorf("it ran %d times", n)
			}
			c.mustFind("at the end", allFree)
			c.p.settled()
		})
	}
}

// TestSeamDriverKilledAtEachStep is C013, C016 and L18: what is left on disk
// says whether it ran, nothing is held by nobody, and nothing runs twice.
func TestSeamDriverKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, tt := range driverSteps {
		t.Run(tt.step, func(t *testing.T) {
			t.Parallel()
			c := armed(t, tt.step, "kill")
			d := c.driver("drive")
			if tt.asked {
				conn := c.accepts()
				g, fds := c.goods()
				_ = conn.Send(t.Context(), g, fds...) // the driver may be dead by now
				if ack, ok := c.acked(conn); ok != (tt.begun && tt.step != "claim.begun") || ok && !ack.Begun {
					t.Errorf("acknowledged with %+v, %v", ack, ok)
				}
				conn.Close()
			}
			if tt.begun { // the driver's, whatever was acknowledged
				c.leave()
			}
			if tt.step == "drive.told" || tt.step == "drive.closed" {
				c.listens()
			}
			if end := d.wait(); end != "signal SIGKILL" || !c.fired(tt.step) {
				t.Fatalf("the driver: %s, %q, fired %v", end, d.said(), c.fired(tt.step))
			}
			if !tt.begun {
				if c.decided() != "" || c.starts() != 0 {
					t.Errorf("decided %q, ran %d", c.decided(), c.starts())
				}
				c.mustFind("with the dispatcher's copies", atStart)
				if !c.withdraws() {
					t.Error("it was begun")
				}
				c.leave()
			}
			c.mustFind("with nobody left", allFree)
			rec, err := record.Load(c.d, c.row.ID)
			switch {
			case tt.ended && (err != nil || rec.State != "ended" || rec.Outcome != "exited" || *rec.ExitCode != 3 || c.starts() != 1):
				t.Errorf("the record says %+v, %v; it ran %d times", rec, err, c.starts())
			case !tt.ended && (!errors.Is(err, fs.ErrNotExist) || c.starts() != 0):
				t.Errorf("the record says %+v, %v; it ran %d times", rec, err, c.starts())
			}
			c.p.settled()
		})
	}
}

// TestSeamDriverKilledBetweenSpawnAndRecord is C022 for a lane: an agent that
// its driver could not record any more keeps lane and slots all the same.
func TestSeamDriverKilledBetweenSpawnAndRecord(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"run.spawned", "run.identified", "run.recorded"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			p := here(t).capped()
			note := p.file("note")
			c := hire(t, p, "", "pid", note, "then", "sleep", "600")
			c.p = p.with("HANDSEL_FAILPOINT=" + step + "=kill")
			d := c.driver("drive")
			c.settlesFirst()
			if end := d.wait(); end != "signal SIGKILL" {
				t.Fatalf("the driver: %s, %q", end, d.said())
			}
			agent := p.noted(note)
			c.mustFind("with the driver dead", "all orphaned, heavy orphaned, lane orphaned")
			must(t, "exit 0", p.handsel("cancel", c.row.ID))
			if agent.alive() {
				t.Error("the agent is alive")
			}
			c.mustFind("at the end", allFree)
			p.settled()
		})
	}
}

// TestSeamToldDriverOnItsWay: until the start is begun a signal ends a driver as
// it ends any process, and nothing was begun; from then on it ends the attempt,
// which is on record (L18).
func TestSeamToldDriverOnItsWay(t *testing.T) {
	t.Parallel()
	for _, tt := range driverSteps {
		if tt.ended || !tt.asked {
			continue
		}
		t.Run(tt.step, func(t *testing.T) {
			t.Parallel()
			p := here(t).capped()
			c := hire(t, p, "", "sleep", "600")
			c.p = p.with("HANDSEL_FAILPOINT="+tt.step+"=stop,"+tt.step+"=sleep:50ms", "HANDSEL_FAILPOINT_LOG="+p.file("fired"))
			d := c.driver("drive")
			conn := c.accepts()
			c.send(conn)
			eventually(t, "it is stopped", func() bool { return c.fired(tt.step) && allStopped(d.id.pid) })
			d.id.signal(unix.SIGTERM)
			d.id.signal(unix.SIGCONT)
			if !tt.begun {
				c.silent(conn)
				if end := d.wait(); end != "signal SIGTERM" || c.decided() != "" {
					t.Errorf("the driver: %s, %q; decided %q", end, d.said(), c.decided())
				}
				c.mustFind("with the dispatcher's copies", atStart)
				c.leave()
			} else {
				c.settles(conn)
				if e := c.listens(); e.Outcome != "cancelled" {
					t.Errorf("told %+v", e)
				}
				if end := d.wait(); end != "exit 0" {
					t.Errorf("the driver: %s, %q", end, d.said())
				}
				if r := c.recorded(); r.State != "ended" || r.Outcome != "cancelled" {
					t.Errorf("the record says %+v", r)
				}
			}
			c.mustFind("at the end", allFree)
			p.settled()
		})
	}
}
