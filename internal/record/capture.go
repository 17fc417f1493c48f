package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/handsel/handsel/internal/home"
)

// DefaultCap is how much of one output is kept, in bytes (E14).
const DefaultCap = 64 << 20

// tailParts is in how many files the tail is kept while the run lasts. When a
// new one is begun beyond them the oldest goes, so between 7/8 and all of the
// tail's share is there at any moment, and after a crash too.
const tailParts = 8

// Capture keeps one output of a run: its first half of the cap, and about the
// last half. It always takes what it is given, so that the agent never blocks or
// dies for the record's sake: what exceeds the cap, or what a full disk cannot
// take, is counted. It may be used by several goroutines.
type Capture struct {
	mu      sync.Mutex
	dir     *home.Folder
	name    string
	head    int64 // the head's share
	part    int64 // the share of one part of the tail
	most    int   // how many parts there may be
	file    *os.File
	first   int64 // bytes in the head
	parts   []part
	current *os.File // the last of parts, open
	next    int

	seen    int64
	dropped int64 // bytes of parts that went
	refused int64 // bytes nothing took
	err     error
	closed  bool
}

type part struct {
	name string
	size int64
}

// Kept is what became of one output.
type Kept struct {
	Seen      int64 // bytes the process wrote
	Truncated int64 // bytes of them that are not kept
	Err       error // why keeping stopped, nil if it did not
	Stopped   int64 // where, in bytes from the beginning; meant with Err only
}

// Capture begins to keep an output under a name such as "stdout". cap is in
// bytes; 0 or less is DefaultCap.
func (w *Writer) Capture(name string, cap int64) (*Capture, error) {
	if cap <= 0 {
		cap = DefaultCap
	}
	dir, err := w.home.Open(runsDir, w.date, w.id)
	if err != nil {
		return nil, fmt.Errorf("keep %s of %s: %w", name, w.id, err)
	}
	file, err := dir.Create(name)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("keep %s of %s: %w", name, w.id, err)
	}
	head := cap / 2
	most := min(tailParts, cap-head) // a part has at least one byte
	return &Capture{dir: dir, name: name, head: head, part: (cap - head) / most, most: int(most), file: file}, nil
}

// Write keeps what it can of p. It never fails.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen += int64(len(p))
	for rest := p; len(rest) > 0; {
		if c.closed || c.err != nil {
			c.refused += int64(len(rest))
			break
		}
		n, err := c.put(rest)
		rest = rest[n:]
		if err != nil {
			c.fail(err)
			c.giveBack()
		}
	}
	return len(p), nil
}

// fail remembers the first error.
func (c *Capture) fail(err error) {
	if c.err != nil {
		return
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the path is named already
	}
	c.err = &home.Unusable{Path: filepath.Join(c.dir.Path(), c.name), Err: err}
}

// reserve is what is given back of an output that filled the disk, in bytes, so
// that the record can still say how the run ended.
const reserve = 16 << 10

// giveBack takes the last bytes off again, when there are more than a few.
func (c *Capture) giveBack() {
	file, size := c.file, &c.first
	if c.current != nil {
		file, size = c.current, &c.parts[len(c.parts)-1].size
	}
	if *size <= reserve || file.Truncate(*size-reserve) != nil {
		return
	}
	*size -= reserve
	c.refused += reserve
}

// put writes to where the next byte belongs, as much as fits there.
func (c *Capture) put(p []byte) (n int, err error) {
	if room := c.head - c.first; room > 0 {
		n, err = c.file.Write(p[:min(room, int64(len(p)))])
		c.first += int64(n)
		return n, err
	}
	if c.current == nil || c.parts[len(c.parts)-1].size >= c.part {
		if err := c.turn(); err != nil {
			return 0, err
		}
	}
	last := &c.parts[len(c.parts)-1]
	n, err = c.current.Write(p[:min(c.part-last.size, int64(len(p)))])
	last.size += int64(n)
	return n, err
}

