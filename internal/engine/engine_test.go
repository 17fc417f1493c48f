package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// noDisk fails the test when recognition asks where a command leads.
func noDisk(t *testing.T) func(string) string {
	return func(command string) string {
		t.Errorf("looked at the disk for %q", command)
		return ""
	}
}

func links(to map[string]string) func(string) string {
	return func(command string) string { return to[command] }
}

// TestEveryWrapperShowsItsEngine is E1 for command lines whose words suffice.
func TestEveryWrapperShowsItsEngine(t *testing.T) {
	for _, tt := range []struct {
		want string
		argv []string
	}{
		{"claude", words("claude -p hello")},
		{"codex", words("codex exec -")},
		{"gemini", words("gemini")},
		{"gemini", words("agy -p x")},
		{"pi", words("pi -p")},
		{"claude", words("/usr/local/bin/claude")},
		{"claude", words("./claude")},
		{"codex", words("codex.exe exec")},
		{"codex", words("/mnt/c/Tools/CODEX/codex.CMD exec")},
		{"codex", words("./codex-x86_64-unknown-linux-musl exec")},
		{"claude", words("/usr/lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe -p")},
		{"claude", words("/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js -p")},
		{"claude", words("/home/u/.local/share/claude/versions/2.1.197 -p")},

		{"codex", words("npx @openai/codex exec")},
		{"codex", words("npx -y @openai/codex@1.2 exec")},
		{"codex", words("npx --yes @openai/codex@latest exec")},
		{"codex", words("npx --package=@openai/codex codex exec")},
		{"codex", words("npx --package @openai/codex codex exec")},
		{"codex", words("npx -p @openai/codex -p left-pad -- codex exec")},
		{"codex", []string{"npx", "-p", "@openai/codex", "-c", "codex exec -"}},
		{"claude", words("npx -y @anthropic-ai/claude-code -p hi")},
		{"claude", words("npx claude")},
		{"gemini", words("npx https://github.com/google-gemini/gemini-cli -p hi")},
		{"gemini", words("npx github:google-gemini/gemini-cli#v1 -p hi")},
		{"gemini", words("bunx @google/gemini-cli")},
		{"gemini", words("bunx --bun @google/gemini-cli@nightly")},
		{"pi", words("npx @mariozechner/pi-coding-agent@0.73.1")},
		{"pi", words("npx @somebody-else/pi-coding-agent")},
		{"codex", words("pnpm dlx @openai/codex")},
		{"codex", words("pnpm -C /repo exec codex")},
		{"codex", words("pnpx @openai/codex")},
		{"codex", words("yarn dlx @openai/codex")},
		{"codex", words("yarn dlx -p @openai/codex codex")},
		{"codex", words("npm exec -- @openai/codex@1 exec")},
		{"codex", words("npm --prefix /x x @openai/codex")},
		{"claude", words("bun x @anthropic-ai/claude-code")},
		{"codex", words("bun run codex")},
		{"codex", words("npx timeout 5 codex")},
		{"codex", words("deno run -A npm:@openai/codex@1 exec")},

		{"claude", words("node /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js -p")},
		{"claude", words("node --max-old-space-size=8192 -r ./x.js /x/@anthropic-ai/claude-code/cli.js")},
		{"codex", words("node /x/.pnpm/@openai+codex@1/node_modules/@openai/codex/bin/codex.js")},
		{"gemini", words("node --no-warnings=DEP0040 /x/@google/gemini-cli/bundle/gemini.js")},
		{"gemini", words("nodejs /x/@google/gemini-cli/dist/index.js")},
		{"pi", words("node /x/node_modules/@mariozechner/pi-coding-agent/dist/cli.js")},
		{"codex", words("node /usr/local/bin/codex exec")},
		{"codex", words("bun /x/node_modules/@openai/codex/bin/codex.js")},

		{"claude", words("env claude")},
		{"claude", words("env -i PATH=/bin HOME=/x claude")},
		{"claude", words("env - PATH=/bin claude")},
		{"claude", words("env -u CLAUDECODE -C /repo --unset=X --chdir /y A=B claude -p")},
		{"claude", words("env -iu X claude")},
		{"claude", words("env -- A=B claude")},
		{"claude", []string{"env", "-S", "claude -p"}},
		{"claude", []string{"/usr/bin/env", "-S", "-i A='b c' claude", "-p"}},
		{"claude", []string{"env", "-vSA=1 claude -p"}},
		{"claude", []string{"env", "--split-string=nice -n 5 claude"}},

		{"codex", words("nice codex")},
		{"codex", words("nice -n 10 codex")},
		{"codex", words("nice -n10 codex")},
		{"codex", words("nice -10 codex")},
		{"codex", words("nice --adjustment=5 codex")},
		{"codex", words("ionice -c 2 -n 7 codex")},
		{"codex", words("ionice -c3 codex")},
		{"codex", words("chrt -b 0 codex")},
		{"codex", words("chrt --idle codex")},
		{"codex", words("taskset -c 0,1 codex")},
		{"codex", words("taskset 0x3 codex")},
		{"codex", words("timeout 10m codex")},
		{"codex", words("timeout -s KILL -k 5 --foreground 600 codex exec")},
		{"codex", words("timeout --signal=INT --kill-after 5 600 codex exec")},
		{"codex", words("gtimeout 5 codex")},
		{"codex", words("stdbuf -oL -e0 codex")},
		{"codex", words("stdbuf -o L --error 0 codex")},
		{"codex", words("setsid -w codex")},
		{"codex", words("nohup codex")},
		{"codex", words("time -p codex")},
		{"codex", words("/usr/bin/time -v -o /tmp/t codex")},
		{"codex", words("sudo -u builder -E HOME=/x codex")},
		{"codex", words("sudo -nH codex")},
		{"codex", words("doas -u builder codex")},
		{"codex", words("runuser -u builder -- codex exec")},
		{"codex", []string{"runuser", "-c", "cd /x && codex exec", "builder"}},
		{"codex", words("flock -w 5 /tmp/l codex exec")},
		{"codex", []string{"flock", "/tmp/l", "-c", "codex exec -"}},
		{"codex", []string{"script", "-qc", "codex exec -", "/dev/null"}},
		{"codex", []string{"script", "-q", "/dev/null", "-c", "codex exec -"}},
		{"codex", words("script -q /dev/null codex exec")},
		{"claude", words("caffeinate -i -t 3600 claude -c")},
		{"claude", words("systemd-run --user --scope -p MemoryMax=4G claude")},
		{"claude", words("bwrap --ro-bind / / --dev /dev -- claude")},
		{"claude", words("mise x node@22 -- claude")},
		{"claude", words("direnv exec . claude")},
		{"claude", words("op run --env-file=x -- claude")},
		{"claude", words("handsel gate heavy -- claude")},
		{"codex", words("nohup nice -n 5 timeout 1h env A=B npx -y @openai/codex exec")},

		{"codex", []string{"sh", "-c", "codex exec -"}},
		{"codex", []string{"bash", "-lc", "exec codex exec \"$(cat p.md)\""}},
		{"codex", []string{"bash", "-eo", "pipefail", "-c", "codex"}},
		{"codex", []string{"/bin/sh", "-e", "-c", "A=B C=\"d e\" codex exec"}},
		{"codex", []string{"sh", "-c", "cd /repo && codex exec"}},
		{"codex", []string{"sh", "-c", ". ./env; # set up\nexec nice -n 5 codex exec - <p.md >out.txt 2>&1"}},
		{"codex", []string{"sh", "-c", "codex exec a && codex exec b"}},
		{"codex", []string{"sh", "-c", "'codex' exec \"it's\" $'x\\'y'"}},
		{"codex", []string{"sh", "-c", "co\\dex"}},
		{"codex", []string{"sh", "-c", "timeout \"$T\" codex"}},
		{"codex", []string{"sh", "-c", "$HOME/.local/bin/codex exec"}},
		{"codex", []string{"sh", "-c", "~/bin/codex exec *.md"}},
		{"codex", []string{"sh", "-c", "codex exec $ARGS"}},
		{"codex", []string{"sh", "-c", "codex exec \"$(printf '%s' \"a)b\")\" &>log"}},
		{"codex", []string{"sh", "-c", "codex <<<hello"}},
		{"codex", []string{"sh", "-c", "bash -c 'npx @openai/codex'"}},
		{"codex", []string{"zsh", "-ic", "codex"}},
		{"codex", words("sh /usr/local/bin/codex")},
		{"codex", []string{"sh", "-c", "exec -a agent codex; claude"}},
	} {
		name, ok := Known{Resolve: noDisk(t)}.Recognise(tt.argv)
		if name != tt.want || !ok {
			t.Errorf("Recognise(%q) = %q, %v, want %q", tt.argv, name, ok, tt.want)
		}
	}
}

