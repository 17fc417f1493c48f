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
	"slices"
	"strconv"

	"github.com/handsel/handsel/internal/failpoint"
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
	said  fields  // what text says
	odd   *Record // the same, where scan gave up
	good  bool    // it says something
	stale bool    // a record that stands for nobody any more
}

// Record is what the slot says, nil when there is nothing that can be read.
func (s *Seen) Record() *Record {
	if !s.good || s.odd != nil {
		return s.odd
	}
	return s.said.record(s.text)
}

// Process is the agent that the slot says it is held for or, before there is
// one (agent is false), its holder; ok is false when there is nothing that can
// be read. It is Record for those who first look whether the number concerns
// them.
func (s *Seen) Process() (pid int, agent, ok bool) {
	if s.good && s.said.hasChild {
		return s.said.child, true, true
	}
	return s.said.holder, false, s.good
}

// Blank tells whether the slot holds no text at all: its holder could not
// write one, or is about to let go.
func (s *Seen) Blank() bool { return len(s.text) == 0 }

// Count is a pool at one look.
type Count struct {
	Pool   string
	Held   int    // slots that are not free
	Cap    int    // the smallest cap that a lock's holder recorded; 0 = none
	Slots  []Seen // those that are not free
	Free   int    // the lowest index that can be taken
	Doubts int    // locked slots without a readable record: look again before deciding
	Stale  []int  // free slots with a record that stands for nobody: Wipe spares the next count a search

	space   []byte // what Slots' texts lie in
	last    []Seen // of the count before, with their space: much is read again and again
	before  []byte
	indexes []int
	taken   []bool
}

// Limit is the smallest cap in play: own (0 = none) and every holder's (S11).
func (c *Count) Limit(own int) int {
	if own == 0 || c.Cap != 0 && c.Cap < own {
		return c.Cap
	}
	return own
}

// Doubtful tells whether a pool that is full under the cap own may turn out not
// to be: because of locked slots without a readable record, or of locks whose
// recorded holder has ended, which are on their way out. Neither they nor their
// caps may be the reason for a wait or a refusal before the look was repeated.
func (c *Count) Doubtful(own int) bool {
	held, limit, unsure := 0, own, false
	for i := range c.Slots {
		s := &c.Slots[i]
		switch {
		case s.State != Held:
			held++
		case !s.good || s.holderGone():
			unsure = true
		default:
			held++
			if s.said.limit > 0 && (limit == 0 || s.said.limit < limit) {
				limit = s.said.limit
			}
		}
	}
	return unsure && (limit == 0 || held < limit)
}

// Strictest is the holder that recorded the smallest cap, 0 when there is none.
func (c *Count) Strictest() int {
	for i := range c.Slots {
		if s := &c.Slots[i]; s.State == Held && s.good && c.Cap != 0 && s.said.limit == c.Cap {
			return s.said.holder
		}
	}
	return 0
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
	var c Count
	err := p.CountInto(&c)
	return c, err
}

// CountInto is Count that uses the space of an earlier count again, whose Slots
// are gone then: an admission makes no garbage by looking.
func (p *Pool) CountInto(c *Count) error {
	*c = Count{
		Pool: p.Name, Slots: c.last[:0], space: c.before[:0], last: c.Slots, before: c.space,
		indexes: c.indexes[:0], taken: c.taken[:0],
	}
	if err := p.list(c); err != nil {
		return fmt.Errorf("count pool %q: %w", p.Name, err)
	}
	for range len(c.indexes) + 1 {
		c.taken = append(c.taken, false)
	}
	for _, i := range c.indexes {
		c.Slots = append(c.Slots, Seen{Index: i})
		seen := &c.Slots[len(c.Slots)-1]
		var last *Seen
		if n := len(c.Slots); n <= len(c.last) {
			last = &c.last[n-1]
		}
		err := p.look(seen, last, &c.space)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("count pool %q: %w", p.Name, err)
		}
		if err != nil || seen.State == Free { // or removed by hand between listing and looking
			if seen.stale {
				c.Stale = append(c.Stale, i)
			}
			c.Slots = c.Slots[:len(c.Slots)-1]
			continue
		}
		if i < len(c.taken) {
			c.taken[i] = true
		}
		c.add(seen)
	}
	for c.taken[c.Free] {
		c.Free++
	}
	return nil
}

func (c *Count) add(s *Seen) {
	c.Held++
	if s.State != Held {
		return // the cap of a holder that has gone is no longer in play
	}
	switch limit := s.said.limit; {
	case !s.good:
		c.Doubts++
	case limit > 0 && (c.Cap == 0 || limit < c.Cap):
		c.Cap = limit
	}
}

// read makes out what the slot's text says. last is an earlier look, of any
// slot: the same text says the same.
func (s *Seen) read(last *Seen) {
	if len(s.text) == 0 {
		return
	}
	if last != nil && last.good && last.odd == nil && bytes.Equal(s.text, last.text) {
		s.said, s.good = last.said, true
		return
	}
	if s.said, s.good = scan(s.text); s.good {
		return
	}
	s.said = fields{}
	if s.odd = parseAny(s.text); s.odd == nil || len(s.text) > maxRecord {
		s.odd = nil
		return
	}
	s.good = true
	s.said = fields{limit: s.odd.Cap, holder: s.odd.HolderPid, ns: s.odd.PidNS}
	if s.odd.ChildPid != nil {
		s.said.child, s.said.hasChild = *s.odd.ChildPid, true
	}
}

