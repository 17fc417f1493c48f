package handsel

import (
	"context"

	"github.com/handsel/handsel/internal/runs"
)

// Cancelled is what became of a run that was to be cancelled.
type Cancelled = runs.Cancelled

// What Cancel did, as Cancelled.Did has it.
const (
	CancelAlreadyEnded = runs.AlreadyEnded
	CancelDone         = runs.WasCancelled
	CancelLost         = runs.WasLost
	CancelStillEnding  = runs.StillEnding
	CancelNotDone      = runs.NotDone
)

// Cancel ends a run with all of its tree and waits until nothing of it is left,
// for a bounded time. Cancelling what has ended is no error (C053). From inside
// an agent only its own descendants can be cancelled; else *NotYours (C15).
func (h *Home) Cancel(ctx context.Context, r KnownRun) (*Cancelled, error) {
	at, _ := h.runsPlace()
	return at.Cancel(ctx, r)
}
