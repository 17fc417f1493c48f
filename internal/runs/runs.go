// Package runs is runs as people name them: which ones there are, what became
// of each, waiting for their end and bringing it about.
//
// A run is found in four places, so that it is found also where one of them
// is missing: its record, the slots that stand for it, the lane it owns, and its
// ticket while it waits; one that left none of these is still found by
// HANDSEL_RUN in the environment of its processes. What a record says is overruled by what the
// kernel says: a record that says running, of a supervisor and an agent that
// are both gone, is a lost run (C024, C032).
//
// Looking changes nothing on disk. A lost record is closed only by Cancel and
// Close, and only when it is proven that nobody is left who could: pid, start
// and boot are known and gone. Processes are signalled by that identity, never
// by name, by number alone or by parent (C148). The package prints nothing.
package runs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
	"github.com/handsel/handsel/internal/slot"
)

// Place is where runs are looked for.
type Place struct {
	Home    home.Dir
	Leases  string
	Waiting string
}

// Where something of a run was found.
const (
	FromRecord  = "record"
	FromSlot    = "slot"
	FromLane    = "lane"
	FromTicket  = "ticket"
	FromProcess = "process"
)

// Codes of reasons that are given here.
const (
	HostRestarted  = "host_restarted"  // the run belongs to another boot
	SupervisorLost = "supervisor_lost" // supervisor and agent are gone, and nobody wrote how it ended
	EndedByCancel  = "cancelled"       // the supervisor was gone, and cancel ended the agent
	NoRecord       = "no_record"       // it is over, and nothing was written about it
)

// Run is one run as it is judged now: the record's fields, with state, outcome,
// end and reason as the kernel has them.
type Run struct {
	record.Run
	Recorded     string   `json:"recorded_state,omitempty"` // what the record says, where that was overruled
	Orphaned     bool     `json:"orphaned,omitempty"`       // its supervisor is gone, its agent lives
	Unverifiable bool     `json:"unverifiable,omitempty"`   // it cannot be looked at from here
	Place        int      `json:"place,omitempty"`          // in line
	Sources      []string `json:"sources"`

	ticket *ticket
}

// Ended tells whether the run is over.
func (r *Run) Ended() bool { return r.State == record.Ended }

// Succeeded tells whether it is over and went well: a result that says so, or
// exit 0 where nobody read one.
func (r *Run) Succeeded() bool {
	switch {
	case !r.Ended():
		return false
	case r.Result != "":
		return r.Result == record.Succeeded
	}
	return r.Outcome == record.Exited && r.ExitCode != nil && *r.ExitCode == 0
}

// Word is the one word by which a list shows the run: how it ended, else how
// it stands.
func (r *Run) Word() string {
	switch {
	case r.Ended() && r.Outcome != "":
		return r.Outcome
	case r.Orphaned:
		return "orphaned"
	case r.Unverifiable:
		return "unverifiable"
	}
	return r.State
}

