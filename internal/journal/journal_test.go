package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
)

func newHome(t testing.TB) home.Dir {
	t.Helper()
	return home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: "HANDSEL_HOME"}
}

func all(t *testing.T, d home.Dir, f Filter) (events []Event, problems []string) {
	t.Helper()
	for e := range Read(d, f, func(p *Problem) { problems = append(problems, p.Error()) }) {
		events = append(events, e)
	}
	return events, problems
}

func noon(n int) time.Time { return time.Date(2026, 12, 1, 12, 0, n, 5e6, time.UTC) }

func TestWhatWasAppendedIsReadAgain(t *testing.T) {
	d := newHome(t)
	if got, problems := all(t, d, Filter{}); got != nil || problems != nil {
		t.Fatalf("no home: %v, %v", got, problems)
	}
	want := Event{
		At: noon(1), Permission: Acceptance, What: "accepted", Lane: "a/é", Attempt: "01a2", Engine: "claude", Account: "work", From: "review", To: "accepted",
		Identity: "sha256:1", Evidence: []string{"x", "y"}, By: "kim", Code: "ok", Text: "looks <good>", Until: noon(9), Outcome: "exited", Result: "succeeded",
		WaitedS: 1.5, RanS: 2, WaitedFor: map[string]float64{"resource/pool_full": 1.5},
	}
	if err := Append(d, want, Event{Permission: Resource, What: Admitted, Source: "forged", Seq: 9}); err != nil {
		t.Fatal(err)
	}
	got, problems := all(t, d, Filter{})
	if len(got) != 2 || problems != nil {
		t.Fatalf("%v, %v", got, problems)
	}
	want.V, want.Source = 1, FromFile
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("read %+v\nwant %+v", got[0], want)
	}
	if got[1].At.IsZero() || got[1].Source != FromFile || got[1].Seq != 0 {
		t.Errorf("read %+v", got[1])
	}
	text, err := os.ReadFile(filepath.Join(d.Path, File))
	if err != nil || !bytes.HasPrefix(text, []byte(`{"v":1,"at":"2026-12-01T12:00:01.005Z",`)) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestFilterChooses(t *testing.T) {
	d := newHome(t)
	for i, e := range []Event{
		{Permission: Ownership, What: Taken, Lane: "a", Attempt: "run-1", Engine: "claude"},
		{Permission: Resource, What: Admitted, Lane: "a", Attempt: "run-1", Engine: "claude"},
		{Permission: Ownership, What: Ended, Lane: "b", Attempt: "run-2", Engine: "codex"},
	} {
		e.At = noon(i)
		if err := Append(d, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 3},
		{Filter{Lane: "a"}, 2},
		{Filter{Attempt: "run-2"}, 1},
		{Filter{Permission: Ownership}, 2},
		{Filter{What: Ended}, 1},
		{Filter{Engine: "claude", Permission: Resource}, 1},
		{Filter{Since: noon(1)}, 2},
		{Filter{Until: noon(1)}, 1},
		{Filter{Since: noon(1), Until: noon(2)}, 1},
		{Filter{Lane: "c"}, 0},
	} {
		if got, _ := all(t, d, tt.f); len(got) != tt.want {
			t.Errorf("%+v: %d events, want %d", tt.f, len(got), tt.want)
		}
	}
}

func TestTornAndForeignLinesArePassedOverAndSaid(t *testing.T) {
	d := newHome(t)
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(d.Path, File), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	add := func(n int) {
		t.Helper()
		if err := Append(d, Event{At: noon(n), Permission: Resource, What: Admitted}); err != nil {
			t.Fatal(err)
		}
	}
	add(1)
	write(`{"v":1,"at":"2026-12-01T12:0`) // torn by a full disk; the next line is glued to it
	add(2)
	write("hello\n" + `{"v":1,"at":"2026-12-01T12:00:00Z"}` + "\n" + strings.Repeat("x", 5*maxLine) + "\n")
	add(3)
	write("\x00\x00\x00") // of a power loss
	add(4)
	write(`{"v":7,"at":"2026-12-01T12:00:05Z","permission":"release","what":"released","new":[1]}` + "\n" + `{"v":1,`)
	got, problems := all(t, d, Filter{})
	var seconds []int
	for _, e := range got {
		seconds = append(seconds, e.At.Second())
	}
	if want := []int{1, 2, 3, 4, 5}; !slices.Equal(seconds, want) {
		t.Errorf("read %v, want %v", seconds, want)
	}
	if want := []string{
		"journal.ndjson, line 2: its first 28 bytes are no event", "journal.ndjson, line 3: it is no event", "journal.ndjson, line 4: it is no event",
		"journal.ndjson, line 5: it is too long to be an event", "journal.ndjson, line 7: its first 3 bytes are no event", "journal.ndjson, line 9: it was not written to its end",
	}; !slices.Equal(problems, want) {
		t.Errorf("problems %q\nwant %q", problems, want)
	}
}

