package review

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

// ErrTaken reports that somebody else wrote what was to be written: the number
// is theirs. Nothing was written.
var ErrTaken = errors.New("somebody else decided at the same time")

// The kinds of file.
const (
	checksFile   = "checks"
	verdictFile  = "verdict"
	releaseFile  = "release"
	releasedFile = "released"
)

// maxFile bounds a file in bytes: the most that a verdict may say, each byte of it
// escaped as JSON does, and its checks.
const maxFile = 4 << 20

func fileName(kind string, n int) string { return kind + "." + strconv.Itoa(n) + ".json" }

// numberOf is the number in a file's name, 0 for any other file.
func numberOf(name, kind string) int {
	rest, ok := strings.CutPrefix(name, kind+".")
	if !ok {
		return 0
	}
	digits, ok := strings.CutSuffix(rest, ".json")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || strconv.Itoa(n) != digits {
		return 0
	}
	return n
}

// AddChecks writes c as the next of the run.
func AddChecks(d home.Dir, h *History, c *Checked) error {
	c.V, c.N = Version, 1
	if n := len(h.Checks); n > 0 {
		c.N = h.Checks[n-1].N + 1
	}
	return add(d, c.Attempt, checksFile, c.N, c)
}

// AddVerdict writes v as the next of the run. h is the history it was given in
// view of: the error is ErrTaken when there is another verdict by now.
func AddVerdict(d home.Dir, h *History, v *Verdict) error {
	v.V, v.N = Version, 1
	if last := h.Last(); last != nil {
		v.N = last.N + 1
	}
	return add(d, v.Attempt, verdictFile, v.N, v)
}

// AddMark writes m as the next release of the run. ErrTaken as in AddVerdict.
func AddMark(d home.Dir, h *History, m *Mark) error {
	m.V, m.N = Version, 1
	if last := h.LastRelease(); last != nil {
		m.N = last.N + 1
	}
	return add(d, m.Attempt, releaseFile, m.N, m)
}

// AddEnd writes how the command of a mark ended.
func AddEnd(d home.Dir, m *Mark, e *End) error {
	e.V, e.N = Version, m.N
	return add(d, m.Attempt, releasedFile, m.N, e)
}

// add makes a file under another name, brings it to the disk, and gives it its
// own name where none has it, in one step.
func add(d home.Dir, id, kind string, n int, what any) error {
	err := put(d, id, fileName(kind, n), what)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s %d of %s: %w", kind, n, id, ErrTaken)
	case err != nil:
		return fmt.Errorf("%s %d of %s: %w", kind, n, id, err)
	}
	return nil
}

func put(d home.Dir, id, name string, what any) error {
	dir, err := home.OpenFolder(record.Dir(d, id))
	if err != nil {
		return err
	}
	defer dir.Close()
	data, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	if len(data) >= maxFile { // it could not be read again, and so nothing be decided
		return fmt.Errorf("it has %d bytes, and less than %d is the most", len(data), maxFile)
	}
	temp := "." + name + "-" + strconv.FormatUint(rand.Uint64(), 16)
	file, err := dir.Create(temp)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Remove(temp) }()
	_, err = file.Write(append(data, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := home.RenameNew(filepath.Join(dir.Path(), temp), filepath.Join(dir.Path(), name)); err != nil {
		return err
	}
	return flush(dir.Path())
}

// Load reads all that was decided about a run. What cannot be read is an error:
// nobody is to decide in view of half a history.
func Load(d home.Dir, rec *record.Run) (*History, error) {
	h := &History{Asked: rec.Review != "" && rec.Review != None}
	dir, err := home.OpenFolder(record.Dir(d, rec.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("what was decided about %s: %w", rec.ID, err)
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return nil, fmt.Errorf("what was decided about %s: %w", rec.ID, err)
	}
	if h.Checks, err = readAll[Checked](dir, names, rec.ID, checksFile); err != nil {
		return nil, err
	}
	if h.Verdicts, err = readAll[Verdict](dir, names, rec.ID, verdictFile); err != nil {
		return nil, err
	}
	marks, err := readAll[Mark](dir, names, rec.ID, releaseFile)
	if err != nil {
		return nil, err
	}
	ends, err := readAll[End](dir, names, rec.ID, releasedFile)
	if err != nil {
		return nil, err
	}
	for _, m := range marks {
		r := &Release{Mark: *m}
		if i := slices.IndexFunc(ends, func(e *End) bool { return e.N == m.N }); i >= 0 {
			r.End = ends[i]
		}
		h.Releases = append(h.Releases, r)
	}
	return h, nil
}

// readAll reads the files of one kind in the order of their numbers. One that names
// another run was put there by somebody: what it says, and what a signature in it
// is on, is of that run.
func readAll[T any](dir *home.Folder, names []string, id, kind string) (all []*T, err error) {
	var numbers []int
	for _, name := range names {
		if n := numberOf(name, kind); n != 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		name := fileName(kind, n)
		data, err := dir.ReadFile(name, maxFile)
		if err != nil {
			return nil, err
		}
		one := new(T)
		var head struct {
			V       int    `json:"v"`
			N       int    `json:"n"`
			Attempt string `json:"attempt"`
			Verdict any    `json:"verdict"` // the word of a verdict, the number of a mark
		}
		if err = json.Unmarshal(data, &head); err == nil {
			err = json.Unmarshal(data, one)
		}
		if err == nil && (head.V < 1 || head.N != n) {
			err = errors.New("it is not what its name says")
		}
		if err == nil && kind != releasedFile && head.Attempt != id {
			err = fmt.Errorf("it is of another run: %s", strconv.QuoteToASCII(head.Attempt))
		}
		if err == nil && kind == verdictFile && head.Verdict != Accepted && head.Verdict != Rejected {
			err = errors.New("it is no verdict")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strconv.QuoteToASCII(filepath.Join(dir.Path(), name)), err)
		}
		all = append(all, one)
	}
	return all, nil
}

// Of is where a run stands, for lists: what cannot be read counts as pending,
// which permits nothing.
func Of(d home.Dir, rec *record.Run) string {
	if rec.Review == "" || rec.Review == None {
		return None
	}
	h, err := Load(d, rec)
	if err != nil {
		return Pending
	}
	return h.State()
}
