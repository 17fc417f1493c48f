package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// releaseFlags are those of release.
type releaseFlags struct {
	startFlags
	anyway string
	check  string
	fence  string
	json   bool
}

func (a *app) releaseCommand() *cobra.Command {
	f := &releaseFlags{}
	cmd := &cobra.Command{
		Use:   "release X [flags] -- COMMAND [ARG…] | release --check LANE --fence N",
		Short: "run the command that lets an accepted result out",
		Long: `Release runs the command only if X is accepted under the present policy, what was
judged is unchanged, it is the newest accepted run of its lane, and nothing newer
runs there; otherwise it says which of these is not so (1). The command gets
HANDSEL_ATTEMPT, HANDSEL_LANE and HANDSEL_FENCE, and its status passes through.

With --check it runs nothing: 0 when the fence is the lane's current one, 1 when
it is stale. The protected effect itself asks that, with the fence it was given,
so that an owner of yesterday can do nothing. An agent may ask it, and may not
release (1, inside_agent).`,
		Example: `  handsel release api/review -- git push origin HEAD:main
  handsel release --check "$HANDSEL_LANE" --fence "$HANDSEL_FENCE"`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			if f.set.Changed("check") {
				return a.checkFence(f, args)
			}
			return a.release(f, args)
		},
	}
	fs := cmd.Flags()
	f.set = fs
	fs.SortFlags = false
	fs.SetInterspersed(false)
	fs.StringVarP(&f.opts.Dir, "chdir", "C", "", "run the command in `DIR`")
	fs.StringVar(&f.anyway, "anyway", "", "`REASON` to go past a newer run, an earlier release, or one nobody knows the end of; it is recorded")
	fs.StringVar(&f.outcome, "outcome", "", "write how it ended to `FILE` as one JSON object")
	fs.StringVar(&f.check, "check", "", "run nothing: tell whether a fence of `LANE` is current")
	fs.StringVar(&f.fence, "fence", "", "`N` is the fence, as HANDSEL_FENCE had it")
	fs.BoolVar(&f.json, "json", false, "with --check: one JSON object")
	return cmd
}

func (a *app) release(f *releaseFlags, args []string) error {
	argv, err := f.command(args)
	if err != nil {
		return err
	}
	if f.outcome == "" {
		f.outcome = os.Getenv("HANDSEL_OUTCOME")
	}
	out, err := a.let(f, args[0], argv)
	return a.finish(&f.startFlags, out, err)
}

// command reads what stands behind X: flags may, and then the command.
func (f *releaseFlags) command(args []string) ([]string, error) {
	const shape = "release needs a name and a command: handsel release LANE -- COMMAND [ARG…]"
	if len(args) == 0 {
		return nil, &usageError{errors.New(shape)}
	}
	argv := args[1:]
	if len(argv) > 0 {
		if err := f.set.Parse(argv); err != nil {
			return nil, &usageError{err}
		}
		argv = f.set.Args()
	}
	switch {
	case f.set.Changed("check") || f.set.Changed("fence") || f.json:
		return nil, &usageError{errors.New("--fence and --json go with --check, which comes first and takes no command")}
	case len(argv) == 0:
		return nil, &usageError{errors.New(shape)}
	}
	if f.set.Changed("anyway") && f.anyway == "" {
		return nil, &handsel.BadOption{Option: "anyway", Value: "", Why: "it must say why"}
	}
	return argv, nil
}

func (a *app) let(f *releaseFlags, x string, argv []string) (*handsel.Outcome, error) {
	h, err := a.open()
	if err == nil {
		err = handsel.CloseInherited()
	}
	if err != nil {
		return handsel.NothingRan(), err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handsel.RunSignals()...)
	ctx, caught := untilSignal() // until the command runs, which is given them
	out, err := h.Release(ctx, x, argv, handsel.ReleaseOptions{
		Anyway: f.anyway, Dir: f.opts.Dir, Stdin: a.In, Stdout: a.Out, Stderr: a.Err, Subreaper: true, Signals: signals,
	})
	if sig := caught(); sig != 0 && errors.Is(err, context.Canceled) {
		a.say("nothing was released: %s", oneLine(err.Error()))
		handsel.DieBy(sig)
	}
	return out, nameUsage(err)
}

func (a *app) checkFence(f *releaseFlags, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("release --check runs nothing, and got %q", args[0])}
	}
	if !f.set.Changed("fence") {
		return &usageError{errors.New("release --check needs the fence: --fence N")}
	}
	if f.set.Changed("anyway") {
		return &usageError{errors.New("--anyway goes past nothing with --check")}
	}
	n, err := strconv.ParseUint(f.fence, 10, 63)
	if err != nil || n == 0 {
		return &handsel.BadOption{Option: "fence", Value: f.fence, Why: "it must be a whole number from 1"}
	}
	h, err := a.open()
	if err != nil {
		return err
	}
	seen, err := h.CheckFence(f.check, n)
	if err != nil {
		return err
	}
	if f.json {
		err = a.printJSON(seen)
	} else {
		_, err = fmt.Fprintln(a.Out, clean(seen.Message))
	}
	if err == nil && !seen.Current {
		err = statusError(statusFinal)
	}
	return err
}
