package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// world is a place of its own for files and variables.
type world struct {
	t    *testing.T
	dir  string
	vars map[string]string
	env  Env
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), vars: map[string]string{}}
	if err := os.Chmod(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.env = Env{
		Getenv: func(name string) string { return w.vars[name] },
		Environ: func() (all []string) {
			for name, value := range w.vars {
				all = append(all, name+"="+value)
			}
			return all
		},
		UserFile:    filepath.Join(w.dir, "user.toml"),
		MachineFile: filepath.Join(w.dir, "machine.toml"),
		Home:        home.Dir{Path: filepath.Join(w.dir, "home"), From: home.Variable},
	}
	if err := w.env.Home.Ensure(); err != nil {
		t.Fatal(err)
	}
	noPause(t)
	return w
}

// noPause makes second looks immediate and counts them.
func noPause(t *testing.T) *int {
	t.Helper()
	before, count := pause, new(int)
	t.Cleanup(func() { pause = before })
	pause = func(time.Duration) { *count++ }
	return count
}

func (w *world) write(path, content string) {
	w.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) user(content string) *world { w.t.Helper(); w.write(w.env.UserFile, content); return w }
func (w *world) extra(content string) *world {
	w.t.Helper()
	w.env.ExtraFile = filepath.Join(w.dir, "extra.toml")
	w.write(w.env.ExtraFile, content)
	return w
}

func (w *world) load() *Settings {
	w.t.Helper()
	s, err := Load(w.env)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) bad() *Bad {
	w.t.Helper()
	s, err := Load(w.env)
	bad, ok := errors.AsType[*Bad](err)
	if !ok {
		w.t.Fatalf("Load = %+v, %v, want *Bad", s, err)
	}
	for _, r := range bad.Error() + strings.ReplaceAll(bad.Caret, "\n", "") {
		if r != '…' && (r < ' ' || r > '~') {
			w.t.Errorf("%q holds %q", bad.Error(), r)
		}
	}
	return bad
}

func TestCapVariableIsPlainDecimal(t *testing.T) { // S3, C107
	for _, tt := range []struct {
		text string
		n    int // -1: refused
	}{
		{"", 0}, {"0", 0}, {"  ", 0}, {"000", 0}, {"4", 4}, {" 4 ", 4}, {"4\n", 4}, {"\t4", 4}, {"007", 7}, {"2147483647", 2147483647},
		{"thirty", -1}, {"-1", -1}, {"-0", -1}, {"+4", -1}, {"2.5", -1}, {"2.0", -1}, {"0x4", -1}, {"1e3", -1}, {"1_000", -1},
		{"４", -1}, {"٤", -1}, {"9999999999999999999999", -1}, {"4 # four", -1}, {"4 4", -1}, {"4\x00", -1}, {"4\v", -1},
		{"\u00a04", -1}, {"inf", -1}, {"NaN", -1}, {"2abc", -1}, {"4\x1b[2J", -1}, {"0b1", -1}, {"1,000", -1},
	} {
		for _, name := range []string{"HANDSEL_MAX_AGENTS", "HANDSEL_MAX_AGENTS_HEAVY", "HANDSEL_MAX_AGENTS_NOT_ASKED"} {
			w := newWorld(t)
			w.vars[name] = tt.text
			if tt.n < 0 {
				if bad := w.bad(); bad.Key != name || bad.Text != quote(tt.text) || bad.File != "" {
					t.Errorf("%s=%q: %+v", name, tt.text, bad)
				}
				continue
			}
			s := w.load()
			if n, _ := s.Cap(poolOf(name)); n != tt.n || s.AnyCap() != (tt.n > 0) {
				t.Errorf("%s=%q: cap %d, any %v, want %d", name, tt.text, n, s.AnyCap(), tt.n)
			}
		}
	}
}

func TestCapInFileIsPlainDecimal(t *testing.T) { // S3
	for _, tt := range []struct {
		text string
		ok   bool
	}{
		{"4", true}, {"0", true},
		{`"4"`, false}, {"4.0", false}, {"-1", false}, {"-0", false}, {"+4", false}, {"0x4", false}, {"0o4", false}, {"0b1", false},
		{"1_000", false}, {"1e3", false}, {"nan", false}, {"inf", false}, {"true", false}, {"[4]", false}, {"{ n = 4 }", false},
		{"1979-05-27", false}, {"99999999999999999999", false},
	} {
		w := newWorld(t).user("[pools]\n# a comment\nheavy = " + tt.text + "\n")
		if tt.ok {
			n, from := w.load().Cap("heavy")
			if want := int(tt.text[0] - '0'); n != want || want > 0 && from != w.env.UserFile {
				t.Errorf("heavy = %s: cap %d from %s", tt.text, n, from)
			}
			continue
		}
		if bad := w.bad(); bad.File != w.env.UserFile || bad.Line != 3 || !strings.Contains(bad.Caret, "^") {
			t.Errorf("heavy = %s: %+v", tt.text, bad)
		}
	}
}

