package engine

import "testing"

// TestOnlyProofMakesAProcessAnEngine: what is installed as an engine is one; what
// is only called like one is none (W9).
func TestOnlyProofMakesAProcessAnEngine(t *testing.T) {
	links := map[string]string{
		"claude": "/opt/agents/claude-real", "codex": "/usr/bin/codex", "pi": "/usr/bin/pi",
		"/w/node_modules/.bin/gemini": "/w/node_modules/@google/gemini-cli/bundle/gemini.js",
		"/w/claude":                   "/w/claude",
		"/w/cli.js":                   "/w/cli.js",
		"/opt/mine/run":               "/opt/mine/v2/run",
	}
	known := Known{Binaries: map[string][]string{"mine": {"/opt/mine/run"}}, Resolve: func(command string) string { return links[command] }}
	for _, one := range []struct {
		exe, comm string
		argv      []string
		name, how string
	}{
		{"/w/node_modules/@anthropic-ai/claude-code/bin/claude.exe", "claude", []string{"claude"}, "claude", ByExecutable},
		{"/home/u/.local/share/claude/versions/2.1.197", "claude", []string{"claude", "-p"}, "claude", ByExecutable},
		{"/w/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex", "codex", []string{"/w/x"}, "codex", ByExecutable},
		{"/opt/codex-x86_64-unknown-linux-musl", "codex", []string{"c"}, "codex", ByExecutable},
		{"/opt/mine/v2/run", "run", []string{"run"}, "mine", ByExecutable},
		{"/usr/bin/node", "node", []string{"node", "/w/node_modules/.bin/gemini", "-p", "x"}, "gemini", ByScript},
		{"/usr/bin/node", "node", []string{"node", "--max-old-space-size=1", "node_modules/.bin/gemini"}, "gemini", ByScript},
		{"/usr/bin/node", "pi", []string{"pi          "}, "pi", ByTitle},
		{"/opt/agents/claude-real", "claude", []string{"claude", "x"}, "claude", ByPath},

		{"/usr/bin/vim", "vim", []string{"vim", "claude"}, "", ""},
		{"/usr/bin/grep", "grep", []string{"grep", "/w/node_modules/.bin/gemini"}, "", ""},
		{"/usr/bin/dash", "claude", []string{"/bin/sh", "/w/claude"}, "", ""},
		{"/usr/bin/dash", "claude", []string{"claude"}, "", ""},
		{"/w/bin/claude", "claude", []string{"claude"}, "", ""},
		{"/usr/bin/node", "node", []string{"node", "/w/claude"}, "", ""},
		{"/usr/bin/node", "node", []string{"node", "/w/cli.js"}, "", ""},
		{"/usr/bin/node", "node", []string{"node", "-e", "x", "/w/node_modules/.bin/gemini"}, "", ""},
		{"/usr/bin/node", "pi", []string{"pi", "x"}, "", ""},
		{"/usr/bin/node", "other", []string{"pi"}, "", ""},
		{"/w/node_modules/@anthropic-ai/claude-code/vendor/ripgrep/rg", "rg", []string{"rg"}, "", ""},
		{"", "claude", []string{"claude"}, "", ""},
	} {
		name, how, ok := known.Proven(Process{Exe: one.exe, Argv: one.argv, Comm: one.comm, Dir: "/w"})
		if ok != (one.name != "") || ok && (name != one.name || how != one.how) {
			t.Errorf("%s %q: %q by %q, %v", one.exe, one.argv, name, how, ok)
		}
	}
}
