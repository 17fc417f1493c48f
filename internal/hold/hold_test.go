package hold

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newHome(t *testing.T) home.Dir {
	t.Helper()
	return home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func all(t *testing.T, d home.Dir, now time.Time) Orders {
	t.Helper()
	got, err := list(d.Holds(), now)
	must(t, err)
	return got
}

func TestNoDirectoryHoldsNothing(t *testing.T) { // S4
	d := newHome(t)
	got, err := List(d.Holds())
	if err != nil || len(got.All)+len(got.Problems) > 0 {
		t.Errorf("List = %+v, %v", got, err)
	}
	if _, ok := got.Match("claude", []string{"all"}); ok {
		t.Error("nothing holds something")
	}
	if _, err := os.Lstat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("looking created the home")
	}
}

func TestScopeSaysWhomAnOrderBinds(t *testing.T) { // P1
	for _, tt := range []struct {
		scope, engine string
		pools         []string
		lane          string
		binds         bool
	}{
		{"all", "claude", []string{"all"}, "", true},
		{"all", "", []string{"gradle"}, "", true}, // a gate counts as a start
		{"engine:claude", "claude", nil, "", true},
		{"engine:claude", "codex", []string{"claude"}, "", false},
		{"engine:claude", "", nil, "", false},
		{"pool:heavy", "claude", []string{"all", "heavy"}, "", true},
		{"pool:heavy", "heavy", []string{"all"}, "", false},
		{"lane:a:b/c", "claude", nil, "a:b/c", true},
		{"lane:a", "claude", []string{"a"}, "", false},
		{"lane:a", "claude", nil, "b", false},
		{"engine:claude", "claude/work", nil, "", true}, // a hold is of all accounts
		{"account:claude/work", "claude/work", nil, "", true},
		{"account:claude/work", "claude/home", nil, "", false},
		{"account:claude/work", "claude", nil, "", false},
	} {
		d := newHome(t)
		must(t, Put(d, Order{Scope: tt.scope, Kind: Hold, Since: noon}))
		o, ok := all(t, d, noon).MatchLane(tt.engine, tt.pools, tt.lane)
		if ok != tt.binds || ok && o.Scope != tt.scope {
			t.Errorf("%+v: %v, %+v", tt, ok, o)
		}
		if _, ok := all(t, d, noon).Match(tt.engine, tt.pools); ok != (tt.binds && tt.lane == "") {
			t.Errorf("%+v: Match = %v", tt, ok)
		}
	}
}

func TestPassedOrderBindsNobody(t *testing.T) { // C14: wall clock
	d := newHome(t)
	must(t, Put(d, Order{Scope: "all", Kind: Park, Since: noon, Until: noon.Add(time.Minute)}))
	for _, tt := range []struct {
		now   time.Time
		binds bool
	}{{noon, true}, {noon.Add(time.Minute - 1), true}, {noon.Add(time.Minute), false}, {noon.AddDate(-2, 0, 0), true}} {
		if _, ok := all(t, d, tt.now).Match("", nil); ok != tt.binds {
			t.Errorf("at %v it binds: %v", tt.now, ok)
		}
	}
}

// TestQuotaOrdersAreAskedForByAccount: what is about an account's quota is no
// hold, and belongs to that account alone (P1, P5).
func TestQuotaOrdersAreAskedForByAccount(t *testing.T) {
	for _, kind := range []Kind{Park, Pause, Pace} {
		d := newHome(t)
		must(t, Put(d, Order{Scope: "engine:claude", Kind: kind, Since: noon, Until: noon.Add(time.Minute)}))
		must(t, Put(d, Order{Scope: "account:claude/work", Kind: kind, Since: noon}))
		for _, now := range []time.Time{noon, noon.Add(time.Hour)} {
			got := all(t, d, now)
			if o, ok := got.Match("claude", []string{"claude"}); ok {
				t.Errorf("a %s holds as %+v", kind, o)
			}
			if own := got.Account("engine:claude"); len(own) != 1 || own[0].Kind != kind {
				t.Errorf("at %v the default account has %+v", now, own)
			}
			if own := got.Account("account:claude/work"); len(own) != 1 {
				t.Errorf("the named account has %+v", own)
			}
			if own := got.Account("account:claude/home"); len(own) != 0 {
				t.Errorf("another account has %+v", own)
			}
		}
		if got := all(t, d, noon.Add(time.Hour)); len(got.All) != 1 || len(got.Passed) != 1 {
			t.Errorf("%+v", got)
		}
	}
}

