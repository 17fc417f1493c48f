package handsel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
	"github.com/handsel/handsel/internal/run"
)

// ReleaseOptions say how Release runs its command.
type ReleaseOptions struct {
	// Anyway is why it is to be released in spite of a newer attempt that runs, of
	// an earlier release, or of one of which nobody knows what became. Nothing else
	// is overruled by it. Empty: not.
	Anyway string

	Dir    string // empty: the current directory
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File

	Subreaper bool // as in Options
	Signals   <-chan os.Signal
}

// overruled are the refusals that a reason is enough to go past.
var overruled = []string{CodeNewerRunning, CodeReleased, CodeReleaseUnknown}

func unreleasable(code, format string, args ...any) *ReviewRefused {
	return &ReviewRefused{journal.Release, code, fmt.Sprintf(format, args...)}
}

// Release runs a command that lets the result of a run out: only if it is
// accepted under the present policy, what was judged is still there, it is the
// newest accepted one of its lane, and nothing newer runs there (P9). The command
// gets HANDSEL_LANE, HANDSEL_ATTEMPT and HANDSEL_FENCE. A mark is on the disk
// before it starts, so that a crash is told as one.
//
// ctx bounds what comes before the command, and o.Signals end the command. The
// outcome is never nil. The error is nil whenever the command ran;
// *ReviewRefused says why it was not started, *Decides that an agent asked.
func (h *Home) Release(ctx context.Context, x string, argv []string, o ReleaseOptions) (*Outcome, error) {
	out, err := h.release(ctx, x, argv, o)
	if out == nil {
		out = NothingRan()
	}
	return out, err
}

func (h *Home) release(ctx context.Context, x string, argv []string, o ReleaseOptions) (*Outcome, error) {
	if why := notLine(o.Anyway); o.Anyway != "" && why != "" {
		return nil, &BadOption{"anyway", o.Anyway, why}
	}
	r, err := h.releasing(ctx, x)
	if err != nil {
		return nil, err
	}
	despite, err := r.may(ctx, o)
	if err != nil {
		r.tellRefused(err)
		return nil, err
	}
	return r.let(ctx, argv, despite, o)
}

// tellRefused writes down that the release was refused, if that is what err says.
// The refusal stands, whether or not the journal can be written.
func (r *releasing) tellRefused(err error) {
	if no, ok := errors.AsType[*ReviewRefused](err); ok {
		_ = r.home.tellJournal(journal.Event{Permission: journal.Release, What: "refused", Lane: r.run.Lane, Attempt: r.run.ID, Engine: r.run.Engine, By: orderedBy(), Code: no.Why, Text: no.Text, Evidence: r.rests()})
	}
}

// releasing is one look at a run that is to go out.
type releasing struct {
	home   *Home
	run    *KnownRun
	policy review.Policy
	past   *review.History
}

func (h *Home) releasing(ctx context.Context, x string) (*releasing, error) {
	k, conf, err := h.toDecide(ctx, "release", x)
	if err != nil {
		return nil, err
	}
	r := &releasing{home: h, run: k, policy: conf.policy()}
	r.past, err = review.Load(h.dir, &k.Run)
	return r, err
}

// rests is what the release would rest on.
func (r *releasing) rests() []string {
	v := r.past.Last()
	if v == nil {
		return nil
	}
	return []string{fmt.Sprintf("verdict %d", v.N), v.Digest.Value}
}

// may is nil when the command may be started; despite are the refusals that o
// goes past.
func (r *releasing) may(ctx context.Context, o ReleaseOptions) (despite []string, err error) {
	if len(r.policy.Verify) == 0 {
		return r.goesPast(ctx, o, (*releasing).objections)
	}
	if _, err := r.goesPast(ctx, o, (*releasing).decided); err != nil {
		return nil, err
	}
	// Whoever vouched for the verdict is asked again: a file can be written by
	// anybody who has the account, a signature cannot. That may take its time, so
	// what is there, and who has the lane, is looked at when it has said yes.
	if _, err := r.home.signer(ctx, journal.Release, r.policy, r.past.Last(), o.Signals); err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	return r.goesPast(ctx, o, (*releasing).objections)
}

// goesPast are the objections that o goes past, if those are all that ask has.
func (r *releasing) goesPast(ctx context.Context, o ReleaseOptions, ask func(*releasing, context.Context) ([]*ReviewRefused, error)) (despite []string, err error) {
	objections, err := ask(r, ctx)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	for _, no := range objections {
		if o.Anyway == "" || !slices.Contains(overruled, no.Why) {
			return nil, no
		}
		despite = append(despite, no.Why)
	}
	return despite, nil
}

