package lane

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// open opens a lane's file as another process would, and closes it at the end.
func open(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func isOpen(fd int) bool { _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); return err == nil }

// C067, L6: a descriptor that does not show what it claims is refused and stays
// the caller's; the lane is as it was.
func TestAdoptRefusesWhatProvesNothing(t *testing.T) {
	lockIt := func(t *testing.T, fd, how int) { must(t, unix.Flock(fd, how|unix.LOCK_NB)) }
	for what, make := range map[string]func(t *testing.T, d home.Dir) int{
		"another lane": func(t *testing.T, d home.Dir) int {
			take(t, d, "m", Mine(RoleRun))
			fd := open(t, path(d, "m")+".copy", unix.O_RDWR|unix.O_CREAT)
			lockIt(t, fd, unix.LOCK_EX)
			return fd
		},
		"held by somebody else": func(t *testing.T, d home.Dir) int {
			take(t, d, "l", Mine(RoleRun))
			return open(t, path(d, "l"), unix.O_RDWR)
		},
		"shared with another": func(t *testing.T, d home.Dir) int {
			lockIt(t, open(t, path(d, "l"), unix.O_RDWR), unix.LOCK_SH)
			fd := open(t, path(d, "l"), unix.O_RDWR)
			lockIt(t, fd, unix.LOCK_SH)
			return fd
		},
		"a hard link": func(t *testing.T, d home.Dir) int {
			must(t, os.Link(path(d, "l"), path(d, "l")+".link"))
			fd := open(t, path(d, "l")+".link", unix.O_RDWR)
			lockIt(t, fd, unix.LOCK_EX)
			return fd
		},
		"read-only": func(t *testing.T, d home.Dir) int {
			fd := open(t, path(d, "l"), unix.O_RDONLY)
			lockIt(t, fd, unix.LOCK_EX)
			return fd
		},
		"append-only": func(t *testing.T, d home.Dir) int {
			fd := open(t, path(d, "l"), unix.O_RDWR|unix.O_APPEND)
			lockIt(t, fd, unix.LOCK_EX)
			return fd
		},
		"path only": func(t *testing.T, d home.Dir) int { return open(t, path(d, "l"), unix.O_PATH) },
		"deleted and made again": func(t *testing.T, d home.Dir) int {
			fd := open(t, path(d, "l"), unix.O_RDWR)
			lockIt(t, fd, unix.LOCK_EX)
			must(t, os.Remove(path(d, "l")))
			must(t, os.WriteFile(path(d, "l"), nil, 0o600))
			return fd
		},
		"deleted": func(t *testing.T, d home.Dir) int {
			fd := open(t, path(d, "l"), unix.O_RDWR)
			lockIt(t, fd, unix.LOCK_EX)
			must(t, os.Remove(path(d, "l")))
			return fd
		},
		"a directory": func(t *testing.T, d home.Dir) int { return open(t, d.Lanes(), unix.O_RDONLY) },
		"/dev/null":   func(t *testing.T, _ home.Dir) int { return open(t, "/dev/null", unix.O_RDWR) },
		"a pipe": func(t *testing.T, _ home.Dir) int {
			p := make([]int, 2)
			must(t, unix.Pipe2(p, unix.O_CLOEXEC))
			t.Cleanup(func() { _ = unix.Close(p[0]); _ = unix.Close(p[1]) })
			return p[1]
		},
		"a socket": func(t *testing.T, _ home.Dir) int {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			must(t, err)
			t.Cleanup(func() { _ = unix.Close(fd) })
			return fd
		},
		"a memory file": func(t *testing.T, _ home.Dir) int {
			fd, err := unix.MemfdCreate("lane", unix.MFD_CLOEXEC)
			must(t, err)
			t.Cleanup(func() { _ = unix.Close(fd) })
			return fd
		},
		"an orphan's": func(t *testing.T, d home.Dir) int {
			child, _ := sleeper(t)
			h := take(t, d, "l", by(dead(t), RoleRun))
			must(t, h.SetChild(child))
			h.Keep()
			fd := open(t, path(d, "l"), unix.O_RDWR)
			lockIt(t, fd, unix.LOCK_EX)
			return fd
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := place(t)
			must(t, take(t, d, "l", Mine(RoleRun)).Release())
			freed(t, d, "l")
			fd := make(t, d)
			before := openFDs(t)
			h, err := Adopt(d, "l", fd)
			if err == nil {
				h.Keep()
				t.Fatal("it was adopted")
			}
			if after := openFDs(t); after != before || !isOpen(fd) {
				t.Errorf("%d descriptors open, had %d; the one refused is open: %v", after, before, isOpen(fd))
			}
			must(t, unix.Close(fd))
		})
	}
}

