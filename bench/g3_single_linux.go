package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// single measures G3: one uncontended run of true, from the caller's start of
// the command to its end, which is what every agent pays.
func (b *bench) single(ctx context.Context) error {
	empty, err := emptyProgram(ctx, b.dir())
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

// emptyProgram is the least that a program in our language can cost.
func emptyProgram(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "empty")
	files := map[string]string{"main.go": "package main\n\nfunc main() {}\n", "go.mod": "module empty\n"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build an empty program: %w\n%s", err, text)
	}
	return program, nil
}

// sem is GNU sem with its files in dir.
func sem(ctx context.Context, dir string, jobs int, argv ...string) *exec.Cmd {
	words := append([]string{"--fg", "--id", "bench", fmt.Sprintf("-j%d", jobs)}, argv...)
	cmd := exec.CommandContext(ctx, "sem", words...)
	cmd.Env = append(environ(nil), "HOME="+dir)
	return cmd
}
