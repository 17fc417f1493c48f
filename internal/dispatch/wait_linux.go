package dispatch

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// waitEnd returns when the process that c names has ended, or ctx. A pidfd is
// readable from then on; the wait costs no thread.
func waitEnd(ctx context.Context, c proc.Claim) {
	fd, err := unix.PidfdOpen(c.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		watchEnd(ctx, c) // gone, or a kernel that cannot
		return
	}
	f := os.NewFile(uintptr(fd), "process")
	defer f.Close()
	if proc.Judge(c) == proc.Gone { // asked now that the number is pinned
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		watchEnd(ctx, c)
		return
	}
	// The kernel is asked inside: an end between the look above and here has raised
	// the descriptor's only event already, and nobody would be woken for it.
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	if err != nil && ctx.Err() == nil {
		watchEnd(ctx, c)
	}
}
