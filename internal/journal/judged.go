package journal

import "time"

// Judged is what the journal tells of an attempt's review (P12): when a reviewer
// first did something about it, when it was accepted, when it went out. Zero is
// not yet. A later verdict does not move an earlier one.
type Judged struct {
	First    time.Time
	Verdict  time.Time // the first that was accepted or rejected
	Accepted time.Time
	Released time.Time
}

// What a reviewer does, and what follows (P7 to P9).
const (
	Checked  = "checked" // acceptance: had the policy's checks run; decides nothing
	Accepted = "accepted"
	Rejected = "rejected"
	Released = "released"
)

// Add takes an event of the attempt in. It is false for one that says nothing of
// this.
func (j *Judged) Add(e *Event) bool {
	set := func(at *time.Time) {
		if at.IsZero() {
			*at = e.At
		}
	}
	switch {
	case e.Permission == Release && e.What == Released:
		set(&j.Released)
		return true
	case e.Permission != Acceptance:
		return false
	}
	set(&j.First)
	if e.What == Accepted || e.What == Rejected {
		set(&j.Verdict)
	}
	if e.What == Accepted {
		set(&j.Accepted)
	}
	return true
}
