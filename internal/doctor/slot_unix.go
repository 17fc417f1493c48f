//go:build unix

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/slot"
)

// lockPatience bounds the wait for a lock of admission.
const lockPatience = 5 * time.Second

// deadTickets lists tickets and FIFOs in the line whose owners are gone.
func (w World) deadTickets() (out []Item, err error) {
	l, err := line.Open(w.Waiting, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	names, err := l.Stale()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		out = append(out, Item{Kind: KindTicket, Path: filepath.Join(w.Waiting, name), Why: "whoever stood in line with it is gone",
			do: func() error { return w.sweep(name) }})
	}
	return out, nil
}

// sweep removes one dead piece of the line, under the line's lock.
func (w World) sweep(name string) error {
	l, err := line.Open(w.Waiting, false)
	if err != nil {
		return err
	}
	defer l.Close()
	lock, err := l.Lock(context.Background(), lockPatience)
	if lock != nil {
		defer lock.Close()
	}
	if err != nil {
		return err
	}
	return l.Sweep(name)
}

// openSlot reads POOL/INDEX. A slot that has no file is fs.ErrNotExist.
func (w World) openSlot(text string) (*slot.Pool, int, error) {
	name, digits, ok := strings.Cut(text, "/")
	index, err := strconv.Atoi(digits)
	if _, odd := slot.Index(digits + ".lock"); !ok || err != nil || !odd || !engine.Valid(name) {
		return nil, 0, &BadSlot{text}
	}
	pool, err := slot.Open(w.Leases, name, false)
	return pool, index, err
}

// LookSlot says what is known of the slot called POOL/INDEX.
func (w World) LookSlot(text string) (SlotState, error) {
	pool, index, err := w.openSlot(text)
	if err != nil {
		return SlotState{}, err
	}
	defer pool.Close()
	seen, err := pool.Look(index)
	if err != nil {
		return SlotState{}, err
	}
	return stateOf(text, seen), nil
}

func stateOf(text string, seen slot.Seen) SlotState {
	s := SlotState{Slot: text, State: seen.State.String()}
	if r := seen.Record(); r != nil {
		s.Pid, s.Run = r.HolderPid, r.Run
		if r.ChildPid != nil {
			s.Child = *r.ChildPid
		}
	}
	return s
}

// FreeSlot clears the record of a slot whose agent cannot be looked at from
// here, which nobody but a person can know to be gone (S7). A slot that is
// held, or whose agent lives, is *NotFreed; a free one is no error.
func (w World) FreeSlot(text string) error {
	pool, index, err := w.openSlot(text)
	if err != nil {
		return err
	}
	defer pool.Close()
	admission, err := pool.Dir().Open(slot.AdmissionLock, flock.Pass)
	if err != nil {
		return fmt.Errorf("free slot %s: %w", text, err)
	}
	defer admission.Close()
	if err := admission.Lock(context.Background(), lockPatience); err != nil {
		return fmt.Errorf("free slot %s: %w", text, err)
	}
	seen, err := pool.Look(index)
	if err != nil {
		return err
	}
	switch s := stateOf(text, seen); seen.State {
	case slot.Free:
		return nil
	case slot.Held:
		return &NotFreed{text, fmt.Sprintf("process %d holds it", s.Pid)}
	case slot.Orphaned:
		return &NotFreed{text, fmt.Sprintf("its agent, process %d, lives; handsel cancel ends it", s.Child)}
	}
	return clearSlot(pool, index)
}

// clearSlot empties an unlocked slot's record. Closing the file after writing
// wakes those who wait for the slot.
func clearSlot(pool *slot.Pool, index int) error {
	f, err := flock.Take(pool.Dir(), strconv.Itoa(index)+".lock", flock.Mend)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(0)
}
