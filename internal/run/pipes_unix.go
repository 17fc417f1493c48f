//go:build unix

package run

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const (
	suspendSignal = syscall.SIGTSTP
	contSignal    = syscall.SIGCONT
	brokenPipe    = syscall.SIGPIPE
)

func notifyContinue(c chan os.Signal) { signal.Notify(c, syscall.SIGCONT) }

func passedOn(sig syscall.Signal) bool { return sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 }

func wantsTerminal(sig syscall.Signal) bool { return sig == syscall.SIGTTIN || sig == syscall.SIGTTOU }

func isBrokenPipe(err error) bool { return errors.Is(err, unix.EPIPE) }

// errStopped reports a write that was given up because stopper.set was called.
var errStopped = errors.New("stopped")

// stopper lets writes to the caller's files be given up: those files are the
// caller's, so neither deadlines nor another blocking mode are ours to set.
type stopper struct {
	r, w int
	once sync.Once
}

func newStopper() (*stopper, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// Raw numbers: poll needs them, and nothing else looks at this pipe.
	defer r.Close()
	defer w.Close()
	s := &stopper{r: -1, w: -1}
	if s.r, err = unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		return nil, err
	}
	if s.w, err = unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		unix.Close(s.r)
		return nil, err
	}
	return s, nil
}

func (s *stopper) set() { s.once.Do(func() { unix.Close(s.w) }) }

func (s *stopper) close() {
	s.set()
	unix.Close(s.r)
}

// wait waits until fd is ready or the stopper is set.
func (s *stopper) wait(fd int, events int16) error {
	fds := []unix.PollFd{{Fd: int32(s.r), Events: unix.POLLIN}, {Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case fds[1].Revents != 0:
			return nil
		case fds[0].Revents != 0:
			return errStopped
		}
	}
}

// atomicWrite is how much a pipe takes without blocking once poll says that it
// takes something (PIPE_BUF).
const atomicWrite = 4096

// write delivers data to f, of which waits says whether it may make anybody wait.
// It goes past os.File, whose Write would kill this process by SIGPIPE where
// stdout is closed.
func (s *stopper) write(f *os.File, data []byte, waits bool) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = s.writeAll(int(fd), data, waits) })
	return errors.Join(err, failed)
}

// neverWaits tells whether a write to f never waits for somebody who reads: f is a
// file, or the null device.
func neverWaits(f *os.File) bool {
	if f == nil {
		return true
	}
	st, err := f.Stat()
	return err == nil && (st.Mode().IsRegular() || isNull(st))
}

func isNull(st os.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(st, null)
}

func (s *stopper) writeAll(fd int, data []byte, waits bool) error {
	for len(data) > 0 {
		most := len(data)
		if waits {
			if err := s.wait(fd, unix.POLLOUT); err != nil {
				return err
			}
			most = min(most, atomicWrite)
		}
		n, err := unix.Write(fd, data[:most])
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return err
		}
		data = data[n:]
	}
	return nil
}

// readReady reads what is there; 0 = nothing, or the end.
func readReady(f *os.File, buf []byte) int {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = conn.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), buf)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Read(int(fd), buf)
		}
		return true
	})
	return n
}

// tty is a pseudo-terminal between the caller's terminal and the child, as
// script(1) makes one. Keys go to the child through it, resizes too.
type tty struct {
	master   *os.File
	slave    *os.File // until the child has it
	keyboard *os.File // the caller's terminal, if its keys are ours to read; nil = not
	outer    int      // the caller's stdout
	errToo   bool     // stderr goes through it as well
	found    *unix.Termios
	signals  chan os.Signal
	quit     *stopper
	done     sync.WaitGroup
	once     sync.Once
}

// newTTY makes one if the caller's stdout is a terminal; else it returns nil.
func newTTY(spec Spec) (*tty, error) {
	if !isTerminal(spec.Stdout) {
		return nil, nil
	}
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	slave.Fd() // back to blocking: the child shares this open file
	t := &tty{slave: slave, outer: int(spec.Stdout.Fd()), errToo: isTerminal(spec.Stderr), signals: make(chan os.Signal, 4)}
	if t.master, err = pollable(master); err != nil {
		slave.Close()
		return nil, err
	}
	if t.quit, err = newStopper(); err != nil {
		t.close()
		return nil, err
	}
	if isTerminal(spec.Stdin) && spec.Payload == nil {
		t.keyboard = spec.Stdin
		t.found, _ = unix.IoctlGetTermios(int(spec.Stdin.Fd()), getTermios)
	}
	if modes, err := unix.IoctlGetTermios(t.outer, getTermios); err == nil {
		_ = unix.IoctlSetTermios(int(slave.Fd()), setTermios, modes)
	}
	t.resize()
	return t, nil
}

func isTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), getTermios)
	return err == nil
}

// pollable replaces f by a copy whose reads can be ended by a deadline.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (t *tty) start(p *pipes) {
	signal.Notify(t.signals, syscall.SIGWINCH, syscall.SIGCONT)
	t.raw()
	t.done.Go(func() {
		for sig := range t.signals {
			if sig == syscall.SIGCONT {
				t.raw() // the shell has set its own modes meanwhile
			}
			t.resize()
		}
	})
	if t.keyboard != nil {
		t.done.Go(t.keys)
	}
}

// keys brings what is typed to the child, until quit.
func (t *tty) keys() {
	fd := int(t.keyboard.Fd())
	buf := make([]byte, 1024)
	for t.quit.wait(fd, unix.POLLIN) == nil {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if n <= 0 {
			return
		}
		if _, err := t.master.Write(buf[:n]); err != nil {
			return
		}
	}
}

// raw hands every key through, the interrupting ones too: it is the inner
// terminal that makes signals of them. Only in the foreground: a background
// job that sets modes is stopped for it.
func (t *tty) raw() {
	if t.found == nil {
		return
	}
	fd := int(t.keyboard.Fd())
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return
	}
	modes := *t.found
	modes.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	modes.Oflag &^= unix.OPOST
	modes.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	modes.Cflag &^= unix.CSIZE | unix.PARENB
	modes.Cflag |= unix.CS8
	modes.Cc[unix.VMIN], modes.Cc[unix.VTIME] = 1, 0
	_ = unix.IoctlSetTermios(fd, setTermios, &modes)
}

// resize makes the inner terminal as large as the outer one.
func (t *tty) resize() {
	if size, err := unix.IoctlGetWinsize(t.outer, unix.TIOCGWINSZ); err == nil {
		_ = unix.IoctlSetWinsize(int(rawNumber(t.master)), unix.TIOCSWINSZ, size)
	}
}

// rawNumber is the number of f without a change of its blocking mode.
func rawNumber(f *os.File) (fd uintptr) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(n uintptr) { fd = n })
	}
	return fd
}

// stop ends the keyboard and the resizing. Safe to repeat.
func (t *tty) stop() {
	t.once.Do(func() {
		signal.Stop(t.signals)
		close(t.signals)
		t.quit.set()
		_ = t.master.SetWriteDeadline(time.Unix(1, 0))
		t.done.Wait()
	})
}

// restore gives the caller's terminal its modes back. It comes after the last
// byte: what the inner terminal has made of a line end must not be made so again.
func (t *tty) restore() {
	if t.found == nil {
		return
	}
	fd := int(t.keyboard.Fd())
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
		_ = unix.IoctlSetTermios(fd, setTermios, t.found)
	}
}

func (t *tty) close() {
	if t.quit != nil {
		t.stop()
		t.quit.close()
		t.restore()
	}
	t.master.Close()
	if t.slave != nil {
		t.slave.Close()
	}
}
