package runs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/slot"
)

const (
	// blindPoll is how often somebody who waits for a run looks again where the
	// kernel tells of no event, jittered by a quarter either way (S15).
	blindPoll = 2 * time.Second
	// slowPoll is the same where it does, for what no event tells.
	slowPoll = 30 * time.Second
)

// Wait returns when all of the runs have ended, which is told of each as it is
// noticed. It wakes by events: the end of a supervisor or an agent, and a
// record that is written. It changes nothing, so it can be given up at any
// moment. The error is that of ctx, or *lease.Refused when waiting would never
// end: a run waits for slots that end no sooner than the asking process (S13),
// or ErrOwnRun: it is the run around the asking process.
func (p Place) Wait(ctx context.Context, list []Run, told func(Run)) error {
	eyes, err := newEyes(ctx)
	if err != nil {
		return err
	}
	defer eyes.close()
	pending := slices.Clone(list)
	for {
		if pending, err = p.stillGoing(eyes, pending, told); err != nil || len(pending) == 0 {
			return err
		}
		eyes.wait(pollAfter(eyes.blind(pending)))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func pollAfter(blind bool) time.Duration {
	if !blind {
		return slowPoll
	}
	return blindPoll*3/4 + rand.N(blindPoll/2)
}

// stillGoing looks at each run after it is being watched, so that no end
// between look and sleep is missed, and returns those that have not ended.
func (p Place) stillGoing(eyes *eyes, list []Run, told func(Run)) ([]Run, error) {
	for {
		fresh := false
		for i := range list {
			fresh = eyes.watch(p, &list[i]) || fresh
		}
		now := p.look()
		var pending []Run
		for _, r := range list {
			next := now.again(r)
			if next.Ended() {
				eyes.forget(r.ID)
				if told != nil {
					told(next)
				}
				continue
			}
			if isAround(&next) {
				return nil, fmt.Errorf("wait for run %s: %w", next.ID, ErrOwnRun)
			}
			if refused := now.ownAncestors(&next); refused != nil {
				return nil, refused
			}
			pending = append(pending, next)
		}
		if !fresh {
			return pending, nil
		}
		list = pending
	}
}

// again judges a run that was known before.
func (n *now) again(r Run) Run {
	if next, ok := n.get(r.ID); ok {
		return next
	}
	if slices.Contains(r.Sources, FromProcess) && n.processes()[r.ID] != nil {
		return n.ofProcess(r.ID)
	}
	// It is over, or is just changing from one of its places to another.
	fresh := n.at.look()
	if next, ok := fresh.get(r.ID); ok {
		return next
	}
	if verdict(r.Handsel) != proc.Gone && !fresh.refused(&r) {
		return r
	}
	return fresh.vanished(r)
}

// vanished is the end of a run that left no record: it was refused, which the
// day's refusals tell, or nobody can tell.
func (n *now) vanished(r Run) Run {
	r.setState(record.Ended)
	r.Recorded, r.Place, r.ticket, r.Orphaned, r.Unverifiable = "", 0, nil, false, false
	if n.refused(&r) {
		return r
	}
	r.Outcome, r.EndedAt = record.Lost, record.At(n.lastKnown(&r))
	r.Reason = &record.Reason{Class: "resource", Code: NoRecord, Message: "it is over, and nothing was written about it"}
	return r
}

// refused fills in how r was refused, if it was.
func (n *now) refused(r *Run) bool {
	refused, _, _ := record.Refusals(n.at.Home, r.Began().Add(-time.Second), 0)
	for _, one := range refused {
		if one.ID == r.ID {
			r.Outcome, r.Reason, r.EndedAt, r.WaitedS = record.Refused, &one.Reason, one.At, one.WaitedS
			return true
		}
	}
	return false
}

// ErrOwnRun reports a wait for the run that the asking process is part of.
var ErrOwnRun = errors.New("it is the run around this process, which ends only when we do")

// isAround tells whether this process is part of r.
func isAround(r *Run) bool {
	for _, c := range r.processes() {
		for _, up := range proc.Ancestors(os.Getpid()) {
			if c.Ticks != 0 && up.Pid == c.Pid && up.Ticks == c.Ticks {
				return c.NS == 0 || c.NS == machine.PidNS()
			}
		}
	}
	return false
}

// ownAncestors tells whether a waiting run waits for slots of which every one
// is held for an ancestor of this process, or by an agent that itself waits in
// line for a child (S13).
func (n *now) ownAncestors(r *Run) *lease.Refused {
	if r.ticket == nil {
		return nil
	}
	for _, p := range r.ticket.pools {
		pool, err := slot.Open(n.at.Leases, p.Name, false)
		if err != nil {
			continue
		}
		count, err := pool.Count()
		pool.Close()
		if err != nil || !count.Full(p.Cap) || !n.allAbove(count.Slots, r.ID) {
			continue
		}
		w := lease.Waiting{Code: lease.OwnAncestors, Pool: p.Name, Cap: count.Limit(p.Cap), Place: r.Place}
		for _, s := range count.Slots {
			w.Holders = append(w.Holders, lease.HolderOf(p.Name, s))
		}
		return &lease.Refused{Waiting: w, Engine: r.Engine, Workload: r.Workload, Gate: r.Workload == lease.GateWorkload}
	}
	return nil
}

// allAbove tells whether no slot of a full pool comes free before this process
// ends.
func (n *now) allAbove(slots []slot.Seen, waiting string) bool {
	stuck := map[string]bool{} // runs that wait in line for a child of theirs
	for id, t := range n.tickets {
		if id != waiting {
			for _, run := range t.waits {
				stuck[run] = true
			}
		}
	}
	ours := 0
	for _, s := range slots {
		rec := s.Record()
		switch {
		case rec == nil:
			return false
		case isAbove(rec):
			ours++
		case !stuck[rec.Run]:
			return false
		}
	}
	return ours > 0
}

// isAbove tells whether a slot is held for an ancestor of this process.
func isAbove(rec *slot.Record) bool {
	c, named := rec.Child()
	if !named {
		c = rec.Holder()
	}
	if c.NS != 0 && c.NS != machine.PidNS() || c.Boot != "" && c.Boot != machine.BootID() {
		return false
	}
	for _, st := range proc.Ancestors(os.Getpid()) {
		switch {
		case st.Pid != c.Pid:
		case c.Ticks != 0:
			return st.Ticks == c.Ticks
		default:
			return math.Abs(st.ID().StartedEpoch()-c.Started) <= 2
		}
	}
	return false
}
