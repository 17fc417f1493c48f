//go:build unix

package flock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var euid = uint32(os.Geteuid())

// OpenDir opens a directory for the locks in it. It must be ours and not
// writable by others. The error is fs.ErrNotExist when it is not there.
func OpenDir(path string) (*Dir, error) {
	fd, err := again(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	switch {
	case err == nil:
	case errors.Is(err, unix.ENOENT):
		return nil, errNotExist(path)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return nil, &Untrusted{path, "it is not a directory, or a symbolic link"}
	case errors.Is(err, unix.EACCES):
		return nil, &Untrusted{path, describe(unix.AT_FDCWD, path)}
	default:
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d := &Dir{fd: fd, path: path}
	var st unix.Stat_t
	if err := fstat(fd, &st); err != 0 {
		d.Close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Uid != euid || st.Mode&0o022 != 0 {
		d.Close()
		return nil, &Untrusted{path, owned(&st)}
	}
	d.id = idOf(&st)
	return d, nil
}

// Close closes the directory; open Files stay good.
func (d *Dir) Close() {
	if d.fd >= 0 {
		closeFd(d.fd)
		d.fd = -1
	}
}

// Current tells whether the path still names this directory.
func (d *Dir) Current() bool {
	var st unix.Stat_t
	return unix.Lstat(d.path, &st) == nil && idOf(&st) == d.id
}

// Fd is the directory's descriptor. It stays the Dir's.
func (d *Dir) Fd() int { return d.fd }

// Changed returns a mark that differs after entries were added to or removed
// from the directory, except that changes within one tick of the kernel's
// clock may share a mark.
func (d *Dir) Changed() (sec, nsec int64) {
	var st unix.Stat_t
	if unix.Fstat(d.fd, &st) != nil {
		return 0, 0
	}
	return mtime(&st)
}

// Names calls each with the name of every entry, in no order. The bytes are
// only good during the call.
func (d *Dir) Names(each func(name []byte)) error {
	if d.listed {
		if _, err := unix.Seek(d.fd, 0, 0); err != nil {
			return &fs.PathError{Op: "list", Path: d.path, Err: err}
		}
	}
	d.listed = true
	space := listings.Get().(*[8192]byte)
	defer listings.Put(space)
	for {
		n, err := unix.ReadDirent(d.fd, space[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "list", Path: d.path, Err: err}
		}
		if n == 0 {
			return nil
		}
		eachDirent(space[:n], each)
	}
}

// listings keeps the space for listing a directory, which every admission does
// twice.
var listings = sync.Pool{New: func() any { return new([8192]byte) }}

var openFlags = [...]int{
	Look: unix.O_RDONLY,
	Own:  unix.O_RDWR | unix.O_CREAT,
	Pass: unix.O_RDONLY | unix.O_CREAT,
	Mend: unix.O_RDWR,
}

// Open opens name for looking or owning and checks that it is a regular file
// of ours with one link. The error is fs.ErrNotExist when looking at a file
// that is not there, *Untrusted when it is not ours.
func (d *Dir) Open(name string, mode Mode) (*File, error) {
	f, err := d.open(name, mode)
	if err != nil {
		return nil, err
	}
	return &f, nil
}

func (d *Dir) open(name string, mode Mode) (File, error) {
	f, err := d.openAny(name, mode)
	if err != nil {
		return File{}, err
	}
	if _, err := f.verify(); err != nil {
		f.Close()
		return File{}, err
	}
	return f, nil
}

// openAny opens name without looking at what it is. It does not wait for the
// other end of a FIFO.
func (d *Dir) openAny(name string, mode Mode) (File, error) {
	flags := openFlags[mode] | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	fd, err := openat(d.fd, name, flags)
	for err == unix.EINTR {
		fd, err = openat(d.fd, name, flags)
	}
	if err != nil {
		return File{}, d.openError(name, err)
	}
	return File{fd: fd, dir: d, name: name, writable: mode == Own || mode == Mend}, nil
}

// verify notes which file was opened and makes sure that it may be believed.
// removed tells that it has no name any more.
func (f *File) verify() (removed bool, err error) {
	var st unix.Stat_t
	if err := f.stat(&st); err != nil {
		return false, err
	}
	f.id = idOf(&st)
	return st.Nlink == 0, nil
}

// Pass takes the lock of name, which has no record, waiting for it like
// File.Lock; the file is made if need be. When it returns without an error the
// file is a regular one of ours and has its name still: removing or replacing
// it lets nobody in beside us, though moving it elsewhere would. Where the wait
// was over the file is returned with the error, to name its owner.
func (d *Dir) Pass(ctx context.Context, name string, patience time.Duration) (*File, error) {
	f, err := d.openAny(name, Pass)
	if err != nil {
		return nil, err
	}
	if err := f.pass(ctx, patience); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return &f, err
		}
		f.Close()
		return nil, err
	}
	return &f, nil
}

func (f *File) pass(ctx context.Context, patience time.Duration) error {
	if err := f.TryLock(); errors.Is(err, ErrHeld) {
		if _, err := f.verify(); err != nil {
			return err
		}
		if err := f.Lock(ctx, patience); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	removed, err := f.verify()
	if err == nil && removed {
		err = ErrReplaced
	}
	return err
}

// ours tells whether a file is one that may be believed: a regular file of
// ours with one name. One without any was removed a moment ago.
func ours(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Uid == euid && st.Nlink <= 1
}

// Probe tries the lock of name, reads its text into buf from the start, and
// lets go again: one look, without anything to keep or close. It checks the
// file as Open does. Nobody who watches for writers is woken. What cannot be
// read is no text; the lock still counts (S7).
func (d *Dir) Probe(name string, buf []byte) (n int, held bool, err error) {
	f, err := d.openAny(name, Look)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	switch err := f.TryLock(); {
	case errors.Is(err, ErrHeld):
		held = true
	case err != nil:
		return 0, false, err
	}
	// After the lock: what is free now cannot be written to meanwhile.
	var st unix.Stat_t
	if err := f.stat(&st); err != nil || st.Size == 0 {
		return 0, held, err
	}
	for {
		n, errno := pread(f.fd, buf, 0)
		if errno != unix.EINTR {
			return max(n, 0), held, nil
		}
	}
}

// stat looks at the open file and makes sure that it may be believed.
func (f *File) stat(st *unix.Stat_t) error {
	if err := fstat(f.fd, st); err != 0 {
		return &fs.PathError{Op: "stat", Path: f.Path(), Err: err}
	}
	if !ours(st) {
		return &Untrusted{f.Path(), owned(st)}
	}
	return nil
}

func (d *Dir) openError(name string, err error) error {
	path := d.path + "/" + name
	switch {
	case errors.Is(err, unix.ENOENT):
		return errNotExist(path)
	case errors.Is(err, unix.ELOOP):
		return &Untrusted{path, "it is a symbolic link"}
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO):
		return &Untrusted{path, "it is not a regular file"}
	case errors.Is(err, unix.EACCES):
		return &Untrusted{path, describe(d.fd, name)}
	}
	return &fs.PathError{Op: "open", Path: path, Err: err}
}

// TryLock takes the lock if nobody has it, else ErrHeld.
func (f *File) TryLock() error {
	for {
		switch err := tryFlock(f.fd); {
		case err == 0:
			return nil
		case err == unix.EINTR:
		case err == unix.EWOULDBLOCK:
			return ErrHeld
		default:
			return &fs.PathError{Op: "lock", Path: f.Path(), Err: err}
		}
	}
}

// Check tells whether the path still names this file: nil, or ErrReplaced. The
// whole path is asked, so that a directory that was replaced shows as well.
func (f *File) Check() error {
	var st unix.Stat_t
	err := unix.Lstat(f.Path(), &st)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return ErrReplaced
	case err != nil:
		return &fs.PathError{Op: "stat", Path: f.Path(), Err: err}
	case idOf(&st) != f.id:
		return ErrReplaced
	}
	return nil
}