// C067: the same inode number on another device is another file. Two fresh
// tmpfs, mounted in a namespace of our own, count their inodes alike.
func TestAdoptComparesTheDevice(t *testing.T) {
	const within = "HANDSEL_TEST_TWIN"
	if root := os.Getenv(within); root != "" {
		adoptTwin(t, root)
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^TestAdoptComparesTheDevice$", "-test.v")
	c.Env = append(os.Environ(), within+"="+t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := c.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSPC):
		t.Logf("no namespace can be had here (%v); flock's own tests compare the device too", err)
	case err != nil || !bytes.Contains(out, []byte("--- PASS")):
		t.Errorf("in a namespace of its own: %v\n%s", err, out)
	}
}

func adoptTwin(t *testing.T, root string) {
	var files [2]home.Dir
	for i := range files {
		at := filepath.Join(root, strconv.Itoa(i))
		must(t, os.Mkdir(at, 0o700))
		must(t, unix.Mount("none", at, "tmpfs", 0, "mode=0700"))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		files[i] = home.Dir{Path: filepath.Join(at, "home"), From: home.Variable}
		must(t, take(t, files[i], "l", Mine(RoleRun)).Release())
		freed(t, files[i], "l")
	}
	var a, b unix.Stat_t
	must(t, unix.Stat(path(files[0], "l"), &a))
	must(t, unix.Stat(path(files[1], "l"), &b))
	if a.Ino != b.Ino || a.Dev == b.Dev {
		t.Fatalf("inodes %d and %d on devices %d and %d are no twins", a.Ino, b.Ino, a.Dev, b.Dev)
	}
	fd := open(t, path(files[1], "l"), unix.O_RDWR)
	must(t, unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB))
	if _, err := Adopt(files[0], "l", fd); !errors.Is(err, flock.ErrNotOurs) {
		t.Errorf("Adopt = %v, want flock.ErrNotOurs", err)
	}
	take(t, files[0], "l", Mine(RoleRun)) // and nothing of it is left
}

// L6: what was passed to us is ours: the record stays, the lock outlives the
// sender's copy, and an outside probe fails.
func TestAdoptedLaneIsOurs(t *testing.T) {
	for what, lock := range map[string]int{"locked": unix.LOCK_EX, "locked shared": unix.LOCK_SH, "free": 0} {
		t.Run(what, func(t *testing.T) {
			d := place(t)
			rec := Mine(RoleLauncher)
			rec.Attempt, rec.Fence = "01a20000-0000-7000-8000-000000000003", 5
			take(t, d, "l", rec).Keep()
			freed(t, d, "l")
			sent := open(t, path(d, "l"), unix.O_RDWR)
			if lock != 0 {
				must(t, unix.Flock(sent, lock|unix.LOCK_NB))
			}
			came, err := unix.FcntlInt(uintptr(sent), unix.F_DUPFD, 0)
			must(t, err)
			h, err := Adopt(d, "l", came)
			must(t, err)
			if got := h.Record(); got.Attempt != rec.Attempt || got.Fence != 5 || h.Fd() != came {
				t.Errorf("adopted %+v by descriptor %d", got, h.Fd())
			}
			must(t, unix.Close(sent))
			if !locked(t, d, "l") {
				t.Error("the sender's close let the lane go")
			}
			if flags, err := unix.FcntlInt(uintptr(came), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("the descriptor would reach what we start (%v)", err)
			}
			must(t, h.SetOwner(Mine(RoleDispatcher)))
			if s := seen(t, d, "l"); s.Record.Role != RoleDispatcher || s.Record.Fence != 5 {
				t.Errorf("the lane says %+v", s.Record)
			}
			must(t, h.Release())
			freed(t, d, "l")
		})
	}
}

// C063: a lane that only its lock stands for is not collected.
func TestCollectorTakesNoLane(t *testing.T) {
	d := place(t)
	fd := func() int { // nothing but the number stays reachable
		h, err := Take(d, "l", Mine(RoleRun))
		must(t, err)
		return h.Fd()
	}()
	t.Cleanup(func() { _ = unix.Close(fd) })
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	var stop atomic.Bool
	var churn sync.WaitGroup
	for range 2 {
		churn.Go(func() {
			var keep [][]byte
			for !stop.Load() {
				if keep = append(keep, bytes.Repeat([]byte{1}, 64<<10)); len(keep) == 64 {
					keep = nil
				}
			}
		})
	}
	for range 200 {
		runtime.GC()
		if !locked(t, d, "l") {
			t.Error("a rival could have taken the lane")
			break
		}
	}
	debug.FreeOSMemory()
	stop.Store(true)
	churn.Wait()
	_, err := Take(d, "l", Mine(RoleRun))
	wantHeld(t, err, Owned)
}

