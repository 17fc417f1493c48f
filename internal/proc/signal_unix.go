//go:build unix

package proc

import (
	"errors"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// errForbidden reports a number that is never signalled: 0 and -1 mean many
// processes, 1 is init, our own number and group are ourselves.
var errForbidden = errors.New("this number is never signalled")

// kernel is the only way from this room to a signal; tests count through it.
var kernel = struct {
	kill  func(pid int, sig syscall.Signal) error
	pidfd func(fd int, sig syscall.Signal, flags int) error
}{unix.Kill, pidfdSignal}

// mayBeSignalled holds for numbers that can mean one process other than init
// and us.
func mayBeSignalled(pid int) bool {
	return pid > 1 && pid <= math.MaxInt32 && pid != os.Getpid()
}

func toGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

// signalExactly signals the process that st saw, or nobody: the descriptor is
// opened first and the start compared after, so the number cannot change
// hands in between. Without pidfds (macOS, old kernels) a moment remains.
func signalExactly(st Stat, sig syscall.Signal) error {
	if !mayBeSignalled(st.Pid) {
		return errForbidden
	}
	fd, err := pidfdOpen(st.Pid)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if err == nil {
		defer unix.Close(fd)
	}
	now, statErr := ReadStat(st.Pid)
	switch {
	case statErr != nil:
		return statErr
	case now.Ticks != st.Ticks || now.Zombie():
		return ErrGone
	case err == nil:
		return toGone(kernel.pidfd(fd, sig, 0))
	default:
		return toGone(kernel.kill(st.Pid, sig))
	}
}
