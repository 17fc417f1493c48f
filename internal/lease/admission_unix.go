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

// ancestry is this process and its parents as they were at its first admission.
var ancestry = sync.OnceValue(func() map[int]proc.Stat {
	all := map[int]proc.Stat{}
	if st, err := proc.ReadStat(os.Getpid()); err == nil {
		all[st.Pid] = st
	}
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
	counts []slot.Count  // of pools, in their order; good until leave
	space  *[]slot.Count

	company bool                  // somebody stands in line
	others  map[string]slot.Count // pools of tickets that are not ours, as far as they were asked for
	tickets map[string]*line.Ticket
}

// enter takes the line's lock and then the pools', in name order.
func (r *request) enter(ctx context.Context, pools []Pool) (*admission, error) {
	a := &admission{r: r, pools: pools}
	if err := a.lockAll(ctx); err != nil {
		a.leave()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	r.dirs = r.dirs[:0]
	for _, p := range a.open {
		r.dirs = append(r.dirs, p.Dir().ID())
	}
	return a, nil
}

// replacedTries bounds the race against somebody who keeps removing what we
// lock.
const replacedTries = 20

// gone tells whether err says that a file or directory was removed or replaced
// by hand while we used it.
func gone(err error) bool {
	return errors.Is(err, flock.ErrReplaced) || errors.Is(err, fs.ErrNotExist)
}

func (a *admission) lockAll(ctx context.Context) error {
	if err := a.insist(func() error { return a.lockLine(ctx) }); err != nil {
		return err
	}
	for _, p := range a.pools {
		if err := a.insist(func() error { return a.lockPool(ctx, p) }); err != nil {
			return err
		}
	}
	return nil
}

// insist takes a lock again when its path did not name it any more once it was
// had: two that hold different files would each think to be alone (S5).
func (a *admission) insist(lock func() error) error {
	for tries := 1; ; tries++ {
		err := lock()
		if !gone(err) || tries == replacedTries {
			return err
		}
	}
}

func (a *admission) lockLine(ctx context.Context) error {
	r := a.r
	fresh := r.line == nil
	if fresh {
		l, err := line.Open(r.at.Waiting, true)
		if err != nil {
			return err
		}
		r.line = l
	}
	f, err := r.line.Lock(ctx, r.lockWait())
	if err == nil && !fresh {
		err = f.Check() // the directory may have been moved away since we opened it
	}
	if err == nil {
		a.locks = append(a.locks, f)
		return nil
	}
	err = r.lockError("lock of the line", f, err)
	if f != nil {
		f.Close()
	}
	if gone(err) && !r.line.Current() {
		// The whole directory is another one now, and our place is not in it.
		r.leaveLine()
		r.line.Close()
		r.line = nil
	}
	return err
}

func (a *admission) lockPool(ctx context.Context, p Pool) error {
	pool, err := slot.Open(a.r.at.Leases, p.Name, true)
	if err != nil {
		return err
	}
	f, err := pool.Dir().Pass(ctx, slot.AdmissionLock, a.r.lockWait())
	if err != nil {
		err = a.r.lockError(fmt.Sprintf("admission lock of pool %q", p.Name), f, fmt.Errorf("pool %q: %w", p.Name, err))
		if f != nil {
			f.Close()
		}
		pool.Close()
		return err
	}
	a.open, a.locks = append(a.open, pool), append(a.locks, f)
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
	if a.space != nil {
		countSpace.Put(a.space)
		a.space, a.counts = nil, nil
	}
}

// countSpace keeps what counting needs, from one look to the next.
var countSpace = sync.Pool{New: func() any { return new([]slot.Count) }}

func (a *admission) count() error {
	a.space = countSpace.Get().(*[]slot.Count)
	for len(*a.space) < len(a.open) {
		*a.space = append(*a.space, slot.Count{})
	}
	a.counts = (*a.space)[:len(a.open)]
	for i, p := range a.open {
		if err := p.CountInto(&a.counts[i]); err != nil {
			return err
		}
		for _, stale := range a.counts[i].Stale {
			p.Wipe(stale)
		}
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
	a.r.line.Tidy()
	v := verdict{ahead: a.before(names)}
	a.company = len(names) > 0
	if full := a.firstFull(); full >= 0 {
		v.why = a.fullPool(full)
		v.why.Place = v.ahead + 1
		if !lastTry && a.counts[full].Doubtful(a.pools[full].Cap) {
			v.doubtful = true
			return v, nil
		}
		for i := full; i < len(a.counts); i++ {
			if a.counts[i].Full(a.pools[i].Cap) && a.ownAncestors(i, names) {
				v.why = a.fullPool(i)
				v.why.Code, v.final = OwnAncestors, true
				return v, nil
			}
		}
	} else if a.anyDoubt() && !lastTry {
		v.doubtful = true
		return v, nil
	} else if err := a.judgeLine(names[:v.ahead], lastTry, &v); err != nil || v.doubtful {
		return v, err
	}
	if v.why.Code != "" && a.r.want.Wait > 0 {
		if err = a.chooseRole(names[:v.ahead], &v); v.watch || v.guard {
			a.seeOrphans(&v)
		}
	}
	return v, err
}

// before is how many of the names stand before ours. If our own is missing,
// somebody removed our ticket, and we will need another.
func (a *admission) before(names []string) int {
	if len(names) == 0 && a.r.place == nil {
		return 0
	}
	n, found := slices.BinarySearch(names, a.r.name())
	if !found && a.r.place != nil {
		a.r.leaveLine()
	}
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

// anyDoubt tells whether a cap that could not be read may stand against taking.
func (a *admission) anyDoubt() bool {
	return slices.ContainsFunc(a.counts, func(c slot.Count) bool { return c.Doubts > 0 })
}

func (a *admission) fullPool(i int) Waiting {
	c, p := &a.counts[i], a.pools[i]
	w := Waiting{Code: PoolFull, Pool: p.Name, Cap: c.Limit(p.Cap), CapFrom: p.CapFrom}
	w.Holders = make([]Holder, 0, len(c.Slots))
	for _, s := range c.Slots {
		w.Holders = append(w.Holders, HolderOf(p.Name, s))
	}
	if w.Cap != p.Cap {
		w.CapFrom = "the cap that a holder read"
		if pid := c.Strictest(); pid != 0 {
			w.CapFrom = "as pid " + strconv.Itoa(pid) + " read it"
		}
	}
	return w
}

// orphan is an agent that outlived its holder.
type orphan struct{ proc.Claim }

func (a *admission) seeOrphans(v *verdict) {
	for _, c := range a.counts {
		for i := range c.Slots {
			switch s := &c.Slots[i]; {
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
func (a *admission) judgeLine(ahead []string, lastTry bool, v *verdict) error {
	var passed []*line.Ticket
	for _, name := range ahead {
		t, err := a.ticket(name)
		if err != nil {
			return err
		}
		if t == nil || !a.shares(t) || t.Parked != nil && !a.comesFirst(t) {
			continue
		}
		ok, doubtful := a.admissible(t, false)
		if doubtful && !lastTry {
			v.doubtful = true // what keeps it back is just changing hands
			return nil
		}
		if !ok {
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

// comesFirst tells whether t waits for what we have just been told is free: it is
// about to see that too, and it is t's turn.
func (a *admission) comesFirst(t *line.Ticket) bool {
	return t.Parked.Turn != "" && slices.Contains(a.r.want.Turns, t.Parked.Turn)
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
	if t.Admissible > now {
		t.Admissible = 0 // no mark of ours, and it would never run out
	}
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
// ourCaps, by what we read for the pools that are ours too. It is in doubt when
// a pool only seems full.
func (a *admission) admissible(t *line.Ticket, ourCaps bool) (ok, doubtful bool) {
	ok = true
	for _, p := range t.Pools {
		own := p.Cap
		c := a.otherCount(p.Name)
		if i := a.index(p.Name); i >= 0 {
			c = a.counts[i]
			if ourCaps {
				own = a.pools[i].Cap
			}
		}
		if !c.Full(own) {
			continue
		}
		if !c.Doubtful(own) {
			return false, false
		}
		ok, doubtful = false, true
	}
	return ok, doubtful
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
	if t.Passes < passesAllowed {
		return ""
	}
	if ok, _ := a.admissible(t, true); ok {
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
		if t == nil || t.Parked != nil || !a.sameKind(t) || t.Stopped() {
			continue
		}
		if v.follow != nil {
			return nil
		}
		v.follow = t
	}
	// Nobody of our kind watches, or one does and we are the next: that one may
	// be stopped when something happens, so the next looks after it.
	v.watch, v.guard = v.follow == nil, v.follow != nil
	return nil
}

func (a *admission) sameKind(t *line.Ticket) bool { return covers(t.Pools, wishes(a.pools)) }

// covers tells whether a start that waits for ahead can be admitted whenever one
// that waits for behind can: the same pools, and no smaller cap for any.
func covers(ahead, behind []line.Pool) bool {
	return slices.EqualFunc(ahead, behind, func(a, b line.Pool) bool {
		return a.Name == b.Name && (a.Cap == 0 || b.Cap != 0 && a.Cap >= b.Cap)
	})
}

// ownAncestors tells whether waiting for pool i would be waiting for
// ourselves: every slot is held for one of our ancestors, or by an agent that
// itself stands in line for a child (S13).
func (a *admission) ownAncestors(i int, names []string) bool {
	slots := a.counts[i].Slots
	ours := 0
	for i := range slots {
		if _, _, ok := slots[i].Process(); !ok {
			return false
		}
		if forAncestor(&slots[i]) {
			ours++
		}
	}
	if ours == 0 || ours < len(slots) && len(names) == 0 {
		return false
	}
	waiting := map[string]bool{}
	if ours < len(slots) {
		waiting = a.waitedFor(names)
	}
	for i := range slots {
		if !forAncestor(&slots[i]) && !waiting[runKey(slots[i].Record())] {
			return false
		}
	}
	return true
}

// waitedFor lists the runs whose agents stand in line for a child.
func (a *admission) waitedFor(names []string) map[string]bool {
	runs := map[string]bool{}
	for _, name := range names {
		t, err := a.ticket(name)
		if err != nil || t == nil || name == a.r.name() {
			continue
		}
		for _, run := range t.For {
			runs[run] = true
		}
	}
	return runs
}

// forAncestor tells whether a slot is held for one of our ancestors: its agent
// is one, or, before the agent exists, its holder is. An agent that asks itself
// is its own ancestor here; a holder is not, as it may well hold several slots.
func forAncestor(s *slot.Seen) bool {
	pid, agent, _ := s.Process()
	st, ok := ancestry()[pid]
	if !ok || !agent && pid == self().Pid {
		return false
	}
	rec := s.Record()
	claim, named := rec.Child()
	if !named {
		claim = rec.Holder()
	}
	switch {
	case claim.NS != 0 && claim.NS != machine.PidNS():
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
		for i := range c.Slots {
			s := &c.Slots[i]
			if !forAncestor(s) {
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
			if errors.Is(err, flock.ErrHeld) || gone(err) {
				// Counted free and found locked or replaced: look again (S7).
				v.doubtful, v.watch, v.blind = true, true, true
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
	// Whoever comes to a turn takes it once it has its slots. Until then its ticket
	// keeps it from those behind: it goes when the lease settles.
	if a.r.place != nil && !a.r.turns {
		a.r.place.Unlist()
	}
	l.company = a.company
	l.mark.sec, l.mark.nsec = a.r.line.Changed()
	if age := time.Since(time.Unix(l.mark.sec, l.mark.nsec)); age < stampTick {
		l.company = true // a change right after this one might bear the same stamp
	}
	v.lease = l
	return v, nil
}

// stampTick is well over the grain of a file's time stamps.
const stampTick = 50 * time.Millisecond

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
	for index := range min(max(a.pools[i].Cap, a.counts[i].Free+1), prepared) {
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

// advance wakes those in line for the pools, if there can be any, and closes
// the line. l.mu is held.
func (l *Lease) advance(pools []string) {
	if l.line == nil {
		return
	}
	if sec, nsec := l.line.Changed(); l.company || (lineMark{sec, nsec}) != l.mark {
		l.wake(pools)
	}
	l.line.Close()
	l.line = nil
}

func (l *Lease) wake(pools []string) {
	if l.line != nil && len(pools) > 0 {
		wakeNext(l.line, pools)
	}
}

// lookAhead bounds how many tickets are read in order to wake.
const lookAhead = 64

// wakeNext wakes those in line for one of the pools who would not notice by
// themselves that a slot came free: the first of a kind, if it watches nothing
// or if it may be following one that will not act, being stopped or parked.
// Tickets of one kind bear one tag, so only few are read.
func wakeNext(l *line.Line, pools []string) {
	names, err := l.Names()
	if err != nil {
		return
	}
	var ahead []standing
	done := map[string]bool{} // kinds whose first that acts was found
	for _, name := range names {
		tag := line.Tag(name)
		if done[tag] {
			continue
		}
		if len(ahead) == lookAhead {
			return
		}
		t, err := l.Read(name, true)
		if err != nil || !wantsAny(t, pools) {
			continue
		}
		s := standing{t, t.Parked == nil && !t.Stopped()}
		if s.acts && (t.Deaf || leftBehind(ahead, t)) {
			l.Wake(name)
		}
		done[tag] = s.acts && tag != ""
		ahead = append(ahead, s)
	}
}

// standing is somebody in line, and whether it can act.
type standing struct {
	*line.Ticket
	acts bool
}

// leftBehind tells whether t may be following one that does not act.
func leftBehind(ahead []standing, t *line.Ticket) bool {
	left := false
	for _, s := range slices.Backward(ahead) {
		if covers(s.Pools, t.Pools) {
			if s.acts {
				return false
			}
			left = true
		}
	}
	return left
}

func wantsAny(t *line.Ticket, pools []string) bool {
	return slices.ContainsFunc(t.Pools, func(p line.Pool) bool { return slices.Contains(pools, p.Name) })
}

// prepared bounds how many files are made beforehand: a cap may be any number,
// and this is for the few slots of heavy commands.
const prepared = 256

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
	have, err := pool.Indexes()
	if err != nil {
		return err
	}
	for i := range min(p.Cap, prepared) {
		if slices.Contains(have, i) {
			continue
		}
		f, err := pool.Dir().Open(slot.FileName(i), flock.Pass)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}
