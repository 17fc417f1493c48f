package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/slot"
	"golang.org/x/sys/unix"
)

// ownUserNamespace gives a process limits of its own on inotify.
func ownUserNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// S15: a waiter that the kernel gives no watch is woken by whoever releases.
func TestReleaseWakesWaiterWithoutWatch(t *testing.T) {
	root := t.TempDir()
	l := holder(t, root, one("all", 1))
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, NoWatch: true})
	if said := w.says(""); strings.HasPrefix(said, "error") {
		t.Skip("the limit cannot be set here: ", said)
	}
	l.end()
	w.says("admitted")
}

// S16: one that is parked, and one that is stopped, delays nobody who followed
// it, not even if no other event comes.
func TestParkedPredecessorDelaysNobody(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/holds", 0o700))
	h := holder(t, root, one("all", 1))
	parked := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Held: root + "/holds/x", Name: "parked"})
	parked.says("waiting pool_full")
	behind := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Hold: true, Name: "behind"})
	behind.says("waiting pool_full")
	must(t, os.WriteFile(root+"/holds/x", nil, 0o600))
	parked.says("waiting hold")
	h.end()
	behind.says("admitted")
	must(t, os.Remove(root+"/holds/x"))
	behind.end()
	parked.says("admitted")
}

// The first order that there ever is in a home wakes whoever waits there already,
// as does its end.
func TestFirstOrderWakesWaiter(t *testing.T) {
	root := t.TempDir()
	h := holder(t, root, one("all", 1))
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Poll: time.Hour, Held: root + "/holds/x"})
	w.says("waiting pool_full")
	must(t, os.MkdirAll(root+"/holds", 0o700))
	must(t, os.WriteFile(root+"/holds/x", nil, 0o600))
	w.says("waiting hold")
	must(t, os.Remove(root+"/holds/x"))
	w.says("waiting pool_full")
	h.end()
	w.says("admitted")
}

// A check may refuse for good, at once.
func TestDenialIsFinal(t *testing.T) {
	w := spec{Root: t.TempDir(), Pools: one("all", 1), Wait: time.Hour}.want()
	w.Check = func() Answer { return Answer{Code: "denied", Deny: true, Message: "no"} }
	_, err := Acquire(t.Context(), places(t.TempDir()), w)
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code != "denied" || refused.Retryable() {
		t.Errorf("Acquire = %v", err)
	}
}

// A check's answer that ends by itself is asked again then, and one whose time
// is past does not make us ask in a circle.
func TestCheckIsAskedAgainInTime(t *testing.T) {
	root := t.TempDir()
	began := time.Now()
	asked := 0
	w := spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Poll: time.Hour}.want()
	w.Check = func() Answer {
		asked++
		if time.Since(began) > 300*time.Millisecond {
			return Answer{}
		}
		return Answer{Code: "hold", Until: began.Add(320 * time.Millisecond)}
	}
	l, err := Acquire(t.Context(), places(root), w)
	must(t, err)
	must(t, l.Release())
	if asked > 10 {
		t.Errorf("asked %d times", asked)
	}

	w.Wait, asked = 300*time.Millisecond, 0
	w.Check = func() Answer { asked++; return Answer{Code: "hold", Until: began} }
	if _, err := Acquire(t.Context(), places(root), w); err == nil || asked > 10 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	if names := inLine(t, root); len(names) > 0 {
		t.Errorf("left in line: %q", names)
	}
}

// S15, S16: those behind look in their turn although whoever was admitted is
// slow to start its agent, or never records one.
func TestSlowStarterDelaysNobody(t *testing.T) {
	root := t.TempDir()
	a, b := holder(t, root, one("all", 2)), holder(t, root, one("all", 2))
	var all []*other
	for range 2 {
		w := start(t, spec{Root: root, Pools: one("all", 2), Wait: time.Hour, Hold: true})
		w.says("waiting")
		all = append(all, w)
	}
	a.end()
	b.end()
	for _, w := range all {
		w.says("admitted")
	}
}

