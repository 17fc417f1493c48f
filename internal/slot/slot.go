// Package slot is one lock file that stands for one agent, and the record in
// it that outlives its holder.
//
// A slot is held while its file is locked, or while its record names a process
// that still runs; the kernel frees the lock on any crash of the holder, and
// the record keeps the place for an agent that lives on (S5 to S9). Counting
// changes nothing and wakes nobody. The package takes no admission lock: who
// counts in order to take holds the pool's admission lock and is the lease
// room's business.
package slot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/proc"
)

// State is what a look at one slot found (S7).
type State int

const (
	Free         State = iota
	Held               // locked by a living holder
	Orphaned           // unlocked, but the recorded child still runs
	Unverifiable       // unlocked, but the recorded child cannot be looked at from here
)

func (s State) String() string {
	return [...]string{"free", "held", "orphaned", "unverifiable"}[s]
}

// AdmissionLock is the name of the file in a pool's directory whose lock makes
// counting and taking one step (S10).
const AdmissionLock = ".admission"

// Seen is one slot at one look.
type Seen struct {
	Index int
	State State
	text  []byte
}

// Record is what the slot says, nil when there is nothing that can be read.
func (s Seen) Record() *Record { return Parse(s.text) }

// Blank tells whether the slot holds no text at all: its holder could not
// write one, or is about to let go.
func (s Seen) Blank() bool { return len(s.text) == 0 }

// Count is a pool at one look.
type Count struct {
	Pool   string
	Held   int    // slots that are not free
	Cap    int    // the smallest cap that a lock's holder recorded; 0 = none
	Slots  []Seen // those that are not free
	Free   int    // the lowest index that can be taken
	Doubts int    // locked slots without a readable record: look again before deciding
}

// Limit is the smallest cap in play: own (0 = none) and every holder's (S11).
func (c *Count) Limit(own int) int {
	if own == 0 || c.Cap != 0 && c.Cap < own {
		return c.Cap
	}
	return own
}

// Leaving is how many locked slots name a holder that has ended: their locks
// are on their way out, so nobody should wait or be refused for one.
func (c *Count) Leaving() int {
	n := 0
	for _, s := range c.Slots {
		if s.State != Held {
			continue
		}
		if b, ok := briefly(s.text); ok && b.holder > 0 && holderGone(b) {
			n++
		}
	}
	return n
}

// Full tells whether no slot may be taken under the cap own.
func (c *Count) Full(own int) bool {
	limit := c.Limit(own)
	return limit != 0 && c.Held >= limit
}

// Pool is an open directory of slots.
type Pool struct {
	Name string
	dir  *flock.Dir
}

// Open opens the pool called name below the leases directory. With create, a
// missing directory is made, 0700. Without, the error is fs.ErrNotExist.
func Open(leases, name string, create bool) (*Pool, error) {
	path := leases + "/" + name
	d, err := flock.OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("pool %q: %w", name, err)
		}
		d, err = flock.OpenDir(path)
	}
	if err != nil {
		return nil, fmt.Errorf("pool %q: %w", name, err)
	}
	return &Pool{Name: name, dir: d}, nil
}

// Close closes the directory. Slots taken from it stay held.
func (p *Pool) Close() { p.dir.Close() }

// Dir is the pool's directory, for its admission lock and for watching it.
func (p *Pool) Dir() *flock.Dir { return p.dir }

// Count looks at every slot on disk.
func (p *Pool) Count() (Count, error) {
	c := Count{Pool: p.Name}
	indexes, err := p.indexes()
	if err != nil {
		return c, fmt.Errorf("count pool %q: %w", p.Name, err)
	}
	c.Slots = make([]Seen, 0, len(indexes))
	taken := make([]bool, len(indexes)+1)
	buf := make([]byte, (1+len(indexes))*readSize)
	for _, i := range indexes {
		seen, err := p.look(i, &buf)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by hand between listing and looking
		}
		if err != nil {
			return c, fmt.Errorf("count pool %q: %w", p.Name, err)
		}
		if seen.State == Free {
			continue
		}
		if i < len(taken) {
			taken[i] = true
		}
		c.add(seen)
	}
	for taken[c.Free] {
		c.Free++
	}
	return c, nil
}

func (c *Count) add(s Seen) {
	c.Held++
	c.Slots = append(c.Slots, s)
	if s.State != Held {
		return // the cap of a holder that has gone is no longer in play
	}
	b, ok := briefly(s.text)
	if !ok {
		r := s.Record()
		if r == nil {
			c.Doubts++
			return
		}
		b = brief{limit: r.Cap}
	}
	if b.limit > 0 && (c.Cap == 0 || b.limit < c.Cap) {
		c.Cap = b.limit
	}
}

// indexes lists the slots that have a file: whole decimal numbers, written one
// way, followed by ".lock".
func (p *Pool) indexes() ([]int, error) {
	found := make([]int, 0, 16)
	err := p.dir.Names(func(name []byte) {
		if i, ok := index(name); ok {
			found = append(found, i)
		}
	})
	return found, err
}

// Index reads the name of a slot's file.
func Index(name string) (int, bool) { return index([]byte(name)) }

// maxIndex bounds what is taken for a slot's number.
const maxIndex = 1 << 20

func index(name []byte) (int, bool) {
	digits, ok := bytes.CutSuffix(name, []byte(".lock"))
	if !ok || len(digits) == 0 || len(digits) > 7 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	i := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		i = 10*i + int(c-'0')
	}
	return i, i <= maxIndex
}

func fileName(i int) string {
	if i < len(usualNames) {
		return usualNames[i]
	}
	return strconv.Itoa(i) + ".lock"
}