// Close closes this copy of the descriptor. The lock ends when no copy is
// left. It is safe to call again.
func (f *File) Close() {
	if f.fd >= 0 {
		closeFd(f.fd)
		f.fd = -1
	}
}

// Read reads into p from the start until p is full or the file ends.
func (f *File) Read(p []byte) (int, error) { return f.ReadAt(p, 0) }

// ReadAt is Read from off. The end of the file is no error.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := unix.Pread(f.fd, p, off)
	for err == unix.EINTR {
		n, err = unix.Pread(f.fd, p, off)
	}
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.Path(), Err: err}
	}
	return n, nil
}

// WriteAt writes p at off in one pwrite(2). Anything but a whole write is an error.
func (f *File) WriteAt(p []byte, off int64) error {
	n, err := again(func() (int, error) { return unix.Pwrite(f.fd, p, off) })
	switch {
	case err != nil:
		return &fs.PathError{Op: "write", Path: f.Path(), Err: err}
	case n != len(p):
		return &fs.PathError{Op: "write", Path: f.Path(), Err: fmt.Errorf("only %d of %d bytes", n, len(p))}
	}
	return nil
}

// Truncate sets the file's length.
func (f *File) Truncate(size int64) error {
	if _, err := again(func() (int, error) { return 0, unix.Ftruncate(f.fd, size) }); err != nil {
		return &fs.PathError{Op: "truncate", Path: f.Path(), Err: err}
	}
	return nil
}

