package handsel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
	"github.com/handsel/handsel/internal/run"
)

type (
	// Verdict is what was decided about the result of a run (P8).
	Verdict = review.Verdict

	// Checked are the policy's checks, run once on what a run left (P7).
	Checked = review.Checked

	// Check is one of the policy's checks and how it ended.
	Check = review.Check

	// Digest names what was judged (P8).
	Digest = review.Digest

	// Reviewed is all that was decided about a run.
	Reviewed = review.History
)

// Where a run stands in its review (C13).
const (
	ReviewNone     = review.None
	ReviewPending  = review.Pending
	ReviewAccepted = review.Accepted
	ReviewRejected = review.Rejected
	ReviewReleased = review.Released
)

// ReviewStates are the words that RunFilter.Review may have.
func ReviewStates() []string { return slices.Clone(review.States) }

// Codes of the classes acceptance and release.
const (
	CodeNotEnded       = "not_ended"
	CodeNotSucceeded   = "not_succeeded"
	CodeNotReviewable  = "not_reviewable"
	CodeNoEvidence     = "no_evidence"
	CodeChecksFailed   = "checks_failed"
	CodeChecksChanged  = "checks_changed"
	CodeDigestChanged  = "digest_changed"
	CodeDigestUnknown  = "digest_unknown"
	CodeVerifyFailed   = "verify_failed"
	CodeSelfSigned     = "self_signed"
	CodeVerdictRaced   = "verdict_raced"
	CodePending        = "review_pending"
	CodeRejected       = "rejected"
	CodeNotAccepted    = "not_accepted"
	CodePolicyChanged  = "policy_changed"
	CodeSuperseded     = "superseded"
	CodeNewerRunning   = "newer_running"
	CodeReleased       = "already_released"
	CodeReleasing      = "releasing"
	CodeReleaseUnknown = "release_unknown"
	CodeFenceStale     = "fence_stale"
	CodeFenceUnknown   = "fence_unknown"
)

// ReviewRefused refuses a verdict or a release. It is final (1): the same again
// is refused again until what it names has changed.
type ReviewRefused struct {
	Class string // acceptance or release
	Why   string // the code
	Text  string
}

func (e *ReviewRefused) Error() string { return e.Text }

// Code is the reason code of the refusal.
func (e *ReviewRefused) Code() string { return e.Why }

// Reason is the refusal in the words of C13.
func (e *ReviewRefused) Reason() *Reason {
	return &Reason{Class: e.Class, Code: e.Why, Message: e.Text}
}

func unacceptable(code, format string, args ...any) *ReviewRefused {
	return &ReviewRefused{journal.Acceptance, code, fmt.Sprintf(format, args...)}
}

// VerdictOptions say on what a verdict rests.
type VerdictOptions struct {
	Evidence  []string // references for people: a link, a ticket, a run of tests
	Note      string
	Digest    string // of what the reviewer has seen; another is refused. Empty: whatever is there
	Signature string // on Statement, for the policy's verify

	// How the policy's checks are run: where their output goes besides their
	// records, and as in Options. OnCheck is told as each of them ends.
	Output    *os.File
	Subreaper bool
	Signals   <-chan os.Signal
	OnCheck   func(review.Check)
}

// Given is a verdict that stands.
type Given struct {
	Verdict  *Verdict
	Warnings []error
}

// Accept says that what a run left is good enough: it names the digest of what is
// in its working directory now. The policy's checks are run first where they have
// not been on that digest. *ReviewRefused says why it is none; *Decides from
// inside an agent (C15).
func (h *Home) Accept(ctx context.Context, x string, o VerdictOptions) (*Given, error) {
	return h.decide(ctx, x, review.Accepted, o)
}

// Reject says that it is not. The run can be tried again with Retry, as a new
// attempt that names the verdict (P10).
func (h *Home) Reject(ctx context.Context, x string, o VerdictOptions) (*Given, error) {
	return h.decide(ctx, x, review.Rejected, o)
}

// RunChecks runs the policy's checks on what a run left and decides nothing.
// Their results are attached to the verdict that is given on the same digest.
func (h *Home) RunChecks(ctx context.Context, x string, o VerdictOptions) (*Checked, error) {
	j, err := h.judging(ctx, "accept", x)
	if err != nil {
		return nil, err
	}
	if err := j.look(ctx, o.Digest); err != nil {
		return nil, err
	}
	return j.check(ctx, o)
}

