//go:build unix

package dispatch

import (
	"context"
	"time"

	"github.com/handsel/handsel/internal/proc"
)

// watchNap is how often a process is looked at where the kernel does not tell
// of its end.
const watchNap = 200 * time.Millisecond

// watchEnd is waitEnd by looking again and again.
func watchEnd(ctx context.Context, c proc.Claim) {
	t := time.NewTicker(watchNap)
	defer t.Stop()
	for proc.Judge(c) != proc.Gone {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
