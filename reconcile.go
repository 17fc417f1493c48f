package handsel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/runs"
)

// FromDisk is an answer that records, files and locks gave.
const FromDisk = "disk"

// Reconciled is what is known of one attempt. What is not known is not guessed:
// Known is false then, and State empty.
type Reconciled struct {
	V        int         `json:"v"`
	At       record.Time `json:"at"`
	Source   string      `json:"source"` // dispatcher or disk
	Lane     string      `json:"lane,omitempty"`
	Attempt  string      `json:"attempt,omitempty"`
	Known    bool        `json:"known"`
	State    string      `json:"state,omitempty"`
	Outcome  string      `json:"outcome,omitempty"`
	ExitCode *int        `json:"exit_code,omitempty"`
	Signal   int         `json:"signal,omitempty"`
	Fence    uint64      `json:"fence,omitempty"`
	Orphaned bool        `json:"orphaned,omitempty"`
	Message  string      `json:"message"`
	Reason   *Reason     `json:"reason,omitempty"`
	Evidence []string    `json:"evidence"` // what was read, each in a sentence
}

// Unsettled reports an attempt of which nothing certain can be said while no
// dispatcher answers (69).
type Unsettled struct {
	Attempt string
	Why     string
	Err     error // why the dispatcher cannot be asked
}

func (e *Unsettled) Error() string {
	return fmt.Sprintf("attempt %s: unknown: %s; %v", e.Attempt, e.Why, e.Err)
}

func (e *Unsettled) Unwrap() error { return e.Err }

// Reason is the error in the words of C13.
func (e *Unsettled) Reason() *Reason {
	return &Reason{Class: "ownership", Code: "unknown", Message: e.Error(), Retryable: true}
}

// Reconcile says what became of an attempt: a lane's present one, or one by its
// id. A dispatcher that answers looks again and acts on what it finds (L15,
// L18); without one, this tells what records, files and locks say. The error is
// *NotFound, *Ambiguous, *BadName, or *Unsettled with the answer as far as it
// goes.
func (h *Home) Reconcile(ctx context.Context, x string) (*Reconciled, error) {
	w := h.look(ctx)
	defer w.close()
	name, id, err := w.attemptOf(x)
	if err != nil {
		return nil, err
	}
	if w.answers() {
		done, err := w.client.Reconcile(ctx, api.Target{Lane: name, Attempt: id})
		if err == nil {
			return settled(done), nil
		}
		if !isCode(err, api.CodeNotFound) {
			w.silent = err
		}
	}
	f := w.facts(name, id)
	out := f.judge()
	if !out.Known && w.silent != nil {
		return out, &Unsettled{Attempt: out.Attempt, Why: out.Message, Err: w.silent}
	}
	return out, nil
}

func isCode(err error, code string) bool {
	refused, ok := errors.AsType[*api.Refused](err)
	return ok && refused.Reason.Code == code
}

// settled is the dispatcher's answer.
func settled(d *api.Done) *Reconciled {
	out := &Reconciled{
		V: 1, At: record.At(machine.Now()), Source: FromDispatcher, Lane: d.Lane, Attempt: d.Attempt, Known: d.State != "", State: d.State,
		Outcome: d.Outcome, ExitCode: d.ExitCode, Signal: d.Signal, Fence: d.Fence, Orphaned: d.Orphaned, Message: d.Message, Reason: d.Reason, Evidence: []string{},
	}
	if out.Message == "" {
		out.Message = strings.TrimSpace(d.State + " " + d.Outcome)
	}
	if d.Driver != nil {
		out.Evidence = append(out.Evidence, fmt.Sprintf("claimed by process %d", d.Driver.Pid))
	}
	return out
}

// attemptOf finds the attempt that X means: its lane, as far as that is known,
// and its id.
func (w *world) attemptOf(x string) (name, id string, err error) {
	found, err := w.find(x, true)
	switch {
	case errors.As(err, new(*NotFound)):
		return w.onDisk(x, err)
	case err != nil:
		return "", "", err
	case len(found) > 1:
		return "", "", &Ambiguous{Name: x, Fits: idsOf(found)}
	}
	return found[0].Lane, found[0].ID, nil
}

