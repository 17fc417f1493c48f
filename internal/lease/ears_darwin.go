package lease

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// errNoEvent: macOS reports no close of a file and has no pidfd that poll(2)
// takes. Waiters there are woken by whoever releases, hear a ticket's hang-up,
// and notice a killed holder by the fallback poll.
var errNoEvent = errors.New("no such event on this platform")

type watch struct{}

func newWatch() (*watch, error)     { return nil, errNoEvent }
func (w *watch) close()             {}
func (w *watch) fd() int            { return -1 }
func (w *watch) slots(string) error { return errNoEvent }
func (w *watch) holds(string)       {}
func (w *watch) read() ([]slotFile, bool) {
	return nil, false
}

type watched struct{ claim proc.Claim }

func watchProcess(c proc.Claim) *watched { return &watched{c} }
func (w *watched) close()                {}
func (w *watched) fd() int               { return -1 }

// stopped tells whether the process is stopped, or gone.
func (w *watched) stopped() bool {
	if w == nil {
		return false
	}
	st, err := proc.ReadStat(w.claim.Pid)
	return err != nil || st.Ticks != w.claim.Ticks || st.Stopped() || st.Zombie()
}

func openProcess(c proc.Claim) (int, error) {
	if proc.Judge(c) == proc.Gone {
		return -1, proc.ErrGone
	}
	return -1, errNoEvent
}

// interest is what of a descriptor rings the bell.
type interest int16

const (
	readable interest = unix.POLLIN
	hangUp   interest = 0 // always reported, whatever is asked for
)

// bell waits for the first of many descriptors, by poll(2) and a pipe that
// interrupts it.
type bell struct {
	r, w  *os.File
	fds   []unix.PollFd
	ended atomic.Bool
}

func newBell() (*bell, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &bell{r: r, w: w, fds: []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}}, nil
}

func (b *bell) close() {
	b.r.Close()
	b.w.Close()
}

func (b *bell) add(fd int, what interest) {
	if fd >= 0 {
		b.fds = append(b.fds, unix.PollFd{Fd: int32(fd), Events: int16(what)})
	}
}

func (b *bell) remove(fd int) {
	if b == nil || fd < 0 {
		return
	}
	for i, p := range b.fds {
		if int(p.Fd) == fd {
			b.fds = append(b.fds[:i], b.fds[i+1:]...)
			return
		}
	}
}

// wait returns the descriptors that ring, or none when the time is over or the
// bell was interrupted.
func (b *bell) wait(until time.Time) ([]int, error) {
	left := max(time.Until(until), 0)
	n, err := unix.Poll(b.fds, int(min(left/time.Millisecond+1, 1<<30)))
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil || n == 0 || b.ended.Load() {
		return nil, err
	}
	var ready []int
	for _, p := range b.fds[1:] {
		if p.Revents != 0 {
			ready = append(ready, int(p.Fd))
		}
	}
	return ready, nil
}

// interrupt ends a wait at once.
func (b *bell) interrupt() {
	b.ended.Store(true)
	_, _ = b.w.Write([]byte{1})
}
