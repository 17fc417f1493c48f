package engine

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

func TestGeminiIsAskedOnItsStdin(t *testing.T) { // E2, C109, C137
	for _, tt := range []struct {
		name  string
		ask   Ask
		argv  []string
		stdin string
	}{
		{"plain", Ask{Prompt: []byte("do it")}, words("gemini --output-format stream-json"), "do it"},
		{"all of it", Ask{Prompt: []byte("go on"), Model: "gemini-2.5-pro", Resume: "id-1", Binary: "/opt/gemini", Args: words("--approval-mode yolo"), System: "Be brief."},
			words("/opt/gemini --output-format stream-json -m gemini-2.5-pro --resume id-1 --approval-mode yolo"), "Be brief.\n\ngo on"},
		{"what looks like a flag", Ask{Prompt: []byte("-p @x --yolo")}, words("gemini --output-format stream-json"), "-p @x --yolo"},
	} {
		c, err := geminiBuild(tt.ask)
		if err != nil || !slices.Equal(c.Argv, tt.argv) || string(c.Stdin) != tt.stdin {
			t.Errorf("%s: %q <%q, %v, want %q <%q", tt.name, c.Argv, c.Stdin, err, tt.argv, tt.stdin)
		}
		if !geminiStreams(c.Argv[1:]) {
			t.Errorf("%s: what was built is not read", tt.name)
		}
	}
}

// TestPromptThatWouldBeCutIsRefused: gemini drops what is beyond 8 MiB, agy takes
// an argument only (C108).
func TestPromptThatWouldBeCutIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(Ask) (Command, error)
		limit int
	}{{"gemini", geminiBuild, 8 << 20}, {"agy", agyBuild, 131071}} {
		ask := Ask{Binary: tt.name, Prompt: bytes.Repeat([]byte("x"), tt.limit)}
		if _, err := tt.build(ask); err != nil {
			t.Errorf("%s, %d bytes: %v", tt.name, tt.limit, err)
		}
		ask.Prompt = append(ask.Prompt, 'x')
		long, ok := errors.AsType[*TooLong](func() error { _, err := tt.build(ask); return err }())
		if !ok || long.Size != tt.limit+1 || long.Limit != tt.limit {
			t.Errorf("%s, %d bytes: %v", tt.name, len(ask.Prompt), long)
		}
	}
}

func TestAgyIsAskedAsDocumented(t *testing.T) { // E2, from documentation only
	ask := Ask{Prompt: []byte("-x do it"), Model: "gemini-3-pro", Resume: "c-1", Args: words("--effort high"), System: "Be brief."}
	want := append(words("agy --output-format json --print-timeout 24h --model gemini-3-pro --conversation c-1 --effort high -p"), "Be brief.\n\n-x do it")
	for _, k := range []Known{{}, {Own: map[string]Own{"gemini": {Binary: "agy"}}}} {
		name := "agy"
		if k.Own != nil {
			name = "gemini"
		}
		c, err := k.Headless(name, ask)
		if err != nil || !slices.Equal(c.Argv, want) || c.Stdin != nil {
			t.Errorf("%q <%q, %v, want %q", c.Argv, c.Stdin, err, want)
		}
		if !k.Streams(name, c.Argv) {
			t.Errorf("what was built by %s is not read", name)
		}
	}
}

func TestGeminiStreamsAreKnown(t *testing.T) {
	for _, tt := range []struct {
		gemini, agy bool
		args        string
	}{
		{true, false, "--output-format stream-json -p x"}, {true, false, "-o=stream-json"}, {true, false, "-o stream-json"},
		{true, false, "--outputFormat=stream-json"}, {false, true, "--output-format json"}, {false, true, "-output-format json"},
		{false, false, "-p x"}, {false, false, ""}, {false, false, "--output-format text"}, {false, false, "-p x -- -o stream-json"},
		{false, false, "--output-format"}, {false, true, "-o stream-json -o json"},
	} {
		if g, a := geminiStreams(words(tt.args)), agyStreams(words(tt.args)); g != tt.gemini || a != tt.agy {
			t.Errorf("%q: gemini %v, agy %v, want %v, %v", tt.args, g, a, tt.gemini, tt.agy)
		}
	}
}

