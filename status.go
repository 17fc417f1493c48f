package handsel

import (
	"context"
	"sort"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/status"
)

// Snapshot is one look at pools, slots and the line.
type Snapshot = status.Snapshot

// Status takes a look. It changes and creates nothing and answers in under two
// seconds; what could not be read is in Problems (S28).
func (h *Home) Status(ctx context.Context) *Snapshot {
	env := h.configEnv()
	s, problems := config.LoadLenient(env)
	at := h.places(s)
	snap := status.Look(ctx, status.Places{Leases: at.Leases, Waiting: at.Waiting}, h.dir.Path, h.dir.From, capsOf(s))
	for _, p := range problems {
		snap.Problems = append(snap.Problems, p.Error())
	}
	h.seeAgents(snap)
	h.seeHolds(snap)
	if n, _ := s.Cap(poolAll); n == 0 && s.Mode == ModeDispatcher {
		snap.QueuedAll = QueuedAll()
	}
	return snap
}

// capsOf lists the caps in force, by pool.
func capsOf(s *config.Settings) []status.Cap {
	var caps []status.Cap
	for pool := range s.Caps {
		n, from := s.Cap(pool)
		if n > 0 {
			caps = append(caps, status.Cap{Pool: pool, Cap: n, From: from})
		}
	}
	sort.Slice(caps, func(i, j int) bool { return caps[i].Pool < caps[j].Pool })
	return caps
}

// seeAgents adds what the records of the live runs tell of their agents: how they
// are confined, what limits end them, and what those whose output is read are
// doing.
func (h *Home) seeAgents(snap *Snapshot) {
	seen, attended := map[string]bool{"": true}, map[string]bool{}
	see := func(run string) {
		if seen[run] {
			return
		}
		seen[run] = true
		rec, err := record.Load(h.dir, run)
		if err != nil || rec.State == record.Ended {
			return // what is wrong with a record, doctor and runs tell
		}
		attended[run] = rec.Interactive
		a := status.Agent{Run: run, Engine: rec.Engine, Confinement: rec.Confinement, Trouble: rec.Trouble, Limits: rec.Limits}
		if at, err := record.LastWritten(h.dir, run, eventsFile); err == nil {
			a.LastEvent = status.Time{Time: at}
		}
		if a.Confinement != confinedByNothing || !a.LastEvent.IsZero() || a.Limits != nil {
			snap.Agents = append(snap.Agents, a)
		}
	}
	for _, name := range snap.Order() {
		holders := snap.Pools[name].Holders
		for i := range holders {
			see(holders[i].Run)
			holders[i].Interactive = attended[holders[i].Run]
		}
	}
	for _, l := range snap.Lanes {
		see(l.Run)
	}
}

// seeHolds adds the orders in force to what a look found.
func (h *Home) seeHolds(snap *Snapshot) {
	orders, err := hold.List(h.dir.Holds())
	if err != nil {
		snap.Problems = append(snap.Problems, "no start is admitted: "+err.Error())
	}
	for _, p := range orders.Problems {
		snap.Problems = append(snap.Problems, p.Error())
	}
	for _, o := range orders.All {
		snap.Holds = append(snap.Holds, status.Hold{
			Scope: o.Scope, Kind: string(o.Kind), Reason: o.Reason, By: o.By, Since: status.Time{Time: o.Since}, Until: status.Time{Time: o.Until},
		})
	}
}
