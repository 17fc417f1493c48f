package handsel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/status"
)

// What a permission answers now (P1).
const (
	AnswerGo   = "go"
	AnswerWait = "wait"
	AnswerDeny = "deny" // waiting does not end it
)

// Permission is one of the questions that must be answered before something
// starts, and its present answer (P6).
type Permission struct {
	Class   string          `json:"class"` // hold, quota, time, dependency, resource, ownership, acceptance, release
	Answer  string          `json:"answer"`
	Code    string          `json:"code"` // of the reason; of go, what was found
	Message string          `json:"message"`
	Since   record.Time     `json:"since,omitzero"`
	Until   record.Time     `json:"until,omitzero"`
	Holders []record.Holder `json:"holders,omitempty"`
	Ends    string          `json:"ends,omitempty"` // what would end it
}

// Explained is why something waits, or does not.
type Explained struct {
	V           int          `json:"v"`
	At          record.Time  `json:"at"`
	Kind        string       `json:"kind"` // lane, run, engine, pool
	Name        string       `json:"name"`
	Lane        string       `json:"lane,omitempty"`
	Attempt     string       `json:"attempt,omitempty"` // or the run
	State       string       `json:"state,omitempty"`
	Outcome     string       `json:"outcome,omitempty"`
	Place       int          `json:"place,omitempty"`
	Pools       []string     `json:"pools,omitempty"`
	Waits       bool         `json:"waits"` // at least one answer is not go
	Permissions []Permission `json:"permissions"`
	Source      string       `json:"source"` // dispatcher or disk
	Problems    []string     `json:"problems"`
}

// The codes of answers that are go.
const (
	CodeFree     = "free"      // nothing of this kind is in the way
	CodeHoldsIt  = "owner"     // it has what it asked for
	CodeWaitsFor = "not_asked" // it was not asked for any
)

// CodeQueue is why a row waits that others in the queue come before.
const CodeQueue = "queue"

// Why says what each permission answers now about a lane, a run, an attempt, an
// engine or a pool: what holds it, and what would end that. Acceptance and release
// are asked of what has ended. It changes nothing.
func (h *Home) Why(ctx context.Context, x string) (*Explained, error) {
	w := h.look(ctx)
	defer w.close()
	y := &inquiry{world: w, snap: h.Status(ctx), out: &Explained{V: 1, At: record.At(machine.Now()), Name: x, Permissions: []Permission{}, Source: FromDispatcher}}
	if !w.answers() {
		y.out.Source = FromDisk
	} else if st, err := w.client.Status(ctx); err == nil {
		y.all = st.DefaultAll
	}
	orders, err := hold.List(h.dir.Holds())
	if err != nil {
		y.ask(Permission{Class: "hold", Answer: AnswerWait, Code: "untrusted", Message: err.Error(), Ends: "the directory of holds can be read"})
	}
	y.orders = orders
	if err := y.about(ctx, x); err != nil {
		return nil, err
	}
	for _, p := range y.out.Permissions {
		y.out.Waits = y.out.Waits || p.Answer != AnswerGo
	}
	y.out.Problems = append(append([]string{}, w.problem...), y.snap.Problems...)
	return y.out, nil
}

// inquiry is one Why.
type inquiry struct {
	*world
	snap   *Snapshot
	orders hold.Orders
	all    int // the cap of all that rows run under where none is set (L13a); 0: none
	out    *Explained
}

func (y *inquiry) ask(p Permission) { y.out.Permissions = append(y.out.Permissions, p) }

// about finds out what X is, and asks the permissions that apply to it.
func (y *inquiry) about(ctx context.Context, x string) error {
	kind, text, ok := strings.Cut(x, ":")
	if ok && (kind == "engine" || kind == "account" || kind == "pool") {
		return y.group(kind, text)
	}
	k, err := y.one(x)
	switch {
	case err == nil:
		y.run(ctx, k)
		return nil
	case kind == "run" && ok:
		return err
	case ok && kind == "lane":
		if y.h.laneKnown(text) || y.heldLane(text) {
			return y.idle(text)
		}
		return err
	}
	return y.bare(x, err)
}

