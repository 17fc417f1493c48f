package line

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The tests here notice faults that the others let live (L27).

// S16: a ticket comes into sight under its name by being renamed, whole and
// locked; it is never made there.
func TestTicketIsRenamedIn(t *testing.T) {
	l := open(t)
	ino, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	defer unix.Close(ino)
	_, err = unix.InotifyAddWatch(ino, l.dir.Path(), unix.IN_CREATE|unix.IN_MOVED_TO)
	must(t, err)
	p := stand(t, l, Name(5, 0, "a"))
	var buf [4096]byte
	n, err := unix.Read(ino, buf[:])
	must(t, err)
	var got []string
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		what := "made "
		if binary.NativeEndian.Uint32(b[4:])&unix.IN_MOVED_TO != 0 {
			what = "moved in "
		}
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		got = append(got, what+string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00")))
		b = b[end:]
	}
	want := []string{"made " + wakeName(p.Name), "made ." + p.Name, "moved in " + p.Name}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// S16: a ticket is removed only by whoever has its lock, and only while the
// path names it.
func TestLivingTicketIsNotBuried(t *testing.T) {
	l := open(t)
	p := stand(t, l, Name(5, 0, "alive"))
	l.bury(p.Name)
	if seen, err := l.Read(p.Name, true); err != nil || seen.Pid == 0 {
		t.Errorf("Read = %+v, %v; the owner stands there", seen, err)
	}
}
