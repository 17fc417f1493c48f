package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// CancelPatience bounds how long Cancel waits for a supervisor to end its run:
// 5 s from TERM to KILL, up to 5 s more, and some for the writing (S21).
const CancelPatience = 12 * time.Second

// What Cancel did.
const (
	AlreadyEnded = "already_ended" // it was over; nothing was done
	WasCancelled = "cancelled"     // it was going and has ended
	WasLost      = "lost"          // nothing of it was left; its record was closed
	StillEnding  = "still_ending"  // it was told, and has not ended in time
	NotDone      = "not_done"      // see the error
)

// Cancelled is what became of one run that was to be cancelled.
type Cancelled struct {
	Run       Run
	Did       string
	Message   string
	Survivors []proc.Survivor
}

// NotYours refuses to cancel, from inside an agent, a run that is not that
// agent's own descendant (C15).
type NotYours struct {
	Run    string
	Inside *nest.Inside
}

// Code is the reason code of the refusal.
func (e *NotYours) Code() string { return "inside_agent" }

func (e *NotYours) Error() string {
	return fmt.Sprintf("cancel run %s: an agent may cancel only what it started itself (code inside_agent; found by process %d, %s)",
		e.Run, e.Inside.Pid, e.Inside.How)
}

func (e *NotYours) Unwrap() error { return e.Inside }

// mayCancel tells whether this process may cancel r: anything from outside an
// agent, its own descendants from within.
func mayCancel(r *Run) error {
	inside, ok := errors.AsType[*nest.Inside](nest.Check())
	if !ok || isDescendant(r) {
		return nil
	}
	return &NotYours{Run: r.ID, Inside: inside}
}

// isDescendant tells whether the agent around this process started r: r's
// supervisor (or its agent, when that is gone) was started with the agent's
// HANDSEL_RUN, or hangs below a process of the agent that we hang below too.
func isDescendant(r *Run) bool {
	own := os.Getenv("HANDSEL_RUN")
	if r.ID == own {
		return false // the run around us
	}
	within := insiders()
	for _, c := range r.processes() {
		if proc.Judge(c) != proc.Alive {
			continue
		}
		if run, found, err := proc.Env(c.Pid, "HANDSEL_RUN"); err == nil && found && own != "" && run == own {
			return true
		}
		for _, up := range proc.Ancestors(c.Pid) {
			if ticks, ok := within[up.Pid]; ok && ticks == up.Ticks {
				return true
			}
		}
	}
	return false
}

// insiders are this process and those above it up to the nearest supervisor of
// an agent: the processes of the agent that we are part of.
func insiders() map[int]uint64 {
	within := map[int]uint64{}
	if self, err := proc.ReadStat(os.Getpid()); err == nil {
		within[self.Pid] = self.Ticks
	}
	for _, up := range proc.Ancestors(os.Getpid()) {
		depth, found, err := proc.Env(up.Pid, nest.Var)
		if err != nil || !found || depth == "" || depth == "0" || strings.HasPrefix(up.Comm, "handsel:d") {
			break
		}
		within[up.Pid] = up.Ticks
	}
	return within
}

// processes are those by which a run is held: its supervisor, then its agent.
func (r *Run) processes() []proc.Claim {
	list := []proc.Claim{claim(r.Handsel)}
	if r.Child != nil {
		list = append(list, claim(*r.Child))
	}
	return list
}

// Cancel ends a run and returns when nothing of it is left, or after
// CancelPatience. A run with a supervisor is ended by it: the supervisor is
// sent TERM, escalates by itself and writes the record. An orphan is ended
// here, by its proven identity, with all that carries its id. A run of which
// nothing is left gets its record closed as lost. It is safe to call again.
func (p Place) Cancel(ctx context.Context, r Run) (*Cancelled, error) {
	out := &Cancelled{Run: r, Did: NotDone}
	if r.Ended() && r.Recorded == "" {
		out.Did, out.Message = AlreadyEnded, "already ended: "+r.Word()
		return out, nil
	}
	err := mayCancel(&r)
	if err == nil {
		ctx, stop := context.WithTimeout(ctx, CancelPatience)
		defer stop()
		err = p.cancel(ctx, out)
	}
	if err != nil {
		out.Message = err.Error()
	}
	return out, err
}

// cancel goes on until the run has ended: its supervisor may be killed while
// we wait for it.
func (p Place) cancel(ctx context.Context, out *Cancelled) error {
	told := proc.Claim{}
	for {
		r := &out.Run
		switch {
		case r.Ended() && r.Recorded == "":
			out.Did, out.Message = WasCancelled, "ended: "+r.Word()
			return nil
		case r.Ended():
			return p.cancelLost(out)
		case r.Orphaned:
			return p.cancelOrphan(ctx, out)
		case r.Unverifiable:
			return fmt.Errorf("run %s: %w", r.ID, proc.ErrUnverifiable)
		}
		if supervisor := claim(r.Handsel); supervisor != told {
			if p.dispatches(supervisor) {
				return fmt.Errorf("run %s: %w", r.ID, ErrOffered)
			}
			if err := proc.Tell(supervisor, syscall.SIGTERM); err != nil && !errors.Is(err, proc.ErrGone) {
				return fmt.Errorf("run %s: %w", r.ID, err)
			}
			told = supervisor
		}
		if err := p.untilChanged(ctx, out); err != nil || out.Did == StillEnding {
			return err
		}
	}
}

// ErrOffered reports a run that nobody has begun: its slots are the dispatcher's,
// which is no supervisor to be told.
var ErrOffered = errors.New("it is offered by the dispatcher, and nobody has claimed it yet")

