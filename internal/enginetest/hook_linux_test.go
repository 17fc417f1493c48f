//go:build engines

package enginetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/modelstub"
)

// hooked are the engines that a hook can be put into (W8). In its own sandbox codex
// can write no slot, and finds those that were made for its agent.
var hooked = []string{"claude", "codex", "codex-sandboxed"}

// TestHookGatesWhatTheRulesName: the real CLI, with the hook that `hook install` put
// into its settings, runs a command of [gate.rules] under a gate in its pool, as it
// was written, and another one as it is; inside an agent that is counted, too.
func TestHookGatesWhatTheRulesName(t *testing.T) {
	for _, e := range engines {
		if !slices.Contains(hooked, e.name) {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := newHooked(t, e)
			before := c.settings()
			c.handsel(0, "hook", "install", e.pool, "--yes")
			end := c.run(c.under(), c.trusting()...)
			c.expectGated(end)
			c.handsel(0, "hook", "uninstall", e.pool, "--yes")
			if after := c.settings(); after != before {
				t.Errorf("after the uninstall\n%s\nwant\n%s", after, before)
			}
		})
	}
}

// TestCodexRunsNoHookThatIsNotTrusted is what `hook install codex` warns of.
func TestCodexRunsNoHookThatIsNotTrusted(t *testing.T) {
	e := engines[slices.IndexFunc(engines, func(e engine) bool { return e.name == "codex" })]
	c := newHooked(t, e)
	c.handsel(0, "hook", "install", "codex", "--yes")
	end := c.run(c.under(), e.turn...)
	if got := c.seen("gradlew"); got.build != 0 || got.args != gradleArgs {
		t.Errorf("without trust, ./gradlew ran with %q, and build held %d%s", got.args, got.build, c.describe(end))
	}
	if status := c.handsel(0, "hook", "status"); !strings.Contains(status, "installed, not trusted yet") {
		t.Errorf("hook status says\n%s", status)
	}
}

// TestHookLeavesOtherCommandsToTheClientsRules: claude judges a line by its own rules
// after the hook. What else is in the line is still seen by them, and a gated command
// is allowed by a rule that names it so.
func TestHookLeavesOtherCommandsToTheClientsRules(t *testing.T) {
	e := engines[slices.IndexFunc(engines, func(e engine) bool { return e.name == "claude" })]
	gradlew := "Bash(" + os.Getenv("HANDSEL_BIN") + " gate build -- ./gradlew:*)"
	for _, tt := range []struct {
		name, line string
		rules      []string
		runs       bool
	}{
		{"another command denied", "./gradlew a && ./other b", []string{"--dangerously-skip-permissions", "--disallowedTools", "Bash(./other:*)"}, false},
		{"nothing allowed", "./gradlew a", nil, false},
		{"the gated command allowed", "cd . && ./gradlew a 2>&1 | cat", []string{"--allowedTools", gradlew}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newHooked(t, e)
			c.stub.Play(modelstub.Step{Shell: tt.line}, modelstub.Step{Text: "Done."})
			c.handsel(0, "hook", "install", "claude", "--yes")
			end := c.run(c.under(), append([]string{"-p", "--output-format", "stream-json", "--verbose"}, tt.rules...)...)
			if len(c.stub.Results()) != 1 {
				t.Errorf("no result came back%s", c.describe(end))
			}
			if _, err := os.Stat(filepath.Join(c.work, "gradlew.args")); (err == nil) != tt.runs {
				t.Errorf("ran: %v, want %v%s", err == nil, tt.runs, c.describe(end))
			}
		})
	}
}

// TestClientsAreToldOfOurServer: what `mcp install` has the real CLI do shows in that
// CLI's own list, and is gone after `mcp uninstall` (W5).
func TestClientsAreToldOfOurServer(t *testing.T) {
	for _, name := range []string{"claude", "codex", "gemini"} {
		e := engines[slices.IndexFunc(engines, func(e engine) bool { return e.name == name })]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, e, nil)
			c.handsel(0, "mcp", "install", name, "--yes")
			end := c.run(nil, "mcp", "list")
			if !strings.Contains(end.stdout+end.stderr, os.Getenv("HANDSEL_BIN")) {
				t.Errorf("it is not in the list%s", c.describe(end))
			}
			file := filepath.Join(c.home, settingsOf[name])
			if !strings.Contains(string(c.bytes(file)), os.Getenv("HANDSEL_BIN")) {
				t.Errorf("it is not in %s, where it is looked for afterwards", file)
			}
			c.handsel(0, "mcp", "uninstall", name, "--yes")
			if left := string(c.bytes(file)); strings.Contains(left, os.Getenv("HANDSEL_BIN")) {
				t.Errorf("it is still there:\n%s", left)
			}
		})
	}
}

