package lane

import (
	"context"
	"os"
	"time"

	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// untilGone returns when the process has ended, the time is over or ctx ends.
// The kernel tells of the end; where it cannot, the process is looked at now
// and then.
func untilGone(ctx context.Context, c proc.Claim, until time.Time) {
	fd, err := unix.PidfdOpen(c.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		poll(ctx, c, until)
		return
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	// The number may have been given away since: look again now that it is pinned.
	if proc.Judge(c) == proc.Gone {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil || f.SetReadDeadline(until) != nil {
		poll(ctx, c, until)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if ctx.Err() != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
