package handsel

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/run"
)

// seat takes a lane in a home of the test's own, by a holder that is gone.
func seat(t *testing.T) (home.Dir, *lane.Hold) {
	t.Helper()
	d := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
	holder := exec.Command("true")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := proc.ReadStat(holder.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	rec := lane.Mine(lane.RoleRun)
	rec.Holder = &lane.Process{Pid: id.Pid, Ticks: id.Ticks}
	h, err := lane.Take(d, "l", rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Keep)
	return d, h
}

// L17, S12: a lane whose agent could not be ended is kept for it by the record, or
// by the lock where the record is not whole; else it is let go.
func TestLaneIsKeptForAnAgentThatLives(t *testing.T) {
	self := proc.Self()
	for what, c := range map[string]struct {
		recorded, kept bool
		state          lane.State
		warned         bool
	}{
		"ended":                   {true, false, lane.Free, false},
		"kept by its record":      {true, true, lane.Orphaned, false},
		"kept, and not recorded":  {false, true, lane.Owned, true},
		"ended, and not recorded": {false, false, lane.Free, false},
	} {
		t.Run(what, func(t *testing.T) {
			d, h := seat(t)
			if c.recorded {
				if err := h.SetChild(self); err != nil {
					t.Fatal(err)
				}
			}
			warnings := (&job{hold: h}).letGo(&Outcome{Outcome: run.Outcome{SlotsKept: c.kept}})
			if (len(warnings) > 0) != c.warned {
				t.Errorf("warnings: %v", warnings)
			}
			if s, err := lane.Look(d, "l"); err != nil || s.State != c.state {
				t.Errorf("the lane is %s, %v; want it %s", s.State, err, c.state)
			}
		})
	}
}

// S12: an agent that its lane cannot record is refused, for now.
func TestUnrecordedAgentIsRefused(t *testing.T) {
	_, h := seat(t)
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	right := seated{&Lease{}, h}
	if right.Empty() {
		t.Error("a lease with a lane is said to hold nothing: its agent needs no identity then")
	}
	var refused *Refused
	if err := right.RecordChild(proc.Self()); !errors.As(err, &refused) || refused.Code != CodeLaneUnwritable || !refused.Retryable() {
		t.Errorf("RecordChild = %v, want a refusal by the lane", err)
	}
}

// C9: an agent is told its own lane, and an attempt its grant; what an outer
// agent's were is not passed on, but to its gate.
func TestAgentIsToldItsOwnLane(t *testing.T) {
	outer := []string{"A=1", "HANDSEL_LANE=outer", "HANDSEL_ATTEMPT=x", "HANDSEL_FENCE=1", "HANDSEL_LANE=again", "B=2"}
	_, plain := seat(t)
	_, granted := seat(t)
	rec := granted.Record()
	rec.Attempt, rec.Fence = "01a20000-0000-7000-8000-000000000009", 7
	if err := granted.SetOwner(rec); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		job  job
		want string
	}{
		"no lane":        {job{}, "A=1 B=2"},
		"a direct run":   {job{o: Options{Lane: "mine"}}, "A=1 B=2 HANDSEL_LANE=mine"},
		"with its hold":  {job{hold: plain}, "A=1 B=2 HANDSEL_LANE=l"},
		"an attempt":     {job{hold: granted}, "A=1 B=2 HANDSEL_LANE=l HANDSEL_ATTEMPT=" + rec.Attempt + " HANDSEL_FENCE=7"},
		"a gate":         {job{gate: true}, strings.Join(outer, " ")},
		"a gate's own":   {job{gate: true, o: Options{Lane: "mine"}}, "A=1 B=2 HANDSEL_LANE=mine"},
		"nothing at all": {job{o: Options{Env: []string{}}}, ""},
	} {
		if c.job.o.Env == nil {
			c.job.o.Env = outer
		}
		before := slices.Clone(c.job.o.Env)
		if got := strings.Join(slices.Concat(c.job.env(), c.job.fenced()), " "); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		if !slices.Equal(before, c.job.o.Env) {
			t.Errorf("%s: the caller's environment was changed to %q", what, c.job.o.Env)
		}
	}
}

// L2: the refusal of a lane is for now, that of one's own ancestor's final, and
// both are about ownership and name the owner.
func TestLaneRefusalSaysWhoAndHowLong(t *testing.T) {
	rec := lane.Mine(lane.RoleRun)
	rec.Lane, rec.Run = "l", "01a20000-0000-7000-8000-00000000000a"
	for _, above := range []bool{false, true} {
		err := &LaneOwned{&lane.Held{Seen: lane.Seen{Name: "l", State: lane.Owned, Record: &rec}}, above}
		r := ReasonOf(err)
		if r.Class != "ownership" || r.Retryable == above || (r.Code == CodeOwnAncestors) != above {
			t.Errorf("above %v: %+v", above, r)
		}
		if len(r.Holders) != 1 || r.Holders[0].Lane != "l" || r.Holders[0].Pid != os.Getpid() || r.Holders[0].Run != rec.Run {
			t.Errorf("holders: %+v", r.Holders)
		}
	}
}
