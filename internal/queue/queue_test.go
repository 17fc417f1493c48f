package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

var (
	token = bytes.Repeat([]byte{7}, 32)
	other = bytes.Repeat([]byte{8}, 32)
	noon  = time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC)
)

func fresh(t testing.TB) *DB {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "handsel.db"))
}

func accept(t testing.TB, db *DB, lane string) *attempt.Row {
	t.Helper()
	r := row(lane)
	must(t, db.Accept(ctx, r))
	return r
}

// claimed is a row that was offered and granted.
func claimed(t testing.TB, db *DB, lane string) *attempt.Row {
	t.Helper()
	r := accept(t, db, lane)
	_, err := db.Offer(ctx, r.ID, token, noon)
	must(t, err)
	_, err = db.Grant(ctx, r.ID, token, Driver{Pid: 1}, 0)
	must(t, err)
	return r
}

func find(t testing.TB, db *DB, id string) *Attempt {
	t.Helper()
	a, err := db.Find(id)
	must(t, err)
	if a == nil {
		t.Fatalf("attempt %s is not known", id)
	}
	return a
}

func waitingRows(t testing.TB, db *DB) (rows []*attempt.Row) {
	t.Helper()
	must(t, db.Rows(func(r *attempt.Row, _ []byte) error {
		kept := *r
		rows = append(rows, &kept)
		return nil
	}))
	return rows
}

func whats(t testing.TB, db *DB, f Filter) (list []string) {
	t.Helper()
	events, err := db.Events(f)
	must(t, err)
	for _, e := range events {
		list = append(list, e.What)
	}
	return list
}

