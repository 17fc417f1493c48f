package handoff

import "golang.org/x/sys/unix"

// recvmsg gives every descriptor that arrives its close-on-exec flag as it is
// made, so that no child that is being started can get it (C064).
func recvmsg(fd int, p, control []byte) (n, controln, flags int, err error) {
	n, controln, flags, _, err = unix.Recvmsg(fd, p, control, unix.MSG_CMSG_CLOEXEC)
	return n, controln, flags, err
}
