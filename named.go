package handsel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/runs"
)

// Where a waiting attempt was found, as KnownRun.Sources has it.
const (
	FromQueue = "queue" // the dispatcher's rows
	FromEntry = "entry" // the file it left
	FromSeat  = "seat"  // the record in its lane
)

// world is one look at what waits and who has which lane, taken as far as it is
// asked for. It belongs to one goroutine.
type world struct {
	h      *Home
	client *api.Client // nil: see silent
	silent error       // why the dispatcher cannot be asked
	at     runs.Place

	rows    map[string]*QueueRow // waiting attempts by id
	lanes   map[string]*QueueRow // and by lane
	labels  bool                 // whether rows have labels
	words   []string             // names of pools and engines; nil = not read yet
	problem []string
}

// look takes a look at all that waits. It must be closed.
func (h *Home) look(ctx context.Context) *world {
	w := h.glance(nil)
	w.load(ctx)
	return w
}

// glance begins a look without reading what waits. Somebody who knows that the
// dispatcher cannot be asked says so, and it is not tried again. It must be
// closed.
func (h *Home) glance(silent error) *world {
	w := &world{h: h, silent: silent}
	w.at, w.problem = h.runsPlace()
	if silent == nil {
		w.client, w.silent = api.Dial(h.dir)
	}
	return w
}

// load reads what waits, from the dispatcher or from what it left.
func (w *world) load(ctx context.Context) {
	if w.silent == nil {
		w.silent = w.ask(ctx)
	}
	if w.silent != nil {
		w.read()
	}
}

func (w *world) close() {
	if w.client != nil {
		w.client.Close()
	}
}

// answers tells whether the dispatcher does.
func (w *world) answers() bool { return w.silent == nil }

func (w *world) ask(ctx context.Context) error {
	q, err := w.client.Queue(ctx, "")
	if err != nil {
		return err
	}
	w.labels = true
	w.take(q.Rows)
	return nil
}

func (w *world) read() {
	entries, problems, err := attempt.Entries(w.h.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.problem = append(w.problem, err.Error())
	}
	for _, p := range problems {
		w.problem = append(w.problem, p.Error())
	}
	var rows []*attempt.Row
	for _, e := range waitingEntries(entries) {
		rows = append(rows, rowOf(e))
	}
	w.take(api.Order(rows))
	w.labels = len(rows) == 0
}

func (w *world) take(rows []QueueRow) {
	w.rows, w.lanes = make(map[string]*QueueRow, len(rows)), make(map[string]*QueueRow, len(rows))
	for i := range rows {
		w.rows[rows[i].ID], w.lanes[rows[i].Lane] = &rows[i], &rows[i]
	}
}

// run is one attempt or run as it stands now.
func (w *world) run(id string) (KnownRun, bool) {
	rec, err := record.Load(w.h.dir, id)
	r, waits := w.rows[id]
	switch {
	case err == nil && rec.State == record.Ended:
		return runs.Recorded(w.h.dir, rec), true
	case errors.Is(err, fs.ErrNotExist) && waits:
		return w.waiting(r), true
	}
	k, ok := w.at.Known(id)[id]
	switch {
	case ok && !(waits && offered(&k)):
		return k, true
	case waits:
		return w.waiting(r), true
	}
	return k, ok
}

// waiting is a row as a run that has not begun.
func (w *world) waiting(r *QueueRow) KnownRun {
	k := KnownRun{Sources: []string{FromQueue}, Place: r.Place}
	if !w.answers() {
		k.Sources[0] = FromEntry
	}
	k.V, k.ID, k.Verb, k.State = record.Version, r.ID, "run", r.State
	k.Lane, k.Engine, k.Account, k.Workload, k.Confinement, k.Cwd = r.Lane, r.Placement.Engine, r.Placement.Account, r.Placement.Workload, r.Placement.Confinement, r.Placement.Cwd
	k.Argv0, k.Argc, k.Command, k.Author, k.Labels = r.Argv0, r.Argc, r.Command, r.Author, r.Labels
	k.QueuedAt, k.Reason, k.HostBoot = record.At(r.QueueStart.Time), r.Reason, r.BootID
	k.Enqueued, k.RetryOf, k.RetryVerdict = true, r.RetryOf, r.RetryVerdict
	return k
}

// ofLane is a lane's present attempt or run: whose it is now, by the kernel and
// its record (L3), else who waits for it, else the last that ended.
func (w *world) ofLane(name string) (KnownRun, bool) {
	seen, err := lane.Look(w.h.dir, name)
	if err != nil {
		w.problem = append(w.problem, err.Error())
	}
	if seen.State != lane.Free && seen.Record.Owned() {
		if id := idIn(seen.Record); id != "" {
			if k, ok := w.run(id); ok {
				return k, true
			}
			return ofRecord(seen, id), true
		}
	}
	if r := w.lanes[name]; r != nil {
		return w.run(r.ID)
	}
	return w.lastOf(name)
}

