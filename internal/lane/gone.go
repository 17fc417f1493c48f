package lane

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/handsel/handsel/internal/proc"
)

// pollEvery is how often a process is looked at whose end the kernel does not
// tell of, jittered by a quarter either way (S15). Tests change it.
var pollEvery = 2 * time.Second

// poll returns when the process has ended, the time is over or ctx ends.
func poll(ctx context.Context, c proc.Claim, until time.Time) {
	for proc.Judge(c) != proc.Gone {
		nap := min(pollEvery*3/4+rand.N(pollEvery/2), time.Until(until))
		if nap <= 0 {
			return
		}
		t := time.NewTimer(nap)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}
