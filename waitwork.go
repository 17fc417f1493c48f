package handsel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/quota"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/runs"
)

const (
	// redialEvery is how often somebody who waits looks for a dispatcher where
	// there is none, jittered by a quarter either way.
	redialEvery = 2 * time.Second
	// lookEvery is how often what raises no event is looked at.
	lookEvery = 15 * time.Second
	// fewIDs are asked for one by one; for more, all rows are.
	fewIDs = 20
)

// WaitOptions say how WaitWork waits.
type WaitOptions struct {
	Any  bool           // return at the first end
	Told func(KnownRun) // of each end, as it is noticed
	Note func(string)   // what holds the wait up, each said once
}

// WaitWork returns when all of these attempts and runs have ended, or with Any
// the first of them. It takes the dispatcher's events, the runs' records and the
// ends of processes; it changes nothing, so it can be given up at any moment,
// and a dispatcher that is started again, or never, does not end it. Errors are
// those of WaitRuns.
func (h *Home) WaitWork(ctx context.Context, list []KnownRun, o WaitOptions) error {
	ctx, stop := context.WithCancel(ctx)
	at, _ := h.runsPlace()
	v := &vigil{
		h: h, at: at, o: o, pending: map[string]KnownRun{}, watched: map[string]bool{}, noted: map[string]bool{},
		changed: make(chan api.Event, 64), linked: make(chan error, 1), seen: make(chan KnownRun, 64), failed: make(chan error, 1),
	}
	for _, k := range list {
		v.pending[k.ID] = k
	}
	defer v.work.Wait()
	defer stop()
	return v.keep(ctx)
}

// vigil is one wait. Its maps belong to the goroutine in keep.
type vigil struct {
	h  *Home
	at runs.Place
	o  WaitOptions

	pending map[string]KnownRun // by id
	watched map[string]bool     // runs whose end one of the goroutines will tell
	noted   map[string]bool
	silent  error // why the dispatcher tells us nothing
	over    bool  // with Any: one has ended

	work    sync.WaitGroup
	changed chan api.Event
	linked  chan error    // the link to the dispatcher came (nil) or went
	seen    chan KnownRun // ends that runs.Place.Wait noticed
	failed  chan error
}

