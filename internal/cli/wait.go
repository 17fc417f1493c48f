package cli

import (
	"context"
	"errors"
	"fmt"
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

// waitFlags are those of wait.
type waitFlags struct {
	json, any, all bool
	timeout        string
	limit          time.Duration
}

func (a *app) waitCommand() *cobra.Command {
	f := &waitFlags{}
	cmd := &cobra.Command{
		Use:   "wait X…",
		Short: "wait until lanes and runs have ended",
		Long: `Wait returns when all that the names meant when it began has ended: 0 when all of
it succeeded, 1 when one did not, 3 when nothing goes by a name, 124 when
--timeout is over. Any number of names may be given.

X is a lane, which means its present attempt, or its last if it has none; a run or
an attempt, by the end of its id; or engine:, pool: or label: and a name, which
mean all of it that has not ended. What is enqueued later is not waited for. A
hold, a drain, or a dispatcher that does not run is said once on stderr.
Interrupting the wait touches nothing.`,
		Example: `  handsel wait api/review api/tests && handsel wait label:batch=7 --timeout 1h
  handsel wait --any lane:a lane:b`,
		ValidArgsFunction: a.complete(1<<10, lanes|runs|engines|pools),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			switch {
			case len(args) == 0 && !f.all:
				return &usageError{errors.New("wait needs a name: handsel wait LANE, or --all")}
			case len(args) > 0 && f.all:
				return &usageError{errors.New("--all and names exclude each other")}
			}
			if f.limit, err = positive("timeout", f.timeout); err != nil {
				return err
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			found, err := findAllWork(h, args, f.all)
			if err != nil {
				return err
			}
			return a.wait(h, found, f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.all, "all", false, "everything that waits or runs now")
	fs.BoolVar(&f.any, "any", false, "return at the first end")
	fs.StringVar(&f.timeout, "timeout", "", "give up after `D` (90s, 10m, seconds; status 124)")
	fs.BoolVar(&f.json, "json", false, "one JSON object, when the wait is over")
	return cmd
}

// findAllWork resolves every name at one moment, before anything is waited for.
func findAllWork(h *handsel.Home, names []string, all bool) ([]handsel.KnownRun, error) {
	ctx := context.Background()
	if all {
		return h.AllWork(ctx)
	}
	found, err := h.FindAllWork(ctx, names)
	return found, nameUsage(err)
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

// wait waits, tells of each end, and turns the whole into a status.
func (a *app) wait(h *handsel.Home, found []handsel.KnownRun, f *waitFlags) error {
	ctx := context.Background()
	if f.limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, f.limit)
		defer stop()
	}
	at := make(map[string]int, len(found))
	for i, r := range found {
		at[r.ID] = i
	}
	waiting, failed := len(found), 0
	err := h.WaitWork(ctx, found, handsel.WaitOptions{Any: f.any, Note: func(text string) { a.say("%s", oneLine(text)) }, Told: func(r handsel.KnownRun) {
		waiting--
		if !r.Succeeded() {
			failed++
		}
		found[at[r.ID]] = r
		if !f.json {
			fmt.Fprintln(a.Out, clean(endLine(&r)))
		}
	}})
	if f.json {
		if jerr := a.printJSON(waitList{V: 1, Runs: append([]handsel.KnownRun{}, found...), Waiting: waiting, Reason: handsel.WaitReason(err)}); jerr != nil {
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
	case err != nil && f.json:
		return a.said(err)
	case err != nil:
		return err
	case failed > 0:
		return statusError(statusFinal)
	}
	return nil
}

// endLine is how one of them ended.
func endLine(r *handsel.KnownRun) string {
	what := r.ID
	if r.Lane != "" {
		what += " lane " + r.Lane
	}
	return what + " " + strings.TrimSpace(r.Word()+" "+bracketed(ending(r)))
}

func bracketed(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}
