package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// TestClaudeIsAsked is E2: the prompt on stdin, nothing of ours where a user's
// argument could take it.
func TestClaudeIsAsked(t *testing.T) {
	prompt := []byte("-p\n\"x\" ä\n")
	long := strings.Repeat("é", maxArg)
	for _, tt := range []struct {
		name string
		ask  Ask
		argv []string
	}{
		{"plain", Ask{Prompt: prompt}, words("claude -p --output-format stream-json --verbose")},
		{
			"everything",
			Ask{Prompt: prompt, Binary: "/opt/claude", Model: "opus", Resume: "id", System: "be brief", Files: "/run/x", Args: words("--add-dir a b")},
			words("/opt/claude -p --output-format stream-json --verbose --model opus --resume id --append-system-prompt-file /run/x/instructions --add-dir a b"),
		},
		{"no files", Ask{Prompt: prompt, System: "brief"}, words("claude -p --output-format stream-json --verbose --append-system-prompt brief")},
		{"long instructions", Ask{Prompt: prompt, System: long, Files: "/run"}, words("claude -p --output-format stream-json --verbose --append-system-prompt-file /run/instructions")},
	} {
		got, err := claudeBuild(tt.ask)
		if err != nil || !slices.Equal(got.Argv, tt.argv) || string(got.Stdin) != string(prompt) {
			t.Errorf("%s: %q, stdin %q, %v; want %q", tt.name, got.Argv, got.Stdin, err, tt.argv)
		}
		if tt.ask.Files != "" && string(got.Files[filepath.Join(tt.ask.Files, "instructions")]) != tt.ask.System {
			t.Errorf("%s: files %q", tt.name, got.Files)
		}
		if !claudeStreams(got.Argv[1:]) {
			t.Errorf("%s: its own command line is not known to stream", tt.name)
		}
	}
	if _, err := claudeBuild(Ask{Prompt: prompt, System: long}); !errors.As(err, new(*TooLong)) {
		t.Errorf("instructions too long for an argument: %v", err)
	}
	if _, err := claudeBuild(Ask{Prompt: prompt, Resume: "--dangerously-skip-permissions"}); err == nil {
		t.Error("an option was taken for a conversation")
	}
}

// TestClaudesBoundOnTextIsPassedBy: claude refuses more text on stdin than
// this, and reads a message of any length.
func TestClaudesBoundOnTextIsPassedBy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prompt string
		json   bool
	}{
		{"at the bound", strings.Repeat("é", claudeText), false},
		{"beyond", strings.Repeat("x", claudeText) + "\n", true},
		{"two units a character", strings.Repeat("𝄞", claudeText/2) + "\"", true},
	} {
		got, err := claudeBuild(Ask{Prompt: []byte(tt.prompt)})
		if err != nil {
			t.Fatal(err)
		}
		if json := slices.Contains(got.Argv, "--input-format"); json != tt.json {
			t.Errorf("%s: %q", tt.name, got.Argv)
		}
		said := string(got.Stdin)
		if tt.json {
			var line struct{ Message struct{ Content string } }
			if err := json.Unmarshal(got.Stdin, &line); err != nil {
				t.Error(err)
			}
			said = line.Message.Content
		}
		if said != tt.prompt {
			t.Errorf("%s: the prompt is another", tt.name)
		}
	}
}

const (
	claudeDenied = "--disallowedTools=Edit,Write,NotebookEdit,MultiEdit,EnterWorktree,CronCreate,Workflow"
	claudeStrict = `--settings={"permissions":{"disableBypassPermissionsMode":"disable"}}`
)

