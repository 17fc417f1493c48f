package handsel

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
)

// passing is what a direct run writes into the journal (P11): what it took, once
// its agent runs, and its end. Both are one write beside the agent, and neither
// can fail the run. An attempt's transfers are the dispatcher's events.
type passing struct {
	mu      sync.Mutex
	pending []journal.Event
	began   bool  // something of it passed
	failed  error // why something could not be written; told once, at the end

	// What the run waited for, by class/code of the reason (P12).
	waitsFor string
	since    time.Time
	waited   map[string]time.Duration
}

// pass notes a transfer. It is written with the next flush.
func (j *job) pass(e journal.Event) {
	if j.passing == nil {
		return // an attempt's
	}
	e.At, e.Attempt, e.Engine, e.Lane = machine.Now(), j.id, j.engine, j.laneName()
	j.passing.mu.Lock()
	defer j.passing.mu.Unlock()
	j.passing.pending, j.passing.began = append(j.passing.pending, e), true
}

func supervisor() string { return "handsel, pid " + strconv.Itoa(os.Getpid()) }

// tookLane notes that the lane is ours.
func (j *job) tookLane() {
	j.pass(journal.Event{Permission: journal.Ownership, What: journal.Taken, From: "nobody", To: supervisor(), Evidence: []string{"the lane's lock is held"}})
}

// wasAdmitted notes which slots are ours.
func (j *job) wasAdmitted(l *Lease) {
	e := journal.Event{Permission: journal.Resource, What: journal.Admitted, From: "pools", To: supervisor(), WaitedS: record.Seconds(j.laneWait + l.Waited())}
	for _, s := range l.Slots() {
		e.Evidence = append(e.Evidence, fmt.Sprintf("slot %s/%d", s.Pool, s.Index))
	}
	if len(e.Evidence) == 0 {
		e.From, e.Text = "", "nothing is counted"
	}
	j.pass(e)
}

// runs writes down what was taken, now that the agent is there.
func (p *passing) runs(h *Home, child int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	for i := range p.pending {
		if p.pending[i].What == journal.Admitted {
			p.pending[i].Identity = "agent, pid " + strconv.Itoa(child)
		}
	}
	p.mu.Unlock()
	p.flush(h)
}

func (p *passing) flush(h *Home) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := h.transferred(p.pending...); err != nil && p.failed == nil {
		p.failed = fmt.Errorf("not everything that passed is on record: %w", err)
	}
	p.pending = nil
}

// over writes down the end of what took something.
func (j *job) over(out *Outcome) error {
	p := j.passing
	if p == nil || !p.began || j.rec.failed != nil { // a home that keeps no record keeps no journal, and has said so
		return nil
	}
	e := journal.Event{
		Permission: journal.Ownership, What: journal.Ended, From: supervisor(), To: "nobody", Evidence: []string{"run.json of " + j.id},
		Outcome: out.Outcome.Outcome, Result: out.Result, WaitedS: record.Seconds(out.Waited), WaitedFor: j.waitedFor(), Text: howItEnded(out),
	}
	if !out.Started.IsZero() {
		e.RanS = record.Seconds(out.Ended.Sub(out.Started))
	}
	if out.SlotsKept {
		e.To, e.Code = "an agent that could not be ended", "survivors"
	}
	j.pass(e)
	p.flush(j.home)
	return p.failed
}

func howItEnded(out *Outcome) string {
	switch {
	case out.Kind != "" && out.Outcome.Outcome == record.Exited:
		return fmt.Sprintf("exited %d: %s", out.ExitCode, out.Kind)
	case out.Outcome.Outcome == record.Exited:
		return fmt.Sprintf("exited %d", out.ExitCode)
	case out.Signal != 0:
		return fmt.Sprintf("%s %d", out.Outcome.Outcome, int(out.Signal))
	}
	return out.Outcome.Outcome
}

// waits notes what the run waits for, each time that is something else, and
// tells the caller.
func (j *job) waits(w Waiting) {
	j.passing.waits(cmp.Or(w.Class, classOf(w.Code))+"/"+w.Code, time.Now())
	if j.o.OnWait != nil {
		j.o.OnWait(w)
	}
}

// waits accounts for the wait so far, and goes on for another reason; an empty
// one ends it.
func (p *passing) waits(reason string, now time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waitsFor != "" {
		if p.waited == nil {
			p.waited = map[string]time.Duration{}
		}
		p.waited[p.waitsFor] += now.Sub(p.since)
	}
	p.waitsFor, p.since = reason, now
}

// waitedFor is how long the run waited for what, in seconds: of an attempt, as
// far as its dispatcher has counted.
func (j *job) waitedFor() map[string]float64 {
	if j.passing == nil {
		return j.waitedAs
	}
	j.passing.waits("", time.Now())
	j.passing.mu.Lock()
	defer j.passing.mu.Unlock()
	return secondsOf(j.passing.waited)
}

func secondsOf(waited map[string]time.Duration) map[string]float64 {
	var out map[string]float64
	for reason, d := range waited {
		if s := record.Seconds(d); s > 0 {
			if out == nil {
				out = map[string]float64{}
			}
			out[reason] = s
		}
	}
	return out
}

// ordered writes down an order, or that it was taken back, as of the time before
// that was on disk: what followed from it does not stand before it. That it could
// not be written is no reason not to give it.
func (h *Home) ordered(now time.Time, what string, orders ...Order) {
	var events []journal.Event
	for _, o := range orders {
		e := journal.Event{At: now, Permission: journal.Resource, What: what, By: orderedBy(), Code: o.Code, Text: o.Reason, Identity: o.Scope, Until: o.Until, Evidence: []string{"holds/"}}
		switch kind, name, _ := cutScope(o.Scope); kind {
		case "lane":
			e.Lane = name
		case "engine":
			e.Engine = name
		}
		events = append(events, e)
	}
	_ = h.transferred(events...) // the order itself is on disk, and whoever looks for it reads that
}

// wasCancelled writes down who asked for a run's end, where it was going.
func (h *Home) wasCancelled(out *Cancelled) {
	if out == nil || !slices.Contains([]string{CancelDone, CancelLost, CancelStillEnding}, out.Did) {
		return
	}
	_ = h.transferred(journal.Event{
		Permission: journal.Ownership, What: journal.Cancelled, Attempt: out.Run.ID, Lane: out.Run.Lane, Engine: out.Run.Engine,
		By: orderedBy(), Code: out.Did, Text: out.Message,
	})
}

func cutScope(scope string) (kind, name string, ok bool) { return strings.Cut(scope, ":") }
