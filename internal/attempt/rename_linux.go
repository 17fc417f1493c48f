package attempt

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames a file where nothing has the new name; fs.ErrExist otherwise.
func renameNew(from, to string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EEXIST):
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			return linkNew(from, to) // a file system without that
		default:
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
	}
}