// TestLightClaudeLacksItsWritingTools is E5's row: what is added, and that all
// the user's words stand behind it as they were.
func TestLightClaudeLacksItsWritingTools(t *testing.T) {
	for _, line := range [][]string{
		nil,
		words("-p --output-format stream-json --verbose"),
		{"-p", "fix it; --dangerously-skip-permissions is a word here"},
		words("-p --model --dangerously-skip-permissions"), // the model's name
		words("-p -- --dangerously-skip-permissions"),
		words("--permission-mode plan"),
		words("--permission-mode=dontAsk -p"),
		{"--allowedTools", "Bash(git *) Read", "mcp__x__y"},
		{"--allowedTools", "Bash(echo Edit, Write)"},
		words("--tools Bash,Read"),
		words("--tools default"),
		{"--tools", ""},
		words("--disallowedTools Bash Edit"),
		words("-rabc -c -n name -d2e"),
		words("-pcv"),
		words("--resume abc --fork-session"),
		words("--debug api,hooks -p"),
	} {
		got, err := claudeLight(line, "/w")
		want := append([]string{claudeDenied, claudeStrict, "--strict-mcp-config"}, line...)
		if err != nil || !slices.Equal(got.Args, want) || got.Scratch {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
	once, err := claudeLight(words("--strict-mcp-config -p"), "/w")
	if err != nil || !slices.Equal(once.Args, []string{claudeDenied, claudeStrict, "--strict-mcp-config", "-p"}) {
		t.Errorf("%q, %v", once.Args, err)
	}
}

// TestClaudeIsNotLiftedFromLight is C138: what does not go with light is refused
// and named, in every spelling claude's own parser takes.
func TestClaudeIsNotLiftedFromLight(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		setting string
	}{
		{words("--dangerously-skip-permissions"), "--dangerously-skip-permissions"},
		{words("-p x --allow-dangerously-skip-permissions"), "--allow-dangerously-skip-permissions"},
		{words("--permission-mode bypassPermissions"), "--permission-mode bypassPermissions"},
		{words("--permission-mode=bypassPermissions"), "--permission-mode bypassPermissions"},
		{words("--permission-mode plan --permission-mode acceptEdits"), "--permission-mode acceptEdits"},
		{words("--permission-mode PLAN"), "--permission-mode PLAN"},
		{words("--add-dir /"), "--add-dir"},
		{words("--add-dir=/"), "--add-dir"},
		{words("--allowedTools Edit"), "--allowedTools Edit"},
		{words("--allowed-tools=Bash,Write"), "--allowed-tools Write"},
		{[]string{"--allowedTools", "Bash(git *) Edit(src/**)"}, "--allowedTools Edit"},
		{words("--allowedTools Bash edit"), "--allowedTools edit"},
		{words("--tools Bash,NotebookEdit"), "--tools NotebookEdit"},
		{words("--tools Read Workflow"), "--tools Workflow"},
		{words("--settings {}"), "--settings"},
		{words("--managed-settings={}"), "--managed-settings"},
		{words("--mcp-config x.json"), "--mcp-config"},
		{words("--plugin-dir x"), "--plugin-dir"},
		{words("--agents {}"), "--agents"},
		{words("--agent x"), "--agent"},
		{words("-w"), "-w"},
		{words("-wname"), "-w"},
		{words("-pw"), "-w"},
		{words("--worktree=x"), "--worktree"},
		{words("--bg"), "--bg"},
		{words("--rc"), "--rc"},
		{words("--ide"), "--ide"},
		{words("--allowedTools Bash --add-dir x"), "--add-dir"},
		{words("-r --add-dir x"), "--add-dir"}, // a value that may be left out is
		{words("--Permission-Mode plan"), "--Permission-Mode"},
		{words("--permission plan"), "--permission"},
		{words("--print=x"), "--print=x"},
		{words("--a-new-option"), "--a-new-option"},
		{words("-X"), "-X"},
		{words("mcp add x"), "mcp"},
		{words("-p -- doctor"), "doctor"},
	} {
		got, err := claudeLight(tt.args, "/w")
		lifted := new(Lifted)
		if !errors.As(err, &lifted) || lifted.Setting != tt.setting || lifted.Engine != "claude" || lifted.Why == "" || got.Args != nil {
			t.Errorf("%q: %+v, %v; want %q", tt.args, got, err, tt.setting)
		}
	}
}

func TestClaudeStreamsOnlyItsJSON(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want bool
	}{
		{words("-p --output-format stream-json --verbose x"), true},
		{words("--print --output-format=stream-json --verbose"), true},
		{words("-pc --verbose --output-format stream-json"), true},
		{words("-p --output-format stream-json"), false},
		{words("--output-format stream-json --verbose"), false},
		{words("-p --output-format json --verbose"), false},
		{words("-p --output-format stream-json --verbose --output-format text"), false},
		{words("-p --verbose -- --output-format stream-json"), false},
		{words("-p --model --output-format stream-json --verbose"), false},
		{words("--new -p --output-format stream-json --verbose"), false},
	} {
		if got := claudeStreams(tt.args); got != tt.want {
			t.Errorf("%q: %v", tt.args, got)
		}
	}
}

