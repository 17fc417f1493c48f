//go:build unix

package dispatch

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/metrics"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

func TestAWaitIsCountedByItsReason(t *testing.T) { // P12
	at := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
	d := begin(Config{Home: at})
	defer d.stop()
	now := time.Now()
	r, behind := &row{counted: now}, &row{counted: now}
	r.ID, behind.ID = "a", "b"
	r.group = &group{ready: []*row{r, behind}}
	behind.group = r.group
	pass := func(by time.Duration) {
		now = now.Add(by)
		d.account(r, now)
		d.account(behind, now)
	}
	pass(time.Second)
	r.group.stand = &stand{row: r, last: lease.Waiting{Code: lease.PoolFull}}
	pass(2 * time.Second)
	r.group.stand.last = lease.Waiting{Class: "quota", Code: "park"}
	pass(3 * time.Second)
	r.why = &record.Reason{Class: "hold", Code: "hold"}
	pass(4 * time.Second)
	pass(-time.Hour) // no clock takes anything back
	r.offer = &offer{row: r}
	pass(5 * time.Second) // the claim's
	r.offer, r.why = nil, nil
	pass(6 * time.Second)
	if got, want := r.waitedFor(), map[string]float64{"resource/line": 1, "resource/pool_full": 2, "quota/park": 9, "hold/hold": 4}; !maps.Equal(got, want) {
		t.Errorf("it waited for %v, want %v", got, want)
	}
	if got, want := behind.waitedFor(), map[string]float64{"resource/queue": 1, "resource/pool_full": 2, "quota/park": 18}; !maps.Equal(got, want) {
		t.Errorf("the one behind waited for %v, want %v", got, want)
	}
	again := &row{}
	again.waitedAgain(r.waitedFor())
	if !maps.Equal(again.waitedFor(), r.waitedFor()) {
		t.Errorf("back from a driver: %v", again.waitedFor())
	}
	if got := d.meters.waits["quota/park"]; got != 27*time.Second {
		t.Errorf("the meter says %v", got)
	}
	for i := range 2 * attempt.MaxReasons {
		r.why = &record.Reason{Class: "x", Code: strings.Repeat("y", i)}
		pass(time.Second)
	}
	if n := len(r.waited); n != attempt.MaxReasons {
		t.Errorf("%d reasons are kept", n)
	}
}

func TestReviewsAreMeasuredOnce(t *testing.T) { // P12
	at := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
	if err := at.Ensure(); err != nil {
		t.Fatal(err)
	}
	db, err := queue.Open(t.Context(), filepath.Join(at.Path, Database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	end := func() string {
		id := record.NewID()
		w, err := record.Create(at, &record.Run{ID: id, Verb: "run", State: record.Ended, Outcome: record.Exited, EndedAt: record.At(noon)})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return id
	}
	passed := func(id, permission, what string, after time.Duration) {
		t.Helper()
		if err := journal.Append(at, journal.Event{At: noon.Add(after), Permission: permission, What: what, Attempt: id}); err != nil {
			t.Fatal(err)
		}
	}
	old := end()
	passed(old, journal.Acceptance, journal.Accepted, time.Minute) // before this dispatcher began
	m := newMeters(at)
	id, bad := end(), end()
	passed(id, journal.Acceptance, journal.Checked, 5*time.Second)
	passed(id, journal.Acceptance, journal.Accepted, 60*time.Second)
	passed(id, journal.Acceptance, journal.Accepted, 70*time.Second)
	passed(id, journal.Release, "not released", 80*time.Second)
	passed(id, journal.Release, journal.Released, 90*time.Second)
	passed(bad, journal.Acceptance, journal.Rejected, 7*time.Second)
	passed(old, journal.Release, journal.Released, 3*time.Minute)
	passed(record.NewID(), journal.Release, journal.Released, time.Hour) // nothing else is known of it
	if err := m.follow(db); err != nil {
		t.Fatal(err)
	}
	if err := journal.Append(at, journal.Event{Permission: journal.Ownership, What: journal.Ended, Outcome: record.Exited, WaitedS: 2, RanS: 3, WaitedFor: map[string]float64{"resource/line": 2}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.follow(db); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name  string
		h     *metrics.Histogram
		count uint64
		sum   float64
	}{
		{"review", &m.review, 2, 12}, {"acceptance", &m.acceptance, 1, 60}, {"release", &m.release, 2, 30 + 120},
		{"queue", m.queueWait[asDirect], 1, 2}, {"run", m.run[asDirect], 1, 3},
	} {
		if _, count, sum := tt.h.Buckets(); count != tt.count || sum != tt.sum {
			t.Errorf("%s: %d in %v s, want %d in %v s", tt.name, count, sum, tt.count, tt.sum)
		}
	}
	if m.outcomes[[2]string{asDirect, record.Exited}] != 1 || m.waits["resource/line"] != 2*time.Second {
		t.Errorf("%v, %v", m.outcomes, m.waits)
	}
}

// lookup is a database that takes its time.
type lookup func(id string) (*queue.Attempt, error)

func (l lookup) Find(id string) (*queue.Attempt, error) { return l(id) }

// While one who asks reads a long journal the loop counts on.
func TestCountingWaitsForNobodyWhoReads(t *testing.T) {
	at := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
	m := newMeters(at)
	if err := journal.Append(at, journal.Event{Permission: journal.Release, What: journal.Released, Attempt: record.NewID()}); err != nil {
		t.Fatal(err)
	}
	asked := 0
	if err := m.follow(lookup(func(string) (*queue.Attempt, error) {
		asked++
		m.count(asAttempt, record.Exited)
		m.waited("resource/line", time.Second)
		return nil, nil
	})); err != nil {
		t.Fatal(err)
	}
	if asked != 1 || m.waits["resource/line"] != time.Second {
		t.Errorf("asked %d times, %v", asked, m.waits)
	}
}

func TestForeignLinesMakeNoCounterFall(t *testing.T) {
	at := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
	m := newMeters(at)
	last := time.Duration(0)
	for i, s := range []float64{5, -3, 1e300, 1e300, -1e300} {
		if err := journal.Append(at, journal.Event{Permission: journal.Ownership, What: journal.Ended, Outcome: strings.Repeat("x", i), WaitedFor: map[string]float64{"a/b": s}}); err != nil {
			t.Fatal(err)
		}
		if err := m.follow(lookup(nil)); err != nil {
			t.Fatal(err)
		}
		if m.waits["a/b"] < last {
			t.Errorf("after %v s it fell from %v to %v", s, last, m.waits["a/b"])
		}
		last = m.waits["a/b"]
	}
	for i := range 2 * maxWords {
		if err := journal.Append(at, journal.Event{Permission: journal.Ownership, What: journal.Ended, Outcome: strings.Repeat("y", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.follow(lookup(nil)); err != nil || len(m.outcomes) > maxWords {
		t.Errorf("%d outcomes, %v", len(m.outcomes), err)
	}
}
