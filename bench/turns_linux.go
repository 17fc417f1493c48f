package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// way is one way of doing the same work.
type way struct {
	name string
	n    int // how often it is called in a turn
	call func() ([]time.Duration, error)
}

// timed is a call whose only sample is how long f takes.
func timed(f func() error) func() ([]time.Duration, error) {
	return func() ([]time.Duration, error) {
		start := time.Now()
		err := f()
		return []time.Duration{time.Since(start)}, err
	}
}

// spread is what a way came to: medians over the turns.
type spread struct{ p50, p95 time.Duration }

// race lets the ways take turns. Within a turn they alternate call by call, so
// that what else the machine does falls on all of them alike.
func (b *bench) race(ctx context.Context, ways ...way) ([]spread, error) {
	halves := make([][]time.Duration, len(ways))
	tails := make([][]time.Duration, len(ways))
	for range b.turns {
		samples, err := turn(ctx, ways)
		if err != nil {
			return nil, err
		}
		for i, s := range samples {
			halves[i] = append(halves[i], quantile(s, 0.5))
			tails[i] = append(tails[i], quantile(s, 0.95))
		}
	}
	out := make([]spread, len(ways))
	for i := range ways {
		out[i] = spread{quantile(halves[i], 0.5), quantile(tails[i], 0.5)}
	}
	return out, nil
}

func turn(ctx context.Context, ways []way) ([][]time.Duration, error) {
	most := 0
	for _, w := range ways {
		most = max(most, w.n)
	}
	samples := make([][]time.Duration, len(ways))
	for i := range most {
		for k, w := range ways {
			if (i+1)*w.n/most == i*w.n/most {
				continue // what is called less often is spread over the turn
			}
			got, err := w.call()
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			samples[k] = append(samples[k], got...)
		}
	}
	return samples, nil
}

// quantile is the smallest sample that the share q of all does not exceed; 0
// without samples.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Clone(samples)
	slices.Sort(s)
	i := int(math.Ceil(q*float64(len(s)))) - 1
	return s[min(max(i, 0), len(s)-1)]
}
