//go:build unix

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
	"golang.org/x/sys/unix"
)

// recover puts together what the last dispatcher left: rows and locks first,
// then the attempts that are open (L18, L20). The kernel overrules the rows.
func (d *Dispatcher) recover(ctx context.Context) error {
	// Nearly all that recovery makes stays: collecting it on the way finds little.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if err := home.EnsureDir(d.cfg.Home.Lanes()); err != nil {
		return err
	}
	dir, err := flock.OpenDir(d.cfg.Home.Lanes())
	if err != nil {
		return err
	}
	d.lanesDir = dir
	failpoint.Hit("recover.begin")
	rows, err := d.load()
	if err != nil {
		return err
	}
	d.readOrders()
	if err := d.loadAttempts(); err != nil {
		return err
	}
	d.recoverRows(ctx, rows)
	failpoint.Hit("recover.rows")
	if d.gift != nil { // lanes whose rows were ended meanwhile
		for _, fd := range d.gift.lanes {
			unix.Close(fd)
		}
		d.gift.lanes = nil
	}
	d.recoverEntries(rows)
	for _, a := range d.attempts {
		d.resume(a)
	}
	d.recoverEnds()
	failpoint.Hit("recover.attempts")
	return nil
}

// load reads the rows, best first.
func (d *Dispatcher) load() ([]*row, error) {
	var rows []*row
	err := d.db.Rows(func(r *attempt.Row, token []byte) error {
		rows = append(rows, &row{Row: *r, token: slices.Clone(token)})
		return nil
	})
	d.epoch = machine.Now().Add(-machine.SinceBoot()).UnixMilli()
	for _, r := range rows { // all rows of one boot are on one line
		if r.BootID == machine.BootID() && r.EpochMS != 0 {
			d.epoch = r.EpochMS
			break
		}
	}
	slices.SortFunc(rows, order)
	return rows, err
}

func (d *Dispatcher) loadAttempts() error {
	return d.db.Attempts(func(at *queue.Attempt) error {
		a := &open{
			id: at.Row.ID, lane: at.Row.Lane, n: at.Row.Starts, row: at.Row, fence: at.Fence, state: at.State,
			driver:  proc.Claim{Pid: at.Driver.Pid, Ticks: at.Driver.Ticks, Boot: at.Driver.BootID},
			granted: at.GrantedBoot, grantedAt: at.GrantedAt.Time, begunAt: at.BegunAt.Time,
		}
		d.attempts[a.id] = a
		d.lanes[a.lane] = a.id
		return nil
	})
}

// recoverRows takes the lane of every row (L20).
func (d *Dispatcher) recoverRows(ctx context.Context, rows []*row) {
	d.fds.grow(len(rows))
	var held []*row
	for i, err := range d.tryRows(rows) {
		if !d.recoverRow(ctx, rows[i], err) {
			held = append(held, rows[i])
		}
	}
	// One look is no proof: a lock just closed can look held (S8).
	for try := 0; len(held) > 0 && try < lookTries; try++ {
		time.Sleep(lookNap)
		held = slices.DeleteFunc(held, func(r *row) bool { return d.recoverRow(ctx, r, d.tryRow(r)) })
	}
	for _, r := range held {
		if d.taken(r) {
			d.displaced(ctx, r)
			continue
		}
		d.fds.short++ // its launcher is still about to close its copy
		d.waitAgain(ctx, r)
	}
	d.hasten()
}

// taken tells whether somebody else has r's lane. While the record says that it
// is r's, whoever holds the lock is a launcher or a driver of r that has not let
// go yet, and nobody is displaced.
func (d *Dispatcher) taken(r *row) bool {
	seen, err := lane.Look(d.cfg.Home, r.Lane)
	return err != nil || seen.State != lane.Free && (seen.Record == nil || seen.Record.Attempt != r.ID)
}

