package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// mostShim is what a shim may add to the start of an engine (G16).
const mostShim = 3 * time.Millisecond

// shims measures G16: from the call of an engine by its name until its first
// instruction, with a shim before it and without. The engine is the stand-in under
// that name.
func (b *bench) shims(ctx context.Context) error {
	s, err := b.shimmed(ctx)
	if err != nil {
		return err
	}
	least, err := buildGo(ctx, b.dir(), "least", becomes) // the least a shim in our language can cost
	if err != nil {
		return err
	}
	n, ran, brief := b.pick(100, 30), "0", "--version" // which the stand-in takes for no time at all
	way := func(name string, env []string, dir, last string) way {
		path := filepath.Join(dir, "claude")
		if dir == least {
			path = least
		}
		return way{name, n, func() ([]time.Duration, error) { return s.start(ctx, env, path, last) }}
	}
	got, err := b.race(ctx,
		way("shim", s.env, s.shims, ran), way("direct", s.env, s.bin, ran),
		way("shim without a cap", s.free, s.shims, ran), way("brief", s.env, s.shims, brief),
		way("least", append(s.env, "BECOME="+filepath.Join(s.bin, "claude")), least, ran),
	)
	if err != nil {
		return err
	}
	b.report.atMost("G16", "what a shim adds to an engine's start, a slot is free", got[0].p50-got[1].p50, mostShim, short(got[1].p50)+" called directly")
	b.report.atMost("", "… p95", got[0].p95-got[1].p50, mostShim, "")
	b.report.atMost("", "… where no cap is set", got[2].p50-got[1].p50, mostShim, "")
	b.report.atMost("", "… to a call that is not counted (--version)", got[3].p50-got[1].p50, mostShim, "")
	b.report.against("", "… for comparison", got[0].p50-got[1].p50, "a Go program that only becomes the engine", got[4].p50-got[1].p50, 0)
	return nil
}

// becomes is that program.
const becomes = `package main

import (
	"os"
	"syscall"
)

func main() { _ = syscall.Exec(os.Getenv("BECOME"), os.Args, os.Environ()) }
`

// shimmed is an engine with a shim before it.
type shimmed struct {
	bin, shims, log string
	env, free       []string // with a cap, and without
}

func (b *bench) shimmed(ctx context.Context) (*shimmed, error) {
	home := b.home()
	s := &shimmed{bin: b.dir(), shims: filepath.Join(home, "shims"), log: filepath.Join(b.dir(), "log")}
	if err := copyProgram(b.stamp, filepath.Join(s.bin, "claude")); err != nil {
		return nil, err
	}
	path := "PATH=" + s.shims + ":" + s.bin + ":" + os.Getenv("PATH")
	s.env = append(environ(settings(home, 8)), path)
	s.free = append(environ(settings(b.home(), 0)), path)
	cmd := exec.CommandContext(ctx, b.handsel, "shim", "install", "claude")
	cmd.Env = s.env
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("shim install: %w: %s", err, text)
	}
	return s, nil
}

// start calls the engine and tells how long it took to its first instruction.
func (s *shimmed) start(ctx context.Context, env []string, path, last string) ([]time.Duration, error) {
	if err := os.Remove(s.log); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, s.log, "0", last)
	cmd.Env = env
	var from unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &from); err != nil {
		return nil, err
	}
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	events, err := readLog(s.log)
	if err != nil {
		return nil, err
	}
	if len(events) != 2 {
		return nil, fmt.Errorf("%d of 2 events", len(events))
	}
	return []time.Duration{time.Duration(events[0].at - from.Nano())}, nil
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}