func TestWalkOfAnAttempt(t *testing.T) {
	db := fresh(t)
	r := accept(t, db, "api/review")
	starts, err := db.Offer(ctx, r.ID, token, noon)
	must(t, err)
	if starts != 1 {
		t.Errorf("the first offer is start %d", starts)
	}
	if _, err := db.Offer(ctx, r.ID, nil, noon); err == nil || errors.Is(err, ErrMoved) {
		t.Errorf("Offer without a token = %v", err)
	}
	a := find(t, db, r.ID)
	if a.State != record.Starting || !a.Waiting() || !a.Row.AdmittedAt.Equal(noon) {
		t.Errorf("an offered row is %+v", a)
	}
	fence, err := db.Grant(ctx, r.ID, token, Driver{Pid: 4711, Ticks: 1 << 63, BootID: "b"}, 41)
	must(t, err)
	if fence != 42 {
		t.Errorf("the fence after 41 is %d", fence)
	}
	a = find(t, db, r.ID)
	if a.State != record.Starting || a.Waiting() || a.Fence != 42 || a.Driver != (Driver{4711, 1 << 63, "b"}) || a.GrantedAt.IsZero() {
		t.Errorf("a granted attempt is %+v", a)
	}
	if rows := waitingRows(t, db); len(rows) != 0 {
		t.Errorf("a granted attempt is still a row: %+v", rows[0])
	}
	must(t, db.Begun(ctx, r.ID))
	if a = find(t, db, r.ID); a.State != record.Running || a.BegunAt.IsZero() {
		t.Errorf("an attempt that began is %+v", a)
	}
	code := 2
	must(t, db.End(ctx, r.ID, End{Outcome: record.Exited, ExitCode: &code, At: time.Now()}))
	if a = find(t, db, r.ID); a.State != record.Ended || a.Outcome != record.Exited || a.ExitCode == nil || *a.ExitCode != 2 {
		t.Errorf("an attempt that ended is %+v", a)
	}
	if n, err := db.Fence("api/review"); err != nil || n != 42 {
		t.Errorf("Fence = %d, %v", n, err)
	}
	want := []string{Accepted, Offered, Granted, Begun, Ended}
	if got := whats(t, db, Filter{}); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// differs shows two values that are not the same.
func differs(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	a, _ := json.MarshalIndent(want, "-", " ")
	b, _ := json.MarshalIndent(got, "+", " ")
	return "-" + string(a) + "\n+" + string(b)
}

// L10: nothing of a row is lost on its way through the file, whatever is added
// to it later.
func TestRowComesBackAsItWas(t *testing.T) {
	db := fresh(t)
	want := new(attempt.Row)
	fillValue(reflect.ValueOf(want).Elem(), new(int))
	want.V, want.State, want.Fence, want.AdmittedAt, want.WaitedFor = attempt.Version, record.Queued, 0, attempt.Time{}, nil
	must(t, db.Accept(ctx, want))
	least := &attempt.Row{V: attempt.Version, ID: record.NewID(), Lane: "least", State: record.Queued, QueueStart: attempt.At(noon), StateSince: attempt.At(noon)}
	must(t, db.Accept(ctx, least))
	if diff := differs([]*attempt.Row{want, least}, waitingRows(t, db)); diff != "" {
		t.Errorf("Rows differ (-stored +read):\n%s", diff)
	}
	if diff := differs(*want, find(t, db, want.ID).Row); diff != "" {
		t.Errorf("Find differs (-stored +read):\n%s", diff)
	}
}

// fillValue gives every field a value of its own.
func fillValue(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[attempt.Time]() {
			v.Set(reflect.ValueOf(attempt.At(noon.Add(time.Duration(*n) * time.Second))))
			return
		}
		for i := range v.NumField() {
			fillValue(v.Field(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text é 'x' ", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fillValue(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fillValue(value, n)
		v.SetMapIndex(reflect.ValueOf("KEY"), value)
	default:
		panic("no value for " + v.Type().String())
	}
}

// C025: what was known of an end is known after a restart.
func TestEndIsKeptExactly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	code := 2
	ends := map[string]End{
		"exit 2":  {Outcome: record.Exited, ExitCode: &code, Result: record.Failed, Kind: "limit", At: noon},
		"signal":  {Outcome: record.Signaled, Signal: 9, At: noon},
		"lost":    {Outcome: record.Lost, Reason: &record.Reason{Class: "ownership", Code: "lost", Message: "the host restarted", Until: record.At(noon), Retryable: true, Holders: []record.Holder{{Pid: 4}}}, At: noon},
		"nothing": {Outcome: record.NotStarted, Reason: &record.Reason{Class: "ownership", Code: "displaced", Message: "held by 17"}, At: noon},
	}
	ids := map[string]string{}
	for name, e := range ends {
		r := accept(t, db, name)
		if name != "nothing" {
			_, err := db.Offer(ctx, r.ID, token, noon)
			must(t, err)
			_, err = db.Grant(ctx, r.ID, token, Driver{Pid: 1}, 0)
			must(t, err)
		}
		must(t, db.End(ctx, r.ID, e))
		ids[name] = r.ID
	}
	must(t, db.Close())
	db = open(t, path)
	for name, e := range ends {
		a := find(t, db, ids[name])
		got := End{Outcome: a.Outcome, Result: a.Result, Kind: a.Kind, Reason: a.Reason, ExitCode: a.ExitCode, Signal: a.Signal, At: noon}
		if diff := differs(e, got); diff != "" {
			t.Errorf("%s differs (-ended +read):\n%s", name, diff)
		}
	}
}

func TestLaneHasOneWaitingRow(t *testing.T) {
	db := fresh(t)
	r := accept(t, db, "a")
	again := row("b")
	again.ID = r.ID
	for _, tt := range []struct {
		name string
		row  *attempt.Row
		want Exists
	}{
		{"the lane", row("a"), Exists{"a", r.ID}},
		{"the attempt", again, Exists{"a", r.ID}},
	} {
		if there, ok := errors.AsType[*Exists](db.Accept(ctx, tt.row)); !ok || *there != tt.want {
			t.Errorf("%s is there: Accept = %v, want %v", tt.name, there, tt.want)
		}
	}
	if got := whats(t, db, Filter{}); !slices.Equal(got, []string{Accepted}) {
		t.Errorf("events %q after refusals", got)
	}
	// An open attempt is no row: whoever has the lane's lock may queue there.
	_, err := db.Offer(ctx, r.ID, token, noon)
	must(t, err)
	_, err = db.Grant(ctx, r.ID, token, Driver{}, 0)
	must(t, err)
	next := accept(t, db, "a")
	// And an open attempt that did not begin must not push it out.
	if there, ok := errors.AsType[*Exists](db.Requeue(ctx, r.ID, "")); !ok || there.Attempt != next.ID {
		t.Errorf("Requeue into a taken lane = %v", there)
	}
	if last, err := db.LastOfLane("a"); err != nil || last.Row.ID != next.ID {
		t.Errorf("LastOfLane = %v, %v", last, err)
	}
	must(t, db.End(ctx, next.ID, End{Outcome: record.Cancelled, At: noon}))
	must(t, db.Requeue(ctx, r.ID, ""))
	if last, err := db.LastOfLane("a"); err != nil || last.Row.ID != r.ID {
		t.Errorf("LastOfLane = %v, %v; want the one that waits", last, err)
	}
}

// Each change says what it starts from. What is refused changes nothing and
// writes no event.
func TestChangesStartFromTheirState(t *testing.T) {
	type change struct {
		name string
		do   func(db *DB, id string) error
	}
	changes := []change{
		{"offer", func(db *DB, id string) error { _, err := db.Offer(ctx, id, token, noon); return err }},
		{"withdraw", func(db *DB, id string) error { return db.Withdraw(ctx, id, token, "", true) }},
		{"withdraw another", func(db *DB, id string) error { return db.Withdraw(ctx, id, other, "", true) }},
		{"grant", func(db *DB, id string) error { _, err := db.Grant(ctx, id, token, Driver{}, 0); return err }},
		{"grant another", func(db *DB, id string) error { _, err := db.Grant(ctx, id, other, Driver{}, 0); return err }},
		{"grant nothing", func(db *DB, id string) error { _, err := db.Grant(ctx, id, nil, Driver{}, 0); return err }},
		{"begun", func(db *DB, id string) error { return db.Begun(ctx, id) }},
		{"requeue", func(db *DB, id string) error { return db.Requeue(ctx, id, "") }},
		{"end", func(db *DB, id string) error { return db.End(ctx, id, End{Outcome: record.Cancelled, At: noon}) }},
		{"end a row", func(db *DB, id string) error {
			return db.End(ctx, id, End{Outcome: record.Cancelled, At: noon, Waiting: true})
		}},
		{"priority", func(db *DB, id string) error { return db.SetPriority(ctx, id, 9) }},
		{"note", func(db *DB, id string) error { return db.Note(ctx, id, 1, "x", noon) }},
	}
	states := []struct {
		name  string
		reach []string
		may   []string
	}{
		{"queued", nil, []string{"offer", "end", "end a row", "priority", "note"}},
		{"offered", []string{"offer"}, []string{"withdraw", "grant", "end", "end a row", "priority", "note"}},
		{"withdrawn", []string{"offer", "withdraw"}, []string{"offer", "end", "end a row", "priority", "note"}},
		{"granted", []string{"offer", "grant"}, []string{"begun", "requeue", "end"}},
		{"running", []string{"offer", "grant", "begun"}, []string{"end"}},
		{"requeued", []string{"offer", "grant", "requeue"}, []string{"offer", "end", "end a row", "priority", "note"}},
		{"ended", []string{"end"}, nil},
		{"ended after running", []string{"offer", "grant", "begun", "end"}, nil},
	}
	do := func(name string) func(*DB, string) error {
		return changes[slices.IndexFunc(changes, func(c change) bool { return c.name == name })].do
	}
	db := fresh(t)
	for _, s := range states {
		for _, c := range changes {
			r := accept(t, db, s.name+" "+c.name)
			for _, step := range s.reach {
				must(t, do(step)(db, r.ID))
			}
			before, events := find(t, db, r.ID), whats(t, db, Filter{Attempt: r.ID})
			err := c.do(db, r.ID)
			if slices.Contains(s.may, c.name) {
				if err != nil {
					t.Errorf("%s, then %s: %v", s.name, c.name, err)
				}
				continue
			}
			if !errors.Is(err, ErrMoved) {
				t.Errorf("%s, then %s: %v, want ErrMoved", s.name, c.name, err)
			}
			if diff := differs(before, find(t, db, r.ID)); diff != "" {
				t.Errorf("%s, then %s: refused, and yet:\n%s", s.name, c.name, diff)
			}
			if after := whats(t, db, Filter{Attempt: r.ID}); len(after) != len(events) {
				t.Errorf("%s, then %s: refused, and yet events went from %q to %q", s.name, c.name, events, after)
			}
		}
	}
	for _, c := range changes {
		if err := c.do(db, record.NewID()); !errors.Is(err, ErrMoved) {
			t.Errorf("%s of an unknown attempt: %v, want ErrMoved", c.name, err)
		}
	}
}

// C077, L15a: a start that nobody claims costs its token and nothing else.
func TestWithdrawnRowKeepsItsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	r := accept(t, db, "a")
	for i := range 3 {
		hash := bytes.Repeat([]byte{byte(i + 1)}, 32)
		starts, err := db.Offer(ctx, r.ID, hash, noon)
		must(t, err)
		if starts != i+1 {
			t.Errorf("offer %d is start %d", i+1, starts)
		}
		must(t, db.Withdraw(ctx, r.ID, hash, "nobody came", true))
		if _, err := db.Grant(ctx, r.ID, hash, Driver{}, 0); !errors.Is(err, ErrMoved) {
			t.Errorf("a withdrawn token: Grant = %v, want ErrMoved", err)
		}
		must(t, db.Close())
		db = open(t, path)
		got := waitingRows(t, db)[0]
		want := *r
		want.State, want.StateSince = record.Queued, got.StateSince
		want.Starts, want.Unclaimed, want.LastFailure = i+1, i+1, "nobody came"
		if diff := differs(&want, got); diff != "" {
			t.Errorf("after %d starts (-want +got):\n%s", i+1, diff)
		}
	}
	_, err := db.Offer(ctx, r.ID, token, noon)
	must(t, err)
	must(t, db.Withdraw(ctx, r.ID, token, "restarted", false))
	if got := waitingRows(t, db)[0]; got.Unclaimed != 3 || got.LastFailure != "nobody came" {
		t.Errorf("a start that was not unclaimed counts: %+v", got)
	}
}

// L15a: of an expiry and a claim of the same offer exactly one wins.
func TestExpiryAndClaimNeverBothWin(t *testing.T) {
	db := fresh(t)
	for range 200 {
		r := accept(t, db, "a")
		_, err := db.Offer(ctx, r.ID, token, noon)
		must(t, err)
		var all sync.WaitGroup
		var claim, second, expiry error
		all.Go(func() { _, claim = db.Grant(ctx, r.ID, token, Driver{Pid: 1}, 0) })
		all.Go(func() { expiry = db.Withdraw(ctx, r.ID, token, "late", true) })
		all.Go(func() { _, second = db.Grant(ctx, r.ID, token, Driver{Pid: 2}, 0) })
		all.Wait()
		won := 0
		for _, err := range []error{claim, second, expiry} {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, ErrMoved):
				t.Fatal(err)
			}
		}
		if won != 1 {
			t.Fatalf("claim %v, second claim %v, expiry %v: %d won", claim, second, expiry, won)
		}
		if a := find(t, db, r.ID); a.Waiting() != (expiry == nil) {
			t.Fatalf("expiry %v, and the attempt is %+v", expiry, a)
		}
		must(t, db.End(ctx, r.ID, End{Outcome: record.Cancelled, At: noon}))
	}
}

