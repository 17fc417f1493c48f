package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/handsel/handsel/internal/home"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

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

func newID(t testing.TB) string {
	t.Helper()
	id, err := uuid.NewV7()
	must(t, err)
	return id.String()
}

// full is a row with every field set.
func full(t testing.TB) *Row {
	t.Helper()
	return &Row{
		V: Version, Lane: "api/review ä\n", ID: newID(t), RetryOf: newID(t),
		QueueStart: At(noon), BootStartNS: 5e9, BootID: "0c6d4d3e-3a1e-4f0a-9f57-0d9f7d4a5c11", EpochMS: noon.UnixMilli() - 5000, Priority: -7,
		State: Starting, StateSince: At(noon.Add(time.Second)),
		Placement: Placement{
			Cwd: "/w", Engine: "claude", Workload: "heavy", Profile: "p", Confinement: "none", Pools: []string{"gpu"},
			Caps: map[string]string{"HANDSEL_MAX_AGENTS": "3", "HANDSEL_MAX_AGENTS_KEYS": " 2 "}, TimeoutS: 60, IdleS: 1.5, LeaveDaemons: true,
		},
		Author: "somebody", Labels: map[string]string{"batch": "7"},
		NotBefore: At(noon.Add(time.Hour)), After: []After{{Lane: "other"}, {Attempt: newID(t), Any: true}}, RetryLost: 2, Driver: []string{"./drive", ""},
		Argv0: "claude", Argc: 3, Command: strings.Repeat("0a", 32),
		Starts: 3, Unclaimed: 2, LastFailure: "it did not claim", AdmittedAt: At(noon), Fence: math.MaxUint64,
	}
}

func TestRowTravelsWhole(t *testing.T) {
	r := full(t)
	must(t, r.Check())
	data, err := json.Marshal(r)
	must(t, err)
	var back Row
	must(t, json.Unmarshal(data, &back))
	if !reflect.DeepEqual(*r, back) {
		t.Errorf("a row came back as\n%+v, was\n%+v", back, *r)
	}
	must(t, back.Check())
	if strings.Contains(string(data), `"queue_start":"2026-11-30T12:00:00.000Z"`) == false {
		t.Errorf("the start is not in milliseconds: %s", data)
	}
}

func TestKeyFollowsTheBootClockWithinABoot(t *testing.T) { // C5, C14, C091
	at := func(boot string, sinceBoot time.Duration, wall time.Time, priority int) *Row {
		return &Row{QueueStart: At(wall), BootStartNS: int64(sinceBoot), BootID: boot, EpochMS: wall.Add(-sinceBoot).UnixMilli(), Priority: priority}
	}
	first := at("b", time.Minute, noon, 0)
	stepped := at("b", 2*time.Minute, noon.Add(-time.Hour), 0) // the wall clock went back by an hour
	if Before(first, stepped) {
		t.Error("without a common epoch only the wall clock can tell, and it went back")
	}
	stepped.Align(first.EpochMS)
	if !Before(first, stepped) || Before(stepped, first) {
		t.Error("a step of the wall clock changed the order within a boot")
	}
	rebooted := at("c", time.Second, noon.Add(time.Hour), 0)
	for _, old := range []*Row{first, stepped} {
		if !Before(old, rebooted) {
			t.Errorf("%+v lost its place to a row of the next boot", old)
		}
	}
	if key := first.Key(); key != noon.UnixMilli() {
		t.Errorf("the first key is %d, want its start %d", key, noon.UnixMilli())
	}
	plain := &Row{QueueStart: At(noon), BootStartNS: 7}
	if plain.Key() != noon.UnixMilli() {
		t.Error("without a boot id the key is not the wall clock's")
	}
}

