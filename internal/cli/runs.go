package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// runsFlags are those of the verb runs.
type runsFlags struct {
	json    bool
	refused bool
	lasted  bool
	limit   int
	state   string
	engine  string
	labels  []string
	since   string
	review  string
}

func (a *app) runsCommand() *cobra.Command {
	f := &runsFlags{}
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "list runs and how they ended, newest first",
		Long: `Runs lists what was started, from the records on disk, the slots and the line. A
record that says running of a run that is gone is shown as lost. It changes
nothing. The totals count all that fits the flags, also beyond --limit: started
is always the sum of succeeded, failed, lost and running.

With --durations: from being asked for to being admitted, from there to being
claimed by a driver, the run itself, from its end to a reviewer's first act and to
its acceptance, and from there to its release; and what the queue wait was spent on.`,
		Example: `  handsel runs --state lost --since 24h
  handsel runs --label ticket=12 --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			readFast()
			h, err := a.open()
			if err != nil {
				return err
			}
			if f.lasted {
				return a.listDurations(h, f)
			}
			if f.refused {
				return a.showRefusals(h, f)
			}
			return a.listRuns(h, f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.json, "json", false, "one JSON object")
	fs.IntVar(&f.limit, "limit", 20, "list at most `N`; 0 lists all")
	fs.BoolVar(&f.refused, "refused", false, "list starts that were refused instead")
	fs.BoolVar(&f.lasted, "durations", false, "list how long each took for what instead: queue, claim, run, review, acceptance, release")
	fs.StringVar(&f.state, "state", "", "only runs of this state or outcome ("+strings.Join(handsel.RunStates(), ", ")+")")
	fs.StringVar(&f.engine, "engine", "", "only runs of this engine")
	fs.StringArrayVar(&f.labels, "label", nil, "only runs with this label, `K=V`")
	fs.StringVar(&f.review, "review", "", "only runs that ended and stand so in their review ("+strings.Join(handsel.ReviewStates(), ", ")+")")
	fs.StringVar(&f.since, "since", "", "only runs of the last `D` (90s, 10m, 24h, seconds)")
	return cmd
}

// readFast takes as many processors as reading thousands of records is worth
// (decision 0019); a run has one (0009).
func readFast() { runtime.GOMAXPROCS(min(4, runtime.NumCPU())) }

// filter reads the flags.
func (f *runsFlags) filter(h *handsel.Home) (handsel.RunFilter, error) {
	out := handsel.RunFilter{Limit: f.limit, State: f.state, Engine: f.engine}
	if f.limit < 0 {
		return out, &handsel.BadOption{Option: "limit", Value: fmt.Sprint(f.limit), Why: "it must not be negative"}
	}
	if f.state != "" && !contains(handsel.RunStates(), f.state) {
		return out, &handsel.BadOption{Option: "state", Value: f.state, Why: "it must be one of " + strings.Join(handsel.RunStates(), ", ")}
	}
	if f.review != "" && !contains(handsel.ReviewStates(), f.review) {
		return out, &handsel.BadOption{Option: "review", Value: f.review, Why: "it must be one of " + strings.Join(handsel.ReviewStates(), ", ")}
	}
	out.Review = f.review
	if f.engine != "" {
		name, err := h.EngineName(f.engine)
		if err != nil {
			return out, err
		}
		out.Engine = name
	}
	for _, l := range f.labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return out, &handsel.BadOption{Option: "label", Value: l, Why: "it must be KEY=VALUE"}
		}
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[k] = v
	}
	if f.since != "" {
		d, err := handsel.ParseDuration(f.since)
		if err != nil {
			return out, &handsel.BadOption{Option: "since", Value: f.since, Why: err.Error()}
		}
		out.Since = time.Now().Add(-d)
	}
	return out, nil
}

func contains(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

func (a *app) listRuns(h *handsel.Home, f *runsFlags) error {
	filter, err := f.filter(h)
	if err != nil {
		return err
	}
	list, err := h.Runs(filter)
	if err != nil {
		return err
	}
	if f.json {
		return a.printJSON(list)
	}
	a.warnAll(list.Problems)
	now := time.Now()
	var rows [][]string
	for i := range list.Runs {
		r := &list.Runs[i]
		rows = append(rows, []string{
			short(r.ID), attended(r.Verb, r.Interactive), fit(r.Word(), 12), fit(cmp.Or(failedBy(r), reviewWord(r), ending(r)), 11), fit(account(r.Engine, r.Account), 14), fit(r.Argv0, 16), ago(now, r.Began()), lasted(r, now),
		})
	}
	if err := a.showRows([]string{"RUN", "VERB", "STATE", "END", "ENGINE", "COMMAND", "AGO", "RAN"}, rows); err != nil {
		return err
	}
	t := list.Totals
	fmt.Fprintf(a.Out, "started %d: succeeded %d, failed %d, lost %d, running %d", t.Started, t.Succeeded, t.Failed, t.Lost, t.Running)
	if t.Queued > 0 {
		fmt.Fprintf(a.Out, "; waiting %d", t.Queued)
	}
	if t.Not > 0 {
		fmt.Fprintf(a.Out, "; not started %d", t.Not)
	}
	fmt.Fprintln(a.Out)
	return nil
}

func (a *app) warnAll(problems []string) {
	for _, p := range problems {
		a.say("warning: %s", oneLine(p))
	}
}

// ending is how a run ended, in a word or a number. An agent's failure is named,
// whatever its status says (E11).
func ending(r *handsel.KnownRun) string {
	switch {
	case !r.Ended():
		return ""
	case r.Outcome == "exited" && r.ExitCode != nil:
		text := fmt.Sprintf("exit %d", *r.ExitCode)
		if kind := failedBy(r); kind != "" {
			text += ", " + kind
		}
		return text
	case r.Signal != 0:
		return fmt.Sprintf("signal %d", r.Signal)
	case r.Reason != nil && r.Reason.Code != r.Word(): // it says so already
		return r.Reason.Code
	}
	return ""
}

// reviewWord is where a run stands in its review, which only one that succeeded
// has.
func reviewWord(r *handsel.KnownRun) string {
	switch r.Review {
	case handsel.ReviewNone:
		return ""
	case handsel.ReviewPending:
		return "in review"
	}
	return r.Review
}

// failedBy is why an agent that exited failed, where its status alone does not
// say it; empty for everything else.
func failedBy(r *handsel.KnownRun) string {
	switch {
	case r.Outcome != "exited" || r.Result != failed:
		return ""
	case r.Kind != "" && r.Kind != "agent":
		return r.Kind
	case r.ExitCode != nil && *r.ExitCode == 0:
		return failed
	}
	return ""
}

// lasted is how long a run ran, or runs by now.
func lasted(r *handsel.KnownRun, now time.Time) string {
	switch {
	case r.StartedAt.IsZero():
		return ""
	case r.RanS > 0:
		return span(time.Duration(r.RanS * float64(time.Second)))
	case !r.EndedAt.IsZero():
		return span(r.EndedAt.Sub(r.StartedAt.Time))
	case r.Ended():
		return ""
	}
	return ago(now, r.StartedAt.Time)
}

// refusalList is the JSON of runs --refused.
type refusalList struct {
	V        int                `json:"v"`
	Refused  []*handsel.Refusal `json:"refused"`
	Problems []string           `json:"problems"`
}

func (a *app) showRefusals(h *handsel.Home, f *runsFlags) error {
	filter, err := f.filter(h)
	if err != nil {
		return err
	}
	if filter.State != "" || filter.Review != "" {
		return &usageError{fmt.Errorf("--refused excludes --state and --review")}
	}
	all, problems, err := h.Refusals(filter.Since, 0)
	if err != nil {
		return err
	}
	out := refusalList{V: 1, Refused: []*handsel.Refusal{}, Problems: append([]string{}, problems...)}
	for _, r := range all {
		if (filter.Engine == "" || filter.Engine == r.Engine) && hasLabels(r.Labels, filter.Labels) && (filter.Limit == 0 || len(out.Refused) < filter.Limit) {
			out.Refused = append(out.Refused, r)
		}
	}
	if f.json {
		return a.printJSON(out)
	}
	a.warnAll(problems)
	now := time.Now()
	var rows [][]string
	for _, r := range out.Refused {
		retry := "no"
		if r.Reason.Retryable {
			retry = "yes"
		}
		rows = append(rows, []string{
			short(r.ID), r.Verb, fit(r.Reason.Code, 15), retry, fit(r.Engine, 10), fit(r.Argv0, 16), ago(now, r.At.Time),
			span(time.Duration(r.WaitedS * float64(time.Second))),
		})
	}
	return a.showRows([]string{"RUN", "VERB", "REASON", "RETRY", "ENGINE", "COMMAND", "AGO", "WAITED"}, rows)
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
