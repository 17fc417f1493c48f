package lane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
)

// suffix of a lane's file (L1).
const suffix = ".lock"

// FileName is the name of a lane's file in the directory of lanes.
func FileName(name string) string { return home.LaneFile(name) + suffix }

// Take takes a lane without waiting and writes rec into it; name, version and
// fence are the lane's. The error is *Held when somebody has it: its owner, an
// agent that outlived its supervisor, or one that cannot be looked at (S7).
func Take(d home.Dir, name string, rec Record) (*Hold, error) {
	return Wait(context.Background(), d, name, rec, 0, nil)
}

// Wait is Take that waits for the lane until the time is over or ctx ends. It
// sleeps in the kernel, at the lock or at the end of the agent that has it, and
// polls only where neither can be watched. onWait, which may be nil and must not
// block, is told who has the lane when the wait begins and when that is another.
func Wait(ctx context.Context, d home.Dir, name string, rec Record, wait time.Duration, onWait func(Seen)) (*Hold, error) {
	if err := home.ValidLane(name); err != nil {
		return nil, err
	}
	t := taking{home: d, name: name, rec: rec, onWait: onWait, began: time.Now()}
	t.until = t.began.Add(wait)
	h, err := t.take(ctx)
	var held *Held
	if err != nil && !errors.As(err, &held) {
		err = fmt.Errorf("take lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	return h, err
}

// openLanes opens the directory of lanes, which is made if need be.
func openLanes(d home.Dir) (*flock.Dir, error) {
	dir, err := flock.OpenDir(d.Lanes())
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	if err := d.Ensure(); err != nil {
		return nil, err
	}
	if err := home.EnsureDir(d.Lanes()); err != nil {
		return nil, err
	}
	return flock.OpenDir(d.Lanes())
}

// taking is one attempt to take a lane.
type taking struct {
	home         home.Dir
	name         string
	rec          Record
	onWait       func(Seen)
	began, until time.Time
	told         *Seen
}

// takeTries bounds the race against somebody who keeps replacing the file.
const takeTries = 100

func (t *taking) take(ctx context.Context) (*Hold, error) {
	for range takeTries {
		h, err := t.round(ctx)
		var held *Held
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, flock.ErrReplaced):
			continue
		case !errors.As(err, &held) || held.State == Owned:
			return nil, err
		}
		// An agent that outlived its supervisor has it. Nobody has the lock, and
		// while we wait for the agent's end we do not either: it would hide from
		// others what keeps the lane.
		if err := t.agentGone(ctx, held); err != nil {
			return nil, err
		}
	}
	return nil, flock.ErrReplaced
}

// round opens the lane's file, by a directory that is opened anew too as it may
// have been replaced as well, and makes a Hold of it.
func (t *taking) round(ctx context.Context) (*Hold, error) {
	dir, err := openLanes(t.home)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.Open(FileName(t.name), flock.Own)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, flock.ErrReplaced // the directory, since it was opened
	}
	if err != nil {
		return nil, err
	}
	failpoint.Hit("lane.opened")
	h, err := t.own(ctx, f)
	if err != nil {
		f.Close()
	}
	return h, err
}

// own makes a Hold of the open file f, or says who has the lane. On an error f is
// the caller's to close.
func (t *taking) own(ctx context.Context, f *flock.File) (*Hold, error) {
	if err := t.lock(ctx, f); err != nil {
		return nil, err
	}
	if err := f.Check(); err != nil { // S5
		return nil, err
	}
	failpoint.Hit("lane.locked")
	old, err := t.mayTake(f)
	if err != nil {
		return nil, err
	}
	h := &Hold{file: f, rec: Record{V: version, Lane: t.name}}
	if old != nil {
		h.rec.Fence = old.Fence
	}
	if err := h.SetOwner(t.rec); err != nil {
		return nil, errors.Join(err, h.undo(f))
	}
	failpoint.Hit("lane.recorded")
	return h, nil
}

// undo leaves a lane whose record could not be written as if it had never been
// taken: half a record, as on a full disk, would be one of nobody.
func (h *Hold) undo(f *flock.File) error {
	h.file = nil
	if h.rec.Fence != 0 {
		return nil // what is there may be the whole old record, with its fence
	}
	return f.Truncate(0)
}

// mayTake judges what the file says now that we have the lock (S7).
func (t *taking) mayTake(f *flock.File) (*Record, error) {
	seen := Seen{Name: t.name, File: FileName(t.name), Record: readRecord(f)}
	if err := seen.mayBeRead(); err != nil {
		return nil, err
	}
	if seen.State = seen.unlocked(findRun); seen.State != Free {
		return nil, t.held(seen)
	}
	return seen.Record, nil
}

