package proc

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	canSeeStops = true
	getTermios  = unix.TCGETS
	setTermios  = unix.TCSETSW
	getSession  = unix.TIOCGSID
)

// withoutTTOU runs f with SIGTTOU blocked in this thread. A process outside
// the foreground group may then set the terminal's group and modes. Blocked,
// not ignored: an ignored signal stays ignored in every child that is started.
func withoutTTOU(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := sigset(unix.SIGTTOU)
	var before unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before); err != nil {
		return fmt.Errorf("block SIGTTOU: %w", err)
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	return f()
}

func sigset(sig syscall.Signal) unix.Sigset_t {
	var set unix.Sigset_t
	word := unsafe.Sizeof(set.Val[0]) * 8
	n := uintptr(sig) - 1
	set.Val[n/word] |= 1 << (n % word)
	return set
}

// raise signals the calling thread.
func raise(sig syscall.Signal) error {
	return unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
}

// defaultAction gives sig back to the kernel, past the Go runtime, which has
// handlers of its own that print stacks instead of dying quietly.
func defaultAction(sig syscall.Signal) {
	var deflt [64]byte // an all-zero sigaction: SIG_DFL, no flags, empty mask
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&deflt)), 0, 8, 0, 0)
	set := sigset(sig)
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
}

// byDefault runs f while sig has its default action.
func byDefault(sig syscall.Signal, f func()) {
	var old [64]byte
	_, _, no := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	defaultAction(sig)
	f()
	if no == 0 {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	}
}

func noCore() {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// A core pattern that pipes to a program does not ask for the limit.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
