package handoff

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/handsel/handsel/internal/home"
	"golang.org/x/sys/unix"
)

// What systemd is told (sd_notify(3)).
const (
	NotifyReady    = daemon.SdNotifyReady
	NotifyStopping = daemon.SdNotifyStopping
)

// Activated returns the two sockets at which systemd listened for us, or nils
// if it did not start us by them. Which is which is told by the place each is
// bound to, not by a name in a unit, of which all sockets of the unit share one.
// With an error what it gave cannot be used and is closed: it is not the two
// sockets that clients of this home find. The caller then says so and listens by
// itself. The variables of the protocol are removed from the environment.
func Activated(d home.Dir) (*Listener, *net.UnixListener, error) {
	return activated(d, activation.Files(true))
}

func activated(d home.Dir, files []*os.File) (*Listener, *net.UnixListener, error) {
	if len(files) == 0 {
		return nil, nil, nil
	}
	found := map[string]*net.UnixListener{}
	var bad error
	for _, file := range files {
		if err := adopt(d, file, found); err != nil && bad == nil {
			bad = fmt.Errorf("handoff: a socket from systemd: %w", err)
		}
		file.Close()
	}
	hand, api := found[home.HandoffSocket], found[home.APISocket]
	if bad == nil && (hand == nil || api == nil) {
		bad = fmt.Errorf("handoff: systemd gave one socket of %s and %s, both are needed", home.HandoffSocket, home.APISocket)
	}
	if bad != nil {
		for _, l := range found {
			l.Close()
		}
		return nil, nil, bad
	}
	return newListener(hand), api, nil
}

func adopt(d home.Dir, file *os.File, found map[string]*net.UnixListener) error {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	l, err := home.UnixListenerFrom(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	for _, name := range []string{home.HandoffSocket, home.APISocket} {
		if found[name] == nil && d.IsSocket(name, l) {
			found[name] = l
			return nil
		}
	}
	defer l.Close()
	return fmt.Errorf("%s is no socket of the home %s, or came twice", strconv.QuoteToASCII(l.Addr().String()), strconv.QuoteToASCII(d.Path))
}

// Notify tells systemd of our state, if it wants to know.
func Notify(state string) error {
	_, err := daemon.SdNotify(false, state)
	return err
}
