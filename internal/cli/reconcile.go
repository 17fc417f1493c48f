package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) reconcileCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reconcile X",
		Short: "find out what became of an attempt whose answer never came",
		Long: `Reconcile says whether an attempt is queued, starting, running or ended, and by
what that is known. The dispatcher is asked to look again; without one, records,
files and locks are read. It never guesses: what they do not prove is "unknown",
with status 69 when the dispatcher could tell.`,
		Example:           `  handsel reconcile 4f2a9c`,
		ValidArgsFunction: a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("reconcile needs one name: handsel reconcile ATTEMPT")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			r, err := h.Reconcile(context.Background(), args[0])
			if r == nil {
				return nameUsage(err)
			}
			return a.showReconciled(r, err, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// showReconciled shows what is known, also where that is not enough.
func (a *app) showReconciled(r *handsel.Reconciled, err error, asJSON bool) error {
	if asJSON {
		if jerr := a.printJSON(r); jerr != nil {
			return jerr
		}
		return a.said(err)
	}
	state := "unknown"
	if r.Known {
		state = r.State
	}
	if r.Outcome != "" {
		state += ", " + r.Outcome
	}
	if r.ExitCode != nil {
		state += fmt.Sprintf(" (exit %d)", *r.ExitCode)
	}
	what := "attempt " + r.Attempt
	if r.Lane != "" {
		what = "lane " + r.Lane + ", " + what
	}
	fmt.Fprintf(a.Out, "%s: %s: %s\n", clean(what), clean(state), oneLine(r.Message))
	for _, e := range r.Evidence {
		fmt.Fprintf(a.Out, "  %s\n", clean(e))
	}
	return a.said(err)
}
