package handsel

import (
	"context"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/record"
)

// Retry queues the work of an attempt that ended once more: a new attempt of the
// same lane, with the old one's start and priority (L18, L20), and its count of
// failed starts begun anew (C031). The error is *Inside from within an agent,
// *NoDispatcher or *SilentDispatcher where nobody can do it, *Settled while the
// attempt has not ended: the remedy is to wait.
func (h *Home) Retry(ctx context.Context, x string) (*Acted, error) {
	if err := nest.Check(); err != nil {
		return nil, err
	}
	w := h.look(ctx)
	defer w.close()
	k, err := w.one(x)
	switch {
	case err != nil:
		return nil, err
	case !k.Ended():
		return nil, &Settled{Verb: "retry", Run: *k}
	case k.Lane == "":
		return nil, &NoLane{k.ID}
	case !w.answers():
		return nil, w.silent
	}
	done, err := w.client.Retry(ctx, api.Target{Attempt: k.ID})
	if isCode(err, api.CodeNotFound) {
		return nil, &NoLane{k.ID}
	}
	return done, err
}

// NoLane refuses to start a direct run again: nothing of its command was kept.
type NoLane struct{ Run string }

func (e *NoLane) Error() string {
	return "retry: run " + e.Run + " was not enqueued, so its command was not kept: run it again"
}

// Reason is the refusal in the words of C13.
func (e *NoLane) Reason() *Reason {
	return &record.Reason{Class: "config", Code: "not_enqueued", Message: e.Error()}
}
