package slot

import (
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
)

// A holder that is killed between starting its agent and recording it leaves a
// free lock, a record that names a run and no child, and an agent that nobody
// counts. The agent carries the run's id in its environment, so whoever counts
// finds it there (C022).

// execTries is how often the search is repeated while a process shows no
// environment because it is just being executed.
const execTries = 25

// findAgent looks for the agent of a slot whose holder ended before recording
// it, and puts it into what the slot says. Without one, the record is stale.
func (s *Seen) findAgent() {
	if !s.good || s.said.hasChild {
		return
	}
	rec := s.Record()
	if rec.Run == "" || rec.BootID != machine.BootID() || rec.PidNS != machine.PidNS() {
		return // of another implementation, boot or namespace: what S7 says stands
	}
	if !proc.Ended(rec.Holder()) {
		return // it let go of the slot before it had an agent
	}
	for range execTries {
		id, found, unsure := proc.FindRun(rec.Run, rec.HolderTicks)
		if found {
			rec.setChild(id)
			s.odd, s.State = rec, Orphaned
			s.said.child, s.said.hasChild = id.Pid, true
			return
		}
		if !unsure {
			s.stale = true
			return
		}
		time.Sleep(2 * time.Millisecond) // an exec takes less
	}
}

// Wipe clears the record of a free slot that Count found stale. The caller
// holds the pool's admission lock. A slot that cannot be wiped costs the next
// count a search, and no more.
func (p *Pool) Wipe(i int) {
	f, err := flock.Take(p.dir, FileName(i), flock.Mend)
	if err != nil {
		return
	}
	defer f.Close()
	_ = f.Truncate(0)
}
