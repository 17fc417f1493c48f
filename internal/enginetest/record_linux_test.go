//go:build engines

package enginetest

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// told is what --outcome and the run's record say of an ending alike.
type told struct {
	Outcome   string            `json:"outcome"`
	ExitCode  *int              `json:"exit_code"`
	Engine    string            `json:"engine"`
	Survivors []json.RawMessage `json:"survivors"` // each names one in its own way
}

// expectTold: the outcome file of under says what really happened, and so does
// the run's record, which is final (E13, C13). With code below 0 the agent was
// ended and its own status says nothing.
func (c *cell) expectTold(outcome string, code int) {
	c.t.Helper()
	file := c.readJSON(c.outcome(), new(told))
	c.expect("the outcome file", file, outcome, code)

	paths, err := filepath.Glob(filepath.Join(c.state, "runs", "*", "*", "run.json"))
	c.must(err)
	if len(paths) != 1 {
		c.t.Errorf("%d run records, want 1: %v", len(paths), paths)
		return
	}
	c.expect("the record", c.readJSON(paths[0], new(told)), outcome, code)
	var state struct {
		State string `json:"state"`
	}
	c.must(json.Unmarshal(c.bytes(paths[0]), &state))
	if state.State != "ended" {
		c.t.Errorf("the record's state is %q after the end", state.State)
	}
}

func (c *cell) expect(what string, got *told, outcome string, code int) {
	c.t.Helper()
	if got.Outcome != outcome {
		c.t.Errorf("%s says %q, want %q", what, got.Outcome, outcome)
	}
	if code >= 0 && (got.ExitCode == nil || *got.ExitCode != code) {
		c.t.Errorf("%s has exit code %v, want %d", what, got.ExitCode, code)
	}
	if got.Engine != c.engine.pool {
		c.t.Errorf("%s has engine %q, want %q", what, got.Engine, c.engine.pool)
	}
	if len(got.Survivors) > 0 {
		c.t.Errorf("%s names survivors: %s", what, got.Survivors)
	}
}

// expectStatus: `status --json`, asked as the cell's user, counts this many
// agents in each pool of the cell.
func (c *cell) expectStatus(held int) {
	c.t.Helper()
	end := c.launch([]string{os.Getenv("HANDSEL_BIN"), "status", "--json"}).wait()
	var status struct {
		Pools map[string]struct {
			Held int `json:"held"`
		} `json:"pools"`
	}
	if err := json.Unmarshal([]byte(end.stdout), &status); err != nil || end.code != 0 {
		c.t.Errorf("status --json: status %d, %v%s", end.code, err, c.describe(end))
		return
	}
	for _, pool := range c.pools() {
		if got := status.Pools[pool].Held; got != held {
			c.t.Errorf("status counts %d in %s, want %d", got, pool, held)
		}
	}
}

func (c *cell) readJSON(path string, into *told) *told {
	c.t.Helper()
	if err := json.Unmarshal(c.bytes(path), into); err != nil {
		c.t.Errorf("%s: %v", path, err)
	}
	return into
}

func (c *cell) bytes(path string) []byte {
	c.t.Helper()
	body, err := os.ReadFile(path)
	c.must(err)
	return body
}
