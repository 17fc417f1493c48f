//go:build !linux

package lane

import (
	"context"
	"time"

	"github.com/handsel/handsel/internal/proc"
)

// untilGone returns when the process has ended, the time is over or ctx ends.
func untilGone(ctx context.Context, c proc.Claim, until time.Time) { poll(ctx, c, until) }