func TestFenceNeverFalls(t *testing.T) {
	db := fresh(t)
	var last uint64
	for _, floor := range []uint64{0, 0, 7, 3, 0, 1 << 40, 0} {
		r := accept(t, db, "a")
		_, err := db.Offer(ctx, r.ID, token, noon)
		must(t, err)
		fence, err := db.Grant(ctx, r.ID, token, Driver{}, floor)
		must(t, err)
		if fence <= last || fence <= floor {
			t.Errorf("fence %d after %d, floor %d", fence, last, floor)
		}
		last = fence
		must(t, db.Requeue(ctx, r.ID, "")) // the fence is used up all the same
		must(t, db.End(ctx, r.ID, End{Outcome: record.Cancelled, At: noon}))
	}
	_, err := db.Prune(ctx, noon.Add(time.Hour), 0)
	must(t, err)
	if n, err := db.Fence("a"); err != nil || n != last {
		t.Errorf("Fence = %d, %v, want %d", n, err, last)
	}
	r := accept(t, db, "b")
	_, err = db.Offer(ctx, r.ID, token, noon)
	must(t, err)
	if _, err := db.Grant(ctx, r.ID, token, Driver{}, 1<<63-1); err == nil || errors.Is(err, ErrMoved) {
		t.Errorf("Grant above the last fence there is = %v", err)
	}
}

