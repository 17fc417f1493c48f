package handsel

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/nest"
)

// The two ways in which starts wait on a machine (L4).
const (
	ModeWaiter     = "waiter"     // each in its own process, in line
	ModeDispatcher = "dispatcher" // or as a row that a dispatcher keeps
)

// Dispatching is what the configuration says of the dispatcher.
type Dispatching struct {
	Mode     string   // ModeWaiter or ModeDispatcher
	Driver   []string // command of the drivers; empty: our own executable's
	Starting int      // offers that may be open at once; 0: four
	Metrics  string   // the loopback address of /metrics; empty: none
	KeepDays int      // how long records stay; 0: for ever
	KeepSize int64    // how many bytes they may come to; 0: no bound
	AllIsSet bool     // whether the pool `all` has a cap

	Notify []config.Notify // who is told of changes of state (P13)

	marks []config.Mark
}

// Changed tells, cheaply, whether the configuration may say something else by
// now.
func (d *Dispatching) Changed() bool {
	return slices.ContainsFunc(d.marks, func(m config.Mark) bool { return m.Changed() })
}

// Dispatching reads the configuration for a dispatcher. *BadConfig when it does
// not parse.
func (h *Home) Dispatching() (*Dispatching, error) {
	s, err := h.settings()
	if err != nil {
		return nil, err
	}
	n, _ := s.Cap(poolAll)
	d := &Dispatching{Mode: s.Mode, KeepDays: s.KeepDays, KeepSize: s.KeepBytes, AllIsSet: n > 0, marks: s.Marks()}
	d.Driver, d.Starting, d.Metrics, d.Notify = s.Dispatch.Driver, s.Dispatch.Starting, s.Dispatch.Metrics, s.Notify
	return d, nil
}

// QueuedAll is the cap that the pool `all` has for queued work where nobody set
// one: a thousand rows are not to start at once because a cap was forgotten
// (L13a). It is the number of processors.
func QueuedAll() int { return runtime.NumCPU() }

// MayDispatch refuses a dispatcher inside an agent (S26), and one in a home
// where starts wait in their own processes (L4).
func (h *Home) MayDispatch() error {
	if err := nest.Check(); err != nil {
		return err
	}
	d, err := h.Dispatching()
	if err != nil {
		return err
	}
	if d.Mode != ModeDispatcher {
		return &WrongMode{Mode: d.Mode}
	}
	return nil
}

// DispatcherStatus is a running dispatcher as it sees itself.
type DispatcherStatus = api.Status

// Stopping is what a dispatcher leaves behind that was asked to stop.
type Stopping = api.Stopping

// DispatcherStatus asks the dispatcher of this home how it is. The error is
// *NoDispatcher when none runs, *SilentDispatcher when it does not answer.
func (h *Home) DispatcherStatus(ctx context.Context) (*DispatcherStatus, error) {
	c, err := api.Dial(h.dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Status(ctx)
}

// StopDispatcher asks the dispatcher to end, and returns when it has. Rows
// survive, and what runs goes on, unless cancel says to end that too (L22).
func (h *Home) StopDispatcher(ctx context.Context, cancel bool) (*Stopping, error) {
	c, err := api.Dial(h.dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out, err := c.Stop(ctx, api.Stop{CancelRunning: cancel})
	if err != nil {
		return nil, err
	}
	return out, h.dispatcherGone(ctx)
}

// goneNap is how often it is looked whether a dispatcher that was asked to end
// has let go of its lock.
const goneNap = 20 * time.Millisecond

func (h *Home) dispatcherGone(ctx context.Context) error {
	t := time.NewTicker(goneNap)
	defer t.Stop()
	for {
		if _, held := api.Judge(h.dir); !held {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
