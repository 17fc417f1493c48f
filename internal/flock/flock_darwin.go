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
