package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const signalGroup = unix.PIDFD_SIGNAL_PROCESS_GROUP

func wantPidfd(sys *syscall.SysProcAttr, fd *int) { sys.PidFD = fd }

func pidfdOpen(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

func pidfdSignal(fd int, sig syscall.Signal, flags int) error {
	return unix.PidfdSendSignal(fd, sig, nil, flags)
}

// watch follows the child until it has ended, without collecting it.
func (c *Child) watch() {
	for {
		what, err := waitFor(unix.P_PID, c.Pid, unix.WEXITED|unix.WSTOPPED|unix.WCONTINUED|unix.WNOWAIT)
		switch {
		case err != nil:
			// ECHILD: the program around us ignores SIGCHLD, or reaps everything.
			c.ended(Status{Lost: true})
			return
		case what.code == cldStopped || what.code == cldTrapped || what.code == cldContinued:
			// These are taken, or the next look would see them again at once.
			// Between the looks the child may have moved on: then nothing is there.
			what, err = waitFor(unix.P_PID, c.Pid, unix.WSTOPPED|unix.WCONTINUED|unix.WNOHANG)
			if err == nil && what.code == cldStopped {
				c.stopped(syscall.Signal(what.status))
			}
		default:
			c.ended(what.ending())
			return
		}
	}
}

// collect takes the ended child out of the kernel's table.
func (c *Child) collect() { _, _ = waitFor(unix.P_PID, c.Pid, unix.WEXITED|unix.WNOHANG) }

// What SIGCHLD's si_code says (sigaction(2)).
const (
	cldExited = 1 + iota
	cldKilled
	cldDumped
	cldTrapped
	cldStopped
	cldContinued
)

// change is what waitid(2) reports of a child; pid 0 = nothing.
type change struct {
	pid, code, status int
}

func (w change) ending() Status {
	switch w.code {
	case cldExited:
		return Status{Code: w.status}
	default:
		return Status{Signal: syscall.Signal(w.status), Core: w.code == cldDumped}
	}
}

func waitFor(idType, id, options int) (change, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(idType, id, &info, options, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return change{}, err
		}
		// si_pid, si_uid, si_status follow the three leading ints, at the
		// alignment of a pointer.
		const word = unsafe.Sizeof(uintptr(0))
		body := (*[3]int32)(unsafe.Add(unsafe.Pointer(&info), (12+word-1)&^(word-1)))
		return change{pid: int(body[0]), code: int(info.Code), status: int(body[2])}, nil
	}
}

// SetSubreaper makes this process the one that orphans below it come to (S21a).
// Only our own executable does so unasked (C2).
func SetSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// IsSubreaper tells whether orphans below this process come to it.
func IsSubreaper() bool {
	var set int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&set)), 0, 0, 0)
	return err == nil && set != 0
}

// errForeignTable reports a /proc of another pid namespace: its numbers are
// not the ones that signals go by.
var errForeignTable = errors.New("/proc shows another pid namespace")

// pids lists the process table.
func pids() ([]int, error) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, errors.Join(errForeignTable, err)
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("process table: %w", err)
	}
	list := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			list = append(list, pid)
		}
	}
	return list, nil
}

// noChildren tells, in one step of the kernel, whether this process has no
// child left, dead or alive.
func noChildren() bool {
	_, err := waitFor(unix.P_ALL, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	return errors.Is(err, unix.ECHILD)
}

// onlyChild tells whether pid is the only child in the table. It is a look
// and no proof (children that come and go during it can be missed), but it is
// far cheaper than the whole table.
func onlyChild(pid int) bool {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false
	}
	want := strconv.Itoa(pid)
	for _, task := range tasks {
		text, err := readSmall("/proc/self/task/"+task.Name()+"/children", make([]byte, 256))
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) && len(tasks) > 1 {
			continue // a thread that ended; its children moved to another
		}
		if err != nil {
			return false
		}
		if got := string(text); got != "" && got != want+" " {
			return false
		}
	}
	return true
}

// ReapAdopted collects orphans that came to us and have ended. Children that
// were started with Start keep their status. Whoever makes a process a
// subreaper must therefore start everything in it through Start.
func ReapAdopted() {
	children.Lock()
	defer children.Unlock()
	for {
		next, err := waitFor(unix.P_ALL, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		if err != nil || next.pid == 0 {
			return
		}
		if _, ours := children.live[next.pid]; ours {
			if !onlyChild(next.pid) {
				reapAround()
			}
			return
		}
		if _, err := waitFor(unix.P_PID, next.pid, unix.WEXITED|unix.WNOHANG); err != nil {
			return
		}
	}
}

// reapAround is ReapAdopted where an ended child of ours, which must stay, is
// what the kernel offers first.
func reapAround() {
	table, err := readTable()
	if err != nil {
		return
	}
	self := os.Getpid()
	for pid, st := range table {
		if _, ours := children.live[pid]; !ours && st.PPid == self && st.Zombie() {
			_, _ = waitFor(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG)
		}
	}
}

// CloseOnExecFrom marks every descriptor from first up close-on-exec, so that
// what this process inherited without knowing it goes no further (S20).
func CloseOnExecFrom(first int) error {
	err := unix.CloseRange(uint(first), 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	return closeOnExecListed("/proc/self/fd", first)
}

// Can says what this kernel allows, by asking it about ourselves: signal 0
// tests and delivers nothing.
func Can() Capabilities {
	c := Capabilities{Subreaper: true, Handover: true}
	fd, err := pidfdOpen(os.Getpid())
	if err != nil {
		return c
	}
	defer unix.Close(fd)
	c.Pidfd = pidfdSignal(fd, 0, 0) == nil
	err = pidfdSignal(fd, 0, signalGroup)
	c.PidfdGroup = err == nil || errors.Is(err, unix.ESRCH)
	return c
}
