package slot

import (
	"os"
	"os/exec"
	"testing"

	"github.com/handsel/handsel/internal/proc"
)

// abandoned writes a record into slot 0 of a pool as a holder leaves it that
// was killed between starting its agent and recording it.
func abandoned(t *testing.T, run string) *Pool {
	t.Helper()
	p, err := Open(t.TempDir(), "all", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	holder := exec.Command("sleep", "1000")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := proc.Identify(holder.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	h, err := p.Take(0, Record{Cap: 1, Workload: "heavy", Run: run, HolderPid: id.Pid, HolderTicks: id.Ticks, BootID: id.Boot, PidNS: id.NS})
	if err != nil {
		t.Fatal(err)
	}
	h.Keep()
	return p
}

// C022: an agent whose supervisor was killed before it could record it keeps
// its slot, found by the run that its environment names.
func TestUnrecordedAgentKeepsItsSlot(t *testing.T) {
	const run = "01a20000-0000-7000-8000-00000000c022"
	p := abandoned(t, run)
	agent := exec.Command("sleep", "1000")
	agent.Env = append(os.Environ(), "HANDSEL_RUN="+run)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer agent.Process.Kill()
	c, err := p.Count()
	if err != nil || len(c.Slots) != 1 || c.Slots[0].State != Orphaned {
		t.Fatalf("Count = %+v, %v; want one orphaned slot", c, err)
	}
	if r := c.Slots[0].Record(); r.ChildPid == nil || *r.ChildPid != agent.Process.Pid {
		t.Errorf("the slot stands for %v, want process %d", r.ChildPid, agent.Process.Pid)
	}
	_ = agent.Process.Kill()
	_ = agent.Wait()
	if c, err = p.Count(); err != nil || c.Held != 0 || len(c.Stale) != 1 {
		t.Fatalf("Count after the agent's end = %+v, %v; want a free slot with a stale record", c, err)
	}
	p.Wipe(0)
	if c, err = p.Count(); err != nil || len(c.Stale) != 0 {
		t.Errorf("Count after Wipe = %+v, %v; want no stale record", c, err)
	}
}

// A slot that is held is not wiped, however often it was seen stale.
func TestWipeLeavesAHeldSlotAlone(t *testing.T) {
	p := abandoned(t, "01a20000-0000-7000-8000-00000000c023")
	h, err := p.Take(0, Record{Cap: 1, HolderPid: os.Getpid(), Workload: "heavy"})
	if err != nil {
		t.Fatal(err)
	}
	p.Wipe(0)
	if seen, err := p.Look(0); err != nil || seen.Record() == nil {
		t.Errorf("the holder's record is gone (%v)", err)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
}
