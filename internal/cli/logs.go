package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) logsCommand() *cobra.Command {
	var follow, merged bool
	var stream string
	cmd := &cobra.Command{
		Use:   "logs X",
		Short: "print what is kept of a run's output",
		Long: `Logs prints what is kept of the output of a run, of an attempt, or of a lane's
present attempt (the last one, if it has none): its standard output to stdout and
its standard error to stderr, byte for byte. What the record had no room for is
marked by a line. With -f it goes on while the run does, and returns when it has
ended; interrupting it touches nothing.

Status 3 when no output is kept: attempts keep theirs, a direct run does with
--record or --idle.`,
		Example: `  handsel logs -f api/review
  handsel logs 4f2a9c --stream stderr | less`,
		ValidArgsFunction: a.completeRuns(1, true),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("logs needs one name: handsel logs RUN")}
			}
			out, errs, err := a.streams(stream, merged)
			if err != nil {
				return err
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			return a.logs(h, args[0], out, errs, follow)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&follow, "follow", "f", false, "go on as it grows, until the run has ended")
	fs.StringVar(&stream, "stream", "", "only this `STREAM`, stdout or stderr, and to stdout")
	fs.BoolVar(&merged, "merged", false, "both to stdout")
	return cmd
}

// streams says where each output goes; nil is nowhere.
func (a *app) streams(only string, merged bool) (out, errs io.Writer, err error) {
	switch {
	case only != "" && merged:
		return nil, nil, &usageError{errors.New("--stream and --merged exclude each other")}
	case merged:
		return a.Out, a.Out, nil
	case only == "stdout":
		return a.Out, nil, nil
	case only == "stderr":
		return nil, a.Out, nil
	case only != "":
		return nil, nil, &handsel.BadOption{Option: "stream", Value: only, Why: "it must be stdout or stderr"}
	}
	return a.Out, a.Err, nil
}

func (a *app) logs(h *handsel.Home, x string, out, errs io.Writer, follow bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := findWork(ctx, h, x, true)
	if err != nil {
		return err
	}
	if len(found) > 1 {
		return &handsel.Ambiguous{Name: x, Fits: names(found)}
	}
	err = h.Logs(ctx, found[0], out, errs, follow)
	if errors.Is(err, context.Canceled) {
		return nil // it was interrupted, which is how a person ends it
	}
	return err
}

// findWork resolves a name; one that can name nothing is a wrong command line.
func findWork(ctx context.Context, h *handsel.Home, name string, all bool) ([]handsel.KnownRun, error) {
	found, err := h.FindWork(ctx, name, all)
	if errors.As(err, new(*handsel.BadName)) {
		return nil, &usageError{err}
	}
	return found, err
}
