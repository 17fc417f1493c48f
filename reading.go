package handsel

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/stream"
)

// eventsFile is where a run's events are kept, one JSON object on each line.
const eventsFile = "events.ndjson"

// How an agent can be confined, as records and status have it.
const (
	confinedByNothing = "none"
	confinedByKernel  = "kernel" // with all that it starts (E6)
	confinedByEngine  = "engine" // by means of its own, as its class asks for (E5)
)

// reading is what is read of an agent's output while it works (E9, E10): its
// events are kept beside the output, told to whoever asked, and what a person
// who looks wants to know of them is put into the record as it happens.
type reading struct {
	rec    *recorder
	reader *stream.Reader
	kept   *record.Capture // nil: they are not kept
	lines  []byte          // events gathered and not kept yet
	tell   func(Event)     // nil: nobody asked
	to     io.Writer       // gets them as lines; nil: nobody wants them

	// mu guards what the record says: what comes too soon after a change is written
	// a moment later, for an engine that then says nothing for hours.
	mu     sync.Mutex
	saved  time.Time   // when the record was last written because of an event
	state  string      // what the record says that the engine is held up by
	late   *time.Timer // writes what came too soon; nil: nothing did
	closed bool
}

// newReading reads the output of a run whose engine's decoder is d.
func newReading(r *recorder, d stream.Decoder) *reading {
	g := &reading{rec: r, tell: r.j.o.OnEvent}
	g.reader = stream.NewReader(d, stream.Options{Emit: g.event, Flush: g.flush})
	return g
}

// keep opens the file of the events, once the record is there.
func (g *reading) keep() error {
	if g.kept != nil || g.rec.writer == nil {
		return nil
	}
	c, err := g.rec.writer.Capture(eventsFile, g.rec.j.settings.OutputCap)
	if err == nil {
		g.kept = c
	}
	return err
}

// output is where what the run prints is to be written, too.
func (g *reading) output(name string) io.Writer {
	if name == "stdout" {
		return g.reader
	}
	return g.reader.Stderr()
}

// keptEvent is a line of events.ndjson.
type keptEvent struct {
	V  int         `json:"v"`
	At record.Time `json:"at"`
	Event
}

// event is told each event by whoever reads the output at that moment.
func (g *reading) event(e Event) {
	now := time.Now()
	if g.kept != nil {
		if line, err := json.Marshal(keptEvent{1, record.At(now), e}); err == nil {
			if g.lines = append(append(g.lines, line...), '\n'); len(g.lines) >= mostLines {
				g.flush()
			}
		}
	}
	if g.tell != nil {
		g.tell(e)
	}
	if g.to != nil {
		_ = printEvent(g.to, e) // what the caller does not take ends the run
	}
	g.note(e, now)
	g.rec.watch.event(e)
	if e.Retry != nil && slices.Contains(g.rec.j.endOn(), string(e.Fault)) {
		g.rec.j.giveUp(errEndedOn)
	}
}

// printedEvent is a line for whoever asked for events.
type printedEvent struct {
	V int `json:"v"`
	Event
}

func printEvent(to io.Writer, e Event) error {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	return enc.Encode(printedEvent{1, e})
}

// mostLines is about how much of events is gathered before it is kept, in bytes.
const mostLines = 32 << 10

// flush keeps what was gathered.
func (g *reading) flush() {
	if g.kept == nil {
		return
	}
	_, _ = g.kept.Write(g.lines) // it takes everything, and counts what it cannot keep
	if g.lines = g.lines[:0]; cap(g.lines) > 4*mostLines {
		g.lines = nil // an answer of megabytes was among them
	}
}

// errEndedOn is why a run ends before its engine gives up: the configuration says
// that what it fights with will not pass (end_on).
var errEndedOn = errors.New("the engine met what the configuration says to end on")

// stateEvery is how often the record may be written for an engine that fights
// with something: it tries again every few seconds, or in a loop.
const stateEvery = time.Second

// note puts into the record what those who look at it while the agent works want
// to know: the conversation, and a failure that the engine tries to overcome.
func (g *reading) note(e Event, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := g.reader.Summary()
	state, wait := sum.State(), stateEvery-now.Sub(g.saved)
	switch {
	case e.Kind == stream.Session && e.Session != "":
	case state == g.state:
		return
	case state != "" && wait > 0:
		if g.late == nil && !g.closed {
			g.late = time.AfterFunc(wait, g.noteLate)
		}
		return
	}
	g.save(&sum, state, now)
}

// noteLate puts into the record what came too soon, if that still holds.
func (g *reading) noteLate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late = nil
	sum := g.reader.Summary()
	if state := sum.State(); !g.closed && state != g.state {
		g.save(&sum, state, time.Now())
	}
}

// save needs mu.
func (g *reading) save(sum *stream.Summary, state string, now time.Time) {
	g.saved, g.state = now, state
	g.rec.update(func(r *record.Run) {
		r.Session, r.Model, r.EngineVersion = sum.Session, shown(sum.Model, record.MaxMessage), shown(sum.Version, record.MaxMessage)
		if state == "" {
			r.Trouble = nil
			return
		}
		t := &record.Trouble{Text: shown(state, record.MaxMessage), Since: record.At(now)}
		if r.Trouble != nil {
			t.Since = r.Trouble.Since
		}
		if sum.Fault != nil {
			t.Fault, t.Status, t.Until = string(sum.Fault.Fault), sum.Fault.Status, at(sum.Fault.Until)
		}
		if sum.Retry != nil {
			t.Attempt, t.Of = sum.Retry.Retry.Attempt, sum.Retry.Retry.Of
		}
		r.Trouble = t
	})
}

// close ends the reading. The summary is complete then.
func (g *reading) close() (sum stream.Summary, kept record.Kept) {
	_ = g.reader.Close() // it never fails
	g.mu.Lock()
	if g.closed = true; g.late != nil {
		g.late.Stop()
	}
	g.mu.Unlock()
	if g.kept != nil {
		kept = g.kept.Close()
	}
	return g.reader.Summary(), kept
}

// tee writes to several places that never fail and never block for long.
type tee []io.Writer

func (t tee) Write(p []byte) (int, error) {
	for _, w := range t {
		if n, err := w.Write(p); err != nil {
			return n, err
		}
	}
	return len(p), nil
}
