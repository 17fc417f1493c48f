// Package run is the single place where an agent starts.
//
// Agent goes through the order of clause S19 from top to bottom: nested check,
// working directory and stdin, admission, spawn, identity, slots and record,
// stream, end of the tree, release. Whatever happens on the way, what was
// started is ended and what was taken is given back before Agent returns; what
// could not be ended is named in the outcome, and its slots are not given away.
//
// The room knows nothing of pools, files or command lines: what it needs of
// others it takes as functions and small interfaces. It prints nothing, it
// exits nothing, and it raises no signal: Outcome.Raise tells the caller.
package run

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
)

// Spec is one run.
type Spec struct {
	Argv []string
	Dir  string   // "" = ours
	Env  []string // as the child gets it, but for the markers of C9

	// Stdin, Stdout and Stderr are the caller's; nil is the null device. They
	// are handed over untouched unless something below puts pipes in between.
	Stdin, Stdout, Stderr *os.File

	Record  bool   // put pipes, or a pseudo-terminal, in between and keep the output
	NoPTY   bool   // pipes also where Stdout is a terminal
	Payload []byte // what the child reads on stdin before end of file; implies pipes when not nil

	// Events gets what Deps.Events writes. Like Stdout it holds the child up while
	// nobody reads it, and ends the run when it is closed. nil = nobody wants it.
	Events *os.File

	Timeout time.Duration // in total, waiting for admission included; 0 = none
	Idle    time.Duration // without progress (Deps.Stream) or, where nobody reads a stream, without a byte of output; from admission on; implies pipes; 0 = none

	// ResultGrace is how long the agent may stay after it has given its result; then
	// its tree is ended, and it counts as exited with 0 (E12). It needs Deps.Stream.
	// 0 = as long as it likes.
	ResultGrace time.Duration

	LeaveDaemons bool  // keep descendants that made their own session
	KeepFDs      []int // descriptors passed on under their own numbers
	RunID        string
	Depth        int  // HANDSEL_AGENT_DEPTH of the child
	Gate         bool // a gate leaves HANDSEL_AGENT_DEPTH as it is

	// Subreaper makes this process adopt the orphans of the run. From then on
	// every child of this process must be started by this package (C2).
	Subreaper bool

	// Signals are those the caller received. The first SIGHUP, SIGINT, SIGQUIT
	// or SIGTERM ends the run gracefully, the second at once; SIGUSR1 and
	// SIGUSR2 are passed on to the child.
	Signals <-chan os.Signal

	Grace, Kill time.Duration // TERM to KILL, and after KILL; 0 = 5 s each
}

// Lease is the right to run, as Admit gave it.
type Lease interface {
	// RecordChild writes the child's identity into every slot. An error is a
	// refusal after the fact (S12).
	RecordChild(proc.ID) error
	// Release gives all slots back.
	Release() error
	// Keep gives up the locks but keeps complete records, so that the slots
	// stay held for the child. An error means that the locks stay too.
	Keep() error
	// Empty tells whether no slot is held.
	Empty() bool
}

// Running is what is known once the agent runs.
type Running struct {
	Child   proc.ID
	Started time.Time
}

// Recorder keeps what a run leaves behind. Its errors never end a run; they
// are in Outcome.Warnings.
type Recorder interface {
	Running(Running) error
	// Output returns where the output called stdout or stderr is kept; nil = nowhere.
	Output(name string) io.Writer
}

// Stream is asked how the agent gets on, where somebody reads what it prints as
// events. It may be asked at any time, and answers at once.
type Stream interface {
	// Progress is when the agent last got on; zero = not yet.
	Progress() time.Time
	// Result is closed once the agent has given its result.
	Result() <-chan struct{}
	// Settled is since when nothing has happened after the result.
	Settled() time.Time
}

// Deps are what a run needs of other rooms. Any of them may be nil.
type Deps struct {
	Nested   func() error // the refusal of a nested start (S26)
	Admit    func(context.Context) (Lease, error)
	Recorder Recorder
	Stream   Stream // reads what the Recorder is given; implies pipes
	// Events is told, before the child runs, where what Spec.Events gets is to be
	// written. What it returns is called when all that the child printed is read.
	Events   func(io.Writer) (read func())
	PassOver func(pid int, id proc.ID) bool // recorded holders among the descendants (S21a)
	// Heard is told, before the lease is released, that all the child printed is
	// read, where somebody reads it: whoever is admitted next may have to know what
	// it said (P3). A caller who takes nothing for a second loses that.
	Heard func()

	// Confine says, once the run is admitted, what its child is put under (E6);
	// its nil is nothing.
	Confine func() proc.Confinement

	// Env is what the child gets over Spec.Env that is only known once the run is
	// admitted; its nil is nothing.
	Env func() []string
}

