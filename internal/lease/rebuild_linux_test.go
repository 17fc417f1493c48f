package lease

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/handsel/handsel/internal/slot"
	"golang.org/x/sys/unix"
)

// passed is what the receiver of a lease's descriptors has: copies under other
// numbers, as recvmsg(2) makes them.
func passed(t *testing.T, l *Lease) []Slot {
	t.Helper()
	given := l.Slots()
	for i := range given {
		fd, err := unix.FcntlInt(uintptr(given[i].Fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		given[i].Fd = fd
	}
	return given
}

// A lease's descriptors make the same lease elsewhere, and at no step could a
// third process have taken a slot.
func TestRebuiltLeaseIsNeverFree(t *testing.T) {
	root := t.TempDir()
	pools := append(one("all", 1), one("heavy", 1)...)
	taken := func(when string) {
		t.Helper()
		runtime.GC()
		if _, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: pools}.want()); err == nil {
			t.Fatalf("%s, somebody else was admitted", when)
		}
	}
	old := acquire(t, spec{Root: root, Pools: pools, Name: "moved"})
	given := passed(t, old)
	taken("before the hand-over")
	l, err := Rebuild(places(root), given)
	if err != nil {
		t.Fatal(err)
	}
	taken("with both holding")
	if err := old.HandOver(); err != nil {
		t.Fatal(err)
	}
	taken("after the sender closed its copies")
	p, err := slot.Open(places(root).Leases, "heavy", false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	seen, err := p.Look(0)
	if err != nil || seen.Record() == nil || seen.Record().HolderPid != os.Getpid() || seen.Record().Run != "run-moved" {
		t.Errorf("the slot says %+v, %v; want us as the holder of the same run", seen.Record(), err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	acquire(t, spec{Root: root, Pools: pools})
	if err := old.HandOver(); !errors.Is(err, ErrEmpty) {
		t.Errorf("a second hand-over = %v, want ErrEmpty", err)
	}
}

// A descriptor that is another slot's, or holds no lock, makes no lease, and
// stays the caller's.
func TestRebuildRefusesWhatDoesNotHoldTheLock(t *testing.T) {
	root := t.TempDir()
	acquire(t, spec{Root: root, Pools: one("all", 2)})
	second := acquire(t, spec{Root: root, Pools: one("all", 2)})
	wrong := passed(t, second)
	wrong[0].Index = 0
	unlocked, err := os.OpenFile(places(root).Leases+"/all/0.lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unlocked.Close()
	for name, given := range map[string][]Slot{
		"another slot's descriptor": wrong,
		"an open without the lock":  {{Pool: "all", Index: 0, Fd: int(unlocked.Fd())}},
		"no such pool":              {{Pool: "none", Index: 0, Fd: wrong[0].Fd}},
	} {
		if _, err := Rebuild(places(root), given); err == nil {
			t.Errorf("%s made a lease", name)
		}
		if _, err := unix.FcntlInt(uintptr(given[0].Fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("%s: the descriptor was closed: %v", name, err)
		}
	}
	unix.Close(wrong[0].Fd)
	if n := held(t, root, "all"); n != 2 {
		t.Errorf("%d slots are held, want the two leases'", n)
	}
}
