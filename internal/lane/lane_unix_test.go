//go:build unix

package lane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
)

// patience bounds waits for what must happen; nothing is measured by it.
const patience = 60 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func place(t *testing.T) home.Dir {
	t.Helper()
	return home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
}

func take(t *testing.T, d home.Dir, name string, rec Record) *Hold {
	t.Helper()
	h, err := Take(d, name, rec)
	must(t, err)
	t.Cleanup(h.Keep)
	return h
}

func seen(t *testing.T, d home.Dir, name string) Seen {
	t.Helper()
	s, err := Look(d, name)
	must(t, err)
	return s
}

func path(d home.Dir, name string) string { return filepath.Join(d.Lanes(), FileName(name)) }

func put(t *testing.T, d home.Dir, name, text string) {
	t.Helper()
	must(t, d.Ensure())
	must(t, home.EnsureDir(d.Lanes()))
	must(t, os.WriteFile(path(d, name), []byte(text), 0o600))
}

// locked asks the kernel, as somebody who has nothing to do with the lane.
func locked(t *testing.T, d home.Dir, name string) bool {
	t.Helper()
	dir, err := flock.OpenDir(d.Lanes())
	must(t, err)
	defer dir.Close()
	_, held, err := dir.Probe(FileName(name), nil)
	must(t, err)
	return held
}

// freed waits until the kernel has let go: a descriptor just closed may live on
// in a child that is being forked (S8).
func freed(t *testing.T, d home.Dir, name string) {
	t.Helper()
	for limit := time.Now().Add(patience); locked(t, d, name); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("lane %q is still locked", name)
		}
	}
}

// sleeper is a child of ours that lives until the test ends, or until end.
func sleeper(t *testing.T, env ...string) (id proc.ID, end func()) {
	t.Helper()
	c := exec.Command("sleep", "1000")
	c.Env = append(os.Environ(), env...)
	must(t, c.Start())
	var once sync.Once
	end = func() { once.Do(func() { _ = c.Process.Kill(); _ = c.Wait() }) }
	t.Cleanup(end)
	id, err := proc.Identify(c.Process.Pid)
	must(t, err)
	return id, end
}

// dead is a process that was alive once.
func dead(t *testing.T) proc.ID {
	id, end := sleeper(t)
	end()
	return id
}

func by(id proc.ID, role string) Record {
	return Record{Role: role, Holder: &Process{id.Pid, id.Ticks}, BootID: id.Boot, PidNS: id.NS}
}

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	must(t, err)
	return len(entries)
}

func wantHeld(t *testing.T, err error, state State) *Held {
	t.Helper()
	var held *Held
	if !errors.As(err, &held) || held.State != state {
		t.Fatalf("error is %v, want *Held that is %s", err, state)
	}
	return held
}

// L1, S6: who owns the lane stands in it, and the name and the fence alone when
// nobody does.
func TestRecordFollowsTheOwner(t *testing.T) {
	d, name := place(t), "api review/Ä"
	rec := Mine(RoleLauncher)
	rec.Attempt, rec.Fence = "01a20000-0000-7000-8000-000000000001", 7
	h := take(t, d, name, rec)
	if s := seen(t, d, name); s.State != Owned || s.Record.Lane != name || s.Record.Holder.Pid != os.Getpid() || s.Record.Fence != 7 {
		t.Errorf("Look = %+v %+v, want it owned by us", s, s.Record)
	}
	child, _ := sleeper(t)
	must(t, h.SetChild(child))
	if s := seen(t, d, name); s.Record.Child == nil || s.Record.Child.Pid != child.Pid || !h.Marked() {
		t.Errorf("after SetChild: %+v, marked %v", s.Record, h.Marked())
	}
	next := Mine(RoleDriver)
	next.Fence = 3
	must(t, h.SetOwner(next))
	if got := h.Record(); got.Fence != 7 || got.Child != nil || got.Lane != name || h.Marked() {
		t.Errorf("SetOwner left %+v, want fence 7 and no agent", got)
	}
	must(t, h.Release())
	must(t, h.Release())
	freed(t, d, name)
	s := seen(t, d, name)
	if got, want := *s.Record, (Record{V: 1, Lane: name, Fence: 7}); got != want || s.State != Free {
		t.Errorf("a released lane says %+v and is %s", got, s.State)
	}
	if again := take(t, d, name, Mine(RoleRun)); again.Record().Fence != 7 {
		t.Errorf("the next owner finds fence %d, want 7", again.Record().Fence)
	}
}