// objections are all that keeps the run from being released, what is final first.
func (r *releasing) objections(ctx context.Context) (all []*ReviewRefused, err error) {
	if no := r.accepted(); no != nil {
		return []*ReviewRefused{no}, nil
	}
	changed := r.unchanged(ctx)
	all, err = r.decided(ctx)
	if changed == nil || err != nil {
		return all, err
	}
	final := slices.IndexFunc(all, func(no *ReviewRefused) bool { return no.Why != CodePolicyChanged && no.Why != CodeSuperseded })
	if final < 0 {
		final = len(all)
	}
	return slices.Insert(all, final, changed), nil
}

// decided are the objections that need no look at what is in the working
// directory.
func (r *releasing) decided(context.Context) (all []*ReviewRefused, err error) {
	if no := r.accepted(); no != nil {
		return []*ReviewRefused{no}, nil
	}
	if v := r.past.Last(); v.Policy != r.policy.Sum() {
		all = append(all, unreleasable(CodePolicyChanged, "%s was accepted under another policy than the present one: accept it again", named(r.run)))
	}
	newer, err := r.home.newerAccepted(r.run)
	if err != nil {
		return nil, err
	}
	if newer != nil {
		all = append(all, unreleasable(CodeSuperseded, "%s is superseded: %s was accepted after it", named(r.run), named(newer)))
	}
	running, err := r.home.newerRunning(r.run)
	if err != nil {
		return nil, err
	}
	if running != "" {
		all = append(all, unreleasable(CodeNewerRunning, "a newer attempt has the lane of %s: %s; --anyway REASON goes past that", named(r.run), running))
	}
	if no := r.before(); no != nil {
		all = append(all, no)
	}
	return all, nil
}

// still is nil when what was looked at before the mark holds behind it. Whoever
// decides from here on finds the mark, and whoever did before is found here.
func (r *releasing) still(ctx context.Context, m *review.Mark, o ReleaseOptions) error {
	now := &releasing{home: r.home, run: r.run, policy: r.policy}
	var err error
	if now.past, err = review.Load(r.home.dir, &r.run.Run); err != nil {
		return err
	}
	now.past.Releases = slices.DeleteFunc(now.past.Releases, func(rel *review.Release) bool { return rel.N >= m.N })
	if _, err = now.goesPast(ctx, o, (*releasing).decided); err == nil && now.past.Last().N != m.Verdict {
		err = unreleasable(CodeVerdictRaced, "%s was accepted once more meanwhile, by verdict %d: look at that, and release it again", named(r.run), now.past.Last().N)
	}
	return err
}

// accepted refuses what no verdict permits.
func (r *releasing) accepted() *ReviewRefused {
	switch v := r.past.Last(); {
	case !r.run.Ended():
		return unreleasable(CodeNotEnded, "%s is %s: there is nothing to release yet", named(r.run), r.run.Word())
	case v == nil:
		return unreleasable(CodeNotAccepted, "%s is not accepted: a clean exit never means that", named(r.run))
	case v.Verdict != review.Accepted:
		return unreleasable(CodeRejected, "%s was rejected at %s by %s", named(r.run), shortTime(v.At), v.Who())
	}
	return nil
}

// unchanged refuses what is not any more what was judged.
func (r *releasing) unchanged(ctx context.Context) *ReviewRefused {
	v := r.past.Last()
	d, err := review.DigestOf(ctx, v.Digest.Dir)
	switch {
	case err != nil:
		return unreleasable(CodeDigestUnknown, "what was accepted of %s cannot be found again: %v", named(r.run), err)
	case d.Value != v.Digest.Value || d.Kind != v.Digest.Kind:
		return unreleasable(CodeDigestChanged, "what was accepted of %s has changed since: it was %s and is %s", named(r.run), v.Digest.Value, d.Value)
	}
	return nil
}

// before refuses what went out already, or may have.
func (r *releasing) before() *ReviewRefused {
	for _, rel := range r.past.Releases {
		switch rel.State() {
		case review.Going:
			return unreleasable(CodeReleasing, "%s is being released by process %d since %s", named(r.run), rel.Handsel.Pid, shortTime(rel.At))
		case review.Done:
			return unreleasable(CodeReleased, "%s was released at %s by %s; --anyway REASON does it again", named(r.run), shortTime(rel.At), rel.By)
		}
	}
	if last := r.past.LastRelease(); last != nil && last.State() == review.Unknown {
		return unreleasable(CodeReleaseUnknown, "release %d of %s was begun at %s, and nobody wrote how it ended: find out whether it happened; --anyway REASON does it again",
			last.N, named(r.run), shortTime(last.At))
	}
	return nil
}