// tryRows is tryRow for all rows, by as many at once as there are processors and
// in their order, since there may not be a descriptor for each.
func (d *Dispatcher) tryRows(rows []*row) []error {
	errs := make([]error, len(rows))
	workers := runtime.GOMAXPROCS(0)
	if d.gift != nil { // what was handed over is taken out of one map
		workers = 1
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(rows)); i = next.Add(1) - 1 {
				errs[i] = d.holdRow(rows[i])
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		d.countShort(err)
	}
	return errs
}

// recoverRow makes r wait again, for which tryRow has said err; false when
// somebody has its lane.
func (d *Dispatcher) recoverRow(ctx context.Context, r *row, err error) bool {
	if err != nil && !errors.Is(err, errNoDescriptor) {
		r.LastFailure = err.Error()
		return false
	}
	failpoint.Hit("recover.row")
	d.waitAgain(ctx, r)
	return true
}

// waitAgain lets r wait in its old place, whatever it was offered as.
func (d *Dispatcher) waitAgain(ctx context.Context, r *row) {
	if r.State == attempt.Starting {
		// Nobody was granted this offer, and nobody will be: its token goes.
		if err := d.db.Withdraw(ctx, r.ID, r.token, "the dispatcher was restarted", false); err != nil {
			d.cfg.Log.Error("withdraw an offer", "attempt", r.ID, "error", err)
		}
		d.queued(r)
		d.show(r)
	}
	r.token = nil
	d.add(r)
}

var errNoDescriptor = errors.New("no descriptor is left")

// tryRow takes r's lane if nobody has it.
func (d *Dispatcher) tryRow(r *row) error {
	err := d.holdRow(r)
	d.countShort(err)
	return err
}

// countShort keeps count of the rows that have no descriptor.
func (d *Dispatcher) countShort(err error) {
	if errors.Is(err, errNoDescriptor) {
		d.fds.short++
	}
}

// holdRow is tryRow for a goroutine beside the loop.
func (d *Dispatcher) holdRow(r *row) error {
	if d.fds.take(1) != nil {
		return errNoDescriptor
	}
	h, handed := d.given(r)
	if !handed {
		var err error
		if h, err = lane.Regain(d.lanesDir, r.Lane); err != nil {
			d.fds.give(1)
			return err
		}
	}
	r.hold = h
	return nil
}

// lockRow takes the lane of a row that was left without its lock.
func (d *Dispatcher) lockRow(r *row) bool {
	d.fds.short--
	err := d.tryRow(r) // which counts it again where no descriptor is left
	switch {
	case err == nil:
		return true
	case errors.Is(err, errNoDescriptor):
	case d.taken(r):
		r.LastFailure = err.Error()
		d.displaced(context.Background(), r)
	default:
		d.fds.short++
	}
	return false
}

// displaced takes a row out of the queue whose lane somebody else has: a row is
// no permission to steal. It was not started, and says who has the lane.
func (d *Dispatcher) displaced(ctx context.Context, r *row) {
	text := r.LastFailure
	if seen, err := lane.Look(d.cfg.Home, r.Lane); err == nil {
		text = fmt.Sprintf("while no dispatcher ran, lane %q was taken by %s", r.Lane, seen.Owner())
	}
	end := queue.End{
		Outcome: record.NotStarted, At: machine.Now(),
		Reason: &record.Reason{Class: "ownership", Code: "displaced", Message: text},
	}
	failpoint.Hit("recover.displaced")
	if err := d.db.End(ctx, r.ID, end); err != nil && !errors.Is(err, queue.ErrMoved) {
		d.cfg.Log.Error("end a displaced row", "attempt", r.ID, "error", err)
		return
	}
	d.cfg.Log.Warn("displaced", "lane", r.Lane, "attempt", r.ID, "why", text)
	d.recordEnd(&r.Row, end)
	d.tellEnd(&r.Row, &end)
	d.hide(r.Lane, r.ID)
	if d.rows[r.ID] == r {
		d.remove(r)
	}
	d.ended(r.Lane)
}

