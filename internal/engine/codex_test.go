package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// TestCodexIsAsked is E2: the prompt on stdin, said by a "-" that no option of
// the user's can take.
func TestCodexIsAsked(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ask   Ask
		argv  []string
		stdin string
	}{
		{"plain", Ask{Prompt: []byte("--do\nit"), Dir: "/w"}, words("codex exec --json --skip-git-repo-check -C /w -"), "--do\nit"},
		{
			"everything", Ask{Prompt: []byte("do it"), Dir: "/w", Binary: "/opt/codex", Model: "m", System: "be brief", Args: words("-i a.png")},
			words("/opt/codex exec --json --skip-git-repo-check -C /w -m m - -i a.png"),
			"be brief\n\ndo it",
		},
		{
			"resume", Ask{Prompt: []byte("go on"), Dir: "/w", Model: "m", Resume: "id", Args: words("--ephemeral")},
			words("codex exec resume --json --skip-git-repo-check -m m id - --ephemeral"), "go on",
		},
	} {
		got, err := codexBuild(tt.ask)
		if err != nil || !slices.Equal(got.Argv, tt.argv) || string(got.Stdin) != tt.stdin || got.Files != nil {
			t.Errorf("%s: %q, stdin %q, %v; want %q", tt.name, got.Argv, got.Stdin, err, tt.argv)
		}
		if !codexStreams(got.Argv[1:]) {
			t.Errorf("%s: its own command line is not known to stream", tt.name)
		}
		if _, err := codexLight(got.Argv[1:], "/w"); err != nil {
			t.Errorf("%s: its own command line cannot be light: %v", tt.name, err)
		}
	}
	if _, err := codexBuild(Ask{Prompt: []byte("x"), Dir: "/w", Resume: "--last"}); err == nil {
		t.Error("an option was taken for a conversation")
	}
}

// TestCodexsBoundIsKnownBefore is C108: codex counts characters.
func TestCodexsBoundIsKnownBefore(t *testing.T) {
	fits := strings.Repeat("é", codexText)
	if _, err := codexBuild(Ask{Prompt: []byte(fits)}); err != nil {
		t.Error(err)
	}
	long := new(TooLong)
	if _, err := codexBuild(Ask{Prompt: []byte(fits + "x")}); !errors.As(err, &long) || long.Size != codexText+1 || long.Limit != codexText || long.Unit != "characters" {
		t.Errorf("%v", err)
	}
	if _, err := codexBuild(Ask{Prompt: []byte(fits), System: "x"}); !errors.As(err, &long) {
		t.Errorf("with instructions: %v", err)
	}
}

var codexOurs = []string{
	"-c", "sandbox_workspace_write.network_access=false",
	"-c", "sandbox_workspace_write.writable_roots=[]",
	"-c", "sandbox_workspace_write.exclude_slash_tmp=true",
	"-c", "sandbox_workspace_write.exclude_tmpdir_env_var=true",
	"-c", `approval_policy="never"`,
	"-c", "features.multi_agent=false",
	"-c", "features.multi_agent_v2=false",
}

