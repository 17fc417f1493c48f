package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/handsel/handsel/internal/home"
)

// Problem is a record, or a place for records, that was passed over.
type Problem struct {
	Path string
	Err  error
}

func (p Problem) Error() string { return strconv.QuoteToASCII(p.Path) + ": " + p.Err.Error() }

// Filter says which runs are wanted. The zero Filter wants all.
type Filter struct {
	Limit    int // 0: no limit
	States   []string
	Outcomes []string
	Verb     string
	Engine   string
	Labels   map[string]string // all of them must be there
	Since    time.Time         // by the time in the id
}

func (f Filter) wants(r *Run) bool {
	for key, value := range f.Labels {
		if got, ok := r.Labels[key]; !ok || got != value {
			return false
		}
	}
	return (len(f.States) == 0 || slices.Contains(f.States, r.State)) &&
		(len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, r.Outcome)) &&
		(f.Verb == "" || f.Verb == r.Verb) &&
		(f.Engine == "" || f.Engine == r.Engine)
}

// List gives the runs a filter wants, newest first, and what was passed over. A
// home without runs has none. The error is one of the home itself.
func List(d home.Dir, f Filter) (runs []*Run, problems []Problem, err error) {
	err = eachDay(d, &problems, func(day *home.Folder, date string) bool {
		if !f.Since.IsZero() && date < f.Since.UTC().Format(time.DateOnly) {
			return false
		}
		more := true
		readAll(day, since(idsIn(day, &problems), f.Since), func(id string, r *Run, err error) bool {
			switch {
			case errors.Is(err, fs.ErrNotExist): // just being created or removed
			case err != nil:
				problems = append(problems, Problem{filepath.Join(day.Path(), id), err})
			case f.wants(r):
				runs = append(runs, r)
			}
			more = f.Limit <= 0 || len(runs) < f.Limit
			return more
		})
		return more
	})
	return runs, problems, err
}

// since are those of ids, which are newest first, that are no older than a moment.
func since(ids []string, moment time.Time) []string {
	moment = moment.Truncate(time.Millisecond) // ids know no less
	older := slices.IndexFunc(ids, func(id string) bool {
		u, _ := uuid.Parse(id)
		return timeOf(u).Before(moment)
	})
	if older < 0 {
		return ids
	}
	return ids[:older]
}

// atOnce is how many records are read before the first of them is used: enough
// to give every processor work, and few enough to be read in vain.
const atOnce = 64

// readAll reads records on all processors the program has, and gives them to use
// in the order of ids, until that returns false (decision 0019).
func readAll(day *home.Folder, ids []string, use func(id string, r *Run, err error) bool) {
	var got [atOnce]struct {
		run *Run
		err error
	}
	for part := range slices.Chunk(ids, atOnce) {
		var next atomic.Int64
		var readers sync.WaitGroup
		for range min(runtime.GOMAXPROCS(0), len(part)) {
			readers.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(part); i = int(next.Add(1)) - 1 {
					got[i].run, got[i].err = read(day, part[i])
				}
			})
		}
		readers.Wait()
		for i, id := range part {
			if !use(id, got[i].run, got[i].err) {
				return
			}
		}
	}
}

// eachDay opens the days that have runs, newest first, until do returns false.
func eachDay(d home.Dir, problems *[]Problem, do func(day *home.Folder, date string) bool) error {
	runs, err := d.Open(runsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer runs.Close()
	dates, err := runs.Names()
	if err != nil {
		return err
	}
	slices.Sort(dates)
	for _, date := range slices.Backward(dates) {
		if _, err := time.Parse(time.DateOnly, date); err != nil {
			continue
		}
		day, err := runs.Sub(date)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				*problems = append(*problems, Problem{filepath.Join(runs.Path(), date), err})
			}
			continue
		}
		more := do(day, date)
		day.Close()
		if !more {
			return nil
		}
	}
	return nil
}

// idsIn are the names of a day's runs, newest first.
func idsIn(day *home.Folder, problems *[]Problem) (ids []string) {
	names, err := day.Names()
	if err != nil {
		*problems = append(*problems, Problem{day.Path(), err})
		return nil
	}
	for _, name := range names {
		if date, ok := dateOf(name); ok && date == filepath.Base(day.Path()) {
			ids = append(ids, name)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids
}

// Unrecorded lists the directories without a record that were made before a
// moment, newest first: of attempts that wait, and of launchers that died before
// their row was accepted. Only who has the rows can tell the two apart; nothing
// here removes either.
func Unrecorded(d home.Dir, before time.Time) (ids []string, problems []Problem, err error) {
	err = eachDay(d, &problems, func(day *home.Folder, _ string) bool {
		for _, id := range idsIn(day, &problems) {
			u, _ := uuid.Parse(id)
			if !timeOf(u).Before(before) {
				continue
			}
			if _, err := os.Lstat(filepath.Join(day.Path(), id, runFile)); errors.Is(err, fs.ErrNotExist) {
				ids = append(ids, id)
			}
		}
		return true
	})
	return ids, problems, err
}

// MinSuffix is how many hex digits of an id name a run at least (C4).
const MinSuffix = 6

// NotFound reports that no run is meant by a text (status 3).
type NotFound struct {
	Text string
	Why  string
}

func (e *NotFound) Error() string {
	return fmt.Sprintf("no run %s: %s", strconv.QuoteToASCII(e.Text), e.Why)
}

// Ambiguous reports that a text is the end of several ids (status 2).
type Ambiguous struct {
	Text string
	IDs  []string // newest first
}

func (e *Ambiguous) Error() string {
	return fmt.Sprintf("%s is the end of %d ids: %s", strconv.QuoteToASCII(e.Text), len(e.IDs), strings.Join(e.IDs, ", "))
}

// Find is the id that ends in the text, hyphens and case aside. *NotFound or
// *Ambiguous otherwise.
func Find(d home.Dir, text string) (string, error) {
	hex := bareID(text)
	switch {
	case strings.Trim(hex, "0123456789abcdef") != "" || len(hex) > 32:
		return "", &NotFound{text, "an id has 32 hex digits"}
	case len(hex) < MinSuffix:
		return "", &NotFound{text, fmt.Sprintf("at least %d characters of the end of its id are needed", MinSuffix)}
	}
	var found []string
	var problems []Problem
	err := eachDay(d, &problems, func(day *home.Folder, _ string) bool {
		for _, id := range idsIn(day, &problems) {
			if strings.HasSuffix(bareID(id), hex) {
				found = append(found, id)
			}
		}
		return true
	})
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", &NotFound{text, "no id ends in it"}
	case len(found) > 1:
		return "", &Ambiguous{text, found}
	}
	return found[0], nil
}

func bareID(text string) string { return strings.ReplaceAll(strings.ToLower(text), "-", "") }
