package runs

import (
	"errors"
	"time"

	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// nerve is pidfds, one inotify instance, and poll(2).
type nerve struct {
	wake   int
	ino    int // -1 = the limit of instances is reached
	pidfds []pidfd
	dirs   map[string]int
}

type pidfd struct {
	run string
	fd  int
}

func (n *nerve) open(wake int) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		fd = -1
	}
	n.wake, n.ino, n.dirs = wake, fd, map[string]int{}
	return nil
}

func (n *nerve) shut() {
	for _, p := range n.pidfds {
		unix.Close(p.fd)
	}
	n.pidfds = nil
	if n.ino >= 0 {
		unix.Close(n.ino)
	}
}

func (n *nerve) process(run string, c proc.Claim) bool {
	fd, err := unix.PidfdOpen(c.Pid, 0)
	if err != nil {
		return false
	}
	// The number may have been given away since: look again now that it is pinned.
	if proc.Judge(c) != proc.Alive {
		unix.Close(fd)
		return false
	}
	n.pidfds = append(n.pidfds, pidfd{run, fd})
	return true
}

func (n *nerve) directory(run, path string) bool {
	if n.ino < 0 {
		return false
	}
	wd, err := unix.InotifyAddWatch(n.ino, path, unix.IN_MOVED_TO|unix.IN_DELETE_SELF|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	if err != nil {
		return false
	}
	n.dirs[run] = wd
	return true
}

func (n *nerve) drop(run string) {
	keep := n.pidfds[:0]
	for _, p := range n.pidfds {
		if p.run == run {
			unix.Close(p.fd)
			continue
		}
		keep = append(keep, p)
	}
	n.pidfds = keep
	if wd, ok := n.dirs[run]; ok {
		_, _ = unix.InotifyRmWatch(n.ino, uint32(wd))
		delete(n.dirs, run)
	}
}

// sleep waits for the first event. A process that has ended is not watched
// any longer, as its descriptor would stay readable for ever.
func (n *nerve) sleep(d time.Duration) {
	fds := []unix.PollFd{{Fd: int32(n.wake), Events: unix.POLLIN}, {Fd: int32(n.ino), Events: unix.POLLIN}}
	for _, p := range n.pidfds {
		fds = append(fds, unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
	}
	if !pollUntil(fds, time.Now().Add(d)) {
		return
	}
	if fds[1].Revents != 0 {
		n.drain()
	}
	var keep []pidfd
	for i, p := range n.pidfds {
		if fds[2+i].Revents != 0 {
			unix.Close(p.fd)
			continue
		}
		keep = append(keep, p)
	}
	n.pidfds = keep
}

// pollUntil tells whether one of fds is ready before the time is over.
func pollUntil(fds []unix.PollFd, until time.Time) bool {
	for {
		count, err := unix.Poll(fds, int(max(time.Until(until), 0)/time.Millisecond)+1)
		if errors.Is(err, unix.EINTR) && time.Now().Before(until) {
			continue
		}
		return err == nil && count > 0
	}
}

func (n *nerve) drain() {
	var buf [4096]byte
	for {
		got, err := unix.Read(n.ino, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if got <= 0 || err != nil {
			return
		}
	}
}
