package dispatch

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lease"
)

// An account without capacity holds no other back, however many groups of its rows
// would stand in line before it (P3); and one of them stands to see its end.
func TestParkedGroupsLeaveRoomInLine(t *testing.T) {
	cleared := make(chan struct{})
	w := newWorld(t, true, func(c *Config) {
		admits := c.Admit
		c.Admit = func(ctx context.Context, r *attempt.Row, told func(lease.Waiting)) (*lease.Lease, error) {
			if r.Placement.Engine == "claude" {
				told(lease.Waiting{Class: "quota", Code: "parked"})
				select {
				case <-cleared:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return admits(ctx, r, told)
		}
	})
	var parked []string
	for i := range maxStands + 2 {
		l := w.launcher(fmt.Sprintf("l%d", i))
		l.row.Placement.Engine, l.row.Placement.Pools = "claude", []string{fmt.Sprintf("p%d", i)}
		w.accepted(l)
		parked = append(parked, l.row.ID)
	}
	other := w.launcher("other")
	other.row.Placement.Engine = "codex"
	w.accepted(other)
	w.until(other.row.ID, attempt.Starting)
	close(cleared)
	for !slices.ContainsFunc(parked, func(id string) bool {
		r, ok := w.rowOf(id)
		return ok && r.State == attempt.Starting
	}) {
		w.breathe()
	}
}
