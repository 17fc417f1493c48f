//go:build unix

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

const (
	runningState = record.Running
	killSignal   = syscall.SIGKILL
	// endPatience bounds the wait for the end of a process that was killed.
	endPatience = 10 * time.Second
)

// open is an attempt that was granted and has not ended. Once it is settled it
// belongs to the loop.
type open struct {
	id, lane string
	n        int // which start of the attempt it is
	row      attempt.Row
	fence    uint64
	driver   proc.Claim
	state    string

	// Until the driver has begun or the start is withdrawn.
	offer *offer
	hold  *lane.Hold
	lease *lease.Lease

	granted  string // boot in which it was granted; set by recovery
	orphaned bool   // the driver is gone and its agent is not

	// For its durations (P12). Zero is not known.
	grantedAt, begunAt time.Time

	watching bool
	looked   bool // its record is being looked at
}

// verdict is what is known of an open attempt that nobody drives any more.
type verdict struct {
	end    *queue.End
	watch  *proc.Claim // still running: this process tells when to look again
	orphan bool
}

// watch looks at an attempt again when its driver ends.
func (d *Dispatcher) watch(a *open) { d.watchFor(a, a.driver) }

func (d *Dispatcher) watchFor(a *open, who proc.Claim) {
	if a.watching {
		return
	}
	a.watching = true
	d.aside(func() {
		waitEnd(d.life, who)
		if d.life.Err() != nil {
			return
		}
		v := d.inquire(a)
		d.post(func() {
			a.watching = false
			d.ruled(a, v)
		})
	})
}

// ruled acts on a verdict.
func (d *Dispatcher) ruled(a *open, v verdict) {
	if d.attempts[a.id] != a {
		return // it was ended by its driver's word
	}
	switch {
	case v.end != nil:
		d.endAttempt(a, *v.end)
	case v.watch != nil:
		if v.orphan && !a.orphaned {
			a.orphaned = true
			d.cfg.Log.Warn("the driver is gone and its agent lives on", "lane", a.lane, "attempt", a.id, "child", v.watch.Pid)
			d.showAttempt(a)
			d.tellAttempt(a, "orphaned")
		}
		d.watchFor(a, *v.watch)
	}
}

const (
	lookTries = 25
	lookNap   = 4 * time.Millisecond // 25 of them are the 100 ms of L20
)

// inquire judges an attempt by what is on disk and what the kernel says (L18).
// Its driver is gone.
func (d *Dispatcher) inquire(a *open) verdict {
	failpoint.Hit("attempt.judging")
	tries := lookTries
	if a.orphaned { // whoever ended the agent is about to say so
		tries *= 10
	}
	for try := 0; ; try++ {
		if end, ok := d.outcome(a.id); ok {
			return verdict{end: &end}
		}
		seen, err := lane.Look(d.cfg.Home, a.lane)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			d.cfg.Log.Error("look at a lane", "lane", a.lane, "error", err)
		case err == nil && seen.Record != nil && seen.Record.Attempt == a.id:
			if v, ok := stillRuns(seen); ok {
				return v
			}
		}
		if try == tries || !a.orphaned && err == nil && seen.State == lane.Free {
			// It may have ended between the two looks: the record is written before
			// the lane is closed, so it is there now if it ever will be (L17).
			if end, ok := d.outcome(a.id); ok {
				return verdict{end: &end}
			}
			return verdict{end: d.lost(a, seen.Record)}
		}
		time.Sleep(lookNap) // a lock just closed can look held (S8)
	}
}

// stillRuns tells whom to watch of a lane that is not free. A lock whose owner
// is gone is a copy that somebody has not closed yet, and says nothing of the
// agent: that one is judged by itself. So does a record from before the claim,
// which names a dispatcher: we would wait for our own end.
func stillRuns(seen lane.Seen) (verdict, bool) {
	if seen.State == lane.Owned {
		holder := seen.Record.HolderClaim()
		if seen.Record.Role != lane.RoleDispatcher && proc.Judge(holder) == proc.Alive {
			return verdict{watch: &holder}, true
		}
		seen.State = seen.Agent()
	}
	if child, ok := seen.Record.ChildClaim(); ok && seen.State != lane.Free {
		return verdict{watch: &child, orphan: true}, true
	}
	return verdict{}, false
}

// outcome reads how an attempt ended from its run's record, which is written
// before anybody is told (L17).
func (d *Dispatcher) outcome(id string) (queue.End, bool) {
	run, err := record.Load(d.cfg.Home, id)
	if err != nil || run.State != record.Ended || run.Outcome == "" {
		return queue.End{}, false
	}
	return queue.End{
		Outcome: run.Outcome, Result: run.Result, Kind: run.Kind, Reason: run.Reason,
		ExitCode: run.ExitCode, Signal: run.Signal, At: run.EndedAt.Time,
	}, true
}