func TestEveryCapJoinsTheMinimum(t *testing.T) { // S2, C6
	w := newWorld(t).user("[pools]\nall = 8\nheavy = 3\nmy-gpu = 2\n").extra("[pools]\nall = 5\nheavy = 0\n")
	w.vars["HANDSEL_MAX_AGENTS"] = "9"
	w.vars["HANDSEL_MAX_AGENTS_HEAVY"] = "4"
	w.vars["HANDSEL_MAX_AGENTS_MY_GPU"] = "1"
	w.vars["HANDSEL_MAX_AGENTS_OTHER_POOL"] = "6"
	s := w.load()
	for _, tt := range []struct {
		pool string
		n    int
		from string
	}{
		{"all", 5, w.env.ExtraFile},
		{"heavy", 3, w.env.UserFile},
		{"my-gpu", 1, "HANDSEL_MAX_AGENTS_MY_GPU"},
		{"other-pool", 6, "HANDSEL_MAX_AGENTS_OTHER_POOL"},
		{"other_pool", 6, "HANDSEL_MAX_AGENTS_OTHER_POOL"},
		{"claude", 0, ""},
	} {
		if n, from := s.Cap(tt.pool); n != tt.n || from != tt.from {
			t.Errorf("Cap(%s) = %d from %q, want %d from %q", tt.pool, n, from, tt.n, tt.from)
		}
	}
	if len(s.Caps["all"]) != 3 || len(s.Caps["heavy"]) != 2 || len(s.Caps["my-gpu"]) != 2 || len(s.Caps["other_pool"]) != 1 {
		t.Errorf("Caps = %+v", s.Caps)
	}
	// The variable for all has a second spelling; it can only lower as well.
	w.vars["HANDSEL_MAX_AGENTS_ALL"] = "2"
	if n, from := w.load().Cap("all"); n != 2 || from != "HANDSEL_MAX_AGENTS_ALL" {
		t.Errorf("Cap(all) = %d from %s", n, from)
	}
}

func TestVariableThatLooksLikeACapIsNeverOverlooked(t *testing.T) { // S3, C8
	for _, name := range []string{
		"HANDSEL_MAX_AGENTS_", "HANDSEL_MAX_AGENTSHEAVY", "HANDSEL_MAX_AGENTS_heavy", "HANDSEL_MAX_AGENTS_MY-GPU",
		"HANDSEL_MAX_AGENTS__X", "HANDSEL_MAX_AGENTS_CLAUDE_CODE", "HANDSEL_MAX_AGENTS_AGY", "HANDSEL_MAX_AGENTS_Ä",
	} {
		w := newWorld(t)
		w.vars[name] = "3"
		if bad := w.bad(); bad.Key != name {
			t.Errorf("%s: %+v", name, bad)
		}
		w.vars[name] = "" // set to nothing, it means nothing
		w.load()
	}
}

func TestDurationsAreFiniteAndNotNegative(t *testing.T) { // S14, C3
	for _, tt := range []struct {
		text string
		want time.Duration // -1: refused
	}{
		{"0", 0}, {"90s", 90 * time.Second}, {"10m", 10 * time.Minute}, {"90", 90 * time.Second}, {"0.5", 500 * time.Millisecond},
		{" 2 ", 2 * time.Second}, {"1h30m", 90 * time.Minute}, {"0s", 0},
		{"nan", -1}, {"inf", -1}, {"Infinity", -1}, {"-1", -1}, {"-1s", -1}, {"+1s", -1}, {"-0", -1}, {"1e3", -1}, {"0x10", -1}, {"9999999999", -1},
		{"1e400", -1}, {"ten", -1}, {"1.", -1}, {".5", -1}, {"9999999h", -1}, {"1 s", -1}, {"５", -1},
	} {
		w := newWorld(t)
		w.vars["HANDSEL_ADMIT_WAIT"] = tt.text
		if tt.want < 0 {
			if bad := w.bad(); bad.Key != "HANDSEL_ADMIT_WAIT" {
				t.Errorf("%q: %+v", tt.text, bad)
			}
			if _, err := ParseDuration("--wait", tt.text); err == nil {
				t.Errorf("ParseDuration takes %q", tt.text)
			}
			continue
		}
		if s := w.load(); s.Wait != tt.want || !s.WaitSet {
			t.Errorf("%q: %v, %v, want %v", tt.text, s.Wait, s.WaitSet, tt.want)
		}
	}
	for text, want := range map[string]time.Duration{
		`90`: 90 * time.Second, `1.5`: 1500 * time.Millisecond, `"2m"`: 2 * time.Minute, `"90"`: 90 * time.Second, `0`: 0,
		`nan`: -1, `inf`: -1, `-1`: -1, `-0.0`: -1, `"-1s"`: -1, `""`: -1, `true`: -1, `1e300`: -1,
	} {
		w := newWorld(t).user("admission.wait = " + text)
		if want < 0 {
			if bad := w.bad(); bad.Key != "admission.wait" || bad.Line != 1 || bad.Col != 18 {
				t.Errorf("%s: %+v", text, bad)
			}
		} else if s := w.load(); s.Wait != want || !s.WaitSet {
			t.Errorf("%s: %v, want %v", text, s.Wait, want)
		}
	}
	if _, err := ParseDuration("--wait", ""); err == nil {
		t.Error("ParseDuration takes nothing for a duration")
	}
}

func TestLaterPlaceWinsKeyByKey(t *testing.T) { // C6
	w := newWorld(t).
		user("[admission]\nmode = \"dispatcher\"\nwait = 5\n[nesting]\nseats = [\"a\"]\n[engine.mine]\nnames = [\"mine\"]\nmin_gap = 1\n").
		extra("[admission]\nwait = 6\n[engine.mine]\nmin_gap = 2\n")
	s := w.load()
	if s.Mode != "dispatcher" || s.Wait != 6*time.Second || !slices.Equal(s.Seats, []string{"a"}) {
		t.Errorf("mode %s, wait %v, seats %v", s.Mode, s.Wait, s.Seats)
	}
	if e := s.EngineOf["mine"]; e.MinGap != 2*time.Second || !slices.Equal(e.Names, []string{"mine"}) {
		t.Errorf("engine %+v", e)
	}
	if s.From("admission.mode") != w.env.UserFile || s.From("admission.wait") != w.env.ExtraFile || s.From("admission.poll") != "" {
		t.Error("sources are wrong")
	}
	w.vars["HANDSEL_ADMIT_WAIT"], w.vars["HANDSEL_SEAT_PROFILES"] = "7", "b, c ,,"
	s = w.load()
	if s.Wait != 7*time.Second || !slices.Equal(s.Seats, []string{"b", "c"}) || s.From("nesting.seats") != "HANDSEL_SEAT_PROFILES" {
		t.Errorf("wait %v, seats %v", s.Wait, s.Seats)
	}
}

