package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) claimCommand() *cobra.Command {
	f := &startFlags{}
	cmd := &cobra.Command{
		Use:   "claim [--outcome FILE] [-- COMMAND [ARG…]]",
		Short: "run the attempt that the dispatcher offered to this process",
		Long: `Claim is for drivers: programs that the dispatcher starts in place of its own
(enqueue --driver, [dispatch] driver). It reads the offer from the descriptor
that HANDSEL_TOKEN_FD names, takes over the lane and its slots, runs what was
enqueued, or COMMAND in its place, and records how it ended. Directory,
environment, stdin and limits are those of the attempt; output is kept in the
run's directory and passed through. The command's exit status is its own.

Nothing ran: 1 (the offer was withdrawn, or is none), 69 (no dispatcher), 78 (no
offer was handed to this process).`,
		Example:               `  handsel claim -- ./wrapper claude -p "fix it"`,
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, argv []string) error {
			return a.claim(f, argv)
		},
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.StringVar(&f.outcome, "outcome", "", "write how it ended to `FILE` as one JSON object")
	return cmd
}

// driveCommand is the dispatcher's own driver. It is for no person to call.
func (a *app) driveCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "drive",
		Short:  "run the attempt that the dispatcher offered to this process, for the dispatcher",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			if err := aside(); err != nil {
				return err
			}
			return a.drive()
		},
	}
}

// claim runs the offered attempt and ends as it ended.
func (a *app) claim(f *startFlags, argv []string) error {
	if f.outcome == "" {
		f.outcome = os.Getenv("HANDSEL_OUTCOME")
	}
	if len(argv) == 0 {
		argv = nil
	}
	out, err := a.attempt(handsel.RunOptions{Argv: argv, Stdout: a.Out, Stderr: a.Err})
	if out == nil {
		out = handsel.NothingRan()
	}
	return a.finish(f, out, err)
}

// drive runs the offered attempt. How it ended is in its record: our own status
// tells only whether it got there.
func (a *app) drive() error {
	out, err := a.attempt(handsel.RunOptions{})
	if out == nil {
		return err
	}
	for _, w := range out.Warnings {
		a.say("run %s: warning: %s", out.Run, oneLine(w.Error()))
	}
	if err != nil {
		a.say("run %s: %s", out.Run, oneLine(err.Error()))
	}
	return nil
}

// attempt claims and runs. The outcome is nil when nothing was begun.
func (a *app) attempt(o handsel.RunOptions) (*handsel.Outcome, error) {
	h, err := a.open()
	if err == nil {
		err = handsel.CloseInherited()
	}
	if err != nil {
		return nil, err
	}
	// Until the start is decided, a signal ends us as it ends any process, and
	// nothing was begun.
	signals := make(chan os.Signal, 16)
	c, err := h.Claim(context.Background(), handsel.ClaimOptions{
		Beginning: func() { signal.Notify(signals, handsel.RunSignals()...) },
	})
	if err != nil {
		return nil, err
	}
	keepLittle()
	o.Subreaper, o.Signals = true, signals
	o.OnNote = func(text string) { a.say("%s", oneLine(text)) }
	return c.Run(context.Background(), o)
}

// claimRefused tells whether nothing was begun because it is somebody else's.
func claimRefused(err error) bool {
	return errors.Is(err, handsel.ErrWithdrawn) || errors.As(err, new(*handsel.ClaimRefused))
}

// claimStatus is the status of what can go wrong for a driver only.
func claimStatus(err error) (int, bool) {
	switch {
	case claimRefused(err):
		return statusFinal, true
	case errors.As(err, new(*handsel.BadOffer)):
		return statusConfig, true
	case errors.As(err, new(*handsel.NotProven)):
		return statusOurs, true
	case errors.As(err, new(*handsel.NoCredentials)) && !errors.As(err, new(*handsel.Untrusted)):
		return statusConfig, true
	}
	return 0, false
}
