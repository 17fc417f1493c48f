package queue

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
)

// What an event says happened.
const (
	Accepted  = "accepted"
	Offered   = "offered"
	Withdrawn = "withdrawn"
	Granted   = "granted"
	Begun     = "begun"
	Requeued  = "requeued"
	Ended     = "ended"
	Moved     = "moved" // to another place in line: its priority was changed
)

// Accept stores a new row as queued. *Exists when its lane has a waiting row,
// or its attempt is known. An open attempt in the lane is no obstacle: whoever
// brings the lane's lock has proven that nobody runs in it.
func (db *DB) Accept(ctx context.Context, r *attempt.Row) error {
	now := stamp(machine.Now())
	since := now
	if !r.StateSince.IsZero() {
		since = stamp(r.StateSince.Time)
	}
	err := db.change(ctx, func(w *writer) error {
		if err := w.free(r.ID, r.Lane); err != nil {
			return err
		}
		if err := bindRow(w.run(sqlInsert), r, record.Queued, since).exec(); err != nil {
			return err
		}
		failpoint.Hit("queue.accept")
		return w.event(now, w.conn.LastInsertRowID(), Accepted, "", record.Queued, triesAgain(r))
	})
	if err == nil {
		failpoint.Hit("queue.accept.done")
	}
	return err
}

// triesAgain is what an accepted row is a new attempt at, and empty for the first.
func triesAgain(r *attempt.Row) string {
	switch {
	case r.RetryOf == "":
		return ""
	case r.RetryVerdict > 0:
		return fmt.Sprintf("it tries %s again, which has verdict %d", r.RetryOf, r.RetryVerdict)
	}
	return fmt.Sprintf("it tries %s again", r.RetryOf)
}

// free is *Exists when a row of that id and lane cannot be stored.
func (w *writer) free(id, lane string) error {
	there := &Exists{Lane: lane, Attempt: id}
	found, err := w.run(sqlKnown).text(id).row(func(s *sqlite3.Stmt) { there.Lane = s.ColumnText(0) })
	if err == nil && !found {
		found, err = w.waiting(lane, there)
	}
	if err != nil {
		return err
	}
	if found {
		return there
	}
	return nil
}

func (w *writer) waiting(lane string, there *Exists) (bool, error) {
	return w.run(sqlWaiting).text(lane).row(func(s *sqlite3.Stmt) { there.Attempt = s.ColumnText(0) })
}

// Offer moves a queued row to starting, under a token of which only the hash is
// stored, and counts the start. ErrMoved when it is not queued.
func (db *DB) Offer(ctx context.Context, id string, tokenHash []byte, at time.Time) (starts int, err error) {
	if len(tokenHash) == 0 {
		return 0, errors.New("an offer without a token")
	}
	now := stamp(at)
	err = db.change(ctx, func(w *writer) error {
		var seq int64
		found, err := w.run(sqlOffer).text(id).text(now).blob(tokenHash).row(func(s *sqlite3.Stmt) {
			seq, starts = s.ColumnInt64(0), s.ColumnInt(1)
		})
		if err := moved(found, err); err != nil {
			return err
		}
		failpoint.Hit("queue.offer")
		return w.event(now, seq, Offered, record.Queued, record.Starting, "start "+strconv.Itoa(starts))
	})
	if err != nil {
		return 0, err
	}
	failpoint.Hit("queue.offer.done")
	return starts, nil
}

// Withdraw moves a starting row with that token back to queued, at its place,
// and forgets the token. unclaimed counts the start as one that nobody claimed,
// for the reason why. ErrMoved when the offer is not open: a claim won.
func (db *DB) Withdraw(ctx context.Context, id string, tokenHash []byte, why string, unclaimed bool) error {
	now := stamp(machine.Now())
	err := db.change(ctx, func(w *writer) error {
		at, err := w.offer(id, tokenHash)
		if err != nil {
			return err
		}
		found, err := w.run(sqlWithdraw).int(at.seq).blob(tokenHash).text(now).bool(unclaimed).some(why).row(nil)
		if err := moved(found, err); err != nil {
			return err
		}
		failpoint.Hit("queue.withdraw")
		return w.event(now, at.seq, Withdrawn, record.Starting, record.Queued, why)
	})
	if err == nil {
		failpoint.Hit("queue.withdraw.done")
	}
	return err
}

