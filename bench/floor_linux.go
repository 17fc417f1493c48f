package main

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// bareLine makes the system calls of an admission to one pool and does nothing
// else: it lists, locks and reads what must be listed, locked and read, and
// looks at none of it.
type bareLine struct {
	waiting, pool string
	limit         int
	space         [8192]byte
	record        [512]byte
}

const (
	readFlags  = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	writeFlags = unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	dirFlags   = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

// fds are the descriptors that are open.
type fds struct {
	list []int
	err  error
}

// open opens a file and looks whether it is what it should be (S5).
func (f *fds) open(dir int, name string, flags int) int {
	var st unix.Stat_t
	fd, err := unix.Openat(dir, name, flags, 0o600)
	if err == nil {
		f.list = append(f.list, fd)
		err = unix.Fstat(fd, &st)
	}
	f.err = errors.Join(f.err, err)
	return fd
}

func (f *fds) close() {
	for _, fd := range f.list {
		unix.Close(fd)
	}
	f.list = nil
}

// count takes the two admission locks and looks at every slot (S7, S10). It
// returns the directory and the first slot that could be locked, or -1.
func (b *bareLine) count(f *fds) (dir, free int) {
	line := f.open(unix.AT_FDCWD, b.waiting, dirFlags)
	b.lock(f, f.open(line, ".line", readFlags))
	dir = f.open(unix.AT_FDCWD, b.pool, dirFlags)
	b.lock(f, f.open(dir, ".admission", readFlags))
	b.list(f, dir)
	free = -1
	for i := range b.limit {
		if b.probe(f, dir, i) && free < 0 {
			free = i
		}
	}
	b.list(f, line)
	return dir, free
}

func (b *bareLine) lock(f *fds, fd int) {
	f.err = errors.Join(f.err, unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB))
}

func (b *bareLine) list(f *fds, dir int) {
	for {
		n, err := unix.Getdents(dir, b.space[:])
		if n <= 0 || err != nil {
			f.err = errors.Join(f.err, err)
			return
		}
	}
}

// probe looks at one slot, and tells whether nobody has its lock.
func (b *bareLine) probe(f *fds, dir, i int) bool {
	var one fds
	fd := one.open(dir, slotName(i), readFlags)
	locked := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	_, err := unix.Pread(fd, b.space[:], 0)
	if !errors.Is(one.err, unix.ENOENT) {
		f.err = errors.Join(f.err, one.err, err)
	}
	one.close()
	return locked == nil
}

func slotName(i int) string { return strconv.Itoa(i) + ".lock" }

var (
	errNoneFree = errors.New("no slot is free")
	errOneFree  = errors.New("a slot is free")
)

// admit takes the free slot, records an agent in it, and gives it back.
func (b *bareLine) admit() error {
	var f, own fds
	dir, free := b.count(&f)
	if free < 0 {
		f.close()
		return errors.Join(errNoneFree, f.err)
	}
	fd := own.open(dir, slotName(free), writeFlags)
	b.lock(&own, fd)
	var st unix.Stat_t
	_ = unix.Fstatat(dir, slotName(free), &st, unix.AT_SYMLINK_NOFOLLOW)
	_, err := unix.Pwrite(fd, b.record[:], 0)
	f.close()
	err = errors.Join(f.err, own.err, err, unix.Ftruncate(fd, 0))
	own.close()
	return err
}

func (b *bareLine) refusal() error {
	var f fds
	_, free := b.count(&f)
	f.close()
	if free >= 0 {
		return errOneFree
	}
	return f.err
}