func TestNothingSetMeansDefaults(t *testing.T) {
	s := newWorld(t).load()
	if s.AnyCap() || s.Mode != "waiter" || s.Wait != 600*time.Second || s.WaitSet || s.Poll != 2*time.Second ||
		s.OutputCap != 64<<20 || s.Record || len(s.Warnings) > 0 {
		t.Errorf("%+v", s)
	}
	for _, f := range s.Files {
		if f.State != "missing" {
			t.Errorf("%+v", f)
		}
	}
}

func TestMistakesInFilesAreNamedWithACaret(t *testing.T) { // C7
	for _, tt := range []struct {
		name, content, key, why, caret string
		line, col                      int
	}{
		{"unknown top key", "wait = 5\n", "wait", "unknown key; accounts, admission,", "wait = 5\n^~~~", 1, 1},
		{"unknown key", "[admission]\n wate = 5\n", "admission.wate", "[admission] has mode, patience, poll, wait", " wate = 5\n ^~~~", 2, 2},
		{"unknown table", "[pool]\nheavy = 1\n", "pool", "unknown table", "[pool]\n ^~~~", 1, 2},
		{"other case", "[Pools]\nheavy = 1\n", "Pools", "unknown table", "", 1, 2},
		{"key in other case", "[admission]\nMode = \"waiter\"\n", "admission.Mode", "unknown key", "", 2, 1},
		{"wrong type", "[admission]\nmode = 3\n", "admission.mode", "a text in quotes", "mode = 3\n       ^", 2, 8},
		{"wrong value", "admission = { mode = \"queue\" }\n", "admission.mode", `"waiter" or "dispatcher"`, "", 1, 22},
		{"table as value", "pools = 3\n", "pools", "a table, not a value", "", 1, 1},
		{"value as table", "[leases_dir]\n", "leases_dir", "a value, not a table", "", 1, 2},
		{"value as table below", "[admission.mode]\n", "admission.mode", "a value, not a table", "", 1, 2},
		{"list of tables", "[[pools]]\nheavy = 1\n", "pools", "written [pools]", "", 1, 3},
		{"one table for a list", "[notify]\non = 1\n", "notify", "written [[notify]]", "", 1, 2},
		{"notify without a list", "notify.on = [\"lost\"]\n", "notify.on", "written [[notify]]", "", 1, 1},
		{"notify of nothing", "[[notify]]\ncommand = [\"n\"]\n", "notify", "it needs on", "", 1, 3},
		{"notify nobody", "[[notify]]\non = [\"lost\"]\n", "notify", "it needs command", "", 1, 3},
		{"notify of an unknown kind", "[[notify]]\non = [\"lost\"]\ncommand = [\"n\"]\n[[notify]]\non = [\"lots\"]\n", "notify.on", "lost", "on = [\"lots\"]\n     ^~~~~~~~", 5, 6},
		{"notify by a text", "[[notify]]\ncommand = \"n\"\n", "notify.command", "a list of texts", "", 2, 11},
		{"notify by nothing", "[[notify]]\ncommand = []\n", "notify.command", "a list of words", "", 2, 11},
		{"notify for no time", "[[notify]]\ntimeout = 0\n", "notify.timeout", "more than 0", "", 2, 11},
		{"unknown key of notify", "[[notify]]\nwhen = 1\n", "notify.when", "[notify] has command, on, timeout", "", 2, 1},
		{"notify inline", "notify = [{ on = [\"lost\"], comand = [\"n\"] }]\n", "notify.comand", "unknown key", "", 1, 1},
		{"notify of no tables", "notify = [1]\n", "notify", "a table with on and command", "", 1, 1},
		{"unknown key of dispatch", "[dispatch]\nmetric = 1\n", "dispatch.metric", "[dispatch] has driver, metrics, starting", "", 2, 1},
		{"metrics for others", "[dispatch]\nmetrics = \"0.0.0.0:9464\"\n", "dispatch.metrics", "a loopback address", "", 2, 11},
		{"metrics by a name", "[dispatch]\nmetrics = \"localhost:9464\"\n", "dispatch.metrics", "a loopback address", "", 2, 11},
		{"metrics anywhere", "[dispatch]\nmetrics = \"127.0.0.1:0\"\n", "dispatch.metrics", "a loopback address", "", 2, 11},
		{"too many offers", "[dispatch]\nstarting = 65\n", "dispatch.starting", "from 1 to 64", "", 2, 12},
		{"no driver", "[dispatch]\ndriver = []\n", "dispatch.driver", "a list of words", "", 2, 10},
		{"syntax", "[pools\nheavy = 1\n", "", "", "", 1, 7},
		{"duplicate", "[pools]\nheavy = 1\nheavy = 2\n", "", "", "", 3, 1},
		{"duplicate table", "[pools]\na = 1\n[pools]\nb = 1\n", "", "", "", 3, 2},
		{"pool name", "[pools]\n\"my gpu\" = 1\n", "pools.my gpu", "a pool's name", "", 2, 1},
		{"pool name upper", "[pools]\nHeavy = 1\n", "pools.Heavy", "a pool's name", "", 2, 1},
		{"pool name empty", "[pools]\n\"\" = 1\n", "pools.", "a pool's name", "", 2, 1},
		{"two spellings", "[pools]\na-b = 1\na_b = 2\n", "pools.a_b", "HANDSEL_MAX_AGENTS_A_B", "a_b = 2\n^~~", 3, 1},
		{"pool and engine", "[pools]\na-b = 1\n[engine.a_b]\nnames = []\n", "engine.a_b", "HANDSEL_MAX_AGENTS_A_B", "", 3, 2},
		{"spelling of an engine", "[pools]\nclaude-code = 1\n", "pools.claude-code", `"claude" (HANDSEL_MAX_AGENTS_CLAUDE)`, "", 2, 1},
		{"engine spelled otherwise", "[engine.agy]\nconfine = \"os\"\n", "engine.agy", `called "gemini"`, "", 1, 2},
		{"engine heavy", "[engine.heavy]\nnames = []\n", "engine.heavy", "built-in pool", "", 1, 2},
		{"engine all inline", "engine = { all = { names = [] } }\n", "engine.all", "built-in pool", "", 1, 0},
		{"unknown engine key", "[engine.claude]\nname = [\"x\"]\n", "engine.claude.name", "unknown key; [engine.claude] has binary, confine, confine_ports, end_on", "", 2, 1},
		{"no ports", "[engine.pi]\nconfine_ports = 443\n", "engine.pi.confine_ports", "a list of ports", "", 2, 17},
		{"no port", "[engine.pi]\nconfine_ports = [443, 0]\n", "engine.pi.confine_ports", "1 to 65535", "", 2, 17},
		{"too large a port", "[engine.pi]\nconfine_ports = [65536]\n", "engine.pi.confine_ports", "1 to 65535", "", 2, 17},
		{"how a built-in engine is asked", "[engine.codex]\nargs = [\"exec\"]\n", "engine.codex.args", "codex is built in", "", 2, 1},
		{"no such placeholder", "[engine.mine]\nargs = [\"--m\", \"{models}\"]\n", "engine.mine.args", "{models} is no placeholder; there are {prompt} {prompt_file} {model}", "", 2, 8},
		{"no such way to ask", "[engine.mine]\nstdin = \"file\"\n", "engine.mine.stdin", `"prompt" or "none"`, "", 2, 9},
		{"no such stream", "[engine.mine]\nstream = \"agy\"\n", "engine.mine.stream", `"gemini" or "pi" or "none"`, "", 2, 10},
		{"confined by nothing said", "[engine.mine]\nconfines = \" \"\n", "engine.mine.confines", "it is empty", "", 2, 12},
		{"confined at length", "[engine.mine]\nconfines = \"a\\nb\"\n", "engine.mine.confines", "one line", "", 2, 12},
		{"an executable somewhere", "[engine.gemini]\nbinary = \"bin/agy\"\n", "engine.gemini.binary", "absolute path", "", 2, 10},
		{"an executable of nothing", "[engine.gemini]\nbinary = \"\"\n", "engine.gemini.binary", "it is empty", "", 2, 10},
		{"ended on what", "[engine.claude]\nend_on = [\"login\", \"Limit\"]\n", "engine.claude.end_on", `a list of "limit", "throttle", "login", "permission"`, "", 2, 10},
		{"poll of nothing", "[admission]\npoll = 0\n", "admission.poll", "more than 0", "", 2, 8},
		{"relative leases_dir", "leases_dir = \"x\"\n", "leases_dir", "absolute", "", 1, 14},
		{"size", "[runs]\noutput_cap = \"64 MiBs\"\n", "runs.output_cap", "number of bytes", "", 2, 14},
		{"size of nothing", "[runs]\noutput_cap = 0\n", "runs.output_cap", "more than 0", "", 2, 14},
		{"size too large", "[runs]\nkeep_bytes = \"99999999TiB\"\n", "runs.keep_bytes", "too large", "", 2, 14},
		{"list of numbers", "[nesting]\nseats = [1]\n", "nesting.seats", "list of texts", "", 2, 9},
		{"shim", "[nesting.shim]\nclaude = \"yes\"\n", "nesting.shim.claude", `"refuse" or "pass"`, "", 2, 10},
		{"gate outside rules", "[gate]\nx = 1\n", "gate.x", "[gate] has rules", "", 2, 1},
		{"gate of no list", "[gate.rules]\ngradle = \"./gradlew\"\n", "gate.rules.gradle", "list of texts", "", 2, 10},
		{"gate of a table", "[gate.rules.gradle]\nx = [\"make\"]\n", "gate.rules.gradle", "it is a value, not a table", "", 1, 2},
		{"gate of nothing", "[gate.rules]\ngradle = []\n", "gate.rules.gradle", "at least one", "", 2, 10},
		{"gate of an empty command", "[gate.rules]\ngradle = [\" \"]\n", "gate.rules.gradle", "first words", "", 2, 10},
		{"gate of a pipe", "[gate.rules]\ngradle = [\"make | tee log\"]\n", "gate.rules.gradle", "first words", "", 2, 10},
		{"gate of an assignment", "[gate.rules]\ngradle = [\"CC=clang make\"]\n", "gate.rules.gradle", "first words", "", 2, 10},
		{"gate in no pool", "[gate.rules]\n\"./gradlew\" = [\"gradle\"]\n", "gate.rules../gradlew", "a pool's name", "", 2, 1},
		{"gate in a pool of another spelling", "[pools]\nmy-pool = 1\n[gate.rules]\nmy_pool = [\"make\"]\n", "gate.rules.my_pool", "would share the variable", "", 4, 1},
		{"credentials of nobody", "[credentials]\nclaude = 1\n", "credentials.claude", "a table, not a value", "", 2, 1},
		{"control bytes", "[admission]\nmode = \"\\u001b[2J\u202e\"\n", "admission.mode", "", "", 2, 8},
		{"after multi-byte text", "# ä\n[admission]\npoll = \"ü\"\n", "admission.poll", "duration", "poll = \"?\"\n       ^~~", 3, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t).user(tt.content)
			bad := w.bad()
			if bad.File != w.env.UserFile || bad.Line != tt.line || tt.col > 0 && bad.Col != tt.col ||
				tt.key != "" && bad.Key != tt.key || !strings.Contains(bad.Why, tt.why) {
				t.Errorf("%+v", bad)
			}
			if tt.caret != "" && bad.Caret != tt.caret || strings.Count(bad.Caret, "\n") != 1 {
				t.Errorf("caret\n%s\nwant\n%s", bad.Caret, tt.caret)
			}
			if !strings.HasPrefix(bad.Error(), w.env.UserFile+":") || strings.Contains(bad.Error(), "\n") {
				t.Errorf("message %q", bad.Error())
			}
			// A looking verb goes on and says so.
			if s, problems := LoadLenient(w.env); len(problems) == 0 || s == nil {
				t.Error("LoadLenient hides the mistake")
			}
		})
	}
}