// TestLightCodexIsConfined is E5's row: %s stands where our words are to be.
func TestLightCodexIsConfined(t *testing.T) {
	exec := append([]string{"--sandbox", "workspace-write"}, append(slices.Clone(codexOurs), "--ignore-rules")...)
	below := append([]string{"-c", `sandbox_mode="workspace-write"`}, append(slices.Clone(codexOurs), "--ignore-rules")...)
	given := append(slices.Clone(codexOurs), "--ignore-rules")
	for _, tt := range []struct {
		line string
		ours []string
	}{
		{"exec %s --json -C /w -", exec},
		{"e %s fix", exec},
		{"exec %s", exec},
		{"exec %s -C . -", exec},
		{"exec %s --cd=/w/ -", exec},
		{"exec %s -i a.png b.png --json", exec},
		{"exec %s -- --yolo resume", exec},
		{"exec %s fix --output-last-message out.txt", exec},
		{"-m gpt exec %s -", exec},
		{"exec %s -c model_reasoning_effort=high --config=model_providers.x.name=y -cmodel=m", exec},
		{"exec %s -s workspace-write -", given},
		{"exec %s --sandbox=read-only -", given},
		{"-s=read-only exec %s -", given},
		{"-sworkspace-write -a never exec %s -", given},
		{"exec resume %s --json id -", below},
		{"exec --json resume %s --last", below},
		{"exec -s read-only resume %s id", below},
		{"exec resume %s -i a.png id -", below},
		{"exec review %s --uncommitted", below},
		{"exec fork %s id", below},
	} {
		before, after, _ := strings.Cut(tt.line, "%s")
		got, err := codexLight(slices.Concat(words(before), words(after)), "/w")
		want := slices.Concat(words(before), tt.ours, words(after))
		if err != nil || !slices.Equal(got.Args, want) || !got.Scratch {
			t.Errorf("%s: %q, scratch %v, %v; want %q", tt.line, got.Args, got.Scratch, err, want)
		}
	}
	got, err := codexLight(words("exec --ignore-rules -"), "/w")
	if err != nil || strings.Count(strings.Join(got.Args, " "), "--ignore-rules") != 1 {
		t.Errorf("codex takes no flag twice: %q, %v", got.Args, err)
	}
	for _, prints := range []string{"--version", "-V", "--help", "help"} {
		if got, err := codexLight([]string{prints}, "/w"); err != nil || !slices.Equal(got.Args, []string{prints}) {
			t.Errorf("%s: %q, %v", prints, got.Args, err)
		}
	}
}

// TestCodexIsNotLiftedFromLight is C138: what does not go with light is refused
// and named, in every spelling codex's own parser takes.
func TestCodexIsNotLiftedFromLight(t *testing.T) {
	for _, tt := range []struct{ line, setting string }{
		{"exec --dangerously-bypass-approvals-and-sandbox -", "--dangerously-bypass-approvals-and-sandbox"},
		{"--yolo exec -", "--yolo"},
		{"exec --yolo", "--yolo"},
		{"exec resume --yolo id", "--yolo"},
		{"exec -s danger-full-access -", "-s danger-full-access"},
		{"exec -sdanger-full-access -", "-s danger-full-access"},
		{"exec -s=danger-full-access -", "-s danger-full-access"},
		{"exec --sandbox=danger-full-access -", "--sandbox danger-full-access"},
		{"-s danger-full-access exec -", "-s danger-full-access"},
		{"exec -s Read-Only -", "-s Read-Only"},
		{"exec -s -", "-s -"},
		{"exec -hs danger-full-access", "-s danger-full-access"},
		{"exec --full-auto -", "--full-auto"},
		{"exec --approve-for-me -", "--approve-for-me"},
		{"exec --not-so-yolo -", "--not-so-yolo"},
		{"-a on-request exec -", "-a on-request"},
		{"--ask-for-approval=untrusted exec", "--ask-for-approval untrusted"},
		{"exec --add-dir /", "--add-dir"},
		{"exec --add-dir=/", "--add-dir"},
		{"exec -C / -", "-C /"},
		{"exec -C/ -", "-C /"},
		{"exec -C .. -", "-C .."},
		{"exec -C sub -", "-C sub"},
		{"exec --cd=/elsewhere", "--cd /elsewhere"},
		{"exec -p wide", "-p"},
		{"exec --profile=wide", "--profile"},
		{"exec --enable hooks", "--enable"},
		{"exec --disable=shell_tool", "--disable"},
		{"exec --trust", "--trust"},
		{"exec --dangerously-bypass-hook-trust", "--dangerously-bypass-hook-trust"},
		{"exec --worktree", "--worktree"},
		{"exec --remote ws://x", "--remote"},
		{`exec -c sandbox_mode="danger-full-access"`, "-c sandbox_mode"},
		{"exec -c sandbox_workspace_write.network_access=true", "-c sandbox_workspace_write.network_access"},
		{"exec --config=sandbox_workspace_write={}", "--config sandbox_workspace_write"},
		{"exec -capproval_policy=on-request", "-c approval_policy"},
		{"exec -c=default_permissions=x", "-c default_permissions"},
		{"exec -c permissions.x.network={}", "-c permissions.x.network"},
		{"exec -c features.multi_agent=true", "-c features.multi_agent"},
		{"exec -c mcp_servers.x.command=y", "-c mcp_servers.x.command"},
		{"exec -c notify=[]", "-c notify"},
		{"exec -c projects.x=y", "-c projects.x"},
		{`exec -c "sandbox_mode"=x`, `-c "sandbox_mode"`},
		{"exec -c Model=x", "-c Model"},
		{"exec --JSON -", "--JSON"},
		{"exec --js -", "--js"},
		{"exec -x", "-x"},
		{"exec --a-new-option", "--a-new-option"},
		{"exec fix resume id", "resume"},
		{"exec -i a.png resume id", "-i"},
		{"-i a.png exec -", "-i"},
		{"", "codex without exec"},
		{"-- exec", "codex without exec"},
		{"fix", "codex fix"},
		{"exe -", "codex exe"},
		{"resume --last", "codex resume"},
		{"review", "codex review"},
		{"sandbox -- sh", "codex sandbox"},
		{"cloud exec x", "codex cloud"},
		{"mcp add x", "codex mcp"},
		{"app-server", "codex app-server"},
		{"--version exec --help", ""},
	} {
		got, err := codexLight(words(tt.line), "/w")
		lifted := new(Lifted)
		if tt.setting == "" { // only looks harmless: it is confined all the same
			if err != nil || !slices.Contains(got.Args, "--sandbox") {
				t.Errorf("%s: %q, %v", tt.line, got.Args, err)
			}
			continue
		}
		if !errors.As(err, &lifted) || lifted.Setting != tt.setting || lifted.Engine != "codex" || lifted.Why == "" || got.Args != nil {
			t.Errorf("%s: %+v, %v; want %q", tt.line, got, err, tt.setting)
		}
	}
}

func TestCodexStreamsOnlyItsJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"exec --json -":           true,
		"e fix --json":            true,
		"exec resume id - --json": true,
		"exec --json resume id":   true,
		"exec -":                  false,
		"exec -- --json":          false,
		"--json":                  false,
		"review --json":           false,
		"exec --json --new":       false,
	} {
		if got := codexStreams(words(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// TestCodexsStreamsAreUnderstood plays what codex 0.171.0 really printed.
func TestCodexsStreamsAreUnderstood(t *testing.T) {
	for _, tt := range []struct {
		file string
		exit stream.Exit
		want told
	}{
		{"plain", exited0, told{text: "Hello.", tokens: 15}},
		{"tool", exited0, told{text: "Done.", tools: []string{"exec_command"}, tokens: 30}},
		{"resume", exited0, told{text: "Hello.", tokens: 30}},
		{"refused", exited0, told{text: "Done.", tools: []string{"exec_command"}, tokens: 30}},
		{"429", exited1, told{text: "exceeded retry limit, last status: 429 Too Many Requests", failed: true, kind: stream.ByThrottle}},
		{"usage", exited1, told{text: "You’ve hit your usage limit. Try again later.", failed: true, kind: stream.ByLimit}},
		{"usage-reset", exited1, told{
			text:   "You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more credits or try again at Dec 5th, 2026 7:38 AM.",
			failed: true, kind: stream.ByLimit, until: time.Date(2026, 12, 5, 7, 38, 0, 0, time.UTC),
		}},
		{"quota", exited1, told{text: "Quota exceeded. Check your plan and billing details.", failed: true, kind: stream.ByLimit}},
		{"401", exited1, told{text: "unexpected status 401 Unauthorized: Incorrect API key provided, url: http://127.0.0.1:8080/v1/responses", failed: true, kind: stream.ByLogin}},
		{"nokey", exited1, told{text: "Missing environment variable: `STUB_KEY`.", failed: true, kind: stream.ByLogin}},
		{"503", exited1, told{text: "unexpected status 503 Service Unavailable: Overloaded, url: http://127.0.0.1:8080/v1/responses", failed: true, kind: stream.ByThrottle}},
		{"400", exited1, told{text: `{"error":{"code":"invalid_request_error","message":"bad thing","param":null,"type":"invalid_request_error"}}`, failed: true, kind: stream.ByAgent}},
		{"stall", killed, told{kind: stream.ByAgent}},
		{"empty", exited0, told{kind: stream.NoResult, tokens: 15}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			tt.want.session = recordedID
			got, _ := recorded(t, "codex/"+tt.file+".ndjson", &codexDecoder{now: evening}, tt.exit)
			equalTold(t, got, tt.want)
		})
	}
}

// TestCodexTriesAgain: a login that fails is known while codex still tries.
func TestCodexTriesAgain(t *testing.T) {
	_, all := recorded(t, "codex/401.ndjson", &codexDecoder{now: evening}, exited1)
	var tries []stream.Retry
	for _, e := range all {
		if e.Retry != nil {
			tries = append(tries, *e.Retry)
			if e.Kind != stream.Trouble || e.Fault != stream.ByLogin || e.Status != 401 {
				t.Errorf("%+v", e)
			}
		}
	}
	if len(tries) != 5 || tries[0] != (stream.Retry{Attempt: 1, Of: 5}) || tries[4] != (stream.Retry{Attempt: 5, Of: 5}) {
		t.Errorf("%+v", tries)
	}
}

// TestLongAnswersKeepTheirPlace: the answer of codex stands in another line than
// the end of its turn, claude's in two.
func TestLongAnswersKeepTheirPlace(t *testing.T) {
	text := strings.Repeat("All work. ", 2<<20)
	for name, lines := range map[string][]string{
		"claude": {
			`{"type":"assistant","message":{"content":[{"type":"text","text":"` + text + `"}]},"parent_tool_use_id":null}`,
			`{"type":"result","subtype":"success","is_error":false,"result":"` + text + `"}`,
		},
		"codex": {
			`{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"` + text + `"}}`,
			`{"type":"turn.completed","usage":{"input_tokens":1}}`,
		},
	} {
		r := stream.NewReader(dialects[name].decoder(), stream.Options{})
		_, _ = r.Write([]byte(lines[0] + "\n" + lines[1] + "\n"))
		_ = r.Close()
		sum := r.Summary()
		if end := sum.End(exited0); !end.Succeeded {
			t.Fatalf("%s: %+v", name, end)
		}
		where := map[string]string{"claude": lines[1], "codex": lines[0]}[name]
		if e := sum.Result; e.Cut == 0 || e.Len != int64(len(where)) || !strings.HasPrefix(text, e.Text) {
			t.Errorf("%s: cut %d, at %d, %d bytes, want %d", name, e.Cut, e.Offset, e.Len, len(where))
		}
	}
}

// FuzzLightIsRefusedOrConfined: whatever stands on a command line, it is refused
// or confined, and a confined one has all the user's words, in their order, and
// no word that lifts the confinement where an option can stand.
func FuzzLightIsRefusedOrConfined(f *testing.F) {
	for _, seed := range []string{
		"exec - -i a", "exec resume id -", "-p --model x --allowedTools Bash(a b) c", "exec -hs danger-full-access", "-pw", "-- exec --yolo",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := words(line)
		if got, err := codexLight(args, "/w"); err == nil && len(got.Args) > len(args) {
			ours, at := len(got.Args)-len(args), 0
			for at < len(args) && got.Args[at] == args[at] {
				at++
			}
			if !slices.Equal(slices.Concat(got.Args[:at], got.Args[at+ours:]), args) || !slices.Contains(got.Args[at:], codexOurs[1]) {
				t.Errorf("codex %q became %q", args, got.Args)
			}
			for _, word := range args {
				if word == "--" {
					break
				}
				if word == "--yolo" || strings.HasPrefix(word, "--add-dir") || strings.HasPrefix(word, "-sd") {
					t.Errorf("codex %q is light", args)
				}
			}
		}
		if got, err := claudeLight(args, "/w"); err == nil {
			if !slices.Equal(got.Args[len(got.Args)-len(args):], args) || got.Args[0] != claudeDenied {
				t.Errorf("claude %q became %q", args, got.Args)
			}
		}
	})
}

func FuzzCodexStream(f *testing.F) { fuzzDecoder(f, "codex", newCodexDecoder) }
