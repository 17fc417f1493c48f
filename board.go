package handsel

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/runs"
	"github.com/handsel/handsel/internal/status"
)

// Boxes are the five permissions, in the order in which work passes them, and
// after them what needs none of them any more (W13).
func Boxes() []string { return append([]string{}, boxes...) }

var boxes = []string{journal.Resource, journal.Quota, journal.Ownership, journal.Acceptance, journal.Release, BoxEnded}

// BoxEnded has what ended and is not reviewed.
const BoxEnded = "ended"

// MostEnded is how many cards of work that is over a board has, newest first.
// Work that waits for a verdict or for its release is on it besides, all of it.
const MostEnded = 200

// Card is one lane or run on a board.
type Card struct {
	ID   string `json:"id"` // of the attempt or run
	Lane string `json:"lane,omitempty"`
	// Box is the permission it is at, one of Boxes: the one it waits for, or the
	// last it was given. What a person's order, a time or another lane holds back has
	// been given none, and is at the first.
	Box    string `json:"box"`
	Answer string `json:"answer"` // go: it has it; wait; deny: waiting does not end it
	// Code and Message are why it waits, or how it stands; Class is of the code (it
	// may be hold, time or dependency). Why says more.
	Class   string `json:"class"`
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
	State   string `json:"state"` // queued, starting, running, orphaned, unverifiable, or how it ended

	Since record.Time `json:"since"` // it is at this state
	Until record.Time `json:"until,omitzero"`
	Place int         `json:"place,omitempty"` // in line or in the queue

	Verb     string   `json:"verb"`
	Engine   string   `json:"engine,omitempty"`
	Account  string   `json:"account,omitempty"`
	Workload string   `json:"workload,omitempty"`
	Argv0    string   `json:"argv0"`
	Pools    []string `json:"pools,omitempty"`
	Author   string   `json:"author,omitempty"`
	Fence    uint64   `json:"fence,omitempty"`
	Priority int      `json:"priority,omitempty"`

	Holder int         `json:"holder_pid,omitempty"` // the supervisor or driver
	Child  int         `json:"child_pid,omitempty"`  // the agent
	Active record.Time `json:"last_event_at,omitzero"`
	Review string      `json:"review,omitempty"`
}

// Name is what people call it: its lane, else its run.
func (c *Card) Name() string { return cmp.Or(c.Lane, c.ID) }

// BoxCount is how many cards a box has, by their answer, those beyond MostEnded
// included.
type BoxCount struct {
	Go   int `json:"go"`
	Wait int `json:"wait"`
	Deny int `json:"deny"`
}

// Board is one look at everything that waits, runs, or is to be decided.
type Board struct {
	V          int                 `json:"v"`
	Root       string              `json:"root"`
	At         record.Time         `json:"at"`
	Status     *Snapshot           `json:"status"`
	Mode       string              `json:"mode"` // ModeWaiter or ModeDispatcher
	Dispatcher SeenDispatcher      `json:"dispatcher"`
	Source     string              `json:"source"` // of what waits as rows: FromDispatcher or FromEntries
	AgeS       float64             `json:"age_s"`  // how old that may be
	Draining   bool                `json:"draining"`
	Accounts   []QuotaAccount      `json:"accounts"` // of engines that are known here
	Cards      []Card              `json:"cards"`    // by box; there what waits first, in its order
	Boxes      map[string]BoxCount `json:"boxes"`
	Problems   []string            `json:"problems"`
}

// Watch looks at one home again and again. It belongs to one goroutine.
type Watch struct {
	home *Home
	seen runs.Watch
}

// Watch begins to look. Nothing stays open between two looks.
func (h *Home) Watch() *Watch { return &Watch{home: h} }

// Look takes a look. It changes and creates nothing; what could not be read is in
// Problems. Records of what has ended are read once, so that a window may look
// every second.
func (w *Watch) Look(ctx context.Context) *Board {
	h := w.home
	q := h.Queue(ctx)
	b := &Board{V: 1, Root: h.dir.Path, At: record.At(machine.Now()), Status: h.Status(ctx), Mode: ModeWaiter, Dispatcher: q.Dispatcher,
		Source: q.Source, AgeS: q.AgeS, Draining: q.Draining, Accounts: []QuotaAccount{}, Cards: []Card{}, Boxes: map[string]BoxCount{}, Problems: q.Problems}
	if d, err := h.Dispatching(); err == nil {
		b.Mode = d.Mode
	}
	accounts, problems, err := h.Quota("")
	b.Accounts = append(b.Accounts, accounts...)
	b.note(problems...)
	b.noteError(err)
	at, problems := h.runsPlace()
	b.note(problems...)
	all, problems, err := w.seen.Look(at)
	b.note(problems...)
	b.noteError(err)
	b.deal(q.Rows, all)
	b.note(b.Status.Problems...)
	return b
}

