package handsel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/run"
	"github.com/handsel/handsel/internal/runs"
	"github.com/handsel/handsel/internal/stream"
)

// Options say how Run and Gate start a command. The zero value runs a heavy
// agent with the null device for stdio, waiting as long as is configured.
type Options struct {
	Engine   string   // declared engine; empty: recognised from the command
	Account  string   // of the engine, as the configuration names it; empty: the engine's own default
	Workload string   // Heavy (the default) or Light
	Confine  string   // ConfineOS: by the kernel, with all it starts (E6); ConfineNone: not; empty: as configured for its engine
	Pools    []string // named pools besides those of an agent
	Profile  string   // a profile named a seat may start agents itself (S24)
	Lane     string   // owned for the run, which waits for it as it waits for a slot (L2); empty: none
	Priority int

	Wait    *time.Duration // longest wait for lane and admission together; nil: the configured one
	Timeout time.Duration  // in total, waiting included; 0: none
	Idle    time.Duration  // without output; 0: none; implies Record

	Dir    string
	Env    []string // nil: this process's environment
	Stdin  *os.File // nil: the null device; likewise for the others
	Stdout *os.File
	Stderr *os.File
	KeepFD []int // descriptors passed on under the same number

	// AtTerminal says that stdin and stdout are a terminal, where a person may sit:
	// an engine that is not told to answer and end is an interactive session then.
	AtTerminal bool

	Record       bool // keep the output in the run's directory
	LeaveDaemons bool // keep descendants that made their own session

	Author string
	Labels map[string]string
	Review bool // once it has succeeded it waits for a verdict (P7), also where its lane and profile do not ask for one

	// Subreaper makes this process adopt what the run leaves behind, so that
	// all of it is found and ended. From then on every child of this process
	// must be started by this package (C2).
	Subreaper bool

	// Signals are passed to the run: the first SIGHUP, SIGINT, SIGQUIT or
	// SIGTERM ends it gracefully, the second at once.
	Signals <-chan os.Signal

	// OnWait is told when the wait begins and when its reason changes,
	// OnAdmitted when it is over and the command is about to start.
	OnWait     func(Waiting)
	OnAdmitted func()

	// OnNote is told what the caller should know and need not act on.
	OnNote func(string)

	// OnEvent is told what the agent does and says, as far as its output is read
	// (E10), by whoever reads it: until it returns, no more is read.
	OnEvent func(Event)

	// Events gets the same, a JSON object on each line
	// (docs/reference/schemas/event.schema.json). It is treated as Stdout is: while
	// nobody takes what is in it the agent waits, and once it is closed the run ends
	// as by SIGPIPE.
	Events *os.File

	laneNow bool // a lane that somebody has refuses, however long the rest may be waited for
	grace   time.Duration
}

// Outcome is how a run ended.
type Outcome struct {
	run.Outcome
	Run      string // the run's id
	Engine   string
	Workload string
	Pools    []string
	Lane     string
	Waited   time.Duration // for the lane and for admission

	// What the engine's stream and the process said together (E11). Result is
	// empty when nobody read the stream.
	Result    string // "succeeded" or "failed"
	Kind      string // why it failed
	Message   string // what the engine said of that
	Until     time.Time
	Answer    string // what the agent said at the end
	AnswerCut int64  // how many bytes of it are missing
	Session   string // the engine's id of the conversation
	Model     string
	Version   string // of the engine
	Usage     *Usage
}

// Run starts an agent when it is admitted, supervises it, ends all of its tree,
// and gives its slots back (S19 to S23). The outcome is never nil. The error is
// nil whenever the agent ran, however it ended.
func (h *Home) Run(ctx context.Context, argv []string, o Options) (*Outcome, error) {
	return h.start(ctx, argv, o, false)
}

// Gate runs a heavy command, not an agent, counted against the named pools and
// no other. It is allowed inside agents (S1).
func (h *Home) Gate(ctx context.Context, pools, argv []string, o Options) (*Outcome, error) {
	o.Pools = pools
	return h.start(ctx, argv, o, true)
}

