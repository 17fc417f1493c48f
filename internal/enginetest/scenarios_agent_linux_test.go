//go:build engines

package enginetest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/modelstub"
)

// ending is what --outcome says of an agent's turn (E11).
type ending struct {
	told
	Result  string    `json:"result"`
	Kind    string    `json:"kind"`
	Message string    `json:"message"`
	Until   time.Time `json:"until"`
	Session string    `json:"session_id"`
}

// question starts handsel agent with the cell's engine in PATH.
func (c *cell) question(flags []string, text string) *running {
	c.t.Helper()
	path := "PATH=" + filepath.Dir(c.engine.path(c.t)) + ":" + os.Getenv("PATH")
	argv := append([]string{"env", path, os.Getenv("HANDSEL_BIN"), "agent", "--engine", c.engine.pool, "--outcome", c.outcome()}, flags...)
	if text != "" {
		argv = append(argv, text)
	}
	return c.launch(append(append(argv, "--"), c.engine.free...))
}

// expectEnding: what handsel says of the turn, and that the record says the same.
func (c *cell) expectEnding(end ended, result string, kinds ...string) *ending {
	c.t.Helper()
	got := new(ending)
	c.must(json.Unmarshal(c.bytes(c.outcome()), got))
	fits := got.Result == result
	if len(kinds) > 0 {
		fits = fits && strings.Contains(" "+strings.Join(kinds, " ")+" ", " "+got.Kind+" ")
	}
	if !fits {
		c.t.Errorf("result %q, kind %q (%s), want %q, %q%s", got.Result, got.Kind, got.Message, result, kinds, c.describe(end))
	}
	if (end.code == 0) != (result == "succeeded") {
		c.t.Errorf("%s, and status %d%s", result, end.code, c.describe(end))
	}
	rec := new(ending)
	paths, err := filepath.Glob(filepath.Join(c.state, "runs", "*", "*", "run.json"))
	c.must(err)
	c.must(json.Unmarshal(c.bytes(paths[len(paths)-1]), rec))
	if rec.Result != got.Result || rec.Kind != got.Kind || rec.Session != got.Session || rec.Outcome != got.Outcome {
		c.t.Errorf("the record says %+v, the outcome %+v", rec, got)
	}
	c.expectFree()
	return got
}

// agentTurn: the prompt reaches the model and no process table, a shell call
// leaves three children which end, and the answer alone is on stdout.
func agentTurn(t *testing.T, e engine) string {
	c := newCell(t, e, nil, turnScript...)
	watch := c.watch(func([]child) {
		c.expectHeld()
		for _, one := range withEnv(t, c.mark) {
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", one.pid)); err == nil && strings.Contains(string(line), "SECRET-PROMPT") {
				if name, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", one.pid)); filepath.Base(name) != filepath.Base(os.Getenv("HANDSEL_BIN")) {
					t.Errorf("the prompt is in the arguments of %s", one)
				}
			}
		}
	})
	c.write("prompt", "SECRET-PROMPT. "+prompt)
	end := c.question([]string{"--prompt-file", "prompt"}, "").wait()
	c.expectGone(watch.seen())
	if strings.TrimSpace(end.stdout) != "Done." {
		t.Errorf("stdout is not the answer%s", c.describe(end))
	}
	if !slices.ContainsFunc(c.stub.Log(), func(r modelstub.Request) bool { return strings.Contains(string(r.Body), "SECRET-PROMPT") }) {
		t.Errorf("the prompt did not reach the model%s", c.describe(end))
	}
	got := c.expectEnding(end, "succeeded")
	if got.Session == "" {
		t.Errorf("no conversation is told of")
	}
	return "succeeded; answer on stdout, prompt in no process table, three children gone"
}