// Dispatched tells whether a dispatcher has the home, by its lock alone. It costs
// some milliseconds where one has, however much there is to look at.
func (w *Watch) Dispatched() bool {
	_, has := api.Judge(w.home.dir)
	return has
}

func (b *Board) note(problems ...string) {
	for _, p := range problems {
		if !slices.Contains(b.Problems, p) {
			b.Problems = append(b.Problems, p)
		}
	}
}

func (b *Board) noteError(err error) {
	if err != nil {
		b.note(err.Error())
	}
}

// deal makes a card of everything and puts it into its box.
func (b *Board) deal(rows []QueueRow, all []KnownRun) {
	waits := waiting(rows, all)
	past := newest{going: map[string]bool{}, decided: map[string]bool{}}
	for i := range rows {
		if !waits[rows[i].ID] {
			continue
		}
		past.going[rows[i].Lane] = true
		b.put(cardOfRow(&rows[i]))
	}
	look := b.sights()
	over := 0
	for i := range all { // newest first
		k := &all[i]
		if waits[k.ID] {
			continue
		}
		c := cardOfRun(k, look)
		if !k.Ended() {
			past.going[c.Lane] = true
		} else if past.covers(&c) {
			continue
		}
		if c.over() {
			if over++; over > MostEnded {
				b.count(&c)
				continue
			}
		}
		b.put(c)
	}
	slices.SortStableFunc(b.Cards, byBox)
}

// waiting are the ids of rows that wait. A row is looked at before runs are, and
// the file of one whose dispatcher is gone stays as it was: what has begun or
// ended since is on record, and one attempt has one card.
func waiting(rows []QueueRow, all []KnownRun) map[string]bool {
	waits := make(map[string]bool, len(rows))
	for i := range rows {
		waits[rows[i].ID] = true
	}
	for i := range all {
		if k := &all[i]; waits[k.ID] && k.State != record.Queued && (k.Ended() || !offered(k)) {
			waits[k.ID] = false
		}
	}
	return waits
}

func (b *Board) put(c Card) {
	b.count(&c)
	b.Cards = append(b.Cards, c)
}

func (b *Board) count(c *Card) {
	n := b.Boxes[c.Box]
	switch c.Answer {
	case AnswerGo:
		n.Go++
	case AnswerWait:
		n.Wait++
	default:
		n.Deny++
	}
	b.Boxes[c.Box] = n
}

// over tells whether nothing can be decided about it any more.
func (c *Card) over() bool { return c.Box == BoxEnded || c.Review == ReviewReleased }

// newest knows of which lanes something newer was seen.
type newest struct{ going, decided map[string]bool }

// covers tells whether a card that ended is superseded: of two that were accepted
// or released in one lane, only the newest goes out (P9), and what was rejected is
// answered for by the attempt after it (P10).
func (n newest) covers(c *Card) bool {
	if c.Lane == "" {
		return false
	}
	switch c.Review {
	case ReviewAccepted, ReviewReleased:
		old := n.decided[c.Lane]
		n.decided[c.Lane] = true
		return old && c.Review == ReviewAccepted
	case ReviewRejected:
		return n.going[c.Lane] || n.decided[c.Lane]
	}
	return false
}

func byBox(x, y Card) int {
	return cmp.Or(
		cmp.Compare(slices.Index(boxes, x.Box), slices.Index(boxes, y.Box)),
		cmp.Compare(rankOf(&x), rankOf(&y)),
		cmp.Compare(x.Place, y.Place),
		cmp.Compare(y.ID, x.ID), // newest first
	)
}

// rankOf puts what waits first, and what runs before what is over.
func rankOf(c *Card) int {
	switch c.Answer {
	case AnswerWait:
		return 0
	case AnswerDeny:
		return 1
	}
	return 2
}

// boxOf is where something stands that waits for a reason of a class.
func boxOf(class string) string {
	if class != BoxEnded && slices.Contains(boxes, class) {
		return class
	}
	return journal.Resource
}

func cardOfRow(r *QueueRow) Card {
	c := Card{
		ID: r.ID, Lane: r.Lane, Answer: AnswerWait, State: r.State, Since: record.At(r.QueueStart.Time), Place: r.Place, Verb: "enqueue",
		Engine: r.Placement.Engine, Account: r.Placement.Account, Workload: r.Placement.Workload, Argv0: r.Argv0, Pools: r.Pools,
		Author: r.Author, Fence: r.Fence, Priority: r.Priority,
	}
	switch {
	case r.State == record.Starting:
		c.Class, c.Code, c.Message, c.Since = journal.Ownership, "claim", "it has its slots, and is offered to a driver", record.At(r.StateSince.Time)
	case r.Reason == nil:
		c.Class, c.Code, c.Message = journal.Resource, CodeQueue, "others in the queue come before it"
	}
	if r.Reason != nil {
		c.reason(r.Reason)
	}
	c.Box = boxOf(c.Class)
	return c
}

