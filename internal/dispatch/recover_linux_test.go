package dispatch

import (
	"errors"
	"testing"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

// Recovery with a free lane keeps it, in its old place; with a held lane it
// never steals: the row leaves as not started, and names the owner (L20).
func TestRecoveryAsksTheKernel(t *testing.T) {
	w := newWorld(t, false, nil)
	free, held := w.enqueue("free"), w.enqueue("held")
	w.stop()
	if !w.freed("free") {
		t.Fatal("the dispatcher is gone and the lane is held")
	}
	owner, err := lane.Take(w.home, "held", lane.Mine(lane.RoleRun))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Keep()
	w.start()
	if w.free("free") {
		t.Error("the row's lane was not taken again")
	}
	if r, ok := w.rowOf(free.row.ID); !ok || !r.QueueStart.Equal(free.row.QueueStart.Time) || r.State != attempt.Queued {
		t.Errorf("the free lane's row is %+v (%v)", r.Row, ok)
	}
	at, err := w.d.db.Find(held.row.ID)
	if err != nil || at.State != record.Ended || at.Outcome != record.NotStarted || at.Reason.Code != "displaced" {
		t.Fatalf("the held lane's attempt is %+v, %v", at, err)
	}
	if seen, _ := lane.Look(w.home, "held"); seen.State != lane.Owned || seen.Record.Role != lane.RoleRun {
		t.Errorf("the owner's lane was touched: %+v", seen)
	}
	if run, err := record.Load(w.home, held.row.ID); err != nil || run.Outcome != record.NotStarted {
		t.Errorf("the run's record is %+v, %v", run, err)
	}
}

// A stored offer becomes a queued row again, and its token is good for nothing.
func TestRecoveryBurnsTokens(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.enqueue("x")
	w.stop()
	db, err := queue.Open(t.Context(), w.home.Path+"/"+Database)
	if err != nil {
		t.Fatal(err)
	}
	token, hash := newToken() // as a dispatcher leaves it that was killed in mid-offer
	if _, err := db.Offer(t.Context(), l.row.ID, hash, machine.Now()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	w.start()
	r := w.until(l.row.ID, attempt.Queued)
	if !r.QueueStart.Equal(l.row.QueueStart.Time) {
		t.Errorf("the row is %+v", r)
	}
	if e, err := attempt.ReadEntry(w.home, "x"); err != nil || e.State != attempt.Queued {
		t.Errorf("the entry is %+v, %v", e, err)
	}
	conn, g, fds := w.granted(l.row.ID, token)
	conn.Close()
	if g.OK || len(fds) != 0 {
		t.Error("an old token claims")
	}
}

func TestSecondDispatcherTouchesNothing(t *testing.T) {
	w := newWorld(t, false, nil)
	w.enqueue("x")
	before := openFDs(t)
	_, err := Open(t.Context(), w.cfg)
	var running *Running
	if !errors.As(err, &running) || running.Pid == 0 {
		t.Errorf("Open = %v, want *Running with a pid", err)
	}
	w.settledFDs(before)
	if _, ok := w.rowOf(w.enqueue("y").row.ID); !ok {
		t.Error("the first dispatcher does not go on")
	}
}

// An attempt whose driver is gone without an outcome is lost, and not started
// again, however often the dispatcher is (L18, C016).
func TestGoneDriverIsLostAndNotRepeated(t *testing.T) {
	w := newWorld(t, true, nil)
	l := w.enqueue("x")
	w.exec(t, "drives", l.row.ID, w.token(l.row.ID))
	for {
		at, err := w.d.db.Find(l.row.ID)
		if err != nil {
			t.Fatal(err)
		}
		if at.State == record.Ended {
			if at.Outcome != record.Lost || at.Fence != 1 {
				t.Errorf("the attempt is %+v", at)
			}
			break
		}
		w.breathe()
	}
	if !w.freed("x") {
		t.Error("the lane of a lost attempt is held")
	}
	for range 3 {
		w.stop()
		w.start()
		if _, ok := w.rowOf(l.row.ID); ok {
			t.Error("a lost attempt waits again")
		}
	}
}

// A row that comes after another waits for its success, and is held by a
// failure until a retry succeeds (L10).
func TestRowWaitsForWhatItComesAfter(t *testing.T) {
	w := newWorld(t, false, nil)
	first := w.enqueue("first")
	l := w.launcher("second")
	l.row.After = []attempt.After{{Lane: "first"}}
	w.accepted(l)
	r := w.until(l.row.ID, attempt.Queued)
	if r.Reason == nil || r.Reason.Code != "dependency" || r.After[0].Attempt != first.row.ID {
		t.Errorf("it waits for %+v, and comes after %+v", r.Reason, r.After)
	}
	at, err := w.d.db.Find(first.row.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.d.cancel(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	for {
		if r, _ = w.rowOf(l.row.ID); r.Reason != nil && r.Reason.Code == "dependency_failed" {
			break
		}
		w.breathe()
	}
	at, _ = w.d.db.Find(first.row.ID)
	if _, err := w.d.retry(&at.Row, at.State, 0); err != nil {
		t.Fatal(err)
	}
	for {
		if r, _ = w.rowOf(l.row.ID); r.Reason != nil && r.Reason.Code == "dependency" {
			break
		}
		w.breathe()
	}
}

// Cancel works in every state, and afterwards the lane is free and its token
// dead (C083).
func TestCancelledRowLeavesNothing(t *testing.T) {
	for _, offered := range []bool{false, true} {
		w := newWorld(t, offered, nil)
		l := w.enqueue("x")
		token := ""
		if offered {
			token = w.token(l.row.ID)
			w.until(l.row.ID, attempt.Starting)
		}
		for range 2 {
			at, err := w.d.db.Find(l.row.ID)
			if err != nil {
				t.Fatal(err)
			}
			done, err := w.d.cancel(t.Context(), at)
			if err != nil || done.State != record.Ended || done.Outcome != record.Cancelled {
				t.Errorf("cancel = %+v, %v", done, err)
			}
		}
		if !w.freed("x") {
			t.Error("the lane is still held")
		}
		if offered {
			conn, g, fds := w.granted(l.row.ID, token)
			conn.Close()
			if g.OK || len(fds) != 0 {
				t.Error("a cancelled row was claimed")
			}
		}
		w.enqueue("x") // and can be enqueued again
	}
}

// An offer whose launcher has not yet closed its copy of the lane is taken back
// like any other: nobody is displaced, and the row can be offered again.
func TestRecoveryTakesBackWhatItsLauncherStillHolds(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.launcher("x")
	w.handed(l)
	w.stop()
	_, hash := newToken()
	w.change(func(db *queue.DB) error {
		_, err := db.Offer(t.Context(), l.row.ID, hash, machine.Now())
		return err
	})
	w.start()
	at, err := w.d.db.Find(l.row.ID)
	if err != nil || at.State != attempt.Queued {
		t.Errorf("the attempt is %+v, %v", at, err)
	}
	l.hold.Keep()
	for w.free("x") {
		w.breathe()
	}
	if r := w.until(l.row.ID, attempt.Queued); !r.QueueStart.Equal(l.row.QueueStart.Time) {
		t.Errorf("the row is %+v", r)
	}
}

// An end that was written and not recorded, since the dispatcher was killed in
// between, is recorded by the next one; what was cleared away stays away.
func TestRecoveryRecordsEnds(t *testing.T) {
	w := newWorld(t, false, nil)
	there, away := w.enqueue("there"), w.enqueue("away")
	w.stop()
	w.change(func(db *queue.DB) error {
		end := queue.End{Outcome: record.Cancelled, Waiting: true, Reason: &record.Reason{Class: "ownership", Code: "cancelled"}}
		return errors.Join(db.End(t.Context(), there.row.ID, end), db.End(t.Context(), away.row.ID, end))
	})
	if err := attempt.Discard(w.home, away.row.ID); err != nil {
		t.Fatal(err)
	}
	w.start()
	for {
		run, err := record.Load(w.home, there.row.ID)
		if err == nil && run.State == record.Ended {
			if run.Outcome != record.Cancelled || run.Reason == nil || run.Reason.Code != "cancelled" {
				t.Errorf("the record is %+v", run)
			}
			break
		}
		w.breathe()
	}
	w.stop() // and all that it did is done
	if run, err := record.Load(w.home, away.row.ID); err == nil {
		t.Errorf("what was cleared away came back: %+v", run)
	}
}

// A lost attempt that is to be tried again is, also when the dispatcher that
// found it lost was killed before it came to that; and it is once (L18).
func TestRecoveryTriesLostAgainOnce(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.launcher("x")
	l.row.RetryLost = 1
	w.accepted(l)
	w.stop()
	_, hash := newToken()
	w.change(func(db *queue.DB) error {
		_, err := db.Offer(t.Context(), l.row.ID, hash, machine.Now())
		if err == nil {
			_, err = db.Grant(t.Context(), l.row.ID, hash, queue.Driver{Pid: 1, Ticks: 1, BootID: "b"}, 0)
		}
		if err == nil {
			err = db.End(t.Context(), l.row.ID, queue.End{Outcome: record.Lost})
		}
		return err
	})
	for range 2 {
		w.start()
		next := ""
		for next == "" {
			w.breathe()
			at, err := w.d.db.LastOfLane("x")
			if err != nil {
				t.Fatal(err)
			}
			if at.Row.ID != l.row.ID {
				next = at.Row.RetryOf
				if at.Row.RetryLost != 0 || at.State != attempt.Queued {
					t.Errorf("tried again: %+v", at)
				}
			}
		}
		if next != l.row.ID {
			t.Errorf("what is tried again is %s, want %s", next, l.row.ID)
		}
		w.stop()
	}
}

// change writes to the database while no dispatcher has it.
func (w *world) change(do func(*queue.DB) error) {
	w.Helper()
	db, err := queue.Open(w.Context(), w.home.Path+"/"+Database)
	if err != nil {
		w.Fatal(err)
	}
	if err := errors.Join(do(db), db.Close()); err != nil {
		w.Fatal(err)
	}
}
