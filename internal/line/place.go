//go:build unix

package line

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/handsel/handsel/internal/flock"
	"golang.org/x/sys/unix"
)

// Place is our own ticket: its lock, and the FIFO by which we are woken.
type Place struct {
	Name string

	line *Line
	file *flock.File
	wake int // the FIFO, open for reading and writing, so that it hangs up only when we close it or die
	rec  Record
}

// Stand puts a ticket called name into the line. It is locked before it can be
// seen. The caller holds the line's lock.
func (l *Line) Stand(name string, rec Record) (*Place, error) {
	text, err := rec.encode()
	if err != nil {
		return nil, err
	}
	// The FIFO comes first: whoever sees the ticket finds it.
	wake, err := l.makeWake(wakeName(name))
	if err != nil {
		return nil, err
	}
	p := &Place{Name: name, line: l, wake: wake, rec: rec}
	if p.file, err = flock.Take(l.dir, "."+name, flock.Own); err == nil {
		err = p.file.WriteAt(append(text, formatMarks(0, 0)...), 0)
	}
	if err == nil {
		err = p.file.Rename(name)
	}
	if err != nil {
		if p.file != nil {
			_ = p.file.Unlink()
		}
		_ = l.dir.Unlink(wakeName(name))
		p.Leave()
		return nil, fmt.Errorf("stand in line: %w", err)
	}
	return p, nil
}

func (l *Line) makeWake(name string) (int, error) {
	path := l.dir.Path() + "/" + name
	if err := l.mkfifo(name); err != nil {
		return -1, &fs.PathError{Op: "make", Path: path, Err: err}
	}
	fd, err := openWake(l.dir.Fd(), name, unix.O_RDWR)
	if err != nil {
		_ = l.dir.Unlink(name)
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// openWake opens a FIFO of ours without waiting for its other end.
func openWake(dir int, name string, flags int) (int, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(fd)
		return -1, errors.Join(err, unix.EINVAL)
	}
	return fd, nil
}

// Record is what the ticket says.
func (p *Place) Record() Record { return p.rec }

// Amend rewrites what the ticket says. The caller holds the line's lock.
func (p *Place) Amend(rec Record) error {
	text, err := rec.encode()
	if err != nil {
		return err
	}
	p.rec = rec
	return p.file.WriteAt(text, 0)
}

// Acted says that the owner has just looked for itself: whether it was seen
// admissible before means nothing any more (S16). The caller holds the line's
// lock.
func (p *Place) Acted() error {
	var text [marksSize]byte
	n, err := p.file.ReadAt(text[:], recordSize)
	if err != nil {
		return err
	}
	passes, admissible := parseMarks(text[:n])
	if admissible == 0 {
		return nil
	}
	return p.file.WriteAt(formatMarks(passes, 0), recordSize)
}

// Move gives the ticket another place, keeping all else (a later verb changes
// the priority of a waiting start). The caller holds the line's lock.
func (p *Place) Move(name string, rec Record) error {
	if err := p.Amend(rec); err != nil {
		return err
	}
	dir := p.line.dir.Fd()
	if err := unix.Renameat(dir, wakeName(p.Name), dir, wakeName(name)); err != nil {
		return fmt.Errorf("move in line: %w", err)
	}
	if err := p.file.Rename(name); err != nil {
		return fmt.Errorf("move in line: %w", err)
	}
	p.Name = name
	return nil
}

// WakeFd becomes readable when somebody wants the owner to look again.
func (p *Place) WakeFd() int { return p.wake }

// Drain takes the bytes that woke us.
func (p *Place) Drain() {
	var b [64]byte
	for {
		n, err := unix.Read(p.wake, b[:])
		if n < len(b) && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Unlist takes the ticket out of the line, while those behind still sleep.
func (p *Place) Unlist() {
	if p == nil || p.file == nil {
		return
	}
	p.line.remove(p.Name)
	p.file.Close()
	p.file = nil
}

// Leave takes the ticket out of the line and lets those behind notice. The
// FIFO closes last: its hang-up is the sign that the ticket's lock is free. It
// is safe to call again.
func (p *Place) Leave() {
	p.Unlist()
	if p.wake >= 0 {
		unix.Close(p.wake)
		p.wake = -1
	}
}

// Follow opens what tells that the owner of the ticket called name has left or
// died: poll(2) reports a hang-up on it. ErrDead when it has already.
func (l *Line) Follow(name string) (int, error) {
	fd, err := openWake(l.dir.Fd(), wakeName(name), unix.O_RDONLY)
	switch {
	case errors.Is(err, unix.ENOENT):
		return -1, ErrDead
	case err != nil:
		return -1, fmt.Errorf("follow %s: %w", name, err)
	}
	return fd, nil
}

// Wake makes the owner of the ticket called name look again. One that is gone
// needs no waking.
func (l *Line) Wake(name string) {
	fd, err := openWake(l.dir.Fd(), wakeName(name), unix.O_WRONLY)
	if err != nil {
		return // no reader: the owner is gone
	}
	defer unix.Close(fd)
	_, _ = unix.Write(fd, []byte{1}) // a full FIFO is awake enough
}

// Stale lists files in the line that belong to nobody: temporary tickets and
// FIFOs whose owner is dead, for cleaning up under the line's lock.
func (l *Line) Stale() ([]string, error) {
	var loose, dead []string
	tickets := map[string]bool{}
	err := l.dir.Names(func(b []byte) {
		name := string(b)
		switch {
		case name == lockName:
		case strings.HasSuffix(name, ticketSuffix) && name[0] != '.':
			tickets[name] = true
		case strings.HasSuffix(name, ticketSuffix), strings.HasSuffix(name, wakeSuffix):
			loose = append(loose, name)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	for name := range tickets {
		if _, err := l.Read(name, false); errors.Is(err, ErrDead) {
			dead = append(dead, name)
		}
	}
	for _, name := range loose {
		if l.loose(name, tickets) {
			dead = append(dead, name)
		}
	}
	return dead, nil
}

// loose tells whether a file that is not a ticket in line has no living owner.
func (l *Line) loose(name string, tickets map[string]bool) bool {
	if strings.HasSuffix(name, wakeSuffix) {
		if tickets[strings.TrimSuffix(name, wakeSuffix)+ticketSuffix] {
			return false
		}
		fd, err := openWake(l.dir.Fd(), name, unix.O_WRONLY)
		if err == nil {
			unix.Close(fd)
		}
		return errors.Is(err, unix.ENXIO) // nobody has it open
	}
	f, err := l.dir.Open(name, flock.Look)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.TryLock() == nil
}

// Sweep removes one of the files that Stale named, if it still belongs to
// nobody. The caller holds the line's lock.
func (l *Line) Sweep(name string) error {
	if strings.HasSuffix(name, ticketSuffix) && name[0] != '.' {
		_, err := l.Read(name, true)
		if errors.Is(err, ErrDead) {
			return nil
		}
		return err
	}
	if !l.loose(name, nil) {
		return nil
	}
	return l.dir.Unlink(name)
}
