package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lease"
)

// L13: rows that stand in line for different pools may be admitted at once, and
// yet no more of them are offered than may be open at a time; the others give
// their leases back, and keep their places.
func TestRowsAdmittedAtOnceAreOfferedInTurn(t *testing.T) {
	shut := newRoom(false)
	const rows = 4
	var asked, given atomic.Int32
	atOnce := make(chan struct{}) // all have slots, and none of them is left to the loop yet
	w := newWorld(t, false, func(c *Config) {
		c.Starting = 1
		admit := shut.admit(c.Home)
		c.Admit = func(ctx context.Context, r *attempt.Row, why func(lease.Waiting)) (*lease.Lease, error) {
			asked.Add(1)
			l, err := admit(ctx, r, why)
			if l != nil {
				if given.Add(1) == rows {
					close(atOnce)
				}
				<-atOnce
			}
			return l, err
		}
	})
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
	<-atOnce
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

// P3: a row is admitted when its slots were taken, however long the word of it was
// on its way: what is ordered in between is nothing that it went by.
func TestRowIsAdmittedWhenItsSlotsWereTaken(t *testing.T) {
	taken, told := make(chan time.Time, 1), make(chan struct{})
	w := newWorld(t, true, func(c *Config) {
		admit := c.Admit
		c.Admit = func(ctx context.Context, r *attempt.Row, say func(lease.Waiting)) (*lease.Lease, error) {
			l, err := admit(ctx, r, say)
			if l != nil {
				taken <- time.Now()
				<-told
			}
			return l, err
		}
	})
	l := w.enqueue("x")
	at := <-taken
	for time.Since(at) < 20*time.Millisecond { // rows have milliseconds
		w.breathe()
	}
	close(told)
	w.until(l.row.ID, attempt.Starting)
	row, err := w.d.db.Find(l.row.ID)
	if err != nil || row.Row.AdmittedAt.After(at) {
		t.Errorf("admitted at %v, %v; its slots were taken by %v", row.Row.AdmittedAt, err, at)
	}
}
