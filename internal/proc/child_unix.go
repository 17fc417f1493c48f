//go:build unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process started by Start. Until Reap it stays known to the kernel
// under its number, dead or alive, so the number means nobody else.
type Child struct {
	Pid     int
	Path    string // the file that was executed
	Session Session
	run     string
	born    uint64 // its start in ticks; 0 = could not be read

	exited chan struct{} // closed once status is set
	stops  chan syscall.Signal

	mu        sync.Mutex // guards the fields below
	status    Status
	pidfd     int // -1 = none
	reaped    bool
	abandoned bool
}

// children are those started and not yet reaped. Forking happens under the
// mutex, so that a reaper of adopted orphans never meets a child of ours it
// does not know.
var children = struct {
	sync.Mutex
	live map[int]*Child
}{live: map[int]*Child{}}

// Start starts spec. A returned error is a *StartError: nothing runs then.
func Start(spec Spec) (*Child, error) {
	if len(spec.Argv) == 0 {
		return nil, &StartError{Kind: NotFound, Detail: "the command is empty", Err: unix.ENOENT}
	}
	if err := CheckDir(spec.Dir); err != nil {
		return nil, err
	}
	path, err := LookPath(spec.Argv[0], spec.Env, spec.Dir)
	if err != nil {
		return nil, err
	}
	files, done, err := spec.files()
	if err != nil {
		return nil, &StartError{Kind: BadSpec, Path: path, Detail: err.Error(), Err: errno(err)}
	}
	defer done()
	if spec.Session == Foreground {
		spec.Terminal.handed = true
	}
	c, err := spec.forkConfined(path, files)
	if err != nil {
		if spec.Session == Foreground {
			_ = spec.Terminal.Take() // the child may have got as far as taking it
		}
		return nil, explain(err, path, spec.Dir)
	}
	if st, err := ReadStat(c.Pid); err == nil {
		c.born = st.Ticks
	}
	go c.watch()
	return c, nil
}

// forkConfined forks on a thread that has restricted itself, where that is
// asked for. The child's parent is this process all the same; the thread it was
// forked on is gone, or about to be, when this returns.
func (spec Spec) forkConfined(path string, files []uintptr) (c *Child, err error) {
	if spec.Confine == nil {
		return spec.forkPatiently(path, files)
	}
	err = onThreadOfItsOwn(func() error {
		if err := spec.Confine.Enter(); err != nil {
			return &StartError{Kind: NotConfined, Path: path, Detail: err.Error(), Err: err}
		}
		c, err = spec.forkPatiently(path, files)
		return err
	})
	return c, err
}

// busyRetries are the pauses between tries on ETXTBSY, 95 ms in total. A fork
// elsewhere in this program can hold the file open for writing for a moment
// (golang/go#22315); a writer that really has it open keeps it longer.
var busyRetries = []time.Duration{1, 2, 4, 8, 16, 32, 32}

func (spec Spec) forkPatiently(path string, files []uintptr) (*Child, error) {
	for _, pause := range busyRetries {
		c, err := spec.fork(path, files)
		if !errors.Is(err, unix.ETXTBSY) {
			return c, err
		}
		time.Sleep(pause * time.Millisecond)
	}
	return spec.fork(path, files)
}

func (spec Spec) fork(path string, files []uintptr) (*Child, error) {
	children.Lock()
	defer children.Unlock()
	pidfd := -1
	pid, err := syscall.ForkExec(path, spec.Argv, &syscall.ProcAttr{
		Dir: spec.Dir, Env: spec.Env, Files: files, Sys: spec.attr(&pidfd),
	})
	if err != nil {
		return nil, err
	}
	c := &Child{
		Pid: pid, Path: path, Session: spec.Session, run: spec.Run, pidfd: pidfd,
		exited: make(chan struct{}), stops: make(chan syscall.Signal, 1),
	}
	children.live[pid] = c
	return c, nil
}

func (spec Spec) attr(pidfd *int) *syscall.SysProcAttr {
	sys := &syscall.SysProcAttr{}
	wantPidfd(sys, pidfd)
	switch spec.Session {
	case Own:
		sys.Setsid = true
		sys.Setctty, sys.Ctty = spec.HasTerminal, spec.OwnTerminal
	case Foreground:
		sys.Setpgid, sys.Foreground, sys.Ctty = true, true, spec.Terminal.fd
	}
	return sys
}

// closedFD tells ForkExec to leave a number closed in the child.
const closedFD = ^uintptr(0)