// L2, L3: a refusal names the owner, and leaves neither a lock nor a descriptor.
func TestRefusalNamesTheOwnerAndHoldsNothing(t *testing.T) {
	d := place(t)
	rec := Mine(RoleRun)
	rec.Run = "01a20000-0000-7000-8000-000000000002"
	h := take(t, d, "l", rec)
	before := openFDs(t)
	_, err := Take(d, "l", Mine(RoleRun))
	held := wantHeld(t, err, Owned)
	if text := held.Error(); !strings.Contains(text, fmt.Sprintf("pid %d", os.Getpid())) || !strings.Contains(text, rec.Run) || strings.Contains(text, "\n") {
		t.Errorf("refusal is %q, want our pid and run in one line", text)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	must(t, h.Release())
	freed(t, d, "l")
	take(t, d, "l", Mine(RoleRun))
}

// C069: what one does not hold cannot be let go.
func TestLettingGoTwiceLeavesTheNextOwnerAlone(t *testing.T) {
	d := place(t)
	h := take(t, d, "l", Mine(RoleRun))
	must(t, h.Release())
	freed(t, d, "l")
	take(t, d, "l", Mine(RoleDriver))
	must(t, h.Release())
	h.Keep()
	if err := h.SetChild(proc.Self()); err == nil {
		t.Error("SetChild through a lane that was let go of is no error")
	}
	if s := seen(t, d, "l"); s.State != Owned || s.Record.Role != RoleDriver {
		t.Errorf("the next owner's lane is %s, by %+v", s.State, s.Record)
	}
}

// S7: the whole table for a lane whose lock is free. Whatever the state, looking,
// taking and removing agree on it.
func TestFreeLockIsJudgedByTheRecord(t *testing.T) {
	child, _ := sleeper(t)
	gone := dead(t)
	edit := func(change func(*Record)) string {
		r := by(gone, RoleRun)
		r.V, r.Lane, r.Run, r.Child = 1, "l", "01a20000-0000-7000-8000-0000000000ff", &Process{child.Pid, child.Ticks}
		change(&r)
		b, err := r.encode()
		must(t, err)
		return string(b)
	}
	whole := edit(func(*Record) {})
	for what, c := range map[string]struct {
		text string
		want State
	}{
		"empty":                {"", Free},
		"agent alive":          {whole, Orphaned},
		"other start":          {edit(func(r *Record) { r.Child.Ticks++ }), Free},
		"no start":             {edit(func(r *Record) { r.Child.Ticks = 0 }), Free},
		"other boot":           {edit(func(r *Record) { r.BootID = "another" }), Free},
		"other pid namespace":  {edit(func(r *Record) { r.PidNS = 1 }), Unverifiable},
		"no agent":             {edit(func(r *Record) { r.Child = nil }), Free},
		"agent gone":           {edit(func(r *Record) { r.Child = &Process{gone.Pid, gone.Ticks} }), Free},
		"nobody":               {edit(func(r *Record) { *r = r.idle() }), Free},
		"array":                {"[]", Free},
		"torn":                 {whole[:80], Free},
		"too long":             {whole + strings.Repeat(" x", 64<<10), Free},
		"long":                 {whole + strings.Repeat(" ", 5000), Orphaned},
		"too deep":             {`{"v":1,"lane":"l","x":` + strings.Repeat("[", 11000) + strings.Repeat("]", 11000) + "}", Free},
		"an unknown field":     {strings.Replace(whole, `{"v"`, `{"future":{"x":[1]},"v"`, 1), Orphaned},
		"a pid that is no pid": {edit(func(r *Record) { r.Child.Pid = -1 }), Free},
	} {
		t.Run(what, func(t *testing.T) {
			d := place(t)
			put(t, d, "l", c.text)
			if got := seen(t, d, "l").State; got != c.want {
				t.Errorf("Look says %s, want %s", got, c.want)
			}
			h, err := Take(d, "l", Mine(RoleRun))
			if c.want == Free {
				must(t, err)
				h.Keep()
				return
			}
			wantHeld(t, err, c.want)
			if err := Remove(d, FileName("l")); !errors.As(err, new(*InUse)) {
				t.Errorf("Remove = %v, want *InUse", err)
			}
			if locked(t, d, "l") {
				t.Error("the refusals left a lock")
			}
		})
	}
}

// C022: an agent whose supervisor was killed before it could record it keeps its
// lane, found by the run that its environment names.
func TestUnrecordedAgentKeepsItsLane(t *testing.T) {
	const run = "01a20000-0000-7000-8000-00000000c122"
	d := place(t)
	rec := by(dead(t), RoleRun)
	rec.Run = run
	take(t, d, "l", rec).Keep()
	agent, end := sleeper(t, "HANDSEL_RUN="+run)
	s := seen(t, d, "l")
	if s.State != Orphaned || s.Record.Child == nil || s.Record.Child.Pid != agent.Pid {
		t.Errorf("Look = %s %+v, want it orphaned by process %d", s.State, s.Record, agent.Pid)
	}
	if all, _, err := List(d); err != nil || len(all) != 1 || all[0].State != Orphaned || all[0].Record.Child.Pid != agent.Pid {
		t.Errorf("List = %+v, %v", all, err)
	}
	if err := Remove(d, FileName("l")); !errors.As(err, new(*InUse)) {
		t.Errorf("Remove = %v, want *InUse", err)
	}
	_, err := Take(d, "l", Mine(RoleRun))
	if held := wantHeld(t, err, Orphaned); held.Record.Child.Pid != agent.Pid {
		t.Errorf("the refusal names process %d, want %d", held.Record.Child.Pid, agent.Pid)
	}
	end()
	take(t, d, "l", Mine(RoleRun))
}

// A launcher or a dispatcher starts no agent, so its lane is free when it dies,
// whatever carries the attempt's id.
func TestDeadDispatcherKeepsNoLane(t *testing.T) {
	const id = "01a20000-0000-7000-8000-00000000c222"
	sleeper(t, "HANDSEL_RUN="+id)
	for _, role := range []string{RoleLauncher, RoleDispatcher} {
		d := place(t)
		rec := by(dead(t), role)
		rec.Attempt, rec.Run = id, id
		take(t, d, "l", rec).Keep()
		if s := seen(t, d, "l"); s.State != Free {
			t.Errorf("the lane of a dead %s is %s, want free", role, s.State)
		}
	}
}

// C060, S5: a file that is replaced between opening and locking makes no second
// owner.
func TestReplacedFileMakesNoSecondOwner(t *testing.T) {
	for what, replace := range map[string]func(t *testing.T, d home.Dir){
		"removed by gc": func(t *testing.T, d home.Dir) { must(t, Remove(d, FileName("l"))) },
		"removed":       func(t *testing.T, d home.Dir) { must(t, os.Remove(path(d, "l"))) },
		"renamed over": func(t *testing.T, d home.Dir) {
			must(t, os.WriteFile(path(d, "l")+".new", nil, 0o600))
			must(t, os.Rename(path(d, "l")+".new", path(d, "l")))
		},
		"directory replaced": func(t *testing.T, d home.Dir) {
			must(t, os.Rename(d.Lanes(), d.Lanes()+".old"))
			must(t, os.Mkdir(d.Lanes(), 0o700))
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := place(t)
			must(t, take(t, d, "l", Mine(RoleRun)).Release())
			freed(t, d, "l")
			dir, err := openLanes(d)
			must(t, err)
			defer dir.Close()
			b := taking{home: d, name: "l", rec: Mine(RoleRun), began: time.Now()}
			f, err := dir.Open(FileName("l"), flock.Own) // and here B is stopped
			must(t, err)
			defer f.Close()
			replace(t, d)
			c := take(t, d, "l", Mine(RoleDriver))
			if _, err := b.own(t.Context(), f); !errors.Is(err, flock.ErrReplaced) {
				t.Errorf("B was told %v, want that the file was replaced", err)
			}
			_, err = b.take(t.Context())
			wantHeld(t, err, Owned)
			if s := seen(t, d, "l"); s.State != Owned || s.Record.Role != RoleDriver {
				t.Errorf("C's lane is %s by %+v", s.State, s.Record)
			}
			must(t, c.Release())
		})
	}
}

