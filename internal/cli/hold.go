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

// orderedJSON is the JSON of hold and drain.
type orderedJSON struct {
	V       int           `json:"v"`
	Did     string        `json:"did"` // held, draining
	Order   handsel.Order `json:"order"`
	Already bool          `json:"already"` // it replaces one
	Running int           `json:"running"` // goes on
}

// resumedJSON is the JSON of resume.
type resumedJSON struct {
	V       int             `json:"v"`
	Removed []handsel.Order `json:"removed"`
}

// orderFlags are what hold and drain share.
type orderFlags struct {
	reason, until, span string
	json                bool
}

func (a *app) holdCommand() *cobra.Command {
	f := &orderFlags{}
	cmd := &cobra.Command{
		Use:   "hold [X]",
		Short: "keep new starts of a lane, an engine or a pool back, or all of them",
		Long: `Hold keeps new starts back until resume, or until the time that is given; what
runs goes on. It binds direct runs as well as waiting lanes, needs no dispatcher,
and survives every restart. X is a name, or lane:, engine:, account: or pool: and a
name; without one, or as "all", everything is held. A lane need not be there yet, as
lane:NAME. Holding what is held replaces the reason and the end.`,
		Example: `  handsel hold engine:claude --reason "login expired" --for 2h
  handsel hold lane:api/review`,
		ValidArgsFunction: a.complete(1, lanes|engines|accounts|pools),
		RunE: func(_ *cobra.Command, args []string) error {
			x, err := oneOrNone("hold", args, "all")
			if err != nil {
				return err
			}
			until, err := f.end(time.Now())
			if err != nil {
				return err
			}
			return a.giveOrder(f, "held", func(h *handsel.Home) (*handsel.Ordered, error) {
				return h.Hold(context.Background(), x, f.reason, until)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.reason, "reason", "", "`TEXT` that everybody sees who is held back")
	fs.StringVar(&f.span, "for", "", "resume by itself after `D` (90s, 10m, seconds)")
	fs.StringVar(&f.until, "until", "", "resume by itself at `TIME`: 2006-01-02T15:04:05Z, or 15:04, the next there is here")
	fs.BoolVar(&f.json, "json", false, "one JSON object")
	return cmd
}

func (a *app) drainCommand() *cobra.Command {
	f := &orderFlags{}
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "admit nothing new; what runs goes on",
		Long: `Drain keeps every new start back until resume, for maintenance: what runs goes on
and ends by itself, what is enqueued waits in its place. It survives restarts.`,
		Example: `  handsel drain --reason "reboot at noon"`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.giveOrder(f, "draining", func(h *handsel.Home) (*handsel.Ordered, error) {
				return h.Drain(context.Background(), f.reason)
			})
		},
	}
	cmd.Flags().StringVar(&f.reason, "reason", "", "`TEXT` that everybody sees who is held back")
	cmd.Flags().BoolVar(&f.json, "json", false, "one JSON object")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resume [X]",
		Short: "take a hold back; without X, end a drain",
		Long: `Resume takes back what holds or pauses X. Without X it ends a drain and a hold of
everything. What is not held is no error.`,
		Example: `  handsel resume engine:claude
  handsel resume`,
		ValidArgsFunction: a.complete(1, held),
		RunE: func(_ *cobra.Command, args []string) error {
			x, err := oneOrNone("resume", args, "")
			if err != nil {
				return err
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			gone, silent, err := h.Resume(context.Background(), x)
			if err != nil {
				return scopeUsage(err)
			}
			a.unheard(silent)
			return a.showResumed(gone, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// oneOrNone is the argument of a verb that takes one at most.
func oneOrNone(verb string, args []string, none string) (string, error) {
	switch len(args) {
	case 0:
		return none, nil
	case 1:
		return args[0], nil
	}
	return "", &usageError{fmt.Errorf("%s takes one name at most", verb)}
}

// scopeUsage makes a wrong command line of what no order can be about.
func scopeUsage(err error) error {
	if errors.As(err, new(*handsel.BadScope)) {
		return &usageError{err}
	}
	return err
}

// giveOrder gives an order and says what it means.
func (a *app) giveOrder(f *orderFlags, did string, give func(*handsel.Home) (*handsel.Ordered, error)) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	o, err := give(h)
	if err != nil {
		return scopeUsage(err)
	}
	a.unheard(o.Silent)
	if f.json {
		return a.printJSON(orderedJSON{V: 1, Did: did, Order: o.Order, Already: o.Already, Running: o.Running})
	}
	if did == "draining" {
		fmt.Fprintf(a.Out, "draining, %d running\n", o.Running)
		return nil
	}
	fmt.Fprintf(a.Out, "%s is held %s\n", clean(o.Order.Scope), untilText(o.Order))
	return nil
}

// unheard says why the dispatcher does not know yet.
func (a *app) unheard(silent string) {
	if silent != "" {
		a.say("warning: %s; it will see the change when it goes on", oneLine(silent))
	}
}

func untilText(o handsel.Order) string {
	if o.Until.IsZero() {
		return "until handsel resume"
	}
	return "until " + moment(o.Until)
}

func (a *app) showResumed(gone []handsel.Order, asJSON bool) error {
	if asJSON {
		return a.printJSON(resumedJSON{V: 1, Removed: append([]handsel.Order{}, gone...)})
	}
	for _, o := range gone {
		fmt.Fprintf(a.Out, "%s of %s is over\n", clean(string(o.Kind)), clean(o.Scope))
	}
	if len(gone) == 0 {
		fmt.Fprintln(a.Out, "nothing was held")
	}
	return nil
}

// end is when a hold ends by itself, zero for never.
func (f *orderFlags) end(now time.Time) (time.Time, error) {
	switch {
	case f.until != "" && f.span != "":
		return time.Time{}, &usageError{errors.New("--until and --for exclude each other")}
	case f.span != "":
		d, err := positive("for", f.span)
		return now.Add(d), err
	case f.until == "":
		return time.Time{}, nil
	}
	t, err := parseMoment(f.until, now)
	if err == nil && !t.After(now) {
		err = errors.New("that time has passed")
	}
	if err != nil {
		return time.Time{}, &handsel.BadOption{Option: "until", Value: f.until, Why: err.Error()}
	}
	return t, nil
}

// parseMoment reads a time: RFC 3339, or an hour and a minute here, the next
// there is.
func parseMoment(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(text)); err == nil {
		return t, nil
	}
	clock, err := time.Parse("15:04", text)
	if err != nil {
		return time.Time{}, errors.New("it must be a time such as 2006-01-02T15:04:05Z or 15:04")
	}
	t := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
	if !t.After(now) {
		t = t.AddDate(0, 0, 1)
	}
	return t, nil
}

// showDrain says of a drain how much goes on under it.
func (a *app) showDrain(s *handsel.Snapshot) {
	draining := false
	for _, h := range s.Holds {
		draining = draining || h.Kind == string(handsel.KindDrain)
	}
	if !draining {
		return
	}
	fmt.Fprintf(a.Out, "draining, %d running\n", a.home.Going())
}
