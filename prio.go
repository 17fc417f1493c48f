package handsel

import (
	"context"
	"fmt"
	"strconv"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/record"
)

// Acted is what the dispatcher did with one attempt.
type Acted = api.Done

// SetPriority changes the priority of a waiting attempt, and so its place: one
// step is worth a minute of waiting (C5). Its start stays. The error is
// *NoDispatcher or *SilentDispatcher where nobody can do it (69), *Settled for
// what waits no longer.
func (h *Home) SetPriority(ctx context.Context, x string, priority int) (*Acted, error) {
	if err := mayDecide("prio"); err != nil {
		return nil, err
	}
	if priority < -maxPriority || priority > maxPriority {
		return nil, &BadOption{"priority", strconv.Itoa(priority), "it must be a whole number from -1000 to 1000"}
	}
	w := h.look(ctx)
	defer w.close()
	k, err := w.one(x)
	if err != nil {
		return nil, err
	}
	if !w.answers() {
		return nil, w.silent
	}
	done, err := w.client.Prio(ctx, api.Target{Attempt: k.ID}, priority)
	if isCode(err, api.CodeNotFound) {
		return nil, &Settled{Verb: "prio", Run: *k}
	}
	return done, err
}

// one is the single attempt or run that X means.
func (w *world) one(x string) (*KnownRun, error) {
	found, err := w.find(x, true)
	switch {
	case err != nil:
		return nil, err
	case len(found) > 1:
		return nil, &Ambiguous{Name: x, Fits: idsOf(found)}
	}
	return &found[0], nil
}

// Settled refuses what only makes sense in another state of an attempt or run.
type Settled struct {
	Verb string
	Run  KnownRun
}

// Code is the reason code of the refusal.
func (e *Settled) Code() string {
	switch {
	case e.Run.Ended():
		return api.CodeEnded
	case e.Run.State == record.Queued:
		return api.CodeQueued
	}
	return CodeLaneOwned
}

// Retryable tells whether the same may be asked again later: what goes on will
// end, and what has been claimed waits no more.
func (e *Settled) Retryable() bool { return e.Verb == "retry" && !e.Run.Ended() }

// Reason is the refusal in the words of C13.
func (e *Settled) Reason() *Reason {
	return &Reason{Class: "ownership", Code: e.Code(), Message: e.Error(), Retryable: e.Retryable()}
}

func (e *Settled) Error() string {
	what := "run " + e.Run.ID
	if e.Run.Lane != "" {
		what = fmt.Sprintf("lane %s (attempt %s)", strconv.QuoteToASCII(e.Run.Lane), e.Run.ID)
	}
	return fmt.Sprintf("%s: %s is %s", e.Verb, what, e.Run.Word())
}
