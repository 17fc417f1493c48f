package handsel

import (
	"errors"
	"io/fs"
	"time"

	"github.com/handsel/handsel/internal/doctor"
	"github.com/handsel/handsel/internal/lane"
)

type (
	// Leftover is a piece that can be cleared away, and why.
	Leftover = doctor.Item

	// SlotState is what is known of one slot.
	SlotState = doctor.SlotState

	// BadSlot reports a text that names no slot.
	BadSlot = doctor.BadSlot

	// NotFreed reports a slot that must not be freed.
	NotFreed = doctor.NotFreed
)

// Leftovers lists records that have been kept long enough (older than the
// configuration says, or than older if it is not 0) and what no living process
// owns, and what could not be read. Nothing is removed: Leftover.Do does that.
func (h *Home) Leftovers(older time.Duration) ([]Leftover, []error) {
	return h.world().Leftovers(older)
}

// LookSlot says what is known of the slot called POOL/NUMBER.
func (h *Home) LookSlot(name string) (SlotState, error) {
	s, err := h.world().LookSlot(name)
	return s, slotError(name, err)
}

// FreeSlot frees a slot whose agent cannot be looked at from here (S7). Only a
// person can know that it is gone: ask one first. *NotFreed when it is held, or
// its agent lives.
func (h *Home) FreeSlot(name string) error { return slotError(name, h.world().FreeSlot(name)) }

// LaneInUse reports a lane that must not be freed: somebody has it, or its agent
// lives.
type LaneInUse = lane.InUse

// LaneState is what is known of one lane.
type LaneState struct {
	Lane  string
	State string // free, held, orphaned, unverifiable
	Pid   int
	Child int
	Run   string
}

// LookLane says what is known of a lane.
func (h *Home) LookLane(name string) (LaneState, error) {
	seen, err := lane.Look(h.dir, name)
	s := LaneState{Lane: name, State: seen.State.String()}
	if r := seen.Record; r.Owned() {
		s.Pid, s.Run = r.Holder.Pid, r.Run
		if r.Child != nil {
			s.Child = r.Child.Pid
		}
	}
	return s, err
}

// FreeLane frees a lane whose agent cannot be looked at from here (S7). Only a
// person can know that it is gone: ask one first. *LaneInUse when somebody has it,
// or its agent lives.
func (h *Home) FreeLane(name string) error { return lane.Clear(h.dir, name) }

func slotError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &NotFound{Name: name}
	}
	return err
}