// Grant makes a starting row with that token an open attempt of d, and gives
// its lane the next fence: greater than the one stored, and than floor. The
// token is forgotten. ErrMoved when the offer is not open, or the token another.
func (db *DB) Grant(ctx context.Context, id string, tokenHash []byte, d Driver, floor uint64) (fence uint64, err error) {
	if floor >= math.MaxInt64 {
		return 0, fmt.Errorf("fence %d leaves no greater one", floor)
	}
	now := stamp(machine.Now())
	err = db.change(ctx, func(w *writer) error {
		at, err := w.offer(id, tokenHash)
		if err != nil {
			return err
		}
		found, err := w.run(sqlGrant).int(at.seq).blob(tokenHash).text(now).some(machine.BootID()).
			int(int64(d.Pid)).int(int64(d.Ticks)).some(d.BootID).int(int64(floor)).row(func(s *sqlite3.Stmt) {
			fence = uint64(s.ColumnInt64(0))
		})
		if err := moved(found, err); err != nil {
			return err
		}
		if err := w.run(sqlFence).text(at.lane).int(int64(fence)).exec(); err != nil {
			return err
		}
		failpoint.Hit("queue.grant")
		return w.event(now, at.seq, Granted, record.Starting, record.Starting, fmt.Sprintf("fence %d, pid %d", fence, d.Pid))
	})
	if err != nil {
		return 0, err
	}
	failpoint.Hit("queue.grant.done")
	return fence, nil
}

// Begun moves an open attempt from starting to running. ErrMoved when it is not
// open, or runs already.
func (db *DB) Begun(ctx context.Context, id string) error {
	now := stamp(machine.Now())
	err := db.change(ctx, func(w *writer) error {
		var seq int64
		found, err := w.run(sqlBegun).text(id).text(now).row(func(s *sqlite3.Stmt) { seq = s.ColumnInt64(0) })
		if err := moved(found, err); err != nil {
			return err
		}
		failpoint.Hit("queue.begun")
		return w.event(now, seq, Begun, record.Starting, record.Running, "")
	})
	if err == nil {
		failpoint.Hit("queue.begun.done")
	}
	return err
}

// Requeue makes an open attempt that did not begin a queued row again, with its
// start, priority and identity; its fence is used up. ErrMoved when it is not
// open or began, *Exists when another row waits in its lane by now.
func (db *DB) Requeue(ctx context.Context, id, why string) error {
	now := stamp(machine.Now())
	err := db.change(ctx, func(w *writer) error {
		at, err := w.standing(id)
		if err != nil {
			return err
		}
		if at == nil || at.state != record.Starting || !at.granted {
			return ErrMoved
		}
		there := &Exists{Lane: at.lane}
		if found, err := w.waiting(at.lane, there); err != nil {
			return err
		} else if found {
			return there
		}
		found, err := w.run(sqlRequeue).int(at.seq).text(now).some(why).row(nil)
		if err := moved(found, err); err != nil {
			return err
		}
		failpoint.Hit("queue.requeue")
		return w.event(now, at.seq, Requeued, record.Starting, record.Queued, why)
	})
	if err == nil {
		failpoint.Hit("queue.requeue.done")
	}
	return err
}

// End ends a row or an open attempt, whatever it does, once: ErrMoved when it
// has ended, or is not what e asks for.
func (db *DB) End(ctx context.Context, id string, e End) error {
	if !slices.Contains(outcomes, e.Outcome) {
		return fmt.Errorf("%q is no outcome", e.Outcome)
	}
	if e.At.IsZero() {
		e.At = machine.Now()
	}
	err := db.change(ctx, func(w *writer) error {
		at, err := w.standing(id)
		if err != nil {
			return err
		}
		if at == nil || at.state == record.Ended || e.Waiting && at.granted {
			return ErrMoved
		}
		// An end is not before what it ends, wherever the clock went (C14).
		now := max(stamp(e.At), at.grantedAt, at.begunAt)
		begun := at.begunAt
		if begun == "" && (e.Began || ran[e.Outcome]) {
			begun = at.grantedAt // none for a row: nothing of it can have run
		}
		c := w.run(sqlEnd).int(at.seq).text(now).some(begun).text(e.tally(begun != ""))
		c.text(e.Outcome).some(e.Result).some(e.Kind).json(e.Reason == nil, e.Reason)
		if e.ExitCode != nil {
			c.int(int64(*e.ExitCode))
		} else {
			c.null()
		}
		found, err := c.int(int64(e.Signal)).bool(e.Waiting).row(nil)
		if err := moved(found, err); err != nil {
			return err
		}
		failpoint.Hit("queue.end")
		return w.event(now, at.seq, Ended, at.state, record.Ended, e.detail())
	})
	if err == nil {
		failpoint.Hit("queue.end.done")
	}
	return err
}

// outcomes are the words of C13. ran are those that say by themselves that
// something ran.
var (
	outcomes = []string{record.Exited, record.Signaled, record.TimedOut, record.Cancelled, record.Refused, record.NotStarted, record.Lost}
	ran      = map[string]bool{record.Exited: true, record.Signaled: true, record.TimedOut: true, record.Lost: true}
)

// The tallies: each ended attempt is in one (C024).
const (
	succeeded = "succeeded"
	failed    = "failed"
	lost      = "lost"
	unstarted = "unstarted"
)

func (e *End) tally(began bool) string {
	switch {
	case !began:
		return unstarted
	case e.Outcome == record.Lost:
		return lost
	case e.Result == record.Succeeded, e.Result == "" && e.Outcome == record.Exited && e.ExitCode != nil && *e.ExitCode == 0:
		return succeeded
	}
	return failed
}