// Statement is what has to be signed for a verdict on what a run left, as it is
// now, "accepted" or "rejected".
func (h *Home) Statement(ctx context.Context, x, verdict string, o VerdictOptions) (string, error) {
	j, err := h.judging(ctx, verbOf(verdict), x)
	if err != nil {
		return "", err
	}
	if err := j.look(ctx, o.Digest); err != nil {
		return "", err
	}
	return j.verdict(verdict, o).Statement(), nil
}

// ReviewOf is all that was decided about a run.
func (h *Home) ReviewOf(k *KnownRun) (*Reviewed, error) { return review.Load(h.dir, &k.Run) }

func verbOf(verdict string) string {
	if verdict == review.Rejected {
		return "reject"
	}
	return "accept"
}

// judging is one look at a run that somebody decides about.
type judging struct {
	home   *Home
	run    *KnownRun
	rec    *record.Run // as it is on disk
	policy review.Policy
	conf   *inForce
	past   *review.History
	digest review.Digest
}

// toDecide finds the run that a verb decides about, and what is in force for it.
// *Decides from inside an agent (C15).
func (h *Home) toDecide(ctx context.Context, verb, x string) (*KnownRun, *inForce, error) {
	if err := mayDecide(verb); err != nil {
		return nil, nil, err
	}
	conf, err := h.settings()
	if err != nil {
		return nil, nil, err
	}
	w := h.look(ctx)
	defer w.close()
	k, err := w.one(x)
	return k, conf, err
}

// judging finds the run, and refuses what nobody can decide about.
func (h *Home) judging(ctx context.Context, verb, x string) (*judging, error) {
	k, conf, err := h.toDecide(ctx, verb, x)
	if err != nil {
		return nil, err
	}
	j := &judging{home: h, run: k, policy: conf.policy(), conf: conf}
	if !k.Ended() {
		return nil, unacceptable(CodeNotEnded, "%s is %s: there is nothing to judge yet", named(k), k.Word())
	}
	if j.rec, err = record.Load(h.dir, k.ID); err != nil {
		return nil, unacceptable(CodeNotReviewable, "%s has no record to decide about: %v", named(k), err)
	}
	switch {
	case k.Verb == "gate":
		return nil, unacceptable(CodeNotReviewable, "%s is a gate, whose status is all there is to it", named(k))
	case !k.Succeeded():
		return nil, unacceptable(CodeNotSucceeded, "%s ended without success: %s", named(k), k.Word())
	}
	j.past, err = review.Load(h.dir, j.rec)
	return j, err
}

// named is a run as people know it.
func named(k *KnownRun) string {
	if k.Lane == "" {
		return "run " + k.ID
	}
	return fmt.Sprintf("%s of lane %s", k.ID, strconv.QuoteToASCII(k.Lane))
}

// policy is what verdicts must satisfy now.
func (f *inForce) policy() review.Policy {
	return review.Policy{Checks: f.Review.Checks, Require: !f.Review.Lenient, Verify: f.Review.Verify}
}

// look takes the digest of what is there now.
func (j *judging) look(ctx context.Context, seen string) error {
	d, err := review.DigestOf(ctx, j.rec.Cwd)
	if err != nil {
		return unacceptable(CodeDigestUnknown, "what %s left cannot be named: %v", named(j.run), err)
	}
	if seen != "" && seen != d.Value {
		return unacceptable(CodeDigestChanged, "what %s left is %s now, not %s", named(j.run), d.Value, strconv.QuoteToASCII(seen))
	}
	j.digest = *d
	return nil
}

// check runs the policy's checks one after another, all of them, and keeps the
// results.
func (j *judging) check(ctx context.Context, o VerdictOptions) (*Checked, error) {
	c := &Checked{Attempt: j.rec.ID, Policy: j.policy.Sum(), Digest: j.digest, At: record.At(machine.Now()), UID: os.Getuid(), Passed: true}
	for _, argv := range j.policy.Checks {
		one, err := j.one(ctx, argv, o)
		if err != nil {
			return nil, err
		}
		c.Checks, c.Passed = append(c.Checks, *one), c.Passed && one.Passed
		if o.OnCheck != nil {
			o.OnCheck(*one)
		}
	}
	after, err := review.DigestOf(ctx, j.rec.Cwd)
	if err != nil {
		return nil, unacceptable(CodeDigestUnknown, "what %s left cannot be named after the checks: %v", named(j.run), err)
	}
	c.After = after.Value
	err = review.AddChecks(j.home.dir, j.past, c)
	for errors.Is(err, review.ErrTaken) { // somebody else ran them too: both count, as the same was run
		var now *review.History
		if now, err = review.Load(j.home.dir, j.rec); err == nil {
			j.past.Checks = now.Checks
			err = review.AddChecks(j.home.dir, j.past, c)
		}
	}
	if err != nil {
		return nil, err
	}
	j.past.Checks = append(j.past.Checks, c)
	j.tellChecked(c)
	return c, nil
}