// C014, C017: an end is written once, and not before what it ends.
func TestEndIsNotBeforeItsStart(t *testing.T) {
	db := fresh(t)
	r := claimed(t, db, "a")
	must(t, db.Begun(ctx, r.ID))
	must(t, db.End(ctx, r.ID, End{Outcome: record.Lost, At: time.Now().Add(-time.Hour)}))
	a := find(t, db, r.ID)
	if a.EndedAt.Before(a.BegunAt.Time) || a.EndedAt.Before(a.GrantedAt.Time) {
		t.Errorf("granted %v, begun %v, ended %v", a.GrantedAt, a.BegunAt, a.EndedAt)
	}
	if err := db.End(ctx, r.ID, End{Outcome: record.Exited, At: noon}); !errors.Is(err, ErrMoved) {
		t.Errorf("the second end: %v", err)
	}
	if again := find(t, db, r.ID); again.Outcome != record.Lost {
		t.Errorf("the second end changed the first to %s", again.Outcome)
	}
	if err := db.End(ctx, r.ID, End{Outcome: "done"}); err == nil || errors.Is(err, ErrMoved) {
		t.Errorf("an end without an outcome: %v", err)
	}
}

// C024: every attempt is counted once, also when nobody told that it began, and
// after it was pruned.
func TestTotalsAddUp(t *testing.T) {
	db := fresh(t)
	zero, two := 0, 2
	for i, tt := range []struct {
		grant, begin bool
		end          *End
		want         string
	}{
		{want: "waiting"},
		{grant: true, want: "claimed"},
		{grant: true, begin: true, want: "running"},
		{end: &End{Outcome: record.Cancelled}, want: unstarted},
		{end: &End{Outcome: record.Lost}, want: unstarted}, // a row: nothing of it can have run
		{grant: true, end: &End{Outcome: record.Cancelled}, want: unstarted},
		{grant: true, end: &End{Outcome: record.Cancelled, Began: true}, want: failed},
		{grant: true, end: &End{Outcome: record.NotStarted}, want: unstarted},
		{grant: true, end: &End{Outcome: record.Exited, ExitCode: &zero}, want: succeeded},
		{grant: true, begin: true, end: &End{Outcome: record.Exited, ExitCode: &zero}, want: succeeded},
		{grant: true, begin: true, end: &End{Outcome: record.Exited, ExitCode: &zero, Result: record.Failed}, want: failed},
		{grant: true, begin: true, end: &End{Outcome: record.Exited, ExitCode: &two, Result: record.Succeeded}, want: succeeded},
		{grant: true, begin: true, end: &End{Outcome: record.Exited, ExitCode: &two}, want: failed},
		{grant: true, begin: true, end: &End{Outcome: record.Signaled, Signal: 9}, want: failed},
		{grant: true, begin: true, end: &End{Outcome: record.TimedOut}, want: failed},
		{grant: true, begin: true, end: &End{Outcome: record.Cancelled}, want: failed},
		{grant: true, end: &End{Outcome: record.Lost}, want: lost},
		{grant: true, begin: true, end: &End{Outcome: record.Lost}, want: lost},
	} {
		before, err := db.Totals()
		must(t, err)
		r := accept(t, db, fmt.Sprint("lane ", i))
		if tt.grant {
			_, err := db.Offer(ctx, r.ID, token, noon)
			must(t, err)
			_, err = db.Grant(ctx, r.ID, token, Driver{}, 0)
			must(t, err)
		}
		if tt.begin {
			must(t, db.Begun(ctx, r.ID))
		}
		if tt.end != nil {
			tt.end.At = noon
			must(t, db.End(ctx, r.ID, *tt.end))
		}
		after, err := db.Totals()
		must(t, err)
		want := before
		want.Accepted++
		counted(&want, tt.want, 1)
		if after != want {
			t.Errorf("%d: totals went from %+v to %+v, want one more %s", i, before, after, tt.want)
		}
	}
	before, err := db.Totals()
	must(t, err)
	n, err := db.Prune(ctx, noon.Add(time.Hour), 0)
	must(t, err)
	if n < 10 {
		t.Errorf("%d attempts were pruned", n)
	}
	if after, err := db.Totals(); err != nil || after != before {
		t.Errorf("pruning turned %+v into %+v, %v", before, after, err)
	}
}

