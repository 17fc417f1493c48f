package lane

import (
	"fmt"
	"strconv"
	"time"

	"github.com/handsel/handsel/internal/flock"
)

// Regain takes a waiting lane again for whoever keeps its row, after a restart
// (L20). lanes is the open directory of lanes, which serves thousands of them.
// It looks once, and writes nothing: what the record says of the waiting lane
// still holds. The error is flock.ErrHeld when somebody has the lock, *Held when
// an agent outlived its supervisor.
func Regain(lanes *flock.Dir, name string) (*Hold, error) {
	f, err := flock.Take(lanes, FileName(name), flock.Own)
	if err != nil {
		return nil, fmt.Errorf("regain lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	t := taking{name: name, began: time.Now()}
	rec, err := t.mayTake(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("regain lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	h := &Hold{file: f, rec: Record{V: version, Lane: name}}
	if rec != nil {
		h.rec = *rec
	}
	return h, nil
}

// Agent judges the agent that the record names, whoever has the lock: a lock
// whose recorded owner is gone may be a leftover copy, and the agent lives on.
// It is Free when there is none, and else notes it in the record (S7).
func (s *Seen) Agent() State {
	if s.Record == nil {
		return Free
	}
	return s.unlocked(findRun)
}
