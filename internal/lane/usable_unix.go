//go:build unix

package lane

import (
	"fmt"
	"os"

	"github.com/handsel/handsel/internal/flock"
	"golang.org/x/sys/unix"
)

// usable refuses a descriptor through which a record cannot be written: one
// that cannot write, and one that writes only at the end, wherever it is told to.
func usable(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	switch {
	case err != nil:
		return os.NewSyscallError("fcntl", err)
	case flags&unix.O_ACCMODE != unix.O_RDWR:
		return fmt.Errorf("%w: it is not open for reading and writing", flock.ErrNotOurs)
	case flags&unix.O_APPEND != 0:
		return fmt.Errorf("%w: it writes only at the end", flock.ErrNotOurs)
	}
	return nil
}