// TestAGuessIsNotMade: where the words leave it open, nothing is recognised.
func TestAGuessIsNotMade(t *testing.T) {
	for _, argv := range [][]string{
		nil, {""}, {"", "claude"}, {"make"}, {"make", "claude"}, {"echo", "codex"}, {"cat", "/x/@openai/codex/bin/codex.js"},
		words("Claude"), words("claude2"), words("claude.sh"), words("codex.js"), words("node pi.js"), words("node codex.js"),
		words("env"), words("env A=B"), words("nice"), words("nice -n 5"), words("nice --help"), words("timeout 5"), words("timeout"),
		words("timeout codex"), words("taskset -p codex"), words("ionice -p 12 codex"), words("chrt -p 12 codex"),
		words("sudo -l codex"), words("sudo -e codex"), words("command -v codex"), words("prlimit --nofile=1 -p codex"),
		words("npx"), words("npx -y"), words("npx cowsay codex"), words("npx @openai/codexx"), words("npx @evil/codex"),
		words("npx openai/other"), words("npx -p @openai/codex node"), words("npm install @openai/codex"), words("npm run codex"),
		words("pnpm add codex"), words("yarn codex"), words("deno run npm:left-pad"), words("deno test codex"),
		words("node -e codex"), words("node --eval x codex"), words("node"), words("node --run codex"), words("bun -e codex"),
		words("/x/@anthropic-ai/claude-code/vendor/ripgrep/x64-linux/rg"),
		words("node /x/@anthropic-ai/claude-code/vendor/cli.js"),
		words("node /x/@openai/codex/node_modules/other/index.js"),
		words("node /x/@google/gemini-cli/scripts/lint.js"),
		words("/x/other/versions/2.1.197"), words("/x/claude/versions/latest"),
		words("ssh host claude"), words("docker run img claude"), words("tmux new claude"), words("xargs claude"),
		words("script -q /dev/null"), words("flock /tmp/l"), words("runuser builder"), words("bwrap --ro-bind / / claude"),
		{"env", "-S", "${X} claude"}, {"env", "-S", "\"claude"}, {"env", "-S", "cla\\nude"}, {"env", "-S", "-S -S"},
		{"sh"}, {"sh", "-c"}, {"sh", "-c", ""}, {"sh", "-c", "$X"}, {"sh", "-c", "\"$X\" codex"},
		{"sh", "-c", "cat p | codex exec -"}, {"sh", "-c", "codex || true"}, {"sh", "-c", "codex &"}, {"sh", "-c", "(codex)"},
		{"sh", "-c", "if true; then codex; fi"}, {"sh", "-c", "for i in 1 2; do codex; done"}, {"sh", "-c", "{ codex; }"},
		{"sh", "-c", "f() { codex; }; f"}, {"sh", "-c", "! codex"}, {"sh", "-c", "x=$(codex)"}, {"sh", "-c", "echo `codex`"},
		{"sh", "-c", "codex <<X\nhi\nX"}, {"sh", "-c", "codex <(ls)"}, {"sh", "-c", "codex 'unclosed"}, {"sh", "-c", "codex \"unclosed"},
		{"sh", "-c", "codex; claude"}, {"sh", "-c", "timeout $T codex"}, {"sh", "-c", "$CMD codex"}, {"sh", "-c", "# codex"},
		{"sh", "-c", "echo codex"}, {"sh", "-c", "case x in x) codex;; esac"}, {"sh", "-c", "eval codex"}, {"sh", "-c", "codex\\"},
		{"sh", "-c", "exec \"$@\"", "sh", "codex"}, {"sh", "-c", "a;;codex"}, {"sh", "-c", "echo >codex"}, {"sh", "-c", "{codex,x}"},
		{"sh", "-c", "\"$X\"codex"}, {"sh", "-c", "[[ x ]] && codex"}, {"sh", "script.sh", "codex"}, {"bash", "--rcfile", "codex"},
		slices.Concat(slices.Repeat([]string{"nohup"}, 100), []string{"codex"}),
	} {
		if name, ok := (Known{Resolve: links(nil)}).Recognise(argv); ok || name != "" {
			t.Errorf("Recognise(%q) = %q, %v, want none", argv, name, ok)
		}
	}
}

