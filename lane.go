package handsel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

type (
	// BadLane reports a text that cannot name a lane.
	BadLane = home.BadLane

	// LaneMismatch refuses a lane whose file is another's (C11).
	LaneMismatch = lane.Mismatch

	// NewerLane refuses a lane whose record a later version has written.
	NewerLane = lane.Newer
)

// LaneOwned refuses a start because somebody has its lane. Nothing was started.
type LaneOwned struct {
	*lane.Held
	Above bool // an ancestor of this process has it, so it ends only when we do (S13)
}

// Unwrap is the refusal as the lane gave it.
func (e *LaneOwned) Unwrap() error { return e.Held }

func (e *LaneOwned) Error() string {
	if e.Above {
		return e.Held.Error() + "; that ends only when we do, so waiting would never end"
	}
	return e.Held.Error()
}

// Retryable tells whether the same start may be admitted later.
func (e *LaneOwned) Retryable() bool { return !e.Above }

// Code is the reason code of the refusal.
func (e *LaneOwned) Code() string {
	if e.Above {
		return CodeOwnAncestors
	}
	return CodeLaneOwned
}

// Codes of what has to do with lanes.
const (
	CodeLaneOwned      = "lane_owned"
	CodeLaneUnwritable = "lane_unwritable" // the agent could not be recorded in it
)

func checkLane(name string) error {
	if name == "" {
		return nil
	}
	if bad, ok := errors.AsType[*BadLane](home.ValidLane(name)); ok {
		return &BadOption{"lane", name, bad.Why}
	}
	return nil
}

// laneName is the lane the job is for, empty without one.
func (j *job) laneName() string {
	if j.hold != nil {
		return j.hold.Name()
	}
	return j.o.Lane
}

// takeLane takes the lane of a direct run, waiting for it at most so long (L2).
func (j *job) takeLane(ctx context.Context, wait time.Duration) error {
	began := time.Now()
	defer func() { j.laneWait = time.Since(began) }()
	if err := j.home.trusted(); err != nil {
		return err
	}
	rec := lane.Mine(lane.RoleRun)
	rec.Run, rec.Argv0 = j.id, filepath.Base(first(j.argv))
	h, err := lane.Take(j.home.dir, j.o.Lane, rec)
	if held, ok := errors.AsType[*lane.Held](err); ok {
		if above(held.Record) {
			return &LaneOwned{held, true}
		}
		if left := wait - time.Since(began); left > 0 {
			standing := j.standForLane(ctx)
			h, err = lane.Wait(ctx, j.home.dir, j.o.Lane, rec, left, j.laneWaits)
			standing.Leave()
		}
	}
	switch held, ok := errors.AsType[*lane.Held](err); {
	case ok:
		held.Waited = time.Since(began)
		return &LaneOwned{held, false}
	case errors.Is(err, flock.ErrUnsupported):
		return &Refused{Waiting: Waiting{Code: CodeUnsupported, Message: "this platform has no lock that would keep a lane"},
			Engine: j.engine, Workload: j.class(), Gate: j.gate, Cause: err}
	case err != nil:
		return err
	}
	if _, err := h.Grant(); err != nil { // P9: no run has a lane without a number of its own
		return &Refused{Waiting: Waiting{Code: CodeLaneUnwritable, Message: "the lane cannot be given its next fence: " + err.Error()},
			Engine: j.engine, Workload: j.class(), Gate: j.gate, Cause: errors.Join(err, h.Release())}
	}
	j.hold = h
	j.passing.waits("", time.Now())
	j.tookLane()
	return nil
}

// above tells whether a record names an ancestor of this process, as the owner
// or as its agent.
func above(r *lane.Record) bool {
	if r == nil || r.Holder == nil {
		return false
	}
	claims := []proc.Claim{r.HolderClaim()}
	if child, named := r.ChildClaim(); named {
		claims = append(claims, child)
	}
	return slices.ContainsFunc(proc.Ancestors(os.Getpid()), func(st proc.Stat) bool {
		return slices.ContainsFunc(claims, func(c proc.Claim) bool {
			return c.Pid == st.Pid && c.Ticks == st.Ticks && proc.Judge(c) == proc.Alive
		})
	})
}

