//go:build unix

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/queue"
)

// no is a refusal: a code and a sentence (L7).
type no struct {
	class, code, text string
	retryable         bool
}

func (e *no) Error() string { return e.text }

func refusef(class, code string, retryable bool, format string, args ...any) *no {
	return &no{class, code, fmt.Sprintf(format, args...), retryable}
}

// serveEnqueue takes a lane over from its launcher. Whatever was received is
// closed unless the row was accepted (L7).
func (d *Dispatcher) serveEnqueue(conn *handoff.Conn, f *handoff.Frame) {
	defer f.CloseFds()
	failpoint.Hit("accept.received")
	var msg handoff.Enqueue
	err := f.Decode(&msg)
	if err != nil {
		err = refusef("config", "bad_request", false, "%v", err)
	} else {
		err = d.enqueue(conn, &msg.Row, f)
	}
	if err == nil {
		return
	}
	if errors.Is(err, errRelieved) {
		conn.Close() // the launcher asks again, and whoever relieves us answers
		return
	}
	var why *no
	if !errors.As(err, &why) {
		why = refusef("resource", "failed", false, "%v", err)
	}
	f.CloseFds() // first: whoever is refused may have the lane at once
	d.refuse(conn, why.code, why.class, why.text, why.retryable)
}

// enqueue is the order of L8: judge, commit, keep, show, answer.
func (d *Dispatcher) enqueue(conn *handoff.Conn, r *attempt.Row, f *handoff.Frame) error {
	if err := d.admissible(conn.Peer(), r, f.Came); err != nil {
		return err
	}
	known, err := d.reserve(r)
	if err != nil {
		return err
	}
	if known != nil { // asked again: what became of it (L9)
		d.regainFrom(r.ID, f)
		f.CloseFds()
		d.answer(conn, *known)
		return nil
	}
	h, err := d.accept(r, func() (*lane.Hold, error) { return d.adopt(r.Lane, f) })
	if err != nil {
		d.do(func() { d.unreserve(r) })
		return err
	}
	failpoint.Hit("accept.entered")
	d.do(func() {
		d.unreserve(r)
		d.add(&row{Row: *r, hold: h})
	})
	d.answer(conn, handoff.Answer{OK: true, State: attempt.Queued, Lane: r.Lane, Attempt: r.ID})
	failpoint.Hit("accept.answered")
	return nil
}

// adopt makes the descriptor that came ours, if it proves to be the lane's (L6).
func (d *Dispatcher) adopt(name string, f *handoff.Frame) (*lane.Hold, error) {
	h, err := lane.Adopt(d.cfg.Home, name, f.Fds[0])
	if err != nil {
		return nil, notProven(name, err)
	}
	f.Take()
	failpoint.Hit("accept.proved")
	return h, nil
}

// admissible judges what needs no lock and no database.
func (d *Dispatcher) admissible(peer handoff.Peer, r *attempt.Row, came int) error {
	if came != 1 {
		return refusef("ownership", "one_descriptor", false, "an enqueue carries exactly one descriptor, and this one has %d", came)
	}
	if err := r.Check(); err != nil {
		return refusef("config", "bad_row", false, "%v", err)
	}
	if err := d.cfg.Mode(); err != nil {
		return refusef("config", "waiter_mode", false, "%v", err)
	}
	if err := d.peers.outside(peer.Pid); err != nil {
		return refusef("ownership", nest.Code, false, "%v", err)
	}
	return d.entered(r)
}

// entered asks for the launcher's entry, with the place in line it promises.
func (d *Dispatcher) entered(r *attempt.Row) error {
	e, err := attempt.ReadEntry(d.cfg.Home, r.Lane)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refusef("ownership", "no_entry", false, "lane %q has no entry in the queue", r.Lane)
	case err != nil:
		return refusef("ownership", "no_entry", false, "the entry of lane %q cannot be read: %v", r.Lane, err)
	case e.Lane != r.Lane:
		return refusef("ownership", "other_lane", false, "the entry of lane %q is that of lane %q", r.Lane, e.Lane)
	case e.Attempt != r.ID, e.QueueStart.IsZero(), !e.QueueStart.Equal(r.QueueStart.Time), e.Priority != r.Priority:
		return refusef("ownership", "no_entry", false, "the entry of lane %q does not say this attempt's start and priority", r.Lane)
	}
	return nil
}