func counted(t *Totals, tally string, n int64) {
	one := map[string]*int64{
		"waiting": &t.Waiting, "claimed": &t.Claimed, "running": &t.Running, unstarted: &t.Unstarted,
		succeeded: &t.Succeeded, failed: &t.Failed, lost: &t.Lost,
	}
	*one[tally] += n
	if slices.Contains([]string{"running", succeeded, failed, lost}, tally) {
		t.Started += n
	}
}

func TestEventsAreChosen(t *testing.T) {
	db := fresh(t)
	a, b := claimed(t, db, "a"), accept(t, db, "b")
	must(t, db.End(ctx, a.ID, End{Outcome: record.Signaled, Signal: 9, At: noon}))
	a2 := accept(t, db, "a")
	must(t, db.SetPriority(ctx, a2.ID, 10))
	all, err := db.Events(Filter{})
	must(t, err)
	if len(all) != 7 {
		t.Fatalf("%d events: %+v", len(all), all)
	}
	for i, e := range all {
		if i > 0 && e.Seq <= all[i-1].Seq {
			t.Errorf("event %d after %d", e.Seq, all[i-1].Seq)
		}
	}
	if last := all[6]; last.Lane != "a" || last.Attempt != a2.ID || last.What != Moved || last.Detail != "priority 10, was 3" {
		t.Errorf("the last event is %+v", last)
	}
	if end := all[4]; end.From != record.Starting || end.To != record.Ended || end.Detail != "signaled 9" {
		t.Errorf("the end's event is %+v", end)
	}
	for _, tt := range []struct {
		f    Filter
		want []string
	}{
		{Filter{Lane: "a"}, []string{Accepted, Offered, Granted, Ended, Accepted, Moved}},
		{Filter{Attempt: a.ID}, []string{Accepted, Offered, Granted, Ended}},
		{Filter{Attempt: b.ID}, []string{Accepted}},
		{Filter{Attempt: b.ID, Lane: "a"}, nil},
		{Filter{After: all[3].Seq}, []string{Ended, Accepted, Moved}},
		{Filter{After: all[3].Seq, Lane: "a", Limit: 2}, []string{Ended, Accepted}},
		{Filter{Limit: 1}, []string{Accepted}},
		{Filter{Lane: "c"}, nil},
		{Filter{After: all[6].Seq}, nil},
	} {
		if got := whats(t, db, tt.f); !slices.Equal(got, tt.want) {
			t.Errorf("%+v chooses %q, want %q", tt.f, got, tt.want)
		}
	}
}