// TestWhatLiftsGeminisLightIsRefused: each names the setting (E5, C138).
func TestWhatLiftsGeminisLightIsRefused(t *testing.T) {
	for _, tt := range []struct{ argv, setting string }{
		{"gemini --yolo -p x", "--yolo"}, {"gemini -y", "-y"}, {"gemini -dy", "-dy"}, {"gemini -yd -p x", "-yd"}, {"gemini --yolo=true", "--yolo=true"},
		{"gemini --no-yolo", "--no-yolo"}, {"gemini --YOLO", "--YOLO"}, {"gemini --Yolo", "--Yolo"}, {"gemini --yol", "--yol"}, {"gemini --yolo.x=1", "--yolo.x=1"},
		{"gemini -p x --approval-mode yolo", "--approval-mode yolo"}, {"gemini --approval-mode=yolo", "--approval-mode=yolo"},
		{"gemini --approvalMode yolo", "--approvalMode yolo"}, {"gemini --approval-mode auto_edit", "--approval-mode auto_edit"},
		{"gemini --approval-mode YOLO", "--approval-mode YOLO"}, {"gemini --approval-mode Plan", "--approval-mode Plan"},
		{"gemini --approval_mode plan", "--approval_mode plan"}, {"gemini --Approval-Mode plan", "--Approval-Mode plan"}, {"gemini --approval plan", "--approval plan"},
		{"gemini --approval-mode plan --approval-mode yolo", "--approval-mode yolo"},
		{"gemini --include-directories ../x", "--include-directories ../x"}, {"gemini --includeDirectories=/", "--includeDirectories=/"},
		{"gemini --admin-policy x.toml", "--admin-policy x.toml"}, {"gemini --no-admin-policy", "--no-admin-policy"}, {"gemini --adminPolicy=x", "--adminPolicy=x"},
		{"gemini --allowed-tools write_file", "--allowed-tools write_file"}, {"gemini --allowed-tools=run_shell_command,replace", "--allowed-tools=run_shell_command,replace"},
		{"gemini --allowed-tools *", "--allowed-tools *"}, {"gemini --allowed-tools WriteFileTool", "--allowed-tools WriteFileTool"}, {"gemini --allowed-tools edit(x)", "--allowed-tools edit(x)"},
		{"gemini --allowed-mcp-server-names x", "--allowed-mcp-server-names x"}, {"gemini --allowedMcpServerNames=x", "--allowedMcpServerNames=x"},
		{"gemini --sandbox=false", "--sandbox=false"}, {"gemini --no-sandbox", "--no-sandbox"}, {"gemini --sandbox false", "--sandbox false"}, {"gemini -s=false", "-s=false"}, {"gemini -s false", "-s false"}, {"gemini --s=false", "--s=false"}, {"gemini -ds false", "-ds false"}, {"gemini --y", "--y"}, {"gemini -p=x -=", "-="},
		{"gemini --worktree x", "--worktree x"}, {"gemini -w", "-w"}, {"gemini --something-new", "--something-new"}, {"gemini -q", "-q"}, {"gemini --record-responses=x", "--record-responses=x"},
		{"gemini --allowed-tools mcp_x_y", "--allowed-tools mcp_x_y"}, {"agy --project x", "--project x"}, {"agy --approval-mode yolo", "--approval-mode yolo"}, {"agy --printing --add-dir /x", "--printing"},
		{"gemini mcp add x", "mcp"}, {"gemini extensions install x", "extensions"},
		{"npx @google/gemini-cli --yolo", "--yolo"}, {"env A=1 nice gemini -p x -y", "-y"}, {"node /x/@google/gemini-cli/bundle/gemini.js --yolo", "--yolo"},
		{"agy --dangerously-skip-permissions -p x", "--dangerously-skip-permissions"}, {"agy -dangerously-skip-permissions -p x", "-dangerously-skip-permissions"},
		{"agy --add-dir /x -p y", "--add-dir /x"}, {"agy -add-dir=/x", "-add-dir=/x"}, {"agy --mode accept-edits", "--mode accept-edits"}, {"agy --sandbox=false", "--sandbox=false"},
		{"agy --mode Plan", "--mode Plan"}, {"agy --yolo", "--yolo"},
	} {
		_, _, err := (Known{Resolve: noDisk(t)}).Light("gemini", words(tt.argv), "/w", "/files")
		if lifted, ok := errors.AsType[*Lifted](err); !ok || lifted.Setting != tt.setting || lifted.Engine != "gemini" {
			t.Errorf("%s: %v, want %q refused", tt.argv, err, tt.setting)
		}
	}
}

