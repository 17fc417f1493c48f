package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/key"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/record"
)

// The kinds of what is left over.
const (
	KindRun     = "run"         // a record that has been kept long enough
	KindRefused = "refusals"    // the same of a day's refusals
	KindLost    = "lost_run"    // a record to be closed, not removed
	KindTicket  = "dead_ticket" // or a FIFO of one
	KindTemp    = "temp_file"
	KindEmpty   = "empty_directory"
	KindEntry   = "stale_entry"
	KindKey     = "idle_key"  // the key of a submission whose run is gone
	KindLane    = "idle_lane" // the file of a lane that nobody has, and that never had a fence
)

// Item is one piece that is left over.
type Item struct {
	Kind  string `json:"kind"`
	ID    string `json:"run,omitempty"`
	Path  string `json:"path,omitempty"`
	Bytes int64  `json:"bytes"`
	Why   string `json:"why"`
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`

	do func() error
}

func (i Item) verb() string {
	if i.Kind == KindLost {
		return "closes it"
	}
	return "removes it"
}

// Do removes or closes the piece, if it still is what it was found to be. One
// that came into use meanwhile is left alone: neither done nor an error.
func (i *Item) Do() {
	err := i.do()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // somebody was faster
	}
	if again, ok := errors.AsType[*lane.InUse](err); ok {
		i.Why = "it is in use again: " + again.Why
		return
	}
	if i.Done = err == nil; err != nil {
		i.Error = err.Error()
	}
}

// Leftovers lists what can go, and why: records that have been kept as long as
// the configuration says (older, if it is not 0, says so instead), and what no
// living process owns. Nothing is removed.
func (w World) Leftovers(older time.Duration) ([]Item, []error) {
	expired, problems := w.expired(older)
	stale, more := w.stale()
	entries, ofEntries := w.staleEntries()
	idle, ofLanes := w.idleLanes()
	keys, ofKeys := w.idleKeys()
	return slices.Concat(expired, stale, entries, idle, keys), slices.Concat(problems, more, ofEntries, ofLanes, ofKeys)
}

// idleKeys lists the keys of submissions whose runs are gone.
func (w World) idleKeys() (out []Item, problems []error) {
	if err := w.Home.Check(); err != nil {
		return nil, nil // as in stale
	}
	idle, err := key.Idle(w.Home, w.Now, func(id string) bool { return record.Gone(w.Home, id) })
	if err != nil {
		problems = append(problems, err)
	}
	for _, k := range idle {
		out = append(out, Item{Kind: KindKey, ID: k.ID, Path: k.Path, Bytes: k.Bytes, Why: "the run it stands for has no record any more", do: func() error {
			return key.Remove(context.Background(), w.Home, k, w.Now)
		}})
	}
	return out, problems
}

func (w World) expired(older time.Duration) (out []Item, problems []error) {
	now, days, bytes := w.Now, w.Settings.KeepDays, w.Settings.KeepBytes
	if older > 0 {
		// Expired counts in days: asking on another day gives any span.
		now, days, bytes = w.Now.Add(24*time.Hour-older), 1, 0
	}
	old, bad, err := record.Expired(context.Background(), w.Home, now, days, bytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, err)
	}
	for _, p := range bad {
		problems = append(problems, p)
	}
	for _, o := range old {
		item := Item{Kind: KindRun, ID: o.ID, Path: o.Path, Bytes: o.Bytes, Why: w.whyOld(o, older), do: func() error { return record.Remove(w.Home, o) }}
		if o.ID == "" {
			item.Kind = KindRefused
		}
		out = append(out, item)
	}
	return out, problems
}

func (w World) whyOld(o record.Old, older time.Duration) string {
	ended := "ended " + o.Since.UTC().Format("2006-01-02 15:04:05Z")
	switch {
	case o.Why == "size":
		return fmt.Sprintf("%s; all records together exceed runs.keep_bytes (%d)", ended, w.Settings.KeepBytes)
	case older > 0:
		return fmt.Sprintf("%s, more than %s ago", ended, older)
	}
	return fmt.Sprintf("%s, more than runs.keep_days (%d) ago", ended, w.Settings.KeepDays)
}

// stale lists what no living process owns.
func (w World) stale() (out []Item, problems []error) {
	if err := w.Home.Check(); err != nil {
		return nil, nil // no home, or one that is not ours: nothing in it is ours to judge
	}
	if w.Lost != nil {
		lost, err := w.Lost()
		if err != nil {
			problems = append(problems, err)
		}
		for _, l := range lost {
			out = append(out, Item{Kind: KindLost, ID: l.ID, Why: l.Text, do: l.Close})
		}
	}
	tickets, err := w.deadTickets()
	if err != nil {
		problems = append(problems, err)
	}
	out = append(out, tickets...)
	return append(out, w.unfinished()...), problems
}

// unfinishedAge is how old a temporary file or an empty directory must be to
// be nobody's: writing one takes milliseconds.
const unfinishedAge = time.Hour

// unfinished lists what a writer that was killed has left.
func (w World) unfinished() (out []Item) {
	out = append(out, w.temps(w.Home.Path)...)
	out = append(out, w.temps(w.Home.Holds())...)
	for _, date := range subdirectories(w.Home.Runs()) {
		if _, err := time.Parse(time.DateOnly, date); err != nil {
			continue
		}
		day := filepath.Join(w.Home.Runs(), date)
		runs := subdirectories(day)
		for _, id := range runs {
			dir := filepath.Join(day, id)
			out = append(out, w.temps(dir)...)
			out = append(out, w.emptied(dir)...)
		}
		if len(runs) == 0 {
			out = append(out, w.emptied(day)...)
		}
	}
	return out
}

// temps lists files of ours that were being written when their writer ended.
func (w World) temps(dir string) (out []Item) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(e.Name(), ".tmp-") || w.Now.Sub(info.ModTime()) < unfinishedAge {
			continue
		}
		out = append(out, Item{Kind: KindTemp, Path: filepath.Join(dir, e.Name()), Bytes: info.Size(),
			Why: "half-written, and not touched for " + rough(w.Now.Sub(info.ModTime())),
			do:  func() error { return removeIn(dir, e.Name()) }})
	}
	return out
}

// emptied lists dir if nothing is in it and nobody is about to fill it.
func (w World) emptied(dir string) []Item {
	entries, err := os.ReadDir(dir)
	info, serr := os.Lstat(dir)
	if err != nil || serr != nil || len(entries) > 0 || w.Now.Sub(info.ModTime()) < unfinishedAge {
		return nil
	}
	return []Item{{Kind: KindEmpty, Path: dir, Why: "nothing was ever written into it, or nothing is left in it", do: func() error {
		return removeIn(filepath.Dir(dir), filepath.Base(dir)) // refuses by itself while something is in it
	}}}
}

func removeIn(dir, name string) error {
	folder, err := home.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Remove(name)
}

func subdirectories(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// rough is a span in its largest unit.
func rough(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d/(24*time.Hour))) + " days"
	case d >= 2*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " hours"
	}
	return strconv.Itoa(int(d/time.Minute)) + " minutes"
}

// BadSlot reports a text that names no slot.
type BadSlot struct{ Text string }

func (e *BadSlot) Error() string {
	return strconv.QuoteToASCII(e.Text) + " names no slot: give POOL/NUMBER, such as heavy/3"
}

// NotFreed reports a slot that must not be freed: somebody alive has it.
type NotFreed struct{ Slot, Why string }

func (e *NotFreed) Error() string { return fmt.Sprintf("slot %s is not freed: %s", e.Slot, e.Why) }

// SlotState is what is known of one slot.
type SlotState struct {
	Slot  string
	State string // free, held, orphaned, unverifiable
	Pid   int
	Child int
	Run   string
}
