//go:build unix

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"golang.org/x/sys/unix"
)

// relieveIn bounds one step of a handover. A relief that does not answer leaves
// everything where it was.
const relieveIn = 10 * time.Second

// serveTakeover hands everything over to another dispatcher: first it begins
// nothing new and sees through what is half done, then it gives away lock,
// sockets and lanes, and ends when the last of them is acknowledged. Until then
// it is the only one that writes, and on any failure it goes on as before (L21).
func (d *Dispatcher) serveTakeover(conn *handoff.Conn) {
	if err := d.peers.outside(conn.Peer().Pid); err != nil {
		d.refuse(conn, "inside_agent", "ownership", err.Error(), false)
		return
	}
	l := &leaving{relief: true}
	begun := false
	d.do(func() {
		if begun = d.leaving == nil; begun {
			d.leaving = l
			d.again = true
		}
	})
	if !begun {
		d.refuse(conn, errStopping.code, errStopping.class, errStopping.text, true)
		return
	}
	d.quiesce(l)
	failpoint.Hit("takeover.quiet")
	if err := d.giveAll(conn); err != nil {
		d.cfg.Log.Error("takeover", "error", err)
		d.do(func() {
			d.leaving = nil
			d.again = true
		})
		return
	}
	failpoint.Hit("takeover.given")
	d.cfg.Log.Info("relieved", "pid", conn.Peer().Pid)
	d.heir.Store(conn) // the relief begins when we close it, and nothing is written after that
	d.do(func() { l.quiet = true })
	<-d.gone
}

// giveAll sends everything that is held, and returns when all is acknowledged.
func (d *Dispatcher) giveAll(conn *handoff.Conn) error {
	hand, err := d.hand.Fd()
	if err != nil {
		return err
	}
	defer unix.Close(hand)
	desk, err := home.UnixListenerFd(d.desk.sock)
	if err != nil {
		return err
	}
	defer unix.Close(desk)
	var ids []string
	var fds []int
	d.do(func() { // nothing changes from here on but by us
		for id, r := range d.rows {
			if r.hold != nil {
				ids, fds = append(ids, id), append(fds, r.hold.Fd())
			}
		}
	})
	if err := give(conn, handoff.Relief{Answer: handoff.Answer{OK: true}, Rows: len(ids)}, 3, d.lock.Fd(), hand, desk); err != nil {
		return err
	}
	failpoint.Hit("takeover.lock")
	for sent := 3; len(ids) > 0; {
		n := min(len(ids), handoff.Batch)
		sent += n
		if err := give(conn, handoff.Relieved{Attempts: ids[:n]}, sent, fds[:n]...); err != nil {
			return err
		}
		failpoint.Hit("takeover.batch")
		ids, fds = ids[n:], fds[n:]
	}
	return give(conn, handoff.Relieved{}, 0)
}

// give sends one message and waits until it is acknowledged. got is how many
// descriptors the other side must have by then; 0 asks for no number.
func give(conn *handoff.Conn, msg handoff.Message, got int, fds ...int) error {
	ctx, cancel := context.WithTimeout(context.Background(), relieveIn)
	defer cancel()
	if err := conn.Send(ctx, msg, fds...); err != nil {
		return err
	}
	f, err := conn.Receive(ctx)
	if err != nil {
		return fmt.Errorf("the relief does not acknowledge: %w", err)
	}
	f.CloseFds()
	var ack handoff.Received
	switch err := f.Decode(&ack); {
	case err != nil:
		return err
	case f.Type != ack.Type(), got != 0 && ack.Got != got:
		return fmt.Errorf("the relief acknowledged %d descriptors of %d", ack.Got, got)
	}
	return nil
}

// gift is what a relief received.
type gift struct {
	lock  int
	hand  *handoff.Listener
	api   *net.UnixListener
	lanes map[string]int // attempt → descriptor
}

func (g *gift) close() {
	if g.lock >= 0 {
		unix.Close(g.lock)
	}
	if g.hand != nil {
		g.hand.Close()
	}
	if g.api != nil {
		g.api.Close()
	}
	for _, fd := range g.lanes {
		unix.Close(fd)
	}
}

