package runs

import (
	"time"

	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// nerve is one kqueue.
type nerve struct {
	queue int
	dirs  map[string]int
}

func (n *nerve) open(wake int) error {
	q, err := unix.Kqueue()
	if err != nil {
		return err
	}
	unix.CloseOnExec(q)
	n.queue, n.dirs = q, map[string]int{}
	return n.add(wake, unix.EVFILT_READ, 0)
}

func (n *nerve) add(ident, filter int, notes uint32) error {
	var ev unix.Kevent_t
	unix.SetKevent(&ev, ident, filter, unix.EV_ADD|unix.EV_CLEAR)
	ev.Fflags = notes
	_, err := unix.Kevent(n.queue, []unix.Kevent_t{ev}, nil, nil)
	return err
}

func (n *nerve) shut() {
	for run := range n.dirs {
		n.drop(run)
	}
	unix.Close(n.queue)
}

func (n *nerve) process(_ string, c proc.Claim) bool {
	return n.add(c.Pid, unix.EVFILT_PROC, unix.NOTE_EXIT) == nil && proc.Judge(c) == proc.Alive
}

func (n *nerve) directory(run, path string) bool {
	fd, err := unix.Open(path, unix.O_EVTONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	if n.add(fd, unix.EVFILT_VNODE, unix.NOTE_WRITE|unix.NOTE_DELETE) != nil {
		unix.Close(fd)
		return false
	}
	n.dirs[run] = fd
	return true
}

func (n *nerve) drop(run string) {
	if fd, ok := n.dirs[run]; ok {
		unix.Close(fd)
		delete(n.dirs, run)
	}
}

func (n *nerve) sleep(d time.Duration) {
	limit := unix.NsecToTimespec(max(d, 0).Nanoseconds())
	_, _ = unix.Kevent(n.queue, nil, make([]unix.Kevent_t, 8), &limit)
}
