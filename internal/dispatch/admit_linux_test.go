package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lease"
)

// L13: rows that stand in line for different pools may be admitted at once, and
// yet no more of them are offered than may be open at a time; the others give
// their leases back, and keep their places.
func TestRowsAdmittedAtOnceAreOfferedInTurn(t *testing.T) {
	shut := newRoom(false)
	var asked, given atomic.Int32
	w := newWorld(t, false, func(c *Config) {
		c.Starting = 1
		admit := shut.admit(c.Home)
		c.Admit = func(ctx context.Context, r *attempt.Row, why func(lease.Waiting)) (*lease.Lease, error) {
			asked.Add(1)
			l, err := admit(ctx, r, why)
			if l != nil {
				given.Add(1)
			}
			return l, err
		}
	})
	const rows = 4
	for i := range rows {
		l := w.launcher(fmt.Sprint("l", i))
		l.row.Placement.Pools = []string{fmt.Sprint("p", i)} // a group of its own
		w.enter(l)
		w.accepted(l)
	}
	for asked.Load() < rows {
		w.breathe()
	}
	close(shut.open)
	for given.Load() < rows {
		w.breathe()
	}
	for standing := true; standing; w.breathe() {
		w.d.do(func() {
			standing = slices.ContainsFunc(slices.Collect(maps.Values(w.d.groups)), func(g *group) bool { return g.stand != nil })
		})
	}
	w.d.do(func() {
		if w.d.offers != 1 {
			t.Errorf("%d offers are open, and 1 may be", w.d.offers)
		}
	})
}