// TestAnUnknownNameIsFollowed: links are followed only when the name says nothing.
func TestAnUnknownNameIsFollowed(t *testing.T) {
	disk := links(map[string]string{
		"cc":         "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js",
		"/x/agent":   "/usr/lib/node_modules/@openai/codex/bin/codex.js",
		"./g":        "/opt/@google/gemini-cli/bundle/gemini.js",
		"p":          "/opt/node_modules/@mariozechner/pi-coding-agent/dist/cli.js",
		"ai":         "/home/u/.local/share/claude/versions/2.1.197",
		"slow":       "/usr/bin/nice",
		"js":         "/opt/node/bin/node",
		"./agent.js": "/x/@openai/codex/bin/codex.js",
		"rgx":        "/usr/lib/node_modules/@anthropic-ai/claude-code/vendor/ripgrep/rg",
		"make":       "/usr/bin/make",
	})
	for _, tt := range []struct {
		want string
		argv []string
	}{
		{"claude", words("cc -p")},
		{"codex", words("/x/agent exec")},
		{"codex", words("nice -n 5 /x/agent exec")},
		{"gemini", words("./g")},
		{"pi", words("p")},
		{"claude", words("ai")},
		{"codex", words("slow -n 3 codex")},
		{"codex", words("js /x/@openai/codex/bin/codex.js")},
		{"codex", words("node agent.js")},
		{"claude", []string{"sh", "-c", "cd x && cc -p"}},
		{"", words("rgx claude")},
		{"", words("make")},
	} {
		if name, ok := (Known{Resolve: disk}).Recognise(tt.argv); name != tt.want || ok != (tt.want != "") {
			t.Errorf("Recognise(%q) = %q, %v, want %q", tt.argv, name, ok, tt.want)
		}
	}
}