// told is what a recorded run comes to.
type told struct {
	session, text, state string
	tools                []string
	failed               bool // the result, where there is one
	kind                 stream.Fault
	until                time.Time
	turns                int
	tokens               int64 // in and out
}

// recorded plays a stream of testdata with a clock that stands.
func recorded(t *testing.T, path string, d stream.Decoder, exit stream.Exit) (told, []stream.Event) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", path))
	if err != nil {
		t.Fatal(err)
	}
	var all []stream.Event
	r := stream.NewReader(d, stream.Options{Emit: func(e stream.Event) { all = append(all, e) }})
	_, _ = r.Write(body) // a Reader never fails
	state := ""
	if sum := r.Summary(); sum.Result == nil {
		state = sum.State()
	}
	_ = r.Close()
	sum := r.Summary()
	end := sum.End(exit)
	got := told{session: sum.Session, state: state, kind: end.Kind, until: end.Until}
	if sum.Result != nil {
		got.failed, got.text = sum.Result.Failed, sum.Result.Text
	}
	if sum.Usage != nil {
		got.turns, got.tokens = sum.Usage.Turns, sum.Usage.Input+sum.Usage.Output
	}
	for _, e := range all {
		if e.Kind == stream.Tool {
			got.tools = append(got.tools, e.Tool)
		}
	}
	return got, all
}

// evening is when the decoders of these tests read.
func evening() time.Time { return time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC) }

const recordedID = "11111111-1111-4111-8111-111111111111"

var (
	exited0 = stream.Exit{Started: true}
	exited1 = stream.Exit{Started: true, Code: 1}
	killed  = stream.Exit{Started: true, Signal: 9}
)

// TestClaudesStreamsAreUnderstood plays what claude 2.1.197 really printed.
func TestClaudesStreamsAreUnderstood(t *testing.T) {
	reset := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		file string
		exit stream.Exit
		want told
	}{
		{"plain", exited0, told{text: "Hello.", turns: 1, tokens: 15}},
		{"tool", exited0, told{text: "Done.", tools: []string{"Bash"}, turns: 2, tokens: 30}},
		{"resume", exited0, told{text: "Hello.", turns: 1, tokens: 15}},
		{"refused", exited0, told{text: "Done.", tools: []string{"Bash"}, turns: 2, tokens: 30}},
		{"429", exited1, told{text: "API Error: Request rejected (429) · This request would exceed your account rate limit.", failed: true, kind: stream.ByThrottle, turns: 1}},
		{"429-reset", exited1, told{text: "You've hit your limit · resets 12am (UTC)", failed: true, kind: stream.ByLimit, until: reset, turns: 1}},
		{"429-retries", killed, told{kind: stream.ByThrottle, state: "engine retrying: 429, attempt 4 of 10"}},
		{"401", killed, told{kind: stream.ByLogin, state: "engine retrying: 401, attempt 6 of 10"}},
		{"401-end", exited1, told{text: "Invalid API key · Fix external API key", failed: true, kind: stream.ByLogin, turns: 1}},
		{"401-expired", exited1, told{text: "Failed to authenticate. API Error: 401 OAuth token has expired. Please obtain a new token or refresh your existing token.", failed: true, kind: stream.ByLogin, turns: 1}},
		{"nologin", exited1, told{text: "Not logged in · Please run /login", failed: true, kind: stream.ByLogin, turns: 1}},
		{"529", exited1, told{text: "API Error: 529 Overloaded. This is a server-side issue, usually temporary — try again in a moment. If it persists, check your inference gateway (127.0.0.1:8080).", failed: true, kind: stream.ByThrottle, turns: 1}},
		{"400", exited1, told{text: "Credit balance is too low", failed: true, kind: stream.ByLimit, turns: 1}},
		{"maxturns", exited1, told{text: "Reached maximum number of turns (1)", tools: []string{"Bash"}, failed: true, kind: stream.ByAgent, turns: 2, tokens: 15}},
		{"stall", killed, told{kind: stream.ByAgent}},
		{"empty", exited0, told{kind: stream.NoResult, turns: 2, tokens: 30}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			tt.want.session = recordedID
			got, all := recorded(t, "claude/"+tt.file+".ndjson", &claudeDecoder{now: evening}, tt.exit)
			equalTold(t, got, tt.want)
			if first := all[0]; first.Kind != stream.Session || first.Version != "2.1.197" || !slices.Contains(first.Tools, "Bash") {
				t.Errorf("it begins with %+v", first)
			}
		})
	}
	_, all := recorded(t, "claude/refused.ndjson", &claudeDecoder{now: evening}, exited0)
	if !slices.ContainsFunc(all, func(e stream.Event) bool { return e.Fault == stream.ByPermission && e.Tool == "Bash" }) {
		t.Errorf("the refused tool is not told of: %+v", all)
	}
}

