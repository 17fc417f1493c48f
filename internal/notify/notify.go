// Package notify tells commands of changes of state (P13).
//
// It guarantees that telling never blocks whoever tells; that at most a few
// commands run at once, each for its own time; that one command is told of one
// change once, whichever of its kinds fit; and that of a command that keeps
// failing only the first failure is said. It does not keep what it has to tell
// across the end of the process: a state is on record elsewhere, and this is the
// bell.
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/record"
)

// Change is one change of state, as a command gets it on its stdin.
type Change struct {
	V       int            `json:"v"`
	At      record.Time    `json:"at"`
	Kind    string         `json:"kind"`  // the kind that the command asked for
	Kinds   []string       `json:"kinds"` // all that fit, the narrowest first
	Lane    string         `json:"lane,omitempty"`
	Attempt string         `json:"attempt,omitempty"` // or the run
	Verb    string         `json:"verb,omitempty"`    // of a direct run
	Engine  string         `json:"engine,omitempty"`
	Account string         `json:"account,omitempty"`
	State   string         `json:"state"`
	Outcome string         `json:"outcome,omitempty"`
	Result  string         `json:"result,omitempty"`
	Failure string         `json:"failure,omitempty"` // why an agent failed (E11)
	Exit    *int           `json:"exit_code,omitempty"`
	Signal  int            `json:"signal,omitempty"`
	Until   record.Time    `json:"until,omitzero"`
	Reason  *record.Reason `json:"reason,omitempty"`
	Author  string         `json:"author,omitempty"`
	By      string         `json:"by,omitempty"` // who decided
	Home    string         `json:"home"`
}

// End is how something ended, as far as it decides what is told.
type End struct {
	Outcome, Result, Kind string
	Reason                *record.Reason
	ExitCode              *int
	Review                bool // it waits for a verdict now
}

// Kinds are the kinds of a change that is an end, the narrowest first.
func (e End) Kinds() []string {
	switch {
	case e.Outcome == record.Lost:
		return []string{"lost"}
	case e.Reason != nil && e.Reason.Code == "displaced":
		return []string{"displaced"}
	case e.Outcome == record.Cancelled:
		return []string{"cancelled"}
	case e.Result == record.Succeeded, e.Result == "" && e.Outcome == record.Exited && e.ExitCode != nil && *e.ExitCode == 0:
		if e.Review {
			return []string{"review", "succeeded"}
		}
		return []string{"succeeded"}
	case e.Kind == "limit", e.Kind == "login":
		return []string{e.Kind, "failed"}
	}
	return []string{"failed"}
}

// Chosen are the commands that are told of a change, each with what it gets.
func Chosen(rules []config.Notify, c Change) (all []Telling) {
	c.V = 1
	for _, r := range rules {
		for _, kind := range c.Kinds {
			if slices.Contains(r.On, kind) {
				c.Kind = kind
				all = append(all, Telling{r, c})
				break
			}
		}
	}
	return all
}

// Telling is one command and what it is to be told.
type Telling struct {
	Rule   config.Notify
	Change Change
}

// Text is what the command gets.
func (t Telling) Text() []byte {
	text, err := json.Marshal(t.Change)
	if err != nil {
		// Only a time outside of all years comes here, and none is shown then.
		t.Change.At, t.Change.Until = record.Time{}, record.Time{}
		text, _ = json.Marshal(t.Change)
	}
	return append(text, '\n')
}

const (
	// AtOnce is how many commands of one process run at a time.
	AtOnce = 4
	// waiting is how many more may wait for their turn. What is beyond is not
	// told, and counted.
	waiting = 1024
)

// Teller runs commands beside whoever tells.
type Teller struct {
	// Rules is asked for each change: the configuration may have changed.
	Rules func() []config.Notify
	// Run runs one command and returns when all of it is over; its time is the
	// command's to keep.
	Run func(context.Context, Telling) error
	// Said is told, once each, of a command that fails and of what was not told.
	Said func(text string)

	mu      sync.Mutex
	line    []Telling
	running int
	dropped int
	failing map[string]bool
	closed  bool
	stop    context.CancelFunc
	life    context.Context //nolint:containedctx // of the commands, which outlive the call that told
	idle    chan struct{}   // closed when nothing runs; nil: nobody waits for that
}

// Wants tells whether any command is to be told of changes of that kind.
func (t *Teller) Wants(kind string) bool {
	return t != nil && slices.ContainsFunc(t.Rules(), func(r config.Notify) bool { return slices.Contains(r.On, kind) })
}

// Tell has the commands told that the change concerns. It returns at once.
func (t *Teller) Tell(c Change) {
	if t == nil {
		return
	}
	all := Chosen(t.Rules(), c)
	if len(all) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.life == nil {
		t.life, t.stop = context.WithCancel(context.Background())
	}
	for _, one := range all {
		if len(t.line) >= waiting {
			if t.dropped++; t.dropped == 1 {
				t.Said(fmt.Sprintf("more than %d changes wait to be told: the next are not", waiting))
			}
			continue
		}
		t.line = append(t.line, one)
	}
	for n := 0; t.running < AtOnce && n < len(t.line); n++ {
		t.running++
		go t.work()
	}
}

func (t *Teller) work() {
	for {
		t.mu.Lock()
		if len(t.line) == 0 || t.life.Err() != nil {
			if t.running--; t.running == 0 && t.idle != nil {
				close(t.idle)
				t.idle = nil
			}
			t.mu.Unlock()
			return
		}
		one := t.line[0]
		t.line = t.line[1:]
		if len(t.line) == 0 {
			t.line, t.dropped = nil, 0
		}
		t.mu.Unlock()
		t.ran(one, t.Run(t.life, one))
	}
}

// ran says of a command that it fails, once until it works again.
func (t *Teller) ran(one Telling, err error) {
	key := strings.Join(one.Rule.Command, "\x00")
	t.mu.Lock()
	first := err != nil && !t.failing[key] && t.life.Err() == nil
	if t.failing == nil {
		t.failing = map[string]bool{}
	}
	t.failing[key] = err != nil
	t.mu.Unlock()
	if first {
		t.Said(fmt.Sprintf("a command of [[notify]] fails (%s): %v", one.Rule.From, err))
	}
}

// Close lets what runs go on for a while, then ends it. What waits by then is not
// told. Nothing of it is left when it returns.
func (t *Teller) Close(patience time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.closed = true
	if t.running == 0 {
		t.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	t.idle = idle
	t.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		t.stop()
		<-idle
	}
	t.stop()
}