// agentLimit: a used-up quota with its reset is a limit, or at least a throttle,
// whatever the engine's status.
func agentLimit(t *testing.T, e engine) string {
	fail := modelstub.Fail{Status: 429, Message: "You have exceeded your usage limit. Please retry in 3h12m4s."}
	kinds := []string{"limit", "throttle"}
	if e.pool == "codex" { // what its backend says of a plan that is used up
		fail = modelstub.Fail{Status: 429, Kind: "usage_limit_reached", Message: "The usage limit has been reached", More: map[string]any{
			"plan_type": "plus", "resets_at": time.Now().Add(3 * time.Hour).Unix(),
		}}
		kinds = []string{"limit"}
	}
	if e.pool == "claude" { // what the service says of a subscription that is used up
		reset := strconv.FormatInt(time.Now().Add(3*time.Hour).Unix(), 10)
		fail = modelstub.Fail{Status: 429, Message: "This request would exceed your account's rate limit. Please try again later.", Header: map[string]string{
			"anthropic-ratelimit-unified-status": "rejected", "anthropic-ratelimit-unified-reset": reset, "anthropic-ratelimit-unified-representative-claim": "five_hour",
			"anthropic-ratelimit-unified-5h-status": "rejected", "anthropic-ratelimit-unified-5h-reset": reset, "anthropic-ratelimit-unified-5h-utilization": "1.0",
			"retry-after": "10800", "x-should-retry": "false",
		}}
		kinds = []string{"limit"}
		key := e.env
		e.env = func(url string) []string {
			env := slices.DeleteFunc(key(url), func(entry string) bool { return strings.HasPrefix(entry, "ANTHROPIC_API_KEY=") })
			return append(env, "CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-x")
		}
	}
	c := newCell(t, e, nil, modelstub.Step{Fail: &fail})
	c.endOn("limit", "throttle")
	end := c.question(nil, prompt).wait()
	got := c.expectEnding(end, "failed", kinds...)
	if kinds[0] == "limit" && len(kinds) == 1 && (got.Until.Before(time.Now().Add(2*time.Hour)) || got.Until.After(time.Now().Add(3*time.Hour))) {
		t.Errorf("it is limited until %v, want about 3 hours%s", got.Until, c.describe(end))
	}
	if got.Kind == "throttle" { // spaces starts, and never parks (P3)
		c.expectQuota("throttle", "free")
		return fmt.Sprintf("failed: throttle, status %d; starts are spaced", end.code)
	}
	parked := c.expectQuota("parked")
	if !got.Until.IsZero() && parked.Until.Before(got.Until) {
		t.Errorf("it is parked until %v, and the limit lasts until %v", parked.Until, got.Until)
	}
	c.expectNoStart("parked")
	return fmt.Sprintf("failed: limit, status %d; parked, and the next start waits", end.code)
}

// account is what handsel knows of the engine's account.
type account struct {
	Code  string    `json:"code"`
	Until time.Time `json:"until"`
}

// expectQuota: what the engine's stream said is known to whoever starts next.
func (c *cell) expectQuota(codes ...string) account {
	c.t.Helper()
	var said struct{ Accounts []account }
	cmd := exec.Command(os.Getenv("HANDSEL_BIN"), "quota", "show", c.engine.pool, "--json")
	cmd.Env = c.environment()
	out, err := cmd.Output()
	c.must(err)
	c.must(json.Unmarshal(out, &said))
	if len(said.Accounts) != 1 || !slices.Contains(codes, said.Accounts[0].Code) {
		c.t.Fatalf("quota show says %s, want %q", out, codes)
	}
	return said.Accounts[0]
}

// expectNoStart: the next start is refused for the account's sake, and the model
// hears nothing of it.
func (c *cell) expectNoStart(code string) {
	c.t.Helper()
	before := len(c.stub.Log())
	end := c.question([]string{"--wait", "0"}, prompt).wait()
	var got struct {
		Outcome string
		Reason  struct{ Class, Code string }
	}
	c.must(json.Unmarshal(c.bytes(c.outcome()), &got))
	if end.code != 75 || got.Outcome != "refused" || got.Reason.Class != "quota" || got.Reason.Code != code {
		c.t.Errorf("the next start: %+v%s", got, c.describe(end))
	}
	if n := len(c.stub.Log()); n != before {
		c.t.Errorf("the model had %d requests more", n-before)
	}
}

// agentLogin: a login that is not valid is told as that, and the run ends early
// where the configuration asks for it.
func agentLogin(t *testing.T, e engine) string {
	c := newCell(t, e, nil, modelstub.Step{Fail: &modelstub.Fail{Status: 401, Message: "the key is not valid any more"}})
	c.endOn("login")
	end := c.question(nil, prompt).wait()
	c.expectEnding(end, "failed", "login")
	c.expectQuota("login")
	c.expectNoStart("login")
	return fmt.Sprintf("failed: login, status %d, after %s; paused, and the next start waits", end.code, end.took.Round(time.Second))
}

// agentRetrying: while the engine tries again by itself, status says so.
func agentRetrying(t *testing.T, e engine) string {
	c := newCell(t, e, nil, modelstub.Step{Fail: &modelstub.Fail{Status: 529, Message: "overloaded"}})
	run := c.question(nil, prompt)
	said := ""
	for began := time.Now(); said == "" && time.Since(began) < patience/2; time.Sleep(100 * time.Millisecond) {
		said = c.trouble()
	}
	c.must(run.cmd.Process.Signal(os.Interrupt))
	end := run.wait()
	if !strings.HasPrefix(said, "engine re") {
		t.Errorf("status never said that the engine is held up%s", c.describe(end))
	}
	c.expectFree()
	return "status: " + said
}

// trouble is what status says that the agent is held up by.
func (c *cell) trouble() string {
	c.t.Helper()
	var s struct {
		Agents []struct{ Trouble *struct{ Text string } }
	}
	cmd := exec.Command(os.Getenv("HANDSEL_BIN"), "status", "--json")
	cmd.Env = c.environment()
	out, err := cmd.Output()
	c.must(err)
	c.must(json.Unmarshal(out, &s))
	for _, a := range s.Agents {
		if a.Trouble != nil {
			return a.Trouble.Text
		}
	}
	return ""
}

