//go:build unix

package proc

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tell signals the process that a record names, and no other: it is judged by
// its identity first, and signalled through a descriptor where the system has
// them. A record without a start proves nothing, so nobody is signalled for
// it. The error is ErrGone, ErrUnverifiable, ErrNotToEnd for init, this process
// or one it runs under, or the kernel's.
func Tell(c Claim, sig syscall.Signal) error {
	switch Judge(c) {
	case Gone:
		return fmt.Errorf("process %d: %w", c.Pid, ErrGone)
	case Unverifiable:
		return fmt.Errorf("process %d: %w", c.Pid, ErrUnverifiable)
	}
	above := slices.ContainsFunc(Ancestors(os.Getpid()), func(st Stat) bool { return st.Pid == c.Pid })
	if above || !mayBeSignalled(c.Pid) {
		return fmt.Errorf("process %d: %w", c.Pid, ErrNotToEnd)
	}
	st, err := ReadStat(c.Pid)
	if err != nil {
		return err
	}
	// Judged again with the start just read, so that both mean one process.
	if Judge(c) != Alive {
		return fmt.Errorf("process %d: %w", c.Pid, ErrGone)
	}
	if err := signalExactly(st, sig); err != nil {
		return fmt.Errorf("process %d: %w", c.Pid, err)
	}
	if sig == unix.SIGTERM && st.Stopped() {
		return signalExactly(st, unix.SIGCONT) // a stopped process cannot heed it
	}
	return nil
}
