package runs

import (
	"time"

	"github.com/handsel/handsel/internal/lease"
)

// Known judges the runs of these ids at one look. What nothing is known of is
// left out.
func (p Place) Known(ids ...string) map[string]Run {
	n := p.look()
	known := make(map[string]Run, len(ids))
	for _, id := range ids {
		if r, ok := n.get(id); ok {
			known[id] = r
		}
	}
	return known
}

// OwnAncestors tells whether a start that waits for these pools waits for slots
// of which none comes free before the asking process ends (S13); nil if not.
func (p Place) OwnAncestors(r Run, pools []lease.Pool) *lease.Refused {
	r.ticket = &ticket{pools: pools}
	return p.look().ownAncestors(&r)
}

// OwnRun tells whether the asking process is part of r.
func OwnRun(r *Run) bool { return isAround(r) }

// TimeOf is the moment in a run's id.
func TimeOf(id string) (time.Time, bool) { return timeOf(id) }
