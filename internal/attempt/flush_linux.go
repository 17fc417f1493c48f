package attempt

import (
	"os"

	"golang.org/x/sys/unix"
)

// flushData flushes a file that was just made, its length included.
func flushData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
