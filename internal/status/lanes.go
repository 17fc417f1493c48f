package status

import (
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
)

// Held is the state of a lane whose owner lives; the others are those of slots.
const Held = "held"

// Lane is one named seat of work that somebody has. Who it is says the kernel
// first, and then the record (L3).
type Lane struct {
	Name    string `json:"name"`           // empty where nobody has written it down and the file's name is shortened
	File    string `json:"file"`           // in the home's directory of lanes
	State   string `json:"state"`          // held, orphaned or unverifiable
	Role    string `json:"role,omitempty"` // run, launcher, dispatcher or driver
	Attempt string `json:"attempt,omitempty"`
	Run     string `json:"run,omitempty"`
	Owner   int    `json:"owner_pid,omitempty"`
	Child   int    `json:"child_pid,omitempty"`
	Argv0   string `json:"argv0,omitempty"`
	Fence   uint64 `json:"fence,omitempty"` // of the last grant
	Since   Time   `json:"since"`
}

// Waits tells whether the lane is kept for work that has not been claimed.
func (l Lane) Waits() bool {
	return l.State == Held && (l.Role == lane.RoleLauncher || l.Role == lane.RoleDispatcher)
}

// seeLanes adds the lanes that are not free.
func (s *Snapshot) seeLanes() {
	all, problems, err := lane.List(home.Dir{Path: s.Root, From: s.RootFrom})
	if err != nil {
		s.problem("%v", err)
		return
	}
	for _, p := range problems {
		s.problem("%v", p)
	}
	if len(all) > 0 {
		s.Sources = append(s.Sources, "lane locks and records")
	}
	for _, seen := range all {
		if seen.State != lane.Free {
			s.Lanes = append(s.Lanes, laneOf(seen))
		}
	}
}

func laneOf(seen lane.Seen) Lane {
	l := Lane{Name: seen.Name, File: seen.File, State: Held}
	if seen.State != lane.Owned {
		l.State = seen.State.String()
	}
	r := seen.Record
	if r == nil {
		return l
	}
	l.Role, l.Attempt, l.Run, l.Argv0, l.Fence, l.Since = r.Role, r.Attempt, r.Run, r.Argv0, r.Fence, Time{r.SinceTime()}
	if r.Holder != nil {
		l.Owner = r.Holder.Pid
	}
	if r.Child != nil {
		l.Child = r.Child.Pid
	}
	return l
}
