//go:build linux || darwin

package home

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func renameNew(from, to string) error {
	for {
		err := renameExclusive(from, to)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EEXIST):
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
			return linkNew(from, to) // a file system without that
		default:
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
	}
}
