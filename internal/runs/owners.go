package runs

import (
	"encoding/json"
	"path/filepath"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/proc"
)

// PassOver tells, for a walk that ends a tree, which descendants are owners in
// their own right: the recorded holder of a lease, unless it is a gate, which
// ends with its agent; of a lane; or of the dispatcher lock (S21a). With all
// below them they are passed over. The process except is none of them. The
// places are read when the first descendant is asked about: most runs leave none.
func (p Place) PassOver(except int) func(int, proc.ID) bool {
	var owners map[int]uint64
	return func(pid int, id proc.ID) bool {
		if owners == nil {
			owners = p.owners()
			delete(owners, except)
		}
		ticks, ok := owners[pid]
		return ok && (ticks == 0 || ticks == id.Ticks)
	}
}

// owners are the recorded holders by pid, with their start, 0 where that is not
// recorded. What cannot be read owns nothing.
func (p Place) owners() map[int]uint64 {
	owners := map[int]uint64{}
	slots, _ := lease.Taken(p.Leases)
	for _, h := range slots {
		if h.Workload != lease.GateWorkload {
			owners[h.Pid] = h.Ticks
		}
	}
	lanes, _, _ := lane.List(p.Home)
	for _, s := range lanes {
		if s.State == lane.Owned && s.Record.Owned() {
			owners[s.Record.Holder.Pid] = s.Record.Holder.Ticks
		}
	}
	if d, ok := p.dispatcher(); ok {
		owners[d.Pid] = d.Ticks
	}
	return owners
}

// The files that say who dispatches (C10).
const (
	dispatchLock = "dispatch.lock"
	dispatchFile = "dispatch.json"
	maxDispatch  = 64 << 10
)

// dispatcher is who holds the dispatcher lock, as the file beside it says.
func (p Place) dispatcher() (lane.Process, bool) {
	dir, err := flock.OpenDir(p.Home.Path)
	if err != nil {
		return lane.Process{}, false
	}
	_, held, err := dir.Probe(dispatchLock, nil)
	dir.Close()
	if err != nil || !held {
		return lane.Process{}, false
	}
	text, err := home.ReadFile(filepath.Join(p.Home.Path, dispatchFile), maxDispatch)
	if err != nil {
		return lane.Process{}, false
	}
	var d lane.Process
	return d, json.Unmarshal(text, &d) == nil && d.Pid > 0
}
