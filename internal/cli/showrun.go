package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) showCommand() *cobra.Command {
	var asJSON, argv bool
	cmd := &cobra.Command{
		Use:   "show X",
		Short: "show all that is known of one run",
		Long: `Show prints a run's record, with state and outcome as they are judged now. X is a
run's id or the end of it, at least six characters; a lane, which means its
present attempt; or engine:, pool: or label: and a name that one run has. Work
that waits is shown as its row is. It changes nothing.`,
		Example:           `  handsel show 4f2a9c`,
		ValidArgsFunction: a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("show needs one name: handsel show RUN")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			found, err := findWork(context.Background(), h, args[0], true)
			if err != nil {
				return err
			}
			if len(found) > 1 {
				return &handsel.Ambiguous{Name: args[0], Fits: names(found)}
			}
			switch {
			case argv:
				return a.showArgv(h, found[0].ID)
			}
			past := a.reviewOf(h, &found[0])
			if asJSON {
				return a.printJSON(shownJSON{&found[0], past})
			}
			return a.showRun(&found[0], past)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object: the record, as it is judged now")
	cmd.Flags().BoolVar(&argv, "argv", false, "the command line of enqueued work, one argument on each line, quoted")
	return cmd
}

// shownJSON is a run with all that was decided about it.
type shownJSON struct {
	*handsel.KnownRun
	Reviewed *handsel.Reviewed `json:"reviewed,omitempty"`
}

// reviewOf is what was decided about a run, nil when that is nothing.
func (a *app) reviewOf(h *handsel.Home, r *handsel.KnownRun) *handsel.Reviewed {
	past, err := h.ReviewOf(r)
	if err != nil {
		a.warnAll([]string{err.Error()})
		return nil
	}
	if len(past.Checks) == 0 && len(past.Verdicts) == 0 && len(past.Releases) == 0 {
		return nil
	}
	return past
}

// showArgv prints what an attempt was enqueued to start. Nothing else shows it.
func (a *app) showArgv(h *handsel.Home, id string) error {
	argv, err := h.CommandLine(id)
	for _, word := range argv {
		fmt.Fprintln(a.Out, strconv.QuoteToASCII(word))
	}
	return err
}

func names(found []handsel.KnownRun) []string {
	var all []string
	for i, r := range found {
		if i == 20 {
			return append(all, fmt.Sprintf("and %d more", len(found)-i))
		}
		all = append(all, "run:"+r.ID)
	}
	return all
}

// showRun prints one field a line.
func (a *app) showRun(r *handsel.KnownRun, past *handsel.Reviewed) error {
	w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, clean(value))
		}
	}
	line("run", r.ID)
	line("state", stateText(r))
	line("end", endText(r))
	line("message", r.Message)
	line("until", moment(r.Until.Time))
	if t := r.Trouble; t != nil {
		line("trouble", t.Text+", since "+moment(t.Since.Time))
	}
	if r.Reason != nil {
		line("reason", r.Reason.Code+": "+r.Reason.Message)
	}
	a.showReview(r, past, line)
	line("verb", r.Verb)
	line("command", commandText(r))
	line("directory", r.Cwd)
	line("engine", r.Engine)
	line("account", r.Account)
	line("version", r.EngineVersion)
	line("model", r.Model)
	line("profile", r.Profile)
	line("conversation", r.Session)
	line("usage", usageText(r.Usage))
	line("workload", attended(r.Workload, r.Interactive))
	line("confinement", r.Confinement)
	line("limits", limitsText(r.Limits))
	line("pools", poolsText(r))
	line("supervisor", processText(r.Handsel.Pid))
	if r.Child != nil {
		line("agent", processText(r.Child.Pid))
	}
	line("started by", chainText(r))
	line("author", r.Author)
	line("labels", labelsText(r.Labels))
	line("queued", moment(r.QueuedAt.Time))
	line("admitted", moment(r.AdmittedAt.Time))
	line("started", moment(r.StartedAt.Time))
	line("first output", moment(r.FirstAt.Time))
	line("ended", moment(r.EndedAt.Time))
	if r.WaitedS > 0 {
		line("waited", span(time.Duration(r.WaitedS*float64(time.Second))))
	}
	line("ran", lasted(r, time.Now()))
	if o := r.Output; o != nil {
		line("output", fmt.Sprintf("stdout %d bytes, stderr %d bytes, %d not kept", o.StdoutBytes, o.StderrBytes, o.TruncatedBytes))
	}
	for _, s := range r.Survivors {
		line("survivor", fmt.Sprintf("pid %d (%s): %s", s.Pid, s.Comm, s.Why))
	}
	for _, n := range r.Notes {
		line("note", n)
	}
	line("known from", strings.Join(r.Sources, ", "))
	return w.Flush()
}