func idIn(r *lane.Record) string {
	if r.Attempt != "" {
		return r.Attempt
	}
	return r.Run
}

// ofRecord is what a lane's record says of its owner, when nothing else does.
func ofRecord(s lane.Seen, id string) KnownRun {
	k := KnownRun{Sources: []string{FromSeat}, Orphaned: s.State == lane.Orphaned, Unverifiable: s.State == lane.Unverifiable}
	r := s.Record
	k.V, k.ID, k.Verb, k.State, k.Lane, k.Fence, k.Argv0 = record.Version, id, "run", record.Starting, s.Name, r.Fence, r.Argv0
	k.HostBoot, k.QueuedAt, k.Enqueued = r.BootID, record.At(r.SinceTime()), r.Attempt != ""
	switch {
	case r.Child != nil:
		k.State = record.Running
		k.Child = &record.Identity{Pid: r.Child.Pid, Ticks: r.Child.Ticks, BootID: r.BootID, PidNS: r.PidNS}
	case r.Role == lane.RoleDispatcher, r.Role == lane.RoleLauncher:
		k.State = record.Queued
	}
	if k.State != record.Queued {
		k.Handsel = record.Identity{Pid: r.Holder.Pid, Ticks: r.Holder.Ticks, BootID: r.BootID, PidNS: r.PidNS}
	}
	return k
}

// lastOf is the newest run of a lane that nobody has.
func (w *world) lastOf(name string) (KnownRun, bool) {
	list, err := w.at.List(RunFilter{})
	if err != nil {
		w.problem = append(w.problem, err.Error())
		return KnownRun{}, false
	}
	for _, r := range list.Runs {
		if r.Lane == name {
			return r, true
		}
	}
	return KnownRun{}, false
}

// FindWork resolves X where lanes and waiting attempts are among what it may
// mean (C4). A lane means its present attempt or run; when there is none, the
// last. An engine, a pool or a label means what of it has not ended, what waits
// included; with all, everything. The error is *NotFound, *Ambiguous or *BadName.
func (h *Home) FindWork(ctx context.Context, x string, all bool) ([]KnownRun, error) {
	w := h.look(ctx)
	defer w.close()
	return w.find(x, all)
}

// FindAllWork resolves several names at one look, each thing once, in the order
// of the names.
func (h *Home) FindAllWork(ctx context.Context, names []string) (all []KnownRun, err error) {
	w := h.look(ctx)
	defer w.close()
	have := map[string]bool{}
	for _, x := range names {
		found, err := w.find(x, false)
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			if !have[k.ID] {
				have[k.ID] = true
				all = append(all, k)
			}
		}
	}
	return all, nil
}

// AllWork is everything that waits or runs now. *NotFound when nothing does.
func (h *Home) AllWork(ctx context.Context) ([]KnownRun, error) {
	w := h.look(ctx)
	defer w.close()
	list, err := w.at.List(RunFilter{})
	if err != nil {
		return nil, err
	}
	going := slices.DeleteFunc(list.Runs, func(k KnownRun) bool { return k.Ended() })
	var waits []KnownRun
	for _, r := range w.rows {
		waits = append(waits, w.waiting(r))
	}
	if going = merge(going, waits); len(going) == 0 {
		return nil, fmt.Errorf("%w (nothing waits or runs)", &NotFound{Name: "all"})
	}
	return going, nil
}

func (w *world) find(x string, all bool) ([]KnownRun, error) {
	kind, text, ok := strings.Cut(x, ":")
	if ok && kind == "lane" {
		if err := home.ValidLane(text); err != nil {
			return nil, err
		}
		if k, ok := w.ofLane(text); ok {
			return []KnownRun{k}, nil
		}
		return nil, &NotFound{Name: x}
	}
	if w.onlyLane(x) {
		if k, ok := w.ofLane(x); ok {
			return []KnownRun{k}, nil
		}
	}
	found, err := w.h.FindRuns(x, all)
	if err != nil && !errors.As(err, new(*NotFound)) && !errors.As(err, new(*Ambiguous)) {
		return nil, err
	}
	bare := !ok || !slices.Contains([]string{"run", "engine", "pool", "label"}, kind)
	if bare && w.h.laneKnown(x) {
		return w.bareLane(x, found, err)
	}
	if bare {
		kind, text = "", x
	}
	if !w.labels && (!all || len(found) == 0) && (kind == "label" || kind == "" && strings.Contains(text, "=")) {
		return nil, fmt.Errorf("%q: whether lanes that wait have that label is known to the dispatcher only: %w", x, w.silent)
	}
	return w.withWaiting(x, kind, text, found, err)
}

