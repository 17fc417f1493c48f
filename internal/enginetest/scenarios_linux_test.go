//go:build engines

package enginetest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/modelstub"
)

// scenario is one column: it plays, fails t when the claim does not hold, and
// says in a few words what was seen.
type scenario struct {
	name string
	play func(*testing.T, engine) string
}

// ordinary is nobody in particular: an ordinary user without privileges.
const ordinary = 65534

var scenarios = []scenario{
	{"version", version},
	{"version | cat", versionPiped},
	{"turn, without handsel", alone},
	{"turn", turn},
	{"turn, ordinary user", turnOrdinary},
	{"API error", apiError},
	{"SIGTERM in the turn", terminated},
	{"agent", agentTurn},
	{"agent: limit", agentLimit},
	{"agent: login", agentLogin},
	{"agent: retrying", agentRetrying},
	{"agent: 20 MB", agentBig},
	{"agent: resume", agentResume},
	{"agent: stall", agentStall},
	{"agent: cancel", agentCancelled},
}

// TestRealEnginesRunUnchangedAndLeaveNothing is what we say of the CLIs
// people use: unchanged output and status (S20), and an end that takes the
// whole tree (S21, S21a), whatever the engine itself leaves behind.
func TestRealEnginesRunUnchangedAndLeaveNothing(t *testing.T) {
	listed, err := cannot()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel() // an engine waits for its model most of the time
			for _, s := range scenarios {
				if _, ok := listed[[2]string{e.name, s.name}]; ok {
					continue // the table shows the reason
				}
				t.Run(s.name, func(t *testing.T) {
					var result string
					defer func() {
						if t.Failed() || result == "" {
							result = "FAILED, see above"
						}
						table.set(e.name, s.name, result)
					}()
					result = s.play(t, e)
				})
			}
		})
	}
}

// version: the same bytes and status as without us.
func version(t *testing.T, e engine) string {
	c := newCell(t, e, nil)
	plain := c.run(nil, "--version")
	with := c.run(c.under(), "--version")
	said := strings.TrimSpace(plain.stdout + plain.stderr) // pi says it on stderr
	if plain.code != 0 || said == "" {
		t.Errorf("without handsel: status %d, %q", plain.code, said)
	}
	c.expectSame(plain, with)
	c.expectGone(nil)
	return fmt.Sprintf("%s; same bytes, status %d", said, with.code)
}

// versionPiped: a pipe behind us, as people type it.
func versionPiped(t *testing.T, e engine) string {
	c := newCell(t, e, nil)
	plain := c.run(nil, "--version")
	line := `"$0" run -- "$1" --version | cat`
	with := c.launch([]string{"sh", "-c", line, os.Getenv("HANDSEL_BIN"), e.path(t)}).wait()
	c.expectSame(plain, with)
	c.expectGone(nil)
	return fmt.Sprintf("same bytes, status %d", with.code)
}

// turnScript leaves three children behind and ends.
var turnScript = []modelstub.Step{{Text: "I will run it.", Shell: leave}, {Text: "Done."}}

// alone is the control: the harness sees what an engine leaves behind when
// nobody cleans up. Without survivors here the other scenarios prove little,
// so claude, which leaves them all, must do so.
func alone(t *testing.T, e engine) string {
	c := newCell(t, e, nil, turnScript...)
	watch := c.watch(nil)
	end := c.run(nil, e.turn...)
	children := watch.seen()
	survivors := alive(children)
	c.expectTurn(end, 0)
	if e.name == "claude" && len(survivors) != len(ways) {
		t.Errorf("survivors without handsel: %v, want %v", survivors, ways)
	}
	if len(survivors) == 0 {
		return fmt.Sprintf("status %d; it ends all three itself", end.code)
	}
	return fmt.Sprintf("status %d; survivors: %s", end.code, strings.Join(survivors, " "))
}

func turn(t *testing.T, e engine) string { return turnAs(t, e, nil) }

func turnOrdinary(t *testing.T, e engine) string {
	if os.Getuid() != 0 {
		return turnAs(t, e, nil) // we are one
	}
	return turnAs(t, e, &syscall.Credential{Uid: ordinary, Gid: ordinary})
}

// turnAs is one headless turn under handsel as a user.
func turnAs(t *testing.T, e engine, user *syscall.Credential) string {
	c := newCell(t, e, user, turnScript...)
	watch := c.watch(func(children []child) {
		c.expectHeld()
		c.expectStatus(1)
		c.expectMarked(children)
	})
	end := c.run(c.under(), e.turn...)
	children := watch.seen()
	c.expectGone(children)
	c.expectTurn(end, 0)
	c.expectTold("exited", end.code)
	c.expectStatus(0)
	return fmt.Sprintf("status %d; three children gone, slots free, %s", end.code, end.took.Round(100*time.Millisecond))
}