// bare is a name that fits no single run or lane: an engine or a pool.
func (y *inquiry) bare(x string, err error) error {
	fits := slices.DeleteFunc(y.h.scopesOf(x), func(s string) bool { return strings.HasPrefix(s, "lane:") })
	if len(fits) == 0 && y.h.laneKnown(x) {
		return y.idle(x)
	}
	if len(fits) != 1 || y.h.laneKnown(x) {
		return err
	}
	kind, name, _ := strings.Cut(fits[0], ":")
	return y.group(kind, name)
}

func (y *inquiry) heldLane(name string) bool {
	return slices.ContainsFunc(y.orders.All, func(o Order) bool { return o.Scope == "lane:"+name })
}

// idle is a lane that nobody has and that has no run on record.
func (y *inquiry) idle(name string) error {
	y.out.Kind, y.out.Lane, y.out.Name = "lane", name, name
	y.holds("", nil, name)
	y.lane(name, "")
	return nil
}

// group is an engine or a pool: what holds its starts, and its slots.
func (y *inquiry) group(kind, name string) error {
	y.out.Kind, y.out.Name = kind, name
	switch kind {
	case "engine", "account":
		engine, account, named := strings.Cut(name, "/")
		canonical, err := y.h.EngineName(engine)
		if err != nil {
			return err
		}
		y.out.Kind, y.out.Name = "engine", canonical
		y.out.Pools = poolsFor(canonical, Heavy)
		if named {
			y.out.Name = canonical + "/" + account
		}
		y.holds(y.out.Name, y.out.Pools, "")
		y.quota(y.out.Name, "")
	default:
		if !slices.Contains(y.h.poolNames(), name) {
			return &NotFound{Name: "pool:" + name}
		}
		y.out.Pools = []string{name}
		y.holds("", y.out.Pools, "")
	}
	y.slots(y.out.Pools, nil)
	return nil
}

func poolsFor(engine, workload string) []string {
	a := asker{start: Start{Engine: engine, Workload: workload}}
	return a.names()
}

// run is an attempt or a run.
func (y *inquiry) run(ctx context.Context, k *KnownRun) {
	o := y.out
	o.Kind, o.Name, o.Lane, o.Attempt, o.State, o.Outcome, o.Place = "run", k.ID, k.Lane, k.ID, k.State, k.Outcome, k.Place
	if k.Lane != "" {
		o.Kind, o.Name = "lane", k.Lane
	}
	if k.Ended() {
		y.ended(k)
		y.review(ctx, k)
		return
	}
	row := y.rows[k.ID]
	ticket := y.ticket(k.ID)
	switch {
	case row != nil:
		o.Pools = row.Pools
	case ticket != nil:
		for _, p := range ticket.Pools {
			o.Pools = append(o.Pools, p.Name)
		}
	case len(k.Pools) > 0:
		for _, p := range k.Pools {
			o.Pools = append(o.Pools, p.Name)
		}
	default:
		o.Pools = poolsFor(k.Engine, k.Workload)
	}
	if k.State == record.Running || k.State == record.Starting && row == nil && len(y.held(k.ID)) > 0 {
		y.running(k)
		return
	}
	y.holds(accountOf(k), o.Pools, k.Lane)
	if row != nil {
		y.row(ctx, row)
		return
	}
	y.quota(accountOf(k), k.ID)
	y.waiter(k, ticket)
}

