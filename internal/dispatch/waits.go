//go:build unix

package dispatch

import (
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/record"
)

// waited is how long a row waited for one thing.
type waited struct {
	why string // class/code of the reason
	d   time.Duration
}

// account adds what has passed since the row was last looked at to what it waited
// for then (P12). It is asked whenever that may change, and every poll, so what
// changed without a word is wrong by no more. While the row is offered it waits
// for a driver, which is the claim's duration and not the queue's.
func (d *Dispatcher) account(r *row, now time.Time) {
	passed := now.Sub(r.counted)
	first := r.counted.IsZero()
	if r.counted = now; first || passed <= 0 || r.offer != nil {
		return
	}
	why := d.waitsFor(r)
	d.meters.waited(why, passed)
	for i := range r.waited {
		if r.waited[i].why == why {
			r.waited[i].d += passed
			return
		}
	}
	if len(r.waited) < attempt.MaxReasons {
		r.waited = append(r.waited, waited{why, passed})
	}
}

// standsFor notes what a row that stands in line waits for now. Those behind it
// wait for the same, and are brought up to date at the next poll: all of them at
// each change would be too many.
func (d *Dispatcher) standsFor(s *stand, w lease.Waiting) {
	if d.rows[s.row.ID] == s.row && s.group.stand == s {
		d.account(s.row, time.Now())
	}
	s.last = w
	d.again = d.again || len(d.groups) > maxStands // another may have its stand
}

// accountAll is account for every row. It is asked every poll.
func (d *Dispatcher) accountAll() {
	now := time.Now()
	for _, r := range d.rows {
		d.account(r, now)
	}
}

// waitsFor is what reason says, as class/code. Texts that are put together here
// are shared: ten thousand rows mostly wait for the same.
func (d *Dispatcher) waitsFor(r *row) string {
	g := r.group
	switch {
	case r.why != nil:
		return d.reasonKey(r.why.Class, r.why.Code)
	case g != nil && g.stand != nil && g.stand.last.Code != "":
		return d.reasonKey(waitClass(g.stand.last), g.stand.last.Code)
	case g != nil && len(g.ready) > 0 && g.ready[0] != r:
		return "resource/queue"
	}
	return "resource/line"
}

func (d *Dispatcher) reasonKey(class, code string) string {
	key := [2]string{class, code}
	text, ok := d.reasons[key]
	if !ok {
		if d.reasons == nil || len(d.reasons) > maxWords {
			d.reasons = map[[2]string]string{}
		}
		text = class + "/" + code
		d.reasons[key] = text
	}
	return text
}

// waitedFor is what a row waited for, in seconds, for whoever drives it to write
// down; nil where nothing is known.
func (r *row) waitedFor() map[string]float64 {
	var out map[string]float64
	for _, w := range r.waited {
		if s := record.Seconds(w.d); s > 0 {
			if out == nil {
				out = map[string]float64{}
			}
			out[w.why] = s
		}
	}
	return out
}

// waitedAgain goes on with the account of a row that came back from a driver.
func (r *row) waitedAgain(before map[string]float64) {
	for why, s := range before {
		r.waited = append(r.waited, waited{why, time.Duration(s * float64(time.Second))})
	}
	r.WaitedFor = nil
}
