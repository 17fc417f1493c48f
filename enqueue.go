package handsel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// EnqueueOptions say how Enqueue's command is to run when its turn comes. The
// zero value is a heavy agent with the null device for input.
type EnqueueOptions struct {
	Engine   string   // declared engine; empty: recognised from the command
	Account  string   // of the engine; empty: its default
	Workload string   // Heavy (the default) or Light
	Confine  string   // as in Options
	Pools    []string // named pools besides those of an agent
	Profile  string   // a profile named a seat may start agents itself (S24)
	Priority int

	// Wait is how long the lane is waited for while somebody has it; 0 refuses at
	// once. The row itself waits without an end.
	Wait    time.Duration
	Timeout time.Duration // in total, from the claim; 0: none (L22)
	Idle    time.Duration // without output; 0: none

	Dir string // empty: the current directory
	// Env is what of it is stored (L11); nil: this process's environment.
	Env          []string
	Stdin        io.Reader // read to its end and stored; nil: the null device
	LeaveDaemons bool      // keep descendants that made their own session

	// After are lanes or attempts to wait for, by name or by the end of an id;
	// success is needed, or any end where ":any" follows (L10).
	After     []string
	NotBefore time.Time
	RetryLost int      // how often it may be started again when lost (L18)
	Driver    []string // the command that claims it; empty: the configured one

	Author string
	Labels map[string]string
	Review bool // as in Options

	OnWait func(Waiting) // told who has the lane when the wait begins, and when that changes
	OnNote func(string)  // told what the caller should know and need not act on

	id string // of the attempt; empty: a new one
}

// Enqueued is a lane that the dispatcher has: the attempt is kept, also after a
// power loss, and waits for its turn or is past that by now.
type Enqueued struct {
	Lane    string
	Attempt string // the id of the attempt, and of its run
	State   string // "queued", unless the answer came late
	Outcome string // how it ended, where State is "ended"
	Dropped []string
	Waited  time.Duration // for the lane
}

// WrongMode refuses to enqueue, and to dispatch, on a machine whose starts wait
// in line by themselves (L4). Nothing was taken; the mode has to be changed (78).
type WrongMode struct{ Mode string }

func (e *WrongMode) Error() string {
	return fmt.Sprintf("admission.mode is %q, in which no dispatcher keeps the line: handsel config set admission.mode dispatcher", e.Mode)
}

// Reason is the refusal in the words of C13.
func (e *WrongMode) Reason() *Reason {
	return &Reason{Class: "config", Code: codeWaiterMode, Message: e.Error()}
}

// Unknown reports that no answer came: the dispatcher may have the lane or not
// (L9). The same must not be enqueued again before it is known what became of
// the attempt.
type Unknown struct {
	Lane    string
	Attempt string
	Pid     int // of the dispatcher that did not answer; 0: not known
	Err     error
}

func (e *Unknown) Error() string {
	who := "the dispatcher"
	if e.Pid != 0 {
		who += ", pid " + strconv.Itoa(e.Pid) + ","
	}
	if why := e.Err; !errors.Is(why, context.DeadlineExceeded) { // which says no more than that
		who = fmt.Sprintf("%s is not answering: %v", who, why)
	} else {
		who += " is not answering"
	}
	return fmt.Sprintf("unknown whether lane %s was accepted: %s; ask what became of it: handsel reconcile %s", strconv.QuoteToASCII(e.Lane), who, e.Attempt)
}

func (e *Unknown) Unwrap() error { return e.Err }

// Reason says in the words of C13 that nobody knows. It is not retryable: the
// same again may be a second one.
func (e *Unknown) Reason() *Reason {
	r := &Reason{Class: "ownership", Code: "unknown", Message: e.Error()}
	if e.Pid != 0 {
		r.Holders = []record.Holder{{Lane: e.Lane, Pid: e.Pid}}
	}
	return r
}

// BadAfter refuses something to come after that is not there, or that comes
// after the same lane itself (2).
type BadAfter struct {
	Name string // as it was given, empty where the dispatcher tells
	Why  string
	code string
}

// Reason is the refusal in the words of C13.
func (e *BadAfter) Reason() *Reason {
	return &Reason{Class: "dependency", Code: cmp.Or(e.code, codeUnknownAfter), Message: e.Error()}
}

func (e *BadAfter) Error() string {
	if e.Name == "" {
		return e.Why
	}
	return fmt.Sprintf("--after %s: %s", strconv.QuoteToASCII(e.Name), e.Why)
}