// ended is what became of it: nothing of it waits. A lane that nobody has is told
// in the same line.
func (y *inquiry) ended(k *KnownRun) {
	p := Permission{Class: "ownership", Answer: AnswerGo, Code: cmp.Or(k.Outcome, record.Ended), Message: "it has ended: " + endedText(k), Since: k.EndedAt}
	if k.Reason != nil {
		p.Class, p.Code, p.Message = k.Reason.Class, k.Reason.Code, p.Message+": "+k.Reason.Message
	}
	if k.Lane == "" {
		y.ask(p)
		return
	}
	y.holds(k.Engine, nil, k.Lane)
	if s, err := lane.Look(y.h.dir, k.Lane); err == nil && s.State == lane.Free && p.Class == "ownership" {
		p.Code, p.Message = CodeFree, "nobody owns the lane; the attempt has ended: "+endedText(k)
		y.ask(p)
		return
	}
	y.ask(p)
	y.lane(k.Lane, k.ID)
}

// endedText is how a run ended, with what failed where its status does not say so.
func endedText(k *KnownRun) string {
	text := k.Word()
	if k.ExitCode != nil && k.Outcome == record.Exited {
		text = fmt.Sprintf("exit status %d", *k.ExitCode)
	}
	if k.Kind != "" {
		text += ", failed: " + k.Kind
	}
	return text
}

// running is something that has all it asked for.
func (y *inquiry) running(k *KnownRun) {
	held := Permission{Class: "resource", Answer: AnswerGo, Code: CodeHoldsIt, Message: "it holds a slot in each of its pools", Since: k.AdmittedAt}
	if held.Holders = y.held(k.ID); len(held.Holders) == 0 {
		held.Code, held.Message = CodeWaitsFor, "it holds no slot: nothing was counted when it started"
	}
	y.ask(held)
	p := Permission{Class: "ownership", Answer: AnswerGo, Code: CodeHoldsIt, Message: ownsText(k), Since: k.StartedAt}
	if k.Lane != "" {
		if s, err := lane.Look(y.h.dir, k.Lane); err == nil && s.State != lane.Free {
			p.Message, p.Holders = strings.ReplaceAll(ownedText(s), ", attempt "+k.ID, ""), ownerOf(s)
		}
	}
	y.ask(p)
}

// held are the slots that stand for a run.
func (y *inquiry) held(id string) (slots []record.Holder) {
	for _, name := range y.snap.Order() {
		for _, s := range y.snap.Pools[name].Holders {
			if s.Run == id {
				slots = append(slots, record.Holder{Pool: name, Slot: s.Slot, Pid: s.Holder, Child: s.Child, Run: s.Run})
			}
		}
	}
	return slots
}

func ownsText(k *KnownRun) string {
	switch {
	case k.Orphaned && k.Child != nil:
		return fmt.Sprintf("its supervisor is gone, and its agent (pid %d) lives", k.Child.Pid)
	case k.Unverifiable:
		return "it cannot be looked at from here"
	}
	return fmt.Sprintf("it is supervised by process %d", k.Handsel.Pid)
}

func (y *inquiry) ticket(id string) *status.Waiter {
	for i := range y.snap.Waiting {
		if y.snap.Waiting[i].Run == id {
			return &y.snap.Waiting[i]
		}
	}
	return nil
}

// holds asks the orders.
func (y *inquiry) holds(engine string, pools []string, name string) {
	found := false
	for _, o := range y.orders.All {
		one := hold.Orders{All: []Order{o}}
		if _, binds := one.MatchLane(engine, pools, name); !binds {
			continue
		}
		found = true
		text := o
		text.Until = time.Time{} // is said besides
		p := Permission{Class: "hold", Answer: AnswerWait, Code: cmp.Or(o.Code, string(o.Kind)), Message: orderText(text), Since: record.At(o.Since), Until: at(o.Until)}
		p.Ends = "handsel resume"
		if o.Scope != scopeAll {
			p.Ends += " " + o.Scope
		}
		if !o.Until.IsZero() {
			p.Ends += ", or the time it has"
		}
		y.ask(p)
	}
	if !found {
		y.ask(Permission{Class: "hold", Answer: AnswerGo, Code: CodeFree, Message: "no order holds it"})
	}
}

