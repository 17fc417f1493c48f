package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// single measures G3: one uncontended run of true, from the caller's start of
// the command to its end, which is what every agent pays.
func (b *bench) single(ctx context.Context) error {
	empty, err := buildGo(ctx, b.dir(), "empty", "package main\n\nfunc main() {}\n") // the least a program in our language can cost
	if err != nil {
		return err
	}
	capped, free, python, work := b.home(), b.home(), b.dir(), b.dir()
	n, slow := b.pick(100, 30), b.pick(10, 4)
	command := func(name string, args ...string) func() error {
		return func() error { return exec.CommandContext(ctx, name, args...).Run() }
	}
	got, err := b.race(ctx,
		way{"handsel", n, timed(func() error { return b.run(ctx, capped, 8, "true").Run() })},
		way{"flock", n, timed(command("flock", filepath.Join(work, "lock"), "true"))},
		way{"python", 2 * slow, timed(func() error { return b.python(ctx, python, 8, "true").Run() })},
		way{"sem", slow, timed(func() error { return sem(ctx, work, 8, "true").Run() })},
		way{"handsel without a cap", n, timed(func() error { return b.run(ctx, free, 0, "true").Run() })},
		way{"true", n, timed(command("true"))},
		way{"empty Go program", n, timed(command(empty))},
	)
	if err != nil {
		return err
	}
	ours := got[0].p50
	b.report.against("G3", "run -- true", ours, "flock F true", got[1].p50, 2.5)
	b.report.against("G3", "", ours, "Python, polling scheme", got[2].p50, 1.0/6)
	b.report.against("G3", "", ours, "GNU sem", got[3].p50, 1.0/25)
	b.report.against("", "… where no cap is set", got[4].p50, "flock F true", got[1].p50, 0)
	b.report.against("", "… for comparison", ours, "true, and nothing else", got[5].p50, 0)
	b.report.against("", "… for comparison", ours, "an empty Go program", got[6].p50, 0)
	return nil
}

// sem is GNU sem with its files in dir.
func sem(ctx context.Context, dir string, jobs int, argv ...string) *exec.Cmd {
	words := append([]string{"--fg", "--id", "bench", fmt.Sprintf("-j%d", jobs)}, argv...)
	cmd := exec.CommandContext(ctx, "sem", words...)
	cmd.Env = append(environ(nil), "HOME="+dir)
	return cmd
}