// C060, C070: takers and cleaners in a storm, and never two owners. `make soak`
// has more rounds.
func TestCleanersMakeNoSecondOwner(t *testing.T) {
	d := place(t)
	const takers, rounds = 4, 60
	var owners, most atomic.Int32
	var won atomic.Int64
	stop := make(chan struct{})
	var cleaners, all sync.WaitGroup
	for range 2 {
		cleaners.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := Remove(d, FileName("l")); err != nil && !errors.As(err, new(*InUse)) && !errors.Is(err, flock.ErrReplaced) {
					t.Errorf("Remove = %v", err)
				}
			}
		})
	}
	for range takers {
		all.Go(func() {
			for range rounds {
				h, err := Wait(t.Context(), d, "l", Mine(RoleRun), patience, nil)
				if err != nil {
					t.Errorf("Wait = %v", err)
					return
				}
				if n := owners.Add(1); n > most.Load() {
					most.Store(n)
				}
				won.Add(1)
				owners.Add(-1)
				if err := h.Release(); err != nil {
					t.Errorf("Release = %v", err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	cleaners.Wait()
	if most.Load() != 1 || won.Load() != takers*rounds {
		t.Errorf("%d owners at once in %d turns, want 1 in %d", most.Load(), won.Load(), takers*rounds)
	}
}

// L2: what gc may not remove, and what it may.
func TestOnlyIdleLanesWithoutAFenceAreRemoved(t *testing.T) {
	d := place(t)
	fenced := Mine(RoleDriver)
	fenced.Fence = 1
	must(t, take(t, d, "fenced", fenced).Release())
	must(t, take(t, d, "idle", Mine(RoleRun)).Release())
	take(t, d, "owned", Mine(RoleRun))
	put(t, d, "odd", "{ half")
	put(t, d, "later", `{"v":99,"lane":"later"}`)
	put(t, d, "blank", "")
	freed(t, d, "fenced")
	freed(t, d, "idle")
	for name, goes := range map[string]bool{"fenced": false, "idle": true, "owned": false, "odd": false, "later": false, "blank": true, "never": true} {
		err := Remove(d, FileName(name))
		if goes && err != nil || !goes && !errors.As(err, new(*InUse)) {
			t.Errorf("Remove of %s = %v, want it gone: %v", name, err, goes)
		}
		if _, err := os.Lstat(path(d, name)); errors.Is(err, fs.ErrNotExist) != goes {
			t.Errorf("the file of %s: %v, want it gone: %v", name, err, goes)
		}
	}
}

// S7: a person may free a lane whose agent nobody can look at, and no other that
// somebody has; name and fence stay.
func TestOnlyUnverifiableLanesAreFreed(t *testing.T) {
	child, _ := sleeper(t)
	record := func(ns uint64) string {
		r := by(dead(t), RoleRun)
		r.V, r.Lane, r.Fence, r.Child = 1, "l", 4, &Process{child.Pid, child.Ticks}
		r.PidNS += ns
		b, err := r.encode()
		must(t, err)
		return string(b)
	}
	for what, c := range map[string]struct {
		text  string
		freed bool
	}{"unverifiable": {record(1), true}, "orphaned": {record(0), false}} {
		d := place(t)
		put(t, d, "l", c.text)
		err := Clear(d, "l")
		s := seen(t, d, "l")
		if c.freed && (err != nil || s.State != Free || s.Record.Fence != 4) || !c.freed && (!errors.As(err, new(*InUse)) || s.State != Orphaned) {
			t.Errorf("%s: Clear = %v, then it is %s with %+v", what, err, s.State, s.Record)
		}
	}
	d := place(t)
	must(t, Clear(d, "never"))
	take(t, d, "l", Mine(RoleRun))
	if err := Clear(d, "l"); !errors.As(err, new(*InUse)) {
		t.Errorf("Clear of an owned lane = %v, want *InUse", err)
	}
	if s := seen(t, d, "l"); s.State != Owned || s.Record.Holder == nil {
		t.Errorf("the owned lane is %s with %+v", s.State, s.Record)
	}
}

// C012: a record of a later version is never rewritten, and its lane not taken.
func TestNewerRecordIsLeftAlone(t *testing.T) {
	d := place(t)
	const text = `{"v":2,"lane":"l","fence":4,"seat":"new"}`
	put(t, d, "l", text)
	if _, err := Take(d, "l", Mine(RoleRun)); !errors.As(err, new(*Newer)) {
		t.Errorf("Take = %v, want *Newer", err)
	}
	if got, err := os.ReadFile(path(d, "l")); err != nil || string(got) != text {
		t.Errorf("the record is %q now (%v)", got, err)
	}
	if locked(t, d, "l") {
		t.Error("the refusal left a lock")
	}
}

// C011: where two names share a file, the second is refused.
func TestAnotherLanesFileIsRefused(t *testing.T) {
	d := place(t)
	put(t, d, "l", `{"v":1,"lane":"m"}`)
	for what, call := range map[string]func() error{
		"Take": func() error { _, err := Take(d, "l", Mine(RoleRun)); return err },
		"Look": func() error { _, err := Look(d, "l"); return err },
	} {
		if err := call(); !errors.As(err, new(*Mismatch)) {
			t.Errorf("%s = %v, want *Mismatch", what, err)
		}
	}
}

// The longest names, of the widest bytes, still fit the record.
func TestEveryLaneFitsItsRecord(t *testing.T) {
	d := place(t)
	for _, name := range []string{strings.Repeat("\x01", 200), strings.Repeat("\u2028", 66), strings.Repeat("ä", 100)} {
		rec := Mine(RoleDriver)
		rec.Attempt, rec.Run = strings.Repeat("a", 36), strings.Repeat("b", 36)
		rec.Fence, rec.Argv0 = 1<<63, strings.Repeat("\x02", 4000)
		h := take(t, d, name, rec)
		must(t, h.SetChild(proc.Self()))
		if s := seen(t, d, name); s.Record == nil || s.Record.Lane != name || s.Record.Fence != 1<<63 || s.Record.Child == nil {
			t.Errorf("lane %q reads %+v", name, s.Record)
		}
		if info, err := os.Stat(path(d, name)); err != nil || info.Size() != RecordSize {
			t.Errorf("its file has %v bytes (%v), want %d", info.Size(), err, RecordSize)
		}
	}
	all, problems, err := List(d)
	if err != nil || len(problems) != 0 || len(all) != 3 {
		t.Errorf("List = %d lanes, %v, %v; want 3", len(all), problems, err)
	}
}

// A list names what it passed over, and shows all else.
func TestListPassesOverWhatIsNotOurs(t *testing.T) {
	d := place(t)
	take(t, d, "one", Mine(RoleRun))
	must(t, os.Symlink(path(d, "one"), path(d, "link")))
	must(t, os.WriteFile(filepath.Join(d.Lanes(), "notes.txt"), nil, 0o600))
	all, problems, err := List(d)
	if err != nil || len(all) != 1 || all[0].Name != "one" || len(problems) != 1 {
		t.Errorf("List = %+v, %v, %v; want one lane and one problem", all, problems, err)
	}
	if _, _, err := List(home.Dir{Path: filepath.Join(d.Path, "none")}); err != nil {
		t.Errorf("List without a home = %v", err)
	}
}

// waiting is a Wait in a goroutine of its own, of which it is known that it waits.
type waiting struct {
	got   chan *Hold
	err   chan error
	owner chan Seen
}

func waitFor(ctx context.Context, d home.Dir, name string, wait time.Duration) *waiting {
	w := &waiting{make(chan *Hold, 1), make(chan error, 1), make(chan Seen, 16)}
	go func() {
		h, err := Wait(ctx, d, name, Mine(RoleRun), wait, func(s Seen) { w.owner <- s })
		if err != nil {
			w.err <- err
			return
		}
		w.got <- h
	}()
	return w
}

func (w *waiting) waits(t *testing.T) Seen {
	t.Helper()
	select {
	case s := <-w.owner:
		return s
	case err := <-w.err:
		t.Fatalf("Wait = %v", err)
	case <-time.After(patience):
		t.Fatal("nobody said that the wait began")
	}
	return Seen{}
}

func (w *waiting) gets(t *testing.T) {
	t.Helper()
	select {
	case h := <-w.got:
		must(t, h.Release())
	case err := <-w.err:
		t.Fatalf("Wait = %v", err)
	case <-time.After(patience):
		t.Fatal("the wait did not end")
	}
}

func (w *waiting) fails(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.err:
		return err
	case <-w.got:
		t.Fatal("Wait took the lane")
	case <-time.After(patience):
		t.Fatal("the wait did not end")
	}
	return nil
}

// L2: the wait ends with the owner's letting go.
func TestWaitEndsWhenTheOwnerLetsGo(t *testing.T) {
	d := place(t)
	h := take(t, d, "l", Mine(RoleRun))
	w := waitFor(t.Context(), d, "l", time.Hour)
	if s := w.waits(t); s.State != Owned || s.Record.Holder.Pid != os.Getpid() {
		t.Errorf("the wait was said to be for %+v", s)
	}
	must(t, h.Release())
	w.gets(t)
}

// S7, L1: while an agent outlives its supervisor its lane is waited for, and had
// as soon as it ends. Nobody who waits has the lock.
func TestWaitEndsWithTheOrphan(t *testing.T) {
	d := place(t)
	child, end := sleeper(t)
	h := take(t, d, "l", by(dead(t), RoleRun))
	must(t, h.SetChild(child))
	h.Keep()
	w := waitFor(t.Context(), d, "l", time.Hour)
	if s := w.waits(t); s.State != Orphaned || s.Record.Child.Pid != child.Pid {
		t.Errorf("the wait was said to be for %+v", s)
	}
	freed(t, d, "l")
	if s := seen(t, d, "l"); s.State != Orphaned {
		t.Errorf("while it is waited for, the lane is %s", s.State)
	}
	end()
	w.gets(t)
}

// A wait that is given up or over holds nothing, however the lane was owned, and
// says who had it.
func TestWaitThatEndsInVainHoldsNothing(t *testing.T) {
	child, _ := sleeper(t)
	for what, own := range map[string]func(t *testing.T, d home.Dir) State{
		"owned": func(t *testing.T, d home.Dir) State { take(t, d, "l", Mine(RoleRun)); return Owned },
		"orphaned": func(t *testing.T, d home.Dir) State {
			h := take(t, d, "l", by(dead(t), RoleRun))
			must(t, h.SetChild(child))
			h.Keep()
			return Orphaned
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := place(t)
			state := own(t, d)
			w := waitFor(t.Context(), d, "l", 50*time.Millisecond)
			wantHeld(t, w.fails(t), state)
			ctx, cancel := context.WithCancel(t.Context())
			w = waitFor(ctx, d, "l", time.Hour)
			w.waits(t)
			cancel()
			if err := w.fails(t); !errors.Is(err, context.Canceled) {
				t.Errorf("a wait that was given up says %v", err)
			}
			if s := seen(t, d, "l"); s.State != state {
				t.Errorf("the lane is %s now, want %s", s.State, state)
			}
		})
	}
}

// Waiters of one lane get it one after the other, in whatever order.
func TestEveryWaiterGetsItsTurn(t *testing.T) {
	d := place(t)
	h := take(t, d, "l", Mine(RoleRun))
	var all []*waiting
	for range 8 {
		w := waitFor(t.Context(), d, "l", time.Hour)
		w.waits(t)
		all = append(all, w)
	}
	must(t, h.Release())
	done := make(chan error, len(all))
	for _, w := range all {
		go func() {
			select {
			case h := <-w.got:
				done <- h.Release()
			case err := <-w.err:
				done <- err
			}
		}()
	}
	for range all {
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(patience):
			t.Fatal("somebody did not get the lane")
		}
	}
}

// A lane that cannot be named is refused before anything is made.
func TestBadNamesTouchNothing(t *testing.T) {
	d := place(t)
	for what, call := range map[string]func(string) error{
		"Take":  func(n string) error { _, err := Take(d, n, Mine(RoleRun)); return err },
		"Look":  func(n string) error { _, err := Look(d, n); return err },
		"Adopt": func(n string) error { _, err := Adopt(d, n, -1); return err },
	} {
		if err := call("a\x00b"); !errors.As(err, new(*home.BadLane)) {
			t.Errorf("%s = %v, want *home.BadLane", what, err)
		}
	}
	if _, err := os.Lstat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the home was made: %v", err)
	}
}
