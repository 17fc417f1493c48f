//go:build unix

package dispatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

// orders is what holds/ said when it was last read.
type orders struct {
	hold.Orders
	lane map[string]bool // lanes that an order names
}

// judge finds out whether r may be admitted now, and puts it among those that
// may or takes it away. What only pools can answer is not asked here: that is
// the line's business.
func (d *Dispatcher) judge(r *row) {
	if r.offer != nil || r.leaving {
		d.unready(r)
		return
	}
	d.account(r, time.Now())
	before := code(r.why)
	r.why = d.blocked(r)
	if r.why == nil {
		d.ready(r)
	} else {
		d.unready(r)
		d.remind(r)
	}
	if code(r.why) != before {
		d.show(r)
	}
}

func code(r *record.Reason) string {
	if r == nil {
		return ""
	}
	return r.Code
}

// remind judges r again when its reason may have ended by itself; at least once
// a minute, because the wall clock may jump (C092).
func (d *Dispatcher) remind(r *row) {
	if r.why.Until.IsZero() {
		return
	}
	wait := min(max(r.why.Until.Sub(machine.Now()), 0)+time.Millisecond, time.Minute)
	time.AfterFunc(wait, func() {
		d.post(func() {
			if d.rows[r.ID] == r {
				d.judge(r)
			}
		})
	})
}

// blocked says why r may not be admitted now, whatever room there is.
func (d *Dispatcher) blocked(r *row) *record.Reason {
	switch {
	case r.hold == nil && d.fds.full():
		return &record.Reason{Class: "resource", Code: codeDescriptors, Message: "the dispatcher has no descriptor left for this lane's lock", Retryable: true}
	case r.hold == nil:
		return &record.Reason{Class: "ownership", Code: "lane_busy", Message: "its lane's lock is not the dispatcher's yet: whoever handed it over has not let go", Retryable: true}
	case d.ordered.lane[r.Lane]:
		for _, o := range d.ordered.All {
			if o.Scope == "lane:"+r.Lane {
				return &record.Reason{Class: "hold", Code: o.Code, Message: orderText(o), Until: record.At(o.Until), Retryable: true}
			}
		}
	case machine.Now().Before(r.NotBefore.Time):
		return &record.Reason{Class: "time", Code: "not_before", Message: "it was asked not to start earlier", Until: record.At(r.NotBefore.Time), Retryable: true}
	case time.Now().Before(r.retry):
		return &record.Reason{
			Class: "time", Code: "back_off", Message: "its last start was not taken: " + r.LastFailure,
			Until: record.At(machine.Now().Add(time.Until(r.retry))), Retryable: true,
		}
	}
	return d.behind(r)
}

func orderText(o hold.Order) string {
	text := fmt.Sprintf("%s is on %s", o.Kind, o.Scope)
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	if o.By != "" {
		text += " (by " + o.By + ")"
	}
	return text
}

// behind says which of the lanes that r comes after keeps it.
func (d *Dispatcher) behind(r *row) *record.Reason {
	for _, a := range r.After {
		state, err := d.after(a)
		switch {
		case err != nil:
			d.cfg.Log.Error("look up a dependency", "lane", r.Lane, "after", a.Attempt, "error", err)
			return &record.Reason{Class: "dependency", Code: "dependency_unknown", Message: fmt.Sprintf("what became of %q cannot be read", a.Lane), Until: record.At(machine.Now().Add(poll)), Retryable: true}
		case state == met:
			continue
		case state == unmet:
			return &record.Reason{Class: "dependency", Code: "dependency_failed", Message: fmt.Sprintf("it comes after the success of lane %q, which ended without (handsel retry, or cancel this one)", a.Lane)}
		default:
			return &record.Reason{Class: "dependency", Code: "dependency", Message: fmt.Sprintf("it comes after lane %q", a.Lane), Retryable: true}
		}
	}
	return nil
}

// A dependency is pending until what it is on has ended, and then met or not.
type dependency int

const (
	pending dependency = iota
	met
	unmet
)

// after tells how things stand with what a row comes after. A retry of the
// lane counts for the attempt that was meant.
func (d *Dispatcher) after(a attempt.After) (dependency, error) {
	if d.rows[a.Attempt] != nil || d.attempts[a.Attempt] != nil {
		return pending, nil
	}
	at, err := d.db.Find(a.Attempt)
	if err != nil || at == nil {
		return unmet, err
	}
	if last, err := d.db.LastOfLane(a.Lane); err == nil && last != nil && last.Row.ID > at.Row.ID && !(a.Any || succeeded(at)) {
		at = last
	}
	switch {
	case at.State != record.Ended:
		return pending, nil
	case a.Any || succeeded(at):
		return met, nil
	}
	return unmet, nil
}

// succeeded tells whether an attempt that has ended went well: by its result,
// where somebody read one (E11), and else by its status.
func succeeded(at *queue.Attempt) bool {
	if at.Result != "" {
		return at.Result == record.Succeeded
	}
	return at.Outcome == record.Exited && at.ExitCode != nil && *at.ExitCode == 0
}

// look is done now and then for what no event tells.
func (d *Dispatcher) look() {
	d.relisten()
	d.readOrders()
	d.regain()
	d.overlooked()
	d.sweep()
	d.prune()
	d.accountAll()
}

// overlooked finds attempts whose end is on record although nobody told us, as
// when a driver that lives on did not get through to us (L17).
func (d *Dispatcher) overlooked() {
	for _, a := range d.attempts {
		if a.state != runningState || a.looked {
			continue
		}
		a.looked = true
		d.asideBy(func() func() {
			end, ended := d.outcome(a.id)
			return func() {
				a.looked = false
				if ended && d.attempts[a.id] == a {
					d.endAttempt(a, end)
				}
			}
		})
	}
}

// readOrders reads holds/ and judges the rows whose lanes are named now, or were
// before. Orders on pools and engines are consulted by whoever stands in line.
func (d *Dispatcher) readOrders() {
	list, err := hold.List(d.cfg.Home.Holds())
	if err != nil {
		d.cfg.Log.Error("read the holds", "error", err)
		return
	}
	was := d.ordered.lane
	d.ordered = orders{Orders: list, lane: map[string]bool{}}
	for _, o := range list.All {
		if name, ok := strings.CutPrefix(o.Scope, "lane:"); ok {
			d.ordered.lane[name] = true
		}
	}
	for _, named := range []map[string]bool{was, d.ordered.lane} {
		for name := range named {
			if r := d.rows[d.lanes[name]]; r != nil {
				d.judge(r)
			}
		}
	}
}

// regain takes the locks of rows that were left without one: descriptors were
// short, or whoever handed the lane over has not let go yet.
func (d *Dispatcher) regain() {
	if d.fds.short == 0 {
		return
	}
	for _, r := range d.rows {
		if r.hold == nil && d.lockRow(r) {
			d.judge(r)
		}
	}
	d.hasten()
}

// regainNap is how soon a lane is tried again that only waits for somebody to let
// go: nothing tells when that happens, and until we have it anybody may take it.
const regainNap = 20 * time.Millisecond

// hasten has regain look again soon, for as long as there is a row without its
// lane and room for it.
func (d *Dispatcher) hasten() {
	if d.hastened || d.fds.short == 0 || d.fds.full() {
		return
	}
	d.hastened = true
	time.AfterFunc(regainNap, func() {
		d.post(func() {
			d.hastened = false
			d.regain()
		})
	})
}