// S10, S15: a lock that was stuck while a slot came free is taken when it comes
// free, and the place in line is kept meanwhile; newcomers are refused.
func TestStuckLockKeepsThePlaceInLine(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h := holder(t, root, one("all", 1))
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Poll: 200 * time.Millisecond})
	w.says("waiting pool_full")
	d, err := flock.OpenDir(places(root).Waiting)
	must(t, err)
	defer d.Close()
	f, err := d.Pass(t.Context(), ".line", time.Minute)
	must(t, err)
	h.end()
	w.says("waiting " + LockStuck)
	if names := inLine(t, root); len(names) != 2 {
		t.Errorf("the line has %q, want the waiter's ticket and FIFO", names)
	}
	f.Close()
	w.says("admitted")
}

// S10: the lock of one pool that is stuck is named, and nothing is held.
func TestStuckPoolLockIsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h := holder(t, root, append(one("all", 3), one("heavy", 3)...))
	p, err := slot.Open(root+"/leases", "heavy", false)
	must(t, err)
	defer p.Close()
	f, err := p.Dir().Pass(t.Context(), slot.AdmissionLock, time.Minute)
	must(t, err)
	defer f.Close()
	_, err = Acquire(t.Context(), places(root), spec{Root: root, Pools: append(one("all", 3), one("heavy", 3)...)}.want())
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code != LockStuck || !strings.Contains(err.Error(), `admission lock of pool "heavy"`) ||
		!strings.Contains(err.Error(), fmt.Sprint("held by pid ", os.Getpid())) {
		t.Errorf("Acquire = %v", err)
	}
	if n := held(t, root, "all"); n != 1 {
		t.Errorf("pool all holds %d, want the holder's slot alone", n)
	}
	h.end()
}

// C060: a waiter outlives the removal of its ticket, of the line and of the
// pool, however they go.
func TestWaiterOutlivesWhatIsRemovedByHand(t *testing.T) {
	ways := map[string]func(root string) error{
		"tickets": func(root string) error { return exec.Command("sh", "-c", "rm "+root+"/waiting/*").Run() },
		"lock":    func(root string) error { return os.Remove(root + "/waiting/.line") },
		"line":    func(root string) error { return os.RemoveAll(root + "/waiting") },
		"line, made again": func(root string) error {
			return errors.Join(os.RemoveAll(root+"/waiting"), os.Mkdir(root+"/waiting", 0o700))
		},
		"line, moved away": func(root string) error { return os.Rename(root+"/waiting", root+"/old") },
	}
	for what, remove := range ways {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			h := holder(t, root, one("all", 1))
			w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Hold: true})
			w.says("waiting")
			must(t, remove(root))
			h.end()
			w.says("admitted")
			// Whoever comes now waits behind, and is woken too.
			next := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour})
			next.says("waiting")
			w.end()
			next.says("admitted")
		})
	}
	for what, remove := range map[string]func(root string) error{
		"pool":         func(root string) error { return os.RemoveAll(root + "/leases/all") },
		"pool, moved":  func(root string) error { return os.Rename(root+"/leases/all", root+"/old") },
		"all, removed": func(root string) error { return os.RemoveAll(root + "/leases") },
	} {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			holder(t, root, one("all", 1))
			w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Hold: true})
			w.says("waiting")
			_ = remove(root) // nothing is counted any more; who is told makes it anew meanwhile
			w.says("admitted")
			next := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour})
			next.says("waiting")
			w.end()
			next.says("admitted")
		})
	}
}

// S4: a start whose pools lose their caps while it waits leaves the line.
func TestUncountedStartLeavesTheLine(t *testing.T) {
	root := t.TempDir()
	holder(t, root, one("all", 1))
	var lifted atomic.Bool
	w := spec{Root: root, Wait: time.Hour, Poll: 5 * time.Millisecond}.want()
	w.Pools = func() ([]Pool, error) {
		if lifted.Load() {
			return nil, nil
		}
		return one("all", 1), nil
	}
	w.Changed = lifted.Load
	w.OnWait = func(Waiting) { lifted.Store(true) }
	l, err := Acquire(t.Context(), places(root), w)
	must(t, err)
	if names := inLine(t, root); !l.Empty() || len(names) > 0 {
		t.Errorf("empty %v, left in line: %q", l.Empty(), names)
	}
	must(t, l.Release())
}