// The reason codes of a BadAfter.
const (
	codeUnknownAfter = "unknown_dependency"
	codeCyclicAfter  = "cyclic"
)

// Enqueue takes a lane and hands it, with the work to do in it, to the
// dispatcher, which keeps it without a gap until a driver claims it (L5 to L9).
// When it returns without an error the work is kept.
//
// Any other error than *Unknown means that nothing is left of it: *LaneOwned,
// *NoDispatcher and *SilentDispatcher, *WrongMode, *Inside, *Declined with the
// dispatcher's reason. It may be called by many goroutines and many times.
func (h *Home) Enqueue(ctx context.Context, name string, argv []string, o EnqueueOptions) (*Enqueued, error) {
	return h.enqueue(ctx, name, &job{home: h, argv: argv}, o)
}

// EnqueueAgent is Enqueue for a question to an agent: the command line is built
// now, from the engine or the profile that o names, and kept (E2).
func (h *Home) EnqueueAgent(ctx context.Context, name string, q Question, o EnqueueOptions) (*Enqueued, error) {
	return h.enqueue(ctx, name, &job{home: h, asked: &q}, o)
}

func (h *Home) enqueue(ctx context.Context, name string, j *job, o EnqueueOptions) (*Enqueued, error) {
	if err := outside(); err != nil { // before anything else is looked at (S26)
		return nil, err
	}
	r := &request{home: h, o: o, began: time.Now()}
	if err := r.resolve(name, j); err != nil {
		return nil, err
	}
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	out, err := r.hand(ctx)
	switch {
	case err == nil, errors.As(err, new(*Unknown)):
		// The dispatcher has the lane, or may have it. Our copy ends without a word
		// in the lane's record, which is not ours any more (L9).
		_ = r.flush.Wait()
		r.hold.Keep()
		failpoint.Hit("enqueue.closed")
		return out, err
	}
	return nil, errors.Join(err, r.undo())
}

// outside refuses inside an agent (S26). That a process is outside stays true
// while its parent does: ancestors only become fewer, and what they carry was
// fixed when they started. So a program that enqueues thousands asks once.
func outside() error {
	parent := int64(os.Getppid())
	if foundOutside.Load() == parent {
		return nil
	}
	err := nest.Check()
	if err == nil {
		foundOutside.Store(parent)
	}
	return err
}

// foundOutside is the parent under which this process was found to be outside.
var foundOutside atomic.Int64

// request is one enqueue under way.
type request struct {
	home    *Home
	o       EnqueueOptions
	began   time.Time
	row     attempt.Row
	payload attempt.Payload
	files   []attempt.File // that go with the command
	dropped []string

	hold   *lane.Hold // the lane, once it is ours
	waited time.Duration
	flush  *attempt.Flush // the payload, on its way to the disk
	wrote  bool           // the entry
}

// resolve decides everything that is refused before the lane is taken, and
// writes it into row and payload.
func (r *request) resolve(name string, j *job) error {
	if bad, ok := errors.AsType[*BadLane](home.ValidLane(name)); ok {
		return bad
	}
	if len(j.argv) == 0 && j.asked == nil {
		return errors.New("enqueue: a command is needed")
	}
	j.o = Options{
		Engine: r.o.Engine, Account: r.o.Account, Workload: r.o.Workload, Confine: r.o.Confine, Pools: r.o.Pools, Profile: r.o.Profile, Timeout: r.o.Timeout, Idle: r.o.Idle,
		Dir: r.o.Dir, OnNote: r.o.OnNote, Review: r.o.Review,
	}
	j.id = cmp.Or(r.o.id, record.NewID())
	if err := j.resolve(); err != nil {
		return err
	}
	r.o.Pools, r.o.Timeout, r.o.Idle = j.o.Pools, j.o.Timeout, j.o.Idle // a profile may have set them, as the account
	if j.asked != nil {
		r.o.Stdin = bytes.NewReader(j.payload)
	}
	if err := j.settings.CheckPools(r.o.Pools); err != nil {
		return err
	}
	if j.settings.Mode != "dispatcher" {
		return &WrongMode{j.settings.Mode}
	}
	if err := r.home.dir.Ensure(); err != nil {
		return err
	}
	r.describe(name, j)
	for path, data := range j.files {
		r.files = append(r.files, attempt.File{Path: []byte(path), Data: data})
	}
	if err := r.fill(j.settings.Settings, j.argv); err != nil {
		return err
	}
	var err error
	if r.row.After, err = r.home.after(name, r.o.After); err != nil {
		return err
	}
	return asOption(r.row.Check())
}