// onlyLane tells of a bare name that can mean nothing but a lane, without the
// look at every run that others need: a thousand lanes may be named at once.
func (w *world) onlyLane(x string) bool {
	if strings.ContainsAny(x, ":=") || hexy(x) {
		return false
	}
	if w.words == nil {
		w.words = append(w.h.poolNames(), w.h.engineNames()...)
	}
	return !slices.Contains(w.words, x) && w.h.laneKnown(x)
}

// hexy tells whether a text may be the end of an id.
func hexy(text string) bool {
	bare := strings.ReplaceAll(strings.ToLower(text), "-", "")
	return strings.Trim(bare, "0123456789abcdef") == ""
}

// bareLane is a bare name that is a lane's. It must not fit anything else.
func (w *world) bareLane(x string, found []KnownRun, err error) ([]KnownRun, error) {
	k, ok := w.ofLane(x)
	switch several, many := errors.AsType[*Ambiguous](err); {
	case many:
		return nil, &Ambiguous{Name: x, Fits: append([]string{"lane:" + x}, several.Fits...)}
	case slices.ContainsFunc(found, func(r KnownRun) bool { return r.Lane != x }):
		return nil, &Ambiguous{Name: x, Fits: append([]string{"lane:" + x}, idsOf(found)...)}
	case !ok:
		return nil, &NotFound{Name: x}
	}
	return []KnownRun{k}, nil
}

// withWaiting adds the waiting attempts that X means to the runs it means. An
// id, or the end of one, means a single attempt.
func (w *world) withWaiting(x, kind, text string, found []KnownRun, err error) ([]KnownRun, error) {
	if several, ok := errors.AsType[*Ambiguous](err); ok {
		return nil, several
	}
	var byID, byGroup []KnownRun
	for _, r := range w.rows {
		switch {
		case (kind == "run" || kind == "") && endsIn(r.ID, text):
			byID = append(byID, w.waiting(r))
		case inGroup(kind, text, r):
			byGroup = append(byGroup, w.waiting(r))
		}
	}
	one := len(byID) > 0 || len(found) == 1 && kind == "" && endsIn(found[0].ID, text)
	if one {
		byGroup = nil
	}
	found = merge(found, append(byID, byGroup...))
	switch {
	case len(found) == 0 && kind == "" && !hexy(text):
		return nil, &NotFound{Name: x} // what ids look like is of no help here
	case len(found) == 0:
		return nil, err
	case one && len(found) > 1:
		return nil, &Ambiguous{Name: x, Fits: idsOf(found)}
	}
	return found, nil
}

func inGroup(kind, text string, r *QueueRow) bool {
	engine, pool := r.Placement.Engine == text, slices.Contains(r.Pools, text)
	switch kind {
	case "engine":
		return engine
	case "pool":
		return pool
	case "label":
		return hasLabel(r.Labels, text)
	case "":
		return engine || pool || strings.Contains(text, "=") && hasLabel(r.Labels, text)
	}
	return false
}

func hasLabel(labels map[string]string, text string) bool {
	key, value, withValue := strings.Cut(text, "=")
	got, ok := labels[key]
	return ok && (!withValue || got == value)
}

// endsIn tells whether text names an id: the end of it, of at least
// runs.MinSuffix characters.
func endsIn(id, text string) bool {
	bare := strings.ReplaceAll(strings.ToLower(text), "-", "")
	return len(bare) >= runs.MinSuffix && strings.HasSuffix(strings.ReplaceAll(id, "-", ""), bare)
}

// merge puts runs and waiting attempts together, each once, the newest first.
func merge(found, waits []KnownRun) []KnownRun {
	at := make(map[string]int, len(found))
	for i, k := range found {
		at[k.ID] = i
	}
	for _, k := range waits {
		switch i, have := at[k.ID]; {
		case !have:
			found = append(found, k)
		case offered(&found[i]):
			found[i] = k
		}
	}
	slices.SortStableFunc(found, func(a, b KnownRun) int { return strings.Compare(b.ID, a.ID) })
	return found
}

// offered tells a run that only slots or a ticket know of. Where it waits as
// well, the dispatcher stands in line for it or holds them for its driver, and
// is no supervisor of it (L13, L13a).
func offered(k *KnownRun) bool {
	return len(k.Sources) > 0 && !slices.ContainsFunc(k.Sources, func(s string) bool { return s != runs.FromSlot && s != runs.FromTicket })
}

func idsOf(found []KnownRun) (ids []string) {
	for _, k := range found {
		ids = append(ids, "run:"+k.ID)
	}
	return ids
}