// bigMark stands at the end of an answer of 20 MB.
const bigMark = "END-OF-THE-ANSWER"

// agentBig: a line of 20 MB neither ends the stream nor loses the result, and what
// the engine printed is kept.
func agentBig(t *testing.T, e engine) string {
	c := newCell(t, e, nil, modelstub.Step{Text: strings.Repeat("0123456789abcde\n", 20<<20>>4) + bigMark, Piece: 20 << 20})
	c.patience *= 3 // pi prints it several times over
	end := c.question(nil, prompt).wait()
	c.expectEnding(end, "succeeded")
	if len(end.stdout) < 64<<10 || len(end.stdout) < 20<<20 && !strings.Contains(end.stderr, "logs --raw") {
		t.Errorf("%d bytes of the answer on stdout%s", len(end.stdout), c.describe(end))
	}
	logs := exec.Command("sh", "-c", `exec "$HANDSEL_BIN" logs --raw $(ls "$HANDSEL_HOME"/runs/*) | grep -c `+bigMark)
	logs.Env = append(c.environment(), "HANDSEL_BIN="+os.Getenv("HANDSEL_BIN"))
	if out, err := logs.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) == "0" {
		t.Errorf("the end of the answer is not in the raw log: %s, %v", out, err)
	}
	return fmt.Sprintf("succeeded; %d kB printed, all of it kept", len(end.stdout)>>10)
}

// agentResume: the second turn goes on with the first's conversation.
func agentResume(t *testing.T, e engine) string {
	c := newCell(t, e, nil, modelstub.Step{Text: "FIRST-ANSWER"})
	first := c.question(nil, "the first question").wait()
	session := c.expectEnding(first, "succeeded").Session
	if session == "" {
		t.Fatalf("no conversation is told of%s", c.describe(first))
	}
	c.must(os.RemoveAll(filepath.Join(c.state, "runs")))
	c.stub.Play(modelstub.Step{Text: "SECOND-ANSWER"})
	end := c.question([]string{"--resume", session}, "the second question").wait()
	c.expectEnding(end, "succeeded")
	log := c.stub.Log()
	if body := string(log[len(log)-1].Body); !strings.Contains(body, "FIRST-ANSWER") || !strings.Contains(body, "the second question") {
		t.Errorf("the model did not see the conversation%s", c.describe(end))
	}
	if !strings.Contains(end.stdout, "SECOND-ANSWER") {
		t.Errorf("stdout is not the answer%s", c.describe(end))
	}
	return "succeeded; the model saw the first turn"
}

// agentStall: the idle limit ends an engine that gets nothing more from its model.
func agentStall(t *testing.T, e engine) string {
	c := newCell(t, e, nil, modelstub.Step{Stall: true})
	end := c.question([]string{"--idle", "8s"}, prompt).wait()
	if end.code != 124 {
		t.Errorf("status %d%s", end.code, c.describe(end))
	}
	got := c.expectEnding(end, "failed", "stalled")
	return fmt.Sprintf("failed: %s, after %s", got.Kind, end.took.Round(time.Second))
}

// agentCancelled: cancel in the middle of a turn ends the whole tree.
func agentCancelled(t *testing.T, e engine) string {
	waiting := make(chan struct{}, 16)
	c := newCell(t, e, nil,
		modelstub.Step{Shell: leave},
		modelstub.Step{Stall: true, Before: func(modelstub.Request) { waiting <- struct{}{} }})
	watch := c.watch(func([]child) { c.expectHeld() })
	run := c.question(nil, prompt)
	select {
	case <-waiting:
	case <-time.After(patience):
		t.Error("the engine never came back with the tool's result")
	}
	cancel := exec.Command(os.Getenv("HANDSEL_BIN"), "cancel", "engine:"+c.engine.pool)
	cancel.Env = c.environment()
	if out, err := cancel.CombinedOutput(); err != nil {
		t.Errorf("cancel: %v: %s", err, out)
	}
	end := run.wait()
	c.expectGone(watch.seen())
	got := c.expectEnding(end, "failed")
	if got.Outcome != "cancelled" {
		t.Errorf("the outcome is %q", got.Outcome)
	}
	return "cancelled; three children gone, slots free"
}

// endOn makes handsel end a run whose engine meets one of these.
func (c *cell) endOn(faults ...string) {
	c.t.Helper()
	path := filepath.Join(c.home, "handsel.toml")
	c.must(os.WriteFile(path, []byte(fmt.Sprintf("[engine.%s]\nend_on = [\"%s\"]\n", c.engine.pool, strings.Join(faults, `", "`))), 0o600))
	c.give(path)
	c.config = path
}
