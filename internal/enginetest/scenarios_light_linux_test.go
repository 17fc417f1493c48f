//go:build engines

package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/modelstub"
)

func init() { scenarios = append(scenarios, scenario{"light, by its own means", light}) }

// light is E5 and C138 on the real CLIs: what light promises holds against a
// user's settings that open everything, and the same without light does not, so
// that each claim can fail. What would lift it is refused before anything starts.
func light(t *testing.T, e engine) string {
	refusesLifted(t, e)
	switch e.name {
	case "claude":
		claudeTools(t, e)
		return "no tool that writes, nor in its own agents; no MCP server; permissions hold"
	case "codex":
		codexWrites(t, e)
		return "writes inside and in its scratch directory alone, connects to nothing"
	case "codex-sandboxed":
		codexResumed(t, e)
		return "the same for a conversation that began heavy"
	case "gemini":
		geminiTools(t, e, false)
		geminiTools(t, e, true)
		return "no tool that writes; no MCP server"
	case "pi":
		return "refused: it has no means"
	}
	return ""
}

// ask runs handsel agent, with the engine found in PATH.
func (c *cell) ask(words ...string) ended {
	c.t.Helper()
	path := "PATH=" + filepath.Dir(c.engine.path(c.t)) + ":" + os.Getenv("PATH")
	argv := []string{"env", path, os.Getenv("HANDSEL_BIN"), "agent", "--engine", c.engine.pool, "--outcome", c.outcome()}
	return c.launch(append(argv, words...)).wait()
}

// put writes a file below the cell's home.
func (c *cell) put(name, content string, mode os.FileMode) {
	c.t.Helper()
	path := filepath.Join(c.home, name)
	c.must(os.MkdirAll(filepath.Dir(path), 0o700))
	c.must(os.WriteFile(path, []byte(content), mode))
}

// exists tells whether a file is there.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// door is a port that tells whether somebody has come.
type door struct {
	t *testing.T
	l *net.TCPListener
}

func newDoor(t *testing.T) door {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return door{t, l}
}

// knock is a shell command that connects.
func (d door) knock() string {
	return fmt.Sprintf("bash -c 'echo >/dev/tcp/127.0.0.1/%d'", d.l.Addr().(*net.TCPAddr).Port)
}

// queued is the wait for somebody who would have connected by now and is in the
// kernel's queue. It is not none, since a deadline that is over looks at nothing.
const queued = time.Second

// came waits for somebody.
func (d door) came(wait time.Duration) bool {
	d.t.Helper()
	if err := d.l.SetDeadline(time.Now().Add(wait)); err != nil {
		d.t.Fatal(err)
	}
	conn, err := d.l.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	if err != nil {
		d.t.Fatal(err)
	}
	_ = conn.Close()
	return true
}

// removed are the tools a light claude must not be offered.
var removed = []string{"Edit", "Write", "NotebookEdit", "MultiEdit", "EnterWorktree", "CronCreate", "Workflow"}

// claudeTools: a user's settings bypass all permissions and bring an MCP server.
// A light claude has no writing tool, neither have the agents it starts, the
// server is not started, and a shell command needs a permission.
func claudeTools(t *testing.T, e engine) {
	for _, class := range []string{"heavy", "light"} {
		d := newDoor(t)
		c := newCell(t, e, nil)
		outside, inside := filepath.Join(filepath.Dir(c.work), "outside"), filepath.Join(c.work, "inside")
		unasked := filepath.Join(c.work, "unasked")
		c.put(".claude/settings.json", `{"permissions":{"defaultMode":"bypassPermissions"},"skipDangerousModePermissionPrompt":true}`, 0o600)
		c.put("server.sh", "#!/bin/sh\n"+d.knock()+"\nexec cat\n", 0o700)
		c.put(".claude.json", toJSON(map[string]any{"mcpServers": map[string]any{
			"mine": map[string]any{"command": filepath.Join(c.home, "server.sh")},
		}}), 0o600)
		served := false
		c.stub.Play(
			modelstub.Step{Call: &modelstub.Call{Name: "Agent", Args: map[string]any{"description": "write", "prompt": "write it", "subagent_type": "general-purpose"}}},
			modelstub.Step{Call: &modelstub.Call{Name: "Write", Args: map[string]any{"file_path": outside, "content": "x"}}},
			modelstub.Step{Shell: "touch inside", Before: func(modelstub.Request) {
				served = served || class == "heavy" && d.came(patience/2)
			}},
			modelstub.Step{Shell: "touch unasked"},
			modelstub.Step{Text: "Done."},
		)
		end := c.ask("--workload", class, prompt, "--", "--allowedTools", "Bash(touch inside)")
		if end.code != 0 || strings.TrimSpace(end.stdout) != "Done." {
			t.Fatalf("%s: status %d%s", class, end.code, c.describe(end))
		}
		light := class == "light"
		if served = served || d.came(queued); served == light {
			t.Errorf("%s: the MCP server was started: %v", class, served)
		}
		if wrote := exists(outside); wrote == light {
			t.Errorf("%s: Write wrote: %v%s", class, wrote, c.describe(end))
		}
		if !exists(inside) {
			t.Errorf("%s: Bash did nothing%s", class, c.describe(end))
		}
		if bypassed := exists(unasked); bypassed == light {
			t.Errorf("%s: Bash did what nobody has permitted: %v%s", class, bypassed, c.describe(end))
		}
		c.expectTools(light)
		c.expectFree()
	}
}

