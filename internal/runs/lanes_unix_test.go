//go:build unix

package runs

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// own takes a lane for a process.
func own(t *testing.T, p Place, name, run, role string, holder record.Identity) *lane.Hold {
	t.Helper()
	h, err := lane.Take(p.Home, name, lane.Record{
		Role: role, Run: run, Holder: &lane.Process{Pid: holder.Pid, Ticks: holder.Ticks}, BootID: holder.BootID, PidNS: holder.PidNS,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Keep)
	return h
}

func id(i record.Identity) proc.ID {
	return proc.ID{Pid: i.Pid, Ticks: i.Ticks, Boot: i.BootID, NS: i.PidNS}
}

// L1, S23: a run of which only its lane is left is found by it, and cancel ends
// its agent; then the lane is free.
func TestOrphanIsFoundAndEndedByItsLane(t *testing.T) {
	p := newPlace(t)
	supervisor, holder := someone(t)
	run := record.NewID()
	agent, child := someone(t, "HANDSEL_RUN="+run)
	h := own(t, p, "api", run, lane.RoleRun, holder)
	if err := h.SetChild(id(child)); err != nil {
		t.Fatal(err)
	}
	h.Keep()
	supervisor.end()
	for _, name := range []string{"lane:api", "api", run} {
		found, err := p.Find(name, false)
		if err != nil || len(found) != 1 || found[0].ID != run || !found[0].Orphaned || found[0].Lane != "api" {
			t.Fatalf("Find(%q) = %+v, %v; want the orphaned run", name, found, err)
		}
	}
	found, _ := p.Find("lane:api", false)
	done, err := p.Cancel(t.Context(), found[0])
	if err != nil || done.Did != WasCancelled {
		t.Fatalf("Cancel = %+v, %v", done, err)
	}
	<-agent.reaped
	if s, err := lane.Look(p.Home, "api"); err != nil || s.State != lane.Free {
		t.Errorf("the lane is %s, %v; want it free", s.State, err)
	}
	if _, err := p.Find("lane:api", false); !errors.As(err, new(*NotFound)) {
		t.Errorf("Find of a lane that nobody has = %v", err)
	}
}

// An attempt that waits in its lane is no run, whatever its record says of ids.
func TestWaitingAttemptIsNoRun(t *testing.T) {
	p := newPlace(t)
	_, holder := someone(t)
	own(t, p, "api", record.NewID(), lane.RoleDispatcher, holder)
	if list, err := p.List(Filter{}); err != nil || len(list.Runs) != 0 {
		t.Errorf("List = %+v, %v; want no run", list.Runs, err)
	}
}

// A supervisor that was killed before it wrote its record again left the agent in
// the lane's.
func TestLaneNamesTheAgentOfARecord(t *testing.T) {
	p := newPlace(t)
	supervisor, holder := someone(t)
	_, child := someone(t)
	rec := keep(t, p, func(r *record.Run) {
		r.State, r.Handsel, r.Lane = record.Starting, holder, "api"
	})
	h := own(t, p, "api", rec.ID, lane.RoleRun, holder)
	if err := h.SetChild(id(child)); err != nil {
		t.Fatal(err)
	}
	h.Keep()
	supervisor.end()
	found, err := p.Find(rec.ID, false)
	if err != nil || !found[0].Orphaned || found[0].Child == nil || found[0].Child.Pid != child.Pid {
		t.Errorf("Find = %+v, %v; want it orphaned, with its agent", found, err)
	}
}

// S21a: recorded owners of lanes and of the dispatcher lock are passed over while
// they have it, and nobody else is, nor a later process with their number.
func TestOwnersArePassedOver(t *testing.T) {
	p := newPlace(t)
	_, driver := someone(t)
	_, left := someone(t)
	_, dispatcher := someone(t)
	_, other := someone(t)
	own(t, p, "api", record.NewID(), lane.RoleDriver, driver)
	h := own(t, p, "web", record.NewID(), lane.RoleDriver, left)
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"v": 1, "pid": dispatcher.Pid, "start_ticks": dispatcher.Ticks, "boot_id": machine.BootID()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Home.Path, "dispatch.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	asked := func(who record.Identity) bool { return p.PassOver(os.Getpid())(who.Pid, id(who)) }
	if asked(dispatcher) {
		t.Error("a dispatcher that has no lock is passed over")
	}
	dir, err := flock.OpenDir(p.Home.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	lock, err := flock.Take(dir, "dispatch.lock", flock.Own)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	later := driver
	later.Ticks++
	for what, c := range map[string]struct {
		who  record.Identity
		want bool
	}{
		"the owner of a lane": {driver, true}, "the dispatcher": {dispatcher, true},
		"who let go of a lane": {left, false}, "somebody else": {other, false}, "a later process": {later, false},
	} {
		if got := asked(c.who); got != c.want {
			t.Errorf("%s is passed over: %v, want %v", what, got, c.want)
		}
	}
	if p.PassOver(driver.Pid)(driver.Pid, id(driver)) {
		t.Error("the process that was excepted is passed over")
	}
}
