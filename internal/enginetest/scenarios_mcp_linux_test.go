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

// mcpLane is the lane of what an engine submits through the tools: a name that is
// known before the run has an id.
const mcpLane = "mcp/work"

// mcpCell is an engine that has handsel's server among its own. Scrubbed, the
// server gets no more of an environment than it is given here.
func mcpCell(t *testing.T, name string, scrubbed bool, calls ...*modelstub.Call) (c *cell, args []string) {
	t.Helper()
	e := engines[slices.IndexFunc(engines, func(e engine) bool { return e.name == name })]
	var script []modelstub.Step
	for _, call := range calls {
		if name == "claude" { // which has one name for a server's tool
			call.Name, call.Namespace = call.Namespace+"__"+call.Name, ""
		}
		script = append(script, modelstub.Step{Call: call})
	}
	c = newCell(t, e, nil, append(script, modelstub.Step{Text: "done"})...)
	env := map[string]string{"HANDSEL_HOME": c.state, "PATH": os.Getenv("PATH")}
	command := []string{os.Getenv("HANDSEL_BIN"), "mcp"}
	if scrubbed {
		command = append([]string{"env", "-i", "HANDSEL_HOME=" + c.state, "PATH=" + os.Getenv("PATH"), c.mark}, command...)
	}
	args = slices.Clone(e.turn)
	switch name {
	case "claude":
		c.write("mcp.json", toJSON(map[string]any{"mcpServers": map[string]any{"handsel": map[string]any{
			"command": command[0], "args": command[1:], "env": env,
		}}}))
		args = append(args, "--mcp-config", filepath.Join(c.work, "mcp.json"), "--strict-mcp-config")
	default:
		list, err := json.Marshal(command[1:])
		c.must(err)
		path := filepath.Join(c.home, ".codex", "config.toml")
		text, err := os.ReadFile(path)
		c.must(err)
		text = append(text, "\n[mcp_servers.handsel]\ncommand = "+quoted(command[0])+"\nargs = "+string(list)+
			"\nenv = { HANDSEL_HOME = "+quoted(c.state)+" }\n"...)
		c.must(os.WriteFile(path, text, 0o600))
	}
	return c, args
}

func quoted(text string) string {
	body, _ := json.Marshal(text) // of a string there is always one
	return string(body)
}

// called are a submission, the wait for it, and why about it: calls of tools of a
// server by the name handsel.
func called() []*modelstub.Call {
	const server = "mcp__handsel"
	return []*modelstub.Call{
		{Namespace: server, Name: "submit", Args: map[string]any{"command": []any{"sh", "-c", "echo from a lane >came"}, "lane": mcpLane}},
		{Namespace: server, Name: "wait", Args: map[string]any{"runs": "lane:" + mcpLane}},
		{Namespace: server, Name: "why", Args: map[string]any{"about": "lane:" + mcpLane}},
	}
}

// TestMCPTools: W1, W2. An engine that nobody started through us submits, waits and
// asks why, through the server it is configured with.
func TestMCPTools(t *testing.T) {
	for _, name := range []string{"claude", "codex"} {
		t.Run(name, func(t *testing.T) {
			c, args := mcpCell(t, name, false, called()...)
			end := c.run(nil, args...)
			results := c.stub.Results()
			if end.code != 0 || len(results) != 3 {
				t.Fatalf("status %d, %d results%s", end.code, len(results), c.describe(end))
			}
			for i, want := range []string{"submitted", "exited (succeeded)", "ownership go"} {
				if !strings.Contains(results[i].Text, want) {
					t.Errorf("result %d is %s, want %q in it", i, clip(results[i].Text), want)
				}
			}
			if got := c.bytes(filepath.Join(c.work, "came")); string(got) != "from a lane\n" {
				t.Errorf("it left %q", got)
			}
			if runs := c.recorded(); len(runs) != 1 {
				t.Errorf("%d runs, want 1: %q", len(runs), runs)
			}
		})
	}
}

// TestMCPInsideARun: C120, W4. Of an agent that we started nothing is taken in, and
// nothing is created, whether its server inherits the environment or not.
func TestMCPInsideARun(t *testing.T) {
	for name, scrubbed := range map[string]bool{"environment": false, "scrubbed": true} {
		t.Run(name, func(t *testing.T) {
			c, args := mcpCell(t, "claude", scrubbed, called()[0])
			end := c.run(c.under(), args...)
			results := c.stub.Results()
			if end.code != 0 || len(results) != 1 || !strings.Contains(results[0].Text, "conflict (nested)") || !strings.Contains(results[0].Text, "final") {
				t.Fatalf("status %d, results %+v%s", end.code, results, c.describe(end))
			}
			if runs := c.recorded(); len(runs) != 1 { // the agent's own
				t.Errorf("%d runs, want 1: %q", len(runs), runs)
			}
			if _, err := os.Lstat(filepath.Join(c.state, "lanes")); !os.IsNotExist(err) {
				t.Errorf("a lane was made: %v", err)
			}
		})
	}
}

// recorded are the runs of the cell that have a record.
func (c *cell) recorded() []string {
	c.t.Helper()
	all, err := filepath.Glob(filepath.Join(c.state, "runs", "*", "*", "run.json"))
	c.must(err)
	return all
}
