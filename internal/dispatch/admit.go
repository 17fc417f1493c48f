//go:build unix

package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
)

// maxStands bounds how many groups stand in line at once: each costs a ticket
// and a watch, of which the kernel gives a user 128 by default. The best rows
// stand; a group beyond stands as soon as one before it is admitted or leaves. Of
// those whom one engine account's quota holds back one is enough to see its end.
const maxStands = 48

// stand is one row's stay in line, on behalf of its group. It belongs to the
// loop but for ctx.
type stand struct {
	row    *row
	group  *group
	cancel context.CancelFunc
	asked  bool // it was told to leave
	last   lease.Waiting

	admitted time.Time // when it was let through; written before left is posted
}

// consider lets the best row of each group stand in line, as long as offers
// may be opened at all. It is called after whatever may have changed that.
func (d *Dispatcher) consider() {
	if d.leaving != nil || d.offers >= d.cfg.Starting {
		for _, g := range d.groups {
			g.leave()
		}
		return
	}
	for i, g := range d.best() {
		switch {
		case i >= maxStands:
			g.leave()
		case g.stand == nil:
			d.stand(g)
		case g.stand.row != g.ready[0]:
			g.leave() // a better row came: it stands as soon as this one has left
		}
	}
}

// best are the groups with a row that may be admitted, best row first. A group
// without one that still stands in line leaves.
func (d *Dispatcher) best() []*group {
	all := make([]*group, 0, len(d.groups))
	for key, g := range d.groups {
		switch {
		case len(g.ready) > 0:
			all = append(all, g)
		case g.stand != nil:
			g.leave()
		case d.idle(g):
			delete(d.groups, key)
		}
	}
	slices.SortFunc(all, func(a, b *group) int { return order(a.ready[0], b.ready[0]) })
	if len(all) > maxStands {
		return parkedLast(all)
	}
	return all
}

// parkedLast puts groups whose account is without capacity behind the others, all
// but one that is told so where it stands.
func parkedLast(all []*group) []*group {
	of := func(g *group) [2]string { return [2]string{g.ready[0].Placement.Engine, g.ready[0].Placement.Account} }
	watches := map[[2]string]*group{}
	for _, g := range all {
		if g.stand != nil && !g.stand.asked && g.stand.last.Class == classQuota && watches[of(g)] == nil {
			watches[of(g)] = g
		}
	}
	var first, last []*group
	for _, g := range all {
		if w := watches[of(g)]; w == nil || w == g {
			first = append(first, g)
		} else {
			last = append(last, g)
		}
	}
	return append(first, last...)
}

// classQuota is the class of reasons that are an engine account's (C13).
const classQuota = "quota"

// idle tells whether no row is of the group any more. Rows that may not be
// admitted find their group again by its key.
func (d *Dispatcher) idle(g *group) bool { return len(g.ready) == 0 && g.stand == nil }

func (g *group) leave() {
	if g.stand != nil && !g.stand.asked {
		g.stand.asked = true
		g.stand.cancel()
	}
}

// stand lets the best row of g stand in line.
func (d *Dispatcher) stand(g *group) {
	ctx, cancel := context.WithCancel(d.life)
	s := &stand{row: g.ready[0], group: g, cancel: cancel}
	g.stand = s
	r := s.row.Row // a copy: the row is the loop's
	d.asideBy(func() func() {
		l, err := d.cfg.Admit(ctx, &r, func(w lease.Waiting) {
			d.aside(func() { d.post(func() { d.standsFor(s, w) }) }) // whoever tells must not wait for us
		})
		if l != nil && !l.Taken().IsZero() {
			s.admitted = l.Taken() // not now: an order that came meanwhile is none that it went by
		} else {
			s.admitted = machine.Now()
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Warn("admission", "lane", r.Lane, "attempt", r.ID, "error", err)
			d.pause(ctx)
		}
		cancel()
		return func() { d.left(s, l) }
	})
}

// pause keeps an admission that could not be made from being made again and
// again.
func (d *Dispatcher) pause(ctx context.Context) {
	t := time.NewTimer(poll)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// left is the end of a stay in line, with a lease or without.
func (d *Dispatcher) left(s *stand, l *lease.Lease) {
	if s.group.stand == s {
		if d.rows[s.row.ID] == s.row {
			d.account(s.row, time.Now())
		}
		s.group.stand = nil
	}
	d.again = true
	if l == nil {
		return
	}
	r := s.row
	if d.leaving != nil || d.offers >= d.cfg.Starting || d.rows[r.ID] != r || r.offer != nil || r.leaving || r.why != nil {
		d.release(l)
		return
	}
	d.fds.force(len(l.Slots()))
	failpoint.Hit("admit.admitted")
	d.offer(r, l, s.admitted)
}

// release gives a lease back that is not used.
func (d *Dispatcher) release(l *lease.Lease) {
	d.aside(func() { d.released(l) })
}

func (d *Dispatcher) released(l *lease.Lease) {
	n := len(l.Slots())
	if err := l.Release(); err != nil && !errors.Is(err, lease.ErrLocksKept) {
		d.cfg.Log.Warn("release a lease", "error", err)
	}
	d.fds.give(n)
}
