package lease

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/slot"
	"golang.org/x/sys/unix"
)

// The tests here notice faults that the others let live (L27).

// S10: when one of several slots cannot be written, those that could are given
// back.
func TestUnwritableSlotKeepsNoOther(t *testing.T) {
	root := t.TempDir()
	try := func(length int, pools []Pool) error {
		w := spec{Root: root, Pools: pools}.want()
		w.Run = strings.Repeat("r", length)
		l, err := Acquire(t.Context(), places(root), w)
		if err == nil {
			must(t, l.Release())
		}
		return err
	}
	fits := 1
	for try(fits+1, one("aa", 1)) == nil {
		fits++
	}
	fits -= 5 // the time in a record may be written some digits longer
	runtime.GC()
	before := openFDs(t)
	err := try(fits, append(one("aa", 1), one("bb", 1_000_000_000_000)...))
	if refused := new(Refused); err == nil || errors.As(err, &refused) {
		t.Fatalf("Acquire = %v, want the error of a record that does not fit", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	for _, pool := range []string{"aa", "bb"} {
		if n := held(t, root, pool); n != 0 {
			t.Errorf("pool %s holds %d slots of a start that failed", pool, n)
		}
	}
	must(t, try(1, one("aa", 1)))
}

// S10: the locks of pools are taken in the order of their names, however the
// pools were given: who waits for a later one has the earlier.
func TestPoolLocksAreTakenInNameOrder(t *testing.T) {
	root := t.TempDir()
	pools := append(one("zz", 3), one("aa", 3)...)
	must(t, acquire(t, spec{Root: root, Pools: pools}).Release())
	zz, err := slot.Open(root+"/leases", "zz", false)
	must(t, err)
	defer zz.Close()
	aa, err := slot.Open(root+"/leases", "aa", false)
	must(t, err)
	defer aa.Close()
	lock, err := zz.Dir().Pass(t.Context(), slot.AdmissionLock, time.Minute)
	must(t, err)
	defer lock.Close()
	asker := start(t, spec{Root: root, Pools: pools, Hold: true})
	for limit := time.Now().Add(time.Minute); ; runtime.Gosched() { // without it, it never does
		_, had, err := aa.Dir().Probe(slot.AdmissionLock, nil)
		must(t, err)
		if had {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("it waits for the lock of zz without having that of aa")
		}
	}
	lock.Close()
	asker.says("admitted")
	l := acquire(t, spec{Root: root, Pools: pools})
	if s := l.Slots(); len(s) != 2 || s[0].Pool != "aa" || s[1].Pool != "zz" {
		t.Errorf("slots %+v, want them in name order", s)
	}
}

// S7, S13: a slot is our ancestor's only if its record names that very process;
// its number alone is anybody's.
func TestAncestorIsKnownByItsStart(t *testing.T) {
	parent, err := proc.ReadStat(os.Getppid())
	must(t, err)
	far, near, off := parent.ID().StartedEpoch()+86400, parent.ID().StartedEpoch()+1.5, parent.ID().StartedEpoch()+3
	for what, c := range map[string]struct {
		started *float64
		ticks   uint64
		ns      uint64
		want    string
	}{
		"the same start":          {&far, parent.Ticks, machine.PidNS(), OwnAncestors},
		"no namespace recorded":   {&far, parent.Ticks, 0, OwnAncestors},
		"another start":           {&near, parent.Ticks + 1, machine.PidNS(), PoolFull},
		"another namespace":       {&far, parent.Ticks, machine.PidNS() + 1, PoolFull},
		"seconds alone, the same": {&near, 0, 0, OwnAncestors},
		"seconds alone, others":   {&off, 0, 0, PoolFull},
	} {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			p, err := slot.Open(root+"/leases", "all", true)
			must(t, err)
			defer p.Close()
			pid := parent.Pid
			h, err := p.Take(0, slot.Record{Cap: 1, HolderPid: os.Getpid(), ChildPid: &pid, ChildStarted: c.started, ChildTicks: c.ticks, PidNS: c.ns})
			must(t, err)
			defer func() { _ = h.Release() }()
			_, err = Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 1)}.want())
			if refused := new(Refused); !errors.As(err, &refused) || refused.Code != c.want {
				t.Errorf("Acquire = %v, want %s", err, c.want)
			}
		})
	}
}

