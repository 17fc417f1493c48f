//go:build unix

package handsel

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
)

// offerPatience bounds the wait for an offer. Whoever starts a driver writes it
// first. Tests shorten it.
var offerPatience = 5 * time.Second

// readOffer reads an offer from a pipe and closes it. Anything but a pipe is
// left alone: the variable is a leftover then, and the descriptor somebody's.
func readOffer(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", errors.New("it is not open")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return "", errors.New("it is not a pipe")
	}
	defer unix.Close(fd)
	var said []byte
	buf := make([]byte, maxOffer)
	for until := time.Now().Add(offerPatience); strings.Count(string(said), "\n") < 2; {
		n, err := readPart(fd, buf, time.Until(until))
		if err != nil {
			return "", err
		}
		if said = append(said, buf[:n]...); n == 0 {
			break
		}
		if len(said) > maxOffer {
			return "", errors.New("it says more than an offer")
		}
	}
	return string(said), nil
}

// readPart reads what comes within a time; 0 bytes are the end.
func readPart(fd int, buf []byte, within time.Duration) (int, error) {
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(within, 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case ready == 0:
			return 0, errors.New("nothing came")
		}
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return n, err
	}
}

// prove makes lane and slots ours by what came, as in L6: each descriptor is the
// very file it is said to be, and the lock is held through it. Proven slots name
// us as their holder. On an error all that came is closed.
func (c *Claimed) prove(g *grant) (err error) {
	rest := g.fds
	defer func() {
		if err != nil {
			c.letGo()
			closeAll(rest)
		}
	}()
	if len(g.fds) != 1+len(g.Slots) {
		return fmt.Errorf("%d descriptors for a lane and %d slots", len(g.fds), len(g.Slots))
	}
	if err = c.open(); err != nil {
		return err
	}
	if c.settings, err = c.home.settings(); err != nil {
		return err
	}
	if c.hold, err = lane.Adopt(c.home.dir, c.row.Lane, g.fds[0]); err != nil {
		return err
	}
	rest = g.fds[1:]
	if c.hold.Record().Fence > c.fence {
		return ErrWithdrawn // and the lane was granted again
	}
	if len(rest) == 0 {
		c.lease = new(Lease) // nothing is counted, as at any start without a cap
		return nil
	}
	given := make([]lease.Slot, len(rest))
	for i, s := range g.Slots {
		given[i] = lease.Slot{Pool: s.Pool, Index: s.Index, Cap: s.Cap, Fd: rest[i]}
	}
	if c.lease, err = lease.Rebuild(c.home.places(c.settings.Settings), given); err != nil {
		return err
	}
	rest = nil
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// letGo closes what is ours and leaves every record as it is: they are the
// dispatcher's to write, which has not let go.
func (c *Claimed) letGo() {
	if c.hold != nil {
		c.hold.Keep()
		c.hold = nil
	}
	if c.lease != nil {
		_ = c.lease.HandOver() // an empty one has nothing to hand over
		c.lease = nil
	}
}
