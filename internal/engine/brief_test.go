package engine

import (
	"strings"
	"testing"
)

// TestBriefVerbsStartNoAgent: what asks no model anything is told from what
// might, and whatever is not known is an agent (W6).
func TestBriefVerbsStartNoAgent(t *testing.T) {
	for _, line := range []string{
		"claude --version", "claude -v", "claude -p hi --version", "claude -h", "claude mcp list", "claude mcp add x -- claude -p", "claude update",
		"claude auth login", "claude plugin install x", "claude doctor", "claude setup-token",
		"codex --version", "codex login", "codex login status", "codex exec --help", "codex exec hi -V", "codex mcp add x", "codex apply 1", "codex completion bash",
		"gemini -v", "gemini mcp list", "gemini --list-sessions", "gemini -p hi --version", "gemini extensions list",
		"pi --version", "pi install x", "pi -p hi -h", "pi --list-models", "agy --version", "openai-codex login", "mytool --version",
	} {
		if words := strings.Fields(line); !mine.Brief(words[0], words[1:]) {
			t.Errorf("%s counts as an agent", line)
		}
	}
	for _, line := range []string{
		"claude", "claude -p hi", "claude fix", "claude config list", "claude -p update", "claude --model --version hi", "claude --system-prompt -h -p x", "claude -- --version",
		"claude mcp serve", "claude agents", "claude ultrareview", "claude --new-option --version", "claude --resume", "claude login",
		"codex", "codex exec hi", "codex exec -- --help", "codex e login", "codex resume", "codex review", "codex app-server", "codex fix", "codex -m x login",
		"gemini", "gemini -p hi", "gemini -p mcp", "gemini fix mcp", "gemini -- -h", "gemini gemma start",
		"pi", "pi -p hi", "pi --model -h", "pi @list", "agy -p --help x", "agy mcp", "mytool list", "unknown --version=1",
	} {
		if words := strings.Fields(line); mine.Brief(words[0], words[1:]) {
			t.Errorf("%s does not count", line)
		}
	}
}

// TestAttendedIsWhatWasNotToldToAnswerAndEnd: only at a terminal does it matter,
// and the caller looks whether there is one.
func TestAttendedIsWhatWasNotToldToAnswerAndEnd(t *testing.T) {
	for line, want := range map[string]bool{
		"claude": true, "claude fix": true, "claude --resume": true, "claude --system-prompt -p": true, "claude agents": true, "claude --new-option": true,
		"claude -p": false, "claude fix --print": false, "claude --bg fix": false, "claude --new-option -p": false,
		"codex": true, "codex fix": true, "codex resume --last": true, "codex -m x": true,
		"codex exec fix": false, "codex e": false, "codex -m x exec": false, "codex app-server": false, "codex review": false,
		"gemini": true, "gemini fix": true, "gemini -i fix": true, "gemini -y": true, "gemini -- -p": true, "gemini --skip-trust": true,
		"gemini -p fix": false, "gemini --prompt=x": false, "gemini -yp fix": false, "gemini --acp": false, "agy -print x": false,
		"pi": true, "pi fix": true, "pi --mode text": true, "pi --model -p": true,
		"pi -p fix": false, "pi --mode rpc": false, "pi --print": false,
		"npx claude": true, "npx claude -p x": false, "env A=b codex": true, "node x.js": false, "mytool": false,
	} {
		argv := strings.Fields(line)
		name, _ := mine.Recognise(argv)
		if got := mine.Attended(name, argv); got != want {
			t.Errorf("%s: attended is %v", line, got)
		}
	}
}

// mine knows an engine of the user's own besides.
var mine = Known{Binaries: map[string][]string{"mine": {"mytool"}}, Resolve: func(string) string { return "" }}
