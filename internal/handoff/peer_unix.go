//go:build unix

package handoff

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel who is on the other side, and if wanted for its pidfd.
// With an error there is none to close.
func peerOf(sock *net.UnixConn, pidfd bool) (Peer, error) {
	p := Peer{Pidfd: -1}
	raw, err := sock.SyscallConn()
	if err != nil {
		return p, err
	}
	var asked error
	if err := raw.Control(func(fd uintptr) { asked = p.ask(int(fd), pidfd) }); err != nil {
		return p, err
	}
	if asked != nil {
		return Peer{Pidfd: -1}, fmt.Errorf("handoff: who is on the other side: %w", asked)
	}
	return p, nil
}

// Own tells whether the process on the other side of a connection is of our own
// user, as Accept demands; the error is *Foreign when it is not. For the other
// socket of the home (C131).
func Own(sock *net.UnixConn) (Peer, error) {
	p, err := peerOf(sock, false)
	if err == nil && p.UID != self {
		err = &Foreign{UID: p.UID, Ours: self}
	}
	return p, err
}

func (p Peer) close() {
	if p.Pidfd >= 0 {
		unix.Close(p.Pidfd)
	}
}
