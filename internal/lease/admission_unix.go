//go:build unix

package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/slot"
)

const (
	// patience is how long an admissible ticket may leave its turn unused
	// before it blocks nobody (S16).
	patience = 250 * time.Millisecond

	// passesAllowed is how often a ticket may be passed before the last free
	// slot in each of its pools is left for it (S16).
	passesAllowed = 16
)

var self = sync.OnceValue(proc.Self)

// ancestry is the parents of this process as they were at its first admission.
var ancestry = sync.OnceValue(func() map[int]proc.Stat {
	all := map[int]proc.Stat{}
	for _, st := range proc.Ancestors(os.Getpid()) {
		all[st.Pid] = st
	}
	return all
})

// admission is one look at line and pools, with all their locks held.
type admission struct {
	r      *request
	pools  []Pool
	open   []*slot.Pool
	locks  []*flock.File // the line's, then each pool's
	counts []slot.Count  // of pools, in their order

	company bool                  // somebody stands in line
	others  map[string]slot.Count // pools of tickets that are not ours, as far as they were asked for
	tickets map[string]*line.Ticket
}

// enter takes the line's lock and then the pools', in name order.
func (r *request) enter(ctx context.Context, pools []Pool) (*admission, error) {
	if r.line == nil {
		l, err := line.Open(r.at.Waiting, true)
		if err != nil {
			return nil, err
		}
		r.line = l
	}
	a := &admission{r: r, pools: pools}
	if err := a.lockAll(ctx); err != nil {
		a.leave()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return a, nil
}

func (a *admission) lockAll(ctx context.Context) error {
	f, err := a.r.line.Lock(ctx, lockPatience)
	if f != nil {
		a.locks = append(a.locks, f)
	}
	if err != nil {
		return a.r.lockError("lock of the line", f, err)
	}
	for _, p := range a.pools {
		pool, err := slot.Open(a.r.at.Leases, p.Name, true)
		if err != nil {
			return err
		}
		a.open = append(a.open, pool)
		f, err := pool.Dir().Open(slot.AdmissionLock, flock.Pass)
		if err != nil {
			return fmt.Errorf("pool %q: %w", p.Name, err)
		}
		a.locks = append(a.locks, f)
		if err := f.Lock(ctx, lockPatience); err != nil {
			return a.r.lockError(fmt.Sprintf("admission lock of pool %q", p.Name), f, err)
		}
	}
	return nil
}

func (r *request) lockError(what string, f *flock.File, err error) error {
	if f != nil && errors.Is(err, context.DeadlineExceeded) {
		return r.stuck(what, f)
	}
	return err
}

func stoppedPid(pid int) bool {
	st, err := proc.ReadStat(pid)
	return err == nil && st.Stopped()
}

// leave drops every lock, the line's last.
func (a *admission) leave() {
	for i := len(a.locks) - 1; i >= 0; i-- {
		a.locks[i].Close()
	}
	for _, p := range a.open {
		p.Close()
	}
	a.locks, a.open = nil, nil
}

func (a *admission) count() error {
	for _, p := range a.open {
		c, err := p.Count()
		if err != nil {
			return err
		}
		a.counts = append(a.counts, c)
	}
	return nil
}

// judge decides whether we may take a slot in every pool now. With lastTry,
// doubts are no longer waited out: a slot without a record counts as held and
// has no cap.
func (a *admission) judge(lastTry bool) (verdict, error) {
	names, err := a.r.line.Names()
	if err != nil {
		return verdict{}, err
	}
	v := verdict{ahead: a.before(names)}
	a.company = len(names) > 0
	if full := a.firstFull(); full >= 0 {
		v.why = a.fullPool(full)
		v.why.Place = v.ahead + 1
		if a.inDoubt(full) && !lastTry {
			v.doubtful = true
			return v, nil
		}
		if a.ownAncestors(full, names) {
			v.why.Code, v.final = OwnAncestors, true
			return v, nil
		}
	} else if a.anyDoubt() && !lastTry {
		v.doubtful = true
		return v, nil
	} else if err := a.judgeLine(names[:v.ahead], &v); err != nil {
		return v, err
	}
	if v.why.Code != "" {
		sec, nsec := a.r.line.Changed()
		a.r.marks = lineMark{sec, nsec}
		a.seeOrphans(&v)
		err = a.chooseRole(names[:v.ahead], &v)
	}
	return v, err
}

// before is how many of the names stand before ours.
func (a *admission) before(names []string) int {
	if len(names) == 0 {
		return 0
	}
	n, _ := slices.BinarySearch(names, a.r.name())
	return n
}

func (a *admission) firstFull() int {
	for i := range a.counts {
		if a.counts[i].Full(a.pools[i].Cap) {
			return i
		}
	}
	return -1
}

// inDoubt tells whether pool i may turn out not to be full.
func (a *admission) inDoubt(i int) bool {
	c := &a.counts[i]
	return c.Held-c.Doubts-c.Leaving() < c.Limit(a.pools[i].Cap)
}

// anyDoubt tells whether a cap that could not be read may stand against taking.
func (a *admission) anyDoubt() bool {
	return slices.ContainsFunc(a.counts, func(c slot.Count) bool { return c.Doubts > 0 })
}

func (a *admission) fullPool(i int) Waiting {
	c, p := &a.counts[i], a.pools[i]
	w := Waiting{Code: PoolFull, Pool: p.Name, Cap: c.Limit(p.Cap), CapFrom: p.CapFrom}
	for _, s := range c.Slots {
		w.Holders = append(w.Holders, HolderOf(p.Name, s))
	}
	if w.Cap != p.Cap {
		w.CapFrom = "the cap that a holder read"
		for _, s := range c.Slots {
			if s.State == slot.Held && s.Record() != nil && s.Record().Cap == w.Cap {
				w.CapFrom = "as pid " + strconv.Itoa(s.Record().HolderPid) + " read it"
				break
			}
		}
	}
	return w
}

// orphan is an agent that outlived its holder.
type orphan struct{ proc.Claim }

func (a *admission) seeOrphans(v *verdict) {
	for _, c := range a.counts {
		for _, s := range c.Slots {
			switch {
			case s.State == slot.Orphaned:
				child, _ := s.Record().Child()
				v.orphans = append(v.orphans, orphan{child})
			case s.State == slot.Unverifiable, s.Blank():
				v.blind = true
			}
		}
	}
}

// ticket reads one ticket, at most once per look. nil when its owner is gone.
func (a *admission) ticket(name string) (*line.Ticket, error) {
	if t, ok := a.tickets[name]; ok {
		return t, nil
	}
	t, err := a.r.line.Read(name, true)
	if err != nil && !errors.Is(err, line.ErrDead) {
		var odd *flock.Untrusted
		if !errors.As(err, &odd) {
			return nil, err
		}
		t = nil // something planted in the line holds nobody up
	}
	if a.tickets == nil {
		a.tickets = map[string]*line.Ticket{}
	}
	a.tickets[name] = t
	return t, nil
}

// judgeLine asks, in the order of the line, whether anybody ahead must not be
// passed (S16).
func (a *admission) judgeLine(ahead []string, v *verdict) error {
	var passed []*line.Ticket
	for _, name := range ahead {
		t, err := a.ticket(name)
		if err != nil {
			return err
		}
		if t == nil || !a.shares(t) || t.Parked != nil {
			continue
		}
		if !a.admissible(t, false) {
			a.unmark(t)
			passed = append(passed, t)
			continue
		}
		if blocked := a.blockedBy(t, v); blocked {
			return nil
		}
	}
	for _, t := range passed {
		if pool := a.reserved(t); pool != "" && !t.Stopped() {
			v.why = a.inLine(pool, fmt.Sprintf("its last free slot is left for pid %d, which was passed %d times", t.Pid, t.Passes), v)
			v.blocker = t
			return nil
		}
	}
	a.tickets = keep(a.tickets, passed)
	return nil
}

// keep narrows the tickets that were read to those that an admission now
// passes.
func keep(all map[string]*line.Ticket, passed []*line.Ticket) map[string]*line.Ticket {
	if len(passed) == 0 {
		return nil
	}
	kept := map[string]*line.Ticket{}
	for _, t := range passed {
		kept[t.Name] = all[t.Name]
	}
	return kept
}

// blockedBy tells whether the admissible ticket t holds us up, and notes since
// when it is admissible.
func (a *admission) blockedBy(t *line.Ticket, v *verdict) bool {
	now := machine.SinceBoot()
	if t.Admissible != 0 && now-t.Admissible > a.r.want.Patience || t.Stopped() {
		return false
	}
	if t.Admissible == 0 {
		t.Admissible = now
		a.r.line.Mark(t)
	}
	v.why = a.inLine(a.shared(t), fmt.Sprintf("pid %d is before us in line", t.Pid), v)
	v.blocker, v.again = t, t.Admissible+a.r.want.Patience+time.Millisecond
	return true
}

func (a *admission) unmark(t *line.Ticket) {
	if t.Admissible != 0 {
		t.Admissible = 0
		a.r.line.Mark(t)
	}
}

func (a *admission) inLine(pool, text string, v *verdict) Waiting {
	w := Waiting{Code: InLine, Pool: pool, Message: text, Place: v.ahead + 1}
	for i, p := range a.pools {
		if p.Name == pool {
			w.Cap, w.CapFrom = a.counts[i].Limit(p.Cap), p.CapFrom
		}
	}
	return w
}

func (a *admission) shares(t *line.Ticket) bool { return a.shared(t) != "" }

// shared is the first pool that t and we both want.
func (a *admission) shared(t *line.Ticket) string {
	for _, p := range t.Pools {
		if a.index(p.Name) >= 0 {
			return p.Name
		}
	}
	return ""
}

func (a *admission) index(pool string) int {
	return slices.IndexFunc(a.pools, func(p Pool) bool { return p.Name == pool })
}

// admissible tells whether t could be admitted now by what it recorded; with
// ourCaps, by what we read for the pools that are ours too.
func (a *admission) admissible(t *line.Ticket, ourCaps bool) bool {
	for _, p := range t.Pools {
		own := p.Cap
		c := a.otherCount(p.Name)
		if i := a.index(p.Name); i >= 0 {
			c = a.counts[i]
			if ourCaps {
				own = a.pools[i].Cap
			}
		}
		if c.Full(own) {
			return false
		}
	}
	return true
}

// otherCount counts a pool that is not ours; one that cannot be counted reads
// empty, so that its ticket keeps its turn until the time to act has passed.
func (a *admission) otherCount(pool string) slot.Count {
	if a.index(pool) >= 0 {
		return slot.Count{}
	}
	if c, ok := a.others[pool]; ok {
		return c
	}
	var c slot.Count
	if p, err := slot.Open(a.r.at.Leases, pool, false); err == nil {
		c, _ = p.Count()
		p.Close()
	}
	if a.others == nil {
		a.others = map[string]slot.Count{}
	}
	a.others[pool] = c
	return c
}

// reserved names the pool whose last free slot is left for t, or "". A ticket
// that only its own smaller cap holds back reserves nothing.
func (a *admission) reserved(t *line.Ticket) string {
	if t.Passes < passesAllowed || a.admissible(t, true) {
		return ""
	}
	for _, p := range t.Pools {
		if i := a.index(p.Name); i >= 0 {
			if limit := a.counts[i].Limit(a.pools[i].Cap); limit != 0 && limit-a.counts[i].Held <= 1 {
				return p.Name
			}
		}
	}
	return ""
}

// chooseRole finds whom to wait behind: the nearest ticket of our pools whose
// owner is admissible whenever we are. Without one we watch the slots.
func (a *admission) chooseRole(ahead []string, v *verdict) error {
	for _, name := range slices.Backward(ahead) {
		t, err := a.ticket(name)
		if err != nil {
			return err
		}
		if t != nil && t.Parked == nil && a.sameKind(t) && !t.Stopped() {
			v.follow = t
			return nil
		}
	}
	v.watch = true
	return nil
}

func (a *admission) sameKind(t *line.Ticket) bool {
	if len(t.Pools) != len(a.pools) {
		return false
	}
	for i, p := range t.Pools {
		ours := a.pools[i]
		if p.Name != ours.Name || p.Cap != 0 && (ours.Cap == 0 || p.Cap < ours.Cap) {
			return false
		}
	}
	return true
}

// ownAncestors tells whether waiting for pool i would be waiting for
// ourselves: every slot is held for one of our ancestors, or by an agent that
// itself stands in line for a child (S13).
func (a *admission) ownAncestors(i int, names []string) bool {
	waiting := map[string]bool{}
	ours, others := 0, 0
	for _, s := range a.counts[i].Slots {
		if s.Record() == nil {
			return false
		}
		if forAncestor(s.Record()) {
			ours++
		} else {
			others++
		}
	}
	if ours == 0 {
		return false
	}
	if others > 0 {
		for _, name := range names {
			t, err := a.ticket(name)
			if err != nil || t == nil || name == a.r.name() {
				continue
			}
			for _, run := range t.For {
				waiting[run] = true
			}
		}
	}
	for _, s := range a.counts[i].Slots {
		if !forAncestor(s.Record()) && !waiting[runKey(s.Record())] {
			return false
		}
	}
	return true
}

// forAncestor tells whether a slot is held for one of our ancestors: its agent
// is one, or, before the agent exists, its holder is.
func forAncestor(rec *slot.Record) bool {
	claim, named := rec.Child()
	if !named {
		claim = rec.Holder()
	}
	if claim.NS != 0 && claim.NS != machine.PidNS() {
		return false
	}
	st, ok := ancestry()[claim.Pid]
	switch {
	case !ok:
		return false
	case claim.Ticks != 0:
		return st.Ticks == claim.Ticks
	case claim.Started != 0:
		return math.Abs(st.ID().StartedEpoch()-claim.Started) <= 2
	}
	return true
}

// runKey names the agent of a slot: by its run, or by its process where
// another implementation recorded no run.
func runKey(rec *slot.Record) string {
	if rec.Run != "" {
		return rec.Run
	}
	claim, _ := rec.Child()
	return fmt.Sprintf("pid %d of %.2f", claim.Pid, claim.Started)
}

// forRuns lists the agents above us that hold slots in our pools.
func (a *admission) forRuns() []string {
	var runs []string
	for _, c := range a.counts {
		for _, s := range c.Slots {
			if s.Record() == nil || !forAncestor(s.Record()) {
				continue
			}
			if key := runKey(s.Record()); !slices.Contains(runs, key) && len(runs) < 16 {
				runs = append(runs, key)
			}
		}
	}
	return runs
}

// take takes one slot in every pool, or none.
func (a *admission) take(v verdict) (verdict, error) {
	l := &Lease{}
	for i, p := range a.open {
		h, err := a.takeOne(p, i)
		if err != nil {
			err = errors.Join(err, l.dropAll())
			if errors.Is(err, flock.ErrHeld) {
				v.doubtful = true // counted free and found locked: look again (S7)
				v.why = a.inLine(p.Name, "a slot of it is just changing hands", &v)
				return v, nil
			}
			return v, err
		}
		l.slots = append(l.slots, h)
	}
	for _, t := range a.tickets {
		if t != nil {
			t.Passes++
			a.r.line.Mark(t)
		}
	}
	if a.r.place != nil {
		a.r.place.Unlist()
	}
	l.company = a.company
	l.mark.sec, l.mark.nsec = a.r.line.Changed()
	if a.company {
		wakeNext(a.r.line, names(a.pools), a.r.name())
	}
	v.lease = l
	return v, nil
}

func (l *Lease) dropAll() error {
	var errs []error
	for _, h := range l.slots {
		errs = append(errs, h.Release())
	}
	l.slots = nil
	return errors.Join(errs...)
}

func (a *admission) takeOne(p *slot.Pool, i int) (*slot.Hold, error) {
	h, err := p.Take(a.counts[i].Free, a.record(a.pools[i]))
	if err == nil || a.r.want.Workload != GateWorkload || !cannotWrite(err) {
		return h, err
	}
	// Confined to reading: the files were made beforehand, and a lock needs no
	// writing (S1).
	for index := range max(a.pools[i].Cap, a.counts[i].Free+1) {
		if slices.ContainsFunc(a.counts[i].Slots, func(s slot.Seen) bool { return s.Index == index }) {
			continue
		}
		h, err := p.TakeReadOnly(index)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return h, err
		}
	}
	return nil, err
}