// newerAccepted is the newest accepted run of the lane, if it got it after k.
func (h *Home) newerAccepted(k *KnownRun) (*KnownRun, error) {
	if k.Lane == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	newest, err := h.newestAccepted(k.Lane)
	if err != nil || newest == nil || !review.Newer(&newest.Run, &k.Run) {
		return nil, err
	}
	return newest, nil
}

// newestAccepted is the newest run of a lane that is accepted, or was released;
// nil when there is none. Of a newer one whose verdicts cannot be read nobody
// knows whether it is accepted, so that is an error.
func (h *Home) newestAccepted(name string) (*KnownRun, error) {
	all, err := h.runsOf(name)
	if err != nil {
		return nil, err
	}
	return h.acceptedOf(all)
}

// runsOf are all runs of a lane that are on record, the newest first.
func (h *Home) runsOf(name string) ([]KnownRun, error) {
	at, _ := h.runsPlace()
	list, err := at.List(RunFilter{})
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(list.Runs, func(k KnownRun) bool { return k.Lane != name })
	slices.SortFunc(all, func(a, b KnownRun) int {
		switch {
		case review.Newer(&a.Run, &b.Run):
			return -1
		case review.Newer(&b.Run, &a.Run):
			return 1
		}
		return 0
	})
	return all, nil
}

func (h *Home) acceptedOf(all []KnownRun) (*KnownRun, error) {
	for i := range all {
		switch k := &all[i]; k.Review {
		case review.Accepted, review.Released:
			return k, nil
		case review.Pending:
			if _, err := review.Load(h.dir, &k.Run); err != nil {
				return nil, fmt.Errorf("%s: %w", named(k), err)
			}
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// newerRunning says who has a run's lane, other than the run and who only waits;
// empty when nobody has.
func (h *Home) newerRunning(k *KnownRun) (string, error) {
	if k.Lane == "" {
		return "", nil
	}
	s, err := lane.Look(h.dir, k.Lane)
	switch {
	case err != nil:
		return "", err
	case s.State == lane.Free, s.Record.Owned() && idIn(s.Record) == k.ID:
		return "", nil
	case s.Record.Owned() && (s.Record.Role == lane.RoleDispatcher || s.Record.Role == lane.RoleLauncher):
		return "", nil
	}
	return ownedText(s), nil
}

// let writes the mark, runs the command, and writes how it ended.
func (r *releasing) let(ctx context.Context, argv, despite []string, o ReleaseOptions) (*Outcome, error) {
	h, v, me := r.home, r.past.Last(), proc.Self()
	m := &review.Mark{
		Attempt: r.run.ID, Lane: r.run.Lane, Fence: r.run.Fence, Verdict: v.N, Digest: v.Digest.Value, At: record.At(machine.Now()),
		UID: os.Getuid(), By: orderedBy(), Argv0: filepath.Base(first(argv)), Command: record.Digest(argv), Despite: despite,
		Handsel: record.Identity{Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot, PidNS: me.NS},
	}
	if len(despite) > 0 {
		m.Anyway = o.Anyway
	}
	err := review.AddMark(h.dir, r.past, m)
	if errors.Is(err, review.ErrTaken) {
		return nil, unreleasable(CodeReleasing, "%s is being released by somebody else", named(r.run))
	}
	if err != nil {
		return nil, err
	}
	if no := r.still(ctx, m, o); no != nil {
		end := &review.End{At: record.At(machine.Now()), Outcome: record.NotStarted, Message: shown(no.Error(), review.MaxText)}
		r.tellRefused(no)
		return nil, errors.Join(no, review.AddEnd(h.dir, m, end))
	}
	out, err := run.Agent(context.WithoutCancel(ctx), run.Spec{
		Argv: argv, Dir: o.Dir, Env: r.env(), Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		LeaveDaemons: true, Gate: true, Subreaper: o.Subreaper, Signals: o.Signals,
	}, run.Deps{Recorder: mute{}})
	end := &review.End{At: record.At(machine.Now()), Outcome: out.Outcome, Signal: int(out.Signal)}
	if out.Child.Pid != 0 && out.Signal == 0 {
		end.ExitCode = &out.ExitCode
	}
	if err != nil {
		end.Message = shown(err.Error(), review.MaxText)
	}
	whole := &Outcome{Outcome: *out, Run: r.run.ID, Lane: r.run.Lane}
	if werr := review.AddEnd(h.dir, m, end); werr != nil {
		whole.Warnings = append(whole.Warnings, fmt.Errorf("how the release ended is not on record, so it reads as unknown: %w", werr))
	}
	whole.Warnings = append(whole.Warnings, asWarnings(h.tellJournal(r.event(m, end)))...)
	return whole, err
}

func (r *releasing) event(m *review.Mark, end *review.End) journal.Event {
	e := journal.Event{
		Permission: journal.Release, What: "released", Lane: m.Lane, Attempt: m.Attempt, Engine: r.run.Engine, From: review.Accepted, To: review.Released,
		Identity: m.Digest, Evidence: append(r.rests(), fmt.Sprintf("release %d", m.N)), By: m.By, Text: m.Anyway,
	}
	if m.Fence != 0 {
		e.Evidence = append(e.Evidence, "fence "+strconv.FormatUint(m.Fence, 10))
	}
	if !end.Succeeded() {
		e.What, e.To, e.Code = "not released", review.Accepted, end.Outcome
	}
	return e
}

// env is the environment of the command.
func (r *releasing) env() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == envLane || name == envAttempt || name == envFence
	})
	env = append(env, envAttempt+"="+r.run.ID)
	if r.run.Lane != "" {
		env = append(env, envLane+"="+r.run.Lane)
	}
	if r.run.Fence != 0 {
		env = append(env, envFence+"="+strconv.FormatUint(r.run.Fence, 10))
	}
	return env
}