// turn begins the next part of the tail, and lets the oldest go first.
func (c *Capture) turn() error {
	if c.current != nil {
		err := c.current.Close()
		if c.current = nil; err != nil {
			return err
		}
	}
	if len(c.parts) >= c.most {
		if err := c.dir.Remove(c.parts[0].name); err != nil {
			return err
		}
		c.dropped += c.parts[0].size
		c.parts = c.parts[1:]
	}
	name := partName(c.name, c.next)
	file, err := c.dir.Create(name)
	if err != nil {
		return err
	}
	c.next++
	c.current = file
	c.parts = append(c.parts, part{name: name})
	return nil
}

// tailMark stands between an output's name and the number of a part.
const tailMark = ".tail."

func partName(output string, n int) string { return fmt.Sprintf("%s%s%010d", output, tailMark, n) }

// Kept tells what became of the output so far.
func (c *Capture) Kept() Kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Kept{Seen: c.seen, Truncated: c.dropped + c.refused, Err: c.err, Stopped: c.seen - c.refused}
}

// Close makes one file of what was kept, with a line where bytes are left out.
// What does not fit on a full disk stays in its parts; OpenOutput reads both.
// Close may be called more than once; later writes are counted only.
func (c *Capture) Close() Kept {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		if c.current != nil {
			c.current.Close()
		}
		if err := c.join(); err != nil {
			c.fail(err)
		}
		if err := c.file.Close(); err != nil {
			c.fail(err)
		}
		c.dir.Close()
	}
	c.mu.Unlock()
	return c.Kept()
}

// join appends the parts to the head, one at a time, so that a full disk or a
// crash in between leaves each byte somewhere.
func (c *Capture) join() error {
	size := c.first
	if _, err := c.file.Seek(size, io.SeekStart); err != nil {
		return err
	}
	if c.dropped > 0 {
		n, err := io.WriteString(c.file, gap(fmt.Sprint(c.dropped)))
		if err != nil {
			return errors.Join(err, c.file.Truncate(size))
		}
		size += int64(n)
	}
	for i, p := range c.parts {
		n, err := c.append(p.name)
		if err != nil {
			return errors.Join(err, c.file.Truncate(size), c.renumber(c.parts[i:]))
		}
		size += n
		if err := c.dir.Remove(p.name); err != nil {
			return err
		}
	}
	return nil
}

func (c *Capture) append(name string) (int64, error) {
	from, err := c.dir.OpenRead(name)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	return io.Copy(c.file, from)
}

// renumber gives parts that stay the numbers from 0, which says that nothing is
// missing before them.
func (c *Capture) renumber(parts []part) (err error) {
	for i, p := range parts {
		if name := partName(c.name, i); name != p.name {
			err = errors.Join(err, c.dir.Rename(p.name, name))
		}
	}
	return err
}

func gap(bytes string) string { return "\n[handsel: " + bytes + " bytes left out]\n" }

// OpenOutput reads what is kept of a run's output, "stdout" or "stderr", also
// while the run lasts or after it was killed. A run that kept none is
// fs.ErrNotExist.
func OpenOutput(d home.Dir, id, name string) (io.ReadCloser, error) {
	date, ok := dateOf(id)
	if !ok {
		return nil, fmt.Errorf("output of %q: %w", id, fs.ErrNotExist)
	}
	dir, err := d.Open(runsDir, date, id)
	if err != nil {
		return nil, fmt.Errorf("output of %s: %w", id, err)
	}
	defer dir.Close()
	out := new(output)
	if err := out.add(dir, name); err != nil {
		return nil, fmt.Errorf("output of %s: %w", id, err)
	}
	names, err := dir.Names()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("output of %s: %w", id, err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, name+tailMark) })
	slices.Sort(names)
	for i, part := range names {
		if i == 0 && part != partName(name, 0) {
			out.readers = append(out.readers, strings.NewReader(gap("some")))
		}
		if err := out.add(dir, part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			out.Close()
			return nil, fmt.Errorf("output of %s: %w", id, err)
		}
	}
	out.Reader = io.MultiReader(out.readers...)
	return out, nil
}

// output reads several files as one.
type output struct {
	io.Reader
	readers []io.Reader
	files   []*os.File
}

func (o *output) add(dir *home.Folder, name string) error {
	f, err := dir.OpenRead(name)
	if err != nil {
		return err
	}
	o.readers, o.files = append(o.readers, f), append(o.files, f)
	return nil
}

// Close closes every file.
func (o *output) Close() (err error) {
	for _, f := range o.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
