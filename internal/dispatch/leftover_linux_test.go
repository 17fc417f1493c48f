package dispatch

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

// A row whose launcher has not let go of its copy is displaced by nobody: it
// waits without the lock, and takes it when it comes free (L20).
func TestLaunchersOwnCopyDisplacesNobody(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.launcher("x")
	w.handed(l)
	w.stop()
	w.start()
	r := w.until(l.row.ID, attempt.Queued)
	if r.Reason == nil || r.Reason.Code != "lane_busy" {
		t.Errorf("it waits for %+v", r.Reason)
	}
	l.hold.Keep()
	for r.Reason != nil && r.Reason.Code == "lane_busy" {
		w.breathe()
		r = w.until(l.row.ID, attempt.Queued)
	}
	if w.free("x") {
		t.Error("the lane is free")
	}
}

// An attempt that ends between the look at its record and the look at its lane
// has ended as its record says, and is not lost (L18).
func TestOutcomeIsReadAgainBeforeItIsCalledLost(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.enqueue("x")
	a := &open{id: l.row.ID, lane: "x", n: 1, row: l.row}
	run := newRecord(&l.row)
	run.State, run.Outcome = record.Ended, record.Exited
	writer, err := record.Create(w.home, run)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if v := w.d.inquire(a); v.end == nil || v.end.Outcome != record.Exited {
		t.Errorf("the verdict is %+v", v.end)
	}
}

// A lock whose owner is gone says nothing of the agent: while that lives the
// attempt is orphaned, whoever holds a leftover copy (L18).
func TestLeftoverCopyHidesNoAgent(t *testing.T) {
	w := newWorld(t, false, nil)
	agent := w.sleeper(t)
	rec := lane.Mine(lane.RoleDriver)
	rec.Attempt = "01a22e41-b4e2-7ee3-be3d-e76ba0ec8e86"
	rec.Holder = &lane.Process{Pid: 1 << 22, Ticks: 1} // a driver that is gone
	h, err := lane.Take(w.home, "x", rec)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Keep() // the leftover copy
	if err := h.SetChild(agent); err != nil {
		t.Fatal(err)
	}
	v := w.d.inquire(&open{id: rec.Attempt, lane: "x", n: 1})
	if v.end != nil || !v.orphan || v.watch == nil || v.watch.Pid != agent.Pid {
		t.Errorf("the verdict is %+v, want the agent orphaned", v)
	}
}

// An entry that stands for nothing is removed as soon as nobody has its lane,
// also where somebody still had it when the dispatcher started (L16).
func TestEntryOfAnEndedAttemptGoesWithItsDriver(t *testing.T) {
	w := newWorld(t, false, nil)
	w.stop()
	l := w.launcher("x") // whoever has the lane, its attempt is known to nobody
	w.start()
	if _, err := attempt.ReadEntry(w.home, "x"); err != nil {
		t.Fatalf("the entry of a lane that is owned: %v", err)
	}
	l.hold.Keep()
	for {
		if _, err := attempt.ReadEntry(w.home, "x"); errors.Is(err, fs.ErrNotExist) {
			return
		}
		w.breathe()
	}
}

// What nobody drove is told by its row: whose account, and what it tried again.
func TestRecordOfWhatNobodyDroveHasWhatItsRowHas(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.enqueue("x")
	row := l.row
	row.ID, row.RetryOf, row.RetryVerdict, row.Fence = record.NewID(), row.ID, 2, 7
	row.Placement.Account, row.Placement.Profile = "work", "reviewer"
	if err := writeRecord(w.home, &row, queue.End{Outcome: record.NotStarted, At: machine.Now()}); err != nil {
		t.Fatal(err)
	}
	kept, run, err := record.Reopen(w.home, row.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if run.RetryOf != row.RetryOf || run.RetryVerdict != 2 || run.Fence != 7 || !run.Enqueued || run.Account != "work" || run.Profile != "reviewer" || !run.QueuedAt.After(row.QueueStart.Time) {
		t.Errorf("the record is %+v", run)
	}
}
