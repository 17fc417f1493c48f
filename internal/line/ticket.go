//go:build unix

// Package line is the line in which starts wait for slots: one small file for
// each of them, and no process that keeps it.
//
// A ticket is a locked file under waiting/, written under a temporary name and
// renamed in, so that one that can be seen is whole and its owner alive; it is
// unlinked only by whoever holds its lock, so a dead waiter's ticket frees
// itself (S16). Beside each lies a FIFO that its owner holds open: a byte in it
// wakes the owner, and its hang-up tells those behind that the owner has left
// or died, with no file opened and no time spent meanwhile.
//
// Order is decided here, capacity is not: who may pass whom is judged by the
// lease room, under the lock of the whole line.
package line

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
)

const (
	lockName     = ".line"
	ticketSuffix = ".ticket"
	wakeSuffix   = ".wake"

	// secondsPerPriority is what one step of priority is worth in waiting (C5).
	secondsPerPriority = 60

	// A ticket's file is a record of fixed length, then the marks that others
	// leave on it under the line's lock.
	recordSize = 6 << 10
	marksSize  = 64
)

// Pool is one pool a ticket waits for, with the cap its owner read; 0 = none.
type Pool struct {
	Name string `json:"name"`
	Cap  int    `json:"cap"`
}

// Parked says that something other than pools holds the ticket's owner back,
// so that it blocks nobody but those who come to the same turn.
type Parked struct {
	Code  string     `json:"code"`
	Until *time.Time `json:"until,omitempty"`
	Turn  string     `json:"turn,omitempty"` // what starts one at a time, the first in line first
}

// Record is what a ticket's owner says of itself.
type Record struct {
	V        int       `json:"v"`
	Start    int64     `json:"start_boot_ns"` // arrival, CLOCK_BOOTTIME (C14)
	Priority int       `json:"priority"`
	Boot     string    `json:"boot_id"`
	Pid      int       `json:"pid"`
	Ticks    uint64    `json:"ticks"`
	NS       uint64    `json:"pid_ns"`
	Run      string    `json:"run"`
	Engine   string    `json:"engine,omitempty"`
	Workload string    `json:"workload,omitempty"`
	Pools    []Pool    `json:"pools"`
	Since    time.Time `json:"since"`
	Parked   *Parked   `json:"parked,omitempty"`
	For      []string  `json:"for,omitempty"`  // runs of our ancestors: slots that end no sooner than we do (S13)
	Deaf     bool      `json:"deaf,omitempty"` // watches nothing by itself and must be woken
	Lane     string    `json:"lane,omitempty"` // what it is parked for, where that is a lane
}

// Ticket is somebody's place in line, as it was read.
type Ticket struct {
	Name string
	Record
	Passes     int           // how often a later one was admitted past it
	Admissible time.Duration // since when (CLOCK_BOOTTIME) it has been seen admissible without acting; 0 = it is not
}

// Owner is the process that waits.
func (t *Ticket) Owner() proc.Claim {
	return proc.Claim{Pid: t.Pid, Ticks: t.Ticks, Boot: t.Boot, NS: t.NS}
}

// Stopped tells whether the owner will not act: it is stopped, or it has ended
// and its ticket only reads locked because somebody is looking at it just now.
func (t *Ticket) Stopped() bool {
	if t.NS != 0 && t.NS != machine.PidNS() {
		return false // its number means nothing here; the 250 ms rule still covers it
	}
	st, err := proc.ReadStat(t.Pid)
	if err != nil {
		return errors.Is(err, proc.ErrGone)
	}
	return t.Ticks != 0 && st.Ticks != t.Ticks || st.Stopped() || st.Zombie()
}

// Line is the open directory of tickets.
type Line struct {
	dir    *flock.Dir
	litter bool // the last listing had files that belong to no ticket
}

// Current tells whether the path still names this directory: somebody may have
// removed it by hand while we wait.
func (l *Line) Current() bool { return l.dir.Current() }

// Open opens the line's directory, with create making it, 0700. Without, the
// error is fs.ErrNotExist when nobody ever waited.
func Open(path string, create bool) (*Line, error) {
	d, err := flock.OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("line: %w", err)
		}
		d, err = flock.OpenDir(path)
	}
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	return &Line{dir: d}, nil
}

// Close closes the directory. Tickets stay.
func (l *Line) Close() { l.dir.Close() }

// Lock takes the lock of the whole line, waiting until ctx ends or patience is
// over; the file is returned also then, to name its owner. Closing the
// returned file gives it back. A process that may only read takes it too.
// flock.ErrReplaced when the file was removed meanwhile.
func (l *Line) Lock(ctx context.Context, patience time.Duration) (*flock.File, error) {
	f, err := l.dir.Pass(ctx, lockName, patience)
	if err != nil {
		return f, fmt.Errorf("line: %w", err)
	}
	return f, nil
}

// LockToLook is Lock for somebody who only looks: it creates nothing, and takes
// no lock where nobody ever waited (nil, nil).
func (l *Line) LockToLook(ctx context.Context, patience time.Duration) (*flock.File, error) {
	f, err := l.dir.Open(lockName, flock.Look)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	if err := f.Lock(ctx, patience); err != nil {
		f.Close()
		return nil, fmt.Errorf("line: %w", err)
	}
	return f, nil
}

// Changed is a mark that differs after tickets came or went.
func (l *Line) Changed() (sec, nsec int64) { return l.dir.Changed() }