// standForLane lets whoever looks know that this run waits, and for which lane. It
// waits all the same where that cannot be written down.
func (j *job) standForLane(ctx context.Context) *lease.Standing {
	want := lease.Want{Run: j.id, Engine: j.engine, Workload: j.class(), Priority: j.o.Priority}
	standing, err := lease.Stand(ctx, j.home.places(j.settings.Settings), want, CodeLaneOwned, j.o.Lane)
	if err != nil && j.o.OnNote != nil && ctx.Err() == nil {
		j.o.OnNote("nobody is told that this run waits for its lane: " + err.Error())
	}
	return standing
}

// laneWaits tells the caller who has the lane.
func (j *job) laneWaits(s lane.Seen) {
	j.waits(Waiting{Code: CodeLaneOwned, Message: fmt.Sprintf("lane %s is owned by %s", strconv.QuoteToASCII(s.Name), s.Owner())})
}

// ownerOf names who has a lane, as reasons do.
func ownerOf(s lane.Seen) []record.Holder {
	if !s.Record.Owned() {
		return nil
	}
	h := record.Holder{Lane: s.Name, Pid: s.Record.Holder.Pid, Run: s.Record.Run}
	if h.Run == "" {
		h.Run = s.Record.Attempt // they share one id
	}
	if s.Record.Child != nil {
		h.Child = s.Record.Child.Pid
	}
	return []record.Holder{h}
}

// letGo is the last act of a run: it gives the lane up, or leaves it to an agent
// that could not be ended.
func (j *job) letGo(out *Outcome) []error {
	switch {
	case j.hold == nil:
		return nil
	case !out.SlotsKept:
		return asWarnings(j.hold.Release())
	case !j.hold.Marked():
		// The descriptor is a plain number: nothing closes it but the end of this
		// process.
		return []error{fmt.Errorf("lane %s lacks the agent's whole record, so it stays locked until this process ends", strconv.QuoteToASCII(j.hold.Name()))}
	}
	j.hold.Keep()
	return nil
}

// seated is a lease together with the lane its agent works in: the agent is
// recorded in both (L1), and where it cannot be, none is started.
type seated struct {
	*Lease
	hold *lane.Hold
}

// Empty is never true: a lane must know its agent as a slot must.
func (s seated) Empty() bool { return false }

// RecordChild writes the agent's identity into the lane and into every slot.
func (s seated) RecordChild(id proc.ID) error {
	if err := s.hold.SetChild(id); err != nil {
		return &Refused{Waiting: lease.Waiting{Code: CodeLaneUnwritable, Message: "the agent cannot be recorded: " + err.Error()}, Cause: err}
	}
	return s.Lease.RecordChild(id)
}

// The variables that say for which lane an agent works (C9).
const (
	envLane    = "HANDSEL_LANE"
	envAttempt = "HANDSEL_ATTEMPT"
	envFence   = "HANDSEL_FENCE"
)

// env is the environment the command is started with, but for the markers of the
// run room. What an outer agent's lane says is not passed on to another agent; a
// gate is part of the agent it is in.
func (j *job) env() []string {
	env := j.o.Env
	if env == nil {
		env = os.Environ()
	}
	if len(j.accountEnv) > 0 {
		env = over(env, j.accountEnv)
	}
	if j.gate && j.laneName() == "" {
		return env
	}
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == envLane || name == envAttempt || name == envFence
	})
	if name := j.laneName(); name != "" {
		env = append(env, envLane+"="+name)
	}
	if j.hold != nil && j.hold.Record().Attempt != "" {
		env = append(env, envAttempt+"="+j.hold.Record().Attempt)
	}
	return env
}

// fenced is the fence by which the agent has its lane, by which whatever it has an
// effect on knows a stale owner (P9). A direct run gets its own with the lane.
func (j *job) fenced() []string {
	if j.hold == nil || j.hold.Record().Fence == 0 {
		return nil
	}
	return []string{envFence + "=" + strconv.FormatUint(j.hold.Record().Fence, 10)}
}
