package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// cancelList is the JSON of cancel.
type cancelList struct {
	V         int         `json:"v"`
	Cancelled []cancelled `json:"cancelled"`
}

type cancelled struct {
	Run     string `json:"run"`
	Did     string `json:"did"` // already_ended, cancelled, lost, still_ending, not_done
	State   string `json:"state"`
	Outcome string `json:"outcome,omitempty"`
	Message string `json:"message"`
	Code    string `json:"code,omitempty"` // of the refusal, with not_done
}

func (a *app) cancelCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel X…",
		Short: "end runs with all of their process trees",
		Long: `Cancel ends waiting and running runs and returns when nothing of them is left. A
run with a supervisor is ended by it: TERM, 5 s, KILL. An agent whose supervisor
is gone is ended by its proven identity, and its lane is free then. A run of which
nothing is left gets its record closed as lost. Queued work is taken out of the
queue, which needs the dispatcher (69). What has ended already is no error. X is
as for wait.

Inside an agent only its own descendants can be cancelled (status 1).`,
		Example: `  handsel cancel 4f2a9c
  handsel cancel lane:api/review`,
		ValidArgsFunction: a.complete(1<<10, lanes|runs|engines|pools),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{errors.New("cancel needs a name: handsel cancel RUN")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			found, err := findAllWork(h, args, false)
			if err != nil {
				return err
			}
			return a.cancel(h, found, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// cancelAtOnce bounds how many runs are being ended at one moment: each takes
// some descriptors.
const cancelAtOnce = 64

// cancel ends all that was found, one after the other's beginning: each may
// take seconds. The first that could not be ended decides the status.
func (a *app) cancel(h *handsel.Home, found []handsel.KnownRun, asJSON bool) error {
	type answer struct {
		done *handsel.Cancelled
		err  error
	}
	answers := make([]chan answer, len(found))
	turn := make(chan struct{}, cancelAtOnce)
	for i, r := range found {
		answers[i] = make(chan answer, 1)
		go func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			done, err := h.Cancel(context.Background(), r)
			answers[i] <- answer{done, err}
		}()
	}
	out := cancelList{V: 1, Cancelled: []cancelled{}}
	var failed error
	for _, c := range answers {
		one := <-c
		if one.err == nil && one.done.Did == handsel.CancelStillEnding {
			one.err = fmt.Errorf("run %s: %s", one.done.Run.ID, one.done.Message)
		}
		if failed == nil && one.err != nil {
			failed = one.err
		} else if one.err != nil && !asJSON {
			a.say("%s%s", prefix(one.err), oneLine(one.err.Error()))
		}
		out.Cancelled = append(out.Cancelled, cancelledJSON(one.done, one.err))
		if !asJSON && one.err == nil {
			a.showCancelled(one.done)
		}
	}
	if asJSON {
		if err := a.printJSON(out); err != nil {
			return err
		}
		return a.said(failed)
	}
	return failed
}

// said reports an error of a verb that has written its JSON already.
func (a *app) said(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); text != "" {
		a.say("%s%s", prefix(err), oneLine(text))
	}
	return statusError(exitStatus(err))
}

func cancelledJSON(c *handsel.Cancelled, err error) cancelled {
	out := cancelled{Run: c.Run.ID, Did: c.Did, State: c.Run.State, Outcome: c.Run.Outcome, Message: c.Message}
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		out.Code = coded.Code()
	}
	return out
}

func (a *app) showCancelled(c *handsel.Cancelled) {
	fmt.Fprintf(a.Out, "%s %s\n", c.Run.ID, clean(c.Message))
	for _, s := range c.Survivors {
		a.say("still running: pid %d (%s): %s", s.Pid, quoteWord(s.Comm), s.Why)
	}
}
