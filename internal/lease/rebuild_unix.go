//go:build unix

package lease

import (
	"errors"
	"fmt"

	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/slot"
)

// Rebuild makes a lease of slots whose descriptors came from the process that
// held them until now. Each must be the slot's file, locked through this very
// descriptor (slot.Pool.Adopt); each slot's record then names this process as
// the holder and keeps everything else. There is no moment in which a third
// process could have taken one: the sender's copy holds the lock until it is
// closed, and ours from the moment it was received.
//
// On an error every descriptor stays the caller's to close, and the slots stay
// as they were or name us as their holder, which a closed lock makes free.
func Rebuild(at Places, given []Slot) (*Lease, error) {
	l := &Lease{company: true}
	for _, s := range given {
		h, err := adopt(at.Leases, s)
		if err != nil {
			return nil, err
		}
		l.slots = append(l.slots, h)
	}
	ln, err := line.Open(at.Waiting, true)
	if err != nil {
		return nil, err
	}
	l.line = ln
	return l, nil
}

func adopt(leases string, s Slot) (*slot.Hold, error) {
	p, err := slot.Open(leases, s.Pool, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	seen, err := p.Look(s.Index)
	if err != nil {
		return nil, err
	}
	rec := seen.Record()
	if rec == nil {
		return nil, fmt.Errorf("slot %s/%d says nothing of its holder", s.Pool, s.Index)
	}
	me := self()
	rec.HolderPid, rec.HolderTicks, rec.BootID, rec.PidNS = me.Pid, me.Ticks, me.Boot, me.NS
	return p.Adopt(s.Index, s.Fd, *rec)
}

// ErrEmpty reports a lease that holds nothing.
var ErrEmpty = errors.New("the lease holds no slot")

// HandOver gives the lease up to the process that received its descriptors and
// rebuilt it: our copies are closed, and records and line are left alone, since
// they are the other's now.
func (l *Lease) HandOver() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.slots) == 0 {
		return ErrEmpty
	}
	l.settle()
	for _, h := range l.slots {
		h.Keep()
	}
	l.slots = nil
	if l.line != nil {
		l.line.Close()
		l.line = nil
	}
	return nil
}
