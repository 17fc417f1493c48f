package handsel

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/nest"
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
// for a bounded time. An attempt that waits is taken out of the queue, for which
// the dispatcher is needed: *NoDispatcher or *SilentDispatcher. Cancelling what
// has ended is no error (C053). From inside an agent only its own descendants can
// be cancelled; else *NotYours (C15).
func (h *Home) Cancel(ctx context.Context, r KnownRun) (*Cancelled, error) {
	out, err := h.cancel(ctx, r)
	if err == nil {
		h.wasCancelled(out)
	}
	return out, err
}

func (h *Home) cancel(ctx context.Context, r KnownRun) (*Cancelled, error) {
	at, _ := h.runsPlace()
	waits := isWaiting(&r) || h.claimed(ctx, &r)
	for until := time.Now().Add(runs.CancelPatience); ; time.Sleep(claimNap) {
		if waits {
			out := &Cancelled{Run: r, Did: runs.NotDone}
			driven, err := h.cancelWaiting(ctx, at, out)
			if driven == nil {
				if err != nil {
					out.Message = err.Error()
				}
				return out, err
			}
			r = *driven
		}
		out, err := at.Cancel(ctx, r)
		if !errors.Is(err, runs.ErrOffered) || time.Now().After(until) || ctx.Err() != nil {
			if err == nil && out.Did == runs.WasCancelled {
				h.laneLeft(ctx, &out.Run)
			}
			return out, err
		}
		waits = true // it is the dispatcher's until somebody claims it
	}
}

// claimed tells whether a run of which there is no record yet is an attempt that
// a dispatcher keeps. Whoever has it may not have begun: to end him would give
// the attempt back to the queue, and it would be started again.
func (h *Home) claimed(ctx context.Context, r *KnownRun) bool {
	if r.Ended() || slices.Contains(r.Sources, runs.FromRecord) {
		return false
	}
	client, err := api.Dial(h.dir)
	if err != nil {
		return false
	}
	defer client.Close()
	list, err := client.Attempts(ctx, api.Filter{Attempt: r.ID})
	return err == nil && len(list.Attempts) == 1 && list.Attempts[0].State != "ended"
}

// laneLeft waits a moment for a supervisor whose run has ended to let go of its
// lane, which it does last (L17).
func (h *Home) laneLeft(ctx context.Context, r *KnownRun) {
	if r.Lane == "" {
		return
	}
	for until := time.Now().Add(time.Second); ctx.Err() == nil && time.Now().Before(until); time.Sleep(claimNap) {
		seen, err := lane.Look(h.dir, r.Lane)
		if err != nil || seen.State == lane.Free || seen.Record == nil || seen.Record.Run != r.ID {
			return
		}
	}
}

// isWaiting tells of an attempt that was last seen in the queue.
func isWaiting(r *KnownRun) bool {
	return slices.Contains(r.Sources, FromQueue) || slices.Contains(r.Sources, FromEntry)
}

// claimNap is how long an attempt that was just claimed is given to show itself.
const claimNap = 20 * time.Millisecond

// cancelWaiting asks the dispatcher to end an attempt that waits. One that was
// claimed meanwhile is returned: its driver ends it.
func (h *Home) cancelWaiting(ctx context.Context, at runs.Place, out *Cancelled) (driven *KnownRun, err error) {
	if inside, ok := nest.Check().(*Inside); ok { //nolint:errorlint // Check returns it bare, and nil is no error
		return nil, &NotYours{Run: out.Run.ID, Inside: inside}
	}
	ctx, stop := context.WithTimeout(ctx, runs.CancelPatience)
	defer stop()
	client, err := api.Dial(h.dir)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for {
		done, err := client.Cancel(ctx, api.Target{Attempt: out.Run.ID})
		if err != nil {
			return nil, err
		}
		if now, ok := at.Known(out.Run.ID)[out.Run.ID]; ok && !offered(&now) {
			out.Run = now
		}
		switch {
		case done.Did == "cancelled":
			out.Did, out.Message = runs.WasCancelled, "taken out of the queue"
		case done.State == "ended":
			out.Did, out.Message = runs.AlreadyEnded, "already ended: "+done.Outcome
		case !isWaiting(&out.Run):
			return &out.Run, nil
		default:
			select {
			case <-time.After(claimNap):
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		out.Run.State, out.Run.Outcome = done.State, done.Outcome
		return nil, nil
	}
}
