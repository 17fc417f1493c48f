package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/handsel/handsel"
)

// detachFlags make a run nobody's business: `run --detach` starts the same
// command line again, aside, and that process is told by --detached on which
// descriptor it is waited for.
type detachFlags struct {
	ask bool
	on  int
}

const detachedFlag = "detached"

func (d *detachFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&d.ask, "detach", false, "print the run's id and return at once; it waits without an end, and its output is kept (implies --record)")
	fs.IntVar(&d.on, detachedFlag, 0, "descriptor of who detached this process")
	_ = fs.MarkHidden(detachedFlag) // it is registered one line above
}

// startOrDetach is run, with or without --detach.
func (a *app) startOrDetach(f *startFlags, d *detachFlags, argv []string) error {
	switch {
	case d.on != 0:
		return a.detached(f, d.on, argv)
	case d.ask && len(f.keep) > 0:
		return &usageError{errors.New("--detach hands no descriptor on: leave --keep-fd out")}
	case d.ask:
		return a.detach()
	}
	return a.start(f, argv, false)
}

// detach starts our own command line again and returns as soon as the run is on
// record, or as that process ends: what it refuses, it says on our stderr.
func (a *app) detach() error {
	if len(os.Args) < 2 || os.Args[1] != "run" {
		return &usageError{errors.New("--detach: the verb must be the first word")}
	}
	if err := handsel.CloseInherited(); err != nil {
		return err
	}
	line, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer line.Close()
	args := append([]string{os.Args[0], "run", "--" + detachedFlag, "3"}, os.Args[2:]...)
	p, err := startAside(args, a.Err, theirs)
	theirs.Close()
	if err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(line, 1<<10))
	if id, whole := strings.CutSuffix(string(said), "\n"); whole && err == nil {
		_ = p.Release() // it is nobody's child from here on
		_, err = fmt.Fprintln(a.Out, id)
		return err
	}
	end, err := p.Wait()
	if err != nil {
		return err
	}
	if end.ExitCode() > 0 {
		return statusError(end.ExitCode())
	}
	return fmt.Errorf("the detached process ended before the run was on record: %v", end)
}

// detached is what was started aside.
func (a *app) detached(f *startFlags, on int, argv []string) error {
	line, err := lineOf(on)
	if err != nil {
		return &usageError{fmt.Errorf("--%s %s: %w", detachedFlag, strconv.Itoa(on), err)}
	}
	defer line.Close()
	if f.outcome == "" {
		f.outcome = os.Getenv("HANDSEL_OUTCOME")
	}
	out, err := a.runDetached(f, line, argv)
	return a.finish(f, out, err)
}

// runDetached reads what is left to read and starts. The outcome is never nil.
func (a *app) runDetached(f *startFlags, line *os.File, argv []string) (*handsel.Outcome, error) {
	argv, err := a.ready(f, argv, false)
	if err != nil {
		return handsel.NothingRan(), err
	}
	h, err := a.open()
	if err == nil {
		err = handsel.CloseInherited()
	}
	if err != nil {
		return handsel.NothingRan(), err
	}
	keepLittle()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handsel.RunSignals()...)
	f.opts.OnNote = func(text string) { a.say("%s", oneLine(text)) }
	f.opts.Pools, f.opts.Subreaper, f.opts.Signals = f.pools, true, signals
	return h.RunDetached(context.Background(), argv, f.opts, func(id string) error {
		if err := silence(a.Err); err != nil {
			return err
		}
		_, err := fmt.Fprintln(line, id)
		return errors.Join(err, line.Close())
	})
}