// settingsOf has the files in which the clients note their servers.
var settingsOf = map[string]string{"claude": ".claude.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json"}

// gradleArgs is what ./gradlew must get, to the byte.
const gradleArgs = "test it's $HOME \\ \"ü\"\n"

// newHooked is a cell with rules, a build script that says what it sees, and a model
// that has it run.
func newHooked(t *testing.T, e engine) *cell {
	t.Helper()
	c := newCell(t, e, nil,
		modelstub.Step{Shell: `printf x >pre && ./gradlew "test it's \$HOME \\ \"ü\"" | cat # it's`},
		modelstub.Step{Shell: `./other "test"`},
		modelstub.Step{Text: "Done."})
	c.config = filepath.Join(c.home, "handsel.toml")
	c.must(os.WriteFile(c.config, []byte("[pools]\nbuild = 1\n[gate.rules]\nbuild = [\"./gradlew\"]\n"), 0o600))
	for _, name := range []string{"gradlew", "other"} {
		script := "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + name + ".args\n'" + os.Getenv("HANDSEL_BIN") + "' status --json >" + name + ".status\n"
		c.must(os.WriteFile(filepath.Join(c.work, name), []byte(script), 0o700))
	}
	return c
}

// trusting is a turn in which codex runs hooks that nobody looked at.
func (c *cell) trusting() []string {
	if c.engine.pool != "codex" {
		return c.engine.turn
	}
	return append([]string{"--dangerously-bypass-hook-trust"}, c.engine.turn...)
}

// settings are the client's, "none" where there is no file.
func (c *cell) settings() string {
	name := map[string]string{"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}[c.engine.pool]
	body, err := os.ReadFile(filepath.Join(c.home, name))
	if os.IsNotExist(err) {
		return "none"
	}
	c.must(err)
	return string(body)
}

// handsel runs one of our own verbs and gives its stdout.
func (c *cell) handsel(code int, args ...string) string {
	c.t.Helper()
	path := "PATH=" + filepath.Dir(c.engine.path(c.t)) + ":" + os.Getenv("PATH")
	end := c.launch(append([]string{"env", path, os.Getenv("HANDSEL_BIN")}, args...)).wait()
	if end.code != code {
		c.t.Errorf("handsel %s: status %d, want %d%s", strings.Join(args, " "), end.code, code, c.describe(end))
	}
	return end.stdout
}

// sight is what a script of the cell saw while it ran.
type sight struct {
	args  string
	build int // slots held in the pool of the rules
	agent int // and in that of the engine
}

func (c *cell) seen(name string) sight {
	c.t.Helper()
	args, err := os.ReadFile(filepath.Join(c.work, name+".args"))
	if err != nil {
		c.t.Errorf("%s did not run: %v", name, err)
		return sight{}
	}
	var status struct {
		Pools map[string]struct {
			Held int `json:"held"`
		} `json:"pools"`
	}
	body, err := os.ReadFile(filepath.Join(c.work, name+".status"))
	c.must(err)
	c.must(json.Unmarshal(body, &status))
	return sight{string(args), status.Pools["build"].Held, status.Pools[c.engine.pool].Held}
}

func (c *cell) expectGated(end ended) {
	c.t.Helper()
	if got, want := c.seen("gradlew"), (sight{gradleArgs, 1, 1}); got != want {
		c.t.Errorf("./gradlew saw %+v, want %+v%s", got, want, c.describe(end))
	}
	if got, want := c.seen("other"), (sight{"test\n", 0, 1}); got != want {
		c.t.Errorf("./other saw %+v, want %+v%s", got, want, c.describe(end))
	}
	if end.code != 0 {
		c.t.Errorf("status %d%s", end.code, c.describe(end))
	}
	c.expectFree()
}
