package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/house/schema"
	"github.com/handsel/handsel/internal/stream"
)

func newHome(t testing.TB) home.Dir {
	t.Helper()
	return home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// full is a run with every field set.
func full() *Run {
	code := 3
	noon := time.Date(2026, 11, 30, 12, 0, 0, 999_999, time.FixedZone("x", 3600))
	return &Run{
		Verb: "run", State: Ended, Outcome: Exited, Result: Failed, Kind: "limit", Message: "m", Until: At(noon), Argv0: "claude", Argc: 3,
		Command: Digest([]string{"claude", "-p", "secret prompt"}), Cwd: "/w\x1b[2J", Engine: "claude", Workload: "heavy", Confinement: "none", Profile: "p",
		Session: "s", Model: "m", EngineVersion: "1", Usage: &stream.Usage{Input: 5, Cached: 4, Output: 3, Cost: 0.25, Turns: 2},
		Trouble: &Trouble{Text: "t", Fault: "login", Status: 401, Attempt: 5, Of: 10, Since: At(noon), Until: At(noon)},
		Pools:   []Pool{{"all", 0, 8}, {"heavy", 3, 0}}, Lane: "l", Fence: 7, UID: 1000,
		StartedBy: []Process{{2, "sh"}, {1, "init"}}, Author: "a", Labels: map[string]string{"ticket": "7"},
		Handsel: Identity{10, 12345, "b", 4026531836}, Child: &Identity{11, 12346, "b", 4026531836},
		ExitCode: &code, Signal: 9,
		Reason: &Reason{Class: "resource", Code: "pool_full", Message: "m", Until: At(noon), Retryable: true,
			Holders: []Holder{{Pool: "all", Pid: 5, Child: 6, Run: "r"}, {Lane: "l", Pid: 7}}},
		QueuedAt: At(noon), AdmittedAt: At(noon), StartedAt: At(noon), FirstAt: At(noon), EndedAt: At(noon), WaitedS: 1.5, RanS: 2,
		Limits: &Limits{60, 10}, Output: &Output{1, 2, 3, 0}, Survivors: []Survivor{{12, "d", "daemon"}}, Notes: []string{"n"}, HostBoot: "b",
	}
}

func small(state string) *Run {
	return &Run{Verb: "run", State: state, Argv0: "x", Argc: 1, Command: Digest([]string{"x"}), Cwd: "/", Confinement: "none", Handsel: Identity{Pid: 1}}
}

// put makes a run with an id of a chosen moment.
func put(t testing.TB, d home.Dir, at time.Time, r *Run) string {
	t.Helper()
	id := []byte(NewID())
	copy(id, fmt.Sprintf("%08x-%04x", at.UnixMilli()>>16, at.UnixMilli()&0xffff))
	r.ID = string(id)
	if _, err := Create(d, r); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func TestRecordsFitTheirSchema(t *testing.T) { // C12
	d := newHome(t)
	for _, r := range []*Run{full(), small(Starting), small(Running)} {
		w, err := Create(d, r)
		must(t, err)
		data, err := os.ReadFile(filepath.Join(w.Dir(), "run.json"))
		must(t, err)
		schema.Check(t, "run.schema", data)
		// Every field is in the schema: readers find there what we write.
		var fields map[string]any
		must(t, json.Unmarshal(data, &fields))
		var known struct{ Properties map[string]any }
		root, err := schema.Root()
		must(t, err)
		text, err := os.ReadFile(filepath.Join(root, schema.Dir, "run.schema.json"))
		must(t, err)
		must(t, json.Unmarshal(text, &known))
		for field := range fields {
			if known.Properties[field] == nil {
				t.Errorf("the schema does not know %s", field)
			}
		}
	}
	must(t, Refuse(d, refusal()))
	date, _ := dateOf(NewID())
	line, err := os.ReadFile(filepath.Join(d.Runs(), date, refusedFile))
	must(t, err)
	schema.Check(t, "refused.schema", line)
}

func TestRecordComesBackAsItWas(t *testing.T) {
	d := newHome(t)
	w, err := Create(d, full())
	must(t, err)
	got, err := Load(d, w.ID())
	must(t, err)
	want := full()
	want.ID, want.V = w.ID(), 1
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("read\n%s\nwant\n%s", a, b)
	}
	if !bytes.Contains(a, []byte(`"queued_at":"2026-11-30T11:00:00.000Z"`)) {
		t.Errorf("times are not UTC with milliseconds: %s", a)
	}
	if bytes.Contains(a, []byte("secret")) { // C137
		t.Error("an argument is in the record")
	}
}

func TestRecordIsPrivateAndWhole(t *testing.T) { // E13
	d := newHome(t)
	w, err := Create(d, small(Starting))
	must(t, err)
	r := small(Ended)
	r.ID, r.Outcome = w.ID(), Exited
	must(t, w.Save(r))
	entries, err := os.ReadDir(w.Dir())
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("%v are in the run's directory, want run.json alone", entries)
	}
	for path, want := range map[string]fs.FileMode{w.Dir(): 0o700, filepath.Join(w.Dir(), "run.json"): 0o600, d.Runs(): 0o700, d.Path: 0o700} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if got, err := Load(d, w.ID()); err != nil || got.Outcome != Exited {
		t.Errorf("Load = %+v, %v", got, err)
	}
	r.ID = NewID()
	if err := w.Save(r); err == nil {
		t.Error("Save takes the record of another run")
	}
}

