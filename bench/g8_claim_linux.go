package main

import (
	"context"
	"time"
)

// claims measures G8: from a slot's release to the driver's acknowledgement, with
// lane and slot in the driver's hands. Two commits lie between, and the start of
// a process, which is measured beside and taken off.
func (b *bench) claims(ctx context.Context) error {
	r, err := b.relay(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	k, err := b.keeping(ctx, 1, r.command()...)
	if err != nil {
		return err
	}
	defer k.kill()
	disk, err := b.flusher()
	if err != nil {
		return err
	}
	defer disk.close()

	n, lanes := b.pick(100, 30), 0
	var claims [][]time.Duration // of each call, from the offer's arrival on
	got, err := b.race(ctx,
		way{"admit and claim", n, func() ([]time.Duration, error) {
			lanes++
			whole, claim, err := k.handOver(ctx, r, laneName(lanes))
			claims = append(claims, []time.Duration{claim})
			return []time.Duration{whole}, err
		}},
		way{"pwrite and fdatasync", n, timed(disk.flush)},
		way{"a driver that does nothing", n, timed(r.bare)},
	)
	if err != nil {
		return err
	}
	ours := max(got[0].p50-got[2].p50, 0)
	b.report.against("G8", "slot freed → claimed, descriptors back, acknowledged, less the driver's start, p50", ours, "pwrite + fdatasync of 4 KiB", got[1].p50, 4)
	b.report.add(row{what: "… the driver's start included", ours: short(got[0].p50), beside: short(got[2].p50) + " start of a driver that does nothing"})
	b.report.against("", "… of it the claim", middle(claims), "pwrite + fdatasync of 4 KiB", got[1].p50, 0)
	return nil
}

func middle(samples [][]time.Duration) time.Duration {
	var all []time.Duration
	for _, s := range samples {
		all = append(all, s...)
	}
	return quantile(all, 0.5)
}

// handOver has one row wait for a slot that we hold, gives it back, and claims
// what is offered.
func (k *keeper) handOver(ctx context.Context, r *relay, name string) (whole, claim time.Duration, err error) {
	held, err := occupy(ctx, k.home)
	if err != nil {
		return 0, 0, err
	}
	defer held.Release() //nolint:errcheck // it is released by then
	if err := k.enqueue(ctx, name, "true"); err != nil {
		return 0, 0, err
	}
	time.Sleep(3 * time.Millisecond) // it stands in line
	start := time.Now()
	if err := held.Release(); err != nil {
		return 0, 0, err
	}
	o, err := r.next(30 * time.Second)
	if err != nil {
		return 0, 0, err
	}
	offered := time.Now()
	c, err := o.claim(ctx, k.home)
	if err != nil {
		return 0, 0, err
	}
	end := time.Now()
	return end.Sub(start), end.Sub(offered), c.Abandon()
}