// onDisk finds an attempt that left only its directory: a launcher that was
// killed before the dispatcher had answered, say.
func (w *world) onDisk(x string, missing error) (name, id string, err error) {
	text := strings.TrimPrefix(x, "run:")
	id, err = record.Find(w.h.dir, text)
	if several, ok := errors.AsType[*record.Ambiguous](err); ok {
		return "", "", &Ambiguous{Name: x, Fits: several.IDs}
	}
	if err != nil {
		return "", "", missing
	}
	return "", id, nil
}

// facts are what can be read of an attempt without its dispatcher.
type facts struct {
	lane, id string
	now      time.Time

	run     *runs.Run      // its record, judged; nil: none
	begun   *attempt.Begun // how its last decided start was decided; nil: none was
	start   int
	payload bool  // its directory is there
	unread  error // what could not be read, and might decide

	seen  *lane.Seen     // its lane; nil: not known
	entry *attempt.Entry // of its lane; nil: none
	// dispatcher is DispatcherNone or DispatcherSilent, or DispatcherAnswers of
	// one that does not know the attempt.
	dispatcher string
}

func (w *world) facts(name, id string) *facts {
	f := &facts{lane: name, id: id, now: machine.Now(), dispatcher: DispatcherAnswers}
	if w.silent != nil {
		f.dispatcher = w.h.absent(w.silent).State
	}
	if k, ok := w.at.Known(id)[id]; ok && !offered(&k) {
		f.run = &k
	}
	_, err := os.Lstat(attemptDir(w.h.dir, id))
	f.payload = err == nil
	for n := 1; ; n++ { // starts are decided one after the other
		b, err := attempt.ReadBegun(w.h.dir, id, n)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				f.unread = err
			}
			break
		}
		f.begun, f.start = b, n
	}
	f.findLane(w)
	return f
}

func attemptDir(d home.Dir, id string) string {
	t, _ := runs.TimeOf(id)
	return filepath.Join(d.Runs(), t.Format(time.DateOnly), id)
}

// findLane looks at the attempt's lane, and finds out which it is where only a
// lane's record tells.
func (f *facts) findLane(w *world) {
	if f.lane == "" && f.run != nil {
		f.lane = f.run.Lane
	}
	if f.lane == "" {
		all, _, _ := lane.List(w.h.dir) // what cannot be read says nothing
		for _, s := range all {
			if s.Record.Owned() && idIn(s.Record) == f.id {
				f.lane = s.Name
			}
		}
	}
	if f.lane == "" {
		return
	}
	if seen, err := lane.Look(w.h.dir, f.lane); err == nil {
		f.seen = &seen
	}
	if e, err := attempt.ReadEntry(w.h.dir, f.lane); err == nil && e.Attempt == f.id {
		f.entry = e
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.problem = append(w.problem, err.Error())
	}
}

// ours tells whether the lane's record names this attempt.
func (f *facts) ours() bool {
	return f.seen != nil && f.seen.Record.Owned() && idIn(f.seen.Record) == f.id
}

// judge says what the facts prove, by the rules of L18. It never says more.
func (f *facts) judge() *Reconciled {
	out := &Reconciled{V: 1, At: record.At(f.now), Source: FromDisk, Lane: f.lane, Attempt: f.id, Known: true, Evidence: f.evidence()}
	if f.ours() {
		out.Fence = f.seen.Record.Fence
	}
	switch {
	case f.run != nil && f.run.Ended():
		f.ended(out)
	case f.unread != nil:
		out.Known, out.Message = false, f.unread.Error()
	case f.begun != nil && f.begun.What == attempt.Began:
		f.began(out)
	case f.run != nil && !f.run.Unverifiable:
		out.State, out.Orphaned, out.Message = f.run.State, f.run.Orphaned, "as its record and the kernel have it"
	default:
		f.waiting(out)
	}
	return out
}

func (f *facts) ended(out *Reconciled) {
	r := f.run
	out.State, out.Outcome, out.ExitCode, out.Signal, out.Reason = record.Ended, r.Outcome, r.ExitCode, r.Signal, r.Reason
	if out.Fence == 0 {
		out.Fence = r.Fence
	}
	out.Message = "its record says how it ended"
	if r.Recorded != "" {
		out.Message = "its record says " + r.Recorded + ", and nothing of it is left"
	}
}

