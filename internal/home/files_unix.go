//go:build unix

package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cwd makes the *at calls take a path as it is.
const cwd = unix.AT_FDCWD

// Every open: close-on-exec, no link followed, never waiting for the other end
// of a FIFO.
const openFlags = unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK

// Folder is an open directory. What is done through it stays in that directory
// even if the path is made to mean another one. It is for one goroutine at a
// time; whoever opens it closes it.
type Folder struct {
	at   int
	path string
}

func (f *Folder) rel(name string) string { return name }

// OpenFolder opens a directory that must be ours and not writable by others.
// Only the last component is kept from being a link. fs.ErrNotExist passes through.
func OpenFolder(path string) (*Folder, error) { return openFolderAt(cwd, path, path) }

// Sub opens a directory in the folder.
func (f *Folder) Sub(name string) (*Folder, error) {
	return openFolderAt(f.at, name, filepath.Join(f.path, name))
}

// MakeSub opens a directory in the folder, creating it with mode 0700 if it is
// not there.
func (f *Folder) MakeSub(name string) (*Folder, error) {
	sub, err := f.Sub(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return sub, err
	}
	if err := f.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return f.Sub(name)
}

// Mkdir creates a directory with mode 0700 whatever the umask. One that is there
// already is fs.ErrExist.
func (f *Folder) Mkdir(name string) error {
	path := filepath.Join(f.path, name)
	err := retry(func() error { return unix.Mkdirat(f.at, name, 0o700) })
	switch {
	case err == unix.EEXIST:
		return &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrExist}
	case err != nil:
		return failed(f.at, name, path, err)
	}
	return repairModeAt(f.at, name, path)
}

// Close gives the descriptor back. It may be called more than once.
func (f *Folder) Close() error {
	if f.at < 0 {
		return nil
	}
	fd := f.at
	f.at = -1
	return unix.Close(fd)
}

// Names lists what is in the folder, in no order, without . and .. .
func (f *Folder) Names() ([]string, error) {
	fd, err := openat(f.at, ".", unix.O_RDONLY|unix.O_DIRECTORY|openFlags, 0)
	if err != nil {
		return nil, failed(f.at, ".", f.path, err)
	}
	dir := os.NewFile(uintptr(fd), f.path)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, &Unusable{Path: f.path, Err: bare(err)}
	}
	return names, nil
}