// TestOwnEnginesAreReadWhole: what a file says of an engine of the user's own,
// and what no single key of it shows (E1).
func TestOwnEnginesAreReadWhole(t *testing.T) {
	s := newWorld(t).user("[engine.mine]\nnames = [\"mine\"]\nbinary = \"~/bin/mine\"\nargs = [\"run\", \"--model\", \"{model}\"]\nstdin = \"prompt\"\n" +
		"stream = \"pi\"\nconfines = \"in a box\"\nlight_args = [\"--box\"]\n").
		extra("[engine.gemini]\nbinary = \"agy\"\nend_on = [\"login\", \"limit\"]\nresult_grace = 3\n").load()
	user, err := home.UserHome()
	if err != nil {
		t.Fatal(err)
	}
	want := EngineConf{
		Names: []string{"mine"}, Binary: filepath.Join(user, "bin/mine"), Args: []string{"run", "--model", "{model}"}, Stdin: "prompt",
		Stream: "pi", Confines: "in a box", LightArgs: []string{"--box"},
	}
	if got := s.EngineOf["mine"]; !reflect.DeepEqual(got, want) {
		t.Errorf("engine %+v, want %+v", got, want)
	}
	if got := s.EngineOf["gemini"]; got.Binary != "agy" || len(got.EndOn) != 2 || got.ResultGrace != 3*time.Second {
		t.Errorf("engine %+v", got)
	}
	for _, tt := range []struct{ user, extra, key, why string }{
		{"[engine.mine]\nstdin = \"none\"\nargs = [\"run\"]\n", "", "engine.mine.stdin", "reaches it in no way"},
		{"[engine.mine]\nstdin = \"prompt\"\nargs = [\"run\"]\n", "[engine.mine]\nstdin = \"none\"\n", "engine.mine.stdin", "reaches it in no way"},
		{"[engine.mine]\nlight_args = [\"--box\"]\n", "", "engine.mine.light_args", "confines is missing"},
	} {
		w := newWorld(t).user(tt.user)
		file := w.env.UserFile
		if tt.extra != "" {
			file = w.extra(tt.extra).env.ExtraFile
		}
		if bad := w.bad(); bad.Key != tt.key || bad.File != file || !strings.Contains(bad.Why, tt.why) {
			t.Errorf("%s%s: %v, want %s: %s", tt.user, tt.extra, bad, tt.key, tt.why)
		}
	}
	for _, fine := range []string{"[engine.mine]\nargs = [\"{prompt}\", '{\"a\": {\"b\": 1}}']\nstdin = \"none\"\n", "[engine.mine]\nargs = [\"{prompt_file}\"]\nstdin = \"none\"\n"} {
		newWorld(t).user(fine).load()
	}
}