// S9, C062: what is started while a lane is held, taken or adopted has no
// descriptor of it.
func TestChildrenGetNoLane(t *testing.T) {
	d := place(t)
	take(t, d, "held", Mine(RoleRun))
	var stop atomic.Bool
	var takers, starters sync.WaitGroup
	takers.Go(func() {
		for !stop.Load() {
			if h, err := Take(d, "turns", Mine(RoleRun)); err == nil {
				_ = h.Release()
			}
		}
	})
	for range 4 {
		starters.Go(func() {
			for range 10 {
				out, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
				if err != nil || bytes.Contains(out, []byte(".lock")) {
					t.Errorf("a child has %s (%v)", out, err)
				}
			}
		})
	}
	starters.Wait()
	stop.Store(true)
	takers.Wait()
}

// S15: the kernel tells of an orphan's end: there is no look in between.
func TestOrphansEndIsAnEvent(t *testing.T) {
	defer func(was time.Duration) { pollEvery = was }(pollEvery)
	pollEvery = 24 * time.Hour
	d := place(t)
	child, end := sleeper(t)
	h := take(t, d, "l", by(dead(t), RoleRun))
	must(t, h.SetChild(child))
	h.Keep()
	w := waitFor(t.Context(), d, "l", 48*time.Hour)
	w.waits(t)
	end()
	w.gets(t)
}

// The record that is read under a held lock may be torn by its being written:
// that is never taken for no record at once (S7).
func TestRecordBeingWrittenIsReadAgain(t *testing.T) {
	d := place(t)
	h := take(t, d, "l", Mine(RoleDriver))
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; !stop.Load(); i++ {
			rec := Mine(RoleDriver)
			rec.Argv0 = strings.Repeat("x", i%500)
			if err := h.SetOwner(rec); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2000 {
		if s := seen(t, d, "l"); s.State != Owned || s.Record == nil || s.Record.Holder == nil || proc.Judge(s.Record.HolderClaim()) != proc.Alive {
			t.Fatalf("a look found %s %+v", s.State, s.Record)
		}
	}
	stop.Store(true)
	writer.Wait()
}

// dying is the variable that makes this test binary the process of
// TestDyingOwnerKeepsItsUnrecordedAgent, with the home as its value.
const dying = "LANE_TEST_DYING"

const dyingRun = "01a20000-0000-7000-8000-00000000c322"

// TestDyingOwnerProcess is no test: it has a lane and an agent that it has not
// recorded, and much to close when it dies. An inotify instance takes the kernel
// a while, so its descriptors are closed long before it shows as a zombie.
func TestDyingOwnerProcess(t *testing.T) {
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
	rec := Mine(RoleRun)
	rec.Run = dyingRun
	if _, err := Take(home.Dir{Path: at, From: home.Variable}, "l", rec); err != nil {
		t.Fatal(err)
	}
	slow()
	os.Stdout.WriteString("ready\n")
	select {}
}

// C022: the owner of a lane that is killed before it could record its agent does
// not count as one that let go, in the time in which its lock is free already and
// its process still shows.
func TestDyingOwnerKeepsItsUnrecordedAgent(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	_, end := sleeper(t, "HANDSEL_RUN="+dyingRun)
	defer end()
	showed := 0
	for range 5 {
		d := place(t)
		must(t, d.Ensure())
		owner := exec.Command(self, "-test.run=^TestDyingOwnerProcess$")
		owner.Env = append(os.Environ(), dying+"="+d.Path)
		out, err := owner.StdoutPipe()
		must(t, err)
		must(t, owner.Start())
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		id, err := proc.Identify(owner.Process.Pid)
		must(t, err)
		must(t, owner.Process.Kill())
		for locked(t, d, "l") {
			runtime.Gosched()
		}
		if proc.Judge(id.Claim()) == proc.Alive {
			showed++
		}
		h, err := Take(d, "l", Mine(RoleRun))
		_ = owner.Wait()
		if err == nil {
			h.Keep()
			t.Fatal("the lane of a dying owner was free while its agent lived")
		}
		wantHeld(t, err, Orphaned)
	}
	t.Logf("%d of 5 owners still showed when their lock was free", showed)
}
