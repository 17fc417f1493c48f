package record

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/handsel/handsel/internal/home"
)

// Old is something that retention would remove.
type Old struct {
	ID    string // empty for a day's refusals
	Path  string
	Bytes int64
	Since time.Time // when it ended
	Why   string    // "age" or "size"

	date string
}

// Expired lists what is older than keepDays, and the oldest beyond keepBytes in
// all, oldest first; 0 sets no bound. Only what has ended is listed: a record
// that says otherwise, or cannot be read, stays, whatever its age. Nothing is
// removed. What waits for a verdict stays as well (P7). When ctx ends first, nothing is listed.
func Expired(ctx context.Context, d home.Dir, now time.Time, keepDays int, keepBytes int64) (old []Old, problems []Problem, err error) {
	var ended []Old
	var total int64
	err = eachDay(d, &problems, func(day *home.Folder, date string) bool {
		readAll(day, idsIn(day, &problems), func(id string, r *Run, err error) bool {
			size := sizeOf(filepath.Join(day.Path(), id))
			total += size
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				problems = append(problems, Problem{filepath.Join(day.Path(), id), err})
			case undecided(day, r): // a person is awaited
			case r.State == Ended && r.V <= Version:
				ended = append(ended, Old{ID: id, Path: filepath.Join(day.Path(), id), Bytes: size, Since: endOf(r), date: date})
			}
			return ctx.Err() == nil
		})
		if ctx.Err() != nil {
			return false
		}
		if last, err := time.Parse(time.DateOnly, date); err == nil {
			path := filepath.Join(day.Path(), refusedFile)
			if info, err := os.Lstat(path); err == nil {
				total += info.Size()
				ended = append(ended, Old{Path: path, Bytes: info.Size(), Since: last.Add(24 * time.Hour), date: date})
			}
		}
		return true
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, problems, err
	}
	slices.SortStableFunc(ended, func(a, b Old) int { return a.Since.Compare(b.Since) })
	for _, o := range ended {
		switch {
		case keepDays > 0 && now.Sub(o.Since) > time.Duration(keepDays)*24*time.Hour:
			o.Why = "age"
		case keepBytes > 0 && total > keepBytes:
			o.Why = "size"
		default:
			continue
		}
		total -= o.Bytes
		old = append(old, o)
	}
	return old, problems, err
}

// undecided tells of a run that waits for a verdict: no age ends that.
func undecided(day *home.Folder, r *Run) bool {
	if r.Review != pending {
		return false
	}
	decided, err := filepath.Glob(filepath.Join(day.Path(), r.ID, "verdict.*.json"))
	return err == nil && len(decided) == 0
}

// pending is Run.Review of a run that is to be reviewed.
const pending = "pending"

// endOf is when a run ended; one whose record does not say ended when it began.
func endOf(r *Run) time.Time {
	if !r.EndedAt.IsZero() {
		return r.EndedAt.Time
	}
	u, _ := uuid.Parse(r.ID)
	return timeOf(u)
}

// sizeOf is what all files below a run's directory come to: a confined run that
// was killed leaves its engine's state there.
func sizeOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // what cannot be read is not counted
		}
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}

// Remove deletes what Expired listed, and the day's directory when it is left
// empty. A run that is no longer as it was listed stays.
func Remove(d home.Dir, o Old) error {
	day, err := d.Open(runsDir, o.date)
	if err != nil {
		return fmt.Errorf("remove %s: %w", o.Path, err)
	}
	defer day.Close()
	if o.ID == "" {
		err = day.Remove(refusedFile)
	} else {
		err = removeRun(day, o.ID)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", o.Path, err)
	}
	if runs, err := d.Open(runsDir); err == nil {
		_ = runs.Remove(o.date) // refuses by itself while something is in it
		runs.Close()
	}
	return nil
}

// Gone tells whether nothing is left of a run.
func Gone(d home.Dir, id string) bool {
	if _, ok := dateOf(id); !ok {
		return true
	}
	_, err := os.Lstat(Dir(d, id))
	return errors.Is(err, fs.ErrNotExist)
}

// removeRun takes the record away last, so that what an interrupted removal
// leaves is still known to have ended.
func removeRun(day *home.Folder, id string) error {
	r, err := read(day, id)
	if err != nil {
		return err
	}
	if r.State != Ended || r.V > Version {
		return errors.New("it has not ended")
	}
	dir, err := day.Sub(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != runFile {
			if err := os.RemoveAll(filepath.Join(dir.Path(), name)); err != nil { // it follows no link
				return err
			}
		}
	}
	if err := dir.Remove(runFile); err != nil {
		return err
	}
	return day.Remove(id)
}
