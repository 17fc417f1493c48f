package queue

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/record"
)

// model is what the database must be, kept in plain maps.
type model struct {
	all    map[string]*kept
	order  []string // ids as accepted
	fences map[string]uint64
	events []string
	gone   Totals // of pruned attempts
}

type kept struct {
	lane, state, token string
	granted, began     bool
	starts, unclaimed  int
	failure            string
	priority           int
	notBefore          time.Time
	fence              uint64
	outcome, tally     string
	endedAt            time.Time
	events             int
}

func newModel() *model { return &model{all: map[string]*kept{}, fences: map[string]uint64{}} }

func (m *model) waiting(lane string) string {
	for id, a := range m.all {
		if a.lane == lane && a.state != record.Ended && !a.granted {
			return id
		}
	}
	return ""
}

func (m *model) event(id, what, was, became string) {
	m.events = append(m.events, fmt.Sprintf("%s %s %s %s>%s", m.all[id].lane, id, what, was, became))
	m.all[id].events++
}

// pair drives a database and its model with the same calls.
type pair struct {
	t    *rapid.T
	path string
	db   *DB
	m    *model
	now  time.Time
}

var (
	someLanes  = []string{"a", "b", "ä/ö", "c c"}
	someTokens = []string{"one", "two"}
)

func (x *pair) id(t *rapid.T) string {
	ids := append(slices.Clone(x.m.order), "01900000-0000-7000-8000-000000000000")
	return rapid.SampledFrom(ids).Draw(t, "id")
}

func (x *pair) token(t *rapid.T) (string, []byte) {
	word := rapid.SampledFrom(someTokens).Draw(t, "token")
	return word, bytes.Repeat([]byte(word), 10)
}

