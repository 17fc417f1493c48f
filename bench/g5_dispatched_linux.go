package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/proc"
)

// dispatched measures G5 through the dispatcher: sixty rows of 20 ms each wait
// for one slot. Between two agents lie the end of a driver, an admission and
// the start of the next driver.
func (b *bench) dispatched(ctx context.Context) error {
	misplaced, n := 0, b.pick(20, 6)
	got, err := b.race(ctx,
		way{"dispatcher", 1, func() ([]time.Duration, error) {
			events, err := b.queueRows(ctx)
			misplaced += outOfPlace(events)
			return gaps(events), err
		}},
		way{"shell loop", 1, func() ([]time.Duration, error) { return b.shellLoop(ctx) }},
		way{"driver and agent killed", n, func() ([]time.Duration, error) { return b.killDriver(ctx) }},
	)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("by the dispatcher: one agent's end → the next one's start, %d wait", waiters)
	b.report.against("G5", what+", p50", got[0].p50, "shell loop", got[1].p50, 2)
	b.report.atMost("G5", "… p95", got[0].p95, 10*time.Millisecond, short(got[1].p95)+" shell loop")
	b.report.none("G6", fmt.Sprintf("… out of place among %d, in all turns", b.turns*waiters), misplaced, "")
	b.report.atMost("G5", "… driver and agent killed → the next one's start, p95", got[2].p95, 15*time.Millisecond, short(got[2].p50)+" p50")
	return nil
}

// queueRows lets rows wait for a slot that we hold, and then gives it back.
func (b *bench) queueRows(ctx context.Context) ([]event, error) {
	k, err := b.keeping(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer k.kill()
	held, err := occupy(ctx, k.home)
	if err != nil {
		return nil, err
	}
	defer held.Release() //nolint:errcheck // it is released by then
	log := filepath.Join(b.dir(), "log")
	for i := range waiters {
		if err := k.enqueue(ctx, laneName(i), b.stamp, log, strconv.Itoa(i), lifeOf); err != nil {
			return nil, err
		}
	}
	time.Sleep(20 * time.Millisecond) // it stands in line
	if err := held.Release(); err != nil {
		return nil, err
	}
	var events []event
	err = until(ctx, time.Minute, func() (bool, error) {
		time.Sleep(10 * time.Millisecond) // reading the log is not to be in the way
		events, err = readLog(log)
		return len(events) == 2*waiters, err
	})
	return events, errors.Join(err, k.settled(ctx))
}

// settled returns when no row waits and no attempt goes on.
func (k *keeper) settled(ctx context.Context) error {
	return until(ctx, 30*time.Second, func() (bool, error) {
		waiting, going, err := k.rows(ctx)
		return waiting+going == 0, err
	})
}

// killDriver kills a driver and its agent while another row waits.
func (b *bench) killDriver(ctx context.Context) ([]time.Duration, error) {
	k, err := b.keeping(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer k.kill()
	log := filepath.Join(b.dir(), "log")
	if err := k.enqueue(ctx, laneName(0), b.stamp, log, "held", "60000"); err != nil {
		return nil, err
	}
	agent, err := logged(ctx, log, "S", "held")
	if err != nil {
		return nil, err
	}
	defer b.killStamp(agent.pid) //nolint:errcheck // it ends by itself later
	if err := k.enqueue(ctx, laneName(1), b.stamp, log, "next", "0"); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(20+rand.IntN(8)) * time.Millisecond) // it stands in line
	st, err := proc.ReadStat(agent.pid)
	if err != nil {
		return nil, err
	}
	start := monotonic()
	if err := errors.Join(unix.Kill(st.PPid, unix.SIGKILL), b.killStamp(agent.pid)); err != nil {
		return nil, err
	}
	next, err := logged(ctx, log, "S", "next")
	return []time.Duration{time.Duration(next.at - start)}, errors.Join(err, k.settled(ctx))
}