// NothingRan is the outcome of a request that was refused before it became a
// run.
func NothingRan() *Outcome { return &Outcome{Outcome: run.Outcome{Outcome: run.Refused}} }

// job is one run as the rooms below see it. What an attempt was given before it
// came here, a direct run gets on the way: its lane and its lease. The id is the
// run's, and the attempt's where there is one.
type job struct {
	home     *Home
	argv     []string
	o        Options
	gate     bool
	asked    *Question         // what the command line was built from; nil = the command was given
	files    map[string][]byte // what goes with the command, by its absolute path
	begin    beginning         // how it is started
	jail     *jail             // what it has of its own while the kernel confines it; nil = it does not
	decoder  stream.Decoder    // reads what the engine prints; nil = it has no stream
	id       string
	engine   string
	settings *inForce

	accountEnv []string // NAME=value, that make the engine use the account

	attended bool // a person sits in it
	lightly  bool // it counts as light for that, and nothing confines it

	hold         *lane.Hold // the lane, once it is ours; nil = none
	given        *Lease     // the lease of an attempt that was admitted already; nil = to be asked for
	payload      []byte     // what the agent reads on stdin; nil = Options.Stdin
	retryOf      string     // the attempt that this one tries again
	retryVerdict int        // the number of that one's verdict

	queued time.Time             // when an attempt was asked for; zero = when the run began
	ending func(*Outcome, error) // told the outcome when it is recorded and the lane is still ours

	passing  *passing           // what it took and gave back, for the journal; nil = an attempt, or nothing runs
	waitedAs map[string]float64 // how long an attempt waited for what, as its dispatcher says
	admitted time.Time          // when an attempt was admitted; zero = when the run was
	claimed  time.Time          // when an attempt was claimed; zero = it is a direct run

	about    time.Duration           // CLOCK_BOOTTIME at which it was let through
	giveUp   context.CancelCauseFunc // ends the run
	laneWait time.Duration           // how long the lane took
	lease    *Lease
	rec      *recorder
}

func (h *Home) start(ctx context.Context, argv []string, o Options, gate bool) (*Outcome, error) {
	j := &job{home: h, argv: argv, o: o, gate: gate, id: record.NewID(), passing: &passing{}}
	if !gate && !h.outside {
		if err := nest.Check(); err != nil { // before anything else is looked at (S26)
			return &Outcome{Run: j.id, Outcome: run.Outcome{Outcome: run.Refused}}, err
		}
	}
	if err := j.resolve(); err != nil {
		return &Outcome{Run: j.id, Outcome: run.Outcome{Outcome: run.Refused}}, err
	}
	return j.do(ctx)
}

// do runs a resolved job: the agent, its record, and at last the lane, which
// nobody gets before it can be read how the run ended (L17). Between the two,
// ending is told, if there is one. The lane is kept for an agent whose end could
// not be proven.
func (j *job) do(ctx context.Context) (*Outcome, error) {
	if j.rec == nil { // a detached run is on record already
		j.rec = newRecorder(j)
	}
	ctx, j.giveUp = context.WithCancelCause(ctx)
	defer j.giveUp(nil)
	out, err := run.Agent(ctx, j.spec(), run.Deps{Nested: j.nested, Admit: j.admit, Recorder: j.rec, PassOver: j.passOver(), Confine: j.confinement, Stream: j.rec.stream(), Events: j.rec.events(), Heard: j.rec.heard, Env: j.fenced})
	if errors.Is(context.Cause(ctx), errEndedOn) {
		err = nil // its kind says why
		out.Notes = append(out.Notes, errEndedOn.Error())
	}
	end := &Outcome{Outcome: *out, Run: j.id, Engine: j.engine, Workload: j.class(), Lane: j.laneName(), Waited: j.waited(out)}
	end.Warnings = append(end.Warnings, j.clear()...)
	j.rec.settle(end)
	end.Warnings = append(end.Warnings, j.rec.ended(end, err)...)
	failpoint.Hit("job.recorded")
	if j.ending != nil {
		j.ending(end, err)
	}
	end.Warnings = append(end.Warnings, j.letGo(end)...)
	end.Warnings = append(end.Warnings, asWarnings(j.over(end))...)
	end.Warnings = append(end.Warnings, asWarnings(j.tellEnd(end, err))...)
	return end, err
}