// reserve keeps the lane for a row that is being accepted, so that no second
// one comes between, and a descriptor to hold it by.
func (d *Dispatcher) reserve(r *attempt.Row) (known *handoff.Answer, err error) {
	if known, err = d.whatBecame(r.ID); err != nil || known != nil {
		return known, err
	}
	if err := d.resolveAfter(r); err != nil {
		return nil, err
	}
	if err := d.fds.take(1); err != nil {
		return nil, refusef("resource", codeDescriptors, true, "%v", err)
	}
	err = errStopping
	if !d.do(func() {
		switch at, taken := d.lanes[r.Lane]; {
		case d.leaving != nil && d.leaving.relief:
			err = errRelieved
		case d.leaving != nil:
		case taken:
			err = refusef("ownership", "lane_queued", true, "lane %q is queued already%s", r.Lane, naming(at))
		default:
			err = nil
			d.lanes[r.Lane] = ""
			d.accepting[r.ID] = make(chan struct{})
		}
	}) && d.heir.Load() != nil {
		err = errRelieved
	}
	if err != nil {
		d.fds.give(1)
	}
	return nil, err
}

var errStopping = refusef("resource", "stopping", true, "the dispatcher is stopping")

// errRelieved ends a request that comes while everything is handed over.
var errRelieved = errors.New("the dispatcher is being relieved")

func naming(id string) string {
	if id == "" {
		return ""
	}
	return " (attempt " + id + ")"
}

func (d *Dispatcher) unreserve(r *attempt.Row) {
	if done := d.accepting[r.ID]; done != nil {
		close(done)
		delete(d.accepting, r.ID)
	}
	if at, reserved := d.lanes[r.Lane]; reserved && at == "" {
		delete(d.lanes, r.Lane)
	}
}

// accept commits a row whose lane get gives, and makes the lane ours (L8).
func (d *Dispatcher) accept(r *attempt.Row, get func() (*lane.Hold, error)) (h *lane.Hold, err error) {
	defer func() {
		if err != nil {
			d.fds.give(1)
		}
	}()
	if h, err = get(); err != nil {
		return nil, err
	}
	d.arrive(r)
	if err := d.db.Accept(context.Background(), r); err != nil {
		h.Keep() // the launcher has the lane, as before
		var exists *queue.Exists
		if errors.As(err, &exists) {
			return nil, refusef("ownership", "lane_queued", true, "lane %q is queued already%s", r.Lane, naming(exists.Attempt))
		}
		d.cfg.Log.Error("accept a row", "lane", r.Lane, "error", err)
		return nil, refusef("resource", "not_written", true, "the row could not be written: %v", err)
	}
	failpoint.Hit("accept.committed")
	if err := h.SetOwner(d.laneRecord(r.ID)); err != nil {
		d.cfg.Log.Warn("record a lane", "lane", r.Lane, "error", err)
	}
	d.showRow(r, nil)
	return h, nil
}

func notProven(name string, err error) error {
	code := "not_this_lane"
	switch {
	case errors.Is(err, flock.ErrHeld), errors.Is(err, flock.ErrNotOurs):
		code = "not_owned"
	}
	return refusef("ownership", code, false, "the descriptor does not own lane %q: %v", name, err)
}

// arrive sets what is ours to say of a new row. Its start and priority are the
// launcher's.
func (d *Dispatcher) arrive(r *attempt.Row) {
	r.V, r.State, r.StateSince = attempt.Version, attempt.Queued, attempt.At(machine.Now())
	r.Starts, r.Unclaimed, r.LastFailure, r.AdmittedAt, r.Fence = 0, 0, "", attempt.Time{}, 0
	if r.BootID == machine.BootID() {
		r.Align(d.epoch)
	}
}

// resolveAfter turns what a row comes after into attempts (L10). A lane means
// the attempt it has now, or had last.
func (d *Dispatcher) resolveAfter(r *attempt.Row) error {
	for i := range r.After {
		a := &r.After[i]
		if a.Lane == r.Lane || a.Attempt == r.ID {
			return refusef("dependency", "cyclic", false, "lane %q cannot come after itself", r.Lane)
		}
		if a.Attempt == "" {
			d.do(func() { a.Attempt = d.lanes[a.Lane] })
		}
		at, err := d.lookup(a)
		if err != nil {
			return err
		}
		if at == nil {
			return refusef("dependency", "unknown_dependency", false, "--after %s: no such lane or attempt", naming2(a))
		}
		a.Lane, a.Attempt = at.Row.Lane, at.Row.ID
	}
	return nil
}