func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	db := fresh(t)
	var ids []string
	end := func(r *attempt.Row, at time.Time) {
		must(t, db.End(ctx, r.ID, End{Outcome: record.Cancelled, At: at}))
		ids = append(ids, r.ID)
	}
	for i := range 10 {
		end(accept(t, db, "a"), noon.Add(time.Duration(i)*time.Minute))
	}
	after := row("waits")
	after.After = []attempt.After{{Attempt: ids[2]}, {Lane: "b"}}
	must(t, db.Accept(ctx, after))
	open := claimed(t, db, "open")
	events, err := db.Events(Filter{})
	must(t, err)

	n, err := db.Prune(ctx, noon.Add(5*time.Minute), 0)
	must(t, err)
	if n != 4 {
		t.Errorf("%d pruned, want the four that ended before and that nobody comes after", n)
	}
	for i, id := range ids {
		a, err := db.Find(id)
		must(t, err)
		if gone := i < 5 && i != 2; (a == nil) != gone {
			t.Errorf("attempt %d: %v", i, a)
		}
		if got := whats(t, db, Filter{Attempt: id}); (len(got) == 0) != (a == nil) {
			t.Errorf("attempt %d has events %q", i, got)
		}
	}
	find(t, db, open.ID)
	if n, err = db.Prune(ctx, noon.Add(time.Hour), 4); err != nil || n != 2 {
		t.Errorf("Prune that keeps four = %d, %v; want 2 of 6", n, err)
	}
	// Numbers of events are not given twice, whatever was removed.
	must(t, db.End(ctx, after.ID, End{Outcome: record.Cancelled, At: noon}))
	must(t, db.End(ctx, open.ID, End{Outcome: record.Cancelled, At: noon}))
	_, err = db.Prune(ctx, noon.Add(24*365*time.Hour), 0)
	must(t, err)
	accept(t, db, "next")
	now, err := db.Events(Filter{After: events[len(events)-1].Seq})
	must(t, err)
	if last := now[len(now)-1]; last.What != Accepted || last.Seq <= events[len(events)-1].Seq+2 {
		t.Errorf("the event after %d and two ends is %+v", events[len(events)-1].Seq, last)
	}
}

