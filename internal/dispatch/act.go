//go:build unix

package dispatch

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
)

// cancel ends an attempt in whatever state it is (C083). One that is driven is
// only told of: whoever cancels it ends its tree and waits for that, by the
// run's record, with the dispatcher or without.
func (d *Dispatcher) cancel(ctx context.Context, at *queue.Attempt) (api.Done, error) {
	if at.State == record.Ended {
		return done(at, "already_ended", ""), nil
	}
	if err := d.settled(ctx, at.Row.ID); err != nil {
		return api.Done{}, err
	}
	end := queue.End{
		Outcome: record.Cancelled, At: machine.Now(), Waiting: true,
		Reason: &record.Reason{Class: "ownership", Code: "cancelled", Message: "it was cancelled before it ran"},
	}
	var r *row
	d.do(func() {
		if r = d.rows[at.Row.ID]; r != nil {
			r.leaving = true
			d.unready(r)
		}
	})
	if r == nil {
		return d.noRow(at)
	}
	failpoint.Hit("cancel.ending")
	if err := d.db.End(ctx, r.ID, end); err != nil {
		d.do(func() {
			r.leaving = false
			d.judge(r)
		})
		if errors.Is(err, queue.ErrMoved) {
			return d.noRow(at)
		}
		return api.Done{}, err
	}
	failpoint.Hit("cancel.ended")
	d.recordEnd(&r.Row, end)
	d.tellEnd(&r.Row, &end)
	d.leaveLane(r)
	now, err := d.db.Find(at.Row.ID)
	if err != nil || now == nil {
		now = at
		now.State, now.Outcome = record.Ended, end.Outcome
	}
	return done(now, "cancelled", ""), nil
}

// noRow answers for an attempt that is no row any more.
func (d *Dispatcher) noRow(at *queue.Attempt) (api.Done, error) {
	now, err := d.db.Find(at.Row.ID)
	if err != nil {
		return api.Done{}, err
	}
	if now != nil {
		at = now
	}
	if at.State == record.Ended {
		return done(at, "already_ended", ""), nil
	}
	return done(at, "running", "it is driven: end its run"), nil
}

// settled waits until the attempt's offer, if it has one that is being written,
// claimed or withdrawn, is one thing or the other.
func (d *Dispatcher) settled(ctx context.Context, id string) error {
	for {
		wait := make(chan struct{})
		busy := false
		d.do(func() {
			var o *offer
			if r := d.rows[id]; r != nil {
				o = r.offer
			} else if a := d.attempts[id]; a != nil {
				o = a.offer
			}
			if o != nil && (o.phase != offered || o.starts) {
				busy = true
				o.then = append(o.then, func() { close(wait) })
			}
		})
		if !busy {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.gone:
			return errStopping
		}
	}
}

// leaveLane gives up the lane of a row that was ended, and its offer, whose
// token is dead with it.
func (d *Dispatcher) leaveLane(r *row) {
	var o *offer
	var drv *driver
	d.do(func() {
		o = r.offer
		d.remove(r)
		if o != nil {
			drv = o.driver
			o.phase = withdrawing
			o.timer.Stop()
		}
	})
	if o != nil {
		if drv != nil {
			drv.kill()
			<-drv.gone
		}
		d.released(o.lease)
	}
	d.do(func() {
		if o != nil {
			d.settleOffer(o)
			d.settleThen(o)
		}
		d.closeLane(r.hold)
		d.hide(r.Lane, r.ID)
		d.ended(r.Lane)
	})
}

// retry makes a new attempt of one that has ended, in its old place in line.
func (d *Dispatcher) retry(old *attempt.Row, state string, lost int) (*attempt.Row, error) {
	if state != record.Ended {
		return nil, refusef("ownership", "not_ended", true, "attempt %s of lane %q is %s: there is nothing to try again", old.ID, old.Lane, state)
	}
	payload, err := attempt.Read(d.cfg.Home, old.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refusef("config", "no_payload", false, "what attempt %s was to start is not kept any more", old.ID)
	}
	if err != nil {
		return nil, err
	}
	next := *old
	next.ID, next.RetryOf, next.RetryLost, next.RetryVerdict = record.NewID(), old.ID, lost, d.verdictOn(old.ID)
	if _, err := d.reserve(&next); err != nil {
		return nil, err
	}
	h, err := d.accept(&next, func() (*lane.Hold, error) {
		h, err := lane.Take(d.cfg.Home, next.Lane, d.laneRecord(next.ID))
		if err != nil {
			return nil, refusef("ownership", "lane_owned", true, "%v", err)
		}
		if err := attempt.Write(d.cfg.Home, next.ID, payload); err != nil {
			return nil, errors.Join(err, h.Release())
		}
		return h, nil
	})
	if err != nil {
		_ = attempt.Discard(d.cfg.Home, next.ID)
		d.do(func() { d.unreserve(&next) })
		return nil, err
	}
	d.do(func() {
		d.unreserve(&next)
		d.add(&row{Row: next, hold: h})
		d.ended(next.Lane) // who comes after the lane comes after this one now
	})
	return &next, nil
}

