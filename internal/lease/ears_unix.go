//go:build unix

package lease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/slot"
	"golang.org/x/sys/unix"
)

// ears are the descriptors whose events end a sleep. All of them ring one
// bell, so an idle waiter is one sleeping thread.
type ears struct {
	bell    *bell
	stop    func() bool        // ends the context's hold on the bell
	placed  bool               // our own ticket rings too
	watch   *watch             // of the pools' directories and the holds; nil while we only follow
	dirs    []flock.ID         // what watch watches, as it was at the look before
	deaf    bool               // a watch could not be had: the fallback poll takes its place
	stirred bool               // as a guard: something happened that the first heard too
	partial bool               // something else could not be followed: the same
	follow  follower           // the one of our kind before us
	blocker follower           // the one whose turn it is
	orphans map[proc.Claim]int // pidfds of agents without a holder
}

// follower tells that the owner of a ticket has left or died.
type follower struct {
	name string
	fifo int // hangs up when the owner closes it; -1 = not following
	proc *watched
}

func newEars(ctx context.Context) (*ears, error) {
	b, err := newBell()
	if err != nil {
		return nil, err
	}
	e := &ears{bell: b, follow: follower{fifo: -1}, blocker: follower{fifo: -1}, orphans: map[proc.Claim]int{}}
	e.stop = context.AfterFunc(ctx, b.interrupt)
	return e, nil
}

func (e *ears) close() {
	e.stop()
	e.bell.close()
	if e.watch != nil {
		e.watch.close()
	}
	e.follow.close(nil)
	e.blocker.close(nil)
	for _, fd := range e.orphans {
		unix.Close(fd)
	}
}

func (f *follower) close(b *bell) {
	if f.fifo >= 0 {
		b.remove(f.fifo)
		unix.Close(f.fifo)
	}
	if f.proc != nil {
		b.remove(f.proc.fd())
		f.proc.close()
	}
	*f = follower{fifo: -1}
}

// unplace forgets our own ticket and those of others in the same line.
func (e *ears) unplace(p *line.Place) {
	if e.placed && p != nil {
		e.bell.remove(p.WakeFd())
	}
	e.placed = false
	e.follow.close(e.bell)
	e.blocker.close(e.bell)
}

// unwatch stops watching slots. Closing an inotify instance can take 15 ms.
func (e *ears) unwatch() {
	if e.watch != nil {
		e.bell.remove(e.watch.fd())
		go e.watch.close()
		e.watch = nil
	}
}

// to makes f follow t, or nobody. It tells whether t's owner turned out to be
// gone already, so that the look which saw it is out of date.
func (e *ears) to(f *follower, l *line.Line, t *line.Ticket) (gone bool) {
	b := e.bell
	if t == nil {
		f.close(b)
		return false
	}
	if f.name == t.Name {
		return false
	}
	f.close(b)
	fifo, err := l.Follow(t.Name)
	if err != nil {
		e.partial = e.partial || !errors.Is(err, line.ErrDead)
		return errors.Is(err, line.ErrDead)
	}
	f.name, f.fifo, f.proc = t.Name, fifo, watchProcess(t.Owner())
	b.add(f.fifo, hangUp)
	b.add(f.proc.fd(), readable)
	// Only a ticket that is still locked now can hang up later.
	_, err = l.Read(t.Name, false)
	return errors.Is(err, line.ErrDead)
}

// listen sets up the events that can change the verdict. armed tells that
// something is watched now that was not before, or that v is out of date.
func (r *request) listen(ctx context.Context, v *verdict) (armed bool, err error) {
	if r.ears == nil {
		if r.ears, err = newEars(ctx); err != nil {
			return false, err
		}
		// From here on a change counts; what it says of the past does not matter
		// as we look once more anyway.
		armed = r.want.Changed != nil && r.want.Changed()
	}
	e := r.ears
	e.partial = false
	if r.place != nil && !e.placed {
		e.bell.add(r.place.WakeFd(), readable)
		e.placed = true
	}
	if r.line != nil {
		armed = e.to(&e.follow, r.line, v.follow) || armed
		armed = e.to(&e.blocker, r.line, v.blocker) || armed
	}
	if v.watch {
		armed = r.watchSlots() || armed
	} else if v.guard {
		// What is missed while there is no watch, the first sees; a guard that
		// can have none is a follower like the others.
		_ = r.watchSlots()
		e.deaf = false
	} else if v.follow != nil {
		e.unwatch() // somebody of our kind stands before us now: it watches, we follow
		e.deaf = false
	}
	armed = e.watchOrphans(v.orphans) || armed
	v.blind = v.blind || e.partial
	return armed, nil
}

// watchSlots makes sure that the slots of our pools are watched where they are
// now, and tells whether they are so since just now, or not any more.
func (r *request) watchSlots() (armed bool) {
	e := r.ears
	if e.watch != nil && slices.Equal(e.dirs, r.dirs) {
		return false
	}
	e.unwatch()
	e.watch = r.openWatch()
	e.dirs = slices.Clone(r.dirs)
	if e.watch != nil {
		e.bell.add(e.watch.fd(), readable)
		e.deaf = false
		return true
	}
	// All of a user's inotify instances may be in use. Our ticket must say so.
	was := e.deaf
	e.deaf = true
	return !was
}

// openWatch watches every pool we want and the holds; nil when that cannot be
// had.
func (r *request) openWatch() *watch {
	w, err := newWatch()
	if err != nil {
		return nil
	}
	for _, p := range r.pools {
		if w.slots(r.at.Leases+"/"+p.Name) != nil {
			w.close()
			return nil
		}
	}
	w.holds(r.at.Holds)
	return w
}

