package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/handsel/handsel"
)

// verdictFlags are what accept and reject share.
type verdictFlags struct {
	opts      handsel.VerdictOptions
	signature string
	statement bool
	json      bool
}

func (f *verdictFlags) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringArrayVar(&f.opts.Evidence, "evidence", nil, "`REF` to what it rests on: a link, a ticket, a run of tests")
	fs.StringVar(&f.opts.Note, "note", "", "`TEXT` of one line, for people")
	fs.StringVar(&f.opts.Digest, "digest", "", "`D` is what has been seen; another is refused")
	fs.BoolVar(&f.statement, "statement", false, "decide nothing; print what has to be signed")
	fs.StringVar(&f.signature, "signature", "", "`FILE` with the signature on it, for review.verify (- is ours)")
	fs.BoolVar(&f.json, "json", false, "one JSON object: the verdict")
}

func (a *app) acceptCommand() *cobra.Command {
	f, check := &verdictFlags{}, false
	cmd := &cobra.Command{
		Use:   "accept X --evidence REF…",
		Short: "say that what a run left is good enough",
		Long: `Accept gives a verdict on what is in the run's working directory now: it names the
run, a digest of that, who and when, and is kept for ever. X is a run, or a lane,
which means its last one. The checks of the configuration are run first, counted
as a gate is; one that fails, or that changes what is judged, refuses it (1).

An agent accepts nothing (1, inside_agent). Another verdict may follow, and the
last counts; of two given at once one wins. See the review page.`,
		Example: `  handsel accept api/review --evidence https://ci.example.org/runs/71
  handsel accept api/review --check`,
		ValidArgsFunction: a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.judge(f, "accept", args, check)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&check, "check", false, "decide nothing; run the checks and keep their results (1: one failed)")
	return cmd
}

func (a *app) rejectCommand() *cobra.Command {
	f := &verdictFlags{}
	cmd := &cobra.Command{
		Use:   "reject X",
		Short: "say that what a run left is not good enough",
		Long: `Reject gives a verdict as accept does, the other way; no check is run for it. What
was accepted is not any more. handsel retry queues the work once more, as a new
attempt of the same lane that names the verdict.`,
		Example:           `  handsel reject api/review --note "the migration is missing"`,
		ValidArgsFunction: a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.judge(f, "reject", args, false)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// judge gives a verdict, or does what comes before one.
func (a *app) judge(f *verdictFlags, verb string, args []string, check bool) error {
	switch {
	case len(args) != 1:
		return &usageError{fmt.Errorf("%s needs one name: handsel %s LANE", verb, verb)}
	case check && f.statement:
		return &usageError{errors.New("--check and --statement exclude each other")}
	}
	var err error
	if f.opts.Signature, err = a.signature(f.signature); err != nil {
		return err
	}
	h, err := a.open()
	if err == nil {
		err = handsel.CloseInherited()
	}
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handsel.RunSignals()...)
	o := &f.opts
	o.Output, o.Subreaper, o.Signals = a.Err, true, signals
	if !f.json {
		o.OnCheck = func(c handsel.Check) { a.say("%s", checkText(c)) }
	}
	ctx, caught := untilSignal()
	err = a.decide(ctx, h, f, verb, args[0], check)
	if sig := caught(); sig != 0 && err != nil {
		a.say("%s", oneLine(err.Error()))
		handsel.DieBy(sig)
	}
	return err
}

// decide does what was asked for.
func (a *app) decide(ctx context.Context, h *handsel.Home, f *verdictFlags, verb, x string, check bool) error {
	o := &f.opts
	switch {
	case check:
		return a.runChecks(ctx, h, x, f)
	case f.statement:
		verdict := handsel.ReviewAccepted
		if verb == "reject" {
			verdict = handsel.ReviewRejected
		}
		text, err := h.Statement(ctx, x, verdict, *o)
		if err == nil {
			_, err = io.WriteString(a.Out, text)
		}
		return nameUsage(err)
	}
	give := h.Accept
	if verb == "reject" {
		give = h.Reject
	}
	given, err := give(ctx, x, *o)
	if err != nil {
		return nameUsage(err)
	}
	for _, w := range given.Warnings {
		a.say("warning: %s", oneLine(w.Error()))
	}
	if f.json {
		return a.printJSON(given.Verdict)
	}
	fmt.Fprintln(a.Out, verdictText(given.Verdict))
	return nil
}

// signature reads what stands in a file.
func (a *app) signature(from string) (string, error) {
	const most = 64 << 10
	var text []byte
	var err error
	switch from {
	case "":
		return "", nil
	case "-":
		text, err = io.ReadAll(io.LimitReader(a.In, most+1))
	default:
		text, err = readSome(from, most+1)
	}
	if err == nil && len(text) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", &handsel.BadOption{Option: "signature", Value: from, Why: err.Error()}
	}
	return string(text), nil
}