func TestNamesMayNotClashAcrossFiles(t *testing.T) { // C8
	w := newWorld(t).user("[pools]\na-b = 1\n").extra("[pools]\na_b = 2\n")
	if bad := w.bad(); bad.File != w.env.ExtraFile || bad.Line != 2 || !strings.Contains(bad.Why, w.env.UserFile) {
		t.Errorf("%+v", bad)
	}
	w = newWorld(t).user("[pools]\na-b = 1\n").extra("[pools]\na-b = 2\n")
	if n, _ := w.load().Cap("a-b"); n != 1 {
		t.Errorf("cap %d, want 1", n)
	}
}

func TestAskedPoolsAreJudged(t *testing.T) { // C8
	w := newWorld(t).user("[pools]\na-b = 1\n")
	w.vars["HANDSEL_MAX_AGENTS_X_Y"] = "1"
	s := w.load()
	for _, tt := range []struct {
		asked []string
		ok    bool
	}{
		{[]string{"all", "heavy", "claude", "gradle", "a-b"}, true},
		{[]string{"x-y"}, true},
		{[]string{"x_y"}, true},
		{[]string{"gradle", "gradle"}, true},
		{[]string{"x-y", "x_y"}, false},
		{[]string{"a_b"}, false},
		{[]string{"A"}, false},
		{[]string{"../x"}, false},
		{[]string{""}, false},
		{[]string{"claude-code"}, false},
		{[]string{strings.Repeat("a", 64)}, false},
		{[]string{strings.Repeat("a", 63)}, true},
	} {
		if err := s.CheckPools(tt.asked); (err == nil) != tt.ok {
			t.Errorf("CheckPools(%v) = %v", tt.asked, err)
		}
	}
}

func TestBuiltinPoolsMayBeCapped(t *testing.T) {
	s := newWorld(t).user("[pools]\nall = 1\nheavy = 2\nclaude = 3\ncodex = 4\ngemini = 5\npi = 6\n[engine.claude]\nconfine = \"os\"\nconfine_ports = [443, 8080]\n[engine.pi]\nconfine_ports = []\n").load()
	for i, pool := range builtins {
		if n, _ := s.Cap(pool); n != i+1 {
			t.Errorf("Cap(%s) = %d, want %d", pool, n, i+1)
		}
	}
	if got := s.EngineOf["pi"].ConfinePorts; got == nil || len(got) > 0 {
		t.Errorf("no port at all became %#v", got)
	}
	if e := s.EngineOf["claude"]; e.Confine != "os" || !slices.Equal(e.ConfinePorts, []uint16{443, 8080}) || s.EngineOf["codex"].ConfinePorts != nil {
		t.Errorf("%+v", s.EngineOf)
	}
}

