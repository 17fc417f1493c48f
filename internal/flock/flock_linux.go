package flock

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Owners names the pids that hold or wait for nothing but this file's lock, as
// /proc/locks tells them. That list names whoever locked first, so it is right
// only for locks that are never handed over; it serves a person, no decision
// (L3).
func (f *File) Owners() []int {
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return nil
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(f.id.dev), unix.Minor(f.id.dev), f.id.ino)
	var pids []int
	for line := range bytes.Lines(text) {
		w := bytes.Fields(line)
		if len(w) < 6 || string(w[1]) != "FLOCK" || string(w[5]) != want {
			continue // a waiter's line has "->" in second place
		}
		if pid, err := strconv.Atoi(string(w[4])); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

func mtime(st *unix.Stat_t) (sec, nsec int64) { return int64(st.Mtim.Sec), int64(st.Mtim.Nsec) }

// eachDirent walks records of getdents64(2): inode (8), offset (8), length (2),
// type (1), NUL-ended name.
func eachDirent(b []byte, each func([]byte)) {
	for len(b) >= 19 {
		n := int(binary.NativeEndian.Uint16(b[16:]))
		if n < 19 || n > len(b) {
			return
		}
		name := b[19:n]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		if string(name) != "." && string(name) != ".." {
			each(name)
		}
		b = b[n:]
	}
}

// The three calls below are made several times for every slot that is looked
// at, and do not wait: the lock is only tried, and what a slot holds lies in
// memory. So they do not tell the scheduler that they might, which would cost
// as much as a third of each.

func tryFlock(fd int) unix.Errno {
	_, _, err := unix.RawSyscall(unix.SYS_FLOCK, uintptr(fd), unix.LOCK_EX|unix.LOCK_NB, 0)
	return err
}

func fstat(fd int, st *unix.Stat_t) unix.Errno {
	_, _, err := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0)
	return err
}

func pread(fd int, p []byte, off int64) (int, unix.Errno) {
	if len(p) == 0 {
		return 0, 0
	}
	n, _, err := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(off), 0, 0)
	if err != 0 {
		return 0, err
	}
	return int(n), 0
}

// openat is openat(2) that makes no garbage of the short names it is used for.
func openat(dir int, name string, flags int) (int, error) {
	var path [64]byte
	if len(name) >= len(path) || strings.IndexByte(name, 0) >= 0 {
		return unix.Openat(dir, name, flags, 0o600)
	}
	copy(path[:], name)
	fd, _, err := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&path[0])), uintptr(flags|unix.O_LARGEFILE), 0o600, 0, 0)
	if err != 0 {
		return -1, err
	}
	return int(fd), nil
}