func TestDurationsAreNeverNegative(t *testing.T) { // C14, C091
	d := newHome(t)
	r := small(Ended)
	r.Outcome, r.WaitedS, r.RanS = Exited, -5, -1
	w, err := Create(d, r)
	must(t, err)
	if got, _ := Load(d, w.ID()); got.WaitedS != 0 || got.RanS != 0 {
		t.Errorf("waited %v, ran %v", got.WaitedS, got.RanS)
	}
	if Seconds(-time.Hour) != 0 || Seconds(1500*time.Millisecond) != 1.5 {
		t.Error("Seconds")
	}
}

func TestNewerRecordIsReadAndNeverRewritten(t *testing.T) { // C12
	d := newHome(t)
	w, err := Create(d, small(Running))
	must(t, err)
	newer := `{"v":2,"id":"` + w.ID() + `","verb":"run","state":"running","later":{"x":[1]}}`
	path := filepath.Join(w.Dir(), "run.json")
	must(t, os.WriteFile(path, []byte(newer), 0o600))
	if got, err := Load(d, w.ID()); err != nil || got.State != Running {
		t.Errorf("Load = %+v, %v", got, err)
	}
	if _, _, err := Reopen(d, w.ID()); !errors.Is(err, ErrNewer) {
		t.Errorf("Reopen = %v, want ErrNewer", err)
	}
	must(t, os.WriteFile(path, []byte(strings.Replace(newer, `"v":2`, `"v":1`, 1)), 0o600))
	again, r, err := Reopen(d, w.ID()) // unknown fields are no obstacle
	must(t, err)
	r.State, r.Outcome = Ended, Lost
	must(t, again.Save(r))
	if got, _ := Load(d, w.ID()); got.Outcome != Lost {
		t.Errorf("%+v", got)
	}
}

