package runs

import (
	"context"
	"time"
)

// eyes see nothing on Windows: whoever waits looks again from time to time.
type eyes struct{ done <-chan struct{} }

func newEyes(ctx context.Context) (*eyes, error) { return &eyes{ctx.Done()}, nil }

func (*eyes) close()                 {}
func (*eyes) watch(Place, *Run) bool { return false }
func (*eyes) blind([]Run) bool       { return true }
func (*eyes) forget(string)          {}

func (e *eyes) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-e.done:
	}
}
