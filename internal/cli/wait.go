package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// waitList is the JSON of wait.
type waitList struct {
	V       int                `json:"v"`
	Runs    []handsel.KnownRun `json:"runs"` // in the order in which they were named
	Waiting int                `json:"waiting"`
	Reason  *handsel.Reason    `json:"reason,omitempty"` // why the wait was given up
}

func (a *app) waitCommand() *cobra.Command {
	var asJSON bool
	var timeout string
	cmd := &cobra.Command{
		Use:   "wait X…",
		Short: "wait until runs have ended",
		Long: `Wait returns when all runs that the names meant when it began have ended: 0 when
all of them succeeded, 1 when one did not, 3 when nothing goes by a name, 124
when --timeout is over. X is a run's id or the end of it, at least six
characters; engine:, pool: or label: and a name mean every run of it that has
not ended. Interrupting the wait touches nothing.`,
		Example:           `  handsel wait 4f2a9c && handsel wait label:batch=7 --timeout 1h`,
		ValidArgsFunction: a.completeRuns(1<<10, false),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{errors.New("wait needs a name: handsel wait RUN")}
			}
			limit, err := positive("timeout", timeout)
			if err != nil {
				return err
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			found, err := findAll(h, args)
			if err != nil {
				return err
			}
			return a.wait(h, found, limit, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object, when the wait is over")
	cmd.Flags().StringVar(&timeout, "timeout", "", "give up after `D` (90s, 10m, seconds; status 124)")
	return cmd
}

// positive reads a duration of a flag, 0 when it is not given.
func positive(name, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := handsel.ParseDuration(text)
	if err == nil && d == 0 {
		err = errors.New("it must be more than 0")
	}
	if err != nil {
		return 0, &handsel.BadOption{Option: name, Value: text, Why: err.Error()}
	}
	return d, nil
}

// findAll resolves every name before anything is done about any of them.
func findAll(h *handsel.Home, names []string) (all []handsel.KnownRun, err error) {
	for _, name := range names {
		found, err := findRuns(h, name, false)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			if !slices.ContainsFunc(all, func(have handsel.KnownRun) bool { return have.ID == r.ID }) {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

func (a *app) wait(h *handsel.Home, found []handsel.KnownRun, limit time.Duration, asJSON bool) error {
	ctx := context.Background()
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, limit)
		defer stop()
	}
	waiting, failed := len(found), 0
	err := h.WaitRuns(ctx, found, func(r handsel.KnownRun) {
		waiting--
		if !r.Succeeded() {
			failed++
		}
		found[slices.IndexFunc(found, func(one handsel.KnownRun) bool { return one.ID == r.ID })] = r
		if !asJSON {
			fmt.Fprintf(a.Out, "%s %s\n", r.ID, clean(strings.TrimSpace(r.Word()+" "+bracketed(ending(&r)))))
		}
	})
	if asJSON {
		if jerr := a.printJSON(waitList{V: 1, Runs: found, Waiting: waiting, Reason: handsel.WaitReason(err)}); jerr != nil {
			return jerr
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		a.say("--timeout: %d of %d runs have not ended", waiting, len(found))
		return statusError(statusTimeout)
	case errors.Is(err, handsel.ErrOwnRun):
		a.say("refused: %s", oneLine(err.Error()))
		return statusError(statusFinal)
	case err != nil && asJSON:
		return a.said(err)
	case err != nil:
		return err
	case failed > 0:
		return statusError(statusFinal)
	}
	return nil
}

func bracketed(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}