// agree fails unless the call did as the model says: want is nil, ErrMoved or *Exists.
func (x *pair) agree(what string, err, want error) {
	x.t.Helper()
	there, ok := errors.AsType[*Exists](want)
	switch {
	case ok:
		if got, ok := errors.AsType[*Exists](err); !ok || *got != *there {
			x.t.Fatalf("%s: %v, want %v", what, err, there)
		}
	case !errors.Is(err, want):
		x.t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func (x *pair) Accept(t *rapid.T) {
	r := row(rapid.SampledFrom(someLanes).Draw(t, "lane"))
	var want error
	if len(x.m.order) > 0 && rapid.IntRange(0, 9).Draw(t, "known") == 0 {
		r.ID = x.id(t)
	}
	if a := x.m.all[r.ID]; a != nil {
		want = &Exists{a.lane, r.ID}
	} else if there := x.m.waiting(r.Lane); there != "" {
		want = &Exists{r.Lane, there}
	} else if r.ID[:8] == "01900000" {
		return // the one that is never known
	}
	x.agree("Accept", x.db.Accept(ctx, r), want)
	if want != nil {
		return
	}
	x.m.all[r.ID] = &kept{lane: r.Lane, state: record.Queued, priority: r.Priority}
	x.m.order = append(x.m.order, r.ID)
	x.m.event(r.ID, Accepted, "", record.Queued)
}

func (x *pair) Offer(t *rapid.T) {
	id := x.id(t)
	word, hash := x.token(t)
	a := x.m.all[id]
	var want error = ErrMoved
	if a != nil && a.state == record.Queued {
		want = nil
		a.state, a.token, a.starts = record.Starting, word, a.starts+1
		x.m.event(id, Offered, record.Queued, record.Starting)
	}
	starts, err := x.db.Offer(ctx, id, hash, x.now)
	x.agree("Offer", err, want)
	if want == nil && starts != a.starts {
		t.Fatalf("start %d, want %d", starts, a.starts)
	}
}

func (a *kept) offered(word string) bool {
	return a != nil && a.state == record.Starting && !a.granted && a.token == word
}

func (x *pair) Withdraw(t *rapid.T) {
	id := x.id(t)
	word, hash := x.token(t)
	unclaimed := rapid.Bool().Draw(t, "unclaimed")
	var want error = ErrMoved
	if a := x.m.all[id]; a.offered(word) {
		want = nil
		a.state, a.token = record.Queued, ""
		if unclaimed {
			a.unclaimed, a.failure = a.unclaimed+1, "why"
		}
		x.m.event(id, Withdrawn, record.Starting, record.Queued)
	}
	x.agree("Withdraw", x.db.Withdraw(ctx, id, hash, "why", unclaimed), want)
}

func (x *pair) Grant(t *rapid.T) {
	id := x.id(t)
	word, hash := x.token(t)
	floor := uint64(rapid.IntRange(0, 5).Draw(t, "floor"))
	var want error = ErrMoved
	a := x.m.all[id]
	if a.offered(word) {
		want = nil
		a.granted, a.token, a.fence = true, "", max(floor, x.m.fences[a.lane])+1
		x.m.fences[a.lane] = a.fence
		x.m.event(id, Granted, record.Starting, record.Starting)
	}
	fence, err := x.db.Grant(ctx, id, hash, Driver{Pid: 1}, floor)
	x.agree("Grant", err, want)
	if want == nil && fence != a.fence {
		t.Fatalf("fence %d, want %d", fence, a.fence)
	}
}

func (x *pair) Begun(t *rapid.T) {
	id := x.id(t)
	var want error = ErrMoved
	if a := x.m.all[id]; a != nil && a.granted && a.state == record.Starting {
		want = nil
		a.state, a.began = record.Running, true
		x.m.event(id, Begun, record.Starting, record.Running)
	}
	x.agree("Begun", x.db.Begun(ctx, id), want)
}

func (x *pair) Requeue(t *rapid.T) {
	id := x.id(t)
	var want error = ErrMoved
	if a := x.m.all[id]; a != nil && a.granted && a.state == record.Starting {
		if there := x.m.waiting(a.lane); there != "" {
			want = &Exists{a.lane, there}
		} else {
			want = nil
			a.state, a.granted, a.fence, a.failure = record.Queued, false, 0, "again"
			x.m.event(id, Requeued, record.Starting, record.Queued)
		}
	}
	x.agree("Requeue", x.db.Requeue(ctx, id, "again"), want)
}

func (x *pair) End(t *rapid.T) {
	id := x.id(t)
	code := rapid.IntRange(0, 1).Draw(t, "code")
	e := End{
		Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"), ExitCode: &code, Waiting: rapid.Bool().Draw(t, "waiting"),
		Began: rapid.Bool().Draw(t, "began"), At: x.now,
	}
	var want error = ErrMoved
	if a := x.m.all[id]; a != nil && a.state != record.Ended && !(e.Waiting && a.granted) {
		want = nil
		was := a.state
		a.tally = e.tally(a.granted && (a.began || e.Began || ran[e.Outcome]))
		a.state, a.token, a.outcome, a.endedAt = record.Ended, "", e.Outcome, x.now
		x.m.event(id, Ended, was, record.Ended)
	}
	x.agree("End", x.db.End(ctx, id, e), want)
}

func (x *pair) SetPriority(t *rapid.T) {
	id := x.id(t)
	n := rapid.IntRange(-1000, 1000).Draw(t, "priority")
	var want error = ErrMoved
	if a := x.m.all[id]; a != nil && a.state != record.Ended && !a.granted {
		want = nil
		a.priority = n
		x.m.event(id, Moved, a.state, a.state)
	}
	x.agree("SetPriority", x.db.SetPriority(ctx, id, n), want)
}

func (x *pair) Note(t *rapid.T) {
	id := x.id(t)
	var want error = ErrMoved
	if a := x.m.all[id]; a != nil && a.state != record.Ended && !a.granted {
		want = nil
		a.unclaimed, a.failure, a.notBefore = 5, "noted", x.now
	}
	x.agree("Note", x.db.Note(ctx, id, 5, "noted", x.now), want)
}

func (x *pair) Prune(t *rapid.T) {
	keep := rapid.IntRange(0, 3).Draw(t, "keep")
	before := x.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "age")) * time.Second)
	var old []string
	ended := 0
	for _, id := range x.m.order {
		a := x.m.all[id]
		if a.state != record.Ended {
			continue
		}
		ended++
		if a.endedAt.Before(before) && x.lastEvent() != id {
			old = append(old, id)
		}
	}
	slices.SortStableFunc(old, func(a, b string) int { return x.m.all[a].endedAt.Compare(x.m.all[b].endedAt) })
	old = old[:min(len(old), max(0, ended-keep))]
	n, err := x.db.Prune(ctx, before, keep)
	if err != nil || n != len(old) {
		t.Fatalf("Prune = %d, %v; want %d", n, err, len(old))
	}
	for _, id := range old {
		x.m.gone.Accepted++
		counted(&x.m.gone, x.m.all[id].tally, 1)
		x.m.events = slices.DeleteFunc(x.m.events, func(e string) bool { return bytes.Contains([]byte(e), []byte(id)) })
		delete(x.m.all, id)
		x.m.order = slices.DeleteFunc(x.m.order, func(o string) bool { return o == id })
	}
}