// expectTools: each request to the model that offered tools offered Bash, or
// whatever an agent inside the agent has of the rest, and with light none of those
// that are removed.
func (c *cell) expectTools(light bool) {
	c.t.Helper()
	offered, requests := map[string]bool{}, 0
	for _, one := range c.stub.Log() {
		if len(one.Tools) > 0 {
			requests++
		}
		for _, tool := range one.Tools {
			offered[tool] = true
		}
	}
	if requests < 4 || !offered["Bash"] {
		c.t.Errorf("%d requests with tools, of the agent and of those it started: %v", requests, offered)
	}
	for _, tool := range removed {
		if light && offered[tool] {
			c.t.Errorf("the model was offered %s", tool)
		}
	}
	if !light && !offered["Write"] {
		c.t.Errorf("without light the model was not offered Write: %v", offered)
	}
}

// open is a user's configuration of codex that opens everything, and a rule that
// lets touch out of any sandbox.
func (c *cell) open() {
	c.t.Helper()
	c.put(".codex/config.toml", "sandbox_mode = \"danger-full-access\"\n"+codexFiles(c.stub.URL)[".codex/config.toml"]+`
[sandbox_workspace_write]
network_access = true
writable_roots = ["/"]
`, 0o600)
	c.put(".codex/rules/default.rules", `prefix_rule(pattern=["touch"], decision="allow")`+"\n", 0o600)
}

// attempts is a turn that tries to write and to connect in every way, and what
// of it went through.
func (c *cell) attempts(d door) []modelstub.Step {
	above := filepath.Dir(c.work)
	return []modelstub.Step{
		{Shell: strings.Join([]string{
			"touch inside", `touch "$TMPDIR/mine" && echo scratch-works`,
			"touch " + filepath.Join(above, "outside"), "touch " + filepath.Join(c.home, "planted"), "touch " + c.slashTmp(), d.knock(), "true",
		}, "; ")},
		{Shell: "touch " + filepath.Join(above, "by-rule")},
		{Call: &modelstub.Call{Name: "exec_command", Args: map[string]any{
			"cmd": "touch " + filepath.Join(above, "escalated"), "sandbox_permissions": "require_escalated", "justification": "I want to",
		}}},
		{Text: "Done."},
	}
}

// slashTmp is a file of this cell in /tmp.
func (c *cell) slashTmp() string {
	return filepath.Join("/tmp", "enginetest-"+strings.TrimPrefix(c.mark, "ENGINETEST_CELL="))
}

// through are the attempts that went through, by files and connections.
func (c *cell) through(d door) []string {
	above := filepath.Dir(c.work)
	var went []string
	for _, path := range []string{
		filepath.Join(above, "outside"), filepath.Join(c.home, "planted"), c.slashTmp(),
		filepath.Join(above, "by-rule"), filepath.Join(above, "escalated"),
	} {
		if exists(path) {
			went = append(went, path)
			_ = os.Remove(path)
		}
	}
	if d.came(queued) {
		went = append(went, "a connection")
	}
	return went
}

// expectInside: the turn ended well, wrote inside its directory and its scratch
// directory, and left nothing of the latter.
func (c *cell) expectInside(end ended) {
	c.t.Helper()
	if end.code != 0 || strings.TrimSpace(end.stdout) != "Done." {
		c.t.Fatalf("status %d%s", end.code, c.describe(end))
	}
	inside := filepath.Join(c.work, "inside")
	if !exists(inside) || os.Remove(inside) != nil {
		c.t.Errorf("the write inside failed%s", c.describe(end))
	}
	if !slices.ContainsFunc(c.stub.Results(), func(r modelstub.Result) bool { return strings.Contains(r.Text, "scratch-works") }) {
		c.t.Errorf("there is no scratch directory%s", c.describe(end))
	}
	left, err := filepath.Glob(filepath.Join(c.work, ".*"))
	c.must(err)
	if len(left) > 0 {
		c.t.Errorf("left in the working directory: %v", left)
	}
	c.expectFree()
}