// tellChecked writes down that a reviewer had the checks run, which is the first
// that most do about a result (P12). Their results are on record, whether or not
// the journal can be written.
func (j *judging) tellChecked(c *Checked) {
	code := "passed"
	if !c.Passed {
		code = "failed"
	}
	_ = j.home.tellJournal(journal.Event{
		Permission: journal.Acceptance, What: journal.Checked, Lane: j.rec.Lane, Attempt: j.rec.ID, Engine: j.rec.Engine,
		Identity: c.Digest.Value, Evidence: results(c.Checks), By: orderedBy(), Code: code,
	})
}

// results are the checks as evidence.
func results(checks []review.Check) (all []string) {
	for _, c := range checks {
		word := "failed"
		if c.Passed {
			word = "passed"
		}
		all = append(all, fmt.Sprintf("check %s %s", c.Run, word))
	}
	return all
}

func (j *judging) one(ctx context.Context, argv []string, o VerdictOptions) (*review.Check, error) {
	at := machine.Now()
	out, err := j.home.Gate(ctx, j.conf.Review.Pools, argv, Options{
		Dir: j.rec.Cwd, Timeout: j.conf.Review.Timeout, Stdout: o.Output, Stderr: o.Output, Record: true,
		Labels: map[string]string{"review": j.rec.ID}, Subreaper: o.Subreaper, Signals: o.Signals,
	})
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", strconv.QuoteToASCII(argv[0]), err)
	}
	if out.By != 0 {
		return nil, fmt.Errorf("check %s was ended by signal %d", strconv.QuoteToASCII(argv[0]), int(out.By))
	}
	c := &review.Check{Argv: argv, Run: out.Run, Outcome: out.Outcome.Outcome, Signal: int(out.Signal), At: record.At(at)}
	c.RanS = record.Seconds(out.Ended.Sub(out.Started))
	if out.Child.Pid != 0 && out.Signal == 0 {
		c.ExitCode = &out.ExitCode
	}
	c.Passed = c.Outcome == record.Exited && c.ExitCode != nil && *c.ExitCode == 0
	return c, nil
}

// verdict is one that is about to be given.
func (j *judging) verdict(word string, o VerdictOptions) *Verdict {
	return &Verdict{
		V: review.Version, Verdict: word, Attempt: j.rec.ID, Lane: j.rec.Lane, Fence: j.rec.Fence, Digest: j.digest, Policy: j.policy.Sum(),
		At: record.At(machine.Now()), UID: os.Getuid(), By: orderedBy(), Author: j.rec.Author,
		Evidence: o.Evidence, Note: o.Note, Signature: o.Signature,
	}
}

func (h *Home) decide(ctx context.Context, x, word string, o VerdictOptions) (*Given, error) {
	if err := o.trouble(); err != nil {
		return nil, err
	}
	j, err := h.judging(ctx, verbOf(word), x)
	if err != nil {
		return nil, err
	}
	if err := j.undone(); err != nil {
		return nil, err
	}
	if err := j.look(ctx, o.Digest); err != nil && (word == review.Accepted || o.Digest != "") {
		return nil, err // what is gone can be rejected all the same
	}
	v := j.verdict(word, o)
	if word == review.Accepted {
		err = j.acceptable(ctx, v, o)
	} else if c := j.past.Results(v.Policy, v.Digest.Value); c != nil {
		v.Checks = c.Checks
	}
	if err != nil {
		return nil, err
	}
	if v.Signer, err = h.signer(ctx, journal.Acceptance, j.policy, v, o.Signals); err != nil {
		return nil, err
	}
	return j.give(v)
}