// mayBeRead refuses a record that is another lane's or a later version's.
func (s *Seen) mayBeRead() error {
	switch r := s.Record; {
	case r == nil:
		return nil
	case r.V > version:
		return &Newer{Name: s.Name, Have: r.V, Want: version}
	case r.Lane != s.Name:
		return &Mismatch{Name: s.Name, File: s.File, Other: r.Lane}
	}
	return nil
}

func (t *taking) held(s Seen) *Held { return &Held{Seen: s, Waited: time.Since(t.began)} }

// lock takes f's lock, waiting for it as long as there is time.
func (t *taking) lock(ctx context.Context, f *flock.File) error {
	seen, err := t.tryLock(ctx, f)
	if err != nil || seen == nil {
		return err
	}
	left := time.Until(t.until)
	if left <= 0 {
		return t.held(*seen)
	}
	t.tell(*seen)
	err = f.Lock(ctx, left)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		seen.Record = readRecord(f) // it may have been handed on while we waited
		return t.held(*seen)
	}
	return err
}

// A lock that is held by nobody who is known to live may be on its way out: one
// just closed reads held for up to some 20 ms while a process with many
// descriptors forks, and whoever looks at a lane has its lock for a moment (S8).
const (
	settleTries = 25
	settleNap   = 4 * time.Millisecond // 25 of them are the 100 ms of L20
)

// tryLock takes f's lock if it is free, and says who has it if it is not: at once
// where the record names a living owner, else after looking again and again.
func (t *taking) tryLock(ctx context.Context, f *flock.File) (*Seen, error) {
	seen := Seen{Name: t.name, File: FileName(t.name), State: Owned}
	for range settleTries {
		err := f.TryLock()
		if !errors.Is(err, flock.ErrHeld) {
			return nil, err
		}
		if seen.Record = readRecord(f); seen.ownerLives() {
			return &seen, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(settleNap):
		}
		if f.Check() != nil {
			return nil, flock.ErrReplaced
		}
	}
	return &seen, nil
}

// ownerLives tells whether the record names a process that is known to live, so
// that its lock is no leftover.
func (s *Seen) ownerLives() bool {
	return s.Record.Owned() && proc.Judge(s.Record.HolderClaim()) == proc.Alive
}

func (t *taking) tell(s Seen) {
	if t.onWait == nil || t.told != nil && sameOwner(*t.told, s) {
		return
	}
	t.told = &s
	t.onWait(s)
}

func sameOwner(a, b Seen) bool { return a.State == b.State && a.Owner() == b.Owner() }

// agentGone returns when the agent that has the lane has ended, or cannot be
// told to live any more. The error is held when the time is over before.
func (t *taking) agentGone(ctx context.Context, held *Held) error {
	if time.Until(t.until) <= 0 {
		return held
	}
	t.tell(held.Seen)
	child, _ := held.Record.ChildClaim()
	untilGone(ctx, child, t.until)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case time.Until(t.until) <= 0 && proc.Judge(child) != proc.Gone:
		return t.held(held.Seen)
	}
	return nil
}

// Adopt makes a Hold of a descriptor that came from another process. It must be
// open for reading and writing, the regular file of one name that the lane's path
// is now, by device and inode, and the lock must be provably held through it: a
// lock through it succeeds, an independent open's attempt fails. "Was free and is
// ours now" is acceptable, "held by someone else" is not (L6). The record stays
// as it is. On an error the descriptor stays the caller's to close.
func Adopt(d home.Dir, name string, fd int) (*Hold, error) {
	h, err := adopt(d, name, fd)
	if err != nil {
		return nil, fmt.Errorf("adopt lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	return h, nil
}

func adopt(d home.Dir, name string, fd int) (*Hold, error) {
	if err := home.ValidLane(name); err != nil {
		return nil, err
	}
	if err := usable(fd); err != nil {
		return nil, err
	}
	dir, err := flock.OpenDir(d.Lanes())
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.Adopt(FileName(name), fd)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("lane.adopted")
	t := taking{name: name, began: time.Now()}
	rec, err := t.mayTake(f)
	if err != nil {
		return nil, err
	}
	h := &Hold{file: f, rec: Record{V: version, Lane: name}}
	if rec != nil {
		h.rec = *rec
	}
	return h, nil
}
