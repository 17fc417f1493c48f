package run

import (
	"os"

	"golang.org/x/sys/unix"
)

// wide is what a pipe from the child holds, in bytes, if the system lets it: four
// times as much as by default, so that a child that prints fast and we who read it
// do not have to wake each other for every write.
const wide = 256 << 10

// widen makes a pipe larger. One that stays as it is, as beyond what a user may
// have in all pipes, is as right.
func widen(f *os.File) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, wide) })
	}
}