// Name is the name of a ticket: names sort as the line stands, by key (start
// less a minute for each step of priority) and then by id (C5).
func Name(start time.Duration, priority int, id string) string {
	const middle = 1 << 62 // keys of high priority may lie before the boot
	key := int64(start) - int64(priority)*secondsPerPriority*int64(time.Second)
	return fmt.Sprintf("%016x.%s%s", uint64(key+middle), id, ticketSuffix)
}

// Tagged adds to a ticket's id what it waits for, so that the names alone tell
// which tickets are of one kind. The tag is a hint: it does not change when the
// ticket does.
func Tagged(id string, pools []Pool) string {
	sum := fnv.New32a()
	for _, p := range pools {
		fmt.Fprintf(sum, "%s=%d\n", p.Name, p.Cap)
	}
	return fmt.Sprintf("%s-%08x", id, sum.Sum32())
}

// Tag is the tag in a ticket's name, or "".
func Tag(name string) string {
	name = strings.TrimSuffix(name, ticketSuffix)
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		return name[i+1:]
	}
	return ""
}

// NewID is a random tie-breaker for tickets that arrive in one instant.
func NewID() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Names lists all tickets in the order of the line, dead ones included.
func (l *Line) Names() ([]string, error) {
	var names []string
	wakes, temporary := 0, 0
	err := l.dir.Names(func(name []byte) {
		switch {
		case bytes.HasSuffix(name, []byte(wakeSuffix)):
			wakes++
		case !bytes.HasSuffix(name, []byte(ticketSuffix)):
		case name[0] == '.':
			temporary++
		default:
			names = append(names, string(name))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	l.litter = temporary > 0 || wakes > len(names)
	if len(names) > 1 {
		sort.Strings(names)
	}
	return names, nil
}

// Tidy removes what the listing before showed to belong to no ticket: the
// remains of processes that were killed while they took or left their place.
// The caller holds the line's lock, so nobody is just standing up.
func (l *Line) Tidy() {
	if !l.litter {
		return
	}
	dead, err := l.Stale()
	if err != nil {
		return // they are only litter
	}
	for _, name := range dead {
		_ = l.Sweep(name)
	}
}

// ErrDead reports a ticket whose owner is gone: its lock is free, or its file
// is not there any more.
var ErrDead = errors.New("the ticket's owner is gone")

// Read reads the ticket called name. ErrDead when its lock is free; with sweep
// the dead ticket is then removed, under its own lock. A living ticket that
// cannot be read is returned with no pools: it blocks nobody.
func (l *Line) Read(name string, sweep bool) (*Ticket, error) {
	buf := texts.Get().(*[recordSize + marksSize]byte)
	defer texts.Put(buf)
	n, held, err := l.dir.Probe(name, buf[:])
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrDead
	case err != nil:
		return nil, err
	case held:
		return parse(name, buf[:max(n, 0)]), nil
	}
	if sweep {
		l.bury(name)
	}
	return nil, ErrDead
}

var texts = sync.Pool{New: func() any { return new([recordSize + marksSize]byte) }}

// bury removes a dead ticket, if it is that still.
func (l *Line) bury(name string) {
	f, err := l.dir.Open(name, flock.Look)
	if err != nil {
		return
	}
	defer f.Close()
	if f.TryLock() == nil && f.Check() == nil {
		l.remove(name)
	}
}

func (l *Line) remove(name string) {
	_ = l.dir.Unlink(wakeName(name))
	_ = l.dir.Unlink(name)
}

func wakeName(ticket string) string { return strings.TrimSuffix(ticket, ticketSuffix) + wakeSuffix }

func parse(name string, text []byte) *Ticket {
	t := &Ticket{Name: name}
	record, marks := text, []byte(nil)
	if len(text) > recordSize {
		record, marks = text[:recordSize], text[recordSize:]
	}
	if json.Unmarshal(record, &t.Record) != nil {
		t.Record = Record{}
		return t
	}
	t.Passes, t.Admissible = parseMarks(marks)
	return t
}

func formatMarks(passes int, admissible time.Duration) []byte {
	return fmt.Appendf(nil, "%-*s\n", marksSize-1, fmt.Sprintf("passes=%d admissible=%d", passes, int64(admissible)))
}

// parseMarks reads what formatMarks wrote; anything else counts as no marks.
func parseMarks(text []byte) (passes int, admissible time.Duration) {
	for word := range strings.FieldsSeq(string(text)) {
		key, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch key {
		case "passes":
			passes = int(min(n, 1<<30))
		case "admissible":
			admissible = time.Duration(n)
		}
	}
	return passes, admissible
}

// Mark writes the marks of t back to its file. The caller holds the line's
// lock. A mark that cannot be left is let go: it only makes the rule about
// passing slower to act.
func (l *Line) Mark(t *Ticket) {
	f, err := l.dir.Open(t.Name, flock.Mend)
	if err != nil {
		return
	}
	defer f.Close()
	_ = f.WriteAt(formatMarks(t.Passes, t.Admissible), recordSize)
}

// encode is rec as it stands at the head of a ticket's file.
func (rec Record) encode() ([]byte, error) {
	text, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	if len(text) >= recordSize {
		return nil, fmt.Errorf("line: a ticket for %d pools does not fit its size", len(rec.Pools))
	}
	return fmt.Appendf(nil, "%-*s\n", recordSize-1, text), nil
}