func TestFullFileIsSetAsideAndNothingIsLost(t *testing.T) {
	defer func(n int64) { partSize = n }(partSize)
	partSize = 2000
	d := newHome(t)
	const writers, each = 8, 60
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := Append(d, Event{Permission: Resource, What: Admitted, Attempt: fmt.Sprintf("%d-%d", w, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, problems := all(t, d, Filter{})
	seen := map[string]int{}
	for _, e := range got {
		seen[e.Attempt]++
	}
	if len(got) != writers*each || len(seen) != writers*each || problems != nil {
		t.Errorf("%d events of %d, each once: %v; %v", len(got), writers*each, len(seen) == len(got), problems)
	}
	parts, err := filepath.Glob(filepath.Join(d.Path, partPrefix+"*"))
	if err != nil || len(parts) < writers*each*80/2000 {
		t.Errorf("%d parts, %v", len(parts), err)
	}
}

func TestTooLongAnEventIsRefused(t *testing.T) {
	d := newHome(t)
	if err := Append(d, Event{Permission: Quota, What: "parked", Identity: strings.Repeat("x", maxLine)}); err == nil {
		t.Error("it was written")
	}
	many := make([]string, 10*maxEvidence)
	if err := Append(d, Event{Permission: Quota, What: "parked", Evidence: many}); err != nil {
		t.Error(err)
	}
	if got, _ := all(t, d, Filter{}); len(got) != 1 || len(got[0].Evidence) != maxEvidence+1 {
		t.Errorf("read %v", got)
	}
	if len(many) != 10*maxEvidence || many[maxEvidence] != "" {
		t.Error("the caller's own list was changed")
	}
}

func TestMergeIsInTheOrderOfTimeAndStable(t *testing.T) {
	seq := func(source string, at ...int) func(func(Event) bool) {
		return func(yield func(Event) bool) {
			for i, n := range at {
				if !yield(Event{At: noon(n), Source: source, Seq: int64(i)}) {
					return
				}
			}
		}
	}
	merged := func() (out []string) {
		for e := range Merge(seq("a", 1, 4, 2, 2, 9), seq("b"), seq("c", 3, 2, 1, 9)) {
			out = append(out, fmt.Sprintf("%s%d@%d", e.Source, e.Seq, e.At.Second()))
		}
		return out
	}
	want := []string{"a0@1", "c2@1", "a2@2", "a3@2", "c1@2", "c0@3", "a1@4", "a4@9", "c3@9"}
	if got := merged(); !slices.Equal(got, want) || !slices.Equal(merged(), got) {
		t.Errorf("%v\nwant %v", got, want)
	}
	n := 0
	for range Merge(seq("a", 1, 2, 3), seq("b", 1, 2)) { // whoever has enough leaves
		if n++; n == 2 {
			break
		}
	}
}

func TestTailReadsWhatIsAdded(t *testing.T) {
	defer func(n int64) { partSize = n }(partSize)
	partSize = 300
	d := newHome(t)
	add := func(n int) {
		t.Helper()
		if err := Append(d, Event{Permission: Resource, What: Admitted, Seq: 1, Attempt: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
	}
	add(0)
	tail := NewTail(d)
	defer tail.Close()
	var got []string
	next := func() {
		t.Helper()
		if err := tail.Next(func(e Event) { got = append(got, e.Attempt) }); err != nil {
			t.Fatal(err)
		}
	}
	next()
	if got != nil {
		t.Fatalf("what was there before: %v", got)
	}
	var want []string
	for i := 1; i < 20; i++ { // over several parts
		add(i)
		next()
		want = append(want, fmt.Sprint(i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := os.Remove(filepath.Join(d.Path, File)); err != nil {
		t.Fatal(err)
	}
	next()
	add(20)
	next()
	if got[len(got)-1] != "20" {
		t.Errorf("after the file was removed: %v", got)
	}
}

func TestSentencesTellWhoHandedWhatToWhom(t *testing.T) {
	const id, other = "01a22ffb-cb40-73d2-9a65-82e5a1297a89", "01a22ffb-cb40-73d2-9a65-82e5b0cafe00"
	const digits = "1477146717dea7080b704ff6a0142a321477146717dea7080b704ff6a0142a32"
	for _, tt := range []struct {
		e    Event
		want string
	}{
		{Event{Source: FromDatabase, What: "granted", Attempt: id, Lane: "a", To: "driver, pid 7", Identity: "fence 3"},
			"The dispatcher handed the lane and the slots of attempt a1297a89 to its driver, pid 7, which had shown the token (fence 3)."},
		{Event{Source: FromDatabase, What: "accepted", Attempt: id, Lane: "a", Text: "it tries " + other + " again, which has verdict 1"},
			`The launcher handed lane "a" to the dispatcher, lock and all, and the dispatcher wrote attempt a1297a89 down as waiting: it tries b0cafe00 again, which has verdict 1.`},
		{Event{Source: FromDatabase, What: "ended", From: "driver", Attempt: id, Text: "exited 0 (limit)"},
			"Attempt a1297a89 ended, exit status 0 (limit), by its record, and its driver gave the lane up."},
		{Event{Source: FromDatabase, What: "ended", From: "driver", Attempt: id, Text: "lost: its driver (pid 7) is gone"},
			"Attempt a1297a89 ended, lost: nobody can tell what became of it (its driver (pid 7) is gone), by its record, and its driver gave the lane up."},
		{Event{Source: FromDatabase, What: "ended", From: "dispatcher", Attempt: id, Text: "cancelled: it was cancelled"},
			"Attempt a1297a89 ended before anybody drove it: cancelled (it was cancelled)."},
		{Event{What: Admitted, Attempt: id, To: "handsel, pid 5", Identity: "agent, pid 6", WaitedS: 61.2, Evidence: []string{"slot all/0", "slot claude/1", "slot heavy/0"}},
			"Run a1297a89 was admitted after 1m1s: handsel, pid 5 holds all/0, claude/1 and heavy/0, for its agent, pid 6."},
		{Event{What: Ended, Attempt: id, Lane: "a", Text: "exited 0", RanS: 4.25, To: "nobody"},
			"Run a1297a89 ended, exit status 0, by its record, after 4.3s, and gave its slots and its lane back."},
		{Event{Permission: Acceptance, What: "accepted", Attempt: id, Lane: "a", By: "kim", From: "review", To: "accepted", Evidence: []string{"tests", "CI 12"}},
			`kim accepted attempt a1297a89 of lane "a", on the evidence of tests and CI 12.`},
		{Event{Permission: Acceptance, What: "rejected", Attempt: id, Lane: "a", By: "kim", Identity: "sha256:" + digits, Evidence: []string{"verdict 1"}, Text: "no tests."},
			`kim rejected attempt a1297a89 of lane "a" as it was then (sha256:1477146717de) in verdict 1: no tests.`},
		{Event{Permission: Release, What: "released", Attempt: id, Lane: "a", By: "kim", Evidence: []string{"verdict 1", "fence 2"}},
			`kim let attempt a1297a89 of lane "a" go out, on the evidence of verdict 1 and fence 2.`},
		{Event{Permission: Release, What: "not released", Attempt: id, By: "kim", Code: "timed_out"},
			`kim was to let run a1297a89 go out, and the command that does it failed (timed out).`},
		{Event{Permission: Release, What: "refused", Attempt: id, Lane: "a", By: "kim", Text: "a newer attempt runs"},
			`kim asked for the release of attempt a1297a89 of lane "a" and was refused: a newer attempt runs.`},
		{Event{Permission: Release, What: "refused", Attempt: id, Lane: "a", By: "kim", Text: id + ` of lane "a" is superseded: ` + other + ` of lane "a" was accepted after it`},
			`kim asked for the release of attempt a1297a89 of lane "a" and was refused: it is superseded: b0cafe00 was accepted after it.`},
		{Event{Permission: Acceptance, What: "accepted", Attempt: id, Lane: "a", By: "kim", Evidence: []string{"verdict 2", "CI 12"}},
			`kim accepted attempt a1297a89 of lane "a" in verdict 2, on the evidence of CI 12.`},
		{Event{Permission: Quota, What: "parked", Engine: "claude", Account: "work", Attempt: id, Text: "account claude/work is limited: usage limit.", Until: noon(0)},
			"Account claude/work is limited: usage limit; its starts wait until 2026-12-01 12:00:00 UTC. Run a1297a89 has seen it."},
		{Event{Permission: Quota, What: "probed", Engine: "claude", Attempt: id}, "Run a1297a89 was let through to find out whether engine claude works again."},
		{Event{Permission: Quota, What: "cleared", Engine: "claude", By: "run " + id}, "Run a1297a89 let engine claude start again."},
	} {
		if got := Sentence(&tt.e); got != tt.want {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

// No line ends the reading, what is read can be written again, and what is
// written after it is read.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "\n\n", "{}", `{"v":1}`, `{"v":1,"at":"2026-12-01T12:00:00Z","permission":"resource","what":"x"}`, "\x00{\"v\":1",
		`{"v":1,"at":"9999-12-31T23:59:59-14:00","permission":"r","what":"x","until":"0000-01-01T00:00:00+14:00"}`,
		`{"v":1e3,"at":null,"waited_for":{"a":1e309}}`, `torn{"v":1,"at":"2026-12-01T12:00:00Z","permission":"resource","what":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	end := []byte(`{"v":1,"at":"2026-12-01T12:00:00Z","permission":"resource","what":"last"}` + "\n")
	f.Fuzz(func(t *testing.T, text []byte) {
		last := ""
		scan(bytes.NewReader(slices.Concat(text, []byte("\n"), end)), "x", &Filter{}, func(*Problem) {}, func(e Event) bool {
			last = e.What
			_ = Sentence(&e)
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatalf("%+v cannot be written again: %v", e, err)
			}
			if decode(line) == nil {
				t.Fatalf("%s is not read again", line)
			}
			return true
		})
		if last != "last" {
			t.Errorf("the last event was not read, but %q", last)
		}
	})
}

// Every transfer is on record (P11), whatever is said of it: what does not fit is
// cut, and the cut is seen.
func TestLongTextsAreCutAndTheEventStays(t *testing.T) {
	d := newHome(t)
	long := strings.Repeat("<\x01é", 4096)
	many := make([]string, maxEvidence)
	for i := range many {
		many[i] = long
	}
	waited := map[string]float64{}
	for i := range 1000 {
		waited[fmt.Sprintf("resource/some_reason_that_is_long_%d", i)] = 1
	}
	for i, e := range []Event{
		{Permission: Acceptance, What: Accepted, Attempt: "01a2", Lane: "l", Text: long},
		{Permission: Acceptance, What: Accepted, Attempt: "01a2", Lane: "l", Text: long, Evidence: many, By: "kim"},
		{Permission: Acceptance, What: Accepted, Attempt: "01a2", Lane: "l", By: strings.Repeat("<", 4096)},
		{Permission: Ownership, What: Ended, Attempt: "01a2", Lane: "l", WaitedFor: waited},
	} {
		if err := Append(d, e); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		got, problems := all(t, d, Filter{})
		if len(got) != i+1 || problems != nil {
			t.Fatalf("event %d: %d read, %v", i, len(got), problems)
		}
		last := got[i]
		if last.Attempt != "01a2" || last.Lane != "l" || last.What != e.What || !strings.HasPrefix(e.By, strings.TrimSuffix(last.By, "…")) || last.By == "" && e.By != "" {
			t.Errorf("event %d lost more than its texts: %+v", i, last)
		}
		if e.Text != "" && (!strings.HasPrefix(last.Text, "<") || !strings.HasSuffix(last.Text, "…")) {
			t.Errorf("event %d: text %.20q of %d bytes", i, last.Text, len(last.Text))
		}
	}
	if many[0] != long || len(waited) != 1000 {
		t.Error("the caller's own was changed")
	}
}
