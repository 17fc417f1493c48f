//go:build unix

package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/machine"
	"golang.org/x/sys/unix"
)

const (
	// lockPatience bounds the wait for an admission lock (S10). Each is held
	// for well under a millisecond, so one that stays held belongs to a stopped process.
	lockPatience = 5 * time.Second

	// settleTries and settleNaps are how a count in doubt is repeated: up to 25
	// times over at least 50 ms (S7), quickly at first.
	settleTries = 25
	settleNap   = 2500 * time.Microsecond
	firstNap    = 100 * time.Microsecond
)

// request is one Acquire.
type request struct {
	at    Places
	want  Want
	named string // of our ticket, once it was asked for
	began time.Time

	line     *line.Line
	place    *line.Place
	pools    []Pool     // of the last look
	dirs     []flock.ID // of those pools
	last     Waiting    // why the last look did not admit us
	outside  bool       // the line cannot be written from here: we wait without a ticket
	told     Waiting
	toldOnce bool
	ears     *ears
	sole     *Answer // what we were let through for, if nobody else is
	turns    bool    // we have waited for a turn
}

type queue = *line.Line

// Acquire admits the start that want describes. It returns *Refused when the
// wait is over or would never end, the error of ctx when that ended first, and
// any other error when admission itself could not work; nothing is held then.
func Acquire(ctx context.Context, at Places, want Want) (*Lease, error) {
	r := &request{at: at, want: want, began: time.Now()}
	if r.want.Poll == 0 {
		r.want.Poll = DefaultPoll
	}
	if r.want.Patience == 0 {
		r.want.Patience = patience
	}
	l, err := r.run(ctx)
	if err != nil {
		r.close()
		return nil, err
	}
	l.waited, l.taken = time.Since(r.began), machine.Now()
	if l.Empty() {
		r.close() // nothing is counted any more: nobody waits behind us
		return l, nil
	}
	l.line, r.line = r.line, nil
	if r.ears == nil {
		r.close()
		return l, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after, l.unlist = r.close, r.place.Unlist
	l.soon = time.AfterFunc(settleBy, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.settle()
	})
	return l, nil
}

// name is that of our ticket, which is our order also while we have none. It is
// made when somebody else is there to be compared with.
func (r *request) name() string {
	if r.named != "" {
		return r.named
	}
	if r.want.Start == 0 {
		r.want.Start = machine.SinceBoot() - time.Since(r.began)
	}
	if r.want.ID == "" {
		r.want.ID = line.NewID()
	}
	r.named = line.Name(r.want.Start, r.want.Priority, line.Tagged(r.want.ID, wishes(r.pools)))
	return r.named
}

// wishes are pools as a ticket records them.
func wishes(pools []Pool) []line.Pool {
	all := make([]line.Pool, 0, len(pools))
	for _, p := range pools {
		all = append(all, line.Pool{Name: p.Name, Cap: p.Cap})
	}
	return all
}

// close gives back everything but the slots.
func (r *request) close() {
	r.leaveLine()
	if r.ears != nil {
		r.ears.close()
		r.ears = nil
	}
	if r.line != nil {
		r.line.Close()
		r.line = nil
	}
}

// leaveLine gives up our place and, with it, whomever we follow.
func (r *request) leaveLine() {
	if r.ears != nil {
		r.ears.unplace(r.place)
	}
	if r.place != nil {
		r.place.Leave()
		r.place = nil
	}
}

// run tries until it is admitted, refused or interrupted. Ticket and watch
// exist before the count whose refusal is waited on (S16), so no event between
// a count and the sleep after it is missed.
func (r *request) run(ctx context.Context) (*Lease, error) {
	for {
		v, err := r.try(ctx)
		if err != nil {
			return nil, err
		}
		if v.lease != nil {
			return v.lease, nil
		}
		left := r.want.Wait - time.Since(r.began)
		if v.final || left <= 0 {
			return nil, r.refuse(v)
		}
		armed, err := r.listen(ctx, &v)
		if err != nil {
			return nil, err
		}
		if armed {
			continue // something new is being watched: count once more before sleeping
		}
		r.tell(v.why)
		if err := r.sleep(ctx, v, left); err != nil {
			return nil, err
		}
	}
}

// verdict is what one try came to.
type verdict struct {
	lease    *Lease
	why      Waiting
	final    bool
	doubtful bool

	watch   bool          // we watch slots ourselves, being first of our kind
	guard   bool          // we are the next of our kind, and look after the first
	follow  *line.Ticket  // else the one of our kind before us, whose leaving wakes us
	blocker *line.Ticket  // the ticket ahead that may take what is free
	again   time.Duration // CLOCK_BOOTTIME at which to look again; 0 = no such time
	orphans []orphan      // agents without a holder, whose end frees a slot
	blind   bool          // something that matters gives no event
	checked bool          // a check stops us, not the pools
	turn    string        // that the check says is not ours yet
	ahead   int           // tickets before ours
}