// apiError: a refused request ends an engine in its own way (gemini's exit
// status 400 & 0xff is 144, which is no signal), and that way passes through.
func apiError(t *testing.T, e engine) string {
	refusal := modelstub.Step{Fail: &modelstub.Fail{Status: 400, Message: "scripted refusal"}}
	plain := newCell(t, e, nil, refusal).run(nil, e.turn...)
	c := newCell(t, e, nil, refusal)
	end := c.run(c.under(), e.turn...)
	if end.code != plain.code || end.signal != plain.signal {
		t.Errorf("status %d (signal %d), without handsel %d (%d)%s", end.code, end.signal, plain.code, plain.signal, c.describe(end))
	}
	c.expectGone(nil)
	c.expectTold("exited", end.code)
	return fmt.Sprintf("status %d both ways, slots free", end.code)
}

// terminated: SIGTERM to handsel while the model keeps the engine waiting and
// the children are there (S22).
func terminated(t *testing.T, e engine) string {
	waiting := make(chan struct{}, 16)
	c := newCell(t, e, nil,
		modelstub.Step{Shell: leave},
		modelstub.Step{Stall: true, Before: func(modelstub.Request) { waiting <- struct{}{} }})
	watch := c.watch(func([]child) { c.expectHeld() })
	run := c.start(c.under(), e.turn...)
	select {
	case <-waiting:
	case <-time.After(patience):
		t.Error("the engine never came back with the tool's result")
	}
	sent := time.Now()
	c.must(run.cmd.Process.Signal(syscall.SIGTERM))
	end := run.wait()
	took := time.Since(sent)
	children := watch.seen()
	c.expectGone(children)
	if end.signal != syscall.SIGTERM {
		t.Errorf("ended with status %d (signal %d), want by SIGTERM%s", end.code, end.signal, c.describe(end))
	}
	c.expectTold("cancelled", -1)
	if took > patience { // 5 s for TERM, 5 s for KILL (S21), and a busy machine
		t.Errorf("ending took %s", took)
	}
	return fmt.Sprintf("by SIGTERM after %s; three children gone, slots free", took.Round(100*time.Millisecond))
}

// expectSame: the two endings cannot be told apart.
func (c *cell) expectSame(plain, with ended) {
	c.t.Helper()
	if with.code != plain.code || with.signal != plain.signal {
		c.t.Errorf("status %d (signal %d), without handsel %d (%d)", with.code, with.signal, plain.code, plain.signal)
	}
	if with.stdout != plain.stdout {
		c.t.Errorf("stdout %q, without handsel %q", with.stdout, plain.stdout)
	}
	if with.stderr != plain.stderr {
		c.t.Errorf("stderr %q, without handsel %q", with.stderr, plain.stderr)
	}
}

// expectTurn: the engine really ran the command and told the model so, by the
// stub's log, and ended with this status.
func (c *cell) expectTurn(end ended, code int) {
	c.t.Helper()
	results := c.stub.Results()
	if !slices.ContainsFunc(results, func(r modelstub.Result) bool { return strings.Contains(r.Text, leftMark) }) {
		c.t.Errorf("no tool result with %q came back%s", leftMark, c.describe(end))
	}
	if end.code != code || end.signal != 0 {
		c.t.Errorf("status %d (signal %d), want %d%s", end.code, end.signal, code, c.describe(end))
	}
}

// expectMarked: what the agent starts carries the run and its depth (S24),
// unless it threw its environment away.
func (c *cell) expectMarked(children []child) {
	c.t.Helper()
	for _, one := range children {
		if marked := one.run != "-" && one.depth == "1"; marked != (one.how != "scrubbed") {
			c.t.Errorf("child %s sees HANDSEL_RUN=%s HANDSEL_AGENT_DEPTH=%s", one.how, one.run, one.depth)
		}
	}
}

// expectGone: nothing of the tree is left the moment handsel has ended, by the
// children's identities and by what the tree carried in its environment, and
// every slot is free.
func (c *cell) expectGone(children []child) {
	c.t.Helper()
	if left := alive(children); len(left) > 0 {
		c.t.Errorf("children alive after the run: %v", left)
	}
	for _, one := range withEnv(c.t, c.mark) {
		c.t.Errorf("process of the tree alive after the run: %s", one)
	}
	for _, one := range children {
		if one.run == "-" {
			continue
		}
		for _, left := range withEnv(c.t, "HANDSEL_RUN="+one.run) {
			c.t.Errorf("process of run %s alive after it: %s", one.run, left)
		}
	}
	c.expectFree()
}