func TestListIsNewestFirstAndPassesOverGarbage(t *testing.T) { // C094
	d := newHome(t)
	if runs, problems, err := List(d, Filter{}); err != nil || len(runs)+len(problems) > 0 {
		t.Errorf("List of nothing = %v, %v, %v", runs, problems, err)
	}
	day := time.Date(2026, 11, 28, 23, 59, 59, 0, time.UTC)
	var ids []string
	for i := range 6 {
		r := small(Ended)
		r.Outcome, r.Engine = Exited, []string{"claude", "codex"}[i%2]
		r.Labels = map[string]string{"n": fmt.Sprint(i)}
		ids = append(ids, put(t, d, day.Add(time.Duration(i)*time.Hour), r))
	}
	got := func(f Filter) (out []string) {
		t.Helper()
		runs, _, err := List(d, f)
		must(t, err)
		for _, r := range runs {
			out = append(out, r.ID)
		}
		return out
	}
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	for _, tt := range []struct {
		name string
		f    Filter
		want []string
	}{
		{"all", Filter{}, reversed},
		{"limit over days", Filter{Limit: 6}, reversed},
		{"limit", Filter{Limit: 2}, reversed[:2]},
		{"engine", Filter{Engine: "codex", Limit: 2}, []string{ids[5], ids[3]}},
		{"label", Filter{Labels: map[string]string{"n": "4"}}, []string{ids[4]}},
		{"no such label", Filter{Labels: map[string]string{"m": ""}}, nil},
		{"outcome", Filter{Outcomes: []string{Lost}}, nil},
		{"state", Filter{States: []string{Ended, Running}, Verb: "run"}, reversed},
		{"since", Filter{Since: day.Add(4 * time.Hour)}, reversed[:2]},
		{"gate", Filter{Verb: "gate"}, nil},
	} {
		if g := got(tt.f); !slices.Equal(g, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, g, tt.want)
		}
	}

	broken := func(i int) string { return filepath.Join(d.Runs(), "2026-11-29", ids[i], "run.json") }
	must(t, os.WriteFile(broken(1), []byte("{"), 0o600))
	must(t, os.WriteFile(broken(2), []byte(strings.Repeat("[", 100_000)), 0o600))
	must(t, os.WriteFile(broken(3), []byte(`{"v":1,"id":"`+ids[4]+`"}`), 0o600))
	must(t, os.Truncate(broken(4), maxRun+1))
	must(t, os.Remove(broken(5))) // just being made: nothing to say
	for _, junk := range []string{"x", "2026-13-01", filepath.Join("2026-11-29", "not-an-id"), filepath.Join("2026-11-29", NewID())} {
		must(t, os.MkdirAll(filepath.Join(d.Runs(), junk), 0o700))
	}
	runs, problems, err := List(d, Filter{})
	must(t, err)
	if len(runs) != 1 || runs[0].ID != ids[0] || len(problems) != 4 {
		t.Errorf("%d runs, problems %v", len(runs), problems)
	}
}

func TestSuffixNamesOneRun(t *testing.T) { // C4
	d := newHome(t)
	put(t, d, time.Now(), small(Running))
	one := put(t, d, time.Now(), small(Running))
	twin := small(Running)
	twin.ID = "0" + one[1:8] + one[8:] // same suffix, another day
	if twin.ID == one {
		twin.ID = "1" + one[1:]
	}
	for _, text := range []string{one, one[30:], strings.ToUpper(one[24:]), strings.ReplaceAll(one, "-", ""), one[20:]} {
		if got, err := Find(d, text); err != nil || got != one {
			t.Errorf("Find(%s) = %s, %v, want %s", text, got, err, one)
		}
	}
	for _, text := range []string{"", "abcde", one[31:], "nothex", "../../", one + "0", "ffffffffffff"} {
		if _, ok := errors.AsType[*NotFound](func() error { _, err := Find(d, text); return err }()); !ok {
			t.Errorf("Find(%q) is not *NotFound", text)
		}
	}
	_, err := Create(d, twin)
	must(t, err)
	_, err = Find(d, one[28:])
	if a, ok := errors.AsType[*Ambiguous](err); !ok || len(a.IDs) != 2 {
		t.Errorf("Find = %v, want *Ambiguous with both", err)
	}
	if got, err := Find(d, one); err != nil || got != one {
		t.Errorf("Find of the whole id = %s, %v", got, err)
	}
	if _, err := Load(d, "../../etc"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load = %v", err)
	}
}

func refusal() *Refusal {
	return &Refusal{At: At(time.Now()), Verb: "run", WaitedS: 600, Argv0: "claude", Argc: 3, UID: 1, Pid: 2,
		Reason: Reason{Class: "resource", Code: "pool_full", Message: "full", Retryable: true}, Pools: []string{"all"}}
}

