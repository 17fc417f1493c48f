//go:build unix

package lease

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/slot"
)

// Alone tells whether no agent, or with gates no heavy command, holds a slot
// besides those we run inside of: one that waits for what we do is nobody to
// wait for. It is one look; under the line's lock it holds until that is let go.
func Alone(at Places, gates bool) (bool, error) {
	names, err := PoolNames(at.Leases)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		p, err := slot.Open(at.Leases, name, false)
		if err != nil {
			return false, err
		}
		c, err := p.Count()
		p.Close()
		if err != nil {
			return false, err
		}
		for i := range c.Slots {
			s := &c.Slots[i]
			if rec := s.Record(); rec != nil && (rec.Workload == GateWorkload) != gates || forAncestor(s) {
				continue
			}
			return false, nil
		}
	}
	return true, nil
}

// ParkedFor lists the codes of the checks that keep living tickets of the line
// back. It is one look, which proves nothing about the next.
func ParkedFor(at Places) ([]string, error) {
	l, err := line.Open(at.Waiting, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	names, err := l.Names()
	if err != nil {
		return nil, err
	}
	var codes []string
	for _, name := range names {
		t, err := l.Read(name, false)
		if err != nil || t.Parked == nil || t.Stopped() || slices.Contains(codes, t.Parked.Code) {
			continue // it has left meanwhile, or says nothing
		}
		codes = append(codes, t.Parked.Code)
	}
	return codes, nil
}
