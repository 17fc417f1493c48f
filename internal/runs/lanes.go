package runs

import (
	"os"

	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// lanes are those that a run owns, living or orphaned, by the run. A lane in which
// an attempt only waits is no run's yet.
func (n *now) lanes() map[string]*lane.Seen {
	if n.owned == nil {
		n.owned = map[string]*lane.Seen{}
		all, problems, err := lane.List(n.at.Home)
		n.problem(err)
		for _, p := range problems {
			n.problem(p)
		}
		for i := range all {
			if s := &all[i]; s.State != lane.Free && s.Record.Owned() && s.Record.Run != "" && !waits(s.Record) {
				n.owned[s.Record.Run] = s
			}
		}
	}
	return n.owned
}

// waits tells whether a lane is kept for an attempt that has not been claimed.
func waits(r *lane.Record) bool { return r.Role == lane.RoleLauncher || r.Role == lane.RoleDispatcher }

// laneChild is the agent that a run's lane names: it is known from there when the
// run's record was last written before there was one.
func (n *now) laneChild(r *Run) (proc.Claim, bool) {
	if r.Lane == "" {
		return proc.Claim{}, false
	}
	s, err := lane.Look(n.at.Home, r.Lane)
	if err != nil || s.State == lane.Free || !s.Record.Owned() || s.Record.Run != r.ID {
		return proc.Claim{}, false
	}
	return s.Record.ChildClaim()
}

// ofLane is what a lane says of the run that owns it.
func ofLane(id string, s *lane.Seen) Run {
	rec := s.Record
	r := Run{Sources: []string{FromLane}, Orphaned: s.State == lane.Orphaned, Unverifiable: s.State == lane.Unverifiable}
	r.V, r.ID, r.State, r.Verb, r.UID = record.Version, id, record.Starting, "run", os.Geteuid()
	r.Lane, r.Argv0, r.HostBoot = s.Name, rec.Argv0, rec.BootID
	r.Handsel = *identity(rec.HolderClaim())
	r.QueuedAt = record.At(rec.SinceTime())
	r.Fence, r.Enqueued = rec.Fence, rec.Attempt != ""
	if child, named := rec.ChildClaim(); named {
		r.Child, r.State = identity(child), record.Running
	}
	return r
}