// The words of C13 for how a run ended.
const (
	Exited     = "exited"
	Signaled   = "signaled"
	TimedOut   = "timed_out"
	Cancelled  = "cancelled"
	Refused    = "refused"
	NotStarted = "not_started"
	Lost       = "lost"
)

// The two limits, as Outcome.Limit names them.
const (
	LimitTotal = "total"
	LimitIdle  = "idle"
)

// Outcome is how a run ended.
type Outcome struct {
	Outcome  string         // a word of C13
	ExitCode int            // the child's, when it exited
	Signal   syscall.Signal // the signal the child died of; 0 = none
	By       syscall.Signal // the signal to us that ended the run; 0 = none
	Limit    string         // LimitTotal or LimitIdle, with TimedOut

	Child                            proc.ID // zero when nothing was started
	Path                             string  // the file that was executed
	Queued, Admitted, Started, Ended time.Time
	LastOutput                       time.Time // zero without pipes in between, and before the first byte
	StdoutClosed                     time.Time // when the agent closed its stdout and lived on for more than a second (C103); zero = it did not

	// AfterResult tells that the agent stayed after its result and was ended for it
	// (E12, C047). Outcome is Exited and ExitCode 0 then, whatever it died of.
	AfterResult bool

	Survivors []proc.Survivor // what withstood the end
	Kept      []proc.Survivor // what was left on purpose
	SlotsKept bool            // the slots stay held: the end could not be proven

	OutputErr  error    // writing to the caller's stdout or stderr failed, which ended the run
	OutputLost error    // why the agent's stdout could not be read to its end; nil = it was, as far as pipes were in between
	Warnings   []error  // what else went wrong without ending it
	Notes      []string // what is worth knowing and is no failure of ours
}

// Raise is the signal the caller raises once everything is cleaned up, so that
// shells see what they expect (S22); 0 = none.
func (o *Outcome) Raise() syscall.Signal {
	switch {
	case o.By != 0:
		return o.By
	case o.Outcome == Signaled:
		return o.Signal
	default:
		return 0
	}
}

// ErrNoIdentity refuses a run whose child cannot be identified while it holds
// slots: a record without a start would free them under a living agent (S12).
var ErrNoIdentity = errors.New("the child's start time cannot be read, so its slots could not be kept for it")

// Agent runs spec in the order of S19. The outcome is never nil. The error is
// nil whenever the agent ran and its tree could be looked after; otherwise it
// says why nothing ran, or what could not be done.
func Agent(ctx context.Context, spec Spec, deps Deps) (*Outcome, error) {
	r := begin(spec, deps)
	defer r.close()

	if err := r.nested(); err != nil {
		return r.say(Refused, err)
	}
	if err := r.ready(); err != nil {
		return r.say(NotStarted, err)
	}
	if err := r.admit(ctx); err != nil {
		return r.say(Refused, err)
	}
	if r.why == nil {
		if err := r.spawn(); err != nil {
			return r.say(NotStarted, errors.Join(err, r.release()))
		}
		failpoint.Hit("run.spawned")
		if err := r.identify(); err != nil {
			return r.undo(ctx, err)
		}
		failpoint.Hit("run.identified")
		if err := r.recordChild(); err != nil {
			return r.undo(ctx, err)
		}
		r.record()
		failpoint.Hit("run.recorded")
		r.stream(ctx)
		r.endTree()
		failpoint.Hit("run.ended")
		r.hearOut()
	}
	err := r.release()
	failpoint.Hit("run.released")
	r.flush(ctx)
	return r.finish(err)
}

// run is one run under way. It belongs to the goroutine in Agent.
type run struct {
	spec Spec
	deps Deps
	out  *Outcome

	total   *time.Timer
	lease   Lease
	child   *proc.Child
	term    *proc.Terminal // handed over; nil = not
	pipes   *pipes         // nil = nothing in between
	why     *why           // what ended the run before the child did; nil = nothing
	gone    time.Time      // when the child was seen to have ended
	asked   int            // how often we were asked to end
	undoing bool           // the end is no part of the run: it is refused after the fact
	report  proc.Report
	endErr  error

	closers []func()
}