// waited is how long the run waited for its lane and its lease.
func (j *job) waited(out *run.Outcome) time.Duration {
	switch {
	case !j.queued.IsZero() && !j.admitted.IsZero():
		return max(j.admitted.Sub(j.queued), 0)
	case !j.queued.IsZero() && !out.Admitted.IsZero():
		return max(out.Admitted.Sub(j.queued), 0)
	case j.lease != nil:
		return j.laneWait + j.lease.Waited()
	case !out.Queued.IsZero():
		return max(out.Ended.Sub(out.Queued), 0)
	}
	return 0
}

// resolve decides everything that is refused before anything is waited for.
func (j *job) resolve() (err error) {
	if j.settings, err = j.home.settings(); err != nil {
		return err
	}
	p, err := j.profile()
	if err != nil {
		return err
	}
	j.adopt(p)
	if j.engine, err = j.settings.engineOf(j.o.Engine, j.argv); err != nil {
		return err
	}
	j.adoptAccount(p)
	if err := j.account(); err != nil {
		return err
	}
	if j.asked != nil {
		if err := j.build(p); err != nil {
			return err
		}
	}
	j.attended = j.o.AtTerminal && !j.gate && j.asked == nil && j.settings.known().Attended(j.engine, j.argv)
	switch j.o.Workload {
	case "":
		j.o.Workload = Heavy
		if j.attended && j.settings.Interactive == interactiveLight {
			j.o.Workload, j.lightly = Light, true
		}
	case Heavy:
	case Light:
	default:
		return &BadOption{"workload", j.o.Workload, `it must be "heavy" or "light"`}
	}
	j.o.Record = j.o.Record || j.settings.Record && !j.gate
	if err := checkPools(j.o.Pools); err != nil {
		return err
	}
	if err := checkLane(j.o.Lane); err != nil {
		return err
	}
	if err := j.begins(); err != nil {
		return err
	}
	for _, p := range j.o.Pools {
		if n, _ := j.settings.Cap(p); n == 0 && j.o.OnNote != nil {
			j.o.OnNote(fmt.Sprintf("pool %q has no cap, so it holds nothing back (handsel config set pools.%s N)", p, p))
		}
	}
	return nil
}

// interactiveLight is the value of nesting.interactive by which a session that a
// person sits in counts as a light agent does.
const interactiveLight = "light-count"

func first(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[0]
}

func (j *job) class() string {
	if j.gate {
		return lease.GateWorkload
	}
	return j.o.Workload
}

func (j *job) depth() int { return nest.ChildDepth(slices.Contains(j.settings.Seats, j.o.Profile)) }

// nested goes on with what S26 asks for: a gate is refused when its command is
// an engine, inside an agent for good, elsewhere because an agent is not
// counted by a gate. A run, which was judged first of all, marks us.
func (j *job) nested() error {
	switch {
	case j.gate && j.engine != "":
		if err := nest.Check(); err != nil {
			return err
		}
		return &GatedEngine{Engine: j.engine}
	case j.gate:
		return j.gateOrder()
	case j.o.Subreaper:
		return nest.Mark(j.depth()) // from here on, what we adopt is the agent's (S25)
	}
	return nil
}

// gateOrder refuses a gate inside a gate that could wait for itself (S13).
func (j *job) gateOrder() error {
	above := map[int]bool{}
	for _, st := range proc.Ancestors(os.Getpid()) {
		above[st.Pid] = true
	}
	outer, err := lease.Above(j.home.places(j.settings.Settings).Leases, func(pid int) bool { return above[pid] })
	if err != nil || len(outer) == 0 {
		return nil // what cannot be counted here is refused by admission, with its reason
	}
	last := outer[len(outer)-1]
	for _, p := range j.o.Pools {
		if p <= last {
			return &GateOrder{Pool: p, Outer: last}
		}
	}
	return nil
}