// TestWithinABootTheWallClockDoesNotCount: C14.
func TestWithinABootTheWallClockDoesNotCount(t *testing.T) {
	o := Order{Scope: "engine:pi", Kind: Park, Until: noon.Add(2 * time.Minute), Quota: Quota{Boot: "b", EndMS: 120_000}}
	for _, tt := range []struct {
		wall   time.Duration
		boot   string
		since  time.Duration
		passed bool
	}{
		{0, "b", 0, false},
		{8 * time.Hour, "b", time.Minute, false},
		{-time.Hour, "b", 2 * time.Minute, true},
		{-time.Hour, "b", 2*time.Minute - 1, false},
		{time.Minute, "c", 3 * time.Minute, false},
		{2 * time.Minute, "c", 0, true},
		{2 * time.Minute, "", 0, true},
	} {
		if got := o.Passed(noon.Add(tt.wall), tt.boot, tt.since); got != tt.passed {
			t.Errorf("%+v: passed is %v", tt, got)
		}
	}
	o.Until, o.Quota.EndMS = time.Time{}, 0
	if o.Passed(noon.AddDate(100, 0, 0), "b", time.Hour) {
		t.Error("what has no end has passed")
	}
}

func TestOldestOrderIsNamedFirst(t *testing.T) {
	d := newHome(t)
	must(t, Put(d, Order{Scope: "all", Kind: Drain, Since: noon.Add(time.Hour)}))
	must(t, Put(d, Order{Scope: "engine:pi", Kind: Hold, Since: noon, Reason: "first"}))
	if o, _ := all(t, d, noon).Match("pi", nil); o.Reason != "first" {
		t.Errorf("Match = %+v", o)
	}
	if o, _ := all(t, d, noon).Match("codex", nil); o.Kind != Drain {
		t.Errorf("Match = %+v", o)
	}
}

func TestOrderIsReplacedAndTakenBack(t *testing.T) { // L22
	d := newHome(t)
	must(t, Put(d, Order{Scope: "all", Kind: Hold, Reason: "one", Since: noon}))
	must(t, Put(d, Order{Scope: "all", Kind: Hold, Reason: "two", Since: noon}))
	must(t, Put(d, Order{Scope: "all", Kind: Drain, Since: noon}))
	got := all(t, d, noon)
	if len(got.All) != 2 {
		t.Fatalf("%+v", got)
	}
	for _, o := range got.All {
		if o.Kind == Hold && o.Reason != "two" {
			t.Errorf("%+v", o)
		}
	}
	must(t, Remove(d, Hold, "all"))
	if err := Remove(d, Hold, "all"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Remove = %v, want ErrNotExist", err)
	}
	if got := all(t, d, noon); len(got.All) != 1 || got.All[0].Kind != Drain {
		t.Errorf("%+v", got)
	}
	entries, _ := os.ReadDir(d.Holds())
	info, err := os.Lstat(filepath.Join(d.Holds(), entries[0].Name()))
	if err != nil || info.Mode() != 0o600 || len(entries) != 1 {
		t.Errorf("%v, %v, %d files", info.Mode(), err, len(entries))
	}
}

func TestOrderComesBackAsItWasGiven(t *testing.T) { // C12
	d := newHome(t)
	want := Order{V: 1, Scope: "lane:ä/../x\n", Kind: Pause, Code: "login", Reason: "r\x1b[2J", By: "me", Since: noon.Add(time.Millisecond), Until: noon.AddDate(1, 0, 0),
		Quota: Quota{Count: 2, Run: "r", Reset: noon, Probes: 1, Probe: "p", GapMS: 5}}
	must(t, Put(d, want))
	if got := all(t, d, noon).All; len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	entries, _ := os.ReadDir(d.Holds())
	text, _ := os.ReadFile(filepath.Join(d.Holds(), entries[0].Name()))
	if !strings.Contains(string(text), `"since":"2026-11-30T12:00:00.001Z"`) || !strings.Contains(string(text), `"until":"2027-11-30T12:00:00.000Z"`) {
		t.Errorf("%s", text)
	}
}

func TestNamesOfOrdersNeverMeet(t *testing.T) { // C11
	seen := map[string]string{}
	for _, scope := range []string{"all", "lane:a", "lane:A", "lane:a=62", "lane:ab", "lane:..", "lane:a/b", "pool:a", "lane:" + strings.Repeat("x", 300), "lane:" + strings.Repeat("x", 301)} {
		for _, kind := range []Kind{Hold, Drain, Park, Pause} {
			name := fileName(kind, scope)
			if other, ok := seen[name]; ok || len(name) > 255 || strings.ContainsAny(name, "/\x00") || name[0] == '.' {
				t.Errorf("%s %q is in %q, as %q", kind, scope, name, other)
			}
			seen[name] = scope
		}
	}
}

