package handsel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/quota"
)

// The codes of reasons of the class quota.
const (
	classQuota = "quota"

	CodeParked      = quota.CodeParked   // a limit of the account, until its reset
	CodeLogin       = quota.CodeLogin    // its login failed
	CodeThrottle    = quota.CodeThrottle // it is told to go slower
	CodeMinGap      = "min_gap"          // starts of the engine are to be apart
	CodeCommandWait = "command_wait"     // [quota.X] command says wait
	CodeCommandDeny = "command_deny"     // and no
)

// who is the engine account that the start uses; empty for a gate and for what is
// no known engine.
func (a *asker) who() quota.Account {
	if a.start.Only {
		return quota.Account{}
	}
	return quota.Account{Engine: a.start.Engine, Name: a.start.Account}
}

// quota asks whether the engine account has capacity under its provider's limits
// (P3), whether its starts are to be apart (P4), and at last whoever else is to be
// asked. It reads what ordered has just listed.
func (a *asker) quota() lease.Answer {
	who := a.who()
	if who.Engine == "" {
		return lease.Answer{}
	}
	now := quota.Now()
	state := quota.StateOf(a.orders, who)
	if said := state.Answer(a.start.Run, now); said.Code != "" {
		until := untilOf(said.Order, said.Left)
		return lease.Answer{Class: classQuota, Code: said.Code, Message: quota.Text(said.Order) + untilText(until), Until: until}
	}
	wait, space, err := a.home.book().Wait(a.spaces(state, now), now)
	switch {
	case err != nil:
		return lease.Answer{Err: err}
	case wait > 0 && space.Key == who.Engine:
		return lease.Answer{Class: classQuota, Code: CodeMinGap, Message: gapText(who.Engine, space.Gap), Until: machine.Now().Add(wait), Turn: space.Key}
	case wait > 0:
		return lease.Answer{Class: classQuota, Code: CodeThrottle, Message: quota.Text(state.Pace), Until: machine.Now().Add(wait), Turn: space.Key}
	}
	return a.command(who)
}

func gapText(engine string, gap time.Duration) string {
	return fmt.Sprintf("starts of engine %s are at least %v apart (engine.%s.min_gap)", engine, gap, engine)
}

// untilOf is the end of an order as the wall clock now has it: after the clock was
// set it is another than when the order was given (C14). The same as told before is
// told again to the millisecond.
func untilOf(o hold.Order, left time.Duration) time.Time {
	if left == 0 {
		return time.Time{}
	}
	end := machine.Now().Add(left)
	if d := end.Sub(o.Until); -time.Second < d && d < time.Second {
		return o.Until
	}
	return end
}

// turns are what starts of the account come to one after the other.
func (a *asker) turns() []string {
	who := a.who()
	if who.Engine == "" {
		return nil
	}
	return []string{who.Engine, pacedKey(who)}
}

func pacedKey(who quota.Account) string { return "paced." + who.String() }

// spaces are how far apart starts of the account have to be: those of the engine as
// configured, those of the account while it is throttled.
func (a *asker) spaces(s quota.State, now quota.Moment) []quota.Space {
	return spacesOf(a.settings, a.who(), s, now)
}

func spacesOf(in *inForce, who quota.Account, s quota.State, now quota.Moment) []quota.Space {
	return []quota.Space{
		{Key: who.Engine, Gap: in.EngineOf[who.Engine].MinGap},
		{Key: pacedKey(who), Gap: s.Gap(now), After: s.Throttled(now)},
	}
}

// admitted is asked once the start was let through, and is the only step that
// leaves something: of several that saw the same free moment one goes.
func (a *asker) admitted(ctx context.Context) (bool, error) {
	if a.start.about != nil {
		*a.start.about = machine.SinceBoot()
	}
	who := a.who()
	if who.Engine == "" {
		return true, nil
	}
	now := machine.Now()
	ok, claimed, err := a.home.book().Admit(ctx, who, a.start.Run, a.spaces)
	a.home.journalQuota(now, claimed, a.start.Run, a.start.lane)
	return ok, orRefused(err, a.start.Engine, a.start.Workload)
}

// orRefused makes a refusal of a lock that somebody who is stopped has: the same
// later may work.
func orRefused(err error, engine, workload string) error {
	if stuck, ok := errors.AsType[*quota.Stuck](err); ok {
		return &Refused{Waiting: Waiting{Code: lease.LockStuck, Message: stuck.Error()}, Engine: engine, Workload: workload, Cause: err}
	}
	return err
}
