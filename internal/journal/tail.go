package journal

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/handsel/handsel/internal/home"
)

// Tail reads what is added to the journal from a moment on. It is for one
// goroutine at a time.
type Tail struct {
	home home.Dir
	file *os.File // nil: there is none yet
	off  int64
	rest []byte // of a line that is not whole yet
}

// NewTail begins at the journal's present end.
func NewTail(d home.Dir) *Tail {
	t := &Tail{home: d}
	if t.open() {
		t.off, _ = t.file.Seek(0, io.SeekEnd) // 0 reads what is there once more
	}
	return t
}

func (t *Tail) open() bool {
	folder, err := t.home.Open()
	if err != nil {
		return false
	}
	defer folder.Close()
	f, err := folder.OpenRead(File)
	if err != nil {
		return false
	}
	t.file, t.off, t.rest = f, 0, nil
	return true
}

// Next tells the events that were added since it was asked last. Lines that are
// none are passed over: whoever reads the journal as a whole reports them.
func (t *Tail) Next(tell func(Event)) error {
	for {
		if t.file == nil && !t.open() {
			return nil
		}
		if err := t.drain(tell); err != nil {
			return err
		}
		if t.current() {
			return nil
		}
		if err := t.drain(tell); err != nil { // what came before it was set aside
			return err
		}
		t.Close()
	}
}

// current tells whether what is open is what has the journal's name.
func (t *Tail) current() bool {
	folder, err := t.home.Open()
	if err != nil {
		return true
	}
	defer folder.Close()
	now, err := folder.OpenRead(File)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	defer now.Close()
	return same(now, t.file)
}

func (t *Tail) drain(tell func(Event)) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := t.file.ReadAt(buf, t.off)
		t.off += int64(n)
		t.rest = append(t.rest, buf[:n]...)
		for {
			line, rest, whole := bytes.Cut(t.rest, []byte("\n"))
			if !whole {
				break
			}
			if e, _ := parse(line); e != nil {
				tell(*e)
			}
			t.rest = rest
		}
		if t.rest = bytes.Clone(t.rest); len(t.rest) > 4*maxLine {
			t.rest = nil // no event
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// Close ends reading; Next begins anew.
func (t *Tail) Close() {
	if t.file != nil {
		t.file.Close()
		t.file, t.rest = nil, nil
	}
}