func equalTold(t *testing.T, got, want told) {
	t.Helper()
	if !slices.Equal(got.tools, want.tools) {
		t.Errorf("tools %q, want %q", got.tools, want.tools)
	}
	got.tools, want.tools = nil, nil
	if !got.until.Equal(want.until) {
		t.Errorf("until %s, want %s", got.until, want.until)
	}
	got.until, want.until = time.Time{}, time.Time{}
	a, b := got, want
	if a.session != b.session || a.text != b.text || a.state != b.state || a.failed != b.failed || a.kind != b.kind || a.turns != b.turns || a.tokens != b.tokens {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestHealthyWordsAreNeverMatched is E11: an answer may speak of limits.
func TestHealthyWordsAreNeverMatched(t *testing.T) {
	text := "You've hit your limit · resets 3am (UTC). Claude AI usage limit reached|1796083200. Please run /login. Credit balance is too low. " +
		"You’ve hit your usage limit. try again in 3.2s. unexpected status 401 Unauthorized"
	quoted := string(must(json.Marshal(text)))
	for name, lines := range map[string][2]string{
		"claude": {
			`{"type":"assistant","message":{"content":[{"type":"text","text":` + quoted + `}]},"parent_tool_use_id":null}`,
			`{"type":"result","subtype":"success","is_error":false,"result":` + quoted + `}`,
		},
		"codex": {
			`{"type":"item.completed","item":{"id":"1","type":"agent_message","text":` + quoted + `}}`,
			`{"type":"turn.completed","usage":{}}`,
		},
	} {
		r := stream.NewReader(dialects[name].decoder(), stream.Options{Emit: func(e stream.Event) {
			if e.Fault != "" || e.Failed || !e.Until.IsZero() {
				t.Errorf("%s: %+v", name, e)
			}
		}})
		_, _ = r.Write([]byte(lines[0] + "\n" + lines[1] + "\n"))
		sum := r.Summary()
		if end := sum.End(exited0); !end.Succeeded || sum.Result.Text != text {
			t.Errorf("%s: %+v", name, end)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestClaudeIsOverALimit: a failure that spoke of one and went on is none.
func TestClaudeIsOverALimit(t *testing.T) {
	d := &claudeDecoder{now: evening}
	var last []stream.Event
	for _, line := range []string{
		`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1796083200}}`,
		`{"type":"assistant","message":{"content":[{"type":"text","text":"on"}]}}`,
		`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["boom"]}`,
	} {
		last = d.Line(lineOf(line))
	}
	if end := last[len(last)-1]; end.Fault != stream.ByAgent || end.Text != "boom" || !end.Until.IsZero() {
		t.Errorf("%+v", end)
	}
	for _, healthy := range []string{
		`{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","resetsAt":1796083200}}`,
		`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1796083200,"overageStatus":"allowed"}}`,
	} {
		if got := d.Line(lineOf(healthy)); got != nil {
			t.Errorf("%s: %+v", healthy, got)
		}
	}
}

// lineOf is a line as a Reader hands it over.
func lineOf(object string) stream.Line {
	var top struct{ Type string }
	_ = json.Unmarshal([]byte(object), &top) // without a type it has none
	return stream.Line{Data: []byte(object), Type: []byte(top.Type), Len: int64(len(object))}
}

// TestResetsAreRead is C125, for the texts of failures only.
func TestResetsAreRead(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	day := func(month time.Month, d, h, m int) time.Time { return time.Date(2026, month, d, h, m, 0, 0, time.UTC) }
	for _, tt := range []struct {
		text string
		want time.Time
	}{
		{"Claude AI usage limit reached|1753077600", time.Unix(1753077600, 0)},
		{"usage limit reached|99999999999999", time.Time{}},
		{"You've hit your session limit · resets 7:10am (UTC)", day(12, 1, 7, 10)},
		{"You've hit your limit · resets 3pm (UTC)", day(11, 30, 15, 0)},
		{"You've hit your limit · resets 12am (UTC)", day(12, 1, 0, 0)},
		{"You've hit your limit · resets 11:30am (UTC)", day(11, 30, 11, 30)}, // just past
		{"You've hit your limit · resets 3:30pm (Asia/Kolkata)", day(12, 1, 10, 0)},
		{"You've hit your weekly limit · resets Dec 3 at 5pm (UTC)", day(12, 3, 17, 0)},
		{"You've hit your weekly limit · resets Dec 3, 5:30pm (America/New_York)", day(12, 3, 22, 30)},
		{"You've hit your limit · resets Oct 3, 2027 at 5pm (UTC)", time.Date(2027, 10, 3, 17, 0, 0, 0, time.UTC)},
		{"You've hit your limit · resets Oct 3 at 5pm (UTC)", time.Date(2027, 10, 3, 17, 0, 0, 0, time.UTC)},
		{"You've hit your limit · resets 5pm", day(11, 30, 17, 0)},
		{"You've hit your limit · resets 7:10am (Mars/Olympus)", time.Time{}},
		{"You've hit your limit · resets 13am (UTC)", time.Time{}},
		{"You've hit your limit · resets Feb 30 at 1am (UTC)", time.Time{}},
		{"You've hit your limit", time.Time{}},
	} {
		if got, limited := claudeReset(tt.text, now); !got.Equal(tt.want) || !limited {
			t.Errorf("claude: %q: %s, %v; want %s", tt.text, got, limited, tt.want)
		}
	}
	if _, limited := claudeReset("API Error: 500", now); limited {
		t.Error("an error of the service was taken for a limit")
	}
	for _, tt := range []struct {
		text string
		want time.Time
	}{
		{"Rate limit reached. Please try again in 3.2s.", now.Add(3200 * time.Millisecond)},
		{"try again in 250ms", now.Add(250 * time.Millisecond)},
		{"try again in 20 seconds", now.Add(20 * time.Second)},
		{"try again in 1h2m3s", now.Add(time.Hour + 2*time.Minute + 3*time.Second)},
		{"or try again at 1:05 PM.", day(11, 30, 13, 5)},
		{"or try again at 1:05 AM.", day(12, 1, 1, 5)},
		{"or try again at Dec 3rd, 2026 7:38 AM.", day(12, 3, 7, 38)},
		{"Try again later.", time.Time{}},
	} {
		if got := codexReset(tt.text, now); !got.Equal(tt.want) {
			t.Errorf("codex: %q: %s, want %s", tt.text, got, tt.want)
		}
	}
}

func FuzzClaudeStream(f *testing.F) { fuzzDecoder(f, "claude", newClaudeDecoder) }
