//go:build unix

package dispatch

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
)

// view writes the entries that boards and probes read (L16), one goroutine for
// all: of several changes to one lane the last is what is written.
type view struct {
	pen  sync.Mutex // guards entries
	open *attempt.View

	mu    sync.Mutex
	dirty map[string]*attempt.Entry // by lane; nil = remove
	owner map[string]string         // lane → attempt whose entry may be removed
	kick  chan struct{}

	// files keeps an entry that is accepted from being taken for the one before it,
	// which is being removed.
	files sync.Mutex
}

func newView() *view {
	return &view{dirty: map[string]*attempt.Entry{}, owner: map[string]string{}, kick: make(chan struct{}, 1)}
}

// write writes one entry at once.
func (v *view) write(e *attempt.Entry) error {
	v.pen.Lock()
	defer v.pen.Unlock()
	return v.open.Write(e)
}

func (v *view) put(name string, e *attempt.Entry, id string) {
	v.mu.Lock()
	v.dirty[name] = e
	v.owner[name] = id
	v.mu.Unlock()
	select {
	case v.kick <- struct{}{}:
	default:
	}
}

// next takes what is to be written.
func (v *view) next() (map[string]*attempt.Entry, map[string]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	dirty, owner := v.dirty, v.owner
	v.dirty, v.owner = map[string]*attempt.Entry{}, map[string]string{}
	return dirty, owner
}

// draw writes entries until quit is closed and nothing is left to write.
func (d *Dispatcher) draw(quit <-chan struct{}) {
	for more := true; more; {
		select {
		case <-d.view.kick:
		case <-quit:
			more = false
		}
		dirty, owner := d.view.next()
		for name, e := range dirty {
			if e == nil {
				d.eraseEntry(name, owner[name])
			} else if err := d.view.write(e); err != nil {
				d.cfg.Log.Warn("write an entry", "lane", name, "error", err)
			}
		}
	}
}

// eraseEntry removes the entry of an attempt, unless the lane's entry is
// another's by now: a launcher may have written the next one.
func (d *Dispatcher) eraseEntry(name, id string) {
	d.view.files.Lock()
	defer d.view.files.Unlock()
	e, err := attempt.ReadEntry(d.cfg.Home, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && e.Attempt != id {
		return
	}
	if err := attempt.RemoveEntry(d.cfg.Home, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.cfg.Log.Warn("remove an entry", "lane", name, "error", err)
	}
}

// show has the entry of a waiting row written.
func (d *Dispatcher) show(r *row) { d.view.put(r.Lane, entryOf(&r.Row, r.why), r.ID) }

// showRow writes the entry of a row at once, before its launcher is answered.
func (d *Dispatcher) showRow(r *attempt.Row, why *record.Reason) {
	d.view.files.Lock()
	defer d.view.files.Unlock()
	if err := d.view.write(entryOf(r, why)); err != nil {
		d.cfg.Log.Warn("write an entry", "lane", r.Lane, "error", err)
	}
}

// entryOf is a waiting row as others see it. Who keeps it is not in every entry
// but in the one file that is its heartbeat.
func entryOf(r *attempt.Row, why *record.Reason) *attempt.Entry {
	e := attempt.EntryOf(r, attempt.Owner{Role: "dispatcher"}, attempt.HeartbeatFile)
	if why != nil {
		e.Reason = &attempt.Reason{Class: why.Class, Code: why.Code, Message: why.Message, Until: attempt.At(why.Until.Time), Retryable: why.Retryable}
		if why.Until.IsZero() {
			e.Reason.Until = attempt.Time{}
		}
	}
	return e
}

// showAttempt has the entry of an attempt written that is driven, or orphaned,
// unless it has ended meanwhile.
func (d *Dispatcher) showAttempt(a *open) {
	if d.attempts[a.id] != a {
		return
	}
	e := entryOf(&a.row, nil)
	e.State, e.StateSince, e.Heartbeat = a.state, attempt.At(machine.Now()), ""
	e.Owner = attempt.Owner{Role: "driver", Pid: a.driver.Pid, Started: a.driver.Ticks}
	if a.orphaned {
		e.Reason = &attempt.Reason{Class: "ownership", Code: "orphaned", Message: "the driver is gone and its agent lives on (handsel cancel)"}
	}
	d.view.put(a.lane, e, a.id)
}

// hide has the entry of an attempt removed.
func (d *Dispatcher) hide(name, id string) { d.view.put(name, nil, id) }