// dispatches tells whether a process is the dispatcher.
func (p Place) dispatches(c proc.Claim) bool {
	d, ok := p.dispatcher()
	return ok && d.Pid == c.Pid && (d.Ticks == 0 || d.Ticks == c.Ticks)
}

// untilChanged waits until the run has ended, lost its supervisor, got another
// or is over time.
func (p Place) untilChanged(ctx context.Context, out *Cancelled) error {
	eyes, err := newEyes(ctx)
	if err != nil {
		return err
	}
	defer eyes.close()
	told := claim(out.Run.Handsel)
	for {
		fresh := eyes.watch(p, &out.Run)
		out.Run = p.look().again(out.Run)
		if out.Run.Ended() || out.Run.Orphaned || out.Run.Unverifiable || claim(out.Run.Handsel) != told {
			return nil // another may supervise it by now, who was not told
		}
		if fresh {
			continue
		}
		eyes.wait(pollAfter(eyes.blind([]Run{out.Run})))
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			out.Did = StillEnding
			out.Message = fmt.Sprintf("its supervisor, pid %d, was told to end it and has not within %s", out.Run.Handsel.Pid, CancelPatience)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// cancelOrphan ends an agent whose supervisor is gone, and writes who did.
func (p Place) cancelOrphan(ctx context.Context, out *Cancelled) error {
	r := &out.Run
	if r.Child == nil {
		return fmt.Errorf("run %s: %w", r.ID, proc.ErrUnverifiable)
	}
	child := p.childClaim(r)
	report, err := proc.EndOrphan(proc.Orphan{Child: child, Run: r.ID, Now: ctx.Done(), PassOver: p.PassOver(r.Handsel.Pid)})
	out.Survivors = report.Survivors
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	if !report.LeaderGone {
		out.Did, out.Message = StillEnding, fmt.Sprintf("its agent, pid %d, did not end", child.Pid)
		return nil
	}
	by := fmt.Sprintf("its supervisor was gone; ended by handsel cancel, pid %d, uid %d", os.Getpid(), os.Getuid())
	out.Did, out.Message = WasCancelled, by
	now := machine.Now()
	return p.close(out, func(rec *record.Run) {
		rec.State, rec.Outcome = record.Ended, record.Cancelled
		rec.EndedAt = record.At(later(rec.StartedAt.Time, now))
		if !rec.StartedAt.IsZero() {
			rec.RanS = record.Seconds(rec.EndedAt.Sub(rec.StartedAt.Time))
		}
		rec.Reason = &record.Reason{Class: "ownership", Code: EndedByCancel, Message: by}
		for _, s := range report.Survivors {
			rec.Survivors = append(rec.Survivors, record.Survivor{Pid: s.Pid, Comm: s.Comm, Why: s.Why})
		}
	})
}

// childClaim is all that is recorded of the agent: a slot of another
// implementation knows only its start by the wall clock.
func (p Place) childClaim(r *Run) proc.Claim {
	if r.Child.Ticks == 0 {
		for _, s := range p.look().slots[r.ID] {
			if c, named := s.rec.Child(); named && c.Pid == r.Child.Pid {
				return c
			}
		}
	}
	return claim(*r.Child)
}

// cancelLost ends what still carries the id of a lost run, and closes its
// record. After a restart of the host nothing is signalled (C032).
func (p Place) cancelLost(out *Cancelled) error {
	r := &out.Run
	out.Did, out.Message = WasLost, "nothing of it was left; recorded as lost: "+r.Reason.Message
	if !restarted(r) && r.Child != nil {
		report, err := proc.EndOrphan(proc.Orphan{Child: claim(*r.Child), Run: r.ID, PassOver: p.PassOver(r.Handsel.Pid)})
		if err != nil {
			return fmt.Errorf("run %s: %w", r.ID, err)
		}
		out.Survivors = report.Survivors
	}
	return p.close(out, nil)
}

// Lost lists the runs of which nothing is left while their records say that
// they go on.
func (p Place) Lost() ([]Run, error) {
	list, err := p.List(Filter{State: record.Lost})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Runs, func(r Run) bool { return r.Recorded == "" }), nil
}

// Orphans lists the runs whose agent lives while the supervisor is gone, and
// those that cannot be looked at from here.
func (p Place) Orphans() ([]Run, error) {
	list, err := p.List(Filter{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Runs, func(r Run) bool { return !r.Orphaned && !r.Unverifiable }), nil
}

// Close writes into the record of a lost run that it is lost. It is judged once
// more first; the error says so when it is not lost by then, and is
// record.ErrNewer for a record of a newer version, which stays as it is.
func (p Place) Close(r Run) error { return p.close(&Cancelled{Run: r}, nil) }

// close writes how a run ended, given that nobody else is left who could. A
// nil fill writes what the judging says. A run without a record has nothing to
// close.
func (p Place) close(out *Cancelled, fill func(*record.Run)) error {
	r := &out.Run
	if !slices.Contains(r.Sources, FromRecord) {
		if fill != nil {
			fill(&r.Run)
		}
		return nil
	}
	w, rec, err := record.Reopen(p.Home, r.ID)
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	now := p.look().judge(rec)
	switch {
	case now.Ended() && now.Recorded == "": // somebody was faster
		out.Run, out.Did, out.Message = now, AlreadyEnded, "already ended: "+now.Word()
		return nil
	case !now.Ended():
		return fmt.Errorf("run %s: it has not ended", r.ID)
	}
	if fill != nil {
		fill(&now.Run)
	}
	now.Abandon()
	if err := w.Save(&now.Run); err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	now.Recorded = ""
	out.Run = now
	return nil
}