// trouble is what is wrong with the texts.
func (o *VerdictOptions) trouble() error {
	if len(o.Evidence) > review.MaxEvidence {
		return &BadOption{"evidence", "", fmt.Sprintf("%d of them, and %d is the most", len(o.Evidence), review.MaxEvidence)}
	}
	for _, ref := range o.Evidence {
		if why := notLine(ref); why != "" {
			return &BadOption{"evidence", ref, why}
		}
	}
	if why := notLine(o.Note); o.Note != "" && why != "" {
		return &BadOption{"note", o.Note, why}
	}
	if len(o.Signature) > review.MaxSignature || !utf8.ValidString(o.Signature) || strings.ContainsRune(o.Signature, 0) {
		return &BadOption{"signature", "", fmt.Sprintf("it must be a text of at most %d bytes", review.MaxSignature)}
	}
	return nil
}

// notLine is why a text is no line of its own.
func notLine(text string) string {
	switch {
	case strings.TrimSpace(text) == "":
		return "it is empty"
	case len(text) > review.MaxText:
		return fmt.Sprintf("it has %d bytes, and %d is the most", len(text), review.MaxText)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return "it must be one line of text"
	}
	return ""
}

// undone refuses to decide about what has gone out, or is about to.
func (j *judging) undone() error {
	for _, r := range j.past.Releases {
		switch r.State() {
		case review.Done:
			return unacceptable(CodeReleased, "%s was released at %s, which no verdict takes back", named(j.run), shortTime(r.At))
		case review.Going:
			return unacceptable(CodeReleasing, "%s is being released by process %d", named(j.run), r.Handsel.Pid)
		}
	}
	return nil
}

