package handsel

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
	"github.com/handsel/handsel/internal/run"
	"github.com/handsel/handsel/internal/stream"
)

// recorder keeps a direct run's record: run.json when the agent runs and when
// it has ended, and its output if that was asked for. A record that cannot be
// written never stops a run: it is a warning in the outcome (E13).
type recorder struct {
	j          *job
	now        *run.Running // once the agent runs
	outputs    map[string]*record.Capture
	reading    *reading    // nil: nobody reads what the agent prints
	watch      watcher     // tells the engine account what is read
	keptEvents record.Kept // what became of its events
	failed     error       // why there is no record; told once

	// mu guards the record against those who read the agent's output.
	mu     sync.Mutex
	run    *record.Run
	writer *record.Writer
}

func newRecorder(j *job) *recorder {
	r := &recorder{j: j, outputs: map[string]*record.Capture{}, watch: watcher{j: j}}
	if j.decoder != nil {
		r.reading = newReading(r, j.decoder)
	}
	return r
}

// stream is what the run is asked by; nil when nobody reads the output.
func (r *recorder) stream() run.Stream {
	if r.reading == nil {
		return nil
	}
	return r.reading.reader
}

// events is how the reading gets to whoever wants its events; nil when nobody
// reads the output.
func (r *recorder) events() func(io.Writer) func() {
	if r.reading == nil {
		return nil
	}
	return func(to io.Writer) (read func()) {
		r.reading.to = to
		return func() { _ = r.reading.reader.Close() } // it never fails
	}
}

// heard ends the reading while the slots are held still, so that the engine's
// account knows of what is only told at the end before another start is admitted.
func (r *recorder) heard() { _ = r.reading.reader.Close() } // it never fails

// open makes the run's directory with what is known so far.
func (r *recorder) open(state string) error {
	if r.writer != nil || r.failed != nil {
		return r.failed
	}
	r.run = r.describe()
	r.run.State = state
	r.started(r.run)
	if r.failed = r.j.home.dir.Ensure(); r.failed == nil {
		r.writer, r.failed = record.Create(r.j.home.dir, r.run)
	}
	if r.failed != nil {
		r.failed = fmt.Errorf("this run is not recorded: %w", r.failed)
	}
	return r.failed
}

// describe is the record as it is known before the agent runs.
func (r *recorder) describe() *record.Run {
	j := r.j
	me := proc.Self()
	rec := &record.Run{
		ID: j.id, Verb: j.verb(), Argv0: filepath.Base(first(j.argv)), Argc: len(j.argv), Command: record.Digest(j.argv), Cwd: j.cwd(),
		Engine: j.engine, Account: j.o.Account, Workload: j.class(), Confinement: cmp.Or(j.begin.confine, confinedByNothing), Profile: j.o.Profile, Interactive: j.attended, UID: os.Getuid(), Author: j.o.Author, Labels: j.o.Labels,
		Handsel: record.Identity{Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot, PidNS: me.NS}, HostBoot: me.Boot,
	}
	for i, st := range proc.Lineage() {
		if i == record.MaxChain {
			break
		}
		rec.StartedBy = append(rec.StartedBy, record.Process{Pid: st.Pid, Comm: st.Comm})
	}
	rec.Temp = j.temps()
	if j.o.Timeout > 0 || j.o.Idle > 0 {
		rec.Limits = &record.Limits{TimeoutS: j.o.Timeout.Seconds(), IdleS: j.o.Idle.Seconds()}
	}
	rec.Lane = j.laneName()
	if j.hold != nil {
		rec.Fence, rec.Enqueued = j.hold.Record().Fence, j.hold.Record().Attempt != ""
	}
	rec.RetryOf, rec.RetryVerdict = j.retryOf, j.retryVerdict
	if j.lease != nil {
		rec.WaitedS = record.Seconds(j.laneWait + j.lease.Waited())
		for _, s := range j.lease.Slots() {
			rec.Pools = append(rec.Pools, record.Pool{Name: s.Pool, Slot: s.Index, Cap: s.Cap})
		}
	}
	return rec
}

func (j *job) verb() string {
	switch {
	case j.gate:
		return "gate"
	case j.asked != nil:
		return "agent"
	}
	return "run"
}

func (j *job) cwd() string {
	dir := j.o.Dir
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	return abs
}

// Output says where one of the agent's outputs goes: where it is kept, and to
// whoever reads it.
func (r *recorder) Output(name string) io.Writer {
	if !r.j.o.Record {
		return nil
	}
	_ = r.open(record.Starting) // why it failed is told at the end
	var to tee
	if r.reading != nil { // first: whoever finds an output knows whether there are events
		if err := r.reading.keep(); err != nil && r.failed == nil {
			r.failed = fmt.Errorf("the events are not kept: %w", err)
		}
		to = append(to, r.reading.output(name))
	}
	if r.failed == nil {
		c, err := r.writer.Capture(name, r.j.settings.OutputCap)
		if err == nil {
			r.outputs[name] = c
			to = append(to, &firstOutput{r: r, to: c})
		} else {
			r.failed = fmt.Errorf("the output is not kept: %w", err)
		}
	}
	if len(to) == 0 {
		return nil
	}
	return to
}