// A retry has the place of what it tries again, and a wait of its own (P12).
func TestARetryWaitsFromItsOwnTime(t *testing.T) {
	r := &Row{ID: newID(t)}
	made, ok := timeOf(r.ID)
	first := made.Add(-time.Hour)
	r.QueueStart = At(first)
	if got := r.Asked(); !ok || !got.Equal(first) {
		t.Errorf("a first attempt was asked for at %v, want %v", got, first)
	}
	r.RetryOf = newID(t)
	if got := r.Asked(); !got.Equal(made) {
		t.Errorf("a retry was asked for at %v, want %v", got, made)
	}
	if r.QueueStart = At(made.Add(time.Hour)); !r.Asked().Equal(r.QueueStart.Time) { // the clock was set back meanwhile
		t.Errorf("after the clock was set back it was asked for at %v", r.Asked())
	}
}

func TestPriorityIsWorthAMinute(t *testing.T) { // C5
	row := func(after time.Duration, priority int, id string) *Row {
		return &Row{ID: id, QueueStart: At(noon.Add(after)), Priority: priority}
	}
	for _, tt := range []struct {
		name string
		a, b *Row
	}{
		{"earlier first", row(0, 0, "b"), row(time.Millisecond, 0, "a")},
		{"a step outweighs less than a minute", row(time.Minute-time.Millisecond, 1, "b"), row(0, 0, "a")},
		{"waiting counts", row(0, 0, "b"), row(time.Minute+time.Millisecond, 1, "a")},
		{"ties by id", row(time.Minute, 1, "a"), row(0, 0, "b")},
		{"no priority overflows", row(0, MaxPriority, "b"), row(0, -MaxPriority, "a")},
	} {
		if !Before(tt.a, tt.b) || Before(tt.b, tt.a) {
			t.Errorf("%s: it is the other way round", tt.name)
		}
	}
	same := row(0, 0, "x")
	if Before(same, same) {
		t.Error("a row comes before itself")
	}
}