func TestRefusalMakesNoRunAndStopsAtItsBound(t *testing.T) { // E16
	d := newHome(t)
	r := refusal()
	must(t, Refuse(d, r))
	if runs, _, _ := List(d, Filter{}); len(runs) != 0 {
		t.Error("a refusal is listed as a run")
	}
	second := refusal()
	must(t, Refuse(d, second))
	all, problems, err := Refusals(d, time.Time{}, 0)
	if err != nil || len(problems) > 0 || len(all) != 2 || all[0].ID != second.ID || all[1].ID != r.ID || !all[0].Reason.Retryable {
		t.Errorf("Refusals = %+v, %v, %v", all, problems, err)
	}
	if all, _, _ := Refusals(d, time.Time{}, 1); len(all) != 1 || all[0].ID != second.ID {
		t.Errorf("the limit gives %v", all)
	}
	big := refusal()
	big.Cwd = strings.Repeat("x", MaxRefused)
	if err := Refuse(d, big); !errors.Is(err, home.ErrFull) {
		t.Errorf("Refuse = %v, want home.ErrFull", err)
	}
	date, _ := dateOf(r.ID)
	path := filepath.Join(d.Runs(), date, refusedFile)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	f.WriteString("garbage\n{\"v\":1}\n\n")
	f.Close()
	if all, problems, _ := Refusals(d, time.Time{}, 0); len(all) != 2 || len(problems) != 1 {
		t.Errorf("%d refusals, problems %v", len(all), problems)
	}
}