// Totals count runs. Started is always the sum of the four after it (C024).
type Totals struct {
	Started   int `json:"started"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Lost      int `json:"lost"`
	Running   int `json:"running"`
	Queued    int `json:"queued"`      // waiting in line; not started
	Not       int `json:"not_started"` // refused, or could not be started
}

func (t *Totals) add(r *Run) {
	switch r.Class() {
	case record.Queued:
		t.Queued++
		return
	case record.NotStarted:
		t.Not++
		return
	case record.Running:
		t.Running++
	case record.Lost:
		t.Lost++
	case record.Succeeded:
		t.Succeeded++
	default:
		t.Failed++
	}
	t.Started++
}

// Class is which of the totals counts the run: queued, not_started, running,
// lost, succeeded or failed. A refusal is no failure.
func (r *Run) Class() string {
	switch {
	case r.State == record.Queued:
		return record.Queued
	case r.Outcome == record.Refused, r.Outcome == record.NotStarted,
		r.Ended() && r.Outcome != record.Lost && r.StartedAt.IsZero() && r.Child == nil: // ended while it waited
		return record.NotStarted
	case !r.Ended():
		return record.Running
	case r.Outcome == record.Lost:
		return record.Lost
	case r.Succeeded():
		return record.Succeeded
	}
	return record.Failed
}

// Filter says which runs are wanted. The zero Filter wants all.
type Filter struct {
	Limit  int    // of runs listed; 0 = no limit. Totals count all
	State  string // a state, an outcome, or "orphaned"
	Engine string
	Labels map[string]string
	Since  time.Time
	Review string // a state of its review (C13)
}

// IsState tells whether word may stand in Filter.State.
func IsState(word string) bool { return slices.Contains(States, word) }

// States are the words of Filter.State.
var States = []string{
	record.Queued, record.Starting, record.Running, record.Ended, "orphaned",
	record.Exited, record.Signaled, record.TimedOut, record.Cancelled, record.Refused, record.NotStarted, record.Lost,
	record.Succeeded, record.Failed,
}

func (f Filter) wants(r *Run) bool {
	for key, value := range f.Labels {
		if got, ok := r.Labels[key]; !ok || got != value {
			return false
		}
	}
	if f.Engine != "" && f.Engine != r.Engine {
		return false
	}
	if f.Review != "" && (f.Review != r.Review || !r.Ended()) {
		return false
	}
	if began := r.Began(); !f.Since.IsZero() && began.Before(f.Since) {
		return false
	}
	switch f.State {
	case "":
		return true
	case "orphaned":
		return r.Orphaned
	case record.Succeeded, record.Failed:
		return f.State == r.Class()
	}
	return f.State == r.State || f.State == r.Outcome
}

// Began is when the run was asked for, by its name.
func (r *Run) Began() time.Time {
	if t, ok := timeOf(r.ID); ok {
		return t
	}
	return r.QueuedAt.Time
}

// List is what was found.
type List struct {
	V        int         `json:"v"`
	Root     string      `json:"root"` // the home
	At       record.Time `json:"at"`
	Totals   Totals      `json:"totals"`
	Runs     []Run       `json:"runs"` // newest first
	Problems []string    `json:"problems"`
}

// List judges every run that the filter wants.
func (p Place) List(f Filter) (*List, error) {
	now := p.look()
	records, problems, err := record.List(p.Home, record.Filter{Since: f.Since, Engine: f.Engine, Labels: f.Labels})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := &List{V: 1, Root: p.Home.Path, At: record.At(machine.Now()), Runs: []Run{}, Problems: append([]string{}, now.problems...)}
	for _, problem := range problems {
		out.Problems = append(out.Problems, problem.Error())
	}
	seen := map[string]bool{}
	var all []Run
	for _, rec := range records {
		seen[rec.ID] = true
		all = append(all, now.judge(rec))
	}
	for _, id := range now.ids() {
		if !seen[id] {
			all = append(all, now.withoutRecord(id))
		}
	}
	slices.SortStableFunc(all, func(a, b Run) int { return strings.Compare(b.ID, a.ID) })
	for i := range all {
		if !f.wants(&all[i]) {
			continue
		}
		out.Totals.add(&all[i])
		if f.Limit == 0 || len(out.Runs) < f.Limit {
			out.Runs = append(out.Runs, all[i])
		}
	}
	return out, nil
}

// get judges one run by its whole id; false when nothing is known of it.
func (n *now) get(id string) (Run, bool) {
	rec, err := record.Load(n.at.Home, id)
	if err == nil {
		return n.judge(rec), true
	}
	if n.slots[id] != nil || n.tickets[id] != nil || n.lanes()[id] != nil {
		return n.withoutRecord(id), true
	}
	return Run{}, false
}

// now is one look at slots and tickets. It belongs to one goroutine.
type now struct {
	at       Place
	slots    map[string][]taken
	tickets  map[string]*ticket
	problems []string

	owned      map[string]*lane.Seen    // by run, lanes that runs own; nil = not looked for yet
	marked     map[string][]proc.Marked // by run; nil = not looked for yet
	lookedDeep bool
}

// taken is a slot that stands for a run.
type taken struct {
	pool  string
	index int
	state slot.State
	rec   *slot.Record
}

// ticket is a place in line.
type ticket struct {
	place int
	run   Run
	pools []lease.Pool
	waits []string // runs whose slots end no sooner than the ticket's owner does
}

func (p Place) look() *now {
	n := &now{at: p, slots: map[string][]taken{}, tickets: map[string]*ticket{}}
	names, err := lease.PoolNames(p.Leases)
	if err != nil {
		n.problem(err)
	}
	for _, name := range names {
		n.addPool(name)
	}
	n.addTickets()
	return n
}

func (n *now) problem(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.problems = append(n.problems, err.Error())
	}
}

func (n *now) addPool(name string) {
	pool, err := slot.Open(n.at.Leases, name, false)
	if err != nil {
		n.problem(err)
		return
	}
	defer pool.Close()
	count, err := pool.Count()
	if err != nil {
		n.problem(err)
	}
	for _, seen := range count.Slots {
		if rec := seen.Record(); rec != nil && rec.Run != "" {
			n.slots[rec.Run] = append(n.slots[rec.Run], taken{name, seen.Index, seen.State, rec})
		}
	}
}

// ids are the runs that slots, tickets and lanes know of.
func (n *now) ids() []string {
	var ids []string
	for id := range n.slots {
		ids = append(ids, id)
	}
	for id := range n.tickets {
		ids = append(ids, id)
	}
	for id := range n.lanes() {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// judge is what a record says, overruled by what the kernel says.
func (n *now) judge(rec *record.Run) Run {
	if rec.State == record.Ended {
		return Recorded(n.at.Home, rec)
	}
	r := Run{Run: *rec, Sources: []string{FromRecord}}
	slots, waiting := n.slots[rec.ID], n.tickets[rec.ID]
	if slots != nil {
		r.Sources = append(r.Sources, FromSlot)
	}
	if waiting != nil {
		r.Sources = append(r.Sources, FromTicket)
		r.ticket, r.Place = waiting, waiting.place
	}
	child := n.child(&r)
	switch supervisor := verdict(rec.Handsel); {
	case supervisor == proc.Alive, waiting != nil, locked(slots):
		if r.State == record.Queued && locked(slots) {
			r.setState(record.Starting)
		}
	case child == proc.Alive:
		r.setState(record.Running)
		r.Orphaned = true
	case supervisor == proc.Unverifiable, child == proc.Unverifiable:
		r.Unverifiable = true
	default:
		// A supervisor writes how it ended and then goes. Now that it was seen
		// gone, its last word is on disk, whatever was read before.
		if last, err := record.Load(n.at.Home, rec.ID); err == nil && last.State == record.Ended {
			ended := Recorded(n.at.Home, last)
			ended.Sources = r.Sources
			return ended
		}
		n.lose(&r)
	}
	return r
}

// Recorded is a run that has ended, by its record, and where it stands in its
// review (C13).
func Recorded(d home.Dir, rec *record.Run) Run {
	r := Run{Run: *rec, Sources: []string{FromRecord}}
	r.Review = review.Of(d, rec)
	return r
}

func (r *Run) setState(state string) {
	if r.State != state {
		r.Recorded, r.State = r.State, state
	}
}

// child judges the run's agent, and notes it where only a slot or a process
// names it.
func (n *now) child(r *Run) proc.Verdict {
	if r.Child != nil && r.Child.Pid != 0 {
		return verdict(*r.Child)
	}
	for _, s := range n.slots[r.ID] {
		if claim, named := s.rec.Child(); named {
			r.Child = identity(claim)
			return proc.Judge(claim)
		}
	}
	if claim, named := n.laneChild(r); named {
		r.Child = identity(claim)
		return proc.Judge(claim)
	}
	// Its supervisor died before it could write down what it started (C022).
	if verdict(r.Handsel) == proc.Gone && (r.Handsel.BootID == "" || r.Handsel.BootID == machine.BootID()) {
		if st, ok := n.stray(r.ID); ok {
			r.Child = identity(st.ID().Claim())
			r.Sources = append(r.Sources, FromProcess)
			return proc.Alive
		}
	}
	return proc.Gone
}

// stray is the topmost process that carries a run's id.
func (n *now) stray(id string) (proc.Stat, bool) {
	own := n.processes()[id]
	carries := map[int]bool{}
	for _, m := range own {
		carries[m.Pid] = true
	}
	for _, m := range own {
		if !carries[m.PPid] && m.Pid != os.Getpid() {
			return m.Stat, true
		}
	}
	return proc.Stat{}, false
}

func (n *now) processes() map[string][]proc.Marked {
	if !n.lookedDeep {
		n.lookedDeep, n.marked = true, map[string][]proc.Marked{}
		all, _ := proc.FindMarked("HANDSEL_RUN") // no table to look in: nothing is known by this way
		for _, m := range all {
			n.marked[m.Value] = append(n.marked[m.Value], m)
		}
	}
	return n.marked
}

func locked(slots []taken) bool {
	return slices.ContainsFunc(slots, func(s taken) bool { return s.state == slot.Held })
}

// verdict judges a process that a record names. One without a start cannot be
// told from a later one with its number.
func verdict(id record.Identity) proc.Verdict {
	switch {
	case id.Pid == 0:
		return proc.Gone
	case id.Ticks == 0 && (id.BootID == "" || id.BootID == machine.BootID()):
		return proc.Unverifiable
	}
	return proc.Judge(claim(id))
}

func claim(id record.Identity) proc.Claim {
	return proc.Claim{Pid: id.Pid, Ticks: id.Ticks, Boot: id.BootID, NS: id.PidNS}
}

func identity(c proc.Claim) *record.Identity {
	return &record.Identity{Pid: c.Pid, Ticks: c.Ticks, BootID: c.Boot, PidNS: c.NS}
}

// lose makes r a lost run: nobody is left who could say how it ended.
func (n *now) lose(r *Run) {
	r.setState(record.Ended)
	r.Outcome, r.Result, r.Kind, r.ExitCode, r.Signal = record.Lost, "", "", nil, 0
	r.EndedAt = record.At(n.lastKnown(r))
	r.Reason = &record.Reason{Class: "resource", Code: SupervisorLost, Retryable: true,
		Message: "its supervisor and its agent are gone, and neither wrote how it ended"}
	if restarted(r) {
		r.Reason.Code, r.Reason.Message = HostRestarted, "host restarted"
	}
	if !r.StartedAt.IsZero() {
		r.RanS = record.Seconds(r.EndedAt.Sub(r.StartedAt.Time))
	}
}

func restarted(r *Run) bool {
	boot := r.HostBoot
	if boot == "" {
		boot = r.Handsel.BootID
	}
	return boot != "" && boot != machine.BootID()
}

// lastKnown is the moment nearest to a lost run's end that can be known: the
// start of this boot for one of an earlier boot, else when it last wrote
// something. It is never before its start and never in the future.
func (n *now) lastKnown(r *Run) time.Time {
	wall := machine.Now()
	last := time.Time{}
	for _, t := range []record.Time{r.QueuedAt, r.AdmittedAt, r.StartedAt} {
		if t.After(last) {
			last = t.Time
		}
	}
	floor := last
	if restarted(r) {
		last = later(last, wall.Add(-machine.SinceBoot()))
	} else {
		last = later(last, n.at.lastWrite(r.ID))
	}
	if last.After(wall) {
		last = wall
	}
	return later(floor, last)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// lastWrite is when a file of the run's directory last changed.
func (p Place) lastWrite(id string) (last time.Time) {
	entries, err := os.ReadDir(p.dirOf(id))
	if err != nil {
		return last
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			last = later(last, info.ModTime())
		}
	}
	return last
}

// dirOf is the directory of a run's record, whether or not it is there.
func (p Place) dirOf(id string) string {
	t, _ := timeOf(id)
	return filepath.Join(p.Home.Runs(), t.Format(time.DateOnly), id)
}

// timeOf reads the time in a UUIDv7.
func timeOf(id string) (time.Time, bool) {
	if len(id) != 36 {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(id[:8]+id[9:13], 16, 64)
	return time.UnixMilli(ms).UTC(), err == nil
}

// withoutRecord is what slots, a lane, a ticket or processes say of a run that
// has no record: it was not written yet, or could not be.
func (n *now) withoutRecord(id string) Run {
	if t := n.tickets[id]; t != nil {
		r := t.run
		r.ticket, r.Place = t, t.place
		if s := n.lanes()[id]; s != nil {
			r.Lane = s.Name // kept while slots are waited for (S19)
		}
		return r
	}
	if n.slots[id] == nil {
		if s := n.lanes()[id]; s != nil {
			return ofLane(id, s)
		}
		return n.ofProcess(id)
	}
	r := Run{Sources: []string{FromSlot}}
	r.V, r.ID, r.State, r.Verb, r.UID = record.Version, id, record.Starting, "run", os.Geteuid()
	for _, s := range n.slots[id] {
		r.addSlot(s)
	}
	if s := n.lanes()[id]; s != nil {
		// A driver writes the lane first: until then its slots name the dispatcher.
		r.Lane, r.Handsel = s.Name, *identity(s.Record.HolderClaim())
		r.Sources = append(r.Sources, FromLane)
	}
	return r
}

func (r *Run) addSlot(s taken) {
	rec := s.rec
	r.Engine, r.Workload, r.Argv0, r.HostBoot = rec.Engine, rec.Workload, rec.Argv0, rec.BootID
	r.Handsel = *identity(rec.Holder())
	r.AdmittedAt = record.At(rec.SinceTime())
	if rec.Workload == lease.GateWorkload {
		r.Verb = "gate"
	}
	if child, named := rec.Child(); named {
		r.Child, r.State = identity(child), record.Running
	}
	r.Pools = append(r.Pools, record.Pool{Name: s.pool, Slot: s.index, Cap: rec.Cap})
	r.Orphaned = r.Orphaned || s.state == slot.Orphaned
	r.Unverifiable = r.Unverifiable || s.state == slot.Unverifiable
}

// ofProcess is what can be said of a run that only its processes know of.
func (n *now) ofProcess(id string) Run {
	r := Run{Sources: []string{FromProcess}, Orphaned: true}
	r.V, r.ID, r.State, r.Verb, r.UID = record.Version, id, record.Running, "run", os.Geteuid()
	if st, ok := n.stray(id); ok {
		r.Child, r.Argv0 = identity(st.ID().Claim()), st.Comm
	}
	r.QueuedAt.Time, _ = timeOf(id)
	r.HostBoot = machine.BootID()
	return r
}