func TestPruneTakesManyTransactions(t *testing.T) {
	db := fresh(t)
	var all sync.WaitGroup
	const n = 2*chunk + 50
	for i := range n {
		all.Go(func() {
			r := row(fmt.Sprint(i))
			if err := errors.Join(db.Accept(ctx, r), db.End(ctx, r.ID, End{Outcome: record.Cancelled, At: noon})); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := db.Prune(ctx, noon.Add(time.Hour), 0); err != nil || got < n-1 {
		t.Errorf("Prune = %d, %v of %d", got, err, n)
	}
}

func TestUnknownIsNil(t *testing.T) {
	db := fresh(t)
	if a, err := db.Find(record.NewID()); a != nil || err != nil {
		t.Errorf("Find = %v, %v", a, err)
	}
	if a, err := db.LastOfLane("a"); a != nil || err != nil {
		t.Errorf("LastOfLane = %v, %v", a, err)
	}
	if n, err := db.Fence("a"); n != 0 || err != nil {
		t.Errorf("Fence = %v, %v", n, err)
	}
}

func TestCallbackErrorEndsTheReading(t *testing.T) {
	db := fresh(t)
	claimed(t, db, "a")
	claimed(t, db, "b")
	accept(t, db, "c")
	accept(t, db, "d")
	stop := errors.New("stop")
	n := 0
	err := db.Rows(func(*attempt.Row, []byte) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("Rows = %v after %d", err, n)
	}
	err = db.Attempts(func(*Attempt) error { n++; return stop })
	if !errors.Is(err, stop) || n != 2 {
		t.Errorf("Attempts = %v after %d", err, n)
	}
}

// A callback may change what it is told about: nothing is locked meanwhile.
func TestRowsMayBeChangedWhileTheyAreTold(t *testing.T) {
	db := fresh(t)
	fillRows(t, db, atOnce+20)
	told := map[string]bool{}
	for _, r := range waitingRows(t, db) {
		if told[r.ID] {
			t.Errorf("row %s is told twice", r.ID)
		}
		told[r.ID] = true
	}
	n := 0
	must(t, db.Rows(func(r *attempt.Row, _ []byte) error {
		n++
		return db.End(ctx, r.ID, End{Outcome: record.Cancelled, At: noon})
	}))
	if n != atOnce+20 {
		t.Errorf("%d rows told", n)
	}
	if rows := waitingRows(t, db); len(rows) != 0 {
		t.Errorf("%d rows left", len(rows))
	}
}

func TestCallsAfterCloseSayClosed(t *testing.T) {
	db := fresh(t)
	r := accept(t, db, "a")
	must(t, db.Close())
	must(t, db.Close())
	_, offer := db.Offer(ctx, r.ID, token, noon)
	_, read := db.Find(r.ID)
	for name, err := range map[string]error{"Accept": db.Accept(ctx, row("b")), "Offer": offer, "Find": read, "Rows": db.Rows(nil)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close = %v", name, err)
		}
	}
}

// Close answers everybody: with what was done, or that nothing was.
func TestCloseLeavesNobodyWaiting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	var all sync.WaitGroup
	done := make([]bool, 100)
	rows := make([]*attempt.Row, 100)
	for i := range done {
		rows[i] = row(fmt.Sprint(i))
		all.Go(func() {
			err := db.Accept(ctx, rows[i])
			if done[i] = err == nil; err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
		if i == 50 {
			all.Go(func() { must(t, db.Close()) })
		}
	}
	all.Wait()
	db = open(t, path)
	for i, r := range rows {
		a, err := db.Find(r.ID)
		must(t, err)
		if (a != nil) != done[i] {
			t.Errorf("row %d: answered %v, stored %v", i, done[i], a != nil)
		}
	}
}

func TestCancelledCallChangesNothing(t *testing.T) {
	db := fresh(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	hold, held := make(chan struct{}), make(chan struct{})
	go db.change(ctx, func(*writer) error { close(held); <-hold; return ErrMoved })
	<-held
	err := db.Accept(gone, row("a"))
	close(hold)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Accept = %v", err)
	}
	if rows := waitingRows(t, db); len(rows) != 0 {
		t.Errorf("%d rows", len(rows))
	}
}

// Calls that come together share a commit, and a refusal among them is nobody
// else's.
func TestRefusalTakesNoOtherWithIt(t *testing.T) {
	db := fresh(t)
	there := accept(t, db, "there")
	hold, held := make(chan struct{}), make(chan struct{})
	go db.change(ctx, func(*writer) error { close(held); <-hold; return ErrMoved })
	<-held
	var all sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for i := range 60 {
		all.Go(func() {
			r := row(fmt.Sprint(i))
			if i%3 == 0 {
				r.Lane = there.Lane
			}
			err := db.Accept(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			if _, ok := errors.AsType[*Exists](err); ok && i%3 == 0 {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	close(hold)
	all.Wait()
	if n := len(waitingRows(t, db)); refused != 20 || n != 41 {
		t.Errorf("%d refused, %d rows", refused, n)
	}
}

// L8: those who ask together are answered by one commit, with one processor too.
func TestThoseWhoAskTogetherShareACommit(t *testing.T) {
	for _, processors := range []int{1, runtime.GOMAXPROCS(0)} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		db := fresh(t)
		commits := 0
		_ = db.change(ctx, func(w *writer) error {
			w.conn.WALHook(func(c *sqlite3.Conn, schema string, pages int) error {
				commits++
				return w.committed(c, schema, pages)
			})
			return ErrMoved
		})
		const clients, each = 64, 10
		var all sync.WaitGroup
		for n := range clients {
			all.Go(func() {
				for k := range each {
					if err := db.Accept(ctx, row(fmt.Sprint(n, k))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		must(t, db.Close()) // and so the writer is gone
		most := clients * each / 8
		if processors == 1 { // one for each round, and the first may take some more
			most = each + each/2
		}
		if commits > most {
			t.Errorf("%d processors: %d commits for %d rows of %d clients", processors, commits, clients*each, clients)
		}
	}
}

// A change that SQLite will not have is undone alone.
func TestFaultOfOneIsUndoneAlone(t *testing.T) {
	db := fresh(t)
	w := db.w
	good := func(lane string) func(*writer) error {
		r := row(lane)
		return func(w *writer) error {
			return bindRow(w.run(sqlInsert), r, record.Queued, stamp(noon)).exec()
		}
	}
	bad := func(w *writer) error {
		must(t, good("half")(w))
		return bindRow(w.run(sqlInsert), row("bad"), "nonsense", stamp(noon)).exec()
	}
	refusesLate := func(w *writer) error {
		must(t, good("late")(w))
		return ErrMoved
	}
	var asks []*ask
	for _, do := range []func(*writer) error{good("a"), bad, good("b"), refusesLate, good("c")} {
		asks = append(asks, &ask{do: do, done: make(chan error, 1)})
	}
	served := make(chan struct{})
	go db.change(ctx, func(*writer) error { // in the goroutine that the connection belongs to
		must(t, w.run(sqlRollback).exec())
		w.serve(asks)
		must(t, w.run(sqlBegin).exec())
		close(served)
		return ErrMoved
	})
	<-served
	for i, a := range asks {
		if err := <-a.done; (err == nil) != (i%2 == 0) {
			t.Errorf("change %d: %v", i, err)
		}
	}
	var lanes []string
	for _, r := range waitingRows(t, db) {
		lanes = append(lanes, r.Lane)
	}
	if !slices.Equal(lanes, []string{"a", "b", "c"}) {
		t.Errorf("rows %q", lanes)
	}
}

// After a flush that failed nobody knows what is on the disk. Nothing is written
// over it until it was read again.
func TestNothingIsWrittenAfterAFailedFlush(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	r := accept(t, db, "a")
	unusable := func(what string, err error) {
		t.Helper()
		if _, ok := errors.AsType[*home.Unusable](err); !ok {
			t.Errorf("%s = %v, want *home.Unusable", what, err)
		}
	}
	unusable("the change that was flushed", db.change(ctx, func(w *writer) error {
		w.fault = sqlite3.IOERR_FSYNC
		return w.fault
	}))
	unusable("Accept", db.Accept(ctx, row("b")))
	unusable("End", db.End(ctx, r.ID, End{Outcome: record.Cancelled}))
	if n := len(waitingRows(t, db)); n != 1 {
		t.Errorf("%d rows", n)
	}
	must(t, db.Close())
	accept(t, open(t, path), "b")
}

// C086: every connection flushes its commits and waits for locks.
func TestEveryConnectionIsSetUp(t *testing.T) {
	db := fresh(t)
	accept(t, db, "a")
	must(t, db.change(ctx, func(w *writer) error {
		for _, tt := range []struct {
			pragma string
			want   int
		}{{"synchronous", 2}, {"busy_timeout", 5000}, {"foreign_keys", 1}, {"journal_size_limit", logLimit}, {"page_size", pageSize}} {
			if n, err := number(w.conn, "PRAGMA "+tt.pragma); err != nil || n != tt.want {
				t.Errorf("%s of the writer = %d, %v", tt.pragma, n, err)
			}
		}
		return nil
	}))
	must(t, db.use(func() error {
		for pragma, want := range map[string]int{"synchronous": 2, "busy_timeout": 5000, "foreign_keys": 1} {
			if n, err := number(db.conn, "PRAGMA "+pragma); err != nil || n != want {
				t.Errorf("%s of the reader = %d, %v", pragma, n, err)
			}
		}
		if err := db.conn.Exec("DELETE FROM events"); err == nil {
			t.Error("the reader can write")
		}
		return nil
	}))
}

// The questions that are asked often, or of many rows, are answered by an index.
func TestNothingIsScanned(t *testing.T) {
	db := fresh(t)
	sqls := append(slices.Clone(texts[sqlKnown:]), readFind, readLast, readFence, readLaneEvents, readAttemptEvents, readEvents, readRows, readOpen)
	must(t, db.use(func() error {
		for _, sql := range sqls {
			s, _, err := db.conn.Prepare("EXPLAIN QUERY PLAN " + sql)
			must(t, err)
			for s.Step() {
				plan := s.ColumnText(3)
				if strings.HasPrefix(plan, "SCAN") && !strings.Contains(plan, "USING") && !strings.Contains(plan, "VIRTUAL TABLE") && plan != "SCAN events" {
					t.Errorf("%s\n\t%s", sql, plan)
				}
			}
			must(t, s.Close())
		}
		return nil
	}))
}

func TestBackupIsTheDatabase(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "handsel.db"))
	r := claimed(t, db, "a")
	accept(t, db, "b")
	to := filepath.Join(dir, "copy of #1?.db")
	must(t, db.Backup(to))
	if err := db.Backup(to); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Backup over a file = %v", err)
	}
	onlyOurs(t, to)
	copied := open(t, to)
	if a := find(t, copied, r.ID); a.Fence != 1 {
		t.Errorf("the copy has %+v", a)
	}
	if got, want := whats(t, copied, Filter{}), whats(t, db, Filter{}); !slices.Equal(got, want) {
		t.Errorf("the copy has events %q, want %q", got, want)
	}
}

// P7, P10: that a row is to be reviewed, and the verdict on what it tries again,
// outlive the dispatcher.
func TestRowKeepsWhatItSaysOfReviews(t *testing.T) {
	db := fresh(t)
	r := row("a")
	r.RetryOf, r.RetryVerdict, r.Placement.Review = record.NewID(), 3, true
	must(t, db.Accept(ctx, r))
	got := find(t, db, r.ID).Row
	if got.RetryOf != r.RetryOf || got.RetryVerdict != 3 || !got.Placement.Review {
		t.Errorf("%+v", got)
	}
}