// TestGeminisLightCannotBeUndone: the policy stands first, and what the user said
// comes after it, unchanged (C138). A line typed by hand is confined as well.
func TestGeminisLightCannotBeUndone(t *testing.T) {
	for _, tt := range []struct{ argv, want string }{
		{"gemini --output-format stream-json -m x", "gemini --admin-policy /files/gemini-light.toml --allowed-mcp-server-names none-of-a-light-agent --output-format stream-json -m x"},
		{"gemini -p hello", "gemini --admin-policy /files/gemini-light.toml --allowed-mcp-server-names none-of-a-light-agent -p hello"},
		{"gemini", "gemini --admin-policy /files/gemini-light.toml --allowed-mcp-server-names none-of-a-light-agent"},
		{"nice -n 5 npx -y @google/gemini-cli@0.61.0 -p hello", "nice -n 5 npx -y @google/gemini-cli@0.61.0 --admin-policy /files/gemini-light.toml --allowed-mcp-server-names none-of-a-light-agent -p hello"},
		{"env A=1 gemini --policy mine.toml --approval-mode plan", "env A=1 gemini --admin-policy /files/gemini-light.toml --allowed-mcp-server-names none-of-a-light-agent --policy mine.toml --approval-mode plan"},
		{"gemini --allowed-tools run_shell_command(git),read_file --skip-trust -d", "gemini --admin-policy /files/gemini-light.toml --allowed-mcp-server-names none-of-a-light-agent --allowed-tools run_shell_command(git),read_file --skip-trust -d"},
		{"gemini -s -p x", "gemini --admin-policy /files/gemini-light.toml --allowed-mcp-server-names none-of-a-light-agent -s -p x"},
		{"gemini --resume latest -- --yolo -y", "gemini --admin-policy /files/gemini-light.toml --allowed-mcp-server-names none-of-a-light-agent --resume latest -- --yolo -y"},
		{"agy -p x --output-format json", "agy --sandbox -p x --output-format json"},
		{"agy --mode plan --prompt --add-dir", "agy --sandbox --mode plan --prompt --add-dir"},
	} {
		argv := words(tt.argv)
		got, c, err := (Known{Resolve: noDisk(t)}).Light("gemini", argv, "/w", "/files")
		if got = slices.DeleteFunc(got, func(word string) bool { return word == "--sandbox" && !strings.HasPrefix(tt.want, "agy") }); err != nil || !slices.Equal(got, words(tt.want)) {
			t.Errorf("%s: %q, %v, want %q", tt.argv, got, err, tt.want)
		}
		if policy := string(c.Files["/files/gemini-light.toml"]); strings.HasPrefix(tt.want, "agy") != (policy == "") || policy != "" && policy != geminiPolicy {
			t.Errorf("%s: files %v", tt.argv, c.Files)
		}
		if strings.Join(argv, " ") != tt.argv {
			t.Errorf("%s became %q in the caller's hand", tt.argv, argv)
		}
	}
	for _, place := range []string{"", "/files,more"} {
		if _, _, err := (Known{}).Light("gemini", words("gemini"), "/w", place); err == nil {
			t.Errorf("a policy at %q is not refused", place)
		}
	}
}

// TestMachinesOwnRulesAreNotDisplaced: beside them gemini would not take ours, or
// would take ours in their place.
func TestMachinesOwnRulesAreNotDisplaced(t *testing.T) {
	dir := t.TempDir()
	m := geminiMachine{policies: filepath.Join(dir, "policies"), settings: filepath.Join(dir, "settings.json")}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(setting string) {
		t.Helper()
		err := m.outranks()
		lifted, ok := errors.AsType[*Lifted](err)
		if ok != (setting != "") || ok && !strings.Contains(lifted.Setting, setting) {
			t.Errorf("outranks = %v, want %q", err, setting)
		}
	}
	expect("")
	write(m.settings, `{"ui": {}}`)
	write(filepath.Join(m.policies, "README"), "x")
	expect("")
	write(m.settings, `{"adminPolicyPaths": ["/x"]}`)
	expect("adminPolicyPaths in " + m.settings)
	write(filepath.Join(m.policies, "a.toml"), "")
	expect("a.toml")
}

