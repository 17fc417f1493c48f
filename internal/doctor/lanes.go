package doctor

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
)

// idleLanes lists the files of lanes that may go: nobody has them, and they never
// had a fence (L2). There is one for every name that was ever used, and nothing is
// wrong with that. Each is judged once more under its own lock.
func (w World) idleLanes() (out []Item, problems []error) {
	if err := w.Home.Check(); err != nil {
		return nil, nil
	}
	all, bad, err := lane.List(w.Home)
	if err != nil {
		return nil, []error{err}
	}
	for _, p := range bad {
		problems = append(problems, p)
	}
	for _, s := range all {
		if s.Removable() != "" {
			continue
		}
		path := filepath.Join(w.Home.Lanes(), s.File)
		out = append(out, Item{Kind: KindLane, Path: path, Bytes: lane.RecordSize, Why: "nobody has this lane, and it never had a fence",
			do: func() error { return lane.Remove(w.Home, s.File) }})
	}
	return out, problems
}

// staleEntries lists the entries of lanes that nobody has, when the dispatcher
// has the lane of everything that waits: no row stands behind such an entry, so it
// counts as absent (L16). Without a dispatcher nobody can know, and recovery will.
func (w World) staleEntries() (out []Item, problems []error) {
	if w.Dispatching == nil || w.Home.Check() != nil {
		return nil, nil
	}
	entries, bad, err := attempt.Entries(w.Home)
	if err != nil {
		return nil, []error{err}
	}
	for _, p := range bad {
		problems = append(problems, p)
	}
	if len(entries) == 0 || !w.Dispatching() {
		return nil, problems
	}
	for _, e := range entries {
		seen, err := lane.Look(w.Home, e.Lane)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if seen.State == lane.Free {
			out = append(out, Item{Kind: KindEntry, ID: e.Attempt, Path: filepath.Join(w.Home.Queue(), home.LaneFile(e.Lane)+".json"),
				Why: "nobody has its lane, so it waits for nothing", do: func() error { return w.dropEntry(e.Lane, e.Attempt) }})
		}
	}
	return out, problems
}

// dropEntry removes an entry under the lock of its lane, whose record it leaves
// as it is.
func (w World) dropEntry(name, id string) error {
	dir, err := flock.OpenDir(w.Home.Lanes())
	if err != nil {
		return err
	}
	defer dir.Close()
	h, err := lane.Regain(dir, name)
	if errors.Is(err, flock.ErrHeld) || errors.As(err, new(*lane.Held)) {
		return &lane.InUse{Seen: lane.Seen{Name: name, File: lane.FileName(name)}, Why: "somebody has the lane"}
	}
	if err != nil {
		return err
	}
	defer h.Keep()
	e, err := attempt.ReadEntry(w.Home, name)
	if err != nil {
		return err
	}
	if e.Attempt != id {
		return fmt.Errorf("the entry of lane file %s is another attempt's by now", lane.FileName(name))
	}
	return attempt.RemoveEntry(w.Home, name)
}
