//go:build unix

package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/slot"
)

// poolNames lists the pools on disk.
func (s *Snapshot) poolNames(at Places) []string {
	entries, err := os.ReadDir(at.Leases)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		s.problem("pools: %v", err)
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// quiet takes the admission locks, so that no half-done admission is seen. One
// that does not come free within the bound is counted without, and named.
func (s *Snapshot) quiet(ctx context.Context, at Places, names []string) (release func()) {
	var taken []func()
	release = func() {
		for _, f := range slices.Backward(taken) {
			f()
		}
	}
	l, err := line.Open(at.Waiting, false)
	if err == nil {
		f, err := l.LockToLook(ctx, lockPatience)
		l.Close()
		if f != nil {
			taken = append(taken, f.Close)
		}
		if err != nil {
			s.problem("the lock of the line did not come free: counted without it")
		}
	}
	for _, name := range names {
		f, err := lockPool(ctx, at, name)
		if f != nil {
			taken = append(taken, f.Close)
		}
		if errors.Is(err, errStuck) {
			s.problem("pool %q: %v; counted without it", name, err)
		}
	}
	return release
}

func lockPool(ctx context.Context, at Places, name string) (*flock.File, error) {
	p, err := slot.Open(at.Leases, name, false)
	if err != nil {
		return nil, err // counting it will say why
	}
	defer p.Close()
	f, err := p.Dir().Open(slot.AdmissionLock, flock.Look)
	if err != nil {
		return nil, err
	}
	if err := f.Lock(ctx, lockPatience); err != nil {
		err = fmt.Errorf("%w (%s)", errStuck, stuckText(f))
		f.Close()
		return nil, err
	}
	return f, nil
}

// line reads who waits, and judges why by what each recorded.
func (s *Snapshot) line(at Places, counts map[string]slot.Count) {
	l, err := line.Open(at.Waiting, false)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		s.problem("%v", err)
		return
	}
	defer l.Close()
	s.Sources = append(s.Sources, "tickets")
	names, err := l.Names()
	if err != nil {
		s.problem("%v", err)
		return
	}
	for _, name := range names {
		t, err := l.Read(name, false)
		if errors.Is(err, line.ErrDead) {
			continue
		}
		if err != nil {
			s.problem("%v", err)
			continue
		}
		s.Waiting = append(s.Waiting, s.waiter(t, counts))
	}
}

func (s *Snapshot) waiter(t *line.Ticket, counts map[string]slot.Count) Waiter {
	w := Waiter{
		Place: len(s.Waiting) + 1, Run: t.Run, Engine: t.Engine, Workload: t.Workload, Pid: t.Pid,
		Priority: t.Priority, Since: Time{t.Since}, Passes: t.Passes, Reason: "line", Pools: []PoolWish{},
	}
	for _, p := range t.Pools {
		w.Pools = append(w.Pools, PoolWish{p.Name, p.Cap})
		if c := counts[p.Name]; w.Pool == "" && c.Full(p.Cap) {
			w.Reason, w.Pool = "pool_full", p.Name
		}
	}
	switch {
	case t.Parked != nil:
		w.Reason, w.Pool, w.Lane = t.Parked.Code, "", t.Lane
		if t.Parked.Until != nil {
			w.Until = &Time{*t.Parked.Until}
		}
	case t.Stopped():
		w.Reason = "stopped"
	}
	return w
}
