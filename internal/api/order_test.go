package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func row(n int, minute, priority int, author, engine string) *attempt.Row {
	return &attempt.Row{
		Lane: fmt.Sprint("lane", n), ID: fmt.Sprintf("%04d", n), QueueStart: attempt.At(noon.Add(time.Duration(minute) * time.Minute)),
		Priority: priority, Author: author, Placement: attempt.Placement{Engine: engine},
	}
}

// C076, C085: who is behind whom is said, and never changes silently.
func TestPlaceSaysWhoIsAhead(t *testing.T) {
	rows := []*attempt.Row{row(1, 0, 0, "b", ""), row(2, 1, 5, "a", ""), row(3, 2, 5, "a", ""), row(4, 9, 0, "b", "")}
	got := Order(rows)
	for i, want := range []struct {
		lane          string
		place, behind int
		ahead         string
	}{
		{"lane2", 1, 0, "[]"}, {"lane3", 2, 0, "[]"}, {"lane1", 3, 2, "[{a 2}]"}, {"lane4", 4, 2, "[{a 2} {b 1}]"},
	} {
		w := got[i]
		if w.Lane != want.lane || w.Place != want.place || w.Behind != want.behind || fmt.Sprint(w.AheadByAuthor) != want.ahead {
			t.Errorf("%d: %s place %d behind %d ahead %v, want %+v", i, w.Lane, w.Place, w.Behind, w.AheadByAuthor, want)
		}
	}
}

// C007: a row counts against its own pools only.
func TestPoolsOfARow(t *testing.T) {
	for want, p := range map[string]attempt.Placement{
		"[all codex gpu heavy]": {Engine: "codex", Pools: []string{"gpu"}},
		"[all codex]":           {Engine: "codex", Workload: "light"},
		"[all heavy]":           {Pools: []string{"all"}},
	} {
		if got := fmt.Sprint(PoolsOf(&p)); got != want {
			t.Errorf("%+v counts against %s, want %s", p, got, want)
		}
	}
}

// The list of authors is the one that counting each time would give.
func TestAuthorsAheadAreThoseWithTheMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f", "g"}), 1, 60).Draw(t, "authors")
		var rows []*attempt.Row
		for i, name := range names {
			rows = append(rows, row(i, i, 0, name, ""))
		}
		count := map[string]int{}
		for i, w := range Order(rows) {
			if w.Place != i+1 || w.Author != names[i] {
				t.Fatalf("place %d of %q, want %d of %q", w.Place, w.Author, i+1, names[i])
			}
			alone := len(count) == 0 || len(count) == 1 && count[w.Author] > 0
			if alone != (w.AheadByAuthor == nil) {
				t.Fatalf("%v ahead: said %v", count, w.AheadByAuthor)
			}
			least := 1 << 30
			for _, a := range w.AheadByAuthor {
				if a.Rows != count[a.Author] || a.Rows > least {
					t.Fatalf("%v ahead: said %v", count, w.AheadByAuthor)
				}
				least = a.Rows
			}
			if !alone {
				if len(w.AheadByAuthor) != min(len(count), MaxAuthors) {
					t.Fatalf("%v ahead: said %v", count, w.AheadByAuthor)
				}
				for author, n := range count { // nobody left out has more than one who is in
					in := false
					for _, a := range w.AheadByAuthor {
						in = in || a.Author == author
					}
					if !in && n > least {
						t.Fatalf("%v ahead: said %v, without %q", count, w.AheadByAuthor, author)
					}
				}
			}
			count[w.Author]++
		}
	})
}

func BenchmarkOrder(b *testing.B) {
	var rows []*attempt.Row
	for i := range 10000 {
		rows = append(rows, row(i, i%97, i%7, fmt.Sprint(i%11), []string{"", "codex", "claude"}[i%3]))
	}
	for b.Loop() {
		Order(rows)
	}
}
