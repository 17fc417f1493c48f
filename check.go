package handsel

import (
	"fmt"
	"time"

	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/lease"
)

// check is the admission check of a start (P1): the orders in holds/, then the
// engine account's quota, then the machine's pressure. Pools come last, and are
// the lease's. The first that says no decides, and Why asks them all.
func (a *asker) check() lease.Answer {
	for _, ask := range []func() lease.Answer{a.ordered, a.quota, a.pressure} {
		if answer := ask(); answer != (lease.Answer{}) {
			return answer
		}
	}
	return lease.Answer{}
}

// ordered asks the orders in holds/, which bind every start, counted or not.
// While the directory cannot be read, nobody knows what is held, and nothing
// starts.
func (a *asker) ordered() lease.Answer {
	orders, err := hold.List(a.home.dir.Holds())
	if err != nil {
		return lease.Answer{Err: err}
	}
	for _, p := range orders.Problems {
		a.note(p.Error())
	}
	a.orders = orders
	o, ok := orders.MatchLane(a.who().String(), a.names(), a.start.lane)
	if !ok {
		return lease.Answer{}
	}
	return lease.Answer{Code: string(o.Kind), Message: orderText(o), Until: o.Until}
}

func orderText(o hold.Order) string {
	text := fmt.Sprintf("%s is on %s", o.Kind, o.Scope)
	if o.Kind == hold.Drain {
		text = "starts are being drained"
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	if o.By != "" {
		text += " (by " + o.By + ")"
	}
	return text + untilText(o.Until)
}

func untilText(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return ", until " + until.UTC().Format("2006-01-02 15:04:05 UTC")
}

// note tells the caller, once, of something that holds nobody back and should.
func (a *asker) note(text string) {
	if a.start.onNote != nil && !a.noted[text] {
		if a.noted == nil {
			a.noted = map[string]bool{}
		}
		a.noted[text] = true
		a.start.onNote(text)
	}
}
