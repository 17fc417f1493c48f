package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel"
)

// column is one column of a section.
type column struct {
	head  string
	width int // 0: what is left over
	from  int // the least width of the screen that has it
}

// subject is what a key is about.
type subject struct {
	x     string // as why takes it; empty: nothing
	run   string // as logs and cancel take it
	scope string // as hold takes it
	what  string // in words
	ends  string // what a cancel does; empty: there is nothing to cancel
}

// section is one list of the screen. Nothing but what is visible is asked for its
// cells.
type section interface {
	name() string
	columns() []column
	len() int
	key(i int) string  // the same at every look
	text(i int) string // what a filter finds
	cells(i int) []string
	tone(i int) tone
	more(i int) []string // what there is no room for in a row
	subject(i int) subject
}

// sectionsOf makes a board into the sections of the screen: first the five
// permissions.
func sectionsOf(b *handsel.Board) []section {
	var all []section
	from := 0
	for _, box := range handsel.Boxes() {
		to := from
		for to < len(b.Cards) && b.Cards[to].Box == box {
			to++
		}
		all = append(all, &cards{b, box, b.Cards[from:to]})
		from = to
	}
	return append(all, newSlots(b), &tickets{b}, newOrders(b), &problems{b})
}

// counts are how many each has. A box counts what is beyond the cards as well.
func count(b *handsel.Board, s section) int {
	if c, ok := s.(*cards); ok {
		n := b.Boxes[c.box]
		return n.Go + n.Wait + n.Deny
	}
	return s.len()
}

// cards are those of one box.
type cards struct {
	b   *handsel.Board
	box string
	all []handsel.Card
}

func (s *cards) name() string          { return s.box }
func (s *cards) len() int              { return len(s.all) }
func (s *cards) key(i int) string      { return s.all[i].ID }
func (s *cards) at(t time.Time) string { return ago(s.b.At.Time, t) }

func (s *cards) columns() []column {
	all := []column{{"LANE OR RUN", 24, 0}, {"STATE", 12, 0}, {"ENGINE", 8, 0}}
	if s.box == boxOwnership {
		all = append(all, column{"AGENT", 8, 0}, column{"FOR", 7, 0}, column{"LAST EVENT", 10, 0})
	} else {
		all = append(all, column{"PLACE", 5, 0}, column{"FOR", 7, 0})
	}
	return append(all, column{"CODE", 14, 76}, column{"COMMAND", 14, 130}, column{"AUTHOR", 12, 150}, column{"RUN", 8, 100}, column{"WHY", 0, 0})
}

const (
	boxOwnership = "ownership"
	boxEnded     = handsel.BoxEnded
)

// name of a card: its lane, or of a run without one the end of its id.
func nameOf(c *handsel.Card) string {
	if c.Lane == "" {
		return "run " + short(c.ID)
	}
	return c.Lane
}

func (s *cards) text(i int) string {
	c := &s.all[i]
	return strings.Join([]string{c.Lane, c.ID, c.State, c.Code, c.Engine, c.Account, c.Argv0, c.Author, strings.Join(c.Pools, " "), c.Review}, " ")
}

func (s *cards) cells(i int) []string {
	c := &s.all[i]
	out := []string{nameOf(c), stateOf(c), c.Engine}
	if s.box == boxOwnership {
		out = append(out, number(c.Child), s.at(c.Since.Time), s.at(c.Active.Time))
	} else {
		out = append(out, number(c.Place), s.at(c.Since.Time))
	}
	return append(out, c.Code, c.Argv0, c.Author, short(c.ID), c.Message)
}

// stateOf marks what nobody watches over, and what is not certain.
func stateOf(c *handsel.Card) string {
	if c.State == "orphaned" || c.State == "unverifiable" {
		return "!" + c.State
	}
	return c.State
}

func (s *cards) tone(i int) tone {
	c := &s.all[i]
	switch {
	case c.State == "orphaned", c.State == "unverifiable":
		return bad
	case c.Answer == handsel.AnswerWait:
		return waits
	case c.Answer == handsel.AnswerDeny:
		return bad
	case c.Box == boxEnded:
		return faint
	}
	return good
}