// S12: giving up the slots for a child that goes on leaves no descriptor, and
// neither does anything else that ends a lease.
func TestNoEndOfALeaseLeavesADescriptor(t *testing.T) {
	root := t.TempDir()
	child := exec.Command("sleep", "1000")
	must(t, child.Start())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	ends := map[string]func(*Lease) error{
		"release": (*Lease).Release,
		"keep": func(l *Lease) error {
			id, err := proc.Identify(child.Process.Pid)
			return errors.Join(err, l.RecordChild(id), l.Keep())
		},
		"keep, then release": func(l *Lease) error {
			id, err := proc.Identify(child.Process.Pid)
			return errors.Join(err, l.RecordChild(id), l.Keep(), l.Release())
		},
	}
	for what, end := range ends {
		runtime.GC()
		before := openFDs(t)
		l, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: append(one("all", 9), one("heavy", 9)...)}.want())
		must(t, err)
		must(t, end(l))
		if after := openFDs(t); after != before {
			t.Errorf("%s: %d descriptors open, had %d", what, after, before)
		}
	}
}

// S9: nothing that a waiter or a holder has open is inherited.
func TestNothingIsInherited(t *testing.T) {
	root := t.TempDir()
	h := start(t, spec{Root: root, Pools: one("all", 1), Hold: true})
	h.says("admitted")
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour})
	w.says("waiting")
	for _, o := range []*other{h, w} {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fdinfo", o.cmd.Process.Pid))
		must(t, err)
		for _, fd := range fds {
			info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", o.cmd.Process.Pid, fd.Name()))
			must(t, err)
			target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", o.cmd.Process.Pid, fd.Name()))
			if !strings.HasPrefix(target, root) && !strings.HasPrefix(target, "anon_inode:") {
				continue // what the test itself was given
			}
			var pos, flags int64
			if _, err := fmt.Sscanf(string(info), "pos:\t%d\nflags:\t%o", &pos, &flags); err != nil || flags&unix.O_CLOEXEC == 0 {
				t.Errorf("descriptor %s (%s) is inheritable: %q", fd.Name(), target, info)
			}
		}
	}
}

// S8: while a process with many descriptors forks, slots that were released
// are found free by those who may not wait. A fork copies the table, and with
// it locks that are just being closed.
func TestForkStormRefusesNobody(t *testing.T) {
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	many := int(min(10000, limit.Cur-200))
	null, err := os.Open("/dev/null")
	must(t, err)
	defer null.Close()
	for range many {
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		must(t, err)
		defer unix.Close(fd)
	}
	root := t.TempDir()
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.Command("/bin/true").Run()
			}
		}
	})
	refusals, rounds := 0, 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); rounds++ {
		l, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 1)}.want())
		if err != nil {
			refusals++
			t.Logf("round %d: %v", rounds, err)
			continue
		}
		must(t, l.Release())
	}
	close(stop)
	all.Wait()
	t.Logf("%d rounds beside a forking process of %d descriptors", rounds, many)
	if refusals > 0 {
		t.Errorf("%d of %d refused although nobody held a slot", refusals, rounds)
	}
}

// S13: a pool whose every slot is held for our own ancestors, or by agents that
// themselves wait in line for a child, is refused at once.
func TestNobodyWaitsForItself(t *testing.T) {
	root := t.TempDir()
	inner := func(name string) *spec {
		return &spec{Root: root, Pools: one("all", 2), Wait: time.Hour, Name: name}
	}
	x := start(t, spec{Root: root, Pools: one("all", 2), Inner: inner("x'"), Name: "x"})
	x.says("admitted x")
	x.says("admitted x'") // the second slot, given back at once
	x = start(t, spec{Root: root, Pools: one("all", 2), Hold: true, Name: "other"})
	x.says("admitted other")
	y := start(t, spec{Root: root, Pools: one("all", 2), Inner: inner("y'"), Name: "y", Wait: time.Hour})
	y.says("waiting pool_full") // y' waits for the other agent
	x.end()
	y.says("admitted y'")

	// Now both agents that hold the pool wait for a child: the later one is told.
	a := start(t, spec{Root: root, Pools: one("all", 1), Inner: &spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Name: "a'"}, Name: "a", Wait: time.Minute})
	a.says("refused " + OwnAncestors)
	root2 := t.TempDir()
	in2 := func(name string) *spec {
		return &spec{Root: root2, Pools: one("all", 2), Wait: time.Hour, Name: name}
	}
	first := start(t, spec{Root: root2, Pools: one("all", 2), Hold: true, Name: "h"})
	first.says("admitted")
	p := start(t, spec{Root: root2, Pools: one("all", 2), Inner: in2("p'"), Name: "p"})
	p.says("waiting pool_full")
	q := start(t, spec{Root: root2, Pools: one("all", 2), Inner: in2("q'"), Name: "q", Wait: time.Hour, Priority: 5})
	q.says("waiting pool_full") // q itself stands before p' in line
	first.end()                 // so q is admitted, and q' finds p's and q's slots: p waits for p'
	q.says("refused " + OwnAncestors)
	p.says("admitted p'") // and that lets p' in
}