// detail is what the event of an end says of it.
func (e *End) detail() string {
	text := e.Outcome
	switch {
	case e.Outcome == record.Exited && e.ExitCode != nil:
		text += " " + strconv.Itoa(*e.ExitCode)
	case e.Signal != 0:
		text += " " + strconv.Itoa(e.Signal)
	}
	if e.Kind != "" {
		text += " (" + e.Kind + ")"
	}
	if e.Reason != nil {
		text += ": " + e.Reason.Message
	}
	return text
}

// SetPriority changes the place in line of a waiting row. ErrMoved when it does
// not wait.
func (db *DB) SetPriority(ctx context.Context, id string, n int) error {
	now := stamp(machine.Now())
	return db.change(ctx, func(w *writer) error {
		at, err := w.standing(id)
		if err != nil {
			return err
		}
		if at == nil || at.state == record.Ended || at.granted {
			return ErrMoved
		}
		found, err := w.run(sqlPriority).int(at.seq).int(int64(n)).row(nil)
		if err := moved(found, err); err != nil {
			return err
		}
		return w.event(now, at.seq, Moved, at.state, at.state, fmt.Sprintf("priority %d, was %d", n, at.priority))
	})
}

// Note stores what is known of a waiting row's failures, and until when it is
// not to be offered; the zero time is no such moment. It is no change of state
// and has no event. ErrMoved when it does not wait.
func (db *DB) Note(ctx context.Context, id string, unclaimed int, lastFailure string, notBefore time.Time) error {
	return db.change(ctx, func(w *writer) error {
		return moved(w.run(sqlNote).text(id).int(int64(unclaimed)).some(lastFailure).time(notBefore).row(nil))
	})
}

// chunk is how many attempts one transaction of Prune removes: few enough that
// the log stays short and nobody waits for long.
const chunk = 200

// Prune removes attempts that ended before a time, oldest end first, with their
// events, but leaves at least keep ended ones, and those that a waiting row
// comes after. They stay in Totals. n is how many were removed.
func (db *DB) Prune(ctx context.Context, before time.Time, keep int) (n int, err error) {
	for {
		var removed int
		err := db.change(ctx, func(w *writer) (err error) {
			removed, err = w.prune(stamp(before), max(0, keep))
			return err
		})
		if err == nil {
			n += removed
		}
		if err != nil || removed < chunk {
			return n, err
		}
	}
}

func (w *writer) prune(before string, keep int) (n int, err error) {
	type old struct {
		seq   int64
		tally string
	}
	var all []old
	err = w.run(sqlPruneFind).text(before).int(chunk).int(int64(keep)).rows(func(s *sqlite3.Stmt) {
		all = append(all, old{s.ColumnInt64(0), s.ColumnText(1)})
	})
	for _, o := range all {
		if err == nil {
			err = errors.Join(w.run(sqlPruneEvents).int(o.seq).exec(), w.run(sqlPruneAttempt).int(o.seq).exec(), w.run(sqlPruneTally).text(o.tally).exec())
		}
	}
	failpoint.Hit("queue.prune")
	return len(all), err
}

// standing is how an attempt stands, as far as changes ask.
type standing struct {
	seq       int64
	lane      string
	state     string
	granted   bool
	grantedAt string
	begunAt   string
	token     []byte
	priority  int
}

// standing is nil when the attempt is not known.
func (w *writer) standing(id string) (*standing, error) {
	var at *standing
	_, err := w.run(sqlState).text(id).row(func(s *sqlite3.Stmt) {
		at = &standing{
			seq: s.ColumnInt64(0), lane: s.ColumnText(1), state: s.ColumnText(2), grantedAt: s.ColumnText(3),
			begunAt: s.ColumnText(4), token: s.ColumnBlob(5, nil), priority: s.ColumnInt(6),
		}
		at.granted = at.grantedAt != ""
	})
	return at, err
}

// offer is the standing of a row that is offered under that very token, compared
// in constant time (L14). ErrMoved otherwise.
func (w *writer) offer(id string, tokenHash []byte) (*standing, error) {
	at, err := w.standing(id)
	if err != nil {
		return nil, err
	}
	if at == nil || at.state != record.Starting || at.granted || len(at.token) == 0 || subtle.ConstantTimeCompare(at.token, tokenHash) != 1 {
		return nil, ErrMoved
	}
	return at, nil
}

// event writes what happened. It belongs in the transaction that made it happen.
func (w *writer) event(at string, seq int64, what, was, became, detail string) error {
	return w.run(sqlEvent).text(at).int(seq).text(what).some(was).some(became).some(detail).exec()
}

// moved is ErrMoved for a change that found nothing to change.
func moved(found bool, err error) error {
	if err == nil && !found {
		return ErrMoved
	}
	return err
}
