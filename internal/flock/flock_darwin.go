package flock

import "golang.org/x/sys/unix"

// Owners is empty: macOS does not tell who holds a flock.
func (f *File) Owners() []int { return nil }

func mtime(st *unix.Stat_t) (sec, nsec int64) { return st.Mtim.Sec, st.Mtim.Nsec }

func eachDirent(b []byte, each func([]byte)) {
	var names []string
	_, _, names = unix.ParseDirent(b, -1, names)
	for _, name := range names {
		each([]byte(name))
	}
}

func tryFlock(fd int) unix.Errno { return errno(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)) }

func fstat(fd int, st *unix.Stat_t) unix.Errno { return errno(unix.Fstat(fd, st)) }

func pread(fd int, p []byte, off int64) (int, unix.Errno) {
	n, err := unix.Pread(fd, p, off)
	return n, errno(err)
}

func errno(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if n, ok := err.(unix.Errno); ok {
		return n
	}
	return unix.EIO
}

func openat(dir int, name string, flags int) (int, error) {
	return unix.Openat(dir, name, flags, 0o600)
}