func (s *cards) more(i int) []string {
	c := &s.all[i]
	why := c.Answer + ": " + c.Code
	if c.Message != "" {
		why += ": " + c.Message
	}
	if !c.Until.IsZero() {
		why += ", until " + moment(c.Until.Time)
	}
	return []string{why, strings.Join(s.facts(c), ", ")}
}

func (s *cards) facts(c *handsel.Card) []string {
	facts := []string{"run " + short(c.ID), strings.TrimSpace(c.Verb + " " + c.Argv0)}
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, name+" "+value)
		}
	}
	add("engine", strings.TrimSuffix(c.Engine+"/"+c.Account, "/"))
	add("as", c.Workload)
	add("in pools", strings.Join(c.Pools, " "))
	add("driver", number(c.Holder))
	add("agent", number(c.Child))
	add("author", c.Author)
	if c.Priority != 0 {
		add("priority", strconv.Itoa(c.Priority))
	}
	if c.Fence != 0 {
		add("fence", strconv.FormatUint(c.Fence, 10))
	}
	return facts
}

func (s *cards) subject(i int) subject {
	c := &s.all[i]
	out := subject{x: "run:" + c.ID, run: "run:" + c.ID, what: "run " + short(c.ID)}
	if c.Lane != "" {
		out.scope, out.what = "lane:"+c.Lane, "lane "+c.Lane+" (run "+short(c.ID)+")"
	}
	switch {
	case c.Box == boxEnded || c.Review != "":
	case c.Child != 0:
		out.ends = fmt.Sprintf("ends its agent (pid %d) and all that it started", c.Child)
	case c.State == "queued" || c.Place > 0:
		out.ends = "takes it out of the line"
	default:
		out.ends = "ends it and all that it started"
	}
	return out
}

// slots are those that are taken, pool by pool.
type slots struct {
	b   *handsel.Board
	all []taken
}

type taken struct {
	pool string
	at   int // among its holders
}

func newSlots(b *handsel.Board) *slots {
	s := &slots{b: b}
	for _, name := range b.Status.Order() {
		for i := range b.Status.Pools[name].Holders {
			s.all = append(s.all, taken{name, i})
		}
	}
	return s
}

func (s *slots) name() string { return "slots" }
func (s *slots) len() int     { return len(s.all) }
func (s *slots) key(i int) string {
	return s.all[i].pool + "/" + strconv.Itoa(s.b.Status.Pools[s.all[i].pool].Holders[s.all[i].at].Slot)
}

func (s *slots) columns() []column {
	return []column{{"POOL", 12, 0}, {"SLOT", 4, 0}, {"STATE", 13, 0}, {"ENGINE", 8, 0}, {"HOLDER", 8, 0}, {"AGENT", 8, 0}, {"FOR", 7, 0}, {"RUN", 8, 100}, {"WORKLOAD", 8, 120}, {"COMMAND", 0, 0}}
}

func (s *slots) cells(i int) []string {
	t := s.all[i]
	h := s.b.Status.Pools[t.pool].Holders[t.at]
	state := h.State
	if state == "orphaned" || state == "unverifiable" {
		state = "!" + state
	}
	return []string{t.pool, strconv.Itoa(h.Slot), state, h.Engine, number(h.Holder), number(h.Child), ago(s.b.At.Time, h.Since.Time), short(h.Run), h.Workload, h.Argv0}
}

func (s *slots) text(i int) string { return strings.Join(s.cells(i), " ") }

func (s *slots) tone(i int) tone {
	switch t := s.all[i]; s.b.Status.Pools[t.pool].Holders[t.at].State {
	case "running":
		return good
	case "starting":
		return waits
	}
	return bad
}

func (s *slots) more(i int) []string {
	t := s.all[i]
	h := s.b.Status.Pools[t.pool].Holders[t.at]
	text := fmt.Sprintf("slot %d of pool %s: %s", h.Slot, t.pool, h.State)
	if h.Cap > 0 {
		text += fmt.Sprintf(", taken under a cap of %d", h.Cap)
	}
	return []string{text, "run " + h.Run}
}