// S16: the order in which starts of mixed pools, priorities and arrivals are
// admitted is that of a model.
func TestOrderMatchesModel(t *testing.T) {
	root := t.TempDir()
	h, heavy := holder(t, root, one("all", 1)), holder(t, root, one("heavy", 1))
	sets := map[string][]Pool{
		"light": one("all", 1),
		"codex": append(one("all", 1), one("codex", 2)...),
		"heavy": append(one("all", 1), one("heavy", 1)...),
	}
	kinds := []string{"light", "heavy", "codex", "light", "codex"}
	var list []modelStart
	for i := range 50 {
		list = append(list, modelStart{
			name: fmt.Sprintf("%02d", i), kind: kinds[(i*7)%5],
			key: time.Hour + time.Duration(i)*time.Second - time.Duration((i*13)%5-2)*time.Minute,
		})
	}
	const heavyEndsAfter = 10
	want := modelOrder(list, heavyEndsAfter)

	var mu sync.Mutex
	var got []string
	var all, arrived sync.WaitGroup
	for i, s := range list {
		arrived.Add(1)
		all.Go(func() {
			w := spec{Root: root, Pools: sets[s.kind], Wait: time.Minute, Name: s.name, Priority: (i*13)%5 - 2}.want()
			w.Start, w.ID = time.Hour+time.Duration(i)*time.Second, s.name
			w.Patience = 20 * time.Second // the machine may be slow: a turn must not be lost by that
			var once sync.Once
			w.OnWait = func(Waiting) { once.Do(arrived.Done) }
			l, err := Acquire(context.Background(), places(root), w)
			if err != nil {
				t.Error(s.name, err)
				once.Do(arrived.Done)
				return
			}
			mu.Lock()
			got = append(got, s.name)
			if len(got) == heavyEndsAfter {
				heavy.end()
			}
			mu.Unlock()
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	arrived.Wait()
	h.end()
	all.Wait()
	if !slices.Equal(got, want) {
		t.Errorf("order\n%q, the model says\n%q", got, want)
	}
	if names := inLine(t, root); len(names) > 0 {
		t.Errorf("left in line: %q", names)
	}
}

type modelStart struct {
	name, kind string
	key        time.Duration
	passes     int
}

// modelOrder is the rule of S16 for starts that are admitted one at a time:
// the first in line that has room in all its pools, unless the slot is left for
// one ahead of it that was passed 16 times. Heavy ones have no room until so
// many were admitted.
func modelOrder(list []modelStart, heavyEndsAfter int) []string {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b modelStart) int { return int(a.key - b.key) })
	var order []string
	for len(list) > 0 {
		next := slices.IndexFunc(list, func(s modelStart) bool { return s.kind != "heavy" || len(order) >= heavyEndsAfter })
		for i := range list[:next] {
			if list[i].passes++; list[i].passes > passesAllowed {
				panic("this model has no event that would end the wait")
			}
		}
		order = append(order, list[next].name)
		list = slices.Delete(list, next, next+1)
	}
	return order
}

// S16: an owner that looked and found no room has used its turn: its 250 ms
// begin anew with the next free slot.
func TestTurnBeginsAnewAfterALook(t *testing.T) {
	root := t.TempDir()
	h := holder(t, root, one("all", 1))
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Hold: true})
	w.says("waiting")
	l, err := line.Open(root+"/waiting", false)
	must(t, err)
	defer l.Close()
	names, err := l.Names()
	must(t, err)
	ticket, err := l.Read(names[0], false)
	must(t, err)
	ticket.Admissible = 1 // seen admissible since the boot, so long past its turn
	l.Mark(ticket)
	l.Wake(names[0])
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if ticket, err = l.Read(names[0], false); err != nil || ticket.Admissible == 0 {
			must(t, err)
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the owner looked, and is still held to have left its turn unused")
		}
	}
	h.end()
	w.says("admitted")
}

