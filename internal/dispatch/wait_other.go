//go:build unix && !linux

package dispatch

import (
	"context"

	"github.com/handsel/handsel/internal/proc"
)

// waitEnd returns when the process that c names has ended, or ctx.
func waitEnd(ctx context.Context, c proc.Claim) { watchEnd(ctx, c) }