func (s *slots) subject(i int) subject {
	t := s.all[i]
	h := s.b.Status.Pools[t.pool].Holders[t.at]
	out := subject{x: "pool:" + t.pool, scope: "pool:" + t.pool, what: "pool " + t.pool}
	if h.Run != "" {
		out.run, out.what = "run:"+h.Run, "run "+short(h.Run)
		out.ends = "ends it and all that it started"
		if h.Child != 0 {
			out.ends = fmt.Sprintf("ends its agent (pid %d) and all that it started", h.Child)
		}
	}
	return out
}

// tickets are the places in line.
type tickets struct{ b *handsel.Board }

func (s *tickets) name() string { return "line" }
func (s *tickets) len() int     { return len(s.b.Status.Waiting) }
func (s *tickets) key(i int) string {
	return cmp.Or(s.b.Status.Waiting[i].Run, strconv.Itoa(s.b.Status.Waiting[i].Pid))
}

func (s *tickets) columns() []column {
	return []column{{"PLACE", 5, 0}, {"WAITS FOR", 20, 0}, {"ENGINE", 8, 0}, {"PID", 8, 0}, {"PRIO", 5, 0}, {"FOR", 7, 0}, {"RUN", 8, 0}, {"PASSED", 6, 120}, {"WORKLOAD", 8, 120}, {"POOLS", 0, 0}}
}

func (s *tickets) cells(i int) []string {
	w := &s.b.Status.Waiting[i]
	var pools []string
	for _, p := range w.Pools {
		pools = append(pools, p.Name)
	}
	return []string{strconv.Itoa(w.Place), strings.TrimSpace(w.Reason + " " + w.Pool), w.Engine, number(w.Pid), strconv.Itoa(w.Priority),
		ago(s.b.At.Time, w.Since.Time), short(w.Run), strconv.Itoa(w.Passes), w.Workload, strings.Join(pools, " ")}
}

func (s *tickets) text(i int) string { return strings.Join(s.cells(i), " ") }
func (s *tickets) tone(int) tone     { return waits }

func (s *tickets) more(i int) []string {
	w := &s.b.Status.Waiting[i]
	text := fmt.Sprintf("place %d: %s", w.Place, strings.TrimSpace(w.Reason+" "+w.Pool))
	if w.Until != nil {
		text += ", until " + moment(w.Until.Time)
	}
	var pools []string
	for _, p := range w.Pools {
		if pools = append(pools, p.Name); p.Cap > 0 {
			pools[len(pools)-1] += fmt.Sprintf(" (cap %d)", p.Cap)
		}
	}
	return []string{text, "wants " + strings.Join(pools, ", ")}
}

func (s *tickets) subject(i int) subject {
	w := &s.b.Status.Waiting[i]
	if w.Run == "" {
		return subject{what: fmt.Sprintf("pid %d", w.Pid)}
	}
	out := subject{x: "run:" + w.Run, run: "run:" + w.Run, what: "run " + short(w.Run), ends: "takes it out of the line"}
	if lane := laneOf(s.b, w.Run); lane != "" {
		out.scope = "lane:" + lane
	}
	return out
}

func laneOf(b *handsel.Board, run string) string {
	if i := slices.IndexFunc(b.Cards, func(c handsel.Card) bool { return c.ID == run }); i >= 0 {
		return b.Cards[i].Lane
	}
	return ""
}

// orders are what holds starts back: holds and drains, and the engine accounts
// of which something is known.
type orders struct {
	b        *handsel.Board
	holds    []int
	accounts []int
}

// newOrders leaves out the orders of accounts, which stand there with more.
func newOrders(b *handsel.Board) *orders {
	s := &orders{b: b}
	of := map[string]bool{}
	for i := range b.Accounts {
		s.accounts = append(s.accounts, i)
		of[scopeOf(&b.Accounts[i])] = true
	}
	for i, h := range b.Status.Holds {
		if byPeople(h.Kind) || !of[h.Scope] {
			s.holds = append(s.holds, i)
		}
	}
	return s
}

func byPeople(kind string) bool {
	return kind == string(handsel.KindHold) || kind == string(handsel.KindDrain)
}

func scopeOf(a *handsel.QuotaAccount) string {
	if a.Account == "" {
		return "engine:" + a.Engine
	}
	return "account:" + a.Engine + "/" + a.Account
}

