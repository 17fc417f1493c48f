//go:build !linux

package handoff

import (
	"net"

	"github.com/handsel/handsel/internal/home"
)

// What systemd would be told.
const (
	NotifyReady    = "READY=1"
	NotifyStopping = "STOPPING=1"
)

// Activated finds nothing: there is no systemd here.
func Activated(home.Dir) (*Listener, *net.UnixListener, error) { return nil, nil, nil }

// Notify tells nobody.
func Notify(string) error { return nil }
