//go:build unix

package lease

import (
	"context"
	"time"

	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/machine"
)

// Standing is the ticket of somebody who waits for something before slots: it says
// who waits and for what, so that whoever looks knows. It wants no pool, so it
// passes nobody, holds nobody back and is admitted to nothing.
type Standing struct {
	line  *line.Line
	place *line.Place
}

// Stand puts such a ticket into the line for want, with the code of what it waits
// for and the lane, where that is one. Where the line cannot be written there is
// none; the error says why, and the wait needs none. Leave takes it out.
func Stand(ctx context.Context, at Places, want Want, code, lane string) (*Standing, error) {
	l, err := line.Open(at.Waiting, true)
	if err != nil {
		return nil, err
	}
	s := &Standing{line: l}
	lock, err := l.Lock(ctx, lockPatience)
	if lock != nil {
		defer lock.Close()
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	if want.Start == 0 {
		want.Start = machine.SinceBoot()
	}
	me := self()
	s.place, err = l.Stand(line.Name(want.Start, want.Priority, line.NewID()), line.Record{
		V: 1, Start: int64(want.Start), Priority: want.Priority, Boot: me.Boot, Pid: me.Pid, Ticks: me.Ticks, NS: me.NS,
		Run: want.Run, Engine: want.Engine, Workload: want.Workload, Since: machine.Now().UTC().Truncate(time.Millisecond),
		Pools: []line.Pool{}, Lane: lane, Parked: &line.Parked{Code: code},
	})
	if err != nil {
		l.Close()
		return nil, err
	}
	return s, nil
}

// Leave takes the ticket out of the line. It is safe for one that is nil.
func (s *Standing) Leave() {
	if s == nil {
		return
	}
	s.place.Leave()
	s.line.Close()
}
