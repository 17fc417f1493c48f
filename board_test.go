package handsel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/status"
)

// boardOf deals rows and runs as a look found them, newest run first.
func boardOf(snap *Snapshot, rows []QueueRow, all ...KnownRun) *Board {
	b := &Board{Status: snap, Boxes: map[string]BoxCount{}}
	b.deal(rows, all)
	return b
}

func aRun(id, lane, state, review string) KnownRun {
	k := KnownRun{}
	k.ID, k.Lane, k.State, k.Review = id, lane, state, review
	if state == record.Ended {
		k.Outcome, k.ExitCode = record.Exited, new(int)
	}
	return k
}

func aRow(id, lane string, why *Reason) QueueRow {
	return QueueRow{Row: attempt.Row{ID: id, Lane: lane, State: record.Queued}, Reason: why}
}

// A driver takes over between the look at rows and the one at runs, and the file
// of a row stays where its dispatcher was killed: one attempt has one card.
func TestAnAttemptHasOneCard(t *testing.T) {
	row := aRow("1", "x", nil)
	row.State = record.Starting
	for _, tt := range []struct {
		state, want string
		sources     []string
	}{
		{record.Queued, "claim", []string{"record"}}, {record.Starting, "claim", []string{"slot"}},
		{record.Starting, "owner", []string{"record", "slot"}}, {record.Running, "owner", []string{"record"}}, {record.Ended, "exited", []string{"record"}},
	} {
		k := aRun("1", "x", tt.state, ReviewNone)
		k.Sources = tt.sources
		b := boardOf(&Snapshot{}, []QueueRow{row}, k)
		n := 0
		for _, box := range b.Boxes {
			n += box.Go + box.Wait + box.Deny
		}
		if len(b.Cards) != 1 || n != 1 || b.Cards[0].Code != tt.want {
			t.Errorf("a row that is offered and a run that is %s, of %v: counted %d, %+v", tt.state, tt.sources, n, b.Cards)
		}
	}
}

// A card is at the permission it waits for, or at the last it was given.
func TestCardIsAtThePermissionItWaitsFor(t *testing.T) {
	offered := aRow("1", "x", nil)
	offered.State = record.Starting
	failed := aRun("1", "", record.Ended, ReviewNone)
	failed.ExitCode = new(int)
	*failed.ExitCode = 3
	in := func(w status.Waiter) *Snapshot { w.Run = "1"; return &Snapshot{Waiting: []status.Waiter{w}} }
	for _, tt := range []struct {
		name string
		snap *Snapshot
		rows []QueueRow
		runs []KnownRun
		want string // box answer class/code
	}{
		{"a row behind a full pool", nil, []QueueRow{aRow("1", "x", &Reason{Class: "resource", Code: CodePoolFull, Retryable: true})}, nil, "resource wait resource/pool_full"},
		{"a row of a parked account", nil, []QueueRow{aRow("1", "x", &Reason{Class: "quota", Code: CodeParked, Retryable: true})}, nil, "quota wait quota/parked"},
		{"a row that a person holds", nil, []QueueRow{aRow("1", "x", &Reason{Class: "hold", Code: "hold", Retryable: true})}, nil, "resource wait hold/hold"},
		{"a row whose lane somebody has", nil, []QueueRow{aRow("1", "x", &Reason{Class: "ownership", Code: CodeLaneOwned, Retryable: true})}, nil, "ownership wait ownership/lane_owned"},
		{"a row behind what failed", nil, []QueueRow{aRow("1", "x", &Reason{Class: "dependency", Code: "dependency_failed"})}, nil, "resource deny dependency/dependency_failed"},
		{"a row behind others", nil, []QueueRow{aRow("1", "x", nil)}, nil, "resource wait resource/queue"},
		{"an offered row", nil, []QueueRow{offered}, nil, "ownership wait ownership/claim"},
		{"a run in line", in(status.Waiter{Reason: CodePoolFull, Pool: "all"}), nil, []KnownRun{aRun("1", "", record.Queued, "")}, "resource wait resource/pool_full"},
		{"a run in line whose account is parked", in(status.Waiter{Reason: CodeLogin}), nil, []KnownRun{aRun("1", "", record.Queued, "")}, "quota wait quota/login"},
		{"a run that waits for its lane", in(status.Waiter{Reason: CodeLaneOwned, Lane: "x"}), nil, []KnownRun{aRun("1", "x", record.Queued, "")}, "ownership wait ownership/lane_owned"},
		{"a run at work", nil, nil, []KnownRun{aRun("1", "x", record.Running, ReviewPending)}, "ownership go ownership/owner"},
		{"a run in review", nil, nil, []KnownRun{aRun("1", "x", record.Ended, ReviewPending)}, "acceptance wait acceptance/review_pending"},
		{"a rejected run", nil, nil, []KnownRun{aRun("1", "x", record.Ended, ReviewRejected)}, "acceptance deny acceptance/rejected"},
		{"an accepted run", nil, nil, []KnownRun{aRun("1", "x", record.Ended, ReviewAccepted)}, "release wait release/accepted"},
		{"a released run", nil, nil, []KnownRun{aRun("1", "x", record.Ended, ReviewReleased)}, "release go release/released"},
		{"a run that is done", nil, nil, []KnownRun{aRun("1", "x", record.Ended, ReviewNone)}, "ended go ended/exited"},
		{"a run that failed", nil, nil, []KnownRun{failed}, "ended deny ended/exited"},
	} {
		if tt.snap == nil {
			tt.snap = &Snapshot{}
		}
		b := boardOf(tt.snap, tt.rows, tt.runs...)
		if len(b.Cards) != 1 {
			t.Errorf("%s: %d cards", tt.name, len(b.Cards))
			continue
		}
		c := b.Cards[0]
		if got := fmt.Sprintf("%s %s %s/%s", c.Box, c.Answer, c.Class, c.Code); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if n := b.Boxes[c.Box]; n.Go+n.Wait+n.Deny != 1 {
			t.Errorf("%s: %+v", tt.name, n)
		}
	}
}

