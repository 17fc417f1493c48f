//go:build unix

package home

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// place is where a socket has its name: a directory, and how connect(2) and
// bind(2) are told a name in it, which must fit into a sockaddr whatever the
// depth of the home.
type place struct {
	dir     *Folder
	leaf    string // the socket's name in dir
	path    string // where people will look for it
	address func(leaf string) (string, error)
}

// ListenUnix listens at a Unix stream socket called name in the home, which
// must exist. What has that name, a socket somebody listens at included, is
// replaced in one step, so the caller must be the one who may do that: it holds
// the dispatcher's lock (L19). Others cannot connect at any moment (C131), and
// the name stays when the listener is closed.
//
// Errors: *Untrusted, *Unusable, fs.ErrNotExist for a missing home.
func (d Dir) ListenUnix(name string) (*net.UnixListener, error) {
	p, err := d.place(name)
	if err != nil {
		return nil, err
	}
	defer p.dir.Close()
	temp := tempName()
	fd, err := p.listen(temp)
	if err != nil {
		return nil, &Unusable{Path: p.path, Err: err}
	}
	l, err := UnixListenerFrom(fd)
	if err != nil {
		unix.Close(fd)
	} else if err = unix.Renameat(p.dir.at, temp, p.dir.at, p.leaf); err != nil {
		l.Close()
	}
	if err != nil {
		_ = unix.Unlinkat(p.dir.at, temp, 0)
		return nil, &Unusable{Path: p.path, Err: err}
	}
	return l, nil
}

// listen makes a socket under a name nobody knows yet, and listens at it once
// its mode is right.
func (p *place) listen(temp string) (int, error) {
	fd, err := p.bind(temp)
	if err != nil {
		return -1, err
	}
	if err = unix.Fchmodat(p.dir.at, temp, 0o600, 0); err == nil {
		err = unix.Listen(fd, maxBacklog)
	}
	if err != nil {
		unix.Close(fd)
		_ = unix.Unlinkat(p.dir.at, temp, 0)
		return -1, err
	}
	return fd, nil
}

// bind gives a new socket its name. Linux takes the mode from the socket, less
// the umask, so that it is never open to others; macOS from the umask alone, so
// that there it is the directory, and nobody listening, that keeps others out.
func (p *place) bind(temp string) (int, error) {
	address, err := p.address(temp)
	if err != nil {
		return -1, err
	}
	fd, err := newSocket()
	if err != nil {
		return -1, err
	}
	_ = unix.Fchmod(fd, 0o600) // EINVAL on macOS
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// dialPatience bounds how long DialUnix waits for a place in a full backlog
// when its context has no end, and dialStep how long it waits between two
// tries: the kernel reports no event for it.
const (
	dialPatience = 5 * time.Second
	dialStep     = 5 * time.Millisecond
)

// DialUnix connects to the socket called name in the home. It is *Nobody when
// no process listens there, the home being absent included. A backlog that is
// full is waited for, as long as ctx allows and at most five seconds.
func (d Dir) DialUnix(ctx context.Context, name string) (*net.UnixConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := d.place(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Nobody{Path: filepath.Join(d.Path, name), Err: err}
	}
	if err != nil {
		return nil, err
	}
	defer p.dir.Close()
	address, err := p.address(p.leaf)
	if err != nil {
		return nil, &Unusable{Path: p.path, Err: err}
	}
	var late <-chan time.Time
	for {
		// Connecting a Unix socket that does not block never takes time.
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: address})
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
			return nil, &Nobody{Path: p.path, Err: bareNet(err)}
		case !errors.Is(err, unix.EAGAIN):
			return nil, &Unusable{Path: p.path, Err: bareNet(err)}
		}
		if late == nil {
			late = time.After(dialPatience)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late:
			return nil, &Unusable{Path: p.path, Err: errors.New("too many connections wait there to be accepted")}
		case <-time.After(dialStep):
		}
	}
}

// UnixListenerFrom makes a listener of a descriptor that came from elsewhere:
// from systemd, or from the dispatcher that is being relieved. It must be a
// listening Unix stream socket with a name. The descriptor is closed on
// success, the listener having its own copy, and stays the caller's otherwise.
func UnixListenerFrom(fd int) (*net.UnixListener, error) {
	if !listening(fd) {
		return nil, errNotListening
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(own), "listener")
	defer file.Close()
	l, err := net.FileListener(file) // makes it non-blocking
	if err != nil {
		return nil, bareNet(err)
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, errNotListening
	}
	ul.SetUnlinkOnClose(false)
	unix.Close(fd)
	return ul, nil
}

func listening(fd int) bool {
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return false
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return false
	}
	name, err := unix.Getsockname(fd)
	at, ok := name.(*unix.SockaddrUnix)
	return err == nil && ok && at.Name != ""
}

// UnixListenerFd is another descriptor of the listener's socket, close-on-exec,
// to pass on. The caller closes it. (File and its Fd would make the socket a
// blocking one for everybody who has it.)
func UnixListenerFd(l *net.UnixListener) (int, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return -1, err
	}
	own := -1
	var dup error
	if err := raw.Control(func(fd uintptr) { own, dup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return -1, err
	}
	return own, dup
}

// direct is the address of a name in the home by its path, where that fits.
func direct(dir, leaf string) (string, error) {
	path := filepath.Join(dir, leaf)
	if max := len(unix.RawSockaddrUnix{}.Path) - 1; len(path) > max {
		return "", fmt.Errorf("the path of a socket in it has %d bytes, and the kernel takes %d", len(path), max)
	}
	return path, nil
}

// bareNet strips what the net package puts around an errno.
func bareNet(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
