//go:build unix

package runs

import (
	"errors"
	"os"

	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/record"
)

func (n *now) addTickets() {
	l, err := line.Open(n.at.Waiting, false)
	if err != nil {
		n.problem(err)
		return
	}
	defer l.Close()
	names, err := l.Names()
	n.problem(err)
	place := 0
	for _, name := range names {
		t, err := l.Read(name, false)
		if errors.Is(err, line.ErrDead) {
			continue
		}
		if err != nil {
			n.problem(err)
			continue
		}
		if place++; t.Run != "" {
			n.tickets[t.Run] = ofTicket(t, place)
		}
	}
}

func ofTicket(t *line.Ticket, place int) *ticket {
	out := &ticket{place: place, waits: t.For}
	r := Run{Sources: []string{FromTicket}}
	r.V, r.ID, r.State, r.Verb, r.UID = record.Version, t.Run, record.Queued, "run", os.Geteuid()
	r.Engine, r.Workload, r.HostBoot, r.Lane = t.Engine, t.Workload, t.Boot, t.Lane
	r.Handsel = *identity(t.Owner())
	r.QueuedAt = record.At(t.Since)
	if t.Workload == lease.GateWorkload {
		r.Verb = "gate"
	}
	for _, p := range t.Pools {
		out.pools = append(out.pools, lease.Pool{Name: p.Name, Cap: p.Cap})
	}
	out.run = r
	return out
}