func TestUnreadableFileBindsNobodyAndIsNamed(t *testing.T) { // C094
	for name, content := range map[string]string{
		"empty": "", "torn": `{"v":1,"scope":"a`, "list": "[]", "deep": strings.Repeat("[", 10_000), "no version": `{"scope":"all","kind":"hold"}`,
		"kind": `{"v":1,"scope":"all","kind":"stop\u001b"}`, "scope": `{"v":1,"scope":"everything","kind":"hold"}`,
		"no name": `{"v":1,"scope":"pool:","kind":"hold"}`, "large": `{"v":1,"scope":"all","kind":"hold","reason":"` + strings.Repeat("x", maxFile) + `"}`,
		"time": `{"v":1,"scope":"all","kind":"hold","since":"noon"}`,
	} {
		d := newHome(t)
		must(t, Put(d, Order{Scope: "pool:x", Kind: Hold, Since: noon}))
		must(t, os.WriteFile(filepath.Join(d.Holds(), name), []byte(content), 0o600))
		must(t, os.WriteFile(filepath.Join(d.Holds(), ".tmp-1"), []byte("{"), 0o600))
		got := all(t, d, noon)
		if len(got.All) != 1 || len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Path, name) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, p := range got.Problems {
			if strings.ContainsFunc(p.Error(), func(r rune) bool { return r < ' ' }) {
				t.Errorf("%q holds a control byte", p.Error())
			}
		}
		if _, ok := got.Match("claude", []string{"all"}); ok {
			t.Errorf("%s binds", name)
		}
	}
}

func TestNewerOrderThatIsUnderstoodBinds(t *testing.T) { // C12
	d := newHome(t)
	must(t, Put(d, Order{Scope: "pool:x", Kind: Hold, Since: noon}))
	must(t, os.WriteFile(filepath.Join(d.Holds(), "n.json"), []byte(`{"v":2,"scope":"all","kind":"hold","else":[1]}`), 0o600))
	if _, ok := all(t, d, noon).Match("", nil); !ok {
		t.Error("it does not bind")
	}
}

func TestOrderThatCannotBeReadBackIsNotGiven(t *testing.T) {
	d := newHome(t)
	for _, o := range []Order{
		{Scope: "", Kind: Hold}, {Scope: "engine:", Kind: Hold}, {Scope: "x:y", Kind: Hold}, {Scope: "all", Kind: "stop"}, {Scope: "all"},
		{Scope: "all", Kind: Hold, Reason: strings.Repeat("x", maxFile)},
	} {
		if err := Put(d, o); err == nil {
			t.Errorf("Put takes %.60v", o)
		}
	}
	if _, err := os.Lstat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a refused order created the home")
	}
}

func TestDirectoryThatIsNotOursIsAnError(t *testing.T) {
	base := t.TempDir()
	real, link := filepath.Join(base, "real"), filepath.Join(base, "link")
	must(t, os.Mkdir(real, 0o700))
	must(t, os.Symlink(real, link))
	loose := filepath.Join(base, "loose")
	must(t, os.Mkdir(loose, 0o700))
	must(t, os.Chmod(loose, 0o777))
	file := filepath.Join(base, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{link, loose, file} {
		_, err := List(dir)
		if _, ok := errors.AsType[*home.Untrusted](err); !ok {
			t.Errorf("List(%s) = %v, want *home.Untrusted", dir, err)
		}
	}
	must(t, os.Symlink(file, filepath.Join(real, "x.json")))
	must(t, os.WriteFile(filepath.Join(real, "y.json"), []byte(`{"v":1,"scope":"all","kind":"hold"}`), 0o600))
	must(t, os.Chmod(filepath.Join(real, "y.json"), 0o666))
	got, err := List(real)
	if err != nil || len(got.All) != 0 || len(got.Problems) != 2 {
		t.Errorf("List = %+v, %v", got, err)
	}
}

func FuzzOrder(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"v":1,"scope":"all","kind":"hold","since":"2026-11-30T12:00:00.000Z"}`, `{"v":1,"scope":"lane:x","kind":"park","until":"9999-12-31T23:59:59-23:59"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := decode(data)
		if err != nil {
			return
		}
		if _, err := json.Marshal(o); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
		Orders{All: []Order{o}}.Match("x", []string{"y"})
	})
}

func BenchmarkList(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "none")
	for b.Loop() {
		if _, err := List(dir); err != nil {
			b.Fatal(err)
		}
	}
}