// TestLinksOnDiskAreFollowed is the same with a real directory.
func TestLinksOnDiskAreFollowed(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "lib/node_modules/@openai/codex/bin/codex.js")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, []byte("#!/usr/bin/env node\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, "assistant")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	t.Setenv("PATH", dir)
	t.Chdir(filepath.Dir(target))
	for _, argv := range [][]string{{"assistant"}, {filepath.Join(dir, "assistant")}, {"node", "codex.js"}, {"env", "A=B", "assistant"}} {
		if name, ok := Recognise(argv); name != "codex" || !ok {
			t.Errorf("Recognise(%q) = %q, %v, want codex", argv, name, ok)
		}
	}
	if name, ok := Recognise([]string{"nothing-of-this-name"}); ok {
		t.Errorf("a missing command is recognised as %q", name)
	}
}

func TestUsersOwnEnginesAreKnown(t *testing.T) {
	k := Known{
		Binaries: map[string][]string{"aider": {"aider", "aider-chat"}, "mine": {"/opt/mine/bin/agent"}, "claude": {"corp-claude"}, "Bad Name": {"bad"}, "empty": {""}, "none": nil},
		Resolve:  links(map[string]string{"m": "/opt/real/agent", "/opt/mine/bin/agent": "/opt/real/agent"}),
	}
	for _, tt := range []struct {
		want string
		argv []string
	}{
		{"aider", words("nice aider --yes")}, {"mine", words("/opt/mine/bin/agent")}, {"mine", words("/opt/mine/bin/../bin/agent")},
		{"mine", words("m")}, {"claude", words("corp-claude")}, {"claude", words("claude")}, {"", words("agent")}, {"", words("bad")},
		{"aider", words("npx aider")}, {"aider", words("aider-chat --yes")},
	} {
		if name, ok := k.Recognise(tt.argv); name != tt.want || ok != (tt.want != "") {
			t.Errorf("Recognise(%q) = %q, %v, want %q", tt.argv, name, ok, tt.want)
		}
	}
	for spelled, want := range map[string]string{"aider": "aider", "claude_code": "claude", "Bad Name": "", "nobody": ""} {
		if name, ok := k.Canonical(spelled); ok != (want != "") || ok && name != want {
			t.Errorf("Canonical(%q) = %q, %v, want %q", spelled, name, ok, want)
		}
	}
}

