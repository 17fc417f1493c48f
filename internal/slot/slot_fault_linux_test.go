package slot

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// The tests here notice faults that the others let live (L27).

// S8: a slot that was released names nobody, and is free also while the child
// that it was held for goes on.
func TestReleasedSlotNamesNobody(t *testing.T) {
	p := pool(t)
	h, err := p.Take(0, Record{Cap: 1, HolderPid: os.Getpid()})
	must(t, err)
	must(t, h.SetChild(sleeper(t)))
	if !h.Marked() {
		t.Error("a slot that holds its child's record is said not to")
	}
	must(t, h.Release())
	if c, err := p.Count(); err != nil || c.Held != 0 || c.Free != 0 {
		t.Errorf("%+v, %v; want a free slot", c, err)
	}
	if text, err := os.ReadFile(p.dir.Path() + "/0.lock"); err != nil || len(text) != 0 {
		t.Errorf("the file says %q, %v", text, err)
	}
}

// S8: the record is cleared while the lock is still held, and only then is the
// lock let go.
func TestRecordIsClearedUnderTheLock(t *testing.T) {
	p := pool(t)
	h, err := p.Take(0, Record{Cap: 1, HolderPid: os.Getpid()})
	must(t, err)
	must(t, h.Clear())
	s, err := p.Look(0)
	if err != nil || s.State != Held || !s.Blank() {
		t.Errorf("after Clear: %v, blank %v, %v", s.State, s.Blank(), err)
	}
	h.Keep()
	must(t, h.Clear()) // there is nothing to clear any more, and that is no error
	if p.Locked(0) {
		t.Error("locked after Keep")
	}
}

// S8: whether a locked slot's holder has ended is asked of the kernel only
// where its number means something here.
func TestHolderElsewhereIsNotJudged(t *testing.T) {
	dead := exec.Command("true")
	must(t, dead.Run())
	here := Record{Cap: 1, HolderPid: dead.Process.Pid, BootID: machine.BootID(), PidNS: machine.PidNS()}
	for what, c := range map[string]struct {
		change func(*Record)
		gone   bool
	}{
		"here":              {func(*Record) {}, true},
		"seven fields":      {func(r *Record) { r.BootID, r.PidNS = "", 0 }, true},
		"another boot":      {func(r *Record) { r.BootID = "another" }, false},
		"another namespace": {func(r *Record) { r.PidNS++ }, false},
		"nobody":            {func(r *Record) { r.HolderPid = 0 }, false},
		"ourselves":         {func(r *Record) { r.HolderPid = os.Getpid() }, false},
		"pid 1":             {func(r *Record) { r.HolderPid = 1 }, false},
	} {
		rec := here
		c.change(&rec)
		for how, written := range map[string]string{"as ours": text(t, rec), "as others'": strings.Replace(text(t, rec), `{"cap"`, `{"x":[],"cap"`, 1)} {
			p := pool(t)
			put(t, p, 0, written)
			hold(t, p, 0)
			s, err := p.Look(0)
			must(t, err)
			if s.holderGone() != c.gone {
				t.Errorf("%s, written %s: gone %v", what, how, !c.gone)
			}
		}
	}
}

// S11: the holder whose cap binds is named, and nobody when no holder's does.
func TestStrictestHolderIsNamed(t *testing.T) {
	p := pool(t)
	put(t, p, 0, "")
	hold(t, p, 0)
	put(t, p, 1, text(t, Record{HolderPid: 11}))
	hold(t, p, 1)
	c, err := p.Count()
	must(t, err)
	if pid := c.Strictest(); pid != 0 {
		t.Errorf("without a cap, %d is named", pid)
	}
	orphan := recordOf(sleeper(t))
	orphan.Cap, orphan.HolderPid = 2, 12
	put(t, p, 2, text(t, orphan)) // as small a cap, but its holder is gone
	for i, r := range []Record{{Cap: 4, HolderPid: 13}, {Cap: 2, HolderPid: 14}, {Cap: 3, HolderPid: 15}} {
		put(t, p, 3+i, text(t, r))
		hold(t, p, 3+i)
	}
	c, err = p.Count()
	must(t, err)
	if pid := c.Strictest(); pid != 14 || c.Cap != 2 {
		t.Errorf("cap %d of %d, want 2 of 14", c.Cap, pid)
	}
}

// A pool that is not there is not made by looking, and one that cannot be made
// is an error that names it.
func TestOpenMakesOnlyWhatItMay(t *testing.T) {
	root := t.TempDir()
	if _, err := Open(root, "all", false); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `"all"`) {
		t.Errorf("Open = %v", err)
	}
	must(t, os.WriteFile(root+"/file", nil, 0o600))
	if _, err := Open(root+"/file", "all", true); err == nil {
		t.Error("a pool was opened below a file")
	}
	must(t, os.Symlink(root, root+"/link"))
	if odd := new(flock.Untrusted); !errors.As(second(Open(root, "link", true)), &odd) {
		t.Error("a link was opened as a pool")
	}
	p, err := Open(root+"/new", "all", true)
	must(t, err)
	p.Close()
	if st, err := os.Stat(root + "/new/all"); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
}

