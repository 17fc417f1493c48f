package flock

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

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
