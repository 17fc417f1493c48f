package handoff

import "golang.org/x/sys/unix"

// ask fills in what the kernel noted when the connection was made. It has no
// pidfds.
func (p *Peer) ask(fd int, _ bool) error {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return err
	}
	p.UID = int(cred.Uid)
	if pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
		p.Pid = pid
	}
	return nil
}