func second[T any](_ T, err error) error { return err }

// S5: names that are no slot's are none, at both ends of the range.
func TestIndexIsWrittenOneWay(t *testing.T) {
	for name, want := range map[string]int{
		"0.lock": 0, "9.lock": 9, "10.lock": 10, "63.lock": 63, "64.lock": 64, "1048576.lock": maxIndex,
		"1048577.lock": -1, "9999999.lock": -1, "10000000.lock": -1, "00.lock": -1, "01.lock": -1, ".lock": -1, "lock": -1, "1": -1,
		"1.lock ": -1, "/.lock": -1, ":.lock": -1, "1/.lock": -1, "1:.lock": -1,
	} {
		i, ok := Index(name)
		if ok != (want >= 0) || ok && i != want {
			t.Errorf("Index(%q) = %d, %v", name, i, ok)
		}
		if ok && FileName(i) != name {
			t.Errorf("FileName(%d) = %q", i, FileName(i))
		}
	}
}

// S7: a record as long as is read is one; the look at a locked slot and at a
// free one agree on that, and on one byte more.
func TestLongestRecordIsRead(t *testing.T) {
	rec := text(t, recordOf(sleeper(t)))
	for _, n := range []int{RecordSize, RecordSize + 1, RecordSize + 2, maxRecord, maxRecord + 1} {
		p := pool(t)
		put(t, p, 0, rec+strings.Repeat(" ", n-len(rec)))
		s, err := p.Look(0)
		must(t, err)
		if got := s.State == Orphaned; got != (n <= maxRecord) || (s.Record() != nil) != got {
			t.Errorf("%d bytes: %v, %+v", n, s.State, s.Record())
		}
	}
}

// S1, S12: a slot held through a descriptor that cannot write keeps no record
// and can be released like any other; one that is not free is not taken.
func TestReadOnlyHoldIsReleased(t *testing.T) {
	p := pool(t)
	if _, err := p.TakeReadOnly(0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("TakeReadOnly of nothing = %v", err)
	}
	put(t, p, 0, "")
	h, err := p.TakeReadOnly(0)
	must(t, err)
	if !p.Locked(0) || p.Locked(1) || h.String() != "all/0" {
		t.Errorf("locked %v and %v, %s", p.Locked(0), p.Locked(1), h)
	}
	if _, err := p.TakeReadOnly(0); !errors.Is(err, flock.ErrHeld) {
		t.Errorf("a second one = %v", err)
	}
	must(t, h.Release())
	if p.Locked(0) {
		t.Error("locked after its release")
	}
	must(t, os.Symlink("/etc/passwd", p.dir.Path()+"/1.lock"))
	_, err = p.Take(1, Record{})
	if odd := new(flock.Untrusted); !errors.As(err, &odd) || errors.Is(err, flock.ErrHeld) || !strings.Contains(err.Error(), "all/1") {
		t.Errorf("Take of a link = %v", err)
	}
}

// L6, S12: an adopted slot holds its child's place only if the record names the
// child wholly.
func TestAdoptedSlotIsMarkedByItsRecord(t *testing.T) {
	child, started := os.Getpid(), 1.5
	for what, c := range map[string]struct {
		rec  Record
		want bool
	}{
		"no child":   {Record{HolderPid: 1}, false},
		"no start":   {Record{HolderPid: 1, ChildPid: &child}, false},
		"no pid":     {Record{HolderPid: 1, ChildStarted: &started}, false},
		"both there": {Record{HolderPid: 1, ChildPid: &child, ChildStarted: &started}, true},
	} {
		p := pool(t)
		f := hold(t, p, 0)
		fd, err := unix.FcntlInt(uintptr(f.Fd()), unix.F_DUPFD_CLOEXEC, 0)
		must(t, err)
		h, err := p.Adopt(0, fd, c.rec)
		must(t, err)
		if h.Marked() != c.want {
			t.Errorf("%s: marked %v", what, !c.want)
		}
		must(t, h.Release())
		if !p.Locked(0) {
			t.Errorf("%s: the lock is gone, which the sender's copy holds", what)
		}
	}
	p := pool(t)
	put(t, p, 0, "")
	f, err := p.dir.Open("0.lock", flock.Own)
	must(t, err)
	defer f.Close()
	hold(t, p, 0)
	if _, err := p.Adopt(0, f.Fd(), Record{}); !errors.Is(err, flock.ErrNotOurs) || !strings.Contains(err.Error(), "all/0") {
		t.Errorf("Adopt without the lock = %v", err)
	}
}