func shortTime(t record.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// acceptable sees to the checks, and refuses what the policy does not bear.
func (j *judging) acceptable(ctx context.Context, v *Verdict, o VerdictOptions) error {
	if len(j.policy.Checks) > 0 {
		c := j.past.Results(v.Policy, v.Digest.Value)
		if c == nil {
			var err error
			if c, err = j.check(ctx, o); err != nil {
				return err
			}
		}
		v.Checks = c.Checks
		switch failed := failedChecks(c); {
		case len(failed) > 0 && j.policy.Require:
			return unacceptable(CodeChecksFailed, "%s is not accepted: of its checks these failed: %s", named(j.run), strings.Join(failed, "; "))
		case c.Changed():
			return unacceptable(CodeChecksChanged, "%s is not accepted: its checks changed what is judged, from %s to %s: look at it, and accept again", named(j.run), c.Digest.Value, c.After)
		}
	}
	if len(v.Evidence) == 0 && len(v.Checks) == 0 {
		return unacceptable(CodeNoEvidence, "accept needs evidence, as the policy has no checks: --evidence REF")
	}
	return nil
}

func failedChecks(c *Checked) (failed []string) {
	for _, one := range c.Checks {
		if one.Passed {
			continue
		}
		how := strings.ReplaceAll(one.Outcome, "_", " ")
		switch {
		case one.ExitCode != nil && one.Outcome == record.Exited:
			how = "exit " + strconv.Itoa(*one.ExitCode)
		case one.Signal != 0:
			how = "signal " + strconv.Itoa(one.Signal)
		}
		failed = append(failed, fmt.Sprintf("%s (%s, handsel logs %s)", strconv.QuoteToASCII(strings.Join(one.Argv, " ")), how, one.Run))
	}
	return failed
}

// give writes the verdict.
func (j *judging) give(v *Verdict) (*Given, error) {
	h := j.home
	if j.rec.Review == "" { // nobody asked for a review before, and lists go by the record
		w, rec, err := record.Reopen(h.dir, j.rec.ID)
		if err != nil {
			return nil, err
		}
		rec.Review = review.Pending
		if err := errors.Join(w.Save(rec), w.Close()); err != nil {
			return nil, err
		}
	}
	err := review.AddVerdict(h.dir, j.past, v)
	if errors.Is(err, review.ErrTaken) {
		text := "somebody else decided at the same time"
		if now, lerr := review.Load(h.dir, j.rec); lerr == nil && now.Last() != nil {
			text = fmt.Sprintf("%s was %s at the same time by %s", named(j.run), now.Last().Verdict, now.Last().Who())
		}
		return nil, unacceptable(CodeVerdictRaced, "%s: look at that, and decide again if need be", text)
	}
	if err != nil {
		return nil, err
	}
	g := &Given{Verdict: v}
	// A release that began since we looked goes by what was decided before, unless it
	// has not looked again yet: it is for a person to see to.
	if now, err := review.Load(h.dir, j.rec); err == nil && now.LastRelease() != nil && len(now.Releases) > len(j.past.Releases) {
		g.Warnings = append(g.Warnings, fmt.Errorf("a release began at the same time, by verdict %d: handsel show %s tells what becomes of it", now.LastRelease().Verdict, j.rec.ID))
	}
	g.Warnings = append(g.Warnings, asWarnings(h.tellJournal(journal.Event{
		Permission: journal.Acceptance, What: v.Verdict, Lane: v.Lane, Attempt: v.Attempt, Engine: j.rec.Engine, From: j.past.State(), To: v.Verdict,
		Identity: v.Digest.Value, Evidence: evidence(v), By: v.Who(), Text: v.Note,
	}))...)
	return g, nil
}

// evidence is what a verdict rests on, as far as an event has room for it; the
// file has all of it.
func evidence(v *Verdict) []string {
	all := append([]string{fmt.Sprintf("verdict %d", v.N)}, results(v.Checks)...)
	const room = 4 << 10
	size := 0
	for i, ref := range append(all, v.Evidence...) {
		if size += len(strconv.Quote(ref)); size > room {
			return append(all[:min(i, len(all))], "and more in its file")
		}
		if i >= len(all) {
			all = append(all, ref)
		}
	}
	return all
}

// tellJournal writes down what was decided, and tells whoever wants to be told.
// That it cannot be done changes nothing of what happened, and is said.
func (h *Home) tellJournal(e journal.Event) error {
	if err := h.transferred(e); err != nil {
		return fmt.Errorf("not everybody will know of this: %w", err)
	}
	return nil
}

// signer asks the policy's command who gave a verdict; empty where there is no
// such command. Whoever asked for the work cannot be who vouches for it (P8).
func (h *Home) signer(ctx context.Context, class string, p review.Policy, v *Verdict, signals <-chan os.Signal) (string, error) {
	if len(p.Verify) == 0 {
		return "", nil
	}
	said, err := asked(ctx, p.Verify, v, signals)
	if err != nil {
		return "", &ReviewRefused{class, CodeVerifyFailed, "the verdict is not vouched for: " + err.Error()}
	}
	if author := strings.TrimSpace(v.Author); author != "" && strings.EqualFold(author, said) {
		return "", &ReviewRefused{class, CodeSelfSigned, fmt.Sprintf("%s asked for the work and cannot be who vouches for it: another has to sign", strconv.QuoteToASCII(said))}
	}
	return said, nil
}

// The variables in which the command of review.verify finds what it needs without
// taking JSON apart.
const (
	envStatement = "HANDSEL_STATEMENT"
	envSignature = "HANDSEL_SIGNATURE"
)

// asked runs the command and returns the first line of what it prints.
func asked(ctx context.Context, argv []string, v *Verdict, signals <-chan os.Signal) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	said, err := run.Command{
		Argv: argv, Env: append(plainEnv(os.Environ()), envStatement+"="+v.Statement(), envSignature+"="+v.Signature), Stdin: append(text, '\n'),
		Limit: review.Patience, Grace: time.Second, Daemons: true, Signals: signals, Out: review.MaxText, Err: review.MaxText,
	}.Run(ctx)
	if err != nil {
		return "", err
	}
	if err := said.Failure(); err != nil {
		if why := firstLine(said.Stderr); why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
		return "", err
	}
	who := firstLine(said.Stdout)
	if who == "" {
		return "", fmt.Errorf("%s exited 0 and named nobody: its first line must be who signed", strconv.QuoteToASCII(argv[0]))
	}
	return who, nil
}

// firstLine is the first line of what a command printed, fit to be shown.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(line, "\uFFFD")))
}

// forReview tells whether a run that ended that way waits for a verdict (P7).
func (j *job) forReview(out *Outcome, err error) bool {
	if err != nil || j.gate || out.Outcome.Outcome != record.Exited || !j.o.Review && !review.Match(j.reviewed(), j.laneName()) {
		return false
	}
	if out.Result != "" {
		return out.Result == record.Succeeded
	}
	return out.ExitCode == 0
}

// reviewed are the patterns of the lanes that are reviewed.
func (j *job) reviewed() []string {
	if j.settings == nil {
		return nil
	}
	return j.settings.Review.Lanes
}
