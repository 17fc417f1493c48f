//go:build unix

package proc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeOnExecListed marks the descriptors that dir lists.
func closeOnExecListed(dir string, first int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("mark inherited descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// Inherited tells whether fd was open when this process was executed: what the
// program and the runtime open themselves is close-on-exec from birth, and what
// came through exec is not. It must be asked before CloseOnExecFrom.
func Inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}