func naming2(a *attempt.After) string {
	if a.Lane != "" {
		return a.Lane
	}
	return a.Attempt
}

func (d *Dispatcher) lookup(a *attempt.After) (*queue.Attempt, error) {
	if a.Attempt != "" {
		return d.db.Find(a.Attempt)
	}
	return d.db.LastOfLane(a.Lane)
}

// whatBecame answers for an attempt that we know; nil when we do not. One that
// is just being accepted is waited for.
func (d *Dispatcher) whatBecame(id string) (*handoff.Answer, error) {
	var busy chan struct{}
	d.do(func() { busy = d.accepting[id] })
	if busy != nil {
		<-busy
	}
	at, err := d.db.Find(id)
	if err != nil || at == nil {
		return nil, err
	}
	return &handoff.Answer{OK: true, State: at.State, Lane: at.Row.Lane, Attempt: id, Outcome: at.Outcome}, nil
}

// serveAsk answers what became of an attempt (L9).
func (d *Dispatcher) serveAsk(conn *handoff.Conn, f *handoff.Frame) {
	defer f.CloseFds()
	var ask handoff.Ask
	if err := f.Decode(&ask); err != nil {
		d.refuse(conn, "bad_request", "config", err.Error(), false)
		return
	}
	known, err := d.whatBecame(ask.Attempt)
	if known != nil {
		d.regainFrom(ask.Attempt, f)
	}
	f.CloseFds() // first: whoever is told may have the lane at once
	switch {
	case err != nil:
		d.refuse(conn, "failed", "resource", err.Error(), true)
	case known == nil:
		d.refuse(conn, "unknown_attempt", "ownership", "no attempt "+ask.Attempt+" was ever accepted", false)
	default:
		d.answer(conn, *known)
	}
}

// regainFrom takes the lane's descriptor that came with a question about an
// attempt whose row waits without its lane: a dispatcher accepted it and died
// before it answered, and the launcher closes its copy as soon as it is told. In
// between anybody could have taken the lane.
func (d *Dispatcher) regainFrom(id string, f *handoff.Frame) {
	if f.Came != 1 || len(f.Fds) != 1 {
		return
	}
	bare := func() *row {
		if r := d.rows[id]; r != nil && r.hold == nil && !r.leaving {
			return r
		}
		return nil
	}
	var name string
	d.do(func() {
		if r := bare(); r != nil {
			name = r.Lane
		}
	})
	if name == "" {
		return
	}
	h, err := d.adopt(name, f)
	if err != nil {
		d.cfg.Log.Warn("take a lane that was handed over again", "lane", name, "attempt", id, "error", err)
		return
	}
	failpoint.Hit("regain.adopted")
	kept := false
	d.do(func() {
		r := bare()
		if r == nil {
			return
		}
		kept, r.hold = true, h
		d.fds.force(1) // it is accepted, so it does not depend on the room that is left
		d.fds.short--
		if err := h.SetOwner(d.laneRecord(id)); err != nil {
			d.cfg.Log.Warn("record a lane", "lane", name, "error", err)
		}
		d.judge(r)
	})
	if !kept {
		h.Keep()
	}
}

// peers remembers which processes were found outside every agent: judging one
// walks its ancestors, and a launcher may enqueue thousands (S27).
type peers struct {
	mu   sync.Mutex
	seen map[int]uint64 // pid → start
}

// maxPeers bounds what is remembered.
const maxPeers = 1024

func (p *peers) outside(pid int) error {
	st, err := proc.ReadStat(pid)
	if err != nil {
		return nil // it has left: what it sent while it was there stands
	}
	p.mu.Lock()
	ticks, ok := p.seen[pid]
	p.mu.Unlock()
	if ok && ticks == st.Ticks {
		return nil
	}
	if err := nest.CheckPeer(pid); err != nil {
		if _, gone := proc.ReadStat(pid); gone != nil {
			return nil
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil || len(p.seen) >= maxPeers {
		p.seen = map[int]uint64{}
	}
	p.seen[pid] = st.Ticks
	return nil
}