// describe writes what is known of the request into its row.
func (r *request) describe(name string, j *job) {
	now, boot := machine.Now(), machine.SinceBoot()
	r.row = attempt.Row{
		V: attempt.Version, Lane: name, ID: j.id,
		QueueStart: attempt.At(now), BootStartNS: int64(boot), BootID: machine.BootID(), EpochMS: now.UnixMilli() - boot.Milliseconds(),
		Priority: r.o.Priority, State: attempt.Queued, StateSince: attempt.At(now),
		Author: r.o.Author, Labels: r.o.Labels, RetryLost: r.o.RetryLost, Driver: r.o.Driver,
		Argv0: shown(filepath.Base(j.argv[0]), attempt.MaxArgv0), Argc: len(j.argv), Command: record.Digest(j.argv),
		Placement: attempt.Placement{
			Engine: j.engine, Account: j.o.Account, Workload: j.o.Workload, Profile: r.o.Profile, Confinement: j.begin.confine, Pools: r.o.Pools, Caps: capVariables(j.settings.Settings),
			TimeoutS: record.Seconds(r.o.Timeout), IdleS: record.Seconds(r.o.Idle), LeaveDaemons: r.o.LeaveDaemons,
			Review: j.o.Review,
		},
	}
	if !r.o.NotBefore.IsZero() {
		r.row.NotBefore = attempt.At(r.o.NotBefore)
	}
}

// fill makes the payload: the command, where it runs, and what is stored of its
// environment and input.
func (r *request) fill(s *config.Settings, argv []string) error {
	dir, err := filepath.Abs(r.o.Dir)
	if err == nil {
		err = proc.CheckDir(dir)
	}
	if err != nil {
		return err
	}
	env := r.o.Env
	if env == nil {
		env = os.Environ()
	}
	kept, dropped := attempt.Keep(env, s.EnvAllow)
	r.dropped = dropped
	r.row.Placement.Cwd = shown(dir, attempt.MaxText)
	r.payload = attempt.Payload{Argv: attempt.Bytes(argv), Env: attempt.Bytes(kept), Cwd: []byte(dir), Files: r.files}
	if r.o.Stdin == nil {
		return nil
	}
	r.payload.HasStdin = true
	r.payload.Stdin, err = io.ReadAll(io.LimitReader(r.o.Stdin, attempt.MaxStdin+1))
	if err != nil {
		return fmt.Errorf("read the input to be stored: %w", err)
	}
	if len(r.payload.Stdin) > attempt.MaxStdin {
		return &BadOption{"stdin", "", fmt.Sprintf("it has more than %d bytes; put it into a file that the command reads", attempt.MaxStdin)}
	}
	return nil
}