// began judges an attempt whose driver owns it.
func (f *facts) began(out *Reconciled) {
	out.State = record.Running
	switch {
	case f.ours() && f.seen.State == lane.Owned:
		out.Message = "its driver has begun, and holds the lane"
	case f.ours() && f.seen.State == lane.Orphaned:
		out.Orphaned, out.Message = true, "its driver is gone, and its agent lives"
	case f.seen == nil,
		f.seen.State == lane.Unverifiable,
		f.seen.State == lane.Owned && f.seen.Record == nil,
		f.run != nil && f.run.Unverifiable:
		out.Known, out.State, out.Message = false, "", "its driver has begun, and cannot be looked at from here"
	case f.run != nil:
		out.State, out.Orphaned, out.Message = f.run.State, f.run.Orphaned, "as its record and the kernel have it"
	default:
		f.lost(out)
	}
}

func (f *facts) lost(out *Reconciled) {
	out.State, out.Outcome = record.Ended, record.Lost
	out.Message = fmt.Sprintf("its driver (process %d) had begun, and neither it nor an agent is left; how it ended, nobody wrote", f.begun.Pid)
	out.Reason = &Reason{Class: "ownership", Code: runs.SupervisorLost, Message: out.Message, Retryable: true}
	if f.begun.BootID != "" && f.begun.BootID != machine.BootID() {
		out.Reason.Code = runs.HostRestarted
	}
}

// waiting judges an attempt that nobody has begun.
func (f *facts) waiting(out *Reconciled) {
	role := ""
	if f.ours() && f.seen.State == lane.Owned {
		role = f.seen.Record.Role
	}
	displaced := f.seen != nil && f.seen.State != lane.Free && !f.ours()
	switch {
	case f.dispatcher == DispatcherAnswers:
		out.Known, out.Message = false, "the dispatcher does not know it, and nothing on disk says that it began or ended"
	case role == lane.RoleDriver:
		out.State, out.Message = record.Starting, "its driver has the lane, and has not begun"
	case role == lane.RoleLauncher:
		out.Known, out.Message = false, "its launcher has the lane, and it is not known whether the dispatcher has accepted it"
	case displaced:
		out.Known, out.Message = false, "its lane is owned by "+f.seen.Owner()
	case f.entry != nil && f.entry.Owner.Role == lane.RoleLauncher:
		out.Known, out.Message = false, "its launcher wrote that it waits, and it is not known whether the dispatcher accepted it"
	case f.entry != nil && f.dispatcher == DispatcherNone:
		out.State, out.Message = record.Queued, "it waits for a dispatcher, with its place in the queue"
	case f.entry != nil:
		out.State, out.Message = f.entry.State, "as the dispatcher wrote before it fell silent"
	case role == lane.RoleDispatcher:
		out.State, out.Message = record.Queued, "the dispatcher holds its lane"
	default:
		out.Known, out.Message = false, "nothing on disk says that it was accepted, began or ended"
	}
}

// evidence lists what was read.
func (f *facts) evidence() []string {
	all := []string{}
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if r := f.run; r != nil {
		say("its record says %s", strings.TrimSpace(cmp.Or(r.Recorded, r.State)+" "+recordedOutcome(r)))
	}
	if b := f.begun; b != nil {
		alive := ""
		if b.What == attempt.Began && proc.Judge(proc.Claim{Pid: b.Pid, Ticks: b.Ticks, Boot: b.BootID}) == proc.Gone {
			alive = ", which is gone"
		}
		say("start %d was %s by process %d%s", f.start, b.What, b.Pid, alive)
	}
	switch {
	case f.seen == nil:
	case f.seen.State == lane.Free:
		say("its lane is free")
	default:
		say("its lane is owned by %s", f.seen.Owner())
	}
	if e := f.entry; e != nil {
		say("its entry says %s since %s", e.State, e.StateSince.UTC().Format(time.RFC3339))
	}
	if f.run == nil && f.payload {
		say("its directory is there, without a record")
	}
	say("the dispatcher: %s", f.dispatcher)
	return all
}

func recordedOutcome(r *runs.Run) string {
	if r.Recorded != "" {
		return "" // what is judged is not what is recorded
	}
	return r.Outcome
}