// try asks the check and then the pools, until the answer is not in doubt.
func (r *request) try(ctx context.Context) (verdict, error) {
	pools, err := r.want.Pools()
	if err != nil {
		return verdict{}, err
	}
	slices.SortFunc(pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	r.pools = pools
	held, stop, err := r.checked()
	if err != nil {
		return verdict{}, err
	}
	if stop {
		if len(pools) > 0 && !held.final && r.want.Wait > 0 {
			err = r.park(ctx, pools, held)
		}
		return held, err
	}
	if len(pools) == 0 {
		return verdict{lease: &Lease{}}, nil
	}
	nap := firstNap
	for tries := 1; ; tries++ {
		v, err := r.attempt(ctx, pools, tries >= settleTries)
		if err != nil || !v.doubtful || tries >= settleTries {
			return v, err
		}
		if err := pause(ctx, nap); err != nil {
			return verdict{}, err
		}
		nap = min(2*nap, settleNap)
	}
}

// checked asks the admission check.
func (r *request) checked() (v verdict, stop bool, err error) {
	r.sole = nil
	if r.want.Check == nil {
		return verdict{}, false, nil
	}
	a := r.want.Check()
	switch {
	case a.Err != nil:
		return verdict{}, false, a.Err
	case a.Sole:
		r.sole = &a
	case a.stops():
		r.turns = r.turns || a.Turn != ""
		return stopped(a), true, nil
	}
	return verdict{}, false, nil
}

// stopped is the verdict of a check that says no.
func stopped(a Answer) verdict {
	v := verdict{
		why:   Waiting{Class: a.Class, Code: a.Code, Message: a.Message, Until: a.Until, Deny: a.Deny},
		final: a.Deny, watch: true, checked: true, turn: a.Turn,
	}
	now := machine.SinceBoot()
	if a.Again > 0 {
		v.again = now + jittered(a.Again)
	}
	// Its end may come before we sleep, and is then no event any more.
	if end := a.Until.Sub(machine.Now()); end > 0 && (v.again == 0 || now+end < v.again) {
		v.again = now + end
	}
	return v
}

// attempt is one admission: under the line's lock and then those of all its
// pools in name order it counts every pool and takes one slot in each when all
// have room and nobody ahead is passed over, else none (S10, S16).
func (r *request) attempt(ctx context.Context, pools []Pool, lastTry bool) (verdict, error) {
	a, err := r.enter(ctx, pools)
	if stuck := new(Refused); r.place != nil && errors.As(err, &stuck) {
		// Whoever stands in line keeps the place until the stopped one goes on,
		// which nobody tells us.
		v := verdict{why: stuck.Waiting, watch: true, blind: true}
		if r.lockWait() < lockPatience {
			v.why = r.last // it was not the lock that used up our time
		}
		return v, nil
	}
	if err != nil {
		return verdict{}, err
	}
	defer a.leave()
	if err := a.count(); err != nil {
		return verdict{}, err
	}
	v, err := a.judge(lastTry)
	if err != nil || v.final || v.doubtful {
		return v, err
	}
	if v.why.Code == "" {
		if r.sole == nil {
			return a.take(v)
		}
		// Whoever else was let through as well waits for the line's lock, and will
		// find us here.
		alone, err := Alone(r.at, r.want.Workload == GateWorkload)
		if err != nil {
			return verdict{}, err
		}
		if alone {
			return a.take(v)
		}
		v = stopped(*r.sole)
		if r.want.Wait > 0 {
			err = r.standAside(a, v)
		}
		return v, err
	}
	r.last = v.why
	if r.want.Wait > 0 {
		err = r.stand(a, nil)
	}
	return v, err
}

// stand makes sure that we have a ticket and that it says what is true now.
// The line's lock is held.
func (r *request) stand(a *admission, parked *line.Parked) error {
	if r.outside {
		return nil
	}
	name, rec := r.name(), r.ticket(a, parked)
	if r.place != nil {
		if err := r.place.Acted(); err != nil {
			return err
		}
		if sameTicket(r.place.Record(), rec) {
			return nil
		}
		return r.place.Amend(rec)
	}
	place, err := r.line.Stand(name, rec)
	if readOnly(err) {
		r.outside = true
		return nil
	}
	r.place = place
	return err
}

// readOnly tells whether err says that we may not write there: a confined
// process waits without a place in line rather than not at all.
func readOnly(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

func (r *request) ticket(a *admission, parked *line.Parked) line.Record {
	me := self()
	rec := line.Record{
		V: 1, Start: int64(r.want.Start), Priority: r.want.Priority, Boot: me.Boot, Pid: me.Pid, Ticks: me.Ticks, NS: me.NS,
		Run: r.want.Run, Engine: r.want.Engine, Workload: r.want.Workload, Since: machine.Now().UTC().Truncate(time.Millisecond),
		Parked: parked, For: a.forRuns(), Deaf: r.ears != nil && r.ears.deaf, Pools: wishes(a.pools),
	}
	if r.place != nil {
		rec.Since = r.place.Record().Since
	}
	return rec
}

func sameTicket(a, b line.Record) bool {
	if len(a.Pools) != len(b.Pools) || a.Deaf != b.Deaf || len(a.For) != len(b.For) {
		return false
	}
	for i := range a.Pools {
		if a.Pools[i] != b.Pools[i] {
			return false
		}
	}
	return sameParked(a.Parked, b.Parked)
}

func sameParked(a, b *line.Parked) bool {
	if a == nil || b == nil {
		return a == b
	}
	var until [2]time.Time
	for i, p := range []*line.Parked{a, b} {
		if p.Until != nil {
			until[i] = *p.Until
		}
	}
	return a.Code == b.Code && a.Turn == b.Turn && sameTime(until[0], until[1])
}

// sameTime tells whether two answers mean the same end: who asks again reckons
// it from another now.
func sameTime(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() == b.IsZero()
	}
	return a.Sub(b).Abs() < 2*time.Second
}

// park keeps our place while a check other than pools stops us, and lets those
// behind go on.
func (r *request) park(ctx context.Context, pools []Pool, v verdict) error {
	if r.parked(v, pools) {
		return nil
	}
	a, err := r.enter(ctx, pools)
	if stuck := new(Refused); r.place != nil && errors.As(err, &stuck) {
		return nil // our place stays, as it is
	}
	if err != nil {
		return err
	}
	defer a.leave()
	return r.standAside(a, v)
}

// standAside is stand for one whom a check stops, under the line's lock.
func (r *request) standAside(a *admission, v verdict) error {
	fresh := r.place == nil || r.place.Record().Parked == nil
	if err := r.stand(a, parkedFor(v)); err != nil {
		return err
	}
	if fresh {
		wakeNext(r.line, names(a.pools)) // some may follow us
	}
	return nil
}

func parkedFor(v verdict) *line.Parked {
	parked := &line.Parked{Code: v.why.Code, Turn: v.turn}
	if !v.why.Until.IsZero() {
		parked.Until = &v.why.Until
	}
	return parked
}

// parked tells whether our ticket says so already: a check that is asked every
// second needs no lock for that. One that waits for its turn has to say each time
// that it has looked: its turn may have been kept for it.
func (r *request) parked(v verdict, pools []Pool) bool {
	if r.place == nil || v.turn != "" {
		return false
	}
	rec := r.place.Record()
	return rec.Parked != nil && sameParked(rec.Parked, parkedFor(v)) && slices.Equal(rec.Pools, wishes(pools))
}

// refuse turns the last verdict into the refusal.
func (r *request) refuse(v verdict) error {
	v.why.Waited = time.Since(r.began)
	return &Refused{Waiting: v.why, Engine: r.want.Engine, Workload: r.want.Workload, Gate: r.want.Workload == GateWorkload}
}

// tell passes on the reason for the wait when it is new.
func (r *request) tell(why Waiting) {
	if r.want.OnWait == nil {
		return
	}
	same := why.Code == r.told.Code && why.Pool == r.told.Pool && why.Cap == r.told.Cap &&
		why.Place == r.told.Place && sameTime(why.Until, r.told.Until) && len(why.Holders) == len(r.told.Holders)
	for i := 0; same && i < len(why.Holders); i++ {
		same = why.Holders[i] == r.told.Holders[i]
	}
	if same && r.toldOnce {
		return
	}
	r.told, r.toldOnce = why, true
	why.Waited = time.Since(r.began)
	r.want.OnWait(why)
}

// lockWait bounds the wait for one lock. Whoever stands in line already need
// not wait for it longer than the wait for admission lasts.
func (r *request) lockWait() time.Duration {
	if r.place == nil {
		return lockPatience
	}
	left := r.want.Wait - time.Since(r.began)
	return min(lockPatience, max(left, time.Second))
}

// pause waits out a nap between two looks at something that is changing now.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// jittered is d ± 25 %, so that two waiters that met do not meet again.
func jittered(d time.Duration) time.Duration {
	return d - d/4 + time.Duration(rand.Int64N(int64(d)/2+1))
}

func names(pools []Pool) []string {
	var all []string
	for _, p := range pools {
		all = append(all, p.Name)
	}
	return all
}

// stuck is the refusal for an admission lock that did not come free: it names
// the stopped process that holds it (S10).
func (r *request) stuck(what string, f *flock.File) error {
	text := fmt.Sprintf("the %s has not come free for %v", what, r.lockWait().Round(time.Millisecond))
	if pids := f.Owners(); len(pids) > 0 {
		text += fmt.Sprintf("; it is held by pid %d", pids[0])
		if stoppedPid(pids[0]) {
			text += ", which is stopped"
		}
	}
	return &Refused{
		Waiting: Waiting{Code: LockStuck, Message: text, Waited: time.Since(r.began)},
		Engine:  r.want.Engine, Workload: r.want.Workload, Gate: r.want.Workload == GateWorkload,
	}
}

// Prepare makes the files of pools that confined processes will want to lock:
// they can open and lock them, but not create them (S1).
func Prepare(at Places, pools []Pool) error {
	if len(pools) == 0 {
		return nil
	}
	l, err := line.Open(at.Waiting, true)
	if err != nil {
		return err
	}
	defer l.Close()
	for _, p := range pools {
		if err := preparePool(at.Leases, p); err != nil {
			return err
		}
	}
	return nil
}