func (v *vigil) keep(ctx context.Context) error {
	v.silent = &api.NotRunning{Home: v.h.dir.Path}
	if slices.ContainsFunc(slices.Collect(maps.Values(v.pending)), isAttempt) {
		v.work.Go(func() { v.follow(ctx) })
		select { // whether there is a dispatcher decides how each is judged
		case v.silent = <-v.linked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	if err := v.round(ctx); err != nil {
		return err
	}
	for len(v.pending) > 0 && !v.over {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err = <-v.failed:
		case k := <-v.seen:
			v.end(k)
		case e := <-v.changed:
			err = v.judge(ctx, v.ended(e))
		case v.silent = <-v.linked:
			err = v.round(ctx)
		case <-tick.C:
			err = v.round(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isAttempt tells what a dispatcher has, or had, from a direct run.
func isAttempt(k KnownRun) bool {
	return k.Enqueued || slices.ContainsFunc(k.Sources, func(s string) bool { return s == FromQueue || s == FromEntry || s == FromSeat })
}

// end tells of one that has ended.
func (v *vigil) end(k KnownRun) {
	if _, waits := v.pending[k.ID]; !waits || v.over {
		return
	}
	delete(v.pending, k.ID)
	v.over = v.o.Any
	if v.o.Told != nil {
		v.o.Told(k)
	}
}

// ended takes in an event, and those that have come by now. What they say has
// ended is looked at; of the rest only the state is kept.
func (v *vigil) ended(e api.Event) (ids []string) {
	for {
		if k, waits := v.pending[e.Attempt]; waits && e.To != "" {
			k.State = e.To
			if e.To == record.Ended {
				ids, k.State = append(ids, k.ID), record.Running // until it is known how
			}
			v.pending[e.Attempt] = k
		}
		select {
		case e = <-v.changed:
		default:
			slices.Sort(ids)
			return slices.Compact(ids)
		}
	}
}

// round looks at all that is pending.
func (v *vigil) round(ctx context.Context) error {
	if err := v.judge(ctx, slices.Sorted(maps.Keys(v.pending))); err != nil {
		return err
	}
	v.notes()
	return v.never()
}

// judge looks at some of the pending, and watches those that no event of the
// dispatcher's will tell of.
func (v *vigil) judge(ctx context.Context, ids []string) error {
	ids = slices.DeleteFunc(ids, func(id string) bool { _, waits := v.pending[id]; return !waits })
	for _, id := range ids {
		if rec, err := record.Load(v.h.dir, id); err == nil && rec.State == record.Ended {
			v.end(KnownRun{Run: *rec, Sources: []string{runs.FromRecord}})
		}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { _, waits := v.pending[id]; return !waits || v.watched[id] })
	if len(ids) == 0 || v.over {
		return nil
	}
	w := v.h.glance(v.silent)
	defer w.close()
	if len(ids) > fewIDs {
		w.load(ctx)
	}
	var going []KnownRun
	for _, id := range ids {
		if k := v.again(ctx, w, v.pending[id]); k.Ended() {
			v.end(k)
		} else if v.pending[id] = k; !isAttempt(k) || !w.answers() && slices.Contains(k.Sources, runs.FromRecord) {
			going = append(going, k)
		}
	}
	v.watch(ctx, going)
	return nil
}

// again is one pending attempt or run as it stands now.
func (v *vigil) again(ctx context.Context, w *world, k KnownRun) KnownRun {
	if !isAttempt(k) {
		return k // Place.Wait judges it
	}
	if r := w.rows[k.ID]; r != nil {
		return w.waiting(r)
	}
	if w.answers() {
		all, err := w.client.Attempts(ctx, api.Filter{Attempt: k.ID})
		if err == nil && len(all.Attempts) > 0 {
			return ofAttempt(&all.Attempts[0], k)
		}
		if err != nil && !isCode(err, api.CodeNotFound) {
			return k // the dispatcher has just gone: the link will tell
		}
	}
	return v.onDisk(w, k)
}

// onDisk judges an attempt that no dispatcher tells of.
func (v *vigil) onDisk(w *world, k KnownRun) KnownRun {
	f := w.facts(k.Lane, k.ID)
	said := f.judge()
	if f.run != nil {
		k.Run, k.Sources = f.run.Run, f.run.Sources
		k.Fence = max(k.Fence, said.Fence)
	}
	switch {
	case said.Known && said.State == record.Ended:
		k.State, k.Outcome, k.ExitCode, k.Signal, k.Reason = said.State, said.Outcome, said.ExitCode, said.Signal, said.Reason
	case said.Known:
		k.State, k.Orphaned = said.State, said.Orphaned
	case w.answers() && !f.launching():
		k.State, k.Outcome = record.Ended, record.Lost
		k.Reason = &Reason{Class: "ownership", Code: runs.NoRecord, Message: said.Message}
	}
	return k
}

// launching tells whether the launcher still has the lane: the dispatcher does
// not know the attempt yet.
func (f *facts) launching() bool {
	return f.ours() && f.seen.Record.Role == lane.RoleLauncher && f.seen.State == lane.Owned
}

// ofAttempt is what the dispatcher says of an attempt it has, or had.
func ofAttempt(a *api.Attempt, k KnownRun) KnownRun {
	k.State, k.Outcome, k.Result, k.Kind, k.ExitCode, k.Signal, k.Reason = a.State, a.Outcome, a.Result, a.Kind, a.ExitCode, a.Signal, a.Reason
	k.Lane, k.Fence, k.EndedAt, k.Place, k.Enqueued, k.Review = a.Row.Lane, a.Fence, record.Time(a.EndedAt), 0, true, a.Review
	if a.Driver != nil {
		k.Handsel = record.Identity{Pid: a.Driver.Pid, Ticks: a.Driver.Ticks, BootID: a.Driver.BootID}
	}
	k.Sources = []string{FromQueue}
	return k
}

// watch waits for the ends of runs beside the loop.
func (v *vigil) watch(ctx context.Context, list []KnownRun) {
	if len(list) == 0 {
		return
	}
	for _, k := range list {
		v.watched[k.ID] = true
	}
	v.work.Go(func() {
		err := v.at.Wait(ctx, list, func(k KnownRun) {
			select {
			case v.seen <- k:
			case <-ctx.Done():
			}
		})
		if err != nil && ctx.Err() == nil {
			select {
			case v.failed <- err:
			case <-ctx.Done():
			}
		}
	})
}

// follow keeps a link to the dispatcher, as long as there is one, and looks for
// it when there is none.
func (v *vigil) follow(ctx context.Context) {
	told := false
	for ctx.Err() == nil {
		err := v.listen(ctx, func() { told = false; v.link(ctx, nil) })
		if !told { // once; a wait of days is not told every two seconds
			told = true
			v.link(ctx, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(redialEvery*3/4 + rand.N(redialEvery/2)):
		}
	}
}

func (v *vigil) link(ctx context.Context, err error) {
	select {
	case v.linked <- err:
	case <-ctx.Done():
	}
}

// listen tells of events until the link breaks, which is its error.
func (v *vigil) listen(ctx context.Context, linked func()) error {
	c, err := api.Dial(v.h.dir)
	if err != nil {
		return err
	}
	defer c.Close()
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	linked() // all that happened before st.Seq is seen by the look that follows
	return c.Follow(ctx, api.Filter{After: st.Seq}, func(e api.Event) error {
		select {
		case v.changed <- e:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// notes says, each thing once, what holds up those that wait in the queue.
func (v *vigil) notes() {
	var waiting []KnownRun
	for _, id := range slices.Sorted(maps.Keys(v.pending)) {
		if k := v.pending[id]; isAttempt(k) && k.State == record.Queued {
			waiting = append(waiting, k)
		}
	}
	if len(waiting) == 0 || v.o.Note == nil {
		return
	}
	if v.silent != nil {
		v.note(fmt.Sprintf("%s wait: %s", lanesText(waiting), v.silent))
	}
	orders, err := hold.List(v.h.dir.Holds())
	if err != nil {
		return // nothing is known of orders; who starts will say so
	}
	for text, held := range heldBy(orders, waiting) {
		v.note(fmt.Sprintf("%s wait: %s", lanesText(held), text))
	}
}

// heldBy sorts what waits by the order that holds it.
func heldBy(orders hold.Orders, waiting []KnownRun) map[string][]KnownRun {
	by := map[string][]KnownRun{}
	for _, k := range waiting {
		a := asker{start: Start{Engine: k.Engine, Workload: k.Workload}}
		text := ""
		if o, ok := orders.MatchLane(accountOf(&k), a.names(), k.Lane); ok {
			text = orderText(o)
		} else if said := quota.StateOf(orders, quota.Parse(accountOf(&k))).Answer(k.ID, quota.Now()); said.Code != "" {
			text = quota.Text(said.Order)
		}
		if text != "" {
			by[text] = append(by[text], k)
		}
	}
	return by
}

func lanesText(list []KnownRun) string {
	if len(list) == 1 {
		return "lane " + list[0].Lane + " has to"
	}
	return fmt.Sprintf("%d lanes have to", len(list))
}

func (v *vigil) note(text string) {
	_, about, _ := strings.Cut(text, ": ") // the number of lanes changes
	if !v.noted[about] {
		v.noted[about] = true
		v.o.Note(text)
	}
}

// never tells, inside an agent, whether one of the pending waits for slots that
// come free no sooner than this process ends (S13).
func (v *vigil) never() error {
	if !errors.As(nest.Check(), new(*nest.Inside)) {
		return nil
	}
	asked := map[string]bool{}
	for _, k := range v.pending {
		if isAttempt(k) && k.State != record.Queued && runs.OwnRun(&k) {
			return fmt.Errorf("wait for run %s: %w", k.ID, ErrOwnRun)
		}
		if !isAttempt(k) || k.State != record.Queued || asked[k.Engine+" "+k.Workload] {
			continue
		}
		asked[k.Engine+" "+k.Workload] = true
		if refused := v.at.OwnAncestors(k, v.poolsOf(&k)); refused != nil {
			return refused
		}
	}
	return nil
}

func (v *vigil) poolsOf(k *KnownRun) (pools []lease.Pool) {
	s, err := v.h.settings()
	if err != nil {
		return nil // nothing starts until it is mended, and who starts says so
	}
	a := asker{start: Start{Engine: k.Engine, Workload: k.Workload}}
	for _, name := range a.names() {
		n, from := s.Cap(name)
		pools = append(pools, lease.Pool{Name: name, Cap: n, CapFrom: from})
	}
	return pools
}