// why is what ended a run.
type why struct {
	word   string
	signal syscall.Signal
	limit  string
	err    error
	result bool // it is over by its result; only the process was still there
}

func begin(spec Spec, deps Deps) *run {
	r := &run{spec: spec, deps: deps, out: &Outcome{Queued: machine.Now()}}
	if spec.Timeout > 0 {
		r.total = time.NewTimer(spec.Timeout)
		r.onClose(func() { r.total.Stop() })
	}
	return r
}

func (r *run) onClose(f func()) { r.closers = append(r.closers, f) }

// close undoes in reverse what the run set up around the child.
func (r *run) close() {
	for i := len(r.closers) - 1; i >= 0; i-- {
		r.closers[i]()
	}
	r.closers = nil
}

func (r *run) nested() error {
	if r.deps.Nested == nil {
		return nil
	}
	return r.deps.Nested()
}

// ready checks, before anything is waited for, what would fail at the spawn
// for reasons that have nothing to do with the engine (C112).
func (r *run) ready() error {
	if len(r.spec.Argv) == 0 {
		return &proc.StartError{Kind: proc.NotFound, Detail: "the command is empty", Err: syscall.ENOENT}
	}
	if err := proc.CheckDir(r.spec.Dir); err != nil {
		return err
	}
	if r.spec.Stdin == nil || r.piped() {
		return nil
	}
	if _, err := r.spec.Stdin.Stat(); err != nil {
		return &proc.StartError{Kind: proc.BadSpec, Path: "standard input", Detail: err.Error(), Err: err}
	}
	return nil
}

func (r *run) piped() bool {
	return r.spec.Record || r.spec.Idle > 0 || r.spec.Payload != nil || r.deps.Stream != nil
}

// admitted is what Admit returned.
type admitted struct {
	lease Lease
	err   error
}

// admit waits for the right to run. A signal, the total limit or the context
// ends the wait; r.why tells which, and nothing is held then.
func (r *run) admit(ctx context.Context) error {
	if r.deps.Admit == nil {
		r.out.Admitted = machine.Now()
		return nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan admitted, 1)
	go func() {
		lease, err := r.deps.Admit(waiting)
		answer <- admitted{lease, err}
	}()
	for {
		select {
		case a := <-answer:
			r.lease, r.out.Admitted = a.lease, machine.Now()
			if ctx.Err() != nil {
				r.why = &why{word: Cancelled, err: ctx.Err()}
				return nil
			}
			return a.err
		case sig := <-r.spec.Signals:
			if r.endsRun(sig) {
				r.giveUp(&why{word: Cancelled, signal: number(sig)}, cancel, answer)
				return nil
			}
		case <-r.timeUp():
			r.giveUp(&why{word: TimedOut, limit: LimitTotal}, cancel, answer)
			return nil
		}
	}
}

// giveUp ends the wait. A lease that came in the same moment is kept in r and
// released like any other.
func (r *run) giveUp(w *why, cancel context.CancelFunc, answer <-chan admitted) {
	cancel()
	r.lease = (<-answer).lease
	r.why = w
}

func (r *run) timeUp() <-chan time.Time {
	if r.total == nil {
		return nil
	}
	return r.total.C
}

// endsRun tells whether sig asks for the end, and counts it if so.
func (r *run) endsRun(sig os.Signal) bool {
	switch number(sig) {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		r.asked++
		return true
	default:
		return false
	}
}

func number(sig os.Signal) syscall.Signal {
	n, _ := sig.(syscall.Signal)
	return n
}

// spawn starts the child.
func (r *run) spawn() error {
	if r.spec.Subreaper {
		if err := proc.SetSubreaper(); err != nil {
			r.warn(err)
		} else {
			r.onClose(proc.KeepReaping())
		}
	}
	if r.deps.Env != nil {
		r.spec.Env = append(slices.Clip(r.spec.Env), r.deps.Env()...)
	}
	spec := proc.Spec{
		Argv: r.spec.Argv, Dir: r.spec.Dir, Env: ChildEnv(r.spec), Keep: r.spec.KeepFDs, Run: r.spec.RunID,
		Stdin: r.spec.Stdin, Stdout: r.spec.Stdout, Stderr: r.spec.Stderr,
	}
	if r.piped() {
		if err := r.connect(&spec); err != nil {
			return err
		}
	}
	if r.deps.Confine != nil {
		spec.Confine = r.deps.Confine()
	}
	r.chooseSession(&spec)
	child, err := proc.Start(spec)
	if r.pipes != nil {
		r.pipes.childHasThem()
	}
	if err != nil {
		return err
	}
	r.child, r.out.Started, r.out.Path = child, machine.Now(), child.Path
	r.out.Child = proc.ID{Pid: child.Pid}
	return nil
}

