package home

import (
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// place names a socket by its path in the home where that fits into a sockaddr.
// Otherwise it has a short name in a directory of the user's, made of what the
// kernel calls the home directory, so that every spelling of its path means the
// same socket and two homes never share one (C110).
func (d Dir) place(name string) (*place, error) {
	dir, err := OpenFolder(d.Path)
	if err != nil {
		return nil, err
	}
	p := &place{dir: dir, leaf: name, path: filepath.Join(d.Path, name)}
	p.address = func(leaf string) (string, error) { return direct(p.dir.path, leaf) }
	// The longer of the two names it will have; see tempName.
	if _, err := direct(d.Path, longest(name, tempPrefix+"0123456789abcdef")); err == nil {
		return p, nil
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(dir.at, &st); err != nil {
		return nil, &Unusable{Path: d.Path, Err: err}
	}
	short, err := sockets()
	if err != nil {
		return nil, err
	}
	p.dir = short
	p.leaf = fmt.Sprintf("%x-%x.%s", uint32(st.Dev), st.Ino, name)
	return p, nil
}

// sockets opens the directory of the sockets of this user's deep homes.
func sockets() (*Folder, error) {
	user, err := UserHome()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(user, ".handsel-sockets")
	if err := EnsureDir(path); err != nil {
		return nil, err
	}
	return OpenFolder(path)
}

func longest(a, b string) string {
	if len(a) > len(b) {
		return a
	}
	return b
}

// newSocket keeps a child that is being started from inheriting the socket.
func newSocket() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	return fd, err
}