func TestMalformedRowIsRefusedByField(t *testing.T) {
	must(t, full(t).Check())
	long := strings.Repeat("x", MaxText+1)
	many := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("HANDSEL_MAX_AGENTS_", i)] = "1"
		}
		return m
	}
	for _, tt := range []struct {
		field string
		spoil func(*Row)
	}{
		{"v", func(r *Row) { r.V = 0 }},
		{"v", func(r *Row) { r.V = Version + 1 }},
		{"lane", func(r *Row) { r.Lane = "" }},
		{"lane", func(r *Row) { r.Lane = strings.Repeat("x", 201) }},
		{"lane", func(r *Row) { r.Lane = "a\x00" }},
		{"lane", func(r *Row) { r.Lane = "\xff" }},
		{"id", func(r *Row) { r.ID = "" }},
		{"id", func(r *Row) { r.ID = "../../../../etc/passwd-not-an-id-at-all" }},
		{"id", func(r *Row) { r.ID = strings.ToUpper(r.ID) }},
		{"id", func(r *Row) { r.ID = "{" + r.ID + "}" }},
		{"id", func(r *Row) { r.ID = uuid.NewString() }}, // version 4
		{"retry_of", func(r *Row) { r.RetryOf = "7" }},
		{"retry_verdict", func(r *Row) { r.RetryVerdict = -1 }},
		{"retry_verdict", func(r *Row) { r.RetryOf, r.RetryVerdict = "", 1 }},
		{"queue_start", func(r *Row) { r.QueueStart = Time{} }},
		{"queue_start", func(r *Row) { r.QueueStart = Time{noon.AddDate(90_000, 0, 0)} }},
		{"boot_start_ns", func(r *Row) { r.BootStartNS = -1 }},
		{"epoch_ms", func(r *Row) { r.EpochMS = math.MaxInt64 }},
		{"epoch_ms", func(r *Row) { r.EpochMS = math.MinInt64 }},
		{"boot_id", func(r *Row) { r.BootID = strings.Repeat("b", 64) }},
		{"priority", func(r *Row) { r.Priority = MaxPriority + 1 }},
		{"priority", func(r *Row) { r.Priority = -MaxPriority - 1 }},
		{"state", func(r *Row) { r.State = "" }},
		{"state", func(r *Row) { r.State = "running" }},
		{"state_since", func(r *Row) { r.StateSince = Time{noon.AddDate(-9000, 0, 0)} }},
		{"author", func(r *Row) { r.Author = long }},
		{"author", func(r *Row) { r.Author = "\xff" }},
		{"labels", func(r *Row) { r.Labels = many(MaxLabels + 1) }},
		{"labels", func(r *Row) { r.Labels = map[string]string{"": "x"} }},
		{"labels", func(r *Row) { r.Labels = map[string]string{"x": long} }},
		{"labels", func(r *Row) { r.Labels = map[string]string{long: "x"} }},
		{"argv0", func(r *Row) { r.Argv0 = long }},
		{"argv0", func(r *Row) { r.Argv0 = "a\x00b" }},
		{"argc", func(r *Row) { r.Argc = 0 }},
		{"command_sha256", func(r *Row) { r.Command = "rm -rf" }},
		{"command_sha256", func(r *Row) { r.Command = strings.Repeat("G", 64) }},
		{"last_failure", func(r *Row) { r.LastFailure = long }},
		{"not_before", func(r *Row) { r.NotBefore = Time{noon.AddDate(90_000, 0, 0)} }},
		{"after", func(r *Row) { r.After = make([]After, MaxAfter+1) }},
		{"after", func(r *Row) { r.After = []After{{}} }},
		{"after", func(r *Row) { r.After = []After{{Lane: "x", Attempt: r.ID}} }},
		{"after", func(r *Row) { r.After = []After{{Lane: strings.Repeat("x", 201)}} }},
		{"after", func(r *Row) { r.After = []After{{Attempt: "x"}} }},
		{"retry_lost", func(r *Row) { r.RetryLost = -1 }},
		{"retry_lost", func(r *Row) { r.RetryLost = MaxRetries + 1 }},
		{"driver", func(r *Row) { r.Driver = make([]string, MaxDriver+1) }},
		{"driver", func(r *Row) { r.Driver = []string{""} }},
		{"driver", func(r *Row) { r.Driver = []string{"x", long} }},
		{"starts", func(r *Row) { r.Starts = -1 }},
		{"unclaimed", func(r *Row) { r.Unclaimed = r.Starts + 1 }},
		{"unclaimed", func(r *Row) { r.Unclaimed = -1 }},
		{"admitted_at", func(r *Row) { r.AdmittedAt = Time{noon.AddDate(90_000, 0, 0)} }},
		{"waited_for", func(r *Row) { r.WaitedFor = map[string]float64{"": 1} }},
		{"waited_for", func(r *Row) { r.WaitedFor = map[string]float64{"resource/line": -1} }},
		{"waited_for", func(r *Row) { r.WaitedFor = map[string]float64{"resource/line": math.NaN()} }},
		{"waited_for", func(r *Row) { r.WaitedFor = map[string]float64{"resource/line": math.Inf(1)} }},
		{"waited_for", func(r *Row) { r.WaitedFor = map[string]float64{long: 1} }},
		{"waited_for", func(r *Row) {
			r.WaitedFor = map[string]float64{}
			for i := range MaxReasons + 1 {
				r.WaitedFor[fmt.Sprint(i)] = 1
			}
		}},
		{"placement.cwd", func(r *Row) { r.Placement.Cwd = "" }},
		{"placement.cwd", func(r *Row) { r.Placement.Cwd = "w" }},
		{"placement.cwd", func(r *Row) { r.Placement.Cwd = "/" + long }},
		{"placement.cwd", func(r *Row) { r.Placement.Cwd = "/\x00" }},
		{"placement.engine", func(r *Row) { r.Placement.Engine = "Claude" }},
		{"placement.workload", func(r *Row) { r.Placement.Workload = "" }},
		{"placement.confinement", func(r *Row) { r.Placement.Confinement = "-" }},
		{"placement.profile", func(r *Row) { r.Placement.Profile = long }},
		{"placement.pools", func(r *Row) { r.Placement.Pools = make([]string, MaxPools+1) }},
		{"placement.pools", func(r *Row) { r.Placement.Pools = []string{"../x"} }},
		{"placement.timeout_s", func(r *Row) { r.Placement.TimeoutS = -1 }},
		{"placement.timeout_s", func(r *Row) { r.Placement.TimeoutS = math.NaN() }},
		{"placement.timeout_s", func(r *Row) { r.Placement.TimeoutS = 1e300 }},
		{"placement.idle_s", func(r *Row) { r.Placement.IdleS = math.Inf(1) }},
		{"placement.caps", func(r *Row) { r.Placement.Caps = many(MaxCaps + 1) }},
		{"placement.caps", func(r *Row) { r.Placement.Caps = map[string]string{"PATH": "3"} }},
		{"placement.caps", func(r *Row) { r.Placement.Caps = map[string]string{"HANDSEL_MAX_AGENTSX": "3"} }},
		{"placement.caps", func(r *Row) { r.Placement.Caps = map[string]string{"HANDSEL_MAX_AGENTS": "sk-ant"} }},
		{"placement.caps", func(r *Row) { r.Placement.Caps = map[string]string{"HANDSEL_MAX_AGENTS": "-3"} }},
	} {
		r := full(t)
		tt.spoil(r)
		err := r.Check()
		bad, ok := errors.AsType[*Malformed](err)
		if !ok || bad.Field != tt.field {
			t.Errorf("Check = %v, want trouble with %s", err, tt.field)
			continue
		}
		if text := err.Error(); strings.ContainsAny(text, "\n\x00") || len(text) > 200 {
			t.Errorf("%s: the refusal is not one short line: %q", tt.field, text)
		}
	}
}

