package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) prioCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prio X N",
		Short: "change the priority of a waiting lane",
		Long: `Prio moves a waiting lane in the queue: N from -1000 to 1000, higher first; one
step is worth a minute of waiting. It needs the dispatcher (69). A negative N
follows --: handsel prio LANE -- -5.`,
		Example:           `  handsel prio api/review 30`,
		ValidArgsFunction: a.complete(1, lanes),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return &usageError{errors.New("prio needs a name and a number: handsel prio LANE N")}
			}
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return &handsel.BadOption{Option: "priority", Value: args[1], Why: "it must be a whole number from -1000 to 1000"}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			done, err := h.SetPriority(context.Background(), args[0], n)
			if err != nil {
				return nameUsage(err)
			}
			if asJSON {
				return a.printJSON(done)
			}
			text := fmt.Sprintf("lane %s has priority %d", done.Lane, done.Priority)
			if done.Place > 0 {
				text += fmt.Sprintf(", place %d", done.Place)
			}
			fmt.Fprintln(a.Out, clean(text))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// nameUsage makes a wrong command line of what can name nothing.
func nameUsage(err error) error {
	if errors.As(err, new(*handsel.BadName)) {
		return &usageError{err}
	}
	return err
}

// actStatus is the status of an error of a verb that needs the dispatcher, or
// acts on what waits.
func actStatus(err error) (int, bool) {
	if settled, ok := errors.AsType[*handsel.Settled](err); ok {
		if settled.Retryable() {
			return statusRetry, true
		}
		return statusFinal, true
	}
	switch {
	case errors.As(err, new(*handsel.NoDispatcher)), errors.As(err, new(*handsel.SilentDispatcher)), errors.As(err, new(*handsel.Unsettled)):
		return statusUnavailable, true
	case errors.As(err, new(*handsel.NoOutput)):
		return statusNotFound, true
	case errors.As(err, new(*handsel.NoLane)):
		return statusFinal, true
	}
	if no, ok := errors.AsType[*handsel.Declined](err); ok {
		return declinedStatus(no.Reason), true
	}
	return 0, false
}

// declinedStatus is the status of the dispatcher's no.
func declinedStatus(r handsel.Reason) int {
	switch {
	case r.Code == "not_found":
		return statusNotFound
	case r.Code == "failed":
		return statusOurs
	case r.Retryable:
		return statusRetry
	case r.Class == "config":
		return statusUsage
	}
	return statusFinal
}
