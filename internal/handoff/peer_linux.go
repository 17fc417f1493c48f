package handoff

import (
	"golang.org/x/sys/unix"
)

// ask fills in what the kernel noted when the connection was made.
//
// A pidfd of a process that was reaped is EINVAL or ESRCH in some kernels, and
// in others one on which every signal is ESRCH. A kernel before 6.5 has none to
// give (ENOPROTOOPT), and then nothing is known of whether the process lives.
func (p *Peer) ask(fd int, pidfd bool) error {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return err
	}
	p.Pid, p.UID = int(cred.Pid), int(cred.Uid)
	if !pidfd {
		return nil
	}
	switch its, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); {
	case err == unix.EINVAL, err == unix.ESRCH:
		p.Gone = true
	case err == nil:
		p.Pidfd = its
		p.Gone = unix.PidfdSendSignal(its, 0, nil, 0) == unix.ESRCH
	}
	return nil
}