// verdictOn is the number of the verdict an attempt has, 0 without one (P10).
func (d *Dispatcher) verdictOn(id string) int {
	rec, err := record.Load(d.cfg.Home, id)
	if err != nil {
		return 0 // it has no record, and what has none has no verdict
	}
	h, err := review.Load(d.cfg.Home, rec)
	if err != nil {
		d.cfg.Log.Error("read the review of an attempt", "attempt", id, "error", err)
		return 0
	}
	if v := h.Last(); v != nil {
		return v.N
	}
	return 0
}

// retryLost starts again what was lost, as often as its row says.
func (d *Dispatcher) retryLost(lost *attempt.Row) {
	old := *lost
	d.aside(func() {
		next, err := d.retry(&old, record.Ended, old.RetryLost-1)
		if err != nil {
			d.cfg.Log.Error("retry a lost attempt", "lane", old.Lane, "attempt", old.ID, "error", err)
			return
		}
		d.cfg.Log.Info("retried", "lane", old.Lane, "attempt", next.ID, "lost", old.ID)
	})
}

// writeRecord puts an end into the run's record that nobody else can write.
func writeRecord(at home.Dir, r *attempt.Row, end queue.End) error {
	fill := func(run *record.Run) {
		run.State, run.Outcome, run.Reason, run.EndedAt = record.Ended, end.Outcome, end.Reason, record.At(end.At)
	}
	w, run, err := record.Reopen(at, r.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist): // whole from the start: nobody reads an end without its outcome
		run = newRecord(r)
		fill(run)
		if w, err = record.Create(at, run); err == nil {
			err = w.Close()
		}
		return err
	case errors.Is(err, record.ErrNone): // its driver was killed before it had written anything
		run = newRecord(r)
		w, err = record.Anew(at, r.ID)
	}
	if err != nil {
		return err
	}
	fill(run)
	run.Abandon()
	return errors.Join(w.Save(run), w.Close())
}

// newRecord is the record of an attempt that no driver ever had.
func newRecord(r *attempt.Row) *record.Run {
	me := proc.Self()
	return &record.Run{
		ID: r.ID, Verb: "run", State: r.State, Lane: r.Lane, Argv0: r.Argv0, Argc: r.Argc, Command: r.Command, Cwd: r.Placement.Cwd,
		Engine: r.Placement.Engine, Account: r.Placement.Account, Workload: r.Placement.Workload, Confinement: r.Placement.Confinement, Profile: r.Placement.Profile,
		Fence: r.Fence, Enqueued: true, RetryOf: r.RetryOf, RetryVerdict: r.RetryVerdict, UID: syscall.Getuid(), Author: r.Author, Labels: r.Labels, QueuedAt: record.At(r.Asked()),
		Handsel: record.Identity{Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot, PidNS: me.NS}, HostBoot: machine.BootID(),
	}
}

// leaving is how the dispatcher ends.
type leaving struct {
	cancel bool // end what runs, too
	relief bool // everything is being handed over to another dispatcher
	quiet  bool // nothing is half done any more
}

func (l *leaving) done() bool { return l.quiet }

// leave begins the end: nothing new is accepted or admitted, open offers are
// taken back, and what a driver is just being given is seen through.
func (d *Dispatcher) leave(l *leaving) {
	if d.leaving != nil {
		d.leaving.cancel = d.leaving.cancel || l.cancel
		return
	}
	d.leaving = l
	d.again = true
	d.aside(func() { d.quieten(l) })
}

// quieten returns to the loop when nothing is half done.
func (d *Dispatcher) quieten(l *leaving) {
	d.quiesce(l)
	var running []*open
	d.do(func() {
		for _, a := range d.attempts {
			running = append(running, a)
		}
	})
	if l.cancel {
		d.cancelRunning(running)
	}
	d.post(func() { l.quiet = true })
}

// quiesceNap is how often it is looked whether something is still half done.
const quiesceNap = 5 * time.Millisecond

// quiesce returns when nothing is half done: no row is being accepted, admitted,
// offered or claimed. l keeps anything new from being begun.
func (d *Dispatcher) quiesce(l *leaving) {
	t := time.NewTicker(quiesceNap)
	defer t.Stop()
	for {
		quiet := false
		if !d.do(func() { quiet = d.leaving != l || d.quiet() }) || quiet {
			return
		}
		<-t.C
	}
}

// quiet tells whether nothing is half done, and takes back what a driver may
// still be a long time in claiming.
func (d *Dispatcher) quiet() bool {
	quiet := d.offers == 0 && len(d.accepting) == 0 && d.acts == 0
	for _, g := range d.groups {
		quiet = quiet && g.stand == nil
	}
	for _, r := range d.rows {
		quiet = quiet && !r.leaving
		if r.offer != nil && r.offer.phase == offered {
			d.withdraw(r.offer, "the dispatcher is stopping", false)
		}
	}
	return quiet
}

// cancelRunning asks every driver to end its agent, and waits until none of
// them is left.
func (d *Dispatcher) cancelRunning(running []*open) {
	for _, a := range running {
		if err := proc.Tell(a.driver, syscall.SIGTERM); err != nil && !errors.Is(err, proc.ErrGone) {
			d.cfg.Log.Warn("end a driver", "attempt", a.id, "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*endPatience)
	defer cancel()
	for _, a := range running {
		waitEnd(ctx, a.driver)
		over := func() (gone bool) {
			d.do(func() { gone = d.attempts[a.id] != a })
			return gone
		}
		for !over() && ctx.Err() == nil {
			select {
			case <-time.After(lookNap):
			case <-ctx.Done():
			}
		}
	}
}
