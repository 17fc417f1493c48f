//go:build unix

package review

import (
	"os"
	"syscall"
)

// openFile opens a file to read it: no link is followed, and a FIFO in its place
// is not waited for.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