// Create makes a new file of mode 0600, open for writing. One that is there
// already, a link included, is fs.ErrExist.
func (f *Folder) Create(name string) (*os.File, error) {
	path := filepath.Join(f.path, name)
	fd, err := createAt(f.at, name, path, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenRead opens a file of the folder under the rules of ReadFile.
func (f *Folder) OpenRead(name string) (*os.File, error) {
	path := filepath.Join(f.path, name)
	fd, _, err := openTrusted(f.at, name, path, unix.O_RDONLY, ownOrRoot)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Append adds line to a file in one write(2), creating it if need be, so that
// lines of several processes do not mix. It is ErrFull, with nothing written,
// when the file would grow beyond max bytes.
func (f *Folder) Append(name string, line []byte, max int64) error {
	path := filepath.Join(f.path, name)
	const flags = unix.O_WRONLY | unix.O_APPEND
	fd, size, err := openTrusted(f.at, name, path, flags, ownOnly)
	for errors.Is(err, fs.ErrNotExist) {
		fd, err = createAt(f.at, name, path, 0o600, unix.O_APPEND)
		if errors.Is(err, fs.ErrExist) { // it may be renamed away again before we open it
			fd, size, err = openTrusted(f.at, name, path, flags, ownOnly)
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if size+int64(len(line)) > max {
		return ErrFull
	}
	n, err := unix.Write(fd, line)
	if err == nil && n < len(line) {
		err = unix.ENOSPC
	}
	if err != nil {
		return &Unusable{Path: path, Err: err}
	}
	return nil
}

// Rename moves a file within the folder, replacing what has the new name.
func (f *Folder) Rename(from, to string) error {
	if err := unix.Renameat(f.at, from, f.at, to); err != nil {
		return failed(f.at, from, filepath.Join(f.path, from), err)
	}
	return nil
}

// Remove deletes a file, or an empty directory. A missing one is fs.ErrNotExist.
func (f *Folder) Remove(name string) error {
	path := filepath.Join(f.path, name)
	err := unix.Unlinkat(f.at, name, 0)
	if err == unix.EISDIR || err == unix.EPERM { // macOS says EPERM of a directory
		if again := unix.Unlinkat(f.at, name, unix.AT_REMOVEDIR); again != unix.ENOTDIR {
			err = again
		}
	}
	if err != nil {
		return failed(f.at, name, path, err)
	}
	return nil
}

func openFolderAt(at int, name, path string) (*Folder, error) {
	fd, err := openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|openFlags, 0)
	if err != nil {
		return nil, failed(at, name, path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &Unusable{Path: path, Err: err}
	}
	if err := judge(path, &st, true, ownOnly); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Folder{at: fd, path: path}, nil
}

// openTrusted opens an existing regular file and judges what was opened, not
// what the path meant a moment ago.
func openTrusted(at int, name, path string, flags int, who owner) (fd int, size int64, err error) {
	fd, err = openat(at, name, flags|openFlags, 0)
	if err != nil {
		return -1, 0, failed(at, name, path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, 0, &Unusable{Path: path, Err: err}
	}
	if err := judge(path, &st, false, who); err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

func readAt(at int, name, path string, max int64, who owner) ([]byte, error) {
	fd, size, err := openTrusted(at, name, path, unix.O_RDONLY, who)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if size > max {
		return nil, &Unusable{Path: path, Err: fmt.Errorf("%w (%d bytes, at most %d)", ErrTooLarge, size, max)}
	}
	// One byte more than it should have tells the end of the file in one read,
	// and that it grew meanwhile.
	buf := make([]byte, size+1)
	n := 0
	for {
		got, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &Unusable{Path: path, Err: err}
		}
		if got == 0 {
			return buf[:n], nil
		}
		if n += got; int64(n) > max {
			return nil, &Unusable{Path: path, Err: fmt.Errorf("%w (at most %d bytes)", ErrTooLarge, max)}
		}
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		} else if int64(n) == size {
			return buf[:n], nil
		}
	}
}

// createAt makes a new file and gives it its mode in spite of the umask.
func createAt(at int, name, path string, mode uint32, more ...int) (int, error) {
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | openFlags
	for _, flag := range more {
		flags |= flag
	}
	fd, err := openat(at, name, flags, mode)
	if err == unix.EEXIST {
		return -1, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	if err != nil {
		return -1, failed(at, name, path, err)
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		unix.Close(fd)
		_ = unix.Unlinkat(at, name, 0)
		return -1, &Unusable{Path: path, Err: err}
	}
	return fd, nil
}

// writeAt replaces dir/name, where dir is relative to at.
func writeAt(at int, dir, name, path string, data []byte, mode uint32, sync bool) error {
	temp, target := name, name
	if at == cwd {
		target = path
	}
	var fd int
	var err error
	for range 8 {
		if temp = tempName(); at == cwd {
			temp = filepath.Join(dir, temp)
		}
		if fd, err = createAt(at, temp, path, mode); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	err = writeAll(fd, data)
	if err == nil && sync {
		err = unix.Fsync(fd)
	}
	// A file system may tell of a lost write only here.
	if closed := unix.Close(fd); err == nil {
		err = closed
	}
	if err == nil {
		err = unix.Renameat(at, temp, at, target)
	}
	if err != nil {
		_ = unix.Unlinkat(at, temp, 0)
		return &Unusable{Path: path, Err: err}
	}
	if sync {
		return syncDir(at, dir, path)
	}
	return nil
}

// syncDir flushes a directory, without which a renamed file may be gone after a
// power loss.
func syncDir(at int, dir, path string) error {
	fd, err := openat(at, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &Unusable{Path: path, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fsync(fd); err != nil && err != unix.EINVAL {
		return &Unusable{Path: path, Err: err}
	}
	return nil
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.EIO
		}
		data = data[n:]
	}
	return nil
}

func openat(at int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(at, name, flags, mode)
		return err
	})
	return fd, err
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
