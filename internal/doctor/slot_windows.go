package doctor

import (
	"errors"
	"io/fs"
)

// deadTickets has nothing to look at: on Windows nobody waits.
func (World) deadTickets() ([]Item, error) { return nil, nil }

// LookSlot finds no slot: on Windows nothing is counted.
func (World) LookSlot(string) (SlotState, error) { return SlotState{}, fs.ErrNotExist }

// FreeSlot finds no slot.
func (World) FreeSlot(string) error { return errors.ErrUnsupported }