// admit takes the lane, if one is wanted, and then a slot in every pool; the lane
// is kept while slots are waited for (S19). One span bounds both waits.
func (j *job) admit(ctx context.Context) (run.Lease, error) {
	l := j.given
	if l == nil {
		var err error
		if l, err = j.acquire(ctx); err != nil {
			return nil, err
		}
	}
	if err := j.space(ctx); err != nil {
		return nil, errors.Join(err, l.Release())
	}
	if err := j.prepare(); err != nil {
		return nil, errors.Join(err, l.Release())
	}
	j.lease = l
	j.wasAdmitted(l)
	if j.o.OnAdmitted != nil {
		j.o.OnAdmitted()
	}
	if j.hold != nil {
		return seated{l, j.hold}, nil
	}
	return l, nil
}

func (j *job) acquire(ctx context.Context) (*Lease, error) {
	s := Start{
		Engine: j.engine, Account: j.o.Account, Workload: j.o.Workload, Pools: j.o.Pools, Only: j.gate, Wait: j.settings.Wait, Priority: j.o.Priority,
		Run: j.id, Argv0: filepath.Base(first(j.argv)), OnWait: j.waits, lane: j.laneName(), settings: j.settings, onNote: j.o.OnNote, about: &j.about,
	}
	if j.o.Wait != nil {
		s.Wait = *j.o.Wait
	}
	if j.o.Lane != "" && j.hold == nil {
		s.Arrived = machine.SinceBoot() // the place in line counts from here, not from when the lane came free
		if err := j.takeLane(ctx, s.Wait); err != nil {
			return nil, err
		}
		s.Wait = max(s.Wait-j.laneWait, 0)
	}
	l, err := j.home.Acquire(ctx, s)
	j.passing.waits("", time.Now())
	return l, err
}

// prepare makes the lock files that a gate inside this agent may need, for an
// agent whose sandbox keeps it from making them (S1), and what the command needs
// besides itself.
func (j *job) prepare() error {
	if j.gate {
		return nil
	}
	if err := j.furnish(); err != nil {
		return errors.Join(err, errors.Join(j.clear()...))
	}
	var pools []lease.Pool
	for name := range j.settings.Caps {
		if _, builtin := engine.Canonical(name); builtin || name == poolAll || name == poolHeavy {
			continue
		}
		n, _ := j.settings.Cap(name)
		pools = append(pools, lease.Pool{Name: name, Cap: n})
	}
	if err := lease.Prepare(j.home.places(j.settings.Settings), pools); err != nil {
		return err
	}
	return j.imprison(pools)
}

func (j *job) spec() run.Spec {
	return run.Spec{
		Argv: j.begin.argv, Dir: j.o.Dir, Env: over(j.env(), j.begin.env), Stdin: j.o.Stdin, Stdout: j.o.Stdout, Stderr: j.o.Stderr, Events: j.o.Events, Payload: j.payload,
		Record: j.o.Record, Timeout: j.o.Timeout, Idle: j.o.Idle, LeaveDaemons: j.o.LeaveDaemons, KeepFDs: j.o.KeepFD,
		RunID: j.id, Depth: j.depth(), Gate: j.gate, Subreaper: j.o.Subreaper, Signals: j.o.Signals, Grace: j.o.grace, Kill: j.o.grace,
		ResultGrace: j.resultGrace(), NoPTY: j.decoder != nil, // a terminal would mix in what is on stderr
	}
}

// defaultResultGrace is how long an agent may stay after its result (E12).
const defaultResultGrace = 10 * time.Second

// resultGrace is that of the configuration. An agent whose input comes from the
// caller may be asked again after a result, so it stays as long as it likes.
func (j *job) resultGrace() time.Duration {
	switch set := j.settings.EngineOf[j.engine].ResultGrace; {
	case j.asked == nil && j.given == nil:
		return 0
	case set > 0:
		return set
	}
	return defaultResultGrace
}

// endOn are the faults that end the run although the engine would try again.
func (j *job) endOn() []string { return j.settings.EngineOf[j.engine].EndOn }

// passOver tells the ending which descendants are owners in their own right
// (S21a).
func (j *job) passOver() func(int, proc.ID) bool {
	at := runs.Place{Home: j.home.dir, Leases: j.home.places(j.settings.Settings).Leases}
	return at.PassOver(os.Getpid())
}