// connect puts pipes or a pseudo-terminal between the caller and the child.
func (r *run) connect(spec *proc.Spec) error {
	p, err := newPipes(r.spec, r.deps.Recorder)
	if err != nil {
		kind := proc.BadSpec
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			kind = proc.NoDescriptors
		}
		return &proc.StartError{Kind: kind, Path: r.spec.Argv[0], Detail: err.Error(), Err: err}
	}
	r.pipes = p
	r.onClose(p.close)
	if r.spec.Events != nil && r.deps.Events != nil {
		p.events = p.outlet(r.spec.Events)
		p.read = r.deps.Events(p.events)
	}
	p.fill(spec)
	return nil
}

// chooseSession decides where the child stands (S20): the terminal is handed
// over if it is all ours; with one that is not, the child stays in our group,
// as with env(1); without one, it gets a session of its own.
func (r *run) chooseSession(spec *proc.Spec) {
	switch {
	case spec.HasTerminal:
		spec.Session = proc.Own // a pseudo-terminal made for it
		return
	case !r.piped():
		r.term = proc.OwnTerminal(r.spec.Stdin, r.spec.Stdout, r.spec.Stderr)
	}
	switch {
	case r.term != nil:
		spec.Session, spec.Terminal = proc.Foreground, r.term
	case proc.HasControllingTerminal():
		spec.Session = proc.Shared
	default:
		spec.Session = proc.Own
	}
}

// identify reads the child's start, twice if it must (S12).
func (r *run) identify() error {
	id, err := identify(r.child.Pid)
	if err != nil {
		id, err = identify(r.child.Pid)
	}
	if err == nil {
		r.out.Child = id
		return nil
	}
	if r.lease == nil || r.lease.Empty() {
		r.warn(err)
		return nil
	}
	r.spec.Grace = time.Nanosecond // this one is killed, not asked
	return errors.Join(ErrNoIdentity, err)
}

// identify is proc's, but takes a zombie: a child that is over in a moment has
// a start as well. Tests replace it.
var identify = func(pid int) (proc.ID, error) {
	st, err := proc.ReadStat(pid)
	if err != nil {
		return proc.ID{}, err
	}
	if st.Ticks == 0 {
		return proc.ID{}, errors.New("no start time")
	}
	return st.ID(), nil
}

func (r *run) recordChild() error {
	if r.lease == nil {
		return nil
	}
	return r.lease.RecordChild(r.out.Child)
}

// undo takes back a run that was started and then refused (S12).
func (r *run) undo(ctx context.Context, err error) (*Outcome, error) {
	r.undoing = true
	if r.pipes != nil {
		r.pipes.start()
	}
	r.endTree()
	err = errors.Join(err, r.release())
	r.flush(ctx)
	out, _ := r.finish(nil)
	out.Outcome = Refused
	return out, err
}

func (r *run) record() {
	if r.deps.Recorder == nil {
		return
	}
	if err := r.deps.Recorder.Running(Running{Child: r.out.Child, Started: r.out.Started}); err != nil {
		r.warn(err)
	}
}

func (r *run) warn(err error) { r.out.Warnings = append(r.out.Warnings, err) }

// endTree ends whatever the run has left, however it came to its end (S21).
func (r *run) endTree() {
	now := make(chan struct{})
	// The first request asks, the next one orders. Where the run came to its
	// end without us being asked, as when the first Ctrl-C went to an agent that
	// had the terminal, whoever asks now has waited already.
	enough := r.asked + 1
	if r.asked > 1 {
		close(now)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.report, r.endErr = proc.Ending{
			Child: r.child, Grace: r.spec.Grace, Kill: r.spec.Kill, Now: now, Run: r.spec.RunID,
			Adopting: r.spec.Subreaper && proc.IsSubreaper(), LeaveDaemons: r.spec.LeaveDaemons, PassOver: r.deps.PassOver,
		}.End()
	}()
	exited := r.child.Exited()
	for {
		select {
		case <-done:
			r.childGone()
			return
		case <-exited:
			// Keys are ours again as soon as the child is gone, not after its rest.
			exited = nil
			r.gone = time.Now()
			r.takeTerminal()
		case sig := <-r.spec.Signals:
			if r.endsRun(sig) {
				if r.out.By == 0 && r.why == nil {
					r.out.By = number(sig)
				}
				if r.asked == enough && enough <= 2 {
					close(now)
				}
			}
		}
	}
}

