//go:build unix

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/queue"
)

// serveClaim grants an offer to the driver that shows its token, and sees to it
// that exactly one of us owns the lane afterwards.
func (d *Dispatcher) serveClaim(conn *handoff.Conn, f *handoff.Frame) {
	f.CloseFds() // a claim carries none
	var ask handoff.Claim
	if err := f.Decode(&ask); err != nil {
		d.refuse(conn, "bad_request", "config", err.Error(), false)
		return
	}
	failpoint.Hit("grant.asked")
	a, err := d.grant(&ask, conn.Peer())
	if err != nil {
		d.cfg.Log.Warn("claim refused", "attempt", ask.Attempt, "pid", conn.Peer().Pid, "error", err)
		d.refuse(conn, "no_offer", "ownership", errNoRow.Error(), false)
		return
	}
	failpoint.Hit("grant.granted")
	acked := d.send(conn, a)
	d.settle(a, acked)
}

// grant turns the row into an open attempt, in one write (L14).
func (d *Dispatcher) grant(ask *handoff.Claim, peer handoff.Peer) (*open, error) {
	var o *offer
	var err error = errNoRow
	d.do(func() { o, err = d.claim(ask.Attempt, ask.Token) })
	if err != nil {
		return nil, err
	}
	a := &open{
		id: o.row.ID, lane: o.row.Lane, n: o.row.Starts, row: o.row.Row, hold: o.row.hold, lease: o.lease,
		offer: o, state: attempt.Starting,
	}
	a.row.WaitedFor = o.row.waitedFor() // nothing adds to it while it is offered
	// Who shows the token drives, whatever process we started to bring it here;
	// the kernel says who that is (C132).
	a.driver = identify(peer.Pid)
	who := queue.Driver{Pid: a.driver.Pid, Ticks: a.driver.Ticks, BootID: a.driver.Boot}
	a.fence, err = d.fence(a.hold, a.id, o.hash, who)
	if err != nil {
		d.do(func() { d.ungranted(o, err) })
		return nil, err
	}
	d.do(func() {
		r := o.row
		r.Fence = a.fence
		d.remove(r)
		a.grantedAt = machine.Now()
		d.attempts[a.id] = a
		d.lanes[a.lane] = a.id
	})
	return a, nil
}

// fence grants the lane its next fence: greater than any that the database or the
// lane's file knows of. The file knows it before anybody is told, so that a direct
// run that gets the lane after a crash takes a greater one (P9).
func (d *Dispatcher) fence(h *lane.Hold, id string, hash []byte, who queue.Driver) (uint64, error) {
	n, err := d.db.Grant(context.Background(), id, hash, who, h.Record().Fence)
	if err != nil {
		return 0, err
	}
	failpoint.Hit("grant.fenced")
	rec := d.laneRecord(id)
	rec.Fence = n
	if err := h.SetOwner(rec); err != nil { // the driver writes it as well, or does not begin
		d.cfg.Log.Warn("record a fence", "lane", h.Name(), "fence", n, "error", err)
	}
	return n, nil
}

// identify is who a pid is now, or as much as can be said.
func identify(pid int) proc.Claim {
	id, err := proc.Identify(pid)
	if err != nil {
		return proc.Claim{Pid: pid, Ticks: 1, Boot: machine.BootID()} // gone: nobody has that start
	}
	return id.Claim()
}

// ungranted puts an offer back that could not be granted.
func (d *Dispatcher) ungranted(o *offer, err error) {
	if !errors.Is(err, queue.ErrMoved) {
		d.cfg.Log.Error("grant", "attempt", o.row.ID, "error", err)
	}
	o.phase = offered
	d.withdraw(o, "it could not be granted", false)
	d.settleThen(o)
}

// send sends lane and slots, and waits for the driver's word: true that it has
// begun, false that it did not say.
func (d *Dispatcher) send(conn *handoff.Conn, a *open) (acked bool) {
	g := handoff.Granted{Answer: handoff.Answer{OK: true, State: attempt.Starting, Lane: a.lane, Attempt: a.id}, Row: a.row, Fence: a.fence, Start: a.n}
	fds := []int{a.hold.Fd()}
	for _, s := range a.lease.Slots() {
		g.Slots = append(g.Slots, handoff.SlotRef{Pool: s.Pool, Index: s.Index, Cap: s.Cap})
		fds = append(fds, s.Fd)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.AckWindow)
	defer cancel()
	if err := conn.Send(ctx, g, fds...); err != nil {
		d.cfg.Log.Warn("send a grant", "attempt", a.id, "error", err)
		return false
	}
	failpoint.Hit("grant.sent")
	f, err := conn.Receive(ctx)
	if err != nil {
		return false
	}
	f.CloseFds()
	var ack handoff.Ack
	return f.Decode(&ack) == nil && ack.Attempt == a.id && ack.Start == a.n && ack.Begun
}

