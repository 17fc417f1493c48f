package slot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pool(t *testing.T) *Pool {
	t.Helper()
	p, err := Open(t.TempDir(), "all", true)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func put(t *testing.T, p *Pool, i int, text string) {
	t.Helper()
	must(t, os.WriteFile(p.dir.Path()+"/"+FileName(i), []byte(text), 0o600))
}

// hold locks slot i, whatever its text.
func hold(t *testing.T, p *Pool, i int) *flock.File {
	t.Helper()
	f, err := flock.Take(p.dir, FileName(i), flock.Own)
	must(t, err)
	t.Cleanup(f.Close)
	return f
}

// sleeper is a child of ours that lives until the test ends.
func sleeper(t *testing.T) proc.ID {
	t.Helper()
	c := exec.Command("sleep", "1000")
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	id, err := proc.Identify(c.Process.Pid)
	must(t, err)
	return id
}

func until(t *testing.T, pid int, what func(proc.Stat) bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		st, err := proc.ReadStat(pid)
		must(t, err)
		if what(st) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("process %d is still %c", pid, st.State)
		}
	}
}

func recordOf(id proc.ID) Record {
	r := Record{Cap: 3, Engine: "codex", Workload: "heavy", HolderPid: os.Getpid(), BootID: id.Boot, PidNS: id.NS}
	r.setChild(id)
	return r
}

func text(t *testing.T, r Record) string {
	t.Helper()
	b, err := r.encode()
	must(t, err)
	return string(b)
}

