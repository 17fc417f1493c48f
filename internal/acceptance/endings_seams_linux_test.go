//go:build failpoint

package acceptance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// killedEndings is how many runs TestSeamRecordsOfKilledRuns makes; with
// HANDSEL_SOAK a hundred.
const killedEndings = 12

// killedAt are the steps of a run at which handsel is killed, in their order:
// first those at which its agent lives, last the one at which all is on record.
var killedAt = []string{"run.spawned", "run.identified", "run.recorded", "run.ended", "run.released", "job.recorded"}

// found is what runs says of the run with a label, and its totals.
func (p *place) found(label string) (r struct {
	told
	Orphaned bool
}, succeeded int) {
	p.t.Helper()
	var list struct {
		Totals struct{ Succeeded int }
		Runs   []json.RawMessage
	}
	out, _ := must(p.t, "exit 0", p.handsel("runs", "--json", "--label", label))
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Runs) != 1 {
		p.t.Fatalf("%d records, %v: %s", len(list.Runs), err, out)
	}
	if err := json.Unmarshal(list.Runs[0], &r); err != nil {
		p.t.Fatal(err)
	}
	return r, list.Totals.Succeeded
}

// TestSeamRecordsOfKilledRuns is E13 and C024: of a run whose supervisor is
// killed is said that its agent lives, then that it is lost, and how it ended
// once that is on record. It is never said to have succeeded when nobody knows.
func TestSeamRecordsOfKilledRuns(t *testing.T) {
	t.Parallel()
	many := killedEndings
	if os.Getenv("HANDSEL_SOAK") != "" {
		many = 100
	}
	p := plays(t)
	rng := rand.New(rand.NewPCG(seed(t), 1))
	for n := range many {
		e, step := anEnding(rng), killedAt[n%len(killedAt)]
		e.stays, e.shut = false, false
		t.Run(fmt.Sprint(n, step), func(t *testing.T) {
			t.Parallel()
			e.killed(p.of(t), n, step)
		})
	}
}

// killed runs an ending whose supervisor is killed at a step.
func (e ending) killed(p *place, n int, step string) {
	t := p.t
	name, label := fmt.Sprintf("plan-%d", n), "n="+strconv.Itoa(n)
	script, _ := e.script()
	gate, note := p.file(name+".gate"), p.file(name+".pid")
	lives := slices.Index(killedAt, step) < slices.Index(killedAt, "run.ended")
	if lives {
		if err := unix.Mkfifo(gate, 0o622); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(gate, 0o666); err != nil {
			t.Fatal(err)
		}
		script = "echo $$ >" + note + "\nread go <" + gate + "\n" + script
	}
	p.write(name, script)
	fired := p.file(name + ".fired")
	q := p.with("PLAN="+p.file(name), "HANDSEL_FAILPOINT="+step+"=kill", "HANDSEL_FAILPOINT_LOG="+fired)
	if end, _, errs := ends(t, q.handsel(e.argv("--account", accountOf(n), "--label", label)...)); end != "signal SIGKILL" {
		t.Fatalf("%s: %s, it said %q", step, end, errs)
	}
	if text, _ := os.ReadFile(fired); !strings.Contains(string(text), step) {
		t.Fatalf("the step was not reached: %q", text)
	}
	if lives {
		eventually(t, "the agent has begun", func() bool { return exists(note) })
		if r, _ := p.found(label); r.State != "running" || !r.Orphaned || r.Result != "" || r.Outcome != "" {
			t.Errorf("%s: while its agent lives: %+v", step, r)
		}
		w, err := os.OpenFile(gate, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		eventually(t, "the agent is gone", func() bool { r, _ := p.found(label); return r.State == "ended" })
	}
	r, succeeded := p.found(label)
	if step == "job.recorded" {
		if wrong := e.wrong(r.told); len(wrong) > 0 {
			t.Errorf("%+v: %q", e, wrong)
		}
		return
	}
	if r.State != "ended" || r.Outcome != "lost" || r.Result != "" || r.ExitCode != nil || r.Orphaned || succeeded != 0 {
		t.Errorf("%s: it is said to be %+v", step, r)
	}
}