// TestGeminiEndings are recorded runs of gemini 0.61.0 against the model stub.
func TestGeminiEndings(t *testing.T) { // E10, E11, C126
	hour := noon.Add(time.Hour)
	for _, tt := range []ending{
		{"plain", 0, "session text result", "", time.Time{}, "Hello there."},
		{"tool", 0, "session text tool text result", "", time.Time{}, "Done."},
		{"resumed", 0, "session text result", "", time.Time{}, "Hello there."},
		{"talk", 0, "session text result", "", time.Time{}, "429 RESOURCE_EXHAUSTED"},
		{"asked", 0, "session text tool error text result", "", time.Time{}, "Done."},
		{"denied", 0, "session text tool text result", "", time.Time{}, "Done."},
		{"retried", 0, "limit session text result", "", time.Time{}, "Then it went on."},
		{"long", 0, "session text result", "", time.Time{}, "9e3779b97f4a7c15"},
		{"lost", 0, "session", stream.NoResult, time.Time{}, "its last line was not finished"},
		{"empty", 1, "session error result", stream.ByAgent, time.Time{}, "The model returned an empty response"},
		{"limit", 173, "limit session result", stream.ByLimit, hour, "Quota exceeded"},
		{"login", 145, "error session result", stream.ByLogin, time.Time{}, "API key not valid"},
		{"overloaded", 17, "limit session result", stream.ByThrottle, time.Time{}, "Overloaded"},
		{"throttle", 173, "limit session result", stream.ByThrottle, noon.Add(12500 * time.Millisecond), "You exceeded your current quota"},
		{"untrusted", 55, "error", stream.ByPermission, time.Time{}, "not running in a trusted directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.check(t, replay(t, &geminiDecoder{now: func() time.Time { return noon }}, "gemini/"+tt.name))
		})
	}
}

// TestGeminiTellsOfEachAttempt is what status shows of an engine that tries again.
func TestGeminiTellsOfEachAttempt(t *testing.T) {
	d := &geminiDecoder{now: func() time.Time { return noon }}
	for _, tt := range []struct {
		line  string
		fault stream.Fault
		code  int
		retry *stream.Retry
	}{
		{"Attempt 3 failed with status 503. Retrying with backoff... _ApiError: {\"error\":{\"code\":503}}", stream.ByThrottle, 503, &stream.Retry{Attempt: 3}},
		{"Attempt 1 failed: Slow down. Please retry in 12.5s.. Retrying after 13339ms...", stream.ByThrottle, 0, &stream.Retry{Attempt: 1, AfterS: 13.339}},
		{"Attempt 2 failed with 429 error (no Retry-After header). Retrying with backoff... Error", stream.ByThrottle, 429, &stream.Retry{Attempt: 2}},
		{"Attempt 4 failed with status 401. Retrying with backoff... x", stream.ByLogin, 401, &stream.Retry{Attempt: 4}},
		{"Attempt 5 failed. Retrying with backoff... TypeError: fetch failed", stream.ByAgent, 0, &stream.Retry{Attempt: 5}},
		{"Attempt 10 failed: {\"error\":{\"code\":529,\"message\":\"Overloaded\"}}. Max attempts reached", stream.ByThrottle, 529, nil},
	} {
		events := d.Stderr([]byte(tt.line))
		if len(events) != 1 || events[0].Fault != tt.fault || events[0].Status != tt.code || !reflect.DeepEqual(events[0].Retry, tt.retry) {
			t.Errorf("%s: %+v", tt.line, events)
		}
	}
	for _, line := range []string{"", "x Attempt 1 failed. Retrying with backoff...", "Attempt one failed", "Ripgrep is not available. Falling back to GrepTool.",
		"Error executing tool run_shell_command: status 401", "    at retryWithBackoff (file:///x.js:1:2)", "status: 429"} {
		if events := d.Stderr([]byte(line)); events != nil {
			t.Errorf("%q: %+v", line, events)
		}
	}
}