// shown is what people see of bytes that need not be text, cut to most bytes.
func shown(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// capVariables are the caps that this process's variables set: they go with the row,
// and bind wherever it is admitted (S2, L13).
func capVariables(s *config.Settings) map[string]string {
	caps := map[string]string{}
	for _, set := range s.Caps {
		for _, c := range set {
			if strings.HasPrefix(c.From, config.VarPrefix) {
				caps[c.From] = strconv.Itoa(c.N)
			}
		}
	}
	if len(caps) == 0 {
		return nil
	}
	return caps
}

// after reads what the row comes after.
func (h *Home) after(lane string, names []string) ([]attempt.After, error) {
	var all []attempt.After
	for _, name := range names {
		a, err := h.afterOne(name)
		if err != nil {
			return nil, err
		}
		if a.Lane == lane {
			return nil, &BadAfter{name, "a lane cannot come after itself", codeCyclicAfter}
		}
		all = append(all, a)
	}
	return all, nil
}

// afterOne reads one of them: lane:NAME, run:ID, or one of the two without the
// word before (C4), and :any.
func (h *Home) afterOne(text string) (a attempt.After, err error) {
	name, anyEnd := strings.CutSuffix(text, ":any")
	a.Any = anyEnd
	if id, ok := strings.CutPrefix(name, "run:"); ok {
		if a.Attempt, err = record.Find(h.dir, id); err != nil {
			return a, &BadAfter{Name: text, Why: err.Error()}
		}
		return a, nil
	}
	if named, ok := strings.CutPrefix(name, "lane:"); ok {
		if err := home.ValidLane(named); err != nil {
			return a, &BadAfter{Name: text, Why: err.Error()}
		}
		a.Lane = named
		return a, nil
	}
	id, err := record.Find(h.dir, name)
	known := h.laneKnown(name)
	several, _ := errors.AsType[*record.Ambiguous](err)
	switch {
	case known && (err == nil || several != nil):
		return a, &BadAfter{Name: text, Why: fmt.Sprintf("it is a lane and the end of an id: lane:%s or run:%s", name, cmp.Or(id, name))}
	case known:
		a.Lane = name
	case err == nil:
		a.Attempt = id
	case several != nil:
		return a, &BadAfter{Name: text, Why: several.Error()}
	default:
		return a, &BadAfter{Name: text, Why: "no lane and no attempt goes by that name"}
	}
	return a, nil
}

// asOption names the option by which a field of the row was set.
func asOption(err error) error {
	bad, ok := errors.AsType[*attempt.Malformed](err)
	if !ok {
		return err
	}
	name, ok := optionOf[bad.Field]
	if !ok {
		name = bad.Field
	}
	return &BadOption{Option: name, Why: bad.Why}
}

// optionOf are the options that set a field under another name.
var optionOf = map[string]string{
	"labels": "label", "retry_lost": "retry-lost", "not_before": "not-before", "placement.cwd": "chdir", "placement.pools": "pool",
	"placement.engine": "engine", "placement.account": "account", "placement.workload": "workload", "placement.profile": "profile",
	"placement.timeout_s": "timeout", "placement.idle_s": "idle",
}

// take takes the lane, waiting for it as long as was asked for.
func (r *request) take(ctx context.Context) error {
	rec := lane.Mine(lane.RoleLauncher)
	rec.Attempt, rec.Argv0 = r.row.ID, r.row.Argv0
	h, err := lane.Take(r.home.dir, r.row.Lane, rec)
	held, owned := errors.AsType[*lane.Held](err)
	if owned && r.o.Wait > 0 && !above(held.Record) {
		h, err = lane.Wait(ctx, r.home.dir, r.row.Lane, rec, r.o.Wait, r.laneWaits)
		held, owned = errors.AsType[*lane.Held](err)
	}
	r.waited = time.Since(r.began)
	switch {
	case owned:
		held.Waited = r.waited
		return &LaneOwned{held, above(held.Record)}
	case errors.Is(err, flock.ErrUnsupported):
		return &Refused{Waiting: Waiting{Code: CodeUnsupported, Message: "this platform has no lock that would keep a lane"}, Engine: r.row.Placement.Engine, Workload: r.row.Placement.Workload, Cause: err}
	case err != nil:
		return err
	}
	r.hold = h
	failpoint.Hit("enqueue.taken")
	return nil
}

// laneWaits tells the caller who has the lane.
func (r *request) laneWaits(s lane.Seen) {
	if r.o.OnWait != nil {
		r.o.OnWait(Waiting{Code: CodeLaneOwned, Message: ownedText(s)})
	}
}

// undo leaves nothing of a request that was not accepted.
func (r *request) undo() error {
	var errs []error
	if r.wrote {
		if e, err := attempt.ReadEntry(r.home.dir, r.row.Lane); err == nil && e.Attempt == r.row.ID {
			errs = append(errs, unlessGone(attempt.RemoveEntry(r.home.dir, r.row.Lane)))
		}
	}
	if r.flush != nil {
		_ = r.flush.Wait() // what cannot be flushed is about to go
		errs = append(errs, attempt.Discard(r.home.dir, r.row.ID))
	}
	errs = append(errs, r.hold.Release())
	// The lane's file goes too where it is of no use to anybody; a taker that has
	// it open by now tries again (S5).
	_ = lane.Remove(r.home.dir, lane.FileName(r.row.Lane))
	return errors.Join(errs...)
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// accepted is what the caller is told.
func (r *request) accepted(state, outcome string) *Enqueued {
	return &Enqueued{
		Lane: r.row.Lane, Attempt: r.row.ID, State: cmp.Or(state, attempt.Queued), Outcome: outcome,
		Dropped: slices.Clone(r.dropped), Waited: r.waited,
	}
}

// What may be stored at most.
const (
	MaxStoredStdin = attempt.MaxStdin // bytes of an input
	MaxRetryLost   = attempt.MaxRetries
)