// watchOrphans follows the agents whose end frees a slot. One that cannot be
// followed is left to the fallback poll.
func (e *ears) watchOrphans(now []orphan) (armed bool) {
	wanted := map[proc.Claim]bool{}
	for _, o := range now {
		wanted[o.Claim] = true
		if _, have := e.orphans[o.Claim]; have {
			continue
		}
		fd, err := openProcess(o.Claim)
		if err == nil {
			e.orphans[o.Claim] = fd
			e.bell.add(fd, readable)
		}
		armed = armed || err == nil || errors.Is(err, proc.ErrGone)
		e.partial = e.partial || err != nil
	}
	for claim, fd := range e.orphans {
		if !wanted[claim] {
			e.bell.remove(fd)
			unix.Close(fd)
			delete(e.orphans, claim)
		}
	}
	return armed
}

// sleep waits for an event, a deadline, or the fallback poll finding a reason
// to look again.
func (r *request) sleep(ctx context.Context, v verdict, left time.Duration) error {
	deadline := time.Now().Add(left)
	if v.again != 0 {
		deadline = earlier(deadline, time.Now().Add(v.again-machine.SinceBoot()))
	}
	if until := v.why.Until.Sub(machine.Now()); until > 0 { // one that is past is no time to wake at
		deadline = earlier(deadline, time.Now().Add(until))
	}
	for rounds := 1; ; rounds++ {
		rang, err := r.hear(earlier(deadline, time.Now().Add(r.fallback(v))), v.guard)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if r.ears.stirred { // the first of our kind heard it too: look when it has had its time
			r.ears.stirred = false
			deadline = earlier(deadline, time.Now().Add(guardDelay))
		}
		if rang || rounds == lookAnyway || !time.Now().Before(deadline) || !r.quiet(v) {
			return nil
		}
	}
}

// lookAnyway is after how many quiet polls a waiter looks all the same: should
// whoever watches for it be hung, it still comes to its turn.
const lookAnyway = 2

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// guardDelay is how long the next in line leaves an event to the first of its
// kind before it looks itself.
const guardDelay = 20 * time.Millisecond

// quietFactor stretches the poll of a waiter to whom the kernel reports all
// that matters: it then only looks for what has no event, a neighbour that was
// stopped or a cap that was changed.
const quietFactor = 8

// fallback is how long until the next look without an event. Those further
// back look less often: together they then cost no more than a few would.
func (r *request) fallback(v verdict) time.Duration {
	d := r.want.Poll
	if v.follow != nil {
		d *= time.Duration(max(v.ahead, 1))
	}
	if !r.ears.deaf && !v.blind {
		d *= quietFactor
	}
	return jittered(d)
}

// quiet tells whether nothing has changed that gives no event, without opening
// a file (S15).
func (r *request) quiet(v verdict) bool {
	e := r.ears
	if e.deaf || v.blind || v.checked || r.want.Changed != nil && r.want.Changed() {
		return false
	}
	return !e.follow.proc.stopped()
}

// hear sleeps until an event or the time.
// With guard, what the first of our kind hears as well does not ring: it only
// stirs.
func (r *request) hear(until time.Time, guard bool) (rang bool, err error) {
	e := r.ears
	ready, err := e.bell.wait(until)
	if len(ready) == 0 || err != nil {
		return false, err
	}
	for _, fd := range ready {
		rang = true
		switch {
		case r.place != nil && fd == r.place.WakeFd():
			r.place.Drain()
		case guard && e.watch != nil && fd == e.watch.fd():
			if _, lost := e.watch.read(); lost {
				e.unwatch()
			}
			rang, e.stirred = len(ready) > 1, true
		case e.watch != nil && fd == e.watch.fd():
			closed, lost := e.watch.read()
			if lost {
				e.unwatch() // a directory went away: another may have its place
			}
			r.awaitFree(closed)
		case fd == e.follow.fifo || fd == e.follow.proc.fd():
			e.follow.close(e.bell)
		case fd == e.blocker.fifo || fd == e.blocker.proc.fd():
			e.blocker.close(e.bell)
		default:
			e.dropOrphan(fd)
			if guard {
				rang, e.stirred = len(ready) > 1, true
			}
		}
	}
	return rang, nil
}

// dropOrphan forgets an agent that has ended.
func (e *ears) dropOrphan(ended int) {
	for claim, fd := range e.orphans {
		if fd == ended {
			e.bell.remove(fd)
			unix.Close(fd)
			delete(e.orphans, claim)
		}
	}
}

// awaitFree waits until the locks behind the closed files are gone: the kernel
// reports a close just before it drops the lock.
func (r *request) awaitFree(closed []slotFile) {
	nap := 50 * time.Microsecond
	for start := time.Now(); len(closed) > 0 && time.Since(start) < settleTries*2*time.Millisecond; {
		f := closed[0]
		pool, err := slot.Open(r.at.Leases, f.pool, false)
		if err != nil {
			closed = closed[1:]
			continue
		}
		locked := pool.Locked(f.index)
		pool.Close()
		if !locked {
			return // one free slot is enough to try again
		}
		if len(closed) > 1 {
			closed = append(closed[1:], f)
		}
		time.Sleep(nap)
		nap = min(2*nap, 2*time.Millisecond)
	}
}

// slotFile names a slot whose file somebody closed.
type slotFile struct {
	pool  string
	index int
}
