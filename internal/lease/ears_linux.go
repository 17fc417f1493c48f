package lease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/slot"
	"golang.org/x/sys/unix"
)

// watch is an inotify instance. Readers of slots open them read-only, so only
// the close of a descriptor that could write, a holder's, is an event.
type watch struct {
	ino   int
	pools map[int32]string // watch descriptor to pool
}

func newWatch() (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &watch{ino: fd, pools: map[int32]string{}}, nil
}

func (w *watch) close()  { unix.Close(w.ino) }
func (w *watch) fd() int { return w.ino }

func (w *watch) slots(dir string) error {
	// Nobody deletes in a pool but by hand. The directory's own end would come
	// too late: an open file in it keeps it.
	const changes = unix.IN_CLOSE_WRITE | unix.IN_DELETE | unix.IN_MOVE_SELF
	wd, err := unix.InotifyAddWatch(w.ino, dir, changes|unix.IN_ONLYDIR)
	if err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	w.pools[int32(wd)] = filepath.Base(dir)
	return nil
}

// holds watches the directory of holds. It is made where it is missing: else the
// first order of a home would be heard of by nobody who waits there already.
func (w *watch) holds(dir string) {
	const changes = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVE | unix.IN_CLOSE_WRITE | unix.IN_MOVE_SELF
	if dir != "" {
		_ = os.Mkdir(dir, 0o700) // where we may not, the poll takes the watch's place
		_, _ = unix.InotifyAddWatch(w.ino, dir, changes|unix.IN_ONLYDIR)
	}
}

// read takes the pending events and names the slots whose files were closed.
// lost tells that a directory is not watched any more, or not in its place.
func (w *watch) read() (closed []slotFile, lost bool) {
	var buf [8192]byte
	for {
		n, err := unix.Read(w.ino, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return closed, lost
		}
		more, gone := w.parse(buf[:n])
		closed, lost = append(closed, more...), lost || gone
	}
}

// parse reads events of inotify(7): descriptor, mask, cookie, length, name.
func (w *watch) parse(b []byte) (closed []slotFile, lost bool) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if end > len(b) {
			break
		}
		lost = lost || mask&(unix.IN_IGNORED|unix.IN_MOVE_SELF) != 0
		name := bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00")
		if i, ok := slot.Index(string(name)); ok && mask&unix.IN_CLOSE_WRITE != 0 && w.pools[wd] != "" {
			closed = append(closed, slotFile{w.pools[wd], i})
		}
		b = b[end:]
	}
	return closed, lost
}

// watched is a process whose end and whose stopping matter to us.
type watched struct {
	pidfd int
	stat  int // its /proc/PID/stat, kept open: reading it again looks again
	ticks uint64
}

// watchProcess watches the process that c names; nil when it cannot.
func watchProcess(c proc.Claim) *watched {
	fd, err := openProcess(c)
	if err != nil {
		return nil
	}
	stat, err := unix.Open("/proc/"+strconv.Itoa(c.Pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		stat = -1
	}
	return &watched{pidfd: fd, stat: stat, ticks: c.Ticks}
}

func (w *watched) close() {
	unix.Close(w.pidfd)
	if w.stat >= 0 {
		unix.Close(w.stat)
	}
}

func (w *watched) fd() int {
	if w == nil {
		return -1
	}
	return w.pidfd
}

// stopped tells whether the process is stopped, or gone.
func (w *watched) stopped() bool {
	if w == nil || w.stat < 0 {
		return false
	}
	var buf [1024]byte
	n, err := unix.Pread(w.stat, buf[:], 0)
	if err != nil {
		return true
	}
	st, err := proc.ParseStat(buf[:n])
	return err != nil || st.Stopped() || st.Zombie()
}

// openProcess opens a pidfd of the process that c names. proc.ErrGone when it
// has ended.
func openProcess(c proc.Claim) (int, error) {
	if c.NS != 0 && c.NS != machine.PidNS() {
		return -1, errors.New("a process of another pid namespace")
	}
	fd, err := unix.PidfdOpen(c.Pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return -1, proc.ErrGone
	}
	if err != nil {
		return -1, os.NewSyscallError("pidfd_open", err)
	}
	// The number may have been given away since: look again now that it is pinned.
	if proc.Judge(c) == proc.Gone {
		unix.Close(fd)
		return -1, proc.ErrGone
	}
	return fd, nil
}

// interest is what of a descriptor rings the bell.
type interest uint32

const (
	readable interest = unix.EPOLLIN
	hangUp   interest = 0 // always reported, whatever is asked for
)

// bell waits for the first of many descriptors. It is an epoll instance inside
// the runtime's own: a sleeper then holds no processor of the Go scheduler, and
// the scheduler's watchdog sleeps too, which a blocking poll(2) would keep busy.
type bell struct {
	ep  int
	f   *os.File
	raw syscall.RawConn

	ended atomic.Bool // interrupted for good
}

func newBell() (*bell, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(ep, true); err != nil {
		unix.Close(ep)
		return nil, os.NewSyscallError("fcntl", err)
	}
	b := &bell{ep: ep, f: os.NewFile(uintptr(ep), "epoll")}
	if b.raw, err = b.f.SyscallConn(); err != nil {
		b.f.Close()
		return nil, err
	}
	return b, nil
}

func (b *bell) close() { b.f.Close() }

// add lets fd ring; -1 is nobody.
func (b *bell) add(fd int, what interest) {
	if fd >= 0 {
		_ = unix.EpollCtl(b.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: uint32(what), Fd: int32(fd)})
	}
}

// remove must come before fd is closed. On a closed bell it is too late to matter.
func (b *bell) remove(fd int) {
	if b != nil && fd >= 0 {
		_ = unix.EpollCtl(b.ep, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

// wait returns the descriptors that ring, or none when the time is over or the
// bell was interrupted.
func (b *bell) wait(until time.Time) ([]int, error) {
	if err := b.f.SetReadDeadline(until); err != nil {
		return nil, err
	}
	if b.ended.Load() {
		return nil, nil // the interrupt came before the deadline above, which would hide it
	}
	var events [16]unix.EpollEvent
	n := 0
	err := b.raw.Read(func(fd uintptr) bool {
		n, _ = unix.EpollWait(int(fd), events[:], 0)
		return n > 0
	})
	if n <= 0 {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
		return nil, err
	}
	var ready []int
	for _, e := range events[:n] {
		ready = append(ready, int(e.Fd))
	}
	return ready, nil
}

// interrupt ends a wait at once.
func (b *bell) interrupt() {
	b.ended.Store(true)
	_ = b.f.SetReadDeadline(time.Unix(1, 0))
}
