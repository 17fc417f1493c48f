//go:build unix

package dispatch

import (
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/notify"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
)

// tellPatience is how long commands that are being told may go on when the
// dispatcher ends.
const tellPatience = 2 * time.Second

// changed is a change of an attempt, for whoever is told of it (P13).
func (d *Dispatcher) changed(r *attempt.Row, state string, kinds ...string) notify.Change {
	return notify.Change{
		At: record.At(machine.Now()), Kinds: kinds, Lane: r.Lane, Attempt: r.ID, Engine: r.Placement.Engine, State: state, Author: r.Author, Home: d.cfg.Home.Path,
	}
}

func (d *Dispatcher) tellAttempt(a *open, kind string) {
	d.cfg.Teller.Tell(d.changed(&a.row, runningState, kind))
}

// tellEnd tells of an end that is written.
func (d *Dispatcher) tellEnd(r *attempt.Row, end *queue.End) {
	how := notify.End{Outcome: end.Outcome, Result: end.Result, Kind: end.Kind, Reason: end.Reason, ExitCode: end.ExitCode}
	if end.Outcome == record.Exited && d.cfg.Teller.Wants("review") {
		run, err := record.Load(d.cfg.Home, r.ID) // its driver wrote there that it waits for a verdict
		how.Review = err == nil && run.Review == review.Pending
	}
	c := d.changed(r, record.Ended, how.Kinds()...)
	c.Outcome, c.Result, c.Failure, c.Reason, c.Exit, c.Signal = end.Outcome, end.Result, end.Kind, end.Reason, end.ExitCode, end.Signal
	d.cfg.Teller.Tell(c)
}

// tellHeld tells of a lane that is held because nobody claims it.
func (d *Dispatcher) tellHeld(r *attempt.Row, o hold.Order) {
	c := d.changed(r, attempt.Queued, "held")
	c.Reason = &record.Reason{Class: "hold", Code: o.Code, Message: o.Reason, Retryable: true}
	d.cfg.Teller.Tell(c)
}