// lost is the end of an attempt of which we cannot tell what became: it began,
// nobody owns its lane, and no outcome was written (L18).
func (d *Dispatcher) lost(a *open, rec *lane.Record) *queue.End {
	text := fmt.Sprintf("its driver (pid %d) is gone without an outcome", a.driver.Pid)
	if rec != nil && rec.Attempt == a.id && rec.Child != nil {
		text += fmt.Sprintf(", and so is its agent (pid %d)", rec.Child.Pid)
	}
	code := "driver_gone"
	if a.driver.Boot != "" && a.driver.Boot != machine.BootID() {
		code, text = "host_restarted", "the host was restarted while it ran"
	}
	return &queue.End{
		Outcome: record.Lost, At: machine.Now(),
		Reason: &record.Reason{Class: "ownership", Code: code, Message: text},
	}
}

// serveEnded takes a driver's word that its attempt is over. The record is the
// truth, and already written; the word only saves us the looking.
func (d *Dispatcher) serveEnded(conn *handoff.Conn, f *handoff.Frame) {
	f.CloseFds()
	var msg handoff.Ended
	if err := f.Decode(&msg); err != nil {
		d.refuse(conn, "bad_request", "config", err.Error(), false)
		return
	}
	a := d.drivenBy(&msg, conn.Peer().Pid)
	end, known := d.outcome(msg.Attempt)
	if a == nil || !known {
		d.refuse(conn, "not_yours", "ownership", "this process drives no such attempt", false)
		return
	}
	d.writeEnd(a, end)
	d.do(func() { d.closeAttempt(a, end) })
	d.answer(conn, handoff.Answer{OK: true, State: record.Ended, Lane: a.lane, Attempt: a.id, Outcome: end.Outcome})
}

// drivenBy is the attempt that a process says has ended, if it drives it. One
// that was over sooner than we had written that it began is waited for.
func (d *Dispatcher) drivenBy(msg *handoff.Ended, pid int) (a *open) {
	settled := make(chan struct{})
	d.do(func() {
		at := d.attempts[msg.Attempt]
		if at == nil || at.n != msg.Start || at.driver.Pid != pid {
			close(settled)
			return
		}
		if a = at; at.state == runningState || at.offer == nil {
			close(settled)
			return
		}
		at.offer.then = append(at.offer.then, func() { close(settled) })
	})
	select {
	case <-settled:
	case <-d.gone:
		return nil
	}
	running := false
	d.do(func() { running = a != nil && d.attempts[msg.Attempt] == a && a.state == runningState })
	if !running {
		return nil
	}
	return a
}

// endAttempt writes an end that we found out ourselves.
func (d *Dispatcher) endAttempt(a *open, end queue.End) {
	d.asideBy(func() func() {
		failpoint.Hit("attempt.ending")
		d.writeEnd(a, end)
		if end.Outcome == record.Lost {
			d.recordEnd(&a.row, end)
		}
		failpoint.Hit("attempt.ended")
		return func() { d.closeAttempt(a, end) }
	})
}

func (d *Dispatcher) writeEnd(a *open, end queue.End) {
	for {
		err := d.db.End(context.Background(), a.id, end)
		if err == nil || errors.Is(err, queue.ErrMoved) {
			return
		}
		d.cfg.Log.Error("record an end", "attempt", a.id, "error", err)
		select {
		case <-time.After(poll):
		case <-d.life.Done():
			return // the next dispatcher finds it open, and judges it again
		}
	}
}

// closeAttempt makes the loop forget an attempt whose end is written.
func (d *Dispatcher) closeAttempt(a *open, end queue.End) {
	if d.attempts[a.id] != a {
		return
	}
	delete(d.attempts, a.id)
	if d.lanes[a.lane] == a.id {
		delete(d.lanes, a.lane)
		d.hide(a.lane, a.id)
	}
	d.cfg.Log.Info("ended", "lane", a.lane, "attempt", a.id, "outcome", end.Outcome)
	d.meters.ended(a, &end)
	d.tellEnd(&a.row, &end)
	if end.Outcome == record.Lost {
		if a.row.RetryLost > 0 {
			d.retryLost(&a.row)
		}
	}
	d.ended(a.lane)
}

// ended judges the rows that come after a lane.
func (d *Dispatcher) ended(name string) {
	for r := range d.awaited[name] {
		d.judge(r)
	}
	d.again = true
}

// recordEnd writes the end of an attempt into its run's record, for one whose
// driver could not or that never had one.
func (d *Dispatcher) recordEnd(r *attempt.Row, end queue.End) {
	if err := writeRecord(d.cfg.Home, r, end); err != nil {
		d.cfg.Log.Error("write the record of a run", "attempt", r.ID, "error", err)
	}
}
