//go:build unix

package attempt

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flushDir flushes a directory, without which a name in it may be gone after a
// power loss. A file system that cannot do that says EINVAL.
func flushDir(path string) error {
	fd, err := openFile(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for {
		err := unix.Fsync(fd)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL):
			return nil
		case !errors.Is(err, unix.EINTR):
			return &os.PathError{Op: "fsync", Path: path, Err: err}
		}
	}
}
