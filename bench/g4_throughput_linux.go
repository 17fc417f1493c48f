package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// throughput measures G4: many short jobs at cap 8, submitted by twelve.
func (b *bench) throughput(ctx context.Context) error {
	jobs := b.pick(1000, 200)
	home := b.home()
	spooler := newSpooler(b.dir(), 8)
	defer spooler.end()
	got, err := b.race(ctx,
		way{"handsel", 1, timed(func() error {
			return xargs(ctx, jobs, 12, environ(settings(home, 8)), b.handsel, "run", "--", "true")
		})},
		way{"xargs", 1, timed(func() error { return xargs(ctx, jobs, 8, environ(nil), "true") })},
		way{"tsp", 1, timed(func() error { return spooler.runMany(ctx, jobs) })},
	)
	if err != nil {
		return err
	}
	each := func(i int) time.Duration { return got[i].p50 / time.Duration(jobs) }
	what := fmt.Sprintf("each of %d × true, cap 8, 12 submitters", jobs)
	b.report.against("G4", what, each(0), "xargs -P8", each(1), 1.8)
	b.report.against("G4", "", each(0), "task-spooler, 8 slots", each(2), 0.9)
	return nil
}

// xargs runs a command once for each of n numbers, so many at a time.
func xargs(ctx context.Context, n, parallel int, env []string, argv ...string) error {
	var numbers bytes.Buffer
	for i := range n {
		fmt.Fprintln(&numbers, i)
	}
	words := append([]string{"-P" + strconv.Itoa(parallel), "-I{}"}, argv...)
	cmd := exec.CommandContext(ctx, "xargs", words...)
	cmd.Stdin, cmd.Env = &numbers, env
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %.300s", err, &said)
	}
	return nil
}

// spooler is a task-spooler of our own.
type spooler struct {
	socket string // the variable that names it, as environments have it
	env    []string
}

func newSpooler(dir string, slots int) *spooler {
	socket := "TS_SOCKET=" + filepath.Join(dir, "socket")
	return &spooler{socket, append(environ(nil), socket,
		"TMPDIR="+dir, "TS_SLOTS="+strconv.Itoa(slots), "TS_MAXFINISHED=20000")}
}

func (s *spooler) tsp(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "tsp", args...)
	cmd.Env = s.env
	return cmd
}

func (s *spooler) runMany(ctx context.Context, n int) error {
	for range n {
		if err := s.tsp(ctx, "-n", "true").Run(); err != nil {
			return err
		}
	}
	if err := until(ctx, time.Minute, func() (bool, error) {
		busy, err := s.busy(ctx)
		return busy == 0, err
	}); err != nil {
		return err
	}
	return s.tsp(ctx, "-C").Run() // forgets what has finished
}

// busy counts the jobs that have not finished.
func (s *spooler) busy(ctx context.Context) (n int, err error) {
	list, err := s.tsp(ctx, "-l").Output()
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) > 1 && (f[1] == "queued" || f[1] == "running" || f[1] == "allocating") {
			n++
		}
	}
	return n, err
}

func (s *spooler) end() { _ = s.tsp(context.Background(), "-K").Run() }