// row asks what is asked of a waiting lane.
func (y *inquiry) row(ctx context.Context, r *QueueRow) {
	y.time(&r.Row)
	y.after(ctx, &r.Row)
	y.quota(account(r.Placement.Engine, r.Placement.Account), r.ID)
	y.slots(r.Pools, &r.Row)
	y.queue(r)
	y.said(r)
}

func (y *inquiry) time(r *attempt.Row) {
	p := Permission{Class: "time", Answer: AnswerGo, Code: CodeFree, Message: "it may start at any time"}
	if y.out.At.Before(r.NotBefore.Time) {
		p = Permission{Class: "time", Answer: AnswerWait, Code: "not_before", Message: "it was asked not to start earlier", Until: record.At(r.NotBefore.Time), Ends: "that time"}
	}
	y.ask(p)
}

// after asks what the row comes after.
func (y *inquiry) after(ctx context.Context, r *attempt.Row) {
	if len(r.After) == 0 {
		y.ask(Permission{Class: "dependency", Answer: AnswerGo, Code: CodeFree, Message: "it comes after nothing"})
		return
	}
	for _, a := range r.After {
		y.ask(y.behind(ctx, a))
	}
}

func (y *inquiry) behind(ctx context.Context, a attempt.After) Permission {
	name := "lane " + strconv.QuoteToASCII(a.Lane)
	if a.Lane == "" {
		name = "attempt " + a.Attempt
	}
	k, known := y.run1(ctx, a)
	p := Permission{Class: "dependency", Answer: AnswerWait, Code: "dependency", Message: "it comes after " + name}
	switch {
	case !known:
		p.Code, p.Message, p.Ends = "dependency_unknown", "what became of "+name+" is not known", "handsel cancel, or a dispatcher that knows"
	case !k.Ended():
		p.Message, p.Ends = fmt.Sprintf("it comes after %s, which is %s", name, k.Word()), "the end of "+name
		if !a.Any {
			p.Ends = "the success of " + name
		}
	case a.Any || k.Succeeded():
		p.Answer, p.Code, p.Message = AnswerGo, CodeFree, fmt.Sprintf("%s, which it comes after, has ended: %s", name, k.Word())
	default:
		p.Answer, p.Code = AnswerDeny, "dependency_failed"
		p.Message, p.Ends = fmt.Sprintf("it comes after the success of %s, which ended without: %s", name, k.Word()), "handsel retry of "+name+", or cancelling this one"
	}
	return p
}

// run1 is the attempt that another comes after.
func (y *inquiry) run1(ctx context.Context, a attempt.After) (KnownRun, bool) {
	if a.Attempt == "" {
		return y.ofLane(a.Lane)
	}
	if y.answers() {
		if all, err := y.client.Attempts(ctx, api.Filter{Attempt: a.Attempt}); err == nil && len(all.Attempts) > 0 {
			k := KnownRun{}
			k.ID = a.Attempt
			return ofAttempt(&all.Attempts[0], k), true
		}
	}
	return y.world.run(a.Attempt)
}

// slots asks the pools: which are full, and who is in them.
func (y *inquiry) slots(pools []string, r *attempt.Row) {
	y.pressed()
	full := false
	for _, name := range pools {
		p, ok := y.snap.Pools[name]
		limit := y.limit(name, p.Effective, r)
		if !ok || limit == 0 || p.Held < limit {
			continue
		}
		full = true
		one := Permission{Class: "resource", Answer: AnswerWait, Code: CodePoolFull, Ends: "one of those that hold it ends, or its cap is raised"}
		one.Message = fmt.Sprintf("pool %q is at its cap of %d%s", name, limit, y.capFrom(name, limit))
		for _, s := range p.Holders {
			switch s.State {
			case status.Orphaned:
				one.Ends += fmt.Sprintf("; handsel cancel %s ends the orphaned agent in slot %s/%d", s.Run, name, s.Slot)
			case status.Unverifiable:
				one.Ends += fmt.Sprintf("; handsel gc --slot %s/%d, if its agent is gone", name, s.Slot)
			}
			one.Holders = append(one.Holders, record.Holder{Pool: name, Slot: s.Slot, Pid: s.Holder, Child: s.Child, Run: s.Run})
		}
		y.ask(one)
	}
	if !full {
		y.ask(Permission{Class: "resource", Answer: AnswerGo, Code: CodeFree, Message: "no pool it counts against is full" + poolsText(pools, y.snap)})
	}
}