// TestGeminiErrorIsReadToItsParts: where its message tells neither status nor
// time, what is printed after the trace does.
func TestGeminiErrorIsReadToItsParts(t *testing.T) {
	d := &geminiDecoder{now: func() time.Time { return noon }}
	var last stream.Event
	for _, line := range []string{
		"Error when talking to Gemini API Full report available at: /x.json TerminalQuotaError: You have exhausted your daily quota on this model.",
		"    at classifyGoogleError (file:///x.js:1:2) {", "  cause: {", "    code: 429,", "    details: []", "  },", "  retryDelayMs: 7200000,", "  status: 429", "}",
	} {
		for _, e := range d.Stderr([]byte(line)) {
			last = e
		}
	}
	if last.Kind != stream.Limit || last.Fault != stream.ByLimit || last.Status != 429 || !last.Until.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("%+v", last)
	}
	if events := d.Stderr([]byte("  status: 401")); events != nil {
		t.Errorf("after its end: %+v", events)
	}
	end := d.Line(stream.Line{Data: []byte(`{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: You have exhausted your daily quota on this model.]"}}`)})
	if len(end) != 1 || end[0].Fault != stream.ByLimit {
		t.Errorf("%+v", end)
	}
}

// TestAgyEndings are made from its documentation and its users' reports.
func TestAgyEndings(t *testing.T) {
	reset := noon.Add(2*time.Hour + 39*time.Minute + 52*time.Second)
	for _, tt := range []ending{
		{"plain", 0, "session result", "", time.Time{}, "OK"},
		{"limit", 0, "error session result", stream.ByLimit, reset, "Individual quota reached"},
		{"login", 1, "result", stream.ByLogin, time.Time{}, "not logged in"},
		{"denied", 0, "session error result", stream.ByPermission, time.Time{}, "may not do what it was asked"},
		{"cut", 0, "error session result", stream.ByAgent, time.Time{}, "time limit"},
		{"canceled", 1, "session result", stream.ByAgent, time.Time{}, "status CANCELED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.check(t, replay(t, &geminiDecoder{now: func() time.Time { return noon }}, "agy/"+tt.name))
		})
	}
}

// TestLongAnswerIsBounded: what is kept of an answer in pieces has a bound, and
// how much is missing is told.
func TestLongAnswerIsBounded(t *testing.T) {
	d := &geminiDecoder{now: time.Now}
	line := []byte(`{"type":"message","role":"assistant","content":"` + strings.Repeat("é", 1<<15) + `","delta":true}`)
	const times = 100
	for range times {
		d.Line(stream.Line{Data: line})
	}
	end := d.Line(stream.Line{Data: []byte(`{"type":"result","status":"success"}`)})
	if len(end) != 1 || len(end[0].Text) > mostAnswer || int64(len(end[0].Text))+end[0].Cut < times<<16 {
		t.Errorf("%d bytes kept and %d missing of %d", len(end[0].Text), end[0].Cut, times<<16)
	}
}

func FuzzGeminiStream(f *testing.F) { fuzzDecoder(f, "gemini", newGeminiDecoder) }

// FuzzGeminiLight: whatever the words are, they are refused, or stand unchanged
// behind what confines them; and none that allows everything stands.
func FuzzGeminiLight(f *testing.F) {
	for _, seed := range []string{"-dy", "--approval-mode\nyolo", "-=", "--", "-p\n--\n--yolo", "--sandbox=\n-s\nfalse", "mcp"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		for _, light := range []func([]string, string) (Confinement, error){geminiLight, agyLight} {
			c, err := light(args, "/w")
			if err != nil {
				if !errors.As(err, new(*Lifted)) {
					t.Fatalf("%q: %v", args, err)
				}
				continue
			}
			if !slices.Equal(c.Args[len(c.Args)-len(args):], args) {
				t.Fatalf("%q became %q", args, c.Args)
			}
			end := slices.Index(append(slices.Clone(args), "--"), "--")
			if light, all := args[:end], []string{"--yolo", "-y", "--dangerously-skip-permissions", "--add-dir", "--include-directories", "--admin-policy"}; c.Files != nil &&
				slices.ContainsFunc(light, func(word string) bool { return slices.Contains(all, word) }) {
				t.Fatalf("%q stands", args)
			}
		}
	})
}