// settle decides who owns a granted attempt: the driver, if it has begun; else
// we do again. Whoever creates begun.N first has decided, so nothing is guessed
// from silence (L15). Our copies of the descriptors stay until then: at no
// moment was the lane free.
func (d *Dispatcher) settle(a *open, acked bool) {
	failpoint.Hit("grant.settling")
	begun := acked || d.decide(a)
	if begun {
		d.handOver(a)
		return
	}
	d.takeBack(a)
}

// decide waits, for what is left of the driver's time, for begun.N or for its
// end, and then withdraws the start.
func (d *Dispatcher) decide(a *open) (begun bool) {
	if b, err := attempt.ReadBegun(d.cfg.Home, a.id, a.n); err == nil {
		return b.What == attempt.Began
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.AckWindow)
	defer cancel()
	waitEnd(ctx, a.driver)
	failpoint.Hit("grant.withdrawing")
	err := attempt.Begin(d.cfg.Home, a.id, a.n, withdrawal())
	var taken *attempt.Taken
	switch {
	case err == nil:
		return false
	case errors.As(err, &taken):
		return taken.By.What == attempt.Began
	case errors.Is(err, fs.ErrNotExist):
		return false // no directory: no driver can begin in it
	}
	d.cfg.Log.Error("withdraw a start", "attempt", a.id, "error", err)
	return proc.Judge(a.driver) != proc.Gone // it may begin yet: the lane is its own until it ends
}

// withdrawal is our entry in begun.N.
func withdrawal() attempt.Begun {
	me := proc.Self()
	return attempt.Begun{What: attempt.Withdrawn, Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot, At: attempt.At(machine.Now())}
}

// handOver lets go of what the driver owns now.
func (d *Dispatcher) handOver(a *open) {
	n := 1 + len(a.lease.Slots())
	a.hold.Keep()
	if err := a.lease.HandOver(); err != nil && !errors.Is(err, lease.ErrEmpty) {
		d.cfg.Log.Warn("hand over a lease", "attempt", a.id, "error", err)
	}
	d.fds.give(n)
	failpoint.Hit("grant.handed")
	if err := d.db.Begun(context.Background(), a.id); err != nil && !errors.Is(err, queue.ErrMoved) {
		d.cfg.Log.Error("record a beginning", "attempt", a.id, "error", err)
	}
	failpoint.Hit("grant.begun")
	d.do(func() {
		a.hold, a.lease = nil, nil
		a.state, a.begunAt = runningState, machine.Now()
		d.tellAttempt(a, "started")
		d.settleOffer(a.offer)
		then := a.offer.then
		a.offer = nil
		for _, f := range then {
			f()
		}
		d.showAttempt(a)
		d.watch(a)
	})
}

// takeBack makes the lane ours alone again: nothing was started and nothing can
// be, so the driver is ended, and the row waits in its old place with its token
// burned.
func (d *Dispatcher) takeBack(a *open) {
	var drv *driver
	d.do(func() { drv = a.offer.driver })
	if drv != nil {
		drv.kill()
	}
	_ = proc.Tell(a.driver, killSignal)
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	waitEnd(ctx, a.driver)
	failpoint.Hit("grant.ended")
	why := fmt.Sprintf("its driver (pid %d) took it and did not begin", a.driver.Pid)
	if err := a.hold.SetOwner(d.laneRecord(a.id)); err != nil {
		d.cfg.Log.Warn("record a lane", "lane", a.lane, "error", err)
	}
	d.released(a.lease)
	for {
		err := d.db.Requeue(context.Background(), a.id, why)
		if err == nil || errors.Is(err, queue.ErrMoved) {
			break
		}
		d.cfg.Log.Error("requeue", "attempt", a.id, "error", err)
		time.Sleep(poll)
	}
	failpoint.Hit("grant.requeued")
	d.do(func() { d.requeued(a, why) })
}

// requeued makes a row of an attempt that did not begin.
func (d *Dispatcher) requeued(a *open, why string) {
	delete(d.attempts, a.id)
	if a.offer != nil {
		d.settleOffer(a.offer)
	}
	r := &row{Row: a.row, hold: a.hold}
	r.waitedAgain(a.row.WaitedFor)
	r.LastFailure = why
	d.queued(r)
	d.add(r)
	if a.offer != nil {
		for _, f := range a.offer.then {
			f()
		}
	}
	if d.rows[r.ID] == r && !r.leaving {
		d.unclaimed(r, why)
		d.judge(r)
		d.show(r)
	}
}

// laneRecord is what a lane's file says while its row waits. It names no run:
// nothing of it can be running.
func (d *Dispatcher) laneRecord(id string) lane.Record {
	rec := lane.Mine(lane.RoleDispatcher)
	rec.Attempt = id
	return rec
}
