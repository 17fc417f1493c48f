package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// Stamp is a run's directory and when something was last made in it or removed.
// The record of a run that has ended is never replaced after that, so whoever
// looks again and again need not read it again while the stamp is the same.
type Stamp struct {
	ID      string
	Changed time.Time
}

// Stamps lists the directories of runs, newest first, of those with a record and
// without, and what was passed over. A home without runs has none.
func Stamps(d home.Dir) (stamps []Stamp, problems []Problem, err error) {
	err = eachDay(d, &problems, func(day *home.Folder, _ string) bool {
		for _, id := range idsIn(day, &problems) {
			info, err := os.Lstat(filepath.Join(day.Path(), id))
			switch {
			case err == nil:
				stamps = append(stamps, Stamp{id, info.ModTime()})
			case !errors.Is(err, fs.ErrNotExist): // removed just now
				problems = append(problems, Problem{filepath.Join(day.Path(), id), err})
			}
		}
		return true
	})
	return stamps, problems, err
}
