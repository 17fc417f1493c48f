package handoff

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// recvmsg marks the descriptors that arrive close-on-exec right after, as the
// kernel cannot; our own starting of children waits for that meanwhile, that of
// libraries in other languages does not.
func recvmsg(fd int, p, control []byte) (n, controln, flags int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	n, controln, flags, _, err = unix.Recvmsg(fd, p, control, 0)
	if err == nil && controln > 0 {
		fds, _ := rights(control[:controln])
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
	}
	return n, controln, flags, err
}