// TestWindowsPathsAreRead: backslashes and another case name the same file there.
func TestWindowsPathsAreRead(t *testing.T) {
	for _, argv := range [][]string{
		{`C:\Users\u\AppData\Roaming\npm\Codex.CMD`, "exec"}, {`node.exe`, `C:\x\node_modules\@OpenAI\codex\bin\codex.js`}, {"CODEX"},
	} {
		s := search{known: Known{Resolve: links(nil)}, windows: true, depth: maxDepth, looks: maxLooks}
		if name, ok := s.command(argv); name != "codex" || !ok {
			t.Errorf("command(%q) = %q, %v, want codex", argv, name, ok)
		}
	}
}

func TestSpellingsAreOneEngine(t *testing.T) {
	for spelled, want := range map[string]string{
		"claude": "claude", "claude_code": "claude", "claude-code": "claude", "codex": "codex", "openai-codex": "codex",
		"gemini": "gemini", "gemini-cli": "gemini", "agy": "gemini", "pi": "pi", "Claude": "", "": "", "gpt": "", " codex": "",
	} {
		if name, ok := Canonical(spelled); name != want || ok != (want != "") {
			t.Errorf("Canonical(%q) = %q, %v, want %q", spelled, name, ok, want)
		}
	}
	if got := Names(); !slices.Equal(got, []string{"claude", "codex", "gemini", "pi"}) {
		t.Errorf("Names() = %q", got)
	}
}

func TestValidNamesAreThoseOfC8(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "0": true, "codex": true, "a-b_c": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "_a": false, "A": false, "a.b": false, "a/b": false, "ä": false, "a b": false, strings.Repeat("a", 64): false,
	} {
		if Valid(name) != want {
			t.Errorf("Valid(%q) = %v, want %v", name, !want, want)
		}
	}
}

// FuzzRecogniseIsSure: whatever the words, the answer is an engine or none,
// it is the same twice, and further arguments of a recognised program do not
// change it.
func FuzzRecogniseIsSure(f *testing.F) {
	for _, seed := range []string{
		"claude", "env\n-S\n-i A='b c' claude\n-p", "sh\n-c\ncd x && exec nice -n 5 codex <p >o 2>&1", "npx\n-y\n@openai/codex@1",
		"sh\n-c\necho \"$(a \"b)\" `c`)\" ${X:-y} $'q' ; codex", "script\n-q\n/dev/null\n-c\ncodex", "timeout\n-k5\n1\nenv\n-\ncodex",
		"sh\n-c\nsh -c 'sh -c \"codex\"'", "node\n/x/@google/gemini-cli/dist/index.js",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		argv := strings.Split(text, "\n")
		k := Known{Resolve: links(map[string]string{"x": "/usr/bin/nice"})}
		name, ok := k.Recognise(argv)
		if ok != (name != "") || ok && !slices.Contains(Names(), name) {
			t.Fatalf("Recognise(%q) = %q, %v", argv, name, ok)
		}
		if again, _ := k.Recognise(argv); again != name {
			t.Fatalf("Recognise(%q) = %q, then %q", argv, name, again)
		}
		if _, direct := Canonical(argv[0]); direct {
			if more, _ := k.Recognise(append(argv, "sh", "-c", "claude; codex")); more != name {
				t.Fatalf("Recognise(%q) = %q with more arguments, %q without", argv, more, name)
			}
		}
	})
}

// FuzzShellTextIsReadOrRefused: no text makes the reader fail or invent a
// word that has no letter of it.
func FuzzShellTextIsReadOrRefused(f *testing.F) {
	for _, seed := range []string{"a 'b' \"c\" \\d", "a;b&&c", "$X ${Y} $(z) `q`", "a>b 2>&1 <c", "#x\ny", "$'\\''", "a\\\nb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		commands, ok := parse(text)
		if !ok {
			return
		}
		for _, argv := range commands {
			for _, word := range argv {
				for part := range strings.SplitSeq(word, unknown) {
					if len(part) > len(text) {
						t.Fatalf("parse(%q) has the word %q", text, word)
					}
				}
			}
		}
	})
}

func BenchmarkRecognise(b *testing.B) {
	argv := words("nohup nice -n 5 timeout 1h env A=B npx -y @openai/codex exec")
	for b.Loop() {
		if _, ok := Recognise(argv); !ok {
			b.Fatal("not recognised")
		}
	}
}

func words(line string) []string { return strings.Fields(line) }