func (s *orders) name() string { return "orders" }
func (s *orders) len() int     { return len(s.holds) + len(s.accounts) }

func (s *orders) account(i int) *handsel.QuotaAccount {
	if i -= len(s.holds); i >= 0 {
		return &s.b.Accounts[s.accounts[i]]
	}
	return nil
}

func (s *orders) key(i int) string {
	if a := s.account(i); a != nil {
		return scopeOf(a)
	}
	h := s.b.Status.Holds[s.holds[i]]
	return h.Kind + " " + h.Scope
}

func (s *orders) columns() []column {
	return []column{{"SCOPE", 22, 0}, {"WHAT", 12, 0}, {"BY", 10, 0}, {"UNTIL", 20, 0}, {"REASON", 0, 0}}
}

func (s *orders) cells(i int) []string {
	if a := s.account(i); a != nil {
		return []string{scopeOf(a), a.Code, a.By, moment(a.Until.Time), a.Message}
	}
	h := s.b.Status.Holds[s.holds[i]]
	return []string{h.Scope, h.Kind, h.By, cmp.Or(moment(h.Until.Time), "resumed"), h.Reason}
}

func (s *orders) text(i int) string { return strings.Join(s.cells(i), " ") }

func (s *orders) tone(i int) tone {
	switch a := s.account(i); {
	case a == nil, a.Answer == handsel.AnswerWait:
		return waits
	case a.Answer == handsel.AnswerDeny:
		return bad
	}
	return good
}

func (s *orders) more(i int) []string {
	if a := s.account(i); a != nil {
		lines := []string{a.Answer + ": " + a.Code + ": " + a.Message}
		if a.Ends != "" {
			lines = append(lines, "ends: "+a.Ends)
		}
		return lines
	}
	h := s.b.Status.Holds[s.holds[i]]
	return []string{h.Kind + " of " + h.Scope + " by " + h.By + ", for " + ago(s.b.At.Time, h.Since.Time), h.Reason}
}

func (s *orders) subject(i int) subject {
	if a := s.account(i); a != nil {
		return subject{x: scopeOf(a), scope: scopeOf(a), what: scopeOf(a)}
	}
	h := s.b.Status.Holds[s.holds[i]]
	out := subject{scope: h.Scope, what: h.Kind + " of " + h.Scope}
	if strings.Contains(h.Scope, ":") {
		out.x = h.Scope
	}
	return out
}

// problems are what could not be read, and the agents nothing stands for.
type problems struct{ b *handsel.Board }

func (s *problems) name() string { return "problems" }
func (s *problems) len() int     { return len(s.b.Problems) + len(s.b.Status.Strays) }
func (s *problems) columns() []column {
	return []column{{"WHAT COULD NOT BE READ, AND AGENTS NOTHING STANDS FOR", 0, 0}}
}
func (s *problems) tone(int) tone        { return bad }
func (s *problems) key(i int) string     { return s.text(i) }
func (s *problems) cells(i int) []string { return []string{s.text(i)} }
func (s *problems) more(i int) []string  { return []string{s.text(i)} }

func (s *problems) text(i int) string {
	if i < len(s.b.Problems) {
		return s.b.Problems[i]
	}
	st := s.b.Status.Strays[i-len(s.b.Problems)]
	return fmt.Sprintf("not counted: pid %d (%s) of run %s", st.Pid, st.Comm, st.Run)
}

func (s *problems) subject(i int) subject {
	if i < len(s.b.Problems) {
		return subject{what: "a problem"}
	}
	st := s.b.Status.Strays[i-len(s.b.Problems)]
	return subject{x: "run:" + st.Run, run: "run:" + st.Run, what: "run " + short(st.Run), ends: fmt.Sprintf("ends its agent (pid %d) and all that it started", st.Pid)}
}

// held tells whether an order of a person holds a scope, or an account is parked.
func held(b *handsel.Board, scope string) bool {
	for _, h := range b.Status.Holds {
		if h.Scope == scope {
			return true
		}
	}
	return false
}

func ago(now, t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return ""
	}
	return handsel.Span(now.Sub(t))
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// short is the suffix by which a run is usually named.
func short(id string) string { return id[max(len(id)-8, 0):] }
