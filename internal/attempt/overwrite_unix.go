//go:build unix

package attempt

import (
	"bytes"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// overwrite replaces the text of a file of entrySpace bytes by one pwrite(2) of
// all of it. It is errOther where there is another kind of file, or of text:
// that is replaced by renaming, which follows nothing.
func overwrite(path string, data []byte) error {
	fd, err := openFile(path, unix.O_RDWR|unix.O_NONBLOCK)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EACCES):
		return errOther
	case err != nil:
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink != 1 || st.Mode&0o022 != 0 {
		return errOther
	}
	if err := replaceable(fd, st.Size); err != nil {
		return err
	}
	if st.Size != entrySpace || len(data) != entrySpace {
		return errOther
	}
	n, err := unix.Pwrite(fd, data, 0)
	if err == nil && n != len(data) {
		err = unix.ENOSPC
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// openFile opens without the poller of the os package, which knows nothing of
// files and costs as much again.
func openFile(path string, flags int) (fd int, err error) {
	for {
		fd, err = unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// replaceable is mayReplace of an open file, of which mostly the beginning tells.
// What cannot be read is no entry.
func replaceable(fd int, size int64) error {
	begin := make([]byte, len(head))
	if n, err := unix.Pread(fd, begin, 0); err == nil && n == len(head) && bytes.Equal(begin, head) {
		return nil
	}
	old := make([]byte, min(size, maxEntry))
	n, _ := unix.Pread(fd, old, 0)
	return mayReplace(old[:max(n, 0)])
}