// S7: the whole table for a slot whose lock is free.
func TestFreeLockCountsByItsRecord(t *testing.T) {
	id := sleeper(t)
	seven := fmt.Sprintf(`{"cap": 3, "child_pid": %d, "child_started": %.2f, "engine": "codex", "holder_pid": 1, "since": 1.5, "workload": "heavy"}`,
		id.Pid, id.StartedEpoch())
	edit := func(change func(*Record)) string {
		r := recordOf(id)
		change(&r)
		return text(t, r)
	}
	none := func(r *Record) { r.ChildStarted, r.ChildTicks = nil, 0 }
	far := id.StartedEpoch() + 86400
	for what, c := range map[string]struct {
		text string
		want State
	}{
		"empty":               {"", Free},
		"child alive":         {text(t, recordOf(id)), Orphaned},
		"child alive, seven":  {seven, Orphaned},
		"within two seconds":  {strings.Replace(seven, fmt.Sprintf("%.2f", id.StartedEpoch()), fmt.Sprintf("%.2f", id.StartedEpoch()+1.9), 1), Orphaned},
		"three seconds off":   {strings.Replace(seven, fmt.Sprintf("%.2f", id.StartedEpoch()), fmt.Sprintf("%.2f", id.StartedEpoch()+3), 1), Free},
		"other ticks":         {edit(func(r *Record) { r.ChildTicks++ }), Free},
		"wall clock stepped":  {edit(func(r *Record) { r.ChildStarted = &far }), Orphaned},
		"other boot":          {edit(func(r *Record) { r.BootID = "another" }), Free},
		"other boot and ns":   {edit(func(r *Record) { r.BootID, r.PidNS = "another", 1 }), Free},
		"other pid namespace": {edit(func(r *Record) { r.PidNS = 1 }), Unverifiable},
		"no start":            {edit(none), Free},
		"no child":            {edit(func(r *Record) { none(r); r.ChildPid = nil }), Free},
		"array":               {"[]", Free},
		"too long":            {text(t, recordOf(id)) + strings.Repeat(" ", 64<<10), Free},
		"long":                {text(t, recordOf(id)) + strings.Repeat(" ", 5000), Orphaned},
		"too deep":            {strings.TrimSpace(text(t, recordOf(id)))[:20] + `,"x":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + "}", Free},
		"torn":                {text(t, recordOf(id))[:100], Free},
		"an unknown field":    {strings.Replace(text(t, recordOf(id)), `{"cap"`, `{"future":{"x":[1]},"cap"`, 1), Orphaned},
		"of a pid never used": {edit(func(r *Record) { n := 1 << 30; r.ChildPid = &n }), Free},
	} {
		t.Run(what, func(t *testing.T) {
			p := pool(t)
			put(t, p, 0, c.text)
			n, err := p.Count()
			must(t, err)
			if got := n.Held; got != map[bool]int{true: 1}[c.want != Free] || n.Cap != 0 || n.Doubts != 0 {
				t.Errorf("%+v", n)
			}
			if c.want != Free && n.Slots[0].State != c.want {
				t.Errorf("state %v, want %v", n.Slots[0].State, c.want)
			}
		})
	}
}

// S7: a zombie is gone, a stopped process is alive.
func TestZombieIsGoneAndStoppedIsAlive(t *testing.T) {
	p := pool(t)
	c := exec.Command("sleep", "1000")
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	id, err := proc.Identify(c.Process.Pid)
	must(t, err)
	put(t, p, 0, text(t, recordOf(id)))
	must(t, c.Process.Signal(syscall.SIGSTOP))
	until(t, id.Pid, proc.Stat.Stopped)
	if s, err := p.Look(0); err != nil || s.State != Orphaned {
		t.Errorf("stopped child: %v, %v", s.State, err)
	}
	must(t, c.Process.Kill())
	until(t, id.Pid, proc.Stat.Zombie)
	if s, err := p.Look(0); err != nil || s.State != Free {
		t.Errorf("zombie: %v, %v", s.State, err)
	}
}

// S7, S11: a held lock counts whatever its record says, and only a record that
// can be read has a cap.
func TestHeldLockCountsWhateverItSays(t *testing.T) {
	gone := Record{Cap: 2, HolderPid: os.Getpid()}
	for what, c := range map[string]struct {
		text        string
		cap, doubts int
	}{
		"good":      {text(t, gone), 2, 0},
		"seven":     {`{"cap": 2, "child_pid": null, "child_started": null, "engine": null, "holder_pid": 1, "since": 1.5, "workload": "heavy"}`, 2, 0},
		"empty":     {"", 0, 1},
		"array":     {"[]", 0, 1},
		"torn":      {text(t, gone)[:30], 0, 1},
		"too long":  {text(t, gone) + strings.Repeat(" ", 64<<10), 0, 1},
		"long":      {text(t, gone) + strings.Repeat(" ", 5000), 2, 0},
		"cap of 0":  {text(t, Record{HolderPid: 1}), 0, 0},
		"odd words": {`{"cap":2,"holder_pid":1,"engine":"\u00e9"}`, 2, 0},
	} {
		t.Run(what, func(t *testing.T) {
			p := pool(t)
			put(t, p, 5, c.text)
			hold(t, p, 5)
			n, err := p.Count()
			must(t, err)
			if n.Held != 1 || n.Slots[0].State != Held || n.Cap != c.cap || n.Doubts != c.doubts || n.Free != 0 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// S7, S8: neither a slot between two steps of its holder nor the lock of one
// that has ended, nor the caps they name, are a reason to refuse at once.
func TestLockOnItsWayOutIsADoubt(t *testing.T) {
	dead := exec.Command("true")
	must(t, dead.Run())
	live := Record{Cap: 8, HolderPid: 1, BootID: machine.BootID(), PidNS: machine.PidNS()}
	stale := live
	stale.HolderPid, stale.Cap = dead.Process.Pid, 1
	for what, c := range map[string]struct {
		texts []string
		own   int
		want  bool
	}{
		"all sure":               {[]string{text(t, live), text(t, live)}, 2, false},
		"one empty":              {[]string{text(t, live), ""}, 2, true},
		"empty, but full anyway": {[]string{text(t, live), text(t, live), ""}, 2, false},
		"dead holder":            {[]string{text(t, live), text(t, stale)}, 2, true},
		"dead holder's cap":      {[]string{text(t, live), text(t, live), text(t, live), text(t, stale)}, 8, true},
	} {
		t.Run(what, func(t *testing.T) {
			p := pool(t)
			for i, s := range c.texts {
				put(t, p, i, s)
				hold(t, p, i)
			}
			n, err := p.Count()
			must(t, err)
			if !n.Full(c.own) {
				t.Fatalf("not full: %+v", n)
			}
			if got := n.Doubtful(c.own); got != c.want {
				t.Errorf("Doubtful(%d) = %v", c.own, got)
			}
		})
	}
}

// S10: every index on disk counts, and the lowest free one is taken.
func TestEveryIndexCounts(t *testing.T) {
	p := pool(t)
	for _, i := range []int{0, 3, 64, 1000} {
		hold(t, p, i)
	}
	for _, name := range []string{"07.lock", "x.lock", "-1.lock", "3.lock.bak", ".lock", "99999999.lock", "1e3.lock"} {
		must(t, os.WriteFile(p.dir.Path()+"/"+name, nil, 0o600))
	}
	var c Count
	for range 3 { // the space of the count before is used again
		must(t, p.CountInto(&c))
		if c.Held != 4 || c.Free != 1 || c.Doubts != 4 {
			t.Fatalf("%+v", c)
		}
	}
	if i, ok := Index("64.lock"); !ok || i != 64 {
		t.Errorf("Index = %d, %v", i, ok)
	}
}

// A count that uses the space of one before says what is true now.
func TestCountsDoNotMixWithThoseBefore(t *testing.T) {
	p := pool(t)
	var c Count
	var holds []*Hold
	for n := range 40 {
		h, err := p.Take(n, Record{Cap: 100 - n, HolderPid: n + 1, Run: strings.Repeat("r", n)})
		must(t, err)
		holds = append(holds, h)
		must(t, p.CountInto(&c))
		if c.Held != n+1 || c.Cap != 100-n {
			t.Fatalf("after %d takes: held %d, cap %d", n+1, c.Held, c.Cap)
		}
		for _, s := range c.Slots {
			if r := s.Record(); r == nil || r.HolderPid != s.Index+1 || len(r.Run) != s.Index {
				t.Fatalf("slot %d says %+v", s.Index, r)
			}
		}
	}
	for n, h := range holds {
		must(t, h.Release())
		must(t, p.CountInto(&c))
		if c.Held != 39-n {
			t.Fatalf("after %d releases: held %d", n+1, c.Held)
		}
	}
}

// S1, S12: a slot that could only be read is never given up for a child that it
// does not name.
func TestReadOnlySlotIsNotMarked(t *testing.T) {
	p := pool(t)
	put(t, p, 0, "")
	h, err := p.TakeReadOnly(0)
	must(t, err)
	defer h.Keep()
	must(t, h.SetChild(proc.Self()))
	if h.Marked() {
		t.Error("an empty record is said to hold the child's place")
	}
	if c, err := p.Count(); err != nil || c.Held != 1 || c.Doubts != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// S12: a record that cannot be written whole is an error, and nothing is kept.
func TestUnwritableSlotIsAnError(t *testing.T) {
	p := pool(t)
	h, err := p.Take(0, Record{Cap: 1, HolderPid: 1})
	must(t, err)
	h.rec.Run = strings.Repeat("x", 1000)
	if err := h.SetChild(proc.Self()); err == nil || h.Marked() {
		t.Errorf("SetChild = %v, marked %v", err, h.Marked())
	}
	must(t, h.Release())
	must(t, h.Release())
	if c, err := p.Count(); err != nil || c.Held != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// S8, C069: a descriptor that could not be adopted is closed by its owner alone.
func TestFailedAdoptionClosesNothing(t *testing.T) {
	p := pool(t)
	f := hold(t, p, 0)
	if _, err := p.Adopt(0, f.Fd(), Record{Run: strings.Repeat("x", 1000)}); err == nil {
		t.Fatal("a record was written that does not fit")
	}
	if _, err := unix.FcntlInt(uintptr(f.Fd()), unix.F_GETFD, 0); err != nil {
		t.Errorf("the descriptor was closed: %v", err)
	}
	if _, err := p.Take(0, Record{}); !errors.Is(err, flock.ErrHeld) {
		t.Errorf("Take = %v; the lock is the caller's still", err)
	}
}

// S5: what is planted in a pool is named, and nothing is counted past it.
func TestPlantedSlotIsNamed(t *testing.T) {
	p := pool(t)
	must(t, os.Symlink("/etc/passwd", p.dir.Path()+"/1.lock"))
	var odd *flock.Untrusted
	if _, err := p.Count(); !errors.As(err, &odd) || !strings.HasSuffix(odd.Path, "/all/1.lock") {
		t.Errorf("Count = %v", err)
	}
}
