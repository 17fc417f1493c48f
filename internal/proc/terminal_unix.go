//go:build unix

package proc

import (
	"errors"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Terminal is our controlling terminal while a child has it (S20). Its methods
// may be called from one goroutine at a time.
type Terminal struct {
	fd     int
	pgrp   int           // our group
	modes  *unix.Termios // as we found them
	child  *unix.Termios // as the child left them when it was stopped
	handed bool          // whether the child, not we, is meant to have it
}

// HasControllingTerminal tells whether this process has one.
func HasControllingTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// OwnTerminal returns our controlling terminal when it may be handed over:
// stdin, stdout and stderr all are it, we are its foreground group, and that
// group has no other member. Anything else returns nil. The first file must
// stay open while the Terminal is in use.
func OwnTerminal(stdin, stdout, stderr *os.File) *Terminal {
	if !canSeeStops {
		return nil
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return nil
	}
	t := &Terminal{pgrp: unix.Getpgrp(), fd: -1}
	for _, f := range []*os.File{stdin, stdout, stderr} {
		fd, ok := controlling(f, session)
		if !ok {
			return nil
		}
		if t.fd < 0 {
			t.fd = fd
		}
	}
	if !t.Foreground() || !aloneInGroup() {
		return nil
	}
	if t.modes, err = unix.IoctlGetTermios(t.fd, getTermios); err != nil {
		return nil
	}
	return t
}

// controlling tells whether f is the controlling terminal of the session; the
// kernel answers these questions only about one's own.
func controlling(f *os.File, session int) (fd int, ok bool) {
	if f == nil {
		return 0, false
	}
	n, err := rawFD(f)
	if err != nil {
		return 0, false
	}
	sid, err := unix.IoctlGetInt(int(n), getSession)
	return int(n), err == nil && sid == session
}

// aloneInGroup tells whether our process group has no other living member.
func aloneInGroup() bool {
	t, err := readTable()
	if err != nil {
		return false
	}
	group := unix.Getpgrp()
	for pid, st := range t {
		if st.Pgrp == group && pid != os.Getpid() && !st.Zombie() {
			return false
		}
	}
	return true
}

// Foreground tells whether our group is the terminal's foreground group.
func (t *Terminal) Foreground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.pgrp
}

// Give makes pgid, a child's group, the foreground group again, with the modes
// it had when it was stopped.
func (t *Terminal) Give(pgid int) error {
	return withoutTTOU(func() error {
		if err := unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgid); err != nil {
			return err
		}
		t.handed = true
		if t.child != nil {
			_ = unix.IoctlSetTermios(t.fd, setTermios, t.child)
			t.child = nil
		}
		return nil
	})
}

// Take makes our group the foreground group, if the terminal is still the
// child's. A shell that has put us in the background has it now, and keeps it.
func (t *Terminal) Take() error {
	if t == nil || !t.handed {
		return nil
	}
	t.handed = false
	if !t.ours() {
		return nil
	}
	return withoutTTOU(func() error { return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.pgrp) })
}

// ours tells whether the foreground group is one we answer for: empty (it has
// ended), or made of descendants of ours.
func (t *Terminal) ours() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return false
	}
	table, err := readTable()
	if err != nil {
		return true
	}
	for _, st := range table {
		if st.Pgrp == group && !st.Zombie() && !table.descends(st.Pid, os.Getpid()) {
			return false
		}
	}
	return true
}

// descends tells whether pid is below top.
func (t table) descends(pid, top int) bool {
	for range maxAncestors {
		st, ok := t[pid]
		if !ok || st.PPid <= 0 {
			return false
		}
		if st.PPid == top {
			return true
		}
		pid = st.PPid
	}
	return false
}

// KeepModes notes the modes the child has set, for Give.
func (t *Terminal) KeepModes() {
	if modes, err := unix.IoctlGetTermios(t.fd, getTermios); err == nil {
		t.child = modes
	}
}

// RestoreModes sets the modes we found at the start: for a child that died
// without tidying up. One that ended in order may have changed them on purpose.
func (t *Terminal) RestoreModes() {
	if t == nil || !t.ours() && !t.Foreground() {
		return
	}
	_ = withoutTTOU(func() error { return unix.IoctlSetTermios(t.fd, setTermios, t.modes) })
}

// HasIt tells whether the child is meant to have the terminal.
func (t *Terminal) HasIt() bool { return t.handed }

// OnHangup calls gone when the terminal hangs up, until stop is called, which
// returns when gone will not be called any more.
func (t *Terminal) OnHangup(gone func()) (stop func()) {
	var p [2]int
	if err := pipe(p[:]); err != nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fds := []unix.PollFd{{Fd: int32(p[0]), Events: unix.POLLIN}, {Fd: int32(t.fd)}}
		for {
			_, err := unix.Poll(fds, -1)
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil || fds[0].Revents != 0:
				return
			default:
				gone()
				return
			}
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() {
			unix.Close(p[1])
			<-done
			unix.Close(p[0])
		})
	}
}

// StopSelf stops this process the way Ctrl-Z does, and returns when it has
// been continued. In an orphaned group, which no shell could continue, the
// kernel does not stop it and it returns at once. The signal goes to the
// calling thread, so that nothing below runs before the stop. A handler that Go
// has installed for the signal is put aside for that moment.
func StopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	byDefault(unix.SIGTSTP, func() { _ = raise(unix.SIGTSTP) })
}