func (c *Card) reason(r *Reason) {
	c.Class, c.Code, c.Message, c.Until = r.Class, r.Code, r.Message, r.Until
	if !r.Retryable {
		c.Answer = AnswerDeny
	}
}

// sights is what one look at locks saw of runs, by their ids.
type sights struct {
	tickets map[string]*status.Waiter
	active  map[string]record.Time
}

func (b *Board) sights() *sights {
	s := &sights{tickets: map[string]*status.Waiter{}, active: map[string]record.Time{}}
	for i := range b.Status.Waiting {
		s.tickets[b.Status.Waiting[i].Run] = &b.Status.Waiting[i]
	}
	for i := range b.Status.Agents {
		s.active[b.Status.Agents[i].Run] = record.Time{Time: b.Status.Agents[i].LastEvent.Time}
	}
	return s
}

func cardOfRun(k *KnownRun, look *sights) Card {
	c := Card{
		ID: k.ID, Lane: k.Lane, State: k.Word(), Verb: k.Verb, Engine: k.Engine, Account: k.Account, Workload: k.Workload, Argv0: k.Argv0,
		Author: k.Author, Fence: k.Fence, Place: k.Place, Review: k.Review, Answer: AnswerGo, Class: journal.Ownership, Code: CodeHoldsIt,
	}
	for _, p := range k.Pools {
		c.Pools = append(c.Pools, p.Name)
	}
	if c.Review == ReviewNone || !k.Ended() {
		c.Review = ""
	}
	if k.Ended() {
		c.ended(k)
		return c
	}
	c.Box, c.Holder, c.Active, c.Message = journal.Ownership, k.Handsel.Pid, look.active[k.ID], ownsText(k)
	if k.Child != nil {
		c.Child = k.Child.Pid
	}
	c.Since = cmp.Or(k.StartedAt, k.AdmittedAt, k.QueuedAt)
	if c.Since.IsZero() {
		c.Since = record.At(k.Began())
	}
	if t := look.tickets[k.ID]; t != nil {
		c.waits(t)
	} else if k.State == record.Queued { // it is on record, and has not come to the line
		c.Answer, c.Class, c.Code, c.Box, c.Message = AnswerWait, journal.Resource, CodeLine, journal.Resource, ""
	}
	return c
}

// waits is a direct run in line.
func (c *Card) waits(t *status.Waiter) {
	c.Answer, c.Class, c.Code, c.State, c.Place, c.Priority = AnswerWait, classOf(t.Reason), t.Reason, record.Queued, t.Place, t.Priority
	if t.Until != nil {
		c.Until = record.Time{Time: t.Until.Time}
	}
	c.Box, c.Holder, c.Since, c.Message = boxOf(c.Class), t.Pid, record.Time{Time: t.Since.Time}, ""
	switch {
	case t.Lane != "":
		c.Message = "somebody has its lane"
	case t.Pool != "":
		c.Message = "pool " + t.Pool + " is full"
	case t.Reason == CodeLine:
		c.Message = "somebody ahead in line may take the room there is"
	case t.Reason == "stopped":
		c.Message = "its process is stopped"
	}
}

// ended is where something stands that is over.
func (c *Card) ended(k *KnownRun) {
	c.Box, c.Class, c.Code, c.Message, c.Since = BoxEnded, BoxEnded, cmp.Or(k.Outcome, record.Ended), endedText(k), cmp.Or(k.EndedAt, k.QueuedAt)
	if !k.Succeeded() {
		c.Answer = AnswerDeny
	}
	if k.Reason != nil {
		c.Code, c.Message = k.Reason.Code, k.Reason.Message
	}
	switch k.Review {
	case ReviewPending:
		c.Box, c.Answer, c.Code, c.Message = journal.Acceptance, AnswerWait, CodePending, "it succeeded, and waits for a verdict"
	case ReviewRejected:
		c.Box, c.Answer, c.Code, c.Message = journal.Acceptance, AnswerDeny, CodeRejected, "its last verdict is a rejection"
	case ReviewAccepted:
		c.Box, c.Answer, c.Code, c.Message = journal.Release, AnswerWait, ReviewAccepted, "it was accepted, and may be released"
	case ReviewReleased:
		c.Box, c.Answer, c.Code, c.Message = journal.Release, AnswerGo, ReviewReleased, "it was released"
	}
	if c.Box != BoxEnded {
		c.Class = c.Box
	}
	c.Message = strings.TrimSpace(c.Message)
}