// Of a lane only what can still go on is shown: not the acceptance that a newer
// one took the place of, nor the rejection that a newer attempt answers for.
func TestSupersededCardsAreNotDealt(t *testing.T) {
	names := func(b *Board) (ids []string) {
		for _, c := range b.Cards {
			ids = append(ids, c.ID)
		}
		return ids
	}
	accepted := boardOf(&Snapshot{}, nil, aRun("3", "x", record.Ended, ReviewAccepted), aRun("2", "x", record.Ended, ReviewAccepted), aRun("1", "x", record.Ended, ReviewReleased))
	if got := fmt.Sprint(names(accepted)); got != "[3 1]" {
		t.Errorf("accepted: %s", got)
	}
	rejected := []KnownRun{aRun("2", "x", record.Ended, ReviewRejected), aRun("1", "y", record.Ended, ReviewRejected)}
	if got := fmt.Sprint(names(boardOf(&Snapshot{}, nil, rejected...))); got != "[2 1]" {
		t.Errorf("rejected: %s", got)
	}
	if got := fmt.Sprint(names(boardOf(&Snapshot{}, []QueueRow{aRow("4", "x", nil)}, rejected...))); got != "[4 1]" {
		t.Errorf("rejected and tried again: %s", got)
	}
}

// What is over is bounded, and counted all the same; what is to be decided is not
// bounded.
func TestBoardIsBoundedByWhatIsOver(t *testing.T) {
	var all []KnownRun
	for i := range 2 * MostEnded {
		all = append(all, aRun(fmt.Sprint("e", i), "", record.Ended, ReviewNone), aRun(fmt.Sprint("p", i), "", record.Ended, ReviewPending))
	}
	b := boardOf(&Snapshot{}, nil, all...)
	if len(b.Cards) != 3*MostEnded || b.Boxes[BoxEnded].Go != 2*MostEnded || b.Boxes["acceptance"].Wait != 2*MostEnded {
		t.Errorf("%d cards, %+v", len(b.Cards), b.Boxes)
	}
}

// A window that looks again sees what a record and its review became, though it
// reads what has ended only once.
func TestWatchSeesWhatBecameOfWhatItKnows(t *testing.T) {
	h := homeWith(t, nil)
	if err := h.dir.Ensure(); err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	id := record.NewID()
	w := h.Watch()
	look := func() (state string) {
		b := w.Look(t.Context())
		for _, p := range b.Problems {
			t.Error(p)
		}
		for _, c := range b.Cards {
			state += c.ID[len(c.ID)-4:] + " " + c.Box + " " + c.Answer
		}
		return state
	}
	end := id[len(id)-4:] + " "
	dir := filepath.Join(h.dir.Path, "runs", time.Now().UTC().Format(time.DateOnly), id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	age(t, dir) // older than what a look takes for just changed, so that it is remembered
	if got := look() + look(); got != "" {
		t.Fatalf("a directory without a record is %q", got)
	}
	rec := &record.Run{ID: id, Verb: "run", Lane: "x", Cwd: work, State: record.Ended, Outcome: record.Exited, ExitCode: new(int), EndedAt: record.At(time.Now()), Review: ReviewPending}
	r, err := record.Create(h.dir, rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	age(t, dir)
	for range 2 {
		if got := look(); got != end+"acceptance wait" {
			t.Fatalf("in review: %q", got)
		}
	}
	if _, err := h.Accept(context.Background(), id, VerdictOptions{Evidence: []string{"e"}}); err != nil {
		t.Fatal(err)
	}
	if got := look(); got != end+"release wait" {
		t.Errorf("accepted: %q", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got := look(); got != "" {
		t.Errorf("removed: %q", got)
	}
}

// age makes a directory look as if it had been changed a while ago, and
// differently from before.
func age(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	then := info.ModTime().Add(-time.Hour)
	if err := os.Chtimes(dir, then, then); err != nil {
		t.Fatal(err)
	}
}