// recoverEntries writes the entries that are missing and removes those that
// stand for nothing. Whether what is there says the right thing is looked at
// afterwards, beside the work: reading ten thousand files would cost more than
// all else (G11).
func (d *Dispatcher) recoverEntries(rows []*row) {
	names, err := d.entryNames()
	if err != nil {
		d.cfg.Log.Warn("list the entries", "error", err)
	}
	var check []*row
	for _, r := range rows {
		file := home.LaneFile(r.Lane) + ".json"
		if _, there := names[file]; !there && d.rows[r.ID] == r {
			d.show(r)
		} else if there {
			check = append(check, r)
		}
		delete(names, file)
	}
	for _, a := range d.attempts {
		delete(names, home.LaneFile(a.lane)+".json")
	}
	for file := range names {
		d.strays = append(d.strays, strings.TrimSuffix(file, ".json"))
	}
	d.sweep()
	d.aside(func() { d.mendEntries(check) })
}

func (d *Dispatcher) entryNames() (map[string]struct{}, error) {
	names := map[string]struct{}{}
	folder, err := d.cfg.Home.Open("queue")
	if errors.Is(err, fs.ErrNotExist) {
		return names, nil
	}
	if err != nil {
		return names, err
	}
	defer folder.Close()
	all, err := folder.Names()
	for _, name := range all {
		if strings.HasSuffix(name, ".json") {
			names[name] = struct{}{}
		}
	}
	return names, err
}

// strayEntry removes an entry without a row, under its lane's lock: while
// somebody has the lane it may be a launcher that is about to call, or a driver
// that is about to let go, and is looked at again. It is false then.
func (d *Dispatcher) strayEntry(file string) (settled bool) {
	name, ok := home.LaneOfFile(file)
	if !ok {
		return true // a shortened name: gc, which reads the entry, removes it
	}
	if _, ours := d.lanes[name]; ours {
		return true // it has a row by now, or again
	}
	h, err := lane.Regain(d.lanesDir, name)
	if err != nil {
		return false
	}
	defer h.Keep()
	if err := attempt.RemoveEntry(d.cfg.Home, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.cfg.Log.Warn("remove an entry", "lane", name, "error", err)
	}
	return true
}

// sweep looks again at the entries without a row that were left.
func (d *Dispatcher) sweep() { d.strays = slices.DeleteFunc(d.strays, d.strayEntry) }

// mendEntries rewrites entries that do not say what their row says, as a crash
// between commit and entry leaves them.
func (d *Dispatcher) mendEntries(rows []*row) {
	view, err := attempt.OpenView(d.cfg.Home)
	if err != nil {
		d.cfg.Log.Warn("look at the entries", "error", err)
		return
	}
	defer view.Close()
	for _, r := range rows {
		if d.life.Err() != nil {
			return
		}
		e, err := view.Read(r.Lane)
		if err == nil && e.Attempt == r.ID && e.Owner.Role == "dispatcher" && e.State == attempt.Queued {
			continue
		}
		d.post(func() {
			if d.rows[r.ID] == r {
				d.show(r)
			}
		})
	}
}

// endsBack is how many of the last changes are searched for ends that somebody
// died over: a dispatcher never has as many under way at a time.
const endsBack = 1000

// recoverEnds completes ends that are in the database and went no further: the
// dispatcher that wrote them was killed before it wrote the run's record, or
// before it tried again what was lost.
func (d *Dispatcher) recoverEnds() {
	last, err := d.db.LastEvent()
	var events []queue.Event
	if err == nil {
		events, err = d.db.Events(queue.Filter{After: max(last-endsBack, 0)})
	}
	if err != nil {
		d.cfg.Log.Error("look for ends that were not recorded", "error", err)
		return
	}
	d.aside(func() {
		for _, e := range events {
			if e.To == record.Ended && d.life.Err() == nil {
				d.recoverEnd(e.Attempt)
			}
		}
	})
}