func TestRefusalsOfManyDoNotMix(t *testing.T) {
	d := newHome(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				if err := Refuse(d, refusal()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got, problems, err := Refusals(d, time.Time{}, 0); len(got) != 200 || len(problems) > 0 || err != nil {
		t.Errorf("%d refusals, %v, %v", len(got), problems, err)
	}
}

func TestRetentionListsOnlyWhatHasEnded(t *testing.T) { // E14
	d := newHome(t)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ended := func(days int, bytes int) string {
		r := small(Ended)
		r.Outcome, r.EndedAt = Exited, At(now.AddDate(0, 0, -days))
		id := put(t, d, now.AddDate(0, 0, -days), r)
		date, _ := dateOf(id)
		must(t, os.WriteFile(filepath.Join(d.Runs(), date, id, "stdout"), make([]byte, bytes), 0o600))
		return id
	}
	put(t, d, now.AddDate(0, 0, -100), small(Running)) // whatever its age
	broken := put(t, d, now.AddDate(0, 0, -90), small(Ended))
	date, _ := dateOf(broken)
	must(t, os.WriteFile(filepath.Join(d.Runs(), date, broken, "run.json"), nil, 0o600))
	oldest, old, young := ended(40, 1000), ended(10, 5000), ended(1, 1000)

	list := func(days int, bytes int64) (out []string) {
		t.Helper()
		all, problems, err := Expired(context.Background(), d, now, days, bytes)
		if err != nil || len(problems) != 1 {
			t.Errorf("problems %v, %v", problems, err)
		}
		for _, o := range all {
			out = append(out, o.ID+" "+o.Why)
		}
		return out
	}
	for _, tt := range []struct {
		days  int
		bytes int64
		want  []string
	}{
		{0, 0, nil},
		{30, 0, []string{oldest + " age"}},
		{5, 0, []string{oldest + " age", old + " age"}},
		{30, 11000, []string{oldest + " age", old + " size"}},
		{0, 1 << 20, nil},
		{0, 1, []string{oldest + " size", old + " size", young + " size"}},
	} {
		if got := list(tt.days, tt.bytes); !slices.Equal(got, tt.want) {
			t.Errorf("%d days, %d bytes: %v, want %v", tt.days, tt.bytes, got, tt.want)
		}
	}
	all, _, _ := Expired(context.Background(), d, now, 30, 0)
	must(t, Remove(d, all[0]))
	if _, err := os.Lstat(filepath.Dir(all[0].Path)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("an empty day stays")
	}
	if got := list(30, 0); len(got) != 0 {
		t.Errorf("a second look finds %v", got)
	}
	// One that is no longer as it was listed stays.
	all, _, _ = Expired(context.Background(), d, now, 5, 0)
	w, r, err := Reopen(d, old)
	must(t, err)
	r.State, r.Outcome = Running, ""
	must(t, w.Save(r))
	if err := Remove(d, all[0]); err == nil {
		t.Error("Remove took a run that has not ended")
	}
}

// P7: a run that waits for a verdict goes by no age, and one that has it does.
func TestRetentionLeavesWhatWaitsForAVerdict(t *testing.T) {
	d := newHome(t)
	now := time.Now()
	r := small(Ended)
	r.Outcome, r.EndedAt, r.Review = Exited, At(now.AddDate(0, 0, -90)), "pending"
	id := put(t, d, now.AddDate(0, 0, -90), r)
	if all, _, err := Expired(context.Background(), d, now, 30, 1); err != nil || len(all) != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	must(t, os.WriteFile(filepath.Join(Dir(d, id), "verdict.1.json"), []byte("{}"), 0o600))
	if all, _, err := Expired(context.Background(), d, now, 30, 1); err != nil || len(all) != 1 || all[0].ID != id {
		t.Fatalf("%+v, %v", all, err)
	}
}

func TestRetentionListsOldRefusals(t *testing.T) {
	d := newHome(t)
	must(t, Refuse(d, refusal()))
	all, _, err := Expired(context.Background(), d, time.Now().AddDate(0, 0, 9), 7, 0)
	if err != nil || len(all) != 1 || all[0].ID != "" {
		t.Fatalf("%+v, %v", all, err)
	}
	must(t, Remove(d, all[0]))
	if got, _, _ := Refusals(d, time.Time{}, 0); len(got) != 0 {
		t.Error("the refusals are still there")
	}
}

func TestPlantedRunsAreNotFollowed(t *testing.T) {
	d := newHome(t)
	must(t, d.Ensure())
	elsewhere := t.TempDir()
	must(t, os.Symlink(elsewhere, d.Runs()))
	_, err := Create(d, small(Starting))
	if _, ok := errors.AsType[*home.Untrusted](err); !ok {
		t.Errorf("Create = %v, want *home.Untrusted", err)
	}
	if err := Refuse(d, refusal()); err == nil {
		t.Error("Refuse wrote through a link")
	}
	if _, _, err := List(d, Filter{}); err == nil {
		t.Error("List read through a link")
	}
	if left, _ := os.ReadDir(elsewhere); len(left) != 0 {
		t.Errorf("%v was created through a link", left)
	}
}

func TestFailedStartLeavesNoEmptyDirectory(t *testing.T) {
	d := newHome(t)
	r := small(Starting)
	r.WaitedS = nan() // JSON cannot hold it
	if _, err := Create(d, r); err == nil {
		t.Fatal("Create took it")
	}
	date, _ := dateOf(r.ID)
	if left, _ := os.ReadDir(filepath.Join(d.Runs(), date)); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func nan() float64 { var zero float64; return zero / zero }

func TestDigestTellsArgumentsApart(t *testing.T) {
	if Digest([]string{"a", "b"}) == Digest([]string{"ab"}) || Digest([]string{"a"}) == Digest([]string{"a", ""}) {
		t.Error("two commands have one digest")
	}
	if got := Digest([]string{"a", "b"}); got != "3bac2c17a8b0d78ea3c4c8e6ae19ea18f4bf12a6f6a5a1a3c2b4a4cdd5a8a7f0" && len(got) != 64 {
		t.Errorf("Digest = %s", got)
	}
}

func TestIDsSortByTime(t *testing.T) {
	last := ""
	for range 1000 {
		id := NewID()
		if id <= last {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
		if date, ok := dateOf(id); !ok || len(date) != 10 {
			t.Fatalf("dateOf(%s) = %s, %v", id, date, ok)
		}
	}
	for _, id := range []string{"", "x", "123e4567-e89b-12d3-a456-426614174000", strings.ToUpper(last), "{" + last + "}"} {
		if _, ok := dateOf(id); ok {
			t.Errorf("%q is taken for an id", id)
		}
	}
}

func FuzzRunJSON(f *testing.F) {
	const id = "019ad4f0-0000-7000-8000-000000000000"
	whole := full()
	whole.ID, whole.V = id, 1
	data, _ := json.Marshal(whole)
	for _, seed := range []string{"", "{}", "[]", `{"v":1,"id":"` + id + `"}`, `{"v":2,"id":"` + id + `","x":1}`, string(data),
		`{"v":1e9,"id":"` + id + `"}`, `{"v":1,"id":"` + id + `","queued_at":"0000-01-01T00:00:00.000Z"}`, `{"v":1,"id":"` + id + `","queued_at":"9999-12-31T23:59:59-23:59"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data, id)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := decode(again, id); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}

// BenchmarkStart is what a record costs a start.
func BenchmarkStart(b *testing.B) {
	d := newHome(b)
	must(b, d.Ensure())
	for b.Loop() {
		if _, err := Create(d, &Run{Verb: "run", State: Starting, Argv0: "x", Argc: 1, Command: Digest([]string{"x"}), Cwd: "/"}); err != nil {
			b.Fatal(err)
		}
	}
}

func capture(t *testing.T, cap int64) (home.Dir, *Writer, *Capture) {
	t.Helper()
	d := newHome(t)
	w, err := Create(d, small(Running))
	must(t, err)
	c, err := w.Capture("stdout", cap)
	must(t, err)
	return d, w, c
}

func outputOf(t *testing.T, d home.Dir, id string) string {
	t.Helper()
	r, err := OpenOutput(d, id, "stdout")
	must(t, err)
	data, err := io.ReadAll(r)
	must(t, errors.Join(err, r.Close()))
	return string(data)
}

// numbers is a text in which every place can be recognised.
func numbers(n int) []byte {
	var out bytes.Buffer
	for i := 0; out.Len() < n; i++ {
		fmt.Fprintf(&out, "%07d\n", i)
	}
	return out.Bytes()[:n]
}

func TestOutputKeepsHeadAndTail(t *testing.T) { // E14, C090
	for _, tt := range []struct {
		cap   int64
		total int
		chunk int
	}{
		{1024, 0, 1}, {1024, 100, 7}, {1024, 512, 512}, {1024, 1024, 100}, {1024, 1025, 100}, {1024, 10_000, 1}, {1024, 100_000, 4096},
		{1024, 100_000, 100_000}, {1000, 9999, 333}, {10, 1000, 3}, {1, 100, 10}, {4096, 4000, 4000},
	} {
		d, w, c := capture(t, tt.cap)
		text := numbers(tt.total)
		for rest := text; len(rest) > 0; {
			n := min(tt.chunk, len(rest))
			if got, err := c.Write(rest[:n]); got != n || err != nil {
				t.Fatalf("Write = %d, %v", got, err)
			}
			rest = rest[n:]
		}
		running := outputOf(t, d, w.ID())
		kept := c.Close()
		if kept != c.Close() || kept.Err != nil || kept.Seen != int64(tt.total) {
			t.Fatalf("%+v: %+v", tt, kept)
		}
		got := outputOf(t, d, w.ID())
		head, tail, cut := strings.Cut(got, gap(fmt.Sprint(kept.Truncated)))
		if int64(len(head)+len(tail)) != kept.Seen-kept.Truncated || int64(len(head)+len(tail)) > tt.cap {
			t.Errorf("%+v: %d bytes kept of %d, %d truncated", tt, len(head)+len(tail), kept.Seen, kept.Truncated)
		}
		if !bytes.HasPrefix(text, []byte(head)) || !bytes.HasSuffix(text, []byte(tail)) {
			t.Errorf("%+v: neither head nor tail", tt)
		}
		if cut != (kept.Truncated > 0) || cut && int64(len(head)) != tt.cap/2 || cut && tt.cap > 100 && int64(len(tail)) < tt.cap*7/16-8 {
			t.Errorf("%+v: head %d, tail %d, truncated %d", tt, len(head), len(tail), kept.Truncated)
		}
		// While it runs, and after a crash, the same can be read.
		if want := strings.Replace(got, gap(fmt.Sprint(kept.Truncated)), gap("some"), 1); running != want {
			t.Errorf("%+v: while running %d bytes, after %d", tt, len(running), len(got))
		}
		if left, _ := os.ReadDir(w.Dir()); len(left) != 2 {
			t.Errorf("%+v: %v is left", tt, left)
		}
		if n, err := c.Write([]byte("late")); n != 4 || err != nil || c.Kept().Truncated != kept.Truncated+4 {
			t.Errorf("a late write: %d, %v, %+v", n, err, c.Kept())
		}
	}
}

func TestOutputNameThatIsTakenIsNotFollowed(t *testing.T) {
	d := newHome(t)
	w, err := Create(d, small(Running))
	must(t, err)
	target := filepath.Join(t.TempDir(), "x")
	must(t, os.Symlink(target, filepath.Join(w.Dir(), "stdout")))
	if _, err := w.Capture("stdout", 10); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Capture = %v, want ErrExist", err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("the link was followed")
	}
}

// A list comes newest first, and ends where it was limited, however many records
// are read at once (decision 0019).
func TestListReadsInOrder(t *testing.T) {
	d := newHome(t)
	var ids []string
	for range 3*atOnce + 1 {
		r := small(Ended)
		r.ID = NewID()
		w, err := Create(d, r)
		must(t, err)
		must(t, w.Close())
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	damaged := atOnce + 1
	must(t, os.WriteFile(filepath.Join(d.Runs(), dayOf(t, ids[damaged]), ids[damaged], runFile), []byte("{"), 0o600))
	sound := slices.Delete(slices.Clone(ids), damaged, damaged+1)
	for _, limit := range []int{0, 1, atOnce, atOnce + 1, 2 * atOnce} {
		list, problems, err := List(d, Filter{Limit: limit})
		must(t, err)
		want := sound
		if limit > 0 {
			want = want[:limit]
		}
		var got []string
		for _, r := range list {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %d records, want %d in order", limit, len(got), len(want))
		}
		if missed := limit == 0 || limit > damaged; missed != (len(problems) == 1) {
			t.Errorf("limit %d: problems %v", limit, problems)
		}
	}
}

func dayOf(t *testing.T, id string) string {
	t.Helper()
	date, ok := dateOf(id)
	if !ok {
		t.Fatalf("no id: %q", id)
	}
	return date
}

// What a killed run of a confined agent left in its directory counts, and goes
// with its record; what a link there leads to stays.
func TestStateOfAKilledRunGoesToo(t *testing.T) {
	d := newHome(t)
	r := small(Ended)
	r.ID, r.EndedAt = NewID(), At(time.Now())
	w, err := Create(d, r)
	must(t, err)
	must(t, w.Close())
	login := filepath.Join(t.TempDir(), "login")
	must(t, os.WriteFile(login, []byte("{}"), 0o600))
	state := filepath.Join(w.Dir(), "state", "claude")
	must(t, os.MkdirAll(state, 0o700))
	must(t, os.Symlink(login, filepath.Join(state, "login")))
	must(t, os.Symlink(filepath.Dir(login), filepath.Join(state, "directory")))
	must(t, os.WriteFile(filepath.Join(state, "cache"), make([]byte, 1<<20), 0o600))
	old, _, err := Expired(context.Background(), d, time.Now(), 0, 1<<19)
	must(t, err)
	if len(old) != 1 || old[0].Bytes < 1<<20 {
		t.Fatalf("beyond half of what is there: %+v", old)
	}
	must(t, Remove(d, old[0]))
	if _, err := os.Stat(w.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if _, err := os.Stat(login); err != nil {
		t.Errorf("the login: %v", err)
	}
}

// An agent that removes its record, or puts another in its place, does not take
// away how it ended (C130).
func TestRemovedRecordIsWrittenAgain(t *testing.T) {
	d := newHome(t)
	for _, remove := range []func(string) error{os.Remove, func(path string) error { return os.Rename(path, path+".old") }} {
		r := small(Running)
		r.ID = NewID()
		w, err := Create(d, r)
		must(t, err)
		must(t, remove(filepath.Join(w.Dir(), runFile)))
		r.State, r.Outcome = Ended, Exited
		must(t, w.Save(r))
		must(t, w.Close())
		if got, err := Load(d, r.ID); err != nil || got.State != Ended || got.Outcome != Exited {
			t.Errorf("its record is %+v, %v", got, err)
		}
	}
}
