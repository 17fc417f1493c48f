package stream

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// DefaultBound is how long a line may be and still be handed over whole, in
// bytes (E9).
const DefaultBound = 8 << 20

// What a Reader keeps, in bytes.
const (
	mostKept   = 1 << 20  // of a line longer than the bound
	mostSpare  = 1 << 20  // of buffer between lines
	firstSpare = 4 << 10  // of buffer for the first line that comes in pieces
	mostText   = 64 << 10 // of a line of stderr
)

// Options say how a Reader reads. The zero value is of use.
type Options struct {
	// Bound is the longest line that is handed over whole, in bytes; 0 or less:
	// DefaultBound. Of a longer one the Decoder gets the object with its long
	// strings cut; where the whole of it stands is in Line and in its events.
	Bound int
	// Emit is given every event, in order, by whoever called Write or Close. Until
	// it returns nothing more is read. It must not write to the Reader.
	Emit func(Event)
	// Flush is called after Emit when all that was written or closed is read, so
	// that Emit may gather events and write them together. At 5,000 events a second
	// that is one system call for hundreds of them.
	Flush func()
}

// Counts are what a Reader has come across. Nothing of it ends the reading.
type Counts struct {
	Bytes   int64 `json:"bytes"`   // of stdout
	Lines   int64 `json:"lines"`   // of stdout; a last one without its newline, too
	Objects int64 `json:"objects"` // handed to the decoder
	Events  int64 `json:"events"`

	Empty    int64 `json:"empty,omitempty"`     // lines with nothing in them
	Text     int64 `json:"text,omitempty"`      // lines, or ends of lines, that are no JSON
	Values   int64 `json:"values,omitempty"`    // JSON, but no objects
	Broken   int64 `json:"broken,omitempty"`    // lines that begin like an object and are none
	Joined   int64 `json:"joined,omitempty"`    // objects that followed another on the same line
	Titles   int64 `json:"titles,omitempty"`    // objects behind a terminal's sequence
	BOMs     int64 `json:"boms,omitempty"`      // objects behind a byte order mark
	NULs     int64 `json:"nuls,omitempty"`      // lines with a NUL byte
	NotUTF8  int64 `json:"not_utf8,omitempty"`  // lines that are not UTF-8
	Cut      int64 `json:"cut,omitempty"`       // objects beyond the bound, handed over with long strings cut
	TooLong  int64 `json:"too_long,omitempty"`  // lines beyond the bound that could not be shortened enough
	Repeated int64 `json:"repeated,omitempty"`  // lines that said what was said before
	Partial  int64 `json:"partial,omitempty"`   // bytes of a last line that is no whole object and has no newline
	Stderr   int64 `json:"err_lines,omitempty"` // lines of stderr
}

// Reader reads what one run prints. It is an io.Writer for its stdout, and has
// another for its stderr; both may be used at once. Neither ever fails, and they
// wait for nothing but the decoder and Emit.
//
// It keeps what has come of the line under way, if the line comes in pieces: with
// the bound as it is by default less than 12 MiB, whatever arrives, and between
// lines at most 1 MiB. Of stderr it keeps 64 KiB.
type Reader struct {
	decoder Decoder // nil: nothing is made of the lines
	bound   int
	emit    func(Event)
	flush   func()
	result  chan struct{} // closed with the first result
	stderr  stderr

	// turn is held while something is read, decoded and emitted. The fields below
	// belong to whoever has it.
	turn   sync.Mutex
	now    time.Time // of this turn
	counts Counts
	recent recent
	closed bool
	unsaid bool  // events were emitted and not flushed
	at     int64 // bytes of stdout read so far, those in buf included

	// Of the line under way:
	buf     []byte // what has come and is not read yet
	long    *long  // the object that is being shortened; nil: none
	skip    bool   // the rest is passed over
	objects int    // so far
	grown   int    // bytes so far, if it comes in pieces
	told    told   // by its events

	// mu guards what others may ask for at any time.
	mu      sync.Mutex
	summary Summary
}

// NewReader returns the reader of one run. Without a decoder it only tells what is
// progress.
func NewReader(d Decoder, o Options) *Reader {
	r := &Reader{decoder: d, bound: o.Bound, emit: o.Emit, flush: o.Flush, result: make(chan struct{}), recent: newRecent()}
	if r.bound <= 0 {
		r.bound = DefaultBound
	}
	r.stderr.r = r
	r.summary.Decoded = d != nil
	return r
}

// Stderr returns the writer for what the run prints to stderr.
func (r *Reader) Stderr() io.Writer { return &r.stderr }

// Result is closed once the agent has given a result.
func (r *Reader) Result() <-chan struct{} { return r.result }

// Progress is when the agent last got on; the zero time if it never did. What
// counts is stated at Summary.Progress.
func (r *Reader) Progress() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.summary.Progress
}

// Settled is since when nothing has happened after the result: the time of the
// last event, of whatever kind, once there is a result. Zero before that.
func (r *Reader) Settled() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.summary.Result == nil {
		return time.Time{}
	}
	return r.summary.Last
}

// Summary is what is known so far. It is complete after Close.
func (r *Reader) Summary() Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.summary
}

// Write reads what the run printed to stdout. It never fails.
func (r *Reader) Write(p []byte) (int, error) {
	r.begin()
	defer r.end()
	if r.closed {
		return len(p), nil
	}
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			r.more(rest)
			break
		}
		r.line(rest[:end])
		rest = rest[end+1:]
	}
	return len(p), nil
}

// Close ends the reading: a last line needs no newline to count, and the decoder
// is asked for what it knows only now. What is written later is passed over.
// Close may be called again. It returns nil.
func (r *Reader) Close() error {
	r.begin()
	defer r.end()
	if r.closed {
		return nil
	}
	r.closed = true
	r.last()
	r.stderr.last()
	if r.decoder != nil {
		r.events(r.decoder.End(), Line{})
	}
	r.buf, r.long = nil, nil
	return nil
}

func (r *Reader) begin() {
	r.turn.Lock()
	r.now = time.Now()
}

func (r *Reader) end() {
	if r.unsaid && r.flush != nil {
		r.flush()
	}
	r.unsaid = false
	r.counts.Bytes = r.at
	r.mu.Lock()
	r.summary.Counts = r.counts
	r.mu.Unlock()
	r.turn.Unlock()
}

// events folds and passes on what the decoder said of a line.
func (r *Reader) events(list []Event, l Line) {
	for _, e := range list {
		if l.Cut > 0 {
			e.Cut, e.Offset, e.Len = l.Cut, l.Offset, l.Len
		}
		r.counts.Events++
		r.told.note(e, &r.recent)
		r.mu.Lock()
		first := e.Kind == Result && r.summary.Result == nil
		r.summary.add(e, r.now)
		r.mu.Unlock()
		if r.emit != nil {
			r.emit(e)
			r.unsaid = true
		}
		if first {
			close(r.result)
		}
	}
}

func (r *Reader) progress() {
	r.mu.Lock()
	r.summary.Progress = r.now
	r.mu.Unlock()
}
