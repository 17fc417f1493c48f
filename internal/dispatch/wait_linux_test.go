package dispatch

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/proc"
)

// An end is noticed whenever it comes: also between the first look at the process
// and the wait for it, when its only event is over before anybody waits.
func TestNoEndIsMissed(t *testing.T) {
	for i := range 400 {
		c := exec.Command("sleep", "60")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		id, err := proc.Identify(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		killed := make(chan error, 1)
		go func() {
			for range i % 20 * 500 { // now before, now after the wait begins
				_ = ctx.Err()
			}
			killed <- c.Process.Kill()
		}()
		waitEnd(ctx, id.Claim())
		if err := ctx.Err(); err != nil {
			t.Fatalf("round %d: the end was missed: %v", i, err)
		}
		stop()
		if err := <-killed; err != nil {
			t.Error(err)
		}
		_ = c.Wait() // it was killed
	}
}
