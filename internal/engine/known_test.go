package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestEnginesOwnWordsAreFound: at is where further words of the engine may stand.
func TestEnginesOwnWordsAreFound(t *testing.T) {
	for _, tt := range []struct {
		argv []string
		at   int
	}{
		{words("claude -p"), 1}, {words("claude"), 1}, {words("/usr/bin/codex exec"), 1}, {words("env A=1 codex exec"), 3}, {words("nice -n 5 claude -p"), 4},
		{words("npx -y @openai/codex@1 exec"), 3}, {words("npx -p @openai/codex -- codex exec"), 5}, {words("bunx @google/gemini-cli -p x"), 2},
		{words("pnpm dlx @openai/codex exec"), 3}, {words("yarn dlx @openai/codex"), 3}, {words("npm exec -- @openai/codex exec"), 4},
		{words("node /x/@google/gemini-cli/bundle/gemini.js -p x"), 2}, {words("node --no-warnings /usr/bin/pi -p"), 3},
		{words("bun /x/@openai/codex/bin/codex.js"), 2}, {words("bun run codex"), 3}, {words("deno run -A npm:@openai/codex exec"), 4},
		{words("sh /usr/local/bin/codex exec"), 2}, {words("timeout -k 5 600 nohup codex exec"), 6}, {words("bwrap --ro-bind / / -- claude -p"), 6},
		{words("handsel run --workload light -- gemini -p x"), 6}, {words("sudo -u b A=1 codex"), 5}, {words("flock /tmp/l codex exec"), 3},
	} {
		if _, at, ok := (Known{Resolve: noDisk(t)}).Locate(tt.argv); !ok || at != tt.at {
			t.Errorf("Locate(%q) = %d, %v, want %d", tt.argv, at, ok, tt.at)
		}
	}
}

// TestWhereWordsCannotBeAddedNoneAre: in a shell's text, and behind what would
// take them for its own. Light is refused there (C138).
func TestWhereWordsCannotBeAddedNoneAre(t *testing.T) {
	for _, argv := range [][]string{
		{"sh", "-c", "codex"}, {"sh", "-c", "exec codex exec -"}, {"bash", "-lc", "codex exec", "codex"}, {"env", "-S", "codex exec"}, {"env", "-S", "codex", "exec"},
		{"flock", "/tmp/l", "-c", "codex exec"}, {"runuser", "-c", "codex", "b"}, {"npx", "-p", "@openai/codex", "-c", "codex exec"},
		words("npm exec @openai/codex exec"), words("npm x @openai/codex"), words("script -q /dev/null codex exec"), {"script", "-qc", "codex", "/dev/null"},
	} {
		k := Known{Resolve: noDisk(t)}
		if _, at, ok := k.Locate(argv); ok || at != 0 {
			t.Errorf("Locate(%q) = %d, %v", argv, at, ok)
		}
		if name, ok := k.Recognise(argv); !ok || name != "codex" {
			t.Errorf("Recognise(%q) = %q, %v", argv, name, ok)
		}
		if _, _, err := k.Light("gemini", argv, "/w", "/files"); !errors.As(err, new(*Lifted)) {
			t.Errorf("Light(%q): %v", argv, err)
		}
		if k.Streams("codex", argv) {
			t.Errorf("the stream of %q is read", argv)
		}
	}
}

// TestAnotherEngineIsNotConfinedAsThis: what was declared and what is recognised
// must agree.
func TestAnotherEngineIsNotConfinedAsThis(t *testing.T) {
	k := Known{Resolve: links(nil)}
	for _, argv := range []string{"pi -p x", "my-gemini -p x", "make"} {
		if _, _, err := k.Light("gemini", words(argv), "/w", "/files"); !errors.As(err, new(*Lifted)) {
			t.Errorf("%s: %v", argv, err)
		}
	}
}

// FuzzLocate: where words may be added, adding one changes nothing about what is
// recognised and where, and what stands before is the caller's.
func FuzzLocate(f *testing.F) {
	for _, seed := range []string{"claude\n-p", "env\n-S\ncodex exec", "npx\n-y\n@openai/codex\nexec", "sh\n-c\ncodex", "npm\nexec\n--\ncodex", "nice\n-n\n5\ngemini"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		argv := splitLines(text)
		k := Known{Resolve: links(nil)}
		name, at, ok := k.Locate(argv)
		if !ok {
			return
		}
		if at < 1 || at > len(argv) || name == "" {
			t.Fatalf("Locate(%q) = %q, %d", argv, name, at)
		}
		more := slices.Insert(slices.Clone(argv), at, "--added")
		if again, where, ok := k.Locate(more); !ok || again != name || where != at {
			t.Fatalf("Locate(%q) = %q, %d, %v; without the word %q, %d", more, again, where, ok, name, at)
		}
	})
}

func splitLines(text string) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, line)
	}
	return lines
}