func TestTablesOfLaterVersionsAreKeptAsTheyAre(t *testing.T) { // C7
	w := newWorld(t).user(`
[credentials.claude]
env_file = "/x"
`).extra("[credentials.codex]\nenv_file = \"/y\"\n")
	s := w.load()
	if len(s.Later["credentials"].(map[string]any)) != 2 || len(s.Later) != 1 {
		t.Errorf("%+v", s.Later)
	}
}

func TestGateRulesArePutTogetherByPool(t *testing.T) { // W8
	w := newWorld(t).user("[gate.rules]\ngradle = [\"./gradlew\", \"gradle  build\"]\nrust = [\"cargo build\"]\n").
		extra("[gate]\nrules = { rust = [\"cargo\"] }\n")
	s := w.load()
	want := map[string][]string{"gradle": {"./gradlew", "gradle  build"}, "rust": {"cargo"}}
	if !reflect.DeepEqual(s.GateRules, want) {
		t.Errorf("%+v", s.GateRules)
	}
	for _, one := range s.Show() {
		if one.Key == "gate.rules.gradle" && one.Value == `["./gradlew", "gradle  build"]` {
			return
		}
	}
	t.Errorf("not shown: %+v", s.Show())
}

func TestCommandsOfAllFilesAreTold(t *testing.T) { // P13
	w := newWorld(t).user("[[notify]]\non = [\"lost\", \"failed\"]\ncommand = [\"a\", \"b\"]\ntimeout = \"3s\"\n[[notify]]\ncommand = [\"c\"]\non = [\"limit\"]\n").
		extra("notify = [{ on = [\"review\"], command = [\"d\"], timeout = 2 }]\n[dispatch]\nmetrics = \"[::1]:9464\"\nstarting = 4\n")
	s := w.load()
	for i := range s.Notify {
		s.Notify[i].From = filepath.Base(s.Notify[i].From)
	}
	want := []Notify{
		{[]string{"lost", "failed"}, []string{"a", "b"}, 3 * time.Second, "user.toml"},
		{[]string{"limit"}, []string{"c"}, DefaultNotifyTimeout, "user.toml"},
		{[]string{"review"}, []string{"d"}, 2 * time.Second, "extra.toml"},
	}
	if !reflect.DeepEqual(s.Notify, want) {
		t.Errorf("%+v\nwant %+v", s.Notify, want)
	}
	if s.Dispatch.Metrics != "[::1]:9464" || s.Dispatch.Starting != 4 {
		t.Errorf("%+v", s.Dispatch)
	}
}

