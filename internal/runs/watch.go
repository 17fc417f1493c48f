package runs

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/record"
)

// Watch is for whoever looks at the runs of one home again and again: what has
// ended is read once, and again only when something new is in its directory. It
// belongs to one goroutine. The zero value has seen nothing.
type Watch struct {
	settled map[string]settled
}

// settled is a directory that says the same until something new is made in it:
// of a run that has ended, or without a record.
type settled struct {
	changed time.Time
	run     *Run // nil: there is no record
}

// recent is for how long after a change a directory is read anew: its time tells
// changes apart only as finely as the kernel's clock ticks, some ms.
const recent = 100 * time.Millisecond

// Look judges the runs as List does with the zero Filter, without totals. What
// waits as a row, and has no record, is not among them.
func (w *Watch) Look(p Place) (all []Run, problems []string, err error) {
	began := time.Now()
	stamps, bad, err := record.Stamps(p.Home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, b := range bad {
		problems = append(problems, b.Error())
	}
	now := p.look()
	next, known := make(map[string]settled, len(stamps)), map[string]bool{}
	for _, s := range stamps {
		old, ok := w.settled[s.ID]
		if !ok || !old.changed.Equal(s.Changed) {
			rec, err := record.Load(p.Home, s.ID)
			switch {
			case err == nil:
				r := now.judge(rec)
				old = settled{s.Changed, &r}
				ok = rec.State == record.Ended
			case errors.Is(err, fs.ErrNotExist): // it waits, or is just being made or removed
				old, ok = settled{changed: s.Changed}, true
			default:
				problems = append(problems, err.Error())
				continue
			}
		}
		if ok && began.Sub(s.Changed) > recent {
			next[s.ID] = old
		}
		if old.run != nil {
			known[s.ID] = true
			all = append(all, *old.run)
		}
	}
	w.settled = next
	for _, id := range now.ids() {
		if !known[id] {
			all = append(all, now.withoutRecord(id))
		}
	}
	slices.SortStableFunc(all, func(a, b Run) int { return strings.Compare(b.ID, a.ID) })
	return all, append(problems, now.problems...), nil
}