// codexWrites: with light nothing but the inside is reached; without it, all is
// but what a person would have to approve.
func codexWrites(t *testing.T, e engine) {
	for _, class := range []string{"heavy", "light"} {
		d := newDoor(t)
		c := newCell(t, e, nil)
		c.open()
		c.stub.Play(c.attempts(d)...)
		end := c.ask("--workload", class, prompt)
		went := c.through(d)
		if class == "light" && len(went) > 0 {
			t.Errorf("light, and went through: %v%s", went, c.describe(end))
		}
		if class == "heavy" && len(went) != 5 {
			t.Errorf("not light, and no more went through than: %v%s", went, c.describe(end))
		}
		if class == "light" {
			c.expectInside(end)
		}
	}
}

// codexResumed: a conversation that began without light goes on with it (E3).
func codexResumed(t *testing.T, e engine) {
	d := newDoor(t)
	c := newCell(t, e, nil, modelstub.Step{Text: "Hello."})
	c.open()
	first := c.ask("--json", prompt)
	session := ""
	for _, line := range strings.Split(first.stdout, "\n") {
		var event struct{ Session string }
		if json.Unmarshal([]byte(line), &event) == nil && event.Session != "" {
			session = event.Session
		}
	}
	if session == "" {
		t.Fatalf("no session was told of%s", c.describe(first))
	}
	c.stub.Play(c.attempts(d)...)
	end := c.ask("--workload", "light", "--resume", session, prompt)
	if went := c.through(d); len(went) > 0 {
		t.Errorf("light, and went through: %v%s", went, c.describe(end))
	}
	c.expectInside(end)
	if log := c.stub.Log(); !strings.Contains(string(log[len(log)-1].Body), "Hello.") {
		t.Error("the conversation did not go on: its first answer was not sent along")
	}
}

// refusesLifted: what would lift the class is refused before anything starts,
// naming the setting.
func refusesLifted(t *testing.T, e engine) {
	type line struct {
		args    []string
		setting string // as it is named
	}
	lines := map[string][]line{
		"claude": {
			{[]string{"-p", "--dangerously-skip-permissions"}, "--dangerously-skip-permissions"},
			{[]string{"-p", "--allowedTools", "Bash Edit"}, "--allowedTools Edit"},
			{[]string{"-p", "--permission-mode=bypassPermissions"}, "--permission-mode bypassPermissions"},
			{[]string{"-p", "--add-dir", "/"}, "--add-dir"},
		},
		"codex": {
			{[]string{"exec", "--yolo", "-"}, "--yolo"},
			{[]string{"exec", "-sdanger-full-access", "-"}, "-s danger-full-access"},
			{[]string{"exec", "-c", "sandbox_workspace_write.network_access=true", "-"}, "-c sandbox_workspace_write.network_access"},
			{[]string{"exec", "--add-dir=/", "-"}, "--add-dir"},
		},
		"gemini": {
			{[]string{"-p", "x", "--yolo"}, "--yolo"},
			{[]string{"--include-directories", "/", "-p", "x"}, "--include-directories"},
		},
		"pi": {
			{[]string{"-p", "x"}, "pi has nothing to confine itself with"},
		},
	}[e.pool]
	for _, one := range lines {
		c := newCell(t, e, nil, modelstub.Step{Text: "Done."})
		end := c.run([]string{os.Getenv("HANDSEL_BIN"), "run", "--workload", "light", "--"}, one.args...)
		if end.code != 78 || !strings.Contains(end.stderr, one.setting) {
			t.Errorf("%q: status %d%s", one.args, end.code, c.describe(end))
		}
		if log := c.stub.Log(); len(log) > 0 {
			t.Errorf("%q: the engine was started: %d requests", one.args, len(log))
		}
		c.expectFree()
		c.expectNoRun()
	}
}

// expectNoRun: there is no record of a run, as nothing was begun.
func (c *cell) expectNoRun() {
	c.t.Helper()
	paths, err := filepath.Glob(filepath.Join(c.state, "runs", "*", "*", "run.json"))
	c.must(err)
	if len(paths) > 0 {
		c.t.Errorf("a run was begun: %v", paths)
	}
}