// Takeover relieves the dispatcher that runs and serves in its place until ctx
// ends. Waiting lanes are free at no moment in between: they come as held
// descriptors. The error is *home.Nobody when none runs.
func Takeover(ctx context.Context, cfg Config, ready func()) error {
	newBudget() // before the descriptors come
	conn, err := handoff.Dial(ctx, cfg.Home)
	if err != nil {
		return err
	}
	defer conn.Close()
	g, err := receive(ctx, conn, cfg.Version)
	if err != nil {
		return err
	}
	d := begin(cfg)
	if err := d.inherit(ctx, g); err != nil {
		d.letGo()
		g.close()
		return err
	}
	return d.Serve(ctx, Sockets{Handoff: g.hand, API: g.api, Ready: ready})
}

// receive takes everything over, up to the word that it is ours.
func receive(ctx context.Context, conn *handoff.Conn, version string) (g *gift, err error) {
	g = &gift{lock: -1, lanes: map[string]int{}}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if err := conn.Send(ctx, handoff.Takeover{Version: version}); err != nil {
		return g, err
	}
	if err := g.begin(ctx, conn); err != nil {
		return g, err
	}
	for {
		f, err := conn.Receive(ctx)
		if err != nil {
			return g, fmt.Errorf("the dispatcher broke the handover off: %w", err)
		}
		last, err := g.take(f)
		f.CloseFds()
		if err != nil {
			return g, err
		}
		failpoint.Hit("takeover.received")
		if err := conn.Send(ctx, handoff.Received{Got: 3 + len(g.lanes)}); err != nil {
			return g, err
		}
		if last {
			// It ends now, and lets go of the database when it does.
			if _, err := conn.Receive(ctx); err != nil && !errors.Is(err, io.EOF) && ctx.Err() != nil {
				return g, err
			}
			return g, nil
		}
	}
}

// begin takes the lock and the sockets.
func (g *gift) begin(ctx context.Context, conn *handoff.Conn) error {
	f, err := conn.Receive(ctx)
	if err != nil {
		return err
	}
	defer f.CloseFds()
	var r handoff.Relief
	switch err := f.Decode(&r); {
	case err != nil:
		return err
	case !r.OK:
		return fmt.Errorf("the dispatcher is not to be relieved: %s", r.Message)
	case len(f.Fds) != 3:
		return fmt.Errorf("the dispatcher sent %d descriptors instead of its lock and its sockets", len(f.Fds))
	}
	fds := f.Take()
	g.lock = fds[0]
	if g.hand, err = handoff.ListenerFrom(fds[1]); err != nil {
		unix.Close(fds[1])
		unix.Close(fds[2])
		return err
	}
	if g.api, err = home.UnixListenerFrom(fds[2]); err != nil {
		unix.Close(fds[2])
		return err
	}
	return conn.Send(ctx, handoff.Received{Got: 3})
}

// take keeps a batch of lanes.
func (g *gift) take(f *handoff.Frame) (last bool, err error) {
	var r handoff.Relieved
	if err := f.Decode(&r); err != nil {
		return false, err
	}
	if f.Type != r.Type() || len(f.Fds) != len(r.Attempts) {
		return false, fmt.Errorf("the dispatcher sent %d descriptors for %d lanes", len(f.Fds), len(r.Attempts))
	}
	for i, fd := range f.Take() {
		g.lanes[r.Attempts[i]] = fd
	}
	return len(r.Attempts) == 0, nil
}

// inherit makes what was received ours, and recovers the rest as after a crash.
func (d *Dispatcher) inherit(ctx context.Context, g *gift) error {
	dir, err := flock.OpenDir(d.cfg.Home.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if d.lock, err = dir.Adopt(LockName, g.lock); err != nil {
		return fmt.Errorf("the dispatcher's lock: %w", err)
	}
	g.lock = -1
	d.gift = g
	return d.open(ctx)
}

// given makes a Hold of the descriptor that came for r, if one did.
func (d *Dispatcher) given(r *row) (*lane.Hold, bool) {
	if d.gift == nil {
		return nil, false
	}
	fd, ok := d.gift.lanes[r.ID]
	if !ok {
		return nil, false
	}
	h, err := lane.Adopt(d.cfg.Home, r.Lane, fd)
	if err != nil {
		d.cfg.Log.Error("a lane that was handed over", "lane", r.Lane, "error", err)
		return nil, false
	}
	delete(d.gift.lanes, r.ID)
	return h, true
}