// files lays out the child's descriptors by number.
func (spec Spec) files() (fds []uintptr, done func(), err error) {
	fds = []uintptr{closedFD, closedFD, closedFD}
	var null *os.File
	done = func() {
		if null != nil {
			null.Close()
		}
	}
	for i, f := range []*os.File{spec.Stdin, spec.Stdout, spec.Stderr} {
		if f == nil {
			if null == nil {
				if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
					return nil, done, err
				}
			}
			f = null
		}
		// Fd undoes the non-blocking mode where the Go runtime has set it, and
		// leaves alone a mode that came with the file.
		if fds[i] = f.Fd(); !openFD(int(fds[i])) {
			done()
			return nil, func() {}, fmt.Errorf("descriptor %d: %w", i, unix.EBADF)
		}
	}
	for _, fd := range spec.Keep {
		if fd < 3 || !openFD(fd) {
			done()
			return nil, func() {}, fmt.Errorf("descriptor %d to keep: %w", fd, unix.EBADF)
		}
		for len(fds) <= fd {
			fds = append(fds, closedFD)
		}
		fds[fd] = uintptr(fd)
	}
	return fds, done, nil
}

// rawFD is the number of f, without a change of its blocking mode.
func rawFD(f *os.File) (uintptr, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	fd := closedFD
	if err := conn.Control(func(n uintptr) { fd = n }); err != nil {
		return 0, err
	}
	return fd, nil
}

func openFD(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

// Exited is closed when the child has ended. It stays unreaped until Reap.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Stops delivers the signal that stopped the child, each time one does. Only
// the newest is kept for a reader that is late.
func (c *Child) Stops() <-chan syscall.Signal { return c.stops }

// Status is how the child ended; the zero Status before Exited is closed.
func (c *Child) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Ended tells whether the child has ended.
func (c *Child) Ended() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

func (c *Child) ended(s Status) {
	c.mu.Lock()
	c.status = s
	abandoned := c.abandoned
	c.mu.Unlock()
	close(c.exited)
	if abandoned {
		c.Reap()
	}
}

func (c *Child) stopped(sig syscall.Signal) {
	select {
	case <-c.stops:
	default:
	}
	c.stops <- sig // only this goroutine sends, so there is room
}

// Reap waits for the child's end and gives its number back to the kernel.
// From here on nothing is signalled by that number. Safe to repeat.
func (c *Child) Reap() {
	<-c.exited
	children.Lock()
	defer children.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return
	}
	c.collect()
	c.reaped = true
	delete(children.live, c.Pid)
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
		c.pidfd = -1
	}
}

// Abandon gives up on a child that cannot be ended (asleep in the kernel). It
// is reaped whenever it does end.
func (c *Child) Abandon() {
	c.mu.Lock()
	c.abandoned = true
	c.mu.Unlock()
	if c.Ended() {
		c.Reap()
	}
}

// Signal signals the child alone.
func (c *Child) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reaped:
		return ErrGone
	case !mayBeSignalled(c.Pid):
		return errForbidden
	case c.pidfd >= 0:
		return toGone(kernel.pidfd(c.pidfd, sig, 0))
	default:
		return toGone(kernel.kill(c.Pid, sig)) // unreaped, so the number is still its own
	}
}

// SignalGroup signals the child's group, which must be its own: verified, not
// assumed, and only while the child is unreaped.
func (c *Child) SignalGroup(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Session == Shared {
		return errForbidden
	}
	if c.reaped {
		return ErrGone
	}
	group, err := unix.Getpgid(c.Pid)
	if err != nil {
		return toGone(err)
	}
	if group != c.Pid || group == unix.Getpgrp() || !mayBeSignalled(group) {
		return errForbidden
	}
	if c.pidfd >= 0 {
		// Kernels before 6.9 do not know the flag and say EINVAL.
		if err := kernel.pidfd(c.pidfd, sig, signalGroup); !errors.Is(err, unix.EINVAL) {
			return toGone(err)
		}
	}
	return toGone(kernel.kill(-group, sig))
}

func (c *Child) wasReaped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reaped
}

// hasGroup tells whether the child leads a group that may be signalled.
func (c *Child) hasGroup() bool { return c.Session != Shared }

// liveChildren copies the list of unreaped children.
func liveChildren() map[int]*Child {
	children.Lock()
	defer children.Unlock()
	live := make(map[int]*Child, len(children.live))
	for pid, c := range children.live {
		live[pid] = c
	}
	return live
}
