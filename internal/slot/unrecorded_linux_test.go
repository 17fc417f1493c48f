package slot

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
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

// dying is the variable that makes this test binary the process of
// TestDyingHolderKeepsItsUnrecordedAgent, with the pools' directory as its value.
const dying = "SLOT_TEST_DYING"

const dyingRun = "01a20000-0000-7000-8000-00000000c024"

// TestDyingHolderProcess is no test: it has a slot and an agent that it has not
// recorded, and much to close when it dies. An inotify instance takes the kernel
// a while, so its descriptors are closed long before it shows as a zombie.
func TestDyingHolderProcess(t *testing.T) {
	at := os.Getenv(dying)
	if at == "" {
		return
	}
	slow := func() {
		for range 20 {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err != nil {
				return // the user has as many as may be
			}
			_, _ = unix.InotifyAddWatch(fd, at, unix.IN_CREATE)
		}
	}
	slow()
	p, err := Open(at, "all", true)
	must(t, err)
	me := proc.Self()
	_, err = p.Take(0, Record{Cap: 1, Workload: "heavy", Run: dyingRun, HolderPid: me.Pid, HolderTicks: me.Ticks, BootID: machine.BootID(), PidNS: machine.PidNS()})
	must(t, err)
	slow()
	os.Stdout.WriteString("ready\n")
	select {}
}

// C022: the holder of a slot that is killed before it could record its agent does
// not count as one that let go, in the time in which its lock is free already and
// its process still shows.
func TestDyingHolderKeepsItsUnrecordedAgent(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	agent := exec.Command("sleep", "1000")
	agent.Env = append(os.Environ(), "HANDSEL_RUN="+dyingRun)
	must(t, agent.Start())
	defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
	showed := 0
	for range 5 {
		dir := t.TempDir()
		holder := exec.Command(self, "-test.run=^TestDyingHolderProcess$")
		holder.Env = append(os.Environ(), dying+"="+dir)
		out, err := holder.StdoutPipe()
		must(t, err)
		must(t, holder.Start())
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		id, err := proc.Identify(holder.Process.Pid)
		must(t, err)
		p, err := Open(dir, "all", false)
		must(t, err)
		must(t, holder.Process.Kill())
		for p.Locked(0) {
			runtime.Gosched()
		}
		if proc.Judge(id.Claim()) == proc.Alive {
			showed++
		}
		seen, err := p.Look(0)
		_ = holder.Wait()
		p.Close()
		must(t, err)
		if seen.State != Orphaned {
			t.Fatalf("the slot of a dying holder is %v while its agent lives", seen.State)
		}
	}
	t.Logf("%d of 5 holders still showed when their lock was free", showed)
}
