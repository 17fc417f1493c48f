package lane

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
)

// Problem is a file that was passed over.
type Problem struct {
	Path string
	Err  error
}

func (p Problem) Error() string { return strconv.QuoteToASCII(p.Path) + ": " + p.Err.Error() }

func (p Problem) Unwrap() error { return p.Err }

// Look looks at one lane and changes nothing. A lane that has no file is free.
func Look(d home.Dir, name string) (Seen, error) {
	if err := home.ValidLane(name); err != nil {
		return Seen{}, err
	}
	free := Seen{Name: name, File: FileName(name)}
	dir, err := flock.OpenDir(d.Lanes())
	if errors.Is(err, fs.ErrNotExist) {
		return free, nil
	}
	if err != nil {
		return free, fmt.Errorf("look at lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	defer dir.Close()
	l := looker{dir, make([]byte, maxRecord+1), findRun, settleTries}
	seen, err := l.look(free.File)
	if errors.Is(err, fs.ErrNotExist) {
		return free, nil
	}
	if err == nil && seen.Record != nil && seen.Record.Lane != name {
		err = &Mismatch{Name: name, File: free.File, Other: seen.Record.Lane}
	}
	if err != nil {
		return free, fmt.Errorf("look at lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	seen.Name = name
	return seen, nil
}

// List looks at every lane that has a file, in the order of their files' names,
// and changes nothing. No directory is no lanes.
func List(d home.Dir) ([]Seen, []Problem, error) {
	dir, err := flock.OpenDir(d.Lanes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("lanes: %w", err)
	}
	defer dir.Close()
	var files []string
	if err := dir.Names(func(name []byte) {
		if strings.HasSuffix(string(name), suffix) && name[0] != '.' {
			files = append(files, string(name))
		}
	}); err != nil {
		return nil, nil, fmt.Errorf("lanes: %w", err)
	}
	slices.Sort(files)
	all, problems := make([]Seen, 0, len(files)), []Problem(nil)
	l := looker{dir, make([]byte, maxRecord+1), finder(), settleTries}
	for _, file := range files {
		seen, err := l.look(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			problems = append(problems, Problem{filepath.Join(d.Lanes(), file), err})
		default:
			all = append(all, seen)
		}
	}
	return all, problems, nil
}

// looker looks at lanes by the directory that it has open. It is for one goroutine.
type looker struct {
	dir  *flock.Dir
	buf  []byte // maxRecord+1 bytes
	find find
	naps int // how often it may still wait for a record that is being written
}

// look probes one file. A record that is being written may read torn: a lock that
// is held with nothing to read is looked at again before that is believed (S7).
func (l *looker) look(file string) (Seen, error) {
	seen := Seen{File: file}
	for {
		n, held, err := l.dir.Probe(file, l.buf)
		if err != nil {
			return seen, err
		}
		seen.Record, seen.State = Parse(l.buf[:n]), Free
		if held {
			seen.State = Owned
		}
		if !held || seen.Record != nil || l.naps == 0 {
			break
		}
		l.naps--
		time.Sleep(settleNap)
	}
	if seen.Name, _ = home.LaneOfFile(strings.TrimSuffix(file, suffix)); seen.Record != nil && FileName(seen.Record.Lane) == file {
		seen.Name = seen.Record.Lane
	}
	if seen.State == Free {
		seen.State = seen.unlocked(l.find)
	}
	return seen, nil
}

// readRecord is what an open lane file says; what cannot be read is no record.
func readRecord(f *flock.File) *Record {
	buf := make([]byte, RecordSize+1)
	n, err := f.Read(buf)
	if err == nil && n > RecordSize { // longer than ours: all of it
		buf = make([]byte, maxRecord+1)
		n, err = f.Read(buf)
	}
	if err != nil {
		return nil
	}
	return Parse(buf[:n])
}

// unlocked judges a lane whose lock nobody has by what its record says (S7). It
// notes the agent of a supervisor that could not record it any more.
func (s *Seen) unlocked(find find) State {
	if child, named := s.Record.ChildClaim(); named {
		return [...]State{proc.Gone: Free, proc.Alive: Orphaned, proc.Unverifiable: Unverifiable}[proc.Judge(child)]
	}
	return s.findAgent(find)
}

// findAgent looks for the agent of an owner that ended between starting it and
// recording it: it carries the run's id in its environment (C022). Launchers and
// dispatchers start none, so the many lanes they have held cost no search.
func (s *Seen) findAgent(find find) State {
	r := s.Record
	if !r.Owned() || r.Run == "" || r.Role == RoleLauncher || r.Role == RoleDispatcher ||
		r.BootID != machine.BootID() || r.PidNS != machine.PidNS() ||
		!proc.Ended(r.HolderClaim()) { // it let go of the lane before it had an agent
		return Free
	}
	id, found := find(r.Run, r.Holder.Ticks)
	if !found {
		return Free
	}
	r.Child = &Process{id.Pid, id.Ticks}
	return Orphaned
}

// find looks for the oldest process of a run that was started no earlier than
// since (start ticks).
type find func(run string, since uint64) (proc.ID, bool)

// execTries is how often a search is repeated while a process shows no
// environment because it is just being executed.
const execTries = 25

// findRun reads the whole process table for one run. What it does not find is not
// there.
func findRun(run string, since uint64) (proc.ID, bool) {
	for range execTries {
		id, found, unsure := proc.FindRun(run, since)
		if found || !unsure {
			return id, found
		}
		time.Sleep(2 * time.Millisecond) // an exec takes less
	}
	return proc.ID{}, false
}

// finder reads the table once for however many runs, for those who only look: it
// may miss a process that is just being executed.
func finder() find {
	var oldest map[string]proc.ID
	return func(run string, _ uint64) (proc.ID, bool) {
		if oldest == nil {
			oldest = map[string]proc.ID{}
			all, _ := proc.FindMarked("HANDSEL_RUN") // no table to look in: nothing is known by this way
			for _, m := range all {
				if id, have := oldest[m.Value]; !have || m.Ticks < id.Ticks {
					oldest[m.Value] = m.ID()
				}
			}
		}
		id, found := oldest[run]
		return id, found
	}
}

// Removable says why a lane's file must stay, or nothing when it may go: nobody
// has the lane, and it never had a fence (L2).
func (s Seen) Removable() (why string) {
	switch {
	case s.State != Free:
		return "the lane is owned by " + s.Owner()
	case s.Record == nil:
		return ""
	case s.Record.V > version:
		return "a later version wrote its record"
	case s.Record.Fence != 0:
		return "the lane has had fence " + strconv.FormatUint(s.Record.Fence, 10)
	}
	return ""
}

// Remove removes the file of an idle lane that never had a fence, under the
// lane's own lock: a taker that has opened the file already finds that it was
// replaced, and tries again (L2, S5). The error is *InUse when it must stay; a
// file that is gone is no error.
func Remove(d home.Dir, file string) error {
	dir, err := flock.OpenDir(d.Lanes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove lane file %s: %w", file, err)
	}
	defer dir.Close()
	f, err := flock.Take(dir, file, flock.Mend)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, flock.ErrHeld):
		return &InUse{Seen: Seen{File: file, State: Owned}, Why: "somebody has its lock"}
	case err != nil:
		return fmt.Errorf("remove lane file %s: %w", file, err)
	}
	defer f.Close()
	if err := removable(f, file); err != nil {
		return err
	}
	failpoint.Hit("lane.removing")
	return f.Unlink()
}

// Clear frees a lane whose agent cannot be looked at from here, which nobody but
// a person can know to be gone (S7); name and fence stay. The error is *InUse when
// somebody has the lane, or the agent lives. A free lane is no error.
func Clear(d home.Dir, name string) error {
	if err := home.ValidLane(name); err != nil {
		return err
	}
	dir, err := flock.OpenDir(d.Lanes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("free lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	defer dir.Close()
	f, err := flock.Take(dir, FileName(name), flock.Mend)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, flock.ErrHeld):
		return &InUse{Seen: Seen{Name: name, File: FileName(name), State: Owned}, Why: "somebody has its lock"}
	case err != nil:
		return fmt.Errorf("free lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	h := &Hold{file: f, rec: Record{V: version, Lane: name}}
	if err := h.mayClear(); err != nil {
		h.Keep()
		return err
	}
	return h.Release()
}

// mayClear judges the record of a lane whose lock is ours, and notes its fence.
func (h *Hold) mayClear() error {
	seen := Seen{Name: h.rec.Lane, File: FileName(h.rec.Lane), Record: readRecord(h.file)}
	if err := seen.mayBeRead(); err != nil {
		return err
	}
	if seen.State = seen.unlocked(findRun); seen.State == Orphaned {
		return &InUse{Seen: seen, Why: "it is owned by " + seen.Owner()}
	}
	if seen.Record != nil {
		h.rec.Fence = seen.Record.Fence
	}
	return nil
}

// removable judges a file whose lock is ours.
func removable(f *flock.File, file string) error {
	seen := Seen{File: file, Record: readRecord(f)}
	seen.State = seen.unlocked(findRun)
	if seen.Record == nil && !blank(f) {
		return &InUse{Seen: seen, Why: "its record cannot be read, and it may have had a fence"}
	}
	if why := seen.Removable(); why != "" {
		return &InUse{Seen: seen, Why: why}
	}
	return nil
}

func blank(f *flock.File) bool {
	n, err := f.Read(make([]byte, 1))
	return err == nil && n == 0
}
