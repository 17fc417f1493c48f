package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// idle measures the rest of G6: the processor time that waiting processes burn
// together while nothing happens. The goal is that of a thousand in 30 s.
func (b *bench) idle(ctx context.Context) error {
	n, span := b.pick(1000, 200), time.Duration(b.pick(30, 10))*time.Second
	ours, err := b.idleLine(ctx, n, span)
	if err != nil {
		return err
	}
	pollers := n / 5
	theirs, err := b.idlePollers(ctx, pollers, span)
	if err != nil {
		return err
	}
	goal := time.Duration(float64(50*time.Millisecond) * float64(n) / 1000 * span.Seconds() / 30)
	b.report.atMost("G6", fmt.Sprintf("CPU of %d that wait, in %v", n, span), ours, goal,
		fmt.Sprintf("%s %d Python pollers", short(theirs), pollers))
	return nil
}

func (b *bench) idleLine(ctx context.Context, n int, span time.Duration) (time.Duration, error) {
	home := b.home()
	h, err := b.hold(ctx, home)
	if err != nil {
		return 0, err
	}
	defer h.kill()
	cmds := make([]*exec.Cmd, n)
	for i := range cmds {
		cmds[i] = b.run(ctx, home, 1, "true")
	}
	if err := startAll(cmds); err != nil {
		return 0, err
	}
	defer killAll(cmds)
	if err := queue(ctx, home, n); err != nil {
		return 0, err
	}
	return cpuOf(ctx, pids(cmds), span)
}

func (b *bench) idlePollers(ctx context.Context, n int, span time.Duration) (time.Duration, error) {
	dir := b.dir()
	log := filepath.Join(dir, "log")
	first := b.python(ctx, filepath.Join(dir, "leases"), 1, b.stamp, log, "held", "120000")
	if err := first.Start(); err != nil {
		return 0, err
	}
	defer killAll([]*exec.Cmd{first})
	agent, err := logged(ctx, log, "S", "held")
	if err != nil {
		return 0, err
	}
	defer b.killStamp(agent.pid) //nolint:errcheck // it ends by itself later
	cmds := make([]*exec.Cmd, n)
	for i := range cmds {
		cmds[i] = b.python(ctx, filepath.Join(dir, "leases"), 1, "true")
	}
	if err := startAll(cmds); err != nil {
		return 0, err
	}
	defer killAll(cmds)
	return cpuOf(ctx, pids(cmds), span)
}

// cpuOf is the processor time that the processes take together within span,
// once they have settled.
func cpuOf(ctx context.Context, pids []int, span time.Duration) (time.Duration, error) {
	if err := sleep(ctx, 5*time.Second); err != nil {
		return 0, err
	}
	before, err := cpu(pids)
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, span); err != nil {
		return 0, err
	}
	after, err := cpu(pids)
	return after - before, err
}

// cpu sums the time that all threads have been on a processor, to the
// nanosecond: the ticks of /proc/PID/stat are coarser than the goal.
func cpu(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		threads := fmt.Sprintf("/proc/%d/task", pid)
		entries, err := os.ReadDir(threads)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(threads, e.Name(), "schedstat"))
			if err != nil {
				continue // the thread has ended since
			}
			onCPU, _, _ := strings.Cut(string(text), " ")
			ns, err := strconv.ParseInt(onCPU, 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(ns)
		}
	}
	return sum, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