// firstOutput notes when the first byte came, and passes all on.
type firstOutput struct {
	r    *recorder
	to   io.Writer
	once sync.Once
}

func (f *firstOutput) Write(p []byte) (int, error) {
	f.once.Do(func() {
		f.r.mu.Lock()
		defer f.r.mu.Unlock()
		if f.r.run.FirstAt.IsZero() {
			f.r.run.FirstAt = record.At(machine.Now())
		}
	})
	return f.to.Write(p)
}

// update changes the record while the agent runs. That it cannot be written is
// told at the end, when it is tried again.
func (r *recorder) update(change func(*record.Run)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writer == nil || r.run.State == record.Ended {
		return
	}
	change(r.run)
	_ = r.writer.Save(r.run)
}

// Running records that the agent runs.
func (r *recorder) Running(now run.Running) error {
	r.now = &now
	defer r.j.passing.runs(r.j.home, now.Child.Pid) // after the record: until that is there, nobody knows the run
	if r.writer == nil {
		return r.open(record.Running)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started(r.run)
	return r.writer.Save(r.run)
}

// started puts what is known of the running agent into rec.
func (r *recorder) started(rec *record.Run) {
	if r.now == nil {
		return
	}
	c := r.now.Child
	rec.State, rec.StartedAt = record.Running, record.At(r.now.Started)
	rec.Child = &record.Identity{Pid: c.Pid, Ticks: c.Ticks, BootID: c.Boot, PidNS: c.NS}
}

// ended records how it ended, or that it was refused. What it returns are
// warnings.
func (r *recorder) ended(out *Outcome, err error) []error {
	switch {
	case r.writer == nil && r.failed != nil:
		return nil // said when it happened
	case r.j.given != nil: // an attempt has a record, however it ended (L17)
	case r.writer != nil: // it is on record that it goes on
	case errors.As(err, new(*Inside)):
		return nil // refused before it was anything
	case errors.As(err, new(*Refused)), errors.As(err, new(*LaneOwned)):
		return asWarnings(r.refuse(out, err))
	case out.Outcome.Outcome == record.Refused:
		return nil // nothing was asked of the home yet, or it is what is wrong
	}
	if err := r.open(record.Starting); err != nil { // nobody is to read an end without its outcome
		return []error{err}
	}
	kept := r.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fill(out, err)
	return append(kept, asWarnings(errors.Join(r.writer.Save(r.run), r.writer.Close()))...)
}

// close closes the outputs and notes what became of them. A full disk is one
// warning, and where each of them ends (C089).
func (r *recorder) close() (warnings []error) {
	if len(r.outputs) == 0 {
		return nil
	}
	var parts []string
	var why error
	see := func(name string, k record.Kept) {
		if k.Err != nil {
			parts, why = append(parts, fmt.Sprintf("%s to byte %d", name, k.Stopped)), cmp.Or(why, k.Err)
		}
	}
	out := &record.Output{EventsBytes: r.keptEvents.Seen}
	for _, name := range slices.Sorted(maps.Keys(r.outputs)) {
		k := r.outputs[name].Close()
		if name == "stdout" {
			out.StdoutBytes = k.Seen
		} else {
			out.StderrBytes = k.Seen
		}
		out.TruncatedBytes += k.Truncated
		see(name, k)
	}
	see("events", r.keptEvents)
	if r.run.Output = out; why == nil {
		return nil
	}
	err := fmt.Errorf("what it printed is only kept in part, %s: %w", strings.Join(parts, ", "), why)
	r.run.Notes = append(r.run.Notes, err.Error())
	return []error{err}
}

// settle ends the reading and puts into the outcome what the stream and the
// process said together (E11).
func (r *recorder) settle(out *Outcome) {
	if r.reading == nil {
		return
	}
	sum, kept := r.reading.close()
	if out.Outcome.Outcome == run.Refused {
		return // nothing was tried, so nothing failed
	}
	end := sum.End(r.exit(out))
	r.watch.ended(end)
	if r.watch.err != nil {
		out.Warnings = append(out.Warnings, r.watch.err)
	}
	if out.Result = record.Failed; end.Succeeded {
		out.Result = record.Succeeded
	}
	out.Kind, out.Message, out.Until = string(end.Kind), end.Message, end.Until
	out.Session, out.Model, out.Version, out.Usage = sum.Session, sum.Model, sum.Version, sum.Usage
	if sum.Result != nil && !sum.Result.Failed {
		out.Answer, out.AnswerCut = sum.Result.Text, sum.Result.Cut
	}
	r.keptEvents = kept
}

// exit is how the process ended, for the stream to be judged by.
func (r *recorder) exit(out *Outcome) stream.Exit {
	x := stream.Exit{Started: out.Child.Pid != 0, Code: out.ExitCode, Signal: int(out.Signal), Lost: out.OutputLost != nil || !out.StdoutClosed.IsZero()}
	switch {
	case out.Limit == run.LimitIdle:
		x.Idle = r.j.o.Idle
	case out.Limit != "":
		x.Stopped = "ended by its " + out.Limit + " limit"
	case out.Outcome.Outcome != record.Exited && out.Outcome.Outcome != record.Signaled:
		x.Stopped = out.Outcome.Outcome
	}
	return x
}

// fill puts the outcome into the record.
func (r *recorder) fill(out *Outcome, err error) {
	rec := r.run
	rec.State, rec.Outcome, rec.Signal = record.Ended, out.Outcome.Outcome, int(out.Signal)
	rec.QueuedAt, rec.AdmittedAt, rec.EndedAt = record.At(out.Queued), at(out.Admitted), record.At(out.Ended)
	rec.WaitedS = record.Seconds(out.Waited)
	if !r.j.queued.IsZero() {
		rec.QueuedAt = record.At(r.j.queued)
	}
	if !r.j.admitted.IsZero() { // its dispatcher admitted it, before there was a driver
		rec.AdmittedAt = record.At(r.j.admitted)
	}
	rec.ClaimedAt, rec.WaitedFor = at(r.j.claimed), r.j.waitedFor()
	if out.Child.Pid != 0 && out.Signal == 0 && out.Outcome.Outcome != record.Lost {
		rec.ExitCode = &out.ExitCode
	}
	if !out.Started.IsZero() {
		rec.RanS = record.Seconds(out.Ended.Sub(out.Started))
	}
	rec.Reason, rec.Temp = r.reason(out, err), r.j.temps()
	if r.j.forReview(out, err) {
		rec.Review = review.Pending
	}
	rec.Result, rec.Kind, rec.Message, rec.Until = out.Result, out.Kind, shown(out.Message, record.MaxMessage), at(out.Until)
	rec.Session, rec.Model, rec.EngineVersion, rec.Usage, rec.Trouble = out.Session, shown(out.Model, record.MaxMessage), shown(out.Version, record.MaxMessage), out.Usage, nil
	for _, s := range append(out.Survivors, out.Kept...) {
		rec.Survivors = append(rec.Survivors, record.Survivor{Pid: s.Pid, Comm: s.Comm, Why: s.Why})
	}
	rec.Notes = append(rec.Notes, out.Notes...)
	for _, w := range out.Warnings {
		rec.Notes = append(rec.Notes, w.Error())
	}
}

// reason says why a run did not end by itself.
func (r *recorder) reason(out *Outcome, err error) *record.Reason {
	switch {
	case err != nil:
		return ReasonOf(err)
	case out.Limit != "":
		return &record.Reason{Class: "time", Code: "limit_" + out.Limit, Message: "ended by its " + out.Limit + " limit"}
	case out.By != 0:
		return &record.Reason{Class: "time", Code: "ended_by_signal", Message: fmt.Sprintf("handsel was asked to end it by signal %d", int(out.By))}
	}
	return nil
}

// refuse writes the line of a refusal. A home that does not exist stays so.
func (r *recorder) refuse(out *Outcome, err error) error {
	j := r.j
	if !exists(j.home.dir.Path) {
		return nil
	}
	line := &record.Refusal{
		ID: j.id, At: record.At(machine.Now()), Outcome: record.Refused, Verb: j.verb(), Reason: *ReasonOf(err),
		WaitedS: record.Seconds(out.Ended.Sub(out.Queued)), Argv0: filepath.Base(first(j.argv)), Argc: len(j.argv), Command: record.Digest(j.argv),
		Cwd: j.cwd(), Engine: j.engine, Workload: j.class(), Pools: j.poolNames(), Lane: j.o.Lane, UID: os.Getuid(), Pid: os.Getpid(),
		Author: j.o.Author, Labels: j.o.Labels,
	}
	return record.Refuse(j.home.dir, line)
}

func (j *job) poolNames() []string {
	a := asker{start: Start{Pools: j.o.Pools, Only: j.gate, Workload: j.o.Workload, Engine: j.engine}}
	return a.names()
}

func asWarnings(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}

func holdersOf(all []lease.Holder) []record.Holder {
	var hs []record.Holder
	for _, h := range all {
		hs = append(hs, record.Holder{Pool: h.Pool, Slot: h.Index, Pid: h.Pid, Child: h.Child, Run: h.Run})
	}
	return hs
}