func (d *Dispatcher) recoverEnd(id string) {
	at, err := d.db.Find(id)
	if err != nil || at == nil || at.State != record.Ended {
		return
	}
	if _, recorded := d.outcome(id); !recorded {
		if _, err := attempt.Read(d.cfg.Home, id); err != nil {
			return // its directory was cleared away, and with it the record
		}
		d.recordEnd(&at.Row, queue.End{Outcome: at.Outcome, Reason: at.Reason, At: at.EndedAt.Time})
	}
	if at.Outcome != record.Lost || at.Row.RetryLost == 0 {
		return
	}
	if now, err := d.db.LastOfLane(at.Row.Lane); err == nil && now != nil && now.Row.ID == id {
		d.retryLost(&at.Row)
	}
}

// resume judges an attempt that the last dispatcher left open (L18).
func (d *Dispatcher) resume(a *open) {
	b, err := attempt.ReadBegun(d.cfg.Home, a.id, a.n)
	switch {
	case err == nil && b.What == attempt.Began:
		a.state = runningState
		d.asideBy(func() func() {
			failpoint.Hit("recover.attempt")
			if err := d.db.Begun(context.Background(), a.id); err != nil && !errors.Is(err, queue.ErrMoved) {
				d.cfg.Log.Error("record a beginning", "attempt", a.id, "error", err)
			}
			v := d.inquire(a)
			return func() {
				d.showAttempt(a)
				d.ruled(a, v)
			}
		})
	case a.granted != "" && a.granted != machine.BootID():
		// A beginning may have been lost with the power, so its absence proves
		// nothing.
		d.endAttempt(a, *d.lost(a, nil))
	default:
		d.aside(func() { d.reopen(a) })
	}
}

// reopen decides an attempt of this boot that was granted and has not begun: it
// begins now, or it waits again in its old place.
func (d *Dispatcher) reopen(a *open) {
	failpoint.Hit("recover.reopen")
	if d.decide(a) {
		d.do(func() {
			a.state = runningState
			d.showAttempt(a)
		})
		if err := d.db.Begun(context.Background(), a.id); err != nil && !errors.Is(err, queue.ErrMoved) {
			d.cfg.Log.Error("record a beginning", "attempt", a.id, "error", err)
		}
		v := d.inquire(a)
		d.post(func() { d.ruled(a, v) })
		return
	}
	if err := proc.Tell(a.driver, killSignal); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), endPatience)
		waitEnd(ctx, a.driver)
		cancel()
	}
	h, err := d.retake(a.lane)
	if err != nil && d.taken(&row{Row: a.row}) {
		end := queue.End{Outcome: record.NotStarted, At: machine.Now(), Reason: &record.Reason{
			Class: "ownership", Code: "displaced", Message: fmt.Sprintf("while no dispatcher ran, lane %q was taken: %v", a.lane, err)}}
		d.recordEnd(&a.row, end)
		d.do(func() { d.endAttempt(a, end) })
		return
	}
	if a.hold = h; h != nil {
		d.fds.force(1)
		if err := h.SetOwner(d.laneRecord(a.id)); err != nil {
			d.cfg.Log.Warn("record a lane", "lane", a.lane, "error", err)
		}
	}
	why := "its driver did not begin before the dispatcher was restarted"
	if err := d.db.Requeue(context.Background(), a.id, why); err != nil && !errors.Is(err, queue.ErrMoved) {
		d.cfg.Log.Error("requeue", "attempt", a.id, "error", err)
	}
	failpoint.Hit("recover.requeued")
	d.do(func() {
		if h == nil {
			d.fds.short++
		}
		d.requeued(a, why)
		d.hasten()
	})
}

// retake takes a lane whose last driver is gone, looking as often as L20 says.
func (d *Dispatcher) retake(name string) (h *lane.Hold, err error) {
	for range lookTries {
		if h, err = lane.Regain(d.lanesDir, name); err == nil {
			return h, nil
		}
		time.Sleep(lookNap)
	}
	return nil, err
}
