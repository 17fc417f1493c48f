package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// macOS has no subreaper, no pidfds and no waitid that leaves a stop in place:
// strays are found by their group, their session and HANDSEL_RUN, ends are
// told by kqueue, and the terminal is not handed over.
const (
	canSeeStops = false
	signalGroup = 0
	getTermios  = unix.TIOCGETA
	setTermios  = unix.TIOCSETAW
	getSession  = 0x40047463 // TIOCGSID of <sys/ttycom.h>, which x/sys leaves out
)

func wantPidfd(*syscall.SysProcAttr, *int) {}

func pidfdOpen(int) (int, error)                 { return -1, unix.ENOSYS }
func pidfdSignal(int, syscall.Signal, int) error { return unix.ENOSYS }

// watch waits for the child's end without collecting it.
func (c *Child) watch() {
	status, err := noteExit(c.Pid)
	if err != nil {
		// It has ended before kqueue was asked, and its status can only be had
		// by collecting it. Its number is given up with that.
		var ws syscall.WaitStatus
		_, err = syscall.Wait4(c.Pid, &ws, 0, nil)
		for errors.Is(err, unix.EINTR) {
			_, err = syscall.Wait4(c.Pid, &ws, 0, nil)
		}
		c.mu.Lock()
		c.reaped = true
		c.mu.Unlock()
		children.Lock()
		delete(children.live, c.Pid)
		children.Unlock()
		status = statusOf(ws)
		status.Lost = err != nil
	}
	c.ended(status)
}

// noteExit blocks until pid has ended.
func noteExit(pid int) (Status, error) {
	q, err := unix.Kqueue()
	if err != nil {
		return Status{}, err
	}
	defer unix.Close(q)
	unix.CloseOnExec(q)
	var ev unix.Kevent_t
	unix.SetKevent(&ev, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	ev.Fflags = unix.NOTE_EXIT | unix.NOTE_EXITSTATUS
	out := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(q, []unix.Kevent_t{ev}, out, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return Status{}, err
		case n == 1 && out[0].Flags&unix.EV_ERROR != 0:
			return Status{}, syscall.Errno(out[0].Data)
		case n == 1:
			return statusOf(syscall.WaitStatus(out[0].Data)), nil
		}
	}
}

func statusOf(ws syscall.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Signal: ws.Signal(), Core: ws.CoreDump()}
	}
	return Status{Code: ws.ExitStatus()}
}

// collect takes the ended child out of the kernel's table.
func (c *Child) collect() {
	for {
		if _, err := syscall.Wait4(c.Pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// SetSubreaper says that macOS has none.
func SetSubreaper() error { return fmt.Errorf("become a subreaper: %w", unix.ENOSYS) }

// IsSubreaper is never so here.
func IsSubreaper() bool { return false }

// ReapAdopted has nothing to do: orphans go to launchd.
func ReapAdopted() {}

func noChildren() bool   { return false }
func onlyChild(int) bool { return false }

// pids lists the process table.
func pids() ([]int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("process table: %w", err)
	}
	list := make([]int, 0, len(all))
	for i := range all {
		list = append(list, int(all[i].Proc.P_pid))
	}
	return list, nil
}

// CloseOnExecFrom marks every descriptor from first up close-on-exec.
func CloseOnExecFrom(first int) error { return closeOnExecListed("/dev/fd", first) }

// withoutTTOU runs f with SIGTTOU ignored. Nothing is forked meanwhile, so no
// child inherits that.
func withoutTTOU(f func() error) error {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	return f()
}

func raise(sig syscall.Signal) error { return unix.Kill(os.Getpid(), sig) }

// defaultAction: signal.Reset has done what can be done from Go here.
func defaultAction(syscall.Signal) {}

// byDefault runs f: the terminal is not handed over here, so no handler is in
// the way.
func byDefault(_ syscall.Signal, f func()) { f() }

func noCore() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }

// Can says what this system allows.
func Can() Capabilities { return Capabilities{} }

// onThreadOfItsOwn has nothing to restrict a thread with here.
func onThreadOfItsOwn(func() error) error { return unix.ENOTSUP }