// limit is the smallest cap in play: the files', the holders', the row's own.
func (y *inquiry) limit(name string, effective int, r *attempt.Row) int {
	if r == nil {
		return effective
	}
	if name == poolAll && effective == 0 {
		effective = y.all
	}
	n, err := strconv.Atoi(strings.TrimSpace(r.Placement.Caps[capVariable(name)]))
	if err != nil || n <= 0 || effective != 0 && effective < n {
		return effective
	}
	return n
}

// capVariable is the variable that caps a pool (S2).
func capVariable(pool string) string {
	if pool == poolAll {
		return "HANDSEL_MAX_AGENTS"
	}
	return "HANDSEL_MAX_AGENTS_" + strings.ToUpper(strings.ReplaceAll(pool, "-", "_"))
}

func (y *inquiry) capFrom(name string, limit int) string {
	for _, c := range y.snap.Caps {
		if c.Pool == name && c.Cap == limit {
			return " (" + c.From + ")"
		}
	}
	if y.snap.Pools[name].Effective == limit {
		return " (as a holder read it)"
	}
	return " (as its launcher had it)"
}

func poolsText(pools []string, s *Snapshot) string {
	var all []string
	for _, name := range pools {
		if p, ok := s.Pools[name]; ok && p.Effective != 0 {
			all = append(all, fmt.Sprintf("%s %d/%d", name, p.Held, p.Effective))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}

// queue asks whose turn it is, and who keeps the row.
func (y *inquiry) queue(r *QueueRow) {
	if r.Place > 1 {
		p := Permission{Class: "resource", Answer: AnswerWait, Code: CodeQueue, Since: record.At(r.QueueStart.Time), Ends: "those ahead start, or are cancelled"}
		p.Message = fmt.Sprintf("it is in place %d", r.Place)
		if r.Behind > 0 {
			p.Message += fmt.Sprintf(", behind %d of higher priority", r.Behind)
		}
		if len(r.AheadByAuthor) > 0 {
			p.Message += ", after " + authorsText(r.AheadByAuthor)
		}
		y.ask(p)
	}
	s, err := lane.Look(y.h.dir, r.Lane)
	switch {
	case err != nil:
		y.problem = append(y.problem, err.Error())
	case s.State != lane.Free && s.Record.Owned() && idIn(s.Record) != r.ID:
		y.ask(Permission{Class: "ownership", Answer: AnswerWait, Code: CodeLaneOwned, Message: ownedText(s), Holders: ownerOf(s), Ends: "its owner ends"})
		return
	}
	d := y.h.seenDispatcher(y.world)
	switch d.State {
	case DispatcherAnswers:
		y.ask(Permission{Class: "ownership", Answer: AnswerGo, Code: CodeHoldsIt, Message: "the dispatcher keeps its lane", Since: record.At(r.StateSince.Time), Holders: ownerOf(s)})
	case DispatcherSilent:
		y.ask(Permission{Class: "ownership", Answer: AnswerWait, Code: api.CodeNoAnswer, Message: d.Message, Since: d.Heartbeat, Ends: "the dispatcher answers again"})
	default:
		y.ask(Permission{Class: "ownership", Answer: AnswerWait, Code: api.CodeNotThere, Message: d.Message, Since: d.Heartbeat, Ends: "handsel dispatch"})
	}
}

func authorsText(all []api.Author) string {
	var parts []string
	for _, a := range all {
		parts = append(parts, fmt.Sprintf("%d by %s", a.Rows, cmp.Or(a.Author, "nobody named")))
	}
	return strings.Join(parts, ", ")
}

// seenDispatcher is the dispatcher as a look found it.
func (h *Home) seenDispatcher(w *world) SeenDispatcher {
	if w.answers() {
		return SeenDispatcher{State: DispatcherAnswers}
	}
	return h.absent(w.silent)
}

// said adds the dispatcher's own reason, where ours did not find it.
func (y *inquiry) said(r *QueueRow) {
	if r.Reason == nil || slices.ContainsFunc(y.out.Permissions, func(p Permission) bool { return p.Code == r.Reason.Code }) {
		return
	}
	p := Permission{Class: r.Reason.Class, Answer: AnswerWait, Code: r.Reason.Code, Message: r.Reason.Message, Until: r.Reason.Until, Holders: r.Reason.Holders}
	if !r.Reason.Retryable {
		p.Answer = AnswerDeny
	}
	y.out.Permissions = slices.DeleteFunc(y.out.Permissions, func(have Permission) bool {
		return have.Class == p.Class && have.Answer == AnswerGo && !ofPressure(have.Code)
	})
	y.ask(p)
}

// waiter is a direct run that waits: for its lane, or in line.
func (y *inquiry) waiter(k *KnownRun, t *status.Waiter) {
	if t == nil {
		if k.Lane != "" {
			y.lane(k.Lane, k.ID)
		}
		y.slots(y.out.Pools, nil)
		return
	}
	y.out.Place = t.Place
	y.slots(y.out.Pools, nil)
	p := Permission{Class: "resource", Answer: AnswerWait, Code: t.Reason, Since: record.Time{Time: t.Since.Time}}
	switch {
	case slices.ContainsFunc(y.out.Permissions, func(have Permission) bool { return have.Code == t.Reason }):
	case t.Reason == CodeLaneOwned: // is asked below
	case t.Reason == CodeLine:
		p.Message, p.Ends = fmt.Sprintf("it is in place %d in line, and somebody ahead may take the room there is", t.Place), "those ahead start or leave"
		y.ask(p)
	case t.Reason == "stopped":
		p.Message, p.Ends = fmt.Sprintf("its process, %d, is stopped", t.Pid), "kill -CONT, or its end"
		y.ask(p)
	default:
		p.Class, p.Message = classOf(t.Reason), "its ticket says: "+t.Reason
		if t.Until != nil {
			p.Until = record.Time{Time: t.Until.Time}
		}
		y.ask(p)
	}
	if k.Lane != "" {
		y.lane(k.Lane, k.ID)
	}
}

// lane asks who owns a lane; id has it, or wants it.
func (y *inquiry) lane(name, id string) {
	s, err := lane.Look(y.h.dir, name)
	if err != nil {
		y.problem = append(y.problem, err.Error())
		return
	}
	switch {
	case s.State == lane.Free:
		y.ask(Permission{Class: "ownership", Answer: AnswerGo, Code: CodeFree, Message: "nobody owns the lane"})
	case id != "" && s.Record.Owned() && idIn(s.Record) == id:
		y.ask(Permission{Class: "ownership", Answer: AnswerGo, Code: CodeHoldsIt, Message: ownedText(s), Holders: ownerOf(s)})
	default:
		p := Permission{Class: "ownership", Answer: AnswerWait, Code: CodeLaneOwned, Message: ownedText(s), Holders: ownerOf(s), Ends: "its owner ends"}
		if s.Record != nil {
			p.Since = at(s.Record.SinceTime())
		}
		if s.State == lane.Orphaned {
			p.Ends = "handsel cancel lane:" + name + ", or the agent ends"
		}
		y.ask(p)
	}
}