// Unlink removes the file's name from its directory. The caller holds the lock.
func (f *File) Unlink() error { return f.dir.Unlink(f.name) }

// Unlink removes name from the directory; one that is gone is no error.
func (d *Dir) Unlink(name string) error {
	if err := unix.Unlinkat(d.fd, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: d.path + "/" + name, Err: err}
	}
	return nil
}

// Rename gives the file another name in the same directory.
func (f *File) Rename(name string) error {
	if err := unix.Renameat(f.dir.fd, f.name, f.dir.fd, name); err != nil {
		return &fs.PathError{Op: "rename", Path: f.Path(), Err: err}
	}
	f.name = name
	return nil
}

// describe says why name may not be opened, from what can be seen of it.
func describe(dir int, name string) string {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "permission denied"
	}
	why := "permission denied; " + owned(&st)
	if st.Uid == euid && st.Mode&0o400 != 0 {
		// Our own, and its mode lets us read: something around us does not (S1).
		why += ": a sandbox around this process forbids it"
	}
	return why
}

func owned(st *unix.Stat_t) string {
	kind := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if st.Nlink > 1 {
			kind = "a file with " + strconv.FormatUint(uint64(st.Nlink), 10) + " hard links, "
		}
	case unix.S_IFDIR:
		kind = "a directory, "
	case unix.S_IFLNK:
		kind = "a symbolic link, "
	case unix.S_IFIFO:
		kind = "a FIFO, "
	default:
		kind = "a special file, "
	}
	return fmt.Sprintf("%sowner uid %d (we are uid %d), mode %04o", kind, st.Uid, euid, st.Mode&0o7777)
}

func idOf(st *unix.Stat_t) ID { return ID{uint64(st.Dev), st.Ino} }

func dup(fd int) (int, error) {
	return again(func() (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) })
}

func block(fd int) error {
	_, err := again(func() (int, error) { return 0, unix.Flock(fd, unix.LOCK_EX) })
	return err
}

// closeFd closes once: on Linux and macOS the number is gone even after EINTR.
func closeFd(fd int) { _ = unix.Close(fd) }

func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Adopt makes a File of a descriptor received from another process. It must be
// the regular file that name is now, by device and inode, and the lock must be
// held through it: taking it again through this descriptor succeeds and taking
// it through another open of the path does not (L6). Nobody else held it, so
// "was free and is ours now" is accepted too. On error the descriptor stays the
// caller's to close.
func (d *Dir) Adopt(name string, fd int) (*File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: d.path + "/" + name, Err: err}
	}
	if !ours(&st) {
		return nil, &Untrusted{d.path + "/" + name, owned(&st)}
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "adopt", Path: d.path + "/" + name, Err: err}
	}
	f := &File{fd: fd, dir: d, name: name, id: idOf(&st), writable: flags&unix.O_ACCMODE == unix.O_RDWR}
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotOurs, err)
	}
	if err := f.TryLock(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotOurs, err)
	}
	other, err := d.Open(name, Look)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	if err := other.TryLock(); !errors.Is(err, ErrHeld) {
		return nil, fmt.Errorf("%w: another open of the path could take it too", ErrNotOurs)
	}
	unix.CloseOnExec(fd)
	return f, nil
}