// mute records nothing: the mark and the end are the record.
type mute struct{}

func (mute) Running(run.Running) error { return nil }

func (mute) Output(string) io.Writer { return nil }

// Fenced is whether a fence of a lane is current: the answer that makes a stale
// owner harmless, given to whatever it has an effect on (P9).
type Fenced struct {
	V       int    `json:"v"`
	Lane    string `json:"lane"`
	Fence   uint64 `json:"fence"`
	Current bool   `json:"current"`
	Code    string `json:"code"` // current, or why it is stale
	Message string `json:"message"`
	Newest  uint64 `json:"newest"`             // the last fence the lane has had
	Lets    uint64 `json:"accepted,omitempty"` // the fence of its newest accepted run
}

// CodeCurrent is the code of a fence that is.
const CodeCurrent = "current"

// CheckFence tells whether the run that got a lane by a fence may let out what it
// did: it is the lane's newest accepted one, and nothing newer runs there but what
// its release goes past. It looks at fences and verdicts only, changes nothing,
// and may be asked from inside an agent. *NotFound for a lane that never was.
func (h *Home) CheckFence(name string, fence uint64) (*Fenced, error) {
	if bad, ok := errors.AsType[*BadLane](home.ValidLane(name)); ok {
		return nil, bad
	}
	seen, err := lane.Look(h.dir, name)
	if err != nil {
		return nil, err
	}
	if seen.Record == nil {
		return nil, &NotFound{Name: "lane:" + name}
	}
	f := &Fenced{V: 1, Lane: name, Fence: fence, Newest: seen.Record.Fence}
	all, err := h.runsOf(name)
	if err != nil {
		return nil, err
	}
	accepted, err := h.acceptedOf(all)
	if err != nil {
		return nil, err
	}
	given := 0
	for i := range all {
		if all[i].Fence == fence {
			given++
		}
	}
	if accepted != nil {
		f.Lets = accepted.Fence
	}
	quoted := strconv.QuoteToASCII(name)
	switch {
	case fence == 0 || fence > f.Newest:
		f.Code, f.Message = CodeFenceUnknown, fmt.Sprintf("lane %s never gave fence %d; its last is %d", quoted, fence, f.Newest)
	case f.Lets > fence:
		f.Code, f.Message = CodeFenceStale, fmt.Sprintf("fence %d of lane %s is stale: fence %d is accepted", fence, quoted, f.Lets)
	case given > 1:
		f.Code, f.Message = CodeFenceStale, fmt.Sprintf("fence %d of lane %s is stale: %d runs have had it, as the lane's file was removed or emptied in between", fence, quoted, given)
	case f.Lets != fence:
		f.Code, f.Message = CodeNotAccepted, fmt.Sprintf("what got lane %s by fence %d is not accepted", quoted, fence)
	default:
		return f, f.runs(h, accepted)
	}
	return f, nil
}

// runs judges the fence of the newest accepted run by who has the lane now.
func (f *Fenced) runs(h *Home, k *KnownRun) error {
	running, err := h.newerRunning(k)
	if err != nil {
		return err
	}
	past, err := review.Load(h.dir, &k.Run)
	if err != nil {
		return err
	}
	anyway := slices.ContainsFunc(past.Releases, func(r *review.Release) bool {
		return r.State() == review.Going && slices.Contains(r.Despite, CodeNewerRunning)
	})
	if running != "" && !anyway {
		f.Code, f.Message = CodeNewerRunning, fmt.Sprintf("fence %d of lane %s is not current: %s", f.Fence, strconv.QuoteToASCII(f.Lane), running)
		return nil
	}
	f.Current, f.Code, f.Message = true, CodeCurrent, fmt.Sprintf("fence %d of lane %s is current", f.Fence, strconv.QuoteToASCII(f.Lane))
	return nil
}
