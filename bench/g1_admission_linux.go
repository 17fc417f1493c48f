package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/proc"
)

// admissions measures G1: admission with release, and a refusal, in a pool
// whose other slots are held, against the system calls that S5 to S10 ask for.
func (b *bench) admissions(ctx context.Context) error {
	for _, size := range []struct {
		limit int
		goal  float64
		calls int
	}{{8, 1.3, b.pick(1000, 300)}, {64, 1.5, b.pick(300, 80)}} {
		if err := b.admissionsAt(ctx, size.limit, size.goal, size.calls); err != nil {
			return fmt.Errorf("cap %d: %w", size.limit, err)
		}
	}
	return nil
}

func (b *bench) admissionsAt(ctx context.Context, limit int, goal float64, calls int) error {
	p, err := b.fill(limit)
	if err != nil {
		return err
	}
	defer p.empty()

	bare := &bareLine{waiting: p.at.Waiting, pool: filepath.Join(p.at.Leases, p.pool.Name), limit: limit}
	got, err := b.race(ctx,
		way{"lease.Acquire", calls, timed(p.admit)},
		way{"bare system calls", calls, timed(bare.admit)},
		way{"handsel.Acquire", calls, timed(p.admitPublic)},
	)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("admission + release, %d of %d held", limit-1, limit)
	b.report.against("G1", what, got[0].p50, "same calls, bare", got[1].p50, goal)
	b.report.against("", "… by the public door, configuration read", got[2].p50, "same calls, bare", got[1].p50, 0)

	if err := p.hold(); err != nil {
		return err
	}
	got, err = b.race(ctx,
		way{"refusal by lease.Acquire", calls, timed(p.refusal)},
		way{"bare system calls", calls, timed(bare.refusal)},
	)
	if err != nil {
		return err
	}
	b.report.against("G1", fmt.Sprintf("refusal, %d of %d held", limit, limit), got[0].p50, "same calls, bare", got[1].p50, goal)
	return nil
}

// pool is one whose slots are held for a process that sleeps.
type pool struct {
	home    *handsel.Home
	at      lease.Places
	pool    lease.Pool
	held    []*lease.Lease
	child   proc.ID
	sleeper *exec.Cmd
}

const poolName = "bench"

// fill makes a pool with all slots but one held.
func (b *bench) fill(limit int) (*pool, error) {
	path := b.home()
	vars := map[string]string{"HANDSEL_HOME": path, "HANDSEL_MAX_AGENTS_BENCH": fmt.Sprint(limit)}
	h, err := handsel.OpenWith(func(name string) string { return vars[name] })
	if err != nil {
		return nil, err
	}
	p := &pool{
		home: h, pool: lease.Pool{Name: poolName, Cap: limit, CapFrom: "bench"},
		at: lease.Places{Leases: filepath.Join(path, "leases"), Waiting: filepath.Join(path, "waiting")},
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	p.sleeper = exec.Command("sleep", "600")
	if err := p.sleeper.Start(); err != nil {
		return nil, err
	}
	if p.child, err = proc.Identify(p.sleeper.Process.Pid); err != nil {
		p.empty()
		return nil, err
	}
	for range limit - 1 {
		if err := p.hold(); err != nil {
			p.empty()
			return nil, err
		}
	}
	return p, nil
}

func (p *pool) acquire() (*lease.Lease, error) {
	return lease.Acquire(context.Background(), p.at, lease.Want{
		Pools:    func() ([]lease.Pool, error) { return []lease.Pool{p.pool}, nil },
		Workload: lease.GateWorkload, Run: "01a22d7d-cbd1-7ce7-be5b-d1d6f74bee91", Argv0: "true",
	})
}

// hold takes one more slot, with a record as long as that of a running agent.
func (p *pool) hold() error {
	l, err := p.acquire()
	if err != nil {
		return err
	}
	p.held = append(p.held, l)
	return l.RecordChild(p.child)
}

func (p *pool) admit() error {
	l, err := p.acquire()
	if err != nil {
		return err
	}
	return l.Release()
}

func (p *pool) admitPublic() error {
	l, err := p.home.Acquire(context.Background(), handsel.Start{Pools: []string{poolName}, Only: true})
	if err != nil {
		return err
	}
	return l.Release()
}

var errAdmitted = errors.New("admitted into a full pool")

func (p *pool) refusal() error {
	l, err := p.acquire()
	if err == nil {
		return errors.Join(errAdmitted, l.Release())
	}
	if refused := new(lease.Refused); errors.As(err, &refused) && refused.Waited < time.Second {
		return nil
	}
	return err
}

func (p *pool) empty() {
	for _, l := range p.held {
		_ = l.Release()
	}
	killAll([]*exec.Cmd{p.sleeper})
}
