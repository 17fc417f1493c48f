//go:build unix

package dispatch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/queue"
)

// offer is an admitted row that waits to be claimed. It belongs to the loop.
type offer struct {
	row    *row
	lease  *lease.Lease
	hash   []byte // of the token; the token itself is only on its way to the driver
	phase  phase
	since  time.Time // of the commit, on this process's clock
	driver *driver   // nil until it was started
	timer  *time.Timer
	starts bool     // its driver is being started
	undo   func()   // takes it back, once its driver has been started
	then   []func() // what waits for the offer to be settled
}

// phase is how far an offer has come. Only an open one can be claimed.
type phase int

const (
	committing  phase = iota // starting is being written
	offered                  // a driver may claim it
	claiming                 // a driver is
	withdrawing              // it is being taken back
)

// tokenSize is the token in bytes: 256 random bits, twice what L13a asks for.
const tokenSize = 32

func newToken() (token string, hash []byte) {
	var b [tokenSize]byte
	_, _ = rand.Read(b[:]) // it never fails: see crypto/rand
	token = hex.EncodeToString(b[:])
	return token, hashOf(token)
}

func hashOf(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// late tells whether an offer made at since is over at now: not at the deadline
// but a moment later (L15a).
func late(since, now time.Time, window time.Duration) bool { return now.Sub(since) > window }

// offer makes r, which was admitted at that time, claimable: the state first, then
// a driver that has the token.
func (d *Dispatcher) offer(r *row, l *lease.Lease, at time.Time) {
	token, hash := newToken()
	o := &offer{row: r, lease: l, hash: hash}
	d.account(r, time.Now())
	r.offer = o
	d.offers++
	d.unready(r)
	id := r.ID
	d.asideBy(func() func() {
		starts, err := d.db.Offer(context.Background(), id, hash, at)
		failpoint.Hit("admit.offered")
		return func() { d.offered(o, token, starts, at, err) }
	})
}

// offered goes on when the state is written.
func (d *Dispatcher) offered(o *offer, token string, starts int, at time.Time, err error) {
	r := o.row
	if err != nil {
		d.cfg.Log.Error("offer", "lane", r.Lane, "attempt", r.ID, "error", err)
		d.release(o.lease)
		d.settleOffer(o)
		r.LastFailure, r.retry = "the offer could not be written", time.Now().Add(poll)
		d.judge(r)
		d.wakeAt(r)
		return
	}
	r.State, r.StateSince, r.AdmittedAt, r.Starts = attempt.Starting, attempt.At(at), attempt.At(at), starts
	o.phase, o.since = offered, time.Now()
	d.show(r)
	o.timer = time.AfterFunc(d.cfg.ClaimWindow+time.Millisecond, func() { d.post(func() { d.expire(o) }) })
	o.starts = true
	command := d.driverOf(r)
	id := r.ID
	d.asideBy(func() func() {
		drv, err := d.startDriver(command, id, token)
		failpoint.Hit("admit.spawned")
		return func() { d.spawned(o, drv, err) }
	})
}

// settleThen does what waited for the offer to be one thing or the other.
func (d *Dispatcher) settleThen(o *offer) {
	then := o.then
	o.then = nil
	for _, f := range then {
		f()
	}
}

func (d *Dispatcher) driverOf(r *row) []string {
	if len(r.Driver) > 0 {
		return r.Driver
	}
	return d.cfg.Driver
}

func (d *Dispatcher) spawned(o *offer, drv *driver, err error) {
	o.starts, o.driver = false, drv
	d.settleThen(o)
	switch {
	case o.undo != nil:
		o.undo()
		return
	case err != nil:
		d.withdraw(o, fmt.Sprintf("its driver could not be started: %v", err), true)
		return
	}
	d.aside(func() {
		select {
		case <-drv.gone:
		case <-d.life.Done():
			return
		}
		d.post(func() {
			if o.phase == offered && o.row.offer == o {
				d.withdraw(o, "its driver ended without claiming it"+drv.how(), true)
			}
		})
	})
}

// expire takes back an offer whose time is over.
func (d *Dispatcher) expire(o *offer) {
	if o.phase != offered || o.row.offer != o {
		return
	}
	if !late(o.since, time.Now(), d.cfg.ClaimWindow) {
		o.timer.Reset(time.Millisecond)
		return
	}
	d.withdraw(o, fmt.Sprintf("nobody claimed it within %v", d.cfg.ClaimWindow), true)
}

// withdraw takes an offer back: the row is queued again in its old place, the
// token is good for nothing, the driver is ended and the slots are free (L15a).
// The write decides: after it no claim is granted, whatever arrives.
func (d *Dispatcher) withdraw(o *offer, why string, unclaimed bool) {
	o.phase = withdrawing
	o.timer.Stop()
	if o.starts {
		o.undo = func() { d.withdraw(o, why, unclaimed) }
		return
	}
	id, drv := o.row.ID, o.driver
	d.asideBy(func() func() {
		failpoint.Hit("expire.withdrawing")
		err := d.db.Withdraw(context.Background(), id, o.hash, why, unclaimed)
		failpoint.Hit("expire.withdrawn")
		if err != nil && !errors.Is(err, queue.ErrMoved) {
			d.cfg.Log.Error("withdraw an offer", "attempt", id, "error", err)
			time.Sleep(poll) // the disk is full, say: the token stays dead in memory meanwhile
			return func() { d.withdraw(o, why, unclaimed) }
		}
		if drv != nil {
			drv.kill()
			<-drv.gone
		}
		d.released(o.lease)
		failpoint.Hit("expire.released")
		return func() { d.withdrawn(o, why, unclaimed) }
	})
}

func (d *Dispatcher) withdrawn(o *offer, why string, unclaimed bool) {
	r := o.row
	d.settleOffer(o)
	d.settleThen(o)
	if r.leaving || d.rows[r.ID] != r {
		return
	}
	d.cfg.Log.Info("withdrawn", "lane", r.Lane, "attempt", r.ID, "why", why)
	d.queued(r)
	if unclaimed {
		d.unclaimed(r, why)
	}
	d.judge(r)
	d.show(r)
}

// queued puts a row's state back; start and priority never move.
func (d *Dispatcher) queued(r *row) {
	r.State, r.StateSince, r.AdmittedAt = attempt.Queued, attempt.At(machine.Now()), attempt.Time{}
}

// settleOffer closes the offer's account.
func (d *Dispatcher) settleOffer(o *offer) {
	o.row.offer = nil
	d.offers--
	d.again = true
}

// unclaimed counts a start that nobody took: the next one waits a little longer
// each time, and after some in a row the lane is held, with the reason (L15a).
func (d *Dispatcher) unclaimed(r *row, why string) {
	r.Unclaimed++
	r.LastFailure = why
	if r.Unclaimed >= d.cfg.Unclaimed {
		o := hold.Order{
			Scope: "lane:" + r.Lane, Kind: hold.Hold, Code: "unclaimed", By: "dispatcher",
			Reason: fmt.Sprintf("%d starts in a row were not claimed; the last one: %s", r.Unclaimed, why),
		}
		if err := hold.Put(d.cfg.Home, o); err != nil {
			d.cfg.Log.Error("hold a lane", "lane", r.Lane, "error", err)
		}
		r.Unclaimed = 0
		d.tellHeld(&r.Row, o)
		d.readOrders()
	}
	r.retry = time.Now().Add(backOff(r.Unclaimed))
	d.wakeAt(r)
	id, n, until := r.ID, r.Unclaimed, machine.Now().Add(backOff(r.Unclaimed))
	d.aside(func() {
		if err := d.db.Note(context.Background(), id, n, why, until); err != nil {
			d.cfg.Log.Error("note an unclaimed start", "attempt", id, "error", err)
		}
	})
}

// backOff is how long a row rests after n unclaimed starts in a row.
func backOff(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return min(time.Second<<(n-1), time.Minute)
}

// wakeAt judges r again when its rest is over.
func (d *Dispatcher) wakeAt(r *row) {
	time.AfterFunc(time.Until(r.retry)+time.Millisecond, func() {
		d.post(func() {
			if d.rows[r.ID] == r {
				d.judge(r)
			}
		})
	})
}

// claim finds the offer that a driver means. The answer to anything else is the
// same, so that nothing is learnt by guessing (L14).
func (d *Dispatcher) claim(id, token string) (*offer, error) {
	r := d.rows[id]
	if r == nil || r.offer == nil || r.offer.phase != offered || r.leaving ||
		subtle.ConstantTimeCompare(r.offer.hash, hashOf(token)) != 1 {
		return nil, errNoRow
	}
	o := r.offer
	if late(o.since, time.Now(), d.cfg.ClaimWindow) {
		d.expire(o)
		return nil, errNoRow
	}
	o.phase = claiming
	o.timer.Stop()
	return o, nil
}

var errNoRow = errors.New("no admitted row for this token")