// usualNames saves making the same few names for every look.
var usualNames = func() (names [64]string) {
	for i := range names {
		names[i] = strconv.Itoa(i) + ".lock"
	}
	return names
}()

// Look probes one slot. The error is fs.ErrNotExist when it has no file.
func (p *Pool) Look(i int) (Seen, error) {
	buf := make([]byte, readSize)
	return p.look(i, &buf)
}

// look probes slot i. What it keeps of the record lies in buf, which it
// replaces by the rest of its space.
func (p *Pool) look(i int, buf *[]byte) (Seen, error) {
	seen := Seen{Index: i}
	f, err := p.dir.Open(fileName(i), flock.Look)
	if err != nil {
		return seen, err
	}
	defer f.Close()
	locked := f.TryLock()
	if locked != nil && locked != flock.ErrHeld {
		return seen, locked
	}
	seen.text = readText(f, buf)
	if locked != nil {
		seen.State = Held
		return seen, nil
	}
	if len(seen.text) > 0 {
		if child, named := seen.Record().Child(); named {
			seen.State = ofChild(proc.Judge(child))
		}
	}
	return seen, nil
}

func ofChild(v proc.Verdict) State {
	return [...]State{proc.Gone: Free, proc.Alive: Orphaned, proc.Unverifiable: Unverifiable}[v]
}

// readText returns nothing for what cannot be read: no record is a record's
// absence, never an error (S7).
func readText(f *flock.File, buf *[]byte) []byte {
	space := *buf
	if len(space) < readSize {
		space = make([]byte, readSize)
	}
	n, err := f.Read(space[:readSize])
	if err == nil && n == readSize {
		space = make([]byte, maxRecord+1)
		n, err = f.Read(space)
	}
	if err != nil {
		return nil
	}
	*buf = space[n:]
	return space[:n]
}

// readSize is one byte more than a record of ours, so that a longer one shows.
const readSize = RecordSize + 1

// Locked tells whether slot i's lock is held at this instant, without asking
// what its record says. A file that is not there is not locked.
func (p *Pool) Locked(i int) bool {
	f, err := p.dir.Open(fileName(i), flock.Look)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(f.TryLock(), flock.ErrHeld)
}

// Hold is a slot that is ours.
type Hold struct {
	Pool  string
	Index int

	file   *flock.File
	rec    Record
	marked bool // the child is wholly recorded
}

// Take takes slot i and writes rec into it. The caller holds the pool's
// admission lock and has counted the slot free. flock.ErrHeld when it is not
// free after all.
func (p *Pool) Take(i int, rec Record) (*Hold, error) {
	f, err := flock.Take(p.dir, fileName(i), flock.Own)
	if errors.Is(err, flock.ErrHeld) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("take slot %s/%d: %w", p.Name, i, err)
	}
	h := &Hold{Pool: p.Name, Index: i, file: f, rec: rec}
	if err := h.write(); err != nil {
		return nil, errors.Join(err, h.Release())
	}
	return h, nil
}

// TakeReadOnly takes slot i through a descriptor that cannot write, for a
// process that is confined to reading (S1). Its record stays empty.
func (p *Pool) TakeReadOnly(i int) (*Hold, error) {
	f, err := flock.Take(p.dir, fileName(i), flock.Look)
	if err != nil {
		return nil, err
	}
	return &Hold{Pool: p.Name, Index: i, file: f, marked: true}, nil
}

// Adopt makes a Hold of a descriptor that holds slot i's lock, received from
// the process that took it. The descriptor becomes the Hold's on success. The
// lock must be provably this descriptor's: it can be taken through it, and not
// through another open of the path.
func (p *Pool) Adopt(i int, fd int, rec Record) (*Hold, error) {
	f, err := p.dir.Adopt(fileName(i), fd)
	if err != nil {
		return nil, fmt.Errorf("adopt slot %s/%d: %w", p.Name, i, err)
	}
	h := &Hold{Pool: p.Name, Index: i, file: f, rec: rec}
	if err := h.write(); err != nil {
		f.Close()
		return nil, err
	}
	return h, nil
}

func (h *Hold) write() error {
	if h.file == nil || !h.file.Writable() {
		return nil
	}
	text, err := h.rec.encode()
	if err == nil {
		err = h.file.WriteAt(text, 0)
	}
	if err != nil {
		return fmt.Errorf("write slot %s: %w", h, err)
	}
	return nil
}

// String names the slot as people see it: heavy/3.
func (h *Hold) String() string { return h.Pool + "/" + strconv.Itoa(h.Index) }

// Fd is the descriptor that holds the lock, for passing it on.
func (h *Hold) Fd() int { return h.file.Fd() }

// Record is what the slot says now.
func (h *Hold) Record() Record { return h.rec }

// SetChild writes the child's identity into the slot. An error means that the
// slot would not keep the child's place if we died, whatever the file now
// holds (S12).
func (h *Hold) SetChild(id proc.ID) error {
	h.rec.setChild(id)
	h.marked = false
	if err := h.write(); err != nil {
		return err
	}
	h.marked = true
	return nil
}

// Marked tells whether the slot holds its child's whole identity, so that it
// would keep the child's place without the lock.
func (h *Hold) Marked() bool { return h.marked }

// Release clears the record and then closes the lock, so that a free slot
// never names a child (S8). An error says that the record stayed: it then names
// a child that is gone, or keeps the slot for one that is not. It is safe to
// call again.
func (h *Hold) Release() error {
	if h.file == nil {
		return nil
	}
	var err error
	if h.file.Writable() {
		err = h.file.Truncate(0)
	}
	h.Keep()
	return err
}

// Keep closes the lock and leaves the record: the slot reads held while the
// recorded child runs.
func (h *Hold) Keep() {
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
}