// runChecks runs the checks and says how each ended.
func (a *app) runChecks(ctx context.Context, h *handsel.Home, x string, f *verdictFlags) error {
	c, err := h.RunChecks(ctx, x, f.opts)
	if err != nil {
		return nameUsage(err)
	}
	if f.json {
		if err := a.printJSON(c); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(a.Out, checkedText(c))
	}
	if !c.Passed || c.Changed() {
		return statusError(statusFinal)
	}
	return nil
}

func checkText(c handsel.Check) string {
	word := "failed"
	if c.Passed {
		word = "passed"
	}
	return fmt.Sprintf("check %s: %s in %s (handsel logs %s)", clean(strings.Join(c.Argv, " ")), word, span(time.Duration(c.RanS*float64(time.Second))), short(c.Run))
}

func checkedText(c *handsel.Checked) string {
	passed := 0
	for _, one := range c.Checks {
		if one.Passed {
			passed++
		}
	}
	text := fmt.Sprintf("%d of %d checks passed on %s", passed, len(c.Checks), c.Digest.Value)
	if c.Changed() {
		text += ", and changed it to " + c.After
	}
	return text
}

// verdictText is a verdict on one line.
func verdictText(v *handsel.Verdict) string {
	text := fmt.Sprintf("%s run %s", v.Verdict, v.Attempt)
	if v.Lane != "" {
		text += " lane " + clean(v.Lane)
	}
	if v.Digest.Value != "" {
		text += " as " + v.Digest.Value
	}
	return text + " by " + clean(v.Who())
}

// reviewStatus is the status of a refusal of acceptance or release.
func reviewStatus(err error) (int, bool) {
	no, ok := errors.AsType[*handsel.ReviewRefused](err)
	switch {
	case !ok:
		return 0, false
	case no.Why == handsel.CodeNoEvidence:
		return statusUsage, true
	}
	return statusFinal, true
}

// showReview prints what was decided about a run.
func (a *app) showReview(r *handsel.KnownRun, past *handsel.Reviewed, line func(name, value string)) {
	if r.Review != "" && r.Review != handsel.ReviewNone {
		line("review", r.Review)
	}
	if r.RetryOf != "" {
		text := r.RetryOf
		if r.RetryVerdict > 0 {
			text += fmt.Sprintf(", which has verdict %d", r.RetryVerdict)
		}
		line("tries again", text)
	}
	if past == nil {
		return
	}
	for _, c := range past.Checks {
		line("checks", checkedText(c)+", "+moment(c.At.Time))
	}
	for _, v := range past.Verdicts {
		text := fmt.Sprintf("%d: %s by %s, %s, as %s", v.N, v.Verdict, v.Who(), moment(v.At.Time), v.Digest.Value)
		if v.Note != "" {
			text += ": " + v.Note
		}
		line("verdict", text)
		for _, ref := range v.Evidence {
			line("evidence", ref)
		}
		for _, c := range v.Checks {
			line("", checkText(c))
		}
	}
	for _, rel := range past.Releases {
		text := fmt.Sprintf("%d: %s by %s, %s", rel.N, rel.State(), rel.By, moment(rel.At.Time))
		if rel.Anyway != "" {
			text += fmt.Sprintf(", in spite of %s: %s", strings.Join(rel.Despite, ", "), rel.Anyway)
		}
		line("release", text)
	}
}
