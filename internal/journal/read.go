package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// Filter says which events are wanted. The zero Filter wants all.
type Filter struct {
	Lane       string
	Attempt    string // its whole id
	Permission string
	What       string
	Engine     string
	Since      time.Time // of this moment or later
	Until      time.Time // before this moment
}

// Wants tells whether the filter chooses an event.
func (f *Filter) Wants(e *Event) bool {
	switch {
	case f.Lane != "" && f.Lane != e.Lane, f.Attempt != "" && f.Attempt != e.Attempt,
		f.Permission != "" && f.Permission != e.Permission, f.What != "" && f.What != e.What, f.Engine != "" && f.Engine != e.Engine:
		return false
	case !f.Since.IsZero() && e.At.Before(f.Since), !f.Until.IsZero() && !e.At.Before(f.Until):
		return false
	}
	return true
}

// Problem is a line that is no event, or a file that could not be read. What
// else there is is read all the same.
type Problem struct {
	File string
	Line int // 0: the whole file
	Why  string
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Why
	}
	return fmt.Sprintf("%s, line %d: %s", p.File, p.Line, p.Why)
}

// Read tells the events of the file that the filter chooses, in the order in
// which they were written, one after the other: memory is bounded however long
// the journal is. What cannot be read is told to bad, which may be nil. A home
// without a journal has no events.
func Read(d home.Dir, f Filter, bad func(*Problem)) iter.Seq[Event] {
	if bad == nil {
		bad = func(*Problem) {}
	}
	return func(yield func(Event) bool) {
		parts, err := open(d)
		for _, p := range parts {
			defer p.Close()
		}
		if err != nil {
			bad(&Problem{File: File, Why: err.Error()})
		}
		for _, p := range parts {
			if !scan(p, baseName(p), &f, bad, yield) {
				return
			}
		}
	}
}

// open opens the parts, the oldest first. The present file is opened before the
// others are listed, so that one that is set aside meanwhile is read, and once.
func open(d home.Dir) (parts []*os.File, err error) {
	folder, err := d.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	now, err := folder.OpenRead(File)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	names, listed := folder.Names()
	names = slices.DeleteFunc(names, func(name string) bool { return !isPart(name) })
	slices.Sort(names)
	err = errors.Join(err, listed)
	for _, name := range names {
		p, bad := folder.OpenRead(name)
		switch {
		case bad != nil:
			err = errors.Join(err, bad)
		case now != nil && same(now, p):
			p.Close()
		default:
			parts = append(parts, p)
		}
	}
	if now != nil {
		parts = append(parts, now)
	}
	return parts, err
}

func same(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func baseName(f *os.File) string {
	name := f.Name()
	return name[strings.LastIndexAny(name, `/\`)+1:]
}

// scan tells the events of one file. It is false when yield has had enough.
func scan(r io.Reader, name string, f *Filter, bad func(*Problem), yield func(Event) bool) bool {
	in := bufio.NewReaderSize(r, 4*maxLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		long := false
		for errors.Is(err, bufio.ErrBufferFull) {
			long = true
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			bad(&Problem{name, n, err.Error()})
			return true
		}
		last := err != nil
		text := bytes.TrimSuffix(line, []byte("\n"))
		switch {
		case long:
			bad(&Problem{name, n, "it is too long to be an event"})
		case last && len(text) > 0:
			bad(&Problem{name, n, "it was not written to its end"})
		case len(text) > 0 && !f.skips(text):
			e, why := parse(text)
			if why != "" {
				bad(&Problem{name, n, why})
			}
			if e != nil && f.Wants(e) && !yield(*e) {
				return false
			}
		}
		if last {
			return true
		}
	}
}

// skips tells of a line, without reading it, that cannot be chosen: an id is
// written as it is.
func (f *Filter) skips(line []byte) bool {
	return f.Attempt != "" && !bytes.Contains(line, []byte(f.Attempt))
}

// parse reads a line. What was torn off before it by a full disk or a power loss
// is passed over, and said: the event behind it is whole.
func parse(line []byte) (*Event, string) {
	e := decode(line)
	if e != nil {
		return e, ""
	}
	if at := bytes.LastIndex(line, []byte(`{"v":`)); at > 0 {
		if e := decode(line[at:]); e != nil {
			return e, fmt.Sprintf("its first %d bytes are no event", at)
		}
	}
	return nil, "it is no event"
}

func decode(line []byte) *Event {
	e := new(Event)
	if json.Unmarshal(line, e) != nil || e.V < 1 || e.At.IsZero() || e.Permission == "" || e.What == "" {
		return nil
	}
	if year := e.At.UTC().Year(); year < 0 || year > 9999 {
		return nil
	}
	if year := e.Until.UTC().Year(); year < 0 || year > 9999 {
		return nil
	}
	e.At, e.Source, e.Seq = e.At.UTC(), FromFile, 0
	return e
}