// FuzzRow gives Check whatever JSON says a row is. What passes must be fit for
// all that is done with rows: it travels again, and names nothing outside.
func FuzzRow(f *testing.F) {
	good, err := json.Marshal(full(f))
	must(f, err)
	f.Add(good)
	f.Add([]byte(`{"v":1,"lane":"a","id":"../x","priority":1e3}`))
	f.Add([]byte(`{"v":1,"queue_start":"9999-12-31T23:59:59.999999999-23:59"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Row
		if json.Unmarshal(data, &r) != nil {
			return
		}
		if err := r.Check(); err != nil {
			if bad, ok := errors.AsType[*Malformed](err); !ok || bad.Field == "" || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Fatalf("Check = %q", err)
			}
			return
		}
		r.Key()
		again, err := json.Marshal(&r)
		must(t, err)
		var back Row
		must(t, json.Unmarshal(again, &back))
		must(t, back.Check())
		if back.Key() != r.Key() {
			t.Fatalf("the key of a row changed on the way: %d, was %d", back.Key(), r.Key())
		}
		if date, ok := dateOf(r.ID); !ok || filepath.Base(date) != date || filepath.Base(r.ID) != r.ID {
			t.Fatalf("id %q names a path", r.ID)
		}
		if _, err := encodeEntry(EntryOf(&r, Owner{Role: "dispatcher"}, HeartbeatFile)); err != nil {
			t.Fatalf("a row has no entry: %v", err)
		}
	})
}

// words are what no shell and no JSON may change (C109).
var words = []string{"a b", "it's", "", "$(touch X)", "--", "-n", "*", "line1\nline2", "ä☃", "\xff", "\x80\xfe\"\\", "&<>\u2028"}

func TestPayloadComesBackByteForByte(t *testing.T) { // C109
	d := newHome(t)
	id := newID(t)
	p := &Payload{Argv: Bytes(words), Env: Bytes([]string{"LANG=\xff", "TZ=", "PATH=/a\n/b"}), Cwd: []byte("/w\xff"), Stdin: []byte("in\x00\xff"), HasStdin: true}
	must(t, Write(d, id, p))
	got, err := Read(d, id)
	must(t, err)
	if !slices.Equal(Strings(got.Argv), words) || !slices.Equal(Strings(got.Env), Strings(p.Env)) ||
		string(got.Cwd) != string(p.Cwd) || string(got.Stdin) != string(p.Stdin) || !got.HasStdin {
		t.Errorf("a payload came back as %v", got)
	}
	none := &Payload{Argv: Bytes([]string{""}), Cwd: []byte("/")}
	other := newID(t)
	must(t, Write(d, other, none))
	got, err = Read(d, other)
	must(t, err)
	if got.HasStdin || len(got.Argv) != 1 || len(got.Argv[0]) != 0 {
		t.Errorf("one empty word and no input came back as %v", got)
	}
}

func TestPayloadIsPrivate(t *testing.T) { // L10
	d := newHome(t)
	id := newID(t)
	must(t, Write(d, id, &Payload{Argv: Bytes([]string{"x"}), Cwd: []byte("/")}))
	date, _ := dateOf(id)
	dir := filepath.Join(d.Runs(), date, id)
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, "payload.json"): 0o600} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
}

// C12: who does not know of files must not start the command without them, and
// whoever wrote nothing new is read as before.
func TestPayloadWithFilesIsOfALaterVersion(t *testing.T) {
	d := newHome(t)
	for want, files := range map[int][]File{1: nil, 2: {{Path: []byte("/f"), Data: []byte("x")}}} {
		id := newID(t)
		must(t, Write(d, id, &Payload{Argv: Bytes([]string{"x"}), Files: files}))
		p, err := Read(d, id)
		must(t, err)
		if p.V != want || len(p.Files) != len(files) {
			t.Errorf("%d files: version %d with %d, want %d", len(files), p.V, len(p.Files), want)
		}
	}
}

func TestPayloadOfSomethingElseIsNone(t *testing.T) {
	d := newHome(t)
	for _, tt := range []struct{ name, text string }{
		{"empty", ""}, {"a list", "[]"}, {"cut", `{"v":1,"argv":["`}, {"no version", `{"argv":["eA=="]}`},
		{"no command", `{"v":1,"argv":[]}`}, {"not base64", `{"v":1,"argv":["%"]}`}, {"later", `{"v":3,"argv":["eA=="]}`},
	} {
		id := newID(t)
		must(t, Write(d, id, &Payload{Argv: Bytes([]string{"x"})}))
		date, _ := dateOf(id)
		must(t, os.WriteFile(filepath.Join(d.Runs(), date, id, "payload.json"), []byte(tt.text), 0o600))
		if p, err := Read(d, id); err == nil {
			t.Errorf("%s: read as %v", tt.name, p)
		} else if tt.name == "later" && !errors.Is(err, ErrNewer) {
			t.Errorf("a later version is %v", err)
		}
	}
	if _, err := Read(d, newID(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing payload is %v", err)
	}
	for _, id := range []string{"", "..", "x", strings.ToUpper(newID(t))} {
		if _, err := Read(d, id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("payload %q is %v", id, err)
		}
		if Write(d, id, &Payload{Argv: Bytes([]string{"x"})}) == nil || Discard(d, id) == nil {
			t.Errorf("%q is taken for an id", id)
		}
	}
}

func TestPayloadThatIsTooLargeMakesNothing(t *testing.T) {
	d := newHome(t)
	big := make([]byte, MaxStdin+1)
	for _, p := range []*Payload{{}, {Argv: [][]byte{{'x'}}, Stdin: big}, {Argv: [][]byte{big[:maxWords+1]}}} {
		if err := Write(d, newID(t), p); err == nil {
			t.Error("it was written")
		}
	}
	if _, err := os.Lstat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a payload that was refused left something")
	}
	id := newID(t)
	must(t, Write(d, id, &Payload{Argv: [][]byte{{'x'}}, Stdin: big[:MaxStdin], HasStdin: true}))
	if _, err := Read(d, id); err != nil {
		t.Errorf("the largest payload cannot be read: %v", err)
	}
}

func TestDiscardTakesOnlyWhatPutMade(t *testing.T) {
	d := newHome(t)
	id := newID(t)
	must(t, Discard(d, id)) // nothing there, no home even
	must(t, Write(d, id, &Payload{Argv: [][]byte{{'x'}}}))
	must(t, Discard(d, id))
	must(t, Discard(d, id))
	date, _ := dateOf(id)
	if _, err := os.Lstat(filepath.Join(d.Runs(), date, id)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("its directory is still there")
	}
	must(t, Write(d, id, &Payload{Argv: [][]byte{{'x'}}}))
	run := filepath.Join(d.Runs(), date, id, "run.json")
	must(t, os.WriteFile(run, []byte("{}"), 0o600))
	if err := Discard(d, id); err == nil {
		t.Error("a run was discarded")
	}
	if _, err := Read(d, id); err != nil {
		t.Errorf("the payload of a run is gone: %v", err)
	}
	if err := Write(d, id, &Payload{Argv: [][]byte{{'y'}}}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second payload of one attempt is %v", err)
	}
	if p, err := Read(d, id); err != nil || string(p.Argv[0]) != "x" {
		t.Errorf("the second one changed the first: %v, %v", p, err)
	}
}

func FuzzPayload(f *testing.F) {
	data, err := encodePayload(&Payload{Argv: Bytes(words), Env: [][]byte{[]byte("A=b")}, Cwd: []byte("/"), Stdin: []byte{1}, HasStdin: true})
	must(f, err)
	f.Add(data)
	f.Add([]byte(`{"v":1,"argv":[null,"eA=="]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decodePayload(data)
		if err != nil {
			return
		}
		again, err := encodePayload(p)
		must(t, err)
		back, err := decodePayload(again)
		must(t, err)
		if !slices.Equal(Strings(back.Argv), Strings(p.Argv)) || string(back.Stdin) != string(p.Stdin) {
			t.Fatalf("%v came back as %v", p, back)
		}
	})
}

func TestEnvironmentIsKeptByNameAndLength(t *testing.T) { // L11, C113
	long, longer := strings.Repeat("x", MaxValue-1), strings.Repeat("x", MaxValue)
	for _, tt := range []struct {
		entry string
		keeps bool
	}{
		{"LANG=C", true}, {"LC_ALL=C", true}, {"LC_=", true}, {"TERM=dumb", true}, {"TZ=UTC", true}, {"PATH=/bin", true}, {"HOME=/h", true},
		{"USER=u", true}, {"SHELL=/bin/sh", true}, {"HANDSEL_MAX_AGENTS=3", true}, {"HANDSEL_MAX_AGENTS_GPU=3", true},
		{"CLAUDE_CONFIG_DIR=/c", true}, {"CODEX_HOME=/c", true}, {"GEMINI_CLI_HOME=/g", true}, {"PI_CODING_AGENT_DIR=/p", true},
		{"MINE_A=1", true}, {"MINE=1", true}, {"MINEFIELD=1", true},
		{"LANG=" + long, true}, {"LANG=" + longer, false}, {"MINE_A=" + longer, false},
		{"LANG=\xff\xfe", true}, {"MINE_\xff=1", true}, {"LANG=", true}, {"LANG=a=b", true},
		{"lang=C", false}, {"LANGUAGE=de", false}, {"XLANG=C", false}, {"PWD=/", false}, {"EDITOR=vi", false}, {"mine=1", false},
		{"ANTHROPIC_API_KEY=k", false}, {"MINE_TOKEN=t", false}, {"mine_secret=s", false}, {"MINE_aPi_KeY_FILE=f", false},
		{"MINE_PASSWORD=p", false}, {"MINE_BYPASS=p", false}, {"MINE_CREDENTIALS=c", false}, {"MINE_AUTHOR=a", false},
		{"MINE_COOKIE=c", false}, {"MINE_SESSION_ID=s", false}, {"MINE_\u017Fecret=s", false},
		{"X_TOKEN=t", false}, {"x_secret=s", false}, {"MY_API_KEY_FILE=f", false}, {"PI_CODING_AGENT_SESSION_DIR=/s", false},
		{"HANDSEL_MAX_AGENTS_KEYS=3", false}, // the cap goes with the row
		{"HANDSEL_OUTCOME=/o", false}, {"HANDSEL_TOKEN_FD=7", false}, {"HANDSEL_SHIM=1", false}, {"HANDSEL_AGENT_DEPTH=1", false}, {"HANDSEL_RUN=r", false},
		{"HANDSEL_LANE=l", false}, {"HANDSEL_ATTEMPT=a", false}, {"HANDSEL_FENCE=1", false}, {"HANDSEL_HOME=/h", true},
	} {
		kept, dropped := Keep([]string{tt.entry}, []string{"MINE", "mine_", "HANDSEL_", ""})
		name, _, _ := strings.Cut(tt.entry, "=")
		want, gone := []string{tt.entry}, []string(nil)
		if !tt.keeps {
			want, gone = nil, []string{name}
		}
		if !slices.Equal(kept, want) || !slices.Equal(dropped, gone) {
			t.Errorf("Keep(%.40q) kept %.40q and dropped %q", tt.entry, kept, dropped)
		}
	}
	if kept, _ := Keep([]string{"EDITOR=vi"}, []string{""}); kept != nil {
		t.Error("an empty prefix allows everything")
	}
}

func TestLastOfDuplicateNamesCounts(t *testing.T) { // C113
	long := strings.Repeat("x", MaxValue)
	for _, tt := range []struct {
		env, kept, dropped []string
	}{
		{[]string{"TZ=a", "LANG=1", "TZ=b"}, []string{"LANG=1", "TZ=b"}, nil},
		{[]string{"TZ=a", "TZ=" + long}, nil, []string{"TZ"}}, // not the first instead
		{[]string{"TZ=" + long, "TZ=b"}, []string{"TZ=b"}, nil},
		{[]string{"FOO=1", "FOO=2"}, nil, []string{"FOO"}},
		{[]string{"SECRET", "=C:=x", "TZ=b"}, []string{"TZ=b"}, []string{Nameless}},
		{nil, nil, nil},
	} {
		kept, dropped := Keep(tt.env, nil)
		if !slices.Equal(kept, tt.kept) || !slices.Equal(dropped, tt.dropped) {
			t.Errorf("Keep(%.60q) = %q, %q", tt.env, kept, dropped)
		}
	}
}

func FuzzKeep(f *testing.F) {
	f.Add("LANG=C\nX_TOKEN=t\nLANG", "X_")
	f.Add("=\n==\n\xff=\xff", "\xff")
	f.Fuzz(func(t *testing.T, text, prefix string) {
		env := strings.Split(text, "\n")
		kept, dropped := Keep(env, []string{prefix})
		names := map[string]bool{}
		for _, entry := range kept {
			name, value, ok := strings.Cut(entry, "=")
			if !ok || name == "" || names[name] || len(value) >= MaxValue || secretShaped(name) || !slices.Contains(env, entry) {
				t.Fatalf("Keep(%q) keeps %q", env, entry)
			}
			names[name] = true
		}
		for _, name := range dropped {
			if names[name] {
				t.Fatalf("Keep(%q) drops %q twice, or keeps it too", env, name)
			}
			names[name] = true
		}
		for _, entry := range env {
			if name := nameOf(entry); name != "" && !names[name] || name == "" && !names[Nameless] {
				t.Fatalf("Keep(%q) says nothing of %q", env, entry)
			}
		}
	})
}

func TestReferenceListsWhatIsKept(t *testing.T) { // L11
	page, err := os.ReadFile("../../docs/reference/env.md")
	must(t, err)
	var listed []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[2], "`") {
			continue
		}
		for i, word := range strings.Split(cells[2], "`") {
			if i%2 == 1 {
				listed = append(listed, word)
			}
		}
	}
	have := slices.Concat(plainNames, engineNames)
	for _, prefix := range plainPrefixes {
		have = append(have, prefix+"*")
	}
	slices.Sort(listed)
	slices.Sort(have)
	if !slices.Equal(listed, have) {
		t.Errorf("docs/reference/env.md lists\n%v, and what is kept is\n%v", listed, have)
	}
	for _, name := range have {
		if secretShaped(name) {
			t.Errorf("%s is listed, and never kept", name)
		}
	}
	for _, shape := range append(secretShapes, "4,096", "4,095") {
		if !strings.Contains(string(page), shape) {
			t.Errorf("docs/reference/env.md does not say %q", shape)
		}
	}
}