func TestReviewIsReadAsWritten(t *testing.T) { // P7, P8
	s := newWorld(t).user(`
[review]
lanes = ["api/*"]
checks = [["make", "test"], ["lint"]]
check_pools = ["quality", "review"]
check_timeout = "5m"
verify = ["v", ""]
`).extra("[review]\nrequire_checks = false\n").load()
	want := ReviewConf{
		Lanes: []string{"api/*"}, Checks: [][]string{{"make", "test"}, {"lint"}}, Lenient: true, Pools: []string{"quality", "review"},
		Timeout: 5 * time.Minute, Verify: []string{"v", ""},
	}
	if !reflect.DeepEqual(s.Review, want) {
		t.Errorf("%+v, want %+v", s.Review, want)
	}
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := Set(path, "review.checks", `[["make", "test"]]`); err != nil {
		t.Error(err)
	}
	if err := Set(path, "review.checks", "make test"); !errors.As(err, new(*Bad)) {
		t.Errorf("a command that is no list: %v", err)
	}
	for _, bad := range []string{
		`checks = ["make"]`, `checks = [[]]`, `checks = [["", "x"]]`, `checks = [["a\u0000"]]`, `checks = "make"`, `checks = [[1]]`,
		`verify = [""]`, `verify = "v"`, `check_pools = []`, `check_pools = ["A"]`, `check_timeout = 0`, `require_checks = "no"`, `lane = ["x"]`,
	} {
		if _, err := Load(newWorld(t).user("[review]\n" + bad + "\n").env); !errors.As(err, new(*Bad)) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestLookingReadsWhatCanBeRead(t *testing.T) { // C7
	w := newWorld(t).user("[pools]\nheavy = 3\nall = \"x\"\n[admission]\nmode = \"dispatcher\"\nwate = 1\n").extra("not toml")
	w.vars["HANDSEL_MAX_AGENTS_HEAVY"] = "two"
	w.vars["HANDSEL_MAX_AGENTS_CODEX"] = "2"
	s, problems := LoadLenient(w.env)
	if n, _ := s.Cap("heavy"); n != 3 || s.Mode != "dispatcher" {
		t.Errorf("heavy %d, mode %s", n, s.Mode)
	}
	if n, _ := s.Cap("codex"); n != 2 {
		t.Errorf("codex %d", n)
	}
	if len(problems) != 4 {
		t.Errorf("%d problems, want 4: %v", len(problems), problems)
	}
	if left, _ := os.ReadDir(w.env.Home.Path); len(left) != 0 {
		t.Error("looking wrote into the home")
	}
}

func TestUnchangedFileIsParsedOnce(t *testing.T) {
	w := newWorld(t).user("[pools]\nheavy = 3\n")
	w.load()
	first := cache.files[w.env.UserFile]
	w.load()
	if first == nil || cache.files[w.env.UserFile] != first {
		t.Error("an unchanged file was parsed again")
	}
	w.user("[pools]\nheavy = 4\n") // the same size: the bytes count
	if n, _ := w.load().Cap("heavy"); n != 4 {
		t.Errorf("cap %d after a change, want 4", n)
	}
	// What one reader does with its settings is not seen by the next.
	s := w.load()
	s.Caps["heavy"][0].N = 99
	delete(s.Caps, "heavy")
	if n, _ := w.load().Cap("heavy"); n != 4 {
		t.Errorf("cap %d, want 4", n)
	}
}

func TestExplicitFileMustBeThere(t *testing.T) { // C6: it adds; lost, its caps are lost
	w := newWorld(t).user("[pools]\nheavy = 3\n")
	w.vars["HANDSEL_CONFIG"] = filepath.Join(w.dir, "none.toml")
	if bad := w.bad(); bad.Key != "HANDSEL_CONFIG" {
		t.Errorf("%+v", bad)
	}
	w.vars["HANDSEL_CONFIG"] = "relative.toml"
	if bad := w.bad(); bad.Key != "HANDSEL_CONFIG" {
		t.Errorf("%+v", bad)
	}
	w.vars["HANDSEL_CONFIG"] = filepath.Join(w.dir, "there.toml")
	w.write(w.vars["HANDSEL_CONFIG"], "[pools]\nheavy = 1\n")
	if n, from := w.load().Cap("heavy"); n != 1 || from != w.vars["HANDSEL_CONFIG"] {
		t.Errorf("cap %d from %s", n, from)
	}
}

func TestFileThatIsNotOursRefuses(t *testing.T) { // C7: 77
	untrusted := func(w *world) {
		t.Helper()
		_, err := Load(w.env)
		if _, ok := errors.AsType[*home.Untrusted](err); !ok {
			t.Errorf("Load = %v, want *home.Untrusted", err)
		}
		if _, problems := LoadLenient(w.env); len(problems) != 1 {
			t.Errorf("LoadLenient = %v", problems)
		}
	}
	w := newWorld(t).user("")
	for _, mode := range []os.FileMode{0o666, 0o664, 0o646} {
		os.Chmod(w.env.UserFile, mode)
		untrusted(w)
	}
	w = newWorld(t)
	w.write(w.env.UserFile+".real", "")
	if err := os.Symlink(w.env.UserFile+".real", w.env.UserFile); err != nil {
		t.Fatal(err)
	}
	untrusted(w)
	w = newWorld(t).user("[pools]\nheavy = 3\n")
	os.Chmod(w.dir, 0o777) // the directory: anybody could put another file there
	untrusted(w)
}

func TestMachineFileMustBeRoots(t *testing.T) { // C6
	w := newWorld(t)
	w.write(w.env.MachineFile, "[pools]\nheavy = 2\n")
	if os.Geteuid() == 0 {
		w.user("[pools]\nheavy = 5\n[admission]\nwait = 1\n")
		if n, from := w.load().Cap("heavy"); n != 2 || from != w.env.MachineFile {
			t.Errorf("cap %d from %s", n, from)
		}
		w.write(w.env.MachineFile, "[pools]\nheavy = 2\n[admission]\nwait = 2\npoll = 9\n")
		if s := w.load(); s.Wait != time.Second || s.Poll != 9*time.Second {
			t.Errorf("wait %v, poll %v", s.Wait, s.Poll)
		}
		if err := os.Chown(w.env.MachineFile, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Load(w.env)
	if _, ok := errors.AsType[*home.Untrusted](err); !ok {
		t.Errorf("Load = %v of another's machine file, want *home.Untrusted", err)
	}
}

func TestMissingOrEmptyFileIsLookedAtTwice(t *testing.T) { // S4
	const content = "[pools]\nheavy = 3\n"
	w := newWorld(t).user(content)
	looks := noPause(t)
	note := filepath.Join(w.env.Home.Path, "config.seen")
	expect := func(what string, cap, want int) {
		t.Helper()
		if n, _ := w.load().Cap("heavy"); n != cap {
			t.Errorf("%s: cap %d, want %d", what, n, cap)
		}
		if *looks != want {
			t.Errorf("%s: %d second looks, want %d", what, *looks, want)
		}
		*looks = 0
	}
	w.env.LeasesExist = true
	expect("present", 3, 0)
	if info, err := os.Lstat(note); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the note: %v, %v", info, err)
	}
	before, _ := os.Stat(note)
	expect("present again", 3, 0)
	if after, _ := os.Stat(note); !os.SameFile(before, after) {
		t.Error("the note was rewritten without need")
	}

	// An editor takes the file away and puts it back.
	for _, gone := range []func(){func() { os.Remove(w.env.UserFile) }, func() { w.user("\n") }, func() { w.user("") }} {
		gone()
		pause = func(time.Duration) { *looks++; w.user(content) }
		expect("away for a moment", 3, 1)
	}
	pause = func(time.Duration) { *looks++ }

	os.Remove(w.env.UserFile)
	expect("gone for good", 0, 1)
	expect("gone and believed", 0, 0)
	w.user("")
	expect("found empty", 0, 1)
	expect("empty and believed", 0, 0)
	w.user("# nothing but a comment\n")
	expect("a comment is content", 0, 0)
	w.user(content)
	expect("back", 3, 0)

	// Others' files in the note stay in it.
	w.extra(content)
	w.load()
	os.Remove(w.env.ExtraFile)
	w.env.ExtraFile = ""
	expect("without the extra file", 3, 0)
	if data, _ := os.ReadFile(note); !strings.Contains(string(data), "extra.toml") {
		t.Errorf("the note lost a file: %s", data)
	}
}

func TestUncappedStartIsNeverDelayedAndWritesNothing(t *testing.T) { // S4, G2
	w := newWorld(t)
	looks := noPause(t)
	w.load()
	w.user("")
	w.load()
	w.user("[admission]\nwait = 3\n")
	w.load()
	if left, _ := os.ReadDir(w.env.Home.Path); *looks != 0 || len(left) != 0 {
		t.Errorf("%d second looks, %d files in the home", *looks, len(left))
	}
}

func TestDamagedNoteIsNoObstacle(t *testing.T) {
	w := newWorld(t).user("[pools]\nheavy = 3\n")
	w.env.LeasesExist = true
	note := filepath.Join(w.env.Home.Path, "config.seen")
	for _, content := range []string{"", "{", "[]", `{"v":"x"}`, strings.Repeat("[", 1000)} {
		os.Remove(note)
		if err := os.WriteFile(note, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		w.load()
		if data, _ := os.ReadFile(note); !strings.Contains(string(data), "user.toml") {
			t.Errorf("after %q the note holds %q", content, data)
		}
	}
	newer := `{"v":2,"future":true}`
	os.WriteFile(note, []byte(newer), 0o600)
	w.load()
	if data, _ := os.ReadFile(note); string(data) != newer { // C12
		t.Errorf("a newer note was rewritten: %q", data)
	}
	os.Remove(note)
	if err := os.Symlink(w.env.UserFile, note); err != nil {
		t.Fatal(err)
	}
	_, err := Load(w.env)
	if _, ok := errors.AsType[*home.Untrusted](err); !ok {
		t.Errorf("Load = %v with a planted note, want *home.Untrusted", err)
	}
}

func TestShowNamesEverySource(t *testing.T) {
	w := newWorld(t).user("[pools]\nheavy = 3\n[admission]\nwait = 90\n[nesting]\nseats = [\"a\\u0007\"]\n")
	w.vars["HANDSEL_MAX_AGENTS_HEAVY"] = "2"
	var got []string
	for _, s := range w.load().Show() {
		if s.From != "default" {
			got = append(got, strings.Join([]string{s.Key, s.Value, filepath.Base(s.From)}, " ")+map[bool]string{true: "", false: " (overruled)"}[s.InForce])
		}
	}
	want := []string{"pools.heavy 3 user.toml (overruled)", "pools.heavy 2 HANDSEL_MAX_AGENTS_HEAVY",
		`admission.wait "1m30s" user.toml`, `nesting.seats ["a\u0007"] user.toml`}
	if !slices.Equal(got, want) {
		t.Errorf("Show:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestUnreadableFileRefuses(t *testing.T) { // nothing starts uncounted
	w := newWorld(t)
	if err := os.Mkdir(w.env.UserFile, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(w.env); err == nil {
		t.Error("a directory in the file's place is taken for no file")
	}
	os.Remove(w.env.UserFile)
	w.user("#" + strings.Repeat("x", maxFile))
	if bad := w.bad(); !strings.Contains(bad.Why, "larger") {
		t.Errorf("%+v", bad)
	}
	if os.Geteuid() != 0 {
		w.user("[pools]\nheavy = 1\n")
		os.Chmod(w.env.UserFile, 0)
		if bad := w.bad(); !strings.Contains(bad.Why, "mode 0000") {
			t.Errorf("%+v", bad)
		}
	}
}

func FuzzCapValue(f *testing.F) {
	for _, seed := range []string{"", " 4 ", "4\n", "+4", "0x4", "1e3", "2.5", "-1", "４", "9999999999999999999999", "4 # four", "007", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, why := parseCap(text)
		trimmed := strings.Trim(text, " \t\r\n")
		plain := strings.Trim(trimmed, "0123456789") == "" // digits only, or nothing
		if why == "" && (!plain || n < 0) || why != "" && n != 0 {
			t.Errorf("parseCap(%q) = %d, %q", text, n, why)
		}
		if plain && len(trimmed) < 10 && why != "" {
			t.Errorf("parseCap(%q) refuses: %s", text, why)
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		"", "[pools]\nheavy = 3\n", "pools = { a-b = 1, a_b = 2 }", "[admission]\nwait = \"1s\"\n[engine.x]\nnames = [\"x\"]", "[[notify]]\non=[]",
		"[pools\n", "a.b.c = 1", "leases_dir = '''\n/x'''", "\"\\u0000\" = 1", "[gate.rules]\na = { x = [ 1, { y = 2 } ] }", string(example),
		"nesting = { shim = { claude = \"pass\" } }", "\ufeff[pools]", "[engine]\nx = {}\n", "pools={}\nadmission={mode='waiter',}", "[pools]\r\nheavy = 1\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := parse("/f.toml", data)
		s := defaults()
		p.apply(s)
		nameTable{}.add(p)
		for _, err := range p.problems() {
			bad, ok := errors.AsType[*Bad](err)
			if !ok || strings.ContainsFunc(bad.Error(), func(r rune) bool { return r != '…' && (r < ' ' || r > '~') }) {
				t.Errorf("problem %q", err)
			}
		}
		for pool, caps := range s.Caps {
			for _, c := range caps {
				if !ValidName(pool) || c.N < 1 {
					t.Errorf("cap %+v of %q", c, pool)
				}
			}
		}
		if len(p.bads) > 0 {
			return
		}
		next, err := edited("/f.toml", data, []string{"pools", "heavy"}, capacity, "7")
		if err != nil {
			return // a file may be written so that only a person can change it
		}
		s = defaults()
		parse("/f.toml", next).apply(s)
		if n, _ := s.Cap("heavy"); n != 7 {
			t.Errorf("after Set the cap is %d in %q", n, next)
		}
	})
}

func TestVariablesAreKnownHoweverTheyAreGiven(t *testing.T) {
	t.Setenv("HANDSEL_MAX_AGENTS_GRADLE", "1")
	w := newWorld(t)
	w.env.Getenv, w.env.Environ = nil, nil
	if n, _ := w.load().Cap("gradle"); n != 1 {
		t.Errorf("cap %d from the process's environment, want 1", n)
	}
	w.env.Environ = func() []string {
		return []string{"HANDSEL_MAX_AGENTS_X=3", "HANDSEL_MAX_AGENTS_X=2", "HANDSEL_ADMIT_WAIT=5"}
	}
	s := w.load()
	if n, _ := s.Cap("x"); n != 2 || s.Wait != 5*time.Second {
		t.Errorf("cap %d, wait %v from a list", n, s.Wait)
	}
	w.env.Environ = nil
	w.env.Getenv = func(name string) string { return map[string]string{"HANDSEL_MAX_AGENTS_CODEX": "4"}[name] }
	s = w.load()
	if n, _ := s.Cap("codex"); n != 4 || len(s.Caps) != 1 {
		t.Errorf("%+v from a function alone", s.Caps)
	}
}