// claim is what the record says of the agent.
func (s *Seen) claim() (proc.Claim, bool) {
	if s.odd != nil {
		return s.odd.Child()
	}
	return s.said.claim(s.text)
}

// list notes the slots that have a file: whole decimal numbers, written one
// way, followed by ".lock".
func (p *Pool) list(c *Count) error {
	return p.dir.Names(func(name []byte) {
		if i, ok := index(name); ok {
			c.indexes = append(c.indexes, i)
		}
	})
}

// Indexes lists the slots that have a file, in no order.
func (p *Pool) Indexes() ([]int, error) {
	var c Count
	err := p.list(&c)
	return c.indexes, err
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

// FileName is the name of slot i in its pool's directory.
func FileName(i int) string {
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
	var space []byte
	seen := Seen{Index: i}
	err := p.look(&seen, nil, &space)
	return seen, err
}

// look probes the slot of seen's index. What it keeps of the record is appended
// to space.
func (p *Pool) look(seen, last *Seen, space *[]byte) error {
	at := len(*space)
	*space = slices.Grow(*space, readSize)
	name, text := FileName(seen.Index), (*space)[at:at+readSize]
	n, held, err := p.dir.Probe(name, text)
	if n == readSize { // longer than a record of ours: read again, all of it
		text = make([]byte, maxRecord+1)
		n, held, err = p.dir.Probe(name, text)
	} else {
		*space = (*space)[:at+max(n, 0)]
	}
	if err != nil {
		return err
	}
	seen.text = text[:max(n, 0)] // no record is a record's absence, never an error (S7)
	seen.read(last)
	if held {
		seen.State = Held
	} else if child, named := seen.claim(); named {
		seen.State = ofChild(proc.Judge(child))
	} else {
		seen.findAgent()
	}
	return nil
}

func ofChild(v proc.Verdict) State {
	return [...]State{proc.Gone: Free, proc.Alive: Orphaned, proc.Unverifiable: Unverifiable}[v]
}

// readSize is one byte more than a record of ours, so that a longer one shows.
const readSize = RecordSize + 1

// Locked tells whether slot i's lock is held at this instant, without asking
// what its record says. A file that is not there is not locked.
func (p *Pool) Locked(i int) bool {
	_, held, err := p.dir.Probe(FileName(i), nil)
	return err == nil && held
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
	f, err := flock.Take(p.dir, FileName(i), flock.Own)
	if errors.Is(err, flock.ErrHeld) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("take slot %s/%d: %w", p.Name, i, err)
	}
	failpoint.Hit("slot.locked")
	h := &Hold{Pool: p.Name, Index: i, file: f, rec: rec}
	if err := h.write(); err != nil {
		return nil, errors.Join(err, h.Release())
	}
	return h, nil
}

// TakeReadOnly takes slot i through a descriptor that cannot write, for a
// process that is confined to reading (S1). Its record stays empty.
func (p *Pool) TakeReadOnly(i int) (*Hold, error) {
	f, err := flock.Take(p.dir, FileName(i), flock.Look)
	if err != nil {
		return nil, err
	}
	return &Hold{Pool: p.Name, Index: i, file: f}, nil
}

// Adopt makes a Hold of a descriptor that holds slot i's lock, received from
// the process that took it. The descriptor becomes the Hold's on success. The
// lock must be provably this descriptor's: it can be taken through it, and not
// through another open of the path.
func (p *Pool) Adopt(i int, fd int, rec Record) (*Hold, error) {
	f, err := p.dir.Adopt(FileName(i), fd)
	if err != nil {
		return nil, fmt.Errorf("adopt slot %s/%d: %w", p.Name, i, err)
	}
	h := &Hold{Pool: p.Name, Index: i, file: f, rec: rec, marked: rec.ChildPid != nil && rec.ChildStarted != nil}
	if err := h.write(); err != nil {
		return nil, err // the descriptor is still the caller's to close
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
	h.marked = h.file != nil && h.file.Writable()
	return nil
}

// Marked tells whether the slot holds its child's whole identity, so that it
// would keep the child's place without the lock. One that could not be written
// never does.
func (h *Hold) Marked() bool { return h.marked }

// Release clears the record and then closes the lock, so that a free slot
// never names a child (S8). An error says that the record stayed: it then names
// a child that is gone, or keeps the slot for one that is not. It is safe to
// call again.
func (h *Hold) Release() error {
	err := h.Clear()
	h.Keep()
	return err
}

// Clear is the first half of Release: whoever looks now sees that the slot is
// about to change, and looks again. Keep is the other half.
func (h *Hold) Clear() error {
	if h.file == nil || !h.file.Writable() {
		return nil
	}
	err := h.file.Truncate(0)
	failpoint.Hit("slot.cleared")
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