func (x *pair) lastEvent() string {
	for id := range x.m.all {
		if n := len(x.m.events); n > 0 && bytes.Contains([]byte(x.m.events[n-1]), []byte(id)) {
			return id
		}
	}
	return ""
}

func (x *pair) Reopen(t *rapid.T) {
	if rapid.Bool().Draw(t, "cleanly") {
		must(t, x.db.Close())
	} else { // as if killed: from a copy of the files
		dir := filepath.Dir(x.path)
		old := x.db
		to := filepath.Join(dir, fmt.Sprintf("copy%d", time.Now().UnixNano()), "handsel.db")
		must(t, os.Mkdir(filepath.Dir(to), 0o700))
		for _, side := range sides {
			data, err := os.ReadFile(x.path + side)
			must(t, err)
			must(t, os.WriteFile(to+side, data, 0o600))
		}
		must(t, old.Close())
		x.path = to
	}
	var err error
	x.db, err = Open(ctx, x.path)
	must(t, err)
}

// Check compares everything that can be read.
func (x *pair) Check(t *rapid.T) {
	x.now = x.now.Add(time.Second)
	var rows, open []string
	must(t, x.db.Rows(func(r *attempt.Row, token []byte) error {
		a := x.m.all[r.ID]
		rows = append(rows, r.ID)
		if a == nil || r.Lane != a.lane || r.State != a.state || r.Priority != a.priority || r.Starts != a.starts || r.Unclaimed != a.unclaimed ||
			r.LastFailure != a.failure || !r.NotBefore.Equal(a.notBefore) || string(token) != string(bytes.Repeat([]byte(a.token), 10)) {
			t.Fatalf("row %+v with token %q, want %+v", r, token, a)
		}
		return nil
	}))
	must(t, x.db.Attempts(func(at *Attempt) error {
		open = append(open, at.Row.ID)
		return nil
	}))
	var wantRows, wantOpen []string
	want := x.m.gone
	for _, id := range x.m.order {
		a := x.m.all[id]
		at, err := x.db.Find(id)
		must(t, err)
		if at == nil || at.State != a.state || at.Fence != a.fence || at.Outcome != a.outcome || at.Waiting() != (a.state != record.Ended && !a.granted) {
			t.Fatalf("attempt %+v, want %+v", at, a)
		}
		want.Accepted++
		switch {
		case a.state == record.Ended:
			counted(&want, a.tally, 1)
		case !a.granted:
			wantRows = append(wantRows, id)
			counted(&want, "waiting", 1)
		case a.state == record.Starting:
			wantOpen = append(wantOpen, id)
			counted(&want, "claimed", 1)
		default:
			wantOpen = append(wantOpen, id)
			counted(&want, "running", 1)
		}
	}
	if !slices.Equal(rows, wantRows) || !slices.Equal(open, wantOpen) {
		t.Fatalf("rows %q and open attempts %q, want %q and %q", rows, open, wantRows, wantOpen)
	}
	if got, err := x.db.Totals(); err != nil || got != want {
		t.Fatalf("totals %+v, %v; want %+v", got, err, want)
	}
	for _, lane := range someLanes {
		if n, err := x.db.Fence(lane); err != nil || n != x.m.fences[lane] {
			t.Fatalf("fence %d, %v; want %d", n, err, x.m.fences[lane])
		}
	}
	x.checkEvents(t)
}

func (x *pair) checkEvents(t *rapid.T) {
	var got []string
	events, err := x.db.Events(Filter{})
	must(t, err)
	for _, e := range events {
		got = append(got, fmt.Sprintf("%s %s %s %s>%s", e.Lane, e.Attempt, e.What, e.From, e.To))
	}
	if !slices.Equal(got, x.m.events) {
		t.Fatalf("events\n%q, want\n%q", got, x.m.events)
	}
}

// Whatever is asked, in whatever order, with restarts and kills between, the
// database is what a few maps would be.
func TestDatabaseIsItsModel(t *testing.T) {
	if os.Getenv("HANDSEL_SOAK") == "" {
		checks, steps := flag.Lookup("rapid.checks").Value, flag.Lookup("rapid.steps").Value
		defer checks.Set(checks.String())
		defer steps.Set(steps.String())
		must(t, checks.Set("12"))
		must(t, steps.Set("40"))
	}
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "model")
		must(t, err)
		defer os.RemoveAll(dir)
		x := &pair{t: t, path: filepath.Join(dir, "handsel.db"), m: newModel(), now: noon}
		x.db, err = Open(ctx, x.path)
		must(t, err)
		defer func() { must(t, x.db.Close()) }()
		t.Repeat(rapid.StateMachineActions(x))
	})
}