// S15: an idle waiter opens no file.
func TestIdleWaiterOpensNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("watches an idle process for 10 s")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not here")
	}
	t.Parallel()
	root, out := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	h := holder(t, root, one("all", 1))
	var all []*other
	for i := range 2 {
		w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Poll: DefaultPoll, Name: "idle"},
			strace, "-f", "-qq", "-e", "trace=open,openat,openat2", "-o", fmt.Sprint(out, i))
		w.says("waiting")
		all = append(all, w)
	}
	size := func(i int) int64 {
		st, err := os.Stat(fmt.Sprint(out, i))
		must(t, err)
		return st.Size()
	}
	time.Sleep(200 * time.Millisecond) // what follows the last look is still written
	before := []int64{size(0), size(1)}
	time.Sleep(10 * time.Second) // the clause counts over 10 s of real idling
	for i := range all {
		if n := size(i) - before[i]; n != 0 || before[i] == 0 {
			text, _ := os.ReadFile(fmt.Sprint(out, i))
			t.Errorf("waiter %d opened:\n%s", i, text[before[i]:])
		}
	}
	h.end()
	for _, w := range all {
		w.says("admitted") // they end by themselves: killing their tracer would not end them
		w.end()
	}
}

// S1: a process that may only read takes prepared slots, waits without a
// ticket, and is refused where nothing was prepared.
func TestReadOnlyGateTakesPreparedSlots(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere; the binary's tests use a real sandbox")
	}
	root := t.TempDir()
	must(t, Prepare(places(root), one("build", 2)))
	free := acquire(t, spec{Root: root, Pools: one("build", 2)})
	must(t, free.Release())
	closed := []string{root + "/waiting", root + "/leases/build"}
	files, err := filepath.Glob(root + "/leases/build/*")
	must(t, err)
	for _, f := range append(files, closed...) {
		must(t, os.Chmod(f, 0o500))
	}
	t.Cleanup(func() {
		for _, d := range closed {
			_ = os.Chmod(d, 0o700)
		}
	})
	gate := spec{Root: root, Pools: one("build", 2), Workload: GateWorkload}
	acquire(t, gate)
	second := acquire(t, gate)
	var refused *Refused
	if _, err := Acquire(t.Context(), places(root), gate.want()); !errors.As(err, &refused) || refused.Code != PoolFull {
		t.Errorf("a third = %v", err)
	}
	must(t, second.RecordChild(self()))
	if err := second.Keep(); !errors.Is(err, ErrLocksKept) {
		t.Errorf("Keep of an empty record = %v", err)
	}
}

// S1: what is prepared is bounded, whatever the cap says.
func TestPreparedFilesAreBounded(t *testing.T) {
	root := t.TempDir()
	must(t, Prepare(places(root), one("build", 1<<40)))
	must(t, Prepare(places(root), one("build", 1<<40)))
	files, err := filepath.Glob(root + "/leases/build/*.lock")
	if err != nil || len(files) != prepared {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// S15, S16: the first in line is stopped and the holder killed. Nobody releases
// anything, so nobody wakes those behind; the next in line has watched too.
func TestKilledHolderBehindAStoppedFirstWakesTheNext(t *testing.T) {
	root := t.TempDir()
	h := holder(t, root, one("all", 1))
	first := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Name: "first"})
	first.says("waiting")
	next := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Name: "next"})
	next.says("waiting")
	_ = first.cmd.Process.Signal(syscall.SIGSTOP)
	waitStopped(t, first)
	h.kill()
	next.says("admitted") // the poll is an hour away
	_ = first.cmd.Process.Signal(syscall.SIGCONT)
	first.says("admitted")
}

// S13: it is our own wait that would never end also when another full pool
// comes before the one that our ancestor holds.
func TestOwnAncestorIsSeenBehindAnotherFullPool(t *testing.T) {
	root := t.TempDir()
	stranger := holder(t, root, one("aa", 1))
	acquire(t, spec{Root: root, Pools: one("zz", 1)}) // this process is the asker's parent
	asker := start(t, spec{Root: root, Pools: append(one("aa", 1), one("zz", 1)...), Wait: time.Hour})
	if said := asker.says("refused"); !strings.Contains(said, OwnAncestors) {
		t.Errorf("it said %q, want a refusal with %s", said, OwnAncestors)
	}
	stranger.end()
}
