package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

// The books of a long life have so many events, half of them in the database and
// half in the file; those of a test fewer, as each of the former is committed.
const (
	longLife = 100_000
	many     = 20_000
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// books is a home with many events. Those of the file stand between now and many
// milliseconds ago, every third of them of the lane "odd".
func books(t testing.TB, many int) *handsel.Home {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	at := home.Dir{Path: dir, From: home.Variable}
	if err := at.Ensure(); err != nil {
		t.Fatal(err)
	}
	fillDatabase(t, filepath.Join(dir, database), many)
	var text bytes.Buffer
	for i := range many / 2 {
		lane := "even"
		if i%3 == 0 {
			lane = "odd"
		}
		line, err := json.Marshal(journal.Event{
			V: 1, At: noon.Add(time.Duration(i) * time.Millisecond), Permission: journal.Resource, What: journal.Admitted, Lane: lane,
			Attempt: fmt.Sprintf("run-%05d", i), Engine: "claude", Evidence: []string{"slot all/0"},
		})
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	if err := os.WriteFile(filepath.Join(dir, journal.File), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := handsel.OpenWith(func(name string) string {
		if name == home.Variable {
			return dir
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// fillDatabase writes many/2 events: two for each attempt.
func fillDatabase(t testing.TB, path string, many int) {
	t.Helper()
	db, err := queue.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	const writers = 256
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for i := w; i < many/4; i += writers {
				if err := twoEvents(t, db, i); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func twoEvents(t testing.TB, db *queue.DB, i int) error {
	row := &attempt.Row{
		V: 1, Lane: fmt.Sprintf("lane-%d", i), ID: record.NewID(), State: attempt.Queued, QueueStart: attempt.At(noon), StateSince: attempt.At(noon),
		Placement: attempt.Placement{Cwd: "/", Workload: "heavy", Confinement: "none", Engine: "codex"}, Argv0: "true", Argc: 1, Command: strings.Repeat("0", 64),
	}
	if err := db.Accept(t.Context(), row); err != nil {
		return err
	}
	return db.End(t.Context(), row.ID, queue.End{Outcome: record.Cancelled})
}

func chosen(t testing.TB, h *handsel.Home, f handsel.JournalFilter) (all []handsel.JournalEvent) {
	t.Helper()
	for e := range Journal(h, f, func(p error) { t.Error(p) }) {
		all = append(all, e)
	}
	return all
}

func TestManyEventsAreListedAndFiltered(t *testing.T) {
	h := books(t, many)
	all := chosen(t, h, handsel.JournalFilter{})
	if len(all) != many {
		t.Fatalf("%d events, want %d", len(all), many)
	}
	if !slices.IsSortedFunc(all, func(a, b handsel.JournalEvent) int { return a.At.Compare(b.At) }) {
		t.Error("they are not in the order of time")
	}
	from := map[string]int{}
	for i := range all {
		from[all[i].Source]++
	}
	if from[journal.FromDatabase] != many/2 || from[journal.FromFile] != many/2 {
		t.Errorf("%v", from)
	}
	for _, tt := range []struct {
		f    handsel.JournalFilter
		want int
	}{
		{handsel.JournalFilter{Lane: "odd"}, (many/2 + 2) / 3},
		{handsel.JournalFilter{Lane: "lane-17"}, 2},
		{handsel.JournalFilter{Attempt: "run-00042"}, 1},
		{handsel.JournalFilter{Permission: journal.Resource}, many / 2},
		{handsel.JournalFilter{Engine: "codex", What: queue.Ended}, many / 4},
		{handsel.JournalFilter{Engine: "claude", Since: noon.Add(time.Second), Until: noon.Add(2 * time.Second)}, 1000},
		{handsel.JournalFilter{Lane: "nobody"}, 0},
	} {
		if got := chosen(t, h, tt.f); len(got) != tt.want {
			t.Errorf("%+v: %d events, want %d", tt.f, len(got), tt.want)
		}
	}
	s, err := JournalSubject(t.Context(), h, "run:run-00042") // known to the journal only
	if err != nil || s.Filter.Attempt != "run-00042" {
		t.Errorf("%+v, %v", s, err)
	}
}

func BenchmarkJournal(b *testing.B) {
	h := books(b, longLife)
	for _, bb := range []struct {
		name string
		f    handsel.JournalFilter
	}{
		{"all", handsel.JournalFilter{}}, {"lane", handsel.JournalFilter{Lane: "odd"}}, {"attempt", handsel.JournalFilter{Attempt: "run-00042"}},
		{"since", handsel.JournalFilter{Since: noon.Add(40 * time.Second)}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				chosen(b, h, bb.f)
			}
		})
	}
}
