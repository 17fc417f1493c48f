package home

import (
	"net"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// place names a socket through the home's open directory, so that the home may
// be as deep as it likes and nothing on the way to it can be exchanged.
func (d Dir) place(name string) (*place, error) {
	dir, err := OpenFolder(d.Path)
	if err != nil {
		return nil, err
	}
	through := "/proc/self/fd/" + strconv.Itoa(dir.at)
	p := &place{dir: dir, leaf: name, path: filepath.Join(d.Path, name)}
	p.address = func(leaf string) (string, error) { return through + "/" + leaf, nil }
	var st unix.Stat_t
	if unix.Lstat(through, &st) != nil { // no /proc here
		p.address = func(leaf string) (string, error) { return direct(d.Path, leaf) }
	}
	return p, nil
}

func newSocket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

// IsSocket tells whether a listener that came from elsewhere is the one that
// clients of this home find under name, for a caller that holds the dispatcher's
// lock: then nobody else has begun to listen there. A socket that took its name
// away and is dead refuses the connection this makes, and the listener's own
// gets one that ends at once.
func (d Dir) IsSocket(name string, l *net.UnixListener) bool {
	p, err := d.place(name)
	if err != nil {
		return false
	}
	defer p.dir.Close()
	var ours, theirs unix.Stat_t
	if unix.Fstatat(p.dir.at, p.leaf, &ours, unix.AT_SYMLINK_NOFOLLOW) != nil || unix.Lstat(l.Addr().String(), &theirs) != nil {
		return false
	}
	if ours.Mode&unix.S_IFMT != unix.S_IFSOCK || ours.Dev != theirs.Dev || ours.Ino != theirs.Ino {
		return false
	}
	address, err := p.address(p.leaf)
	if err != nil {
		return false
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: address})
	if err != nil {
		return false
	}
	defer c.Close()
	at, err := whoListens(c)
	its, none := whoListens(l)
	return err == nil && none == nil && *at == *its
}

// whoListens is the process that called listen(2): of a listener itself, or of
// the one that a connection was made to.
func whoListens(sock interface {
	SyscallConn() (syscall.RawConn, error)
}) (cred *unix.Ucred, err error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	asked := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if asked != nil {
		return nil, asked
	}
	return cred, err
}