// S15: where the kernel gives no event at all, the poll finds the slot.
func TestPollFindsWhatGivesNoEvent(t *testing.T) {
	root := t.TempDir()
	h := holder(t, root, one("all", 1))
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Poll: 50 * time.Millisecond, NoWatch: true})
	if said := w.says(""); strings.HasPrefix(said, "error") {
		t.Skip("the limit cannot be set here: ", said)
	}
	h.kill() // wakes nobody
	w.says("admitted")
}

// S8, S16: all records are cleared before the first lock is let go. The events
// of both pools come in the order in which they happened.
func TestReleaseClearsAllBeforeItLetsGo(t *testing.T) {
	root := t.TempDir()
	l := acquire(t, spec{Root: root, Pools: append(one("aa", 1), one("bb", 1)...)})
	ino, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	defer unix.Close(ino)
	w := &watch{ino: ino, pools: map[int32]string{}}
	for _, pool := range []string{"aa", "bb"} {
		wd, err := unix.InotifyAddWatch(ino, root+"/leases/"+pool+"/0.lock", unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
		must(t, err)
		w.pools[int32(wd)] = pool
	}
	must(t, l.Release())
	if got, want := changes(t, w), []string{"cleared aa", "cleared bb", "closed bb", "closed aa"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// changes reads what happened to watched files, in order.
func changes(t *testing.T, w *watch) (all []string) {
	t.Helper()
	var buf [4096]byte
	n, err := unix.Read(w.ino, buf[:])
	must(t, err)
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; b = b[unix.SizeofInotifyEvent:] { // an event of a watched file has no name
		what := "closed "
		if binary.NativeEndian.Uint32(b[4:])&unix.IN_MODIFY != 0 {
			what = "cleared "
		}
		all = append(all, what+w.pools[int32(binary.NativeEndian.Uint32(b))])
	}
	return all
}

// S16: the number of passes is sixteen, in figures: the seventeenth finds the
// last free slot left for the one that was passed.
func TestSeventeenthPassIsNotMade(t *testing.T) {
	root := t.TempDir()
	codex := holder(t, root, one("codex", 1))
	holder(t, root, one("all", 2)) // one of two is always taken
	w := start(t, spec{Root: root, Pools: append(one("all", 2), one("codex", 1)...), Wait: time.Hour})
	w.says("waiting pool_full codex")
	for n := range 16 {
		l, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 2)}.want())
		if err != nil {
			t.Fatalf("pass %d: %v", n+1, err)
		}
		must(t, l.Release())
	}
	_, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 2)}.want())
	if refused := new(Refused); !errors.As(err, &refused) || refused.Code != InLine || !strings.Contains(err.Error(), "passed 16 times") {
		t.Errorf("pass 17 = %v, want the slot left for the one that was passed", err)
	}
	codex.end()
	w.says("admitted")
}

// S16: a stopped owner blocks nobody, at once and not only when its turn is over.
func TestStoppedOwnerIsPassedAtOnce(t *testing.T) {
	root := t.TempDir()
	h := holder(t, root, one("all", 1))
	first := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour})
	first.says("waiting")
	_ = first.cmd.Process.Signal(syscall.SIGSTOP)
	waitStopped(t, first)
	h.end()
	must(t, acquire(t, spec{Root: root, Pools: one("all", 1)}).Release()) // it may not wait
	_ = first.cmd.Process.Signal(syscall.SIGCONT)
	first.says("admitted")
}

// S16: one that only its own smaller cap keeps back blocks nobody, at once.
func TestOwnSmallerCapIsPassedAtOnce(t *testing.T) {
	root := t.TempDir()
	a := holder(t, root, one("all", 3))
	small := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour})
	small.says("waiting")
	must(t, acquire(t, spec{Root: root, Pools: one("all", 3)}).Release()) // it may not wait
	a.end()
	small.says("admitted")
}

// S16: a parked ticket blocks nobody, at once.
func TestParkedTicketIsPassedAtOnce(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/holds", 0o700))
	must(t, os.WriteFile(root+"/holds/x", nil, 0o600))
	parked := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Held: root + "/holds/x"})
	parked.says("waiting hold")
	must(t, acquire(t, spec{Root: root, Pools: one("all", 1)}).Release()) // it may not wait
	must(t, os.Remove(root+"/holds/x"))
	parked.says("admitted")
}
