package home

import (
	"context"
	"errors"
	"net"
	"path/filepath"
)

var errNoSockets = errors.New("the dispatcher is not supported on Windows")

// ListenUnix is not supported on Windows.
func (d Dir) ListenUnix(name string) (*net.UnixListener, error) {
	return nil, &Unusable{Path: filepath.Join(d.Path, name), Err: errNoSockets}
}

// DialUnix finds nobody on Windows.
func (d Dir) DialUnix(_ context.Context, name string) (*net.UnixConn, error) {
	return nil, &Nobody{Path: filepath.Join(d.Path, name), Err: errNoSockets}
}

// UnixListenerFrom is not supported on Windows.
func UnixListenerFrom(int) (*net.UnixListener, error) { return nil, errNotListening }

// UnixListenerFd is not supported on Windows.
func UnixListenerFd(*net.UnixListener) (int, error) { return -1, errNoSockets }