// C022: what stands in a slot without a child is looked into only where the
// record is of this boot and namespace, and names a run and a holder that ended.
func TestOnlyOurOwnUnrecordedAgentsAreLookedFor(t *testing.T) {
	const run = "01a20000-0000-7000-8000-00000000c027"
	agent := exec.Command("sleep", "1000")
	agent.Env = append(os.Environ(), "HANDSEL_RUN="+run)
	must(t, agent.Start())
	defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
	dead := exec.Command("true")
	must(t, dead.Run())
	me := proc.Self()
	left := Record{Cap: 1, Run: run, HolderPid: dead.Process.Pid, HolderTicks: 1, BootID: me.Boot, PidNS: me.NS}
	for what, c := range map[string]struct {
		change func(*Record)
		want   State
		stale  bool
	}{
		"as it was left":    {func(*Record) {}, Orphaned, false},
		"another run":       {func(r *Record) { r.Run = run[:35] + "8" }, Free, true},
		"no run":            {func(r *Record) { r.Run = "" }, Free, false},
		"another boot":      {func(r *Record) { r.BootID = "another" }, Free, false},
		"another namespace": {func(r *Record) { r.PidNS++ }, Free, false},
		"the holder lives":  {func(r *Record) { r.HolderPid, r.HolderTicks = me.Pid, me.Ticks }, Free, false},
	} {
		p := pool(t)
		rec := left
		c.change(&rec)
		put(t, p, 0, text(t, rec))
		s, err := p.Look(0)
		for end := time.Now().Add(time.Minute); err == nil && c.stale && !s.stale && time.Now().Before(end); {
			s, err = p.Look(0) // on a busy machine somebody is just being executed at every look, and may be the one
		}
		must(t, err)
		if s.State != c.want || s.stale != c.stale {
			t.Errorf("%s: %v, stale %v", what, s.State, s.stale)
		}
		if pid, isAgent, ok := s.Process(); c.want == Orphaned && (pid != agent.Process.Pid || !isAgent || !ok) {
			t.Errorf("%s: stands for %d, agent %v, %v", what, pid, isAgent, ok)
		}
	}
}

// S6: whole numbers of others are read as far as they are exact.
func TestWholeNumbersAreExactOnes(t *testing.T) {
	for text, want := range map[string]uint64{"9007199254740992": 1 << 53, "9007199254740994": 0, "2.5": 0, "-1": 0, "1e3": 1000, `"7"`: 0} {
		r := Parse([]byte(`{"x":[],"child_ticks":` + text + `}`))
		if r == nil || r.ChildTicks != want {
			t.Errorf("%s: %+v, want %d", text, r, want)
		}
	}
}

// S6: what holders write is read by the quick reader, ours and others', without
// asking encoding/json: counting reads one for each slot that is held.
func TestQuickReaderReadsWhatHoldersWrite(t *testing.T) {
	full := recordOf(sleeper(t))
	full.Run, full.Argv0, full.Since, full.HolderTicks = "run~ 1", "codex", 1792345677.95, 7
	for what, written := range map[string]string{
		"the whole record": text(t, full),
		"before the child": text(t, Record{Cap: 1, HolderPid: 1, Engine: "codex", Workload: "heavy"}),
		"others'":          `{"cap": 4, "child_pid": null, "child_started": null, "engine": "codex", "holder_pid": 48190, "since": 1792345677, "workload": "light"}`,
		"others' padded":   `{"cap": 4, "child_pid": 7, "child_started": 0.25, "engine": "", "holder_pid": 48190, "since": 0, "workload": "light"}` + strings.Repeat(" ", 300) + "\n",
		"largest numbers":  `{"cap":2147483647,"holder_pid":9,"child_ticks":999999999999999}`,
	} {
		f, ok := scan([]byte(written))
		if !ok {
			t.Errorf("%s: the quick reader gave up: %s", what, written)
			continue
		}
		if got, want := f.record([]byte(written)), parseAny([]byte(written)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: quick %+v, slow %+v", what, got, want)
		}
	}
	for what, written := range map[string]string{
		"one number too long": `{"child_ticks":1000000000000000}`, "beyond 31 bits": `{"cap":2147483648}`, "escape": `{"run":"\u0041"}`,
		"torn": text(t, full)[:100], "torn in a null": `{"child_pid":nul`, "torn after the key": `{"cap"`, "nothing after the name": `{"cap":`,
		"torn number": `{"since":1.`, "too long": text(t, full) + strings.Repeat(" ", maxRecord), "no end": `{"cap":1,"holder_pid":2`, "more behind it": `{"cap":1}x`,
		"DEL": "{\"run\":\"\x7f\"}", "forty digits": `{"since":` + strings.Repeat("1", 40) + "}",
	} {
		if _, ok := scan([]byte(written)); ok {
			t.Errorf("%s: read by the quick reader", what)
		}
	}
}

// S6: a record is whole at every length, also at the one that just does not fit.
func TestRecordFitsAtEveryLength(t *testing.T) {
	for n := range 2 * RecordSize {
		rec, err := Record{Cap: 3, HolderPid: 7, Argv0: strings.Repeat("x", n)}.encode()
		must(t, err)
		if got := Parse(rec); len(rec) != RecordSize || got == nil || got.Cap != 3 {
			t.Fatalf("an argv0 of %d bytes: %d bytes, read as %+v", n, len(rec), got)
		}
	}
}