func cannotWrite(err error) bool {
	var odd *flock.Untrusted
	return readOnly(err) || errors.As(err, &odd)
}

func (a *admission) record(p Pool) slot.Record {
	me := self()
	return slot.Record{
		Cap: p.Cap, Engine: a.r.want.Engine, Workload: a.r.want.Workload, Run: a.r.want.Run, Argv0: a.r.want.Argv0,
		HolderPid: me.Pid, HolderTicks: me.Ticks, BootID: me.Boot, PidNS: me.NS,
		Since: float64(machine.Now().UnixMilli()) / 1000,
	}
}

// advance wakes those in line for the pools who would not notice by
// themselves that a slot came free.
func (l *Lease) advance(pools []string) {
	if l.line == nil {
		return
	}
	if sec, nsec := l.line.Changed(); l.company || (lineMark{sec, nsec}) != l.mark {
		wakeNext(l.line, pools, "")
	}
	l.line.Close()
	l.line = nil
}

// lookAhead bounds how many tickets one release looks at.
const lookAhead = 64

// wakeNext wakes the first of each kind in line for one of the pools, if it
// stands behind a stopped one that will not act, or watches nothing itself.
func wakeNext(l *line.Line, pools []string, except string) {
	names, err := l.Names()
	if err != nil {
		return
	}
	done := map[string]bool{}    // kinds whose first was found
	stopped := map[string]bool{} // kinds with a stopped one before it
	for i, name := range names {
		if i == lookAhead {
			return
		}
		if name == except {
			continue
		}
		t, err := l.Read(name, false)
		if err != nil || t.Parked != nil || !wantsAny(t, pools) {
			continue
		}
		kind := kindOf(t)
		switch {
		case done[kind]:
		case t.Stopped():
			stopped[kind] = true
		default:
			done[kind] = true
			if stopped[kind] || t.Deaf {
				l.Wake(name)
			}
		}
	}
}

func wantsAny(t *line.Ticket, pools []string) bool {
	return slices.ContainsFunc(t.Pools, func(p line.Pool) bool { return slices.Contains(pools, p.Name) })
}

func kindOf(t *line.Ticket) string { return fmt.Sprint(t.Pools) }

func preparePool(leases string, p Pool) error {
	pool, err := slot.Open(leases, p.Name, true)
	if err != nil {
		return err
	}
	defer pool.Close()
	if f, err := pool.Dir().Open(slot.AdmissionLock, flock.Pass); err != nil {
		return err
	} else {
		f.Close()
	}
	for i := range p.Cap {
		f, err := pool.Dir().Open(strconv.Itoa(i)+".lock", flock.Pass)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}