// childGone notes how the child ended and puts the terminal in order.
func (r *run) childGone() {
	r.takeTerminal()
	status := r.child.Status()
	r.out.ExitCode, r.out.Signal = status.Code, status.Signal
	if r.term != nil && (status.Signal != 0 || r.why != nil) {
		r.term.RestoreModes()
	}
	if r.pipes != nil {
		r.pipes.childEnded()
	}
}

func (r *run) takeTerminal() {
	if r.term != nil {
		if err := r.term.Take(); err != nil {
			r.warn(err)
		}
	}
}

// unreleased keeps leases reachable whose locks must stay until this process
// ends: a lock dies with the last reference to its file.
var unreleased struct {
	sync.Mutex
	leases []Lease
}

// release gives the slots back once the tree has ended. If that is not proven,
// all are kept for the child by their records, or, where a record is not
// complete, all by their locks (S12).
func (r *run) release() error {
	if r.lease == nil {
		return nil
	}
	if r.child == nil || r.report.LeaderGone && r.endErr == nil {
		return r.lease.Release()
	}
	r.out.SlotsKept = true
	if err := r.lease.Keep(); err != nil {
		r.warn(err)
		unreleased.Lock()
		unreleased.leases = append(unreleased.leases, r.lease)
		unreleased.Unlock()
	}
	return nil
}

// say ends a run of which nothing was started.
func (r *run) say(word string, err error) (*Outcome, error) {
	r.out.Outcome, r.out.Ended = word, machine.Now()
	return r.out, err
}

// finish fills in the outcome.
func (r *run) finish(err error) (*Outcome, error) {
	o := r.out
	o.Ended = machine.Now()
	o.Survivors, o.Kept = r.report.Survivors, r.report.Kept
	if r.pipes != nil {
		r.pipes.tell(o, r.gone)
	}
	switch {
	case r.why != nil:
		o.Outcome, o.By, o.Limit = r.why.word, r.why.signal, r.why.limit
		err = errors.Join(err, r.why.err)
		if r.why.result {
			o.AfterResult, o.ExitCode, o.Signal = true, 0, 0
			o.Notes = append(o.Notes, "it was still there "+r.spec.ResultGrace.String()+" after its result and had to be ended")
		}
	case r.child != nil && (!r.child.Ended() || r.child.Status().Lost):
		o.Outcome = Lost
	case o.Signal != 0:
		o.Outcome = Signaled
	default:
		o.Outcome = Exited
	}
	if r.why == nil && o.OutputErr != nil {
		if err = errors.Join(err, o.OutputErr); isBrokenPipe(o.OutputErr) {
			o.By, err = brokenPipe, nil
		}
	}
	return o, errors.Join(err, r.endErr)
}

// The variables of C9 that a child gets from us, and those it never gets.
const (
	envDepth   = "HANDSEL_AGENT_DEPTH"
	envRun     = "HANDSEL_RUN"
	envOutcome = "HANDSEL_OUTCOME"
	envToken   = "HANDSEL_TOKEN_FD"
)

// ChildEnv is the environment the child of spec gets: the markers set over
// whatever was there, what is only for us removed, all else as it was and in
// its order.
func ChildEnv(spec Spec) []string {
	set := map[string]string{}
	if spec.RunID != "" {
		set[envRun] = spec.RunID
	}
	if !spec.Gate {
		set[envDepth] = strconv.Itoa(spec.Depth)
	}
	env := make([]string, 0, len(spec.Env)+len(set))
	placed := map[string]bool{}
	for _, entry := range spec.Env {
		name, _, _ := strings.Cut(entry, "=")
		value, ours := set[name]
		switch {
		case name == envOutcome, name == envToken, placed[name]:
		case ours:
			placed[name] = true
			env = append(env, name+"="+value)
		default:
			env = append(env, entry)
		}
	}
	for _, name := range []string{envDepth, envRun} {
		if value, ours := set[name]; ours && !placed[name] {
			env = append(env, name+"="+value)
		}
	}
	return env
}