func stateText(r *handsel.KnownRun) string {
	text := r.State
	switch {
	case r.Orphaned:
		text += ", orphaned: its supervisor is gone (handsel cancel ends it)"
	case r.Unverifiable:
		text += ", as recorded: it cannot be looked at from here"
	case r.Place > 0:
		text += fmt.Sprintf(", place %d in line", r.Place)
	}
	if r.Recorded != "" {
		text += fmt.Sprintf(" (its record says %s)", r.Recorded)
	}
	return text
}

func endText(r *handsel.KnownRun) string {
	if !r.Ended() {
		return ""
	}
	text := r.Outcome
	switch {
	case r.ExitCode != nil:
		text += fmt.Sprintf(", exit %d", *r.ExitCode)
	case r.Signal != 0:
		text += fmt.Sprintf(", signal %d", r.Signal)
	}
	if r.Result != "" {
		text += ", " + strings.TrimSpace(r.Result+" "+r.Kind)
	}
	return text
}

func commandText(r *handsel.KnownRun) string {
	if r.Argc > 1 {
		return fmt.Sprintf("%s and %d arguments", r.Argv0, r.Argc-1)
	}
	return r.Argv0
}

func poolsText(r *handsel.KnownRun) string {
	var all []string
	for _, p := range r.Pools {
		text := fmt.Sprintf("%s/%d", p.Name, p.Slot)
		if p.Cap != 0 {
			text += fmt.Sprintf(" of %d", p.Cap)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// limitsText is how long a run may take, as it was asked for (C149).
func limitsText(l *handsel.RunLimits) string {
	if l == nil {
		return ""
	}
	var all []string
	if l.TimeoutS > 0 {
		all = append(all, span(time.Duration(l.TimeoutS*float64(time.Second)))+" in all")
	}
	if l.IdleS > 0 {
		all = append(all, "idle "+span(time.Duration(l.IdleS*float64(time.Second))))
	}
	return strings.Join(all, ", ")
}

func processText(pid int) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf("pid %d", pid)
}

func chainText(r *handsel.KnownRun) string {
	if len(r.StartedBy) == 0 {
		return ""
	}
	all := []string{}
	for _, p := range r.StartedBy {
		all = append(all, fmt.Sprintf("%s (%d)", p.Comm, p.Pid))
	}
	return fmt.Sprintf("uid %d, %s", r.UID, strings.Join(all, " under "))
}

// usageText is what the turn took, as the engine says.
func usageText(u *handsel.Usage) string {
	if u == nil {
		return ""
	}
	text := fmt.Sprintf("%d tokens in", u.Input)
	if u.Cached > 0 {
		text += fmt.Sprintf(" (%d cached)", u.Cached)
	}
	text += fmt.Sprintf(", %d out", u.Output)
	if u.Turns > 0 {
		text += fmt.Sprintf(", %d turns", u.Turns)
	}
	if u.Cost > 0 {
		text += fmt.Sprintf(", %.4f USD by its own reckoning", u.Cost)
	}
	return text
}

func labelsText(labels map[string]string) string {
	var all []string
	for k, v := range labels {
		all = append(all, k+"="+v)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// moment is a time as people and programs both read it (C12).
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
