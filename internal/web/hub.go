package web

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/handsel/handsel"
)

// message is one event of the stream.
type message struct {
	kind string // full, change, beat, bye
	data []byte
}

// client is one reader. What it has not taken stands in messages; when that is
// full, or the server ends, they are closed.
type client struct{ messages chan message }

// Bounds of readers.
const (
	mostClients = 16
	mostUnread  = 32
)

// hub shares one look among all readers. Its fields belong to the goroutine in
// run.
type hub struct {
	joins  chan chan *client
	leaves chan *client
	ended  chan struct{} // closed when run returns
	o      Options

	clients map[*client]bool
	seq     uint64
	head    []byte
	cards   map[string][]byte
	order   []string // of the ids in the last look
	at      time.Time
	cross   crossings
	pools   *ring[sample]
	full    []byte // of the present seq; nil: to be made
	looked  bool
	began   time.Time // the look that goes on
	has     bool      // a dispatcher had the home in the last look
}

func newHub(o Options) *hub {
	return &hub{
		joins: make(chan chan *client), leaves: make(chan *client), ended: make(chan struct{}), o: o,
		clients: map[*client]bool{}, cards: map[string][]byte{}, pools: newRing[sample](samples),
	}
}

// join begins to read. It says no when too many do, or when the hub ends.
func (h *hub) join(ctx context.Context) (*client, bool) {
	answer := make(chan *client, 1)
	select {
	case h.joins <- answer:
	case <-h.ended:
		return nil, false
	case <-ctx.Done():
		return nil, false
	}
	c := <-answer
	return c, c != nil
}

// leave ends it. The hub may have dropped the reader before.
func (h *hub) leave(c *client) { h.leaves <- c }

// Parts of a processor that looking may take: a look is followed by so many times
// its own length of rest. Together with the journal, less than a fifth.
const (
	restOfLook    = 7
	restOfJournal = 19
)

// seen is what one round of looking found.
type seen struct {
	board *handsel.Board
	cross *crossings // nil: not looked for
	took  time.Duration
}

// run looks while somebody reads, and tells everybody what changed. Where a look
// takes long, the next one is long in coming, but not when a dispatcher came or went
// meanwhile, which is asked with each beat (W14). It returns when ctx has ended and
// every reader has left.
func (h *hub) run(ctx context.Context) {
	defer close(h.ended)
	looks, asked := make(chan seen), make(chan bool)
	looking, asking := false, false
	has, fresh := false, false // what was answered last, and whether since the last look began
	next := time.NewTimer(0)
	next.Stop()
	beat := time.NewTicker(h.o.pace.beat)
	defer beat.Stop()
	r := &reader{o: h.o}
	done := ctx.Done()
	for {
		if ctx.Err() != nil && len(h.clients) == 0 && !looking && !asking {
			return
		}
		select {
		case <-done:
			done = nil
			next.Stop()
			h.end()
		case answer := <-h.joins:
			answer <- h.enter(ctx)
			if !looking && len(h.clients) == 1 {
				next.Reset(0)
			}
		case c := <-h.leaves:
			h.forget(c)
		case <-next.C:
			if looking || len(h.clients) == 0 || done == nil {
				continue
			}
			looking, fresh, h.began = true, false, time.Now()
			go func() { looks <- r.look(ctx) }()
		case s := <-looks:
			looking = false
			if done != nil {
				h.tell(&s)
				rest := max(h.o.pace.look-s.took, restOfLook*s.took)
				if fresh && has != h.has {
					rest = 0
				}
				next.Reset(rest)
			}
		case <-beat.C:
			if len(h.clients) > 0 && done != nil {
				h.send(message{"beat", h.beat(looking)})
				if !asking {
					asking = true
					go func() { asked <- h.o.Look.Dispatched() }()
				}
			}
		case has = <-asked:
			asking, fresh = false, true
			if has != h.has && h.looked && !looking && done != nil {
				next.Reset(0)
			}
		}
	}
}

// beat says that we are there, of when what was told is, and for how long we have
// been looking anew: who waits for a disk that does not answer should know.
func (h *hub) beat(looking bool) []byte {
	b := struct {
		Seq      uint64  `json:"seq"`
		At       string  `json:"at,omitempty"` // empty: nothing was seen yet
		LookingS float64 `json:"looking_s,omitempty"`
	}{Seq: h.seq}
	if h.looked {
		b.At = stamp(h.at)
	}
	if looking {
		b.LookingS = float64(int(time.Since(h.began).Seconds()))
	}
	return mustJSON(b)
}

// enter lets a reader in. It gets the whole as soon as there is one.
func (h *hub) enter(ctx context.Context) *client {
	if ctx.Err() != nil || h.reading() >= mostClients {
		return nil
	}
	c := &client{messages: make(chan message, mostUnread)}
	if len(h.clients) == 0 {
		h.looked = false // what was seen before somebody left is old
	}
	h.clients[c] = true
	if h.looked {
		c.messages <- message{"full", h.whole()}
	}
	return c
}

func (h *hub) reading() (n int) {
	for _, on := range h.clients {
		if on {
			n++
		}
	}
	return n
}

// forget lets a reader go that says that it leaves.
func (h *hub) forget(c *client) {
	h.drop(c)
	delete(h.clients, c)
}

// drop closes the stream of one who does not keep up.
func (h *hub) drop(c *client) {
	if h.clients[c] {
		h.clients[c] = false
		close(c.messages)
	}
}

// end says goodbye to everybody. They leave by themselves.
func (h *hub) end() {
	h.send(message{"bye", []byte("{}")})
	for c := range h.clients {
		h.drop(c)
	}
}

func (h *hub) send(m message) {
	for c, on := range h.clients {
		if !on {
			continue
		}
		select {
		case c.messages <- m:
		default:
			h.drop(c)
		}
	}
}

// head is what a board says besides its cards. Lanes and the line are on the cards.
type head struct {
	Root       string                      `json:"root"`
	Mode       string                      `json:"mode"`
	Dispatcher handsel.SeenDispatcher      `json:"dispatcher"`
	Source     string                      `json:"source"`
	AgeS       float64                     `json:"age_s"`
	Draining   bool                        `json:"draining"`
	QueuedAll  int                         `json:"queued_all,omitempty"`
	Pools      []pool                      `json:"pools"`
	Accounts   []handsel.QuotaAccount      `json:"accounts"`
	Holds      any                         `json:"holds"`
	Strays     int                         `json:"strays"`
	Boxes      map[string]handsel.BoxCount `json:"boxes"`
	Problems   []string                    `json:"problems"`
}

// pool is one budget, as a gauge.
type pool struct {
	Name     string `json:"name"`
	Held     int    `json:"held"`
	Cap      int    `json:"cap"` // the smallest in play; 0: none
	Orphans  int    `json:"orphaned"`
	Draining bool   `json:"draining"`
}

func poolsOf(b *handsel.Board) []pool {
	all := []pool{}
	for _, name := range b.Status.Order() {
		p := b.Status.Pools[name]
		one := pool{Name: name, Held: p.Held, Cap: p.Effective, Draining: p.Draining()}
		for _, holder := range p.Holders {
			if holder.State == "orphaned" {
				one.Orphans++
			}
		}
		all = append(all, one)
	}
	return all
}

// headOf is the head of a board. Of a dispatcher that answers, the heartbeat is
// left out, which is of this moment anyhow and would change with every look.
func headOf(b *handsel.Board) []byte {
	d := b.Dispatcher
	if d.State == handsel.DispatcherAnswers {
		d.Heartbeat.Time = time.Time{}
	}
	return mustJSON(head{
		Root: b.Root, Mode: b.Mode, Dispatcher: d, Source: b.Source, AgeS: float64(int(b.AgeS)), Draining: b.Draining, QueuedAll: b.Status.QueuedAll,
		Pools: poolsOf(b), Accounts: b.Accounts, Holds: b.Status.Holds, Strays: len(b.Status.Strays), Boxes: b.Boxes, Problems: b.Problems,
	})
}

// sample is how full the pools were at one moment.
type sample struct {
	At    string            `json:"at"`
	Pools map[string][2]int `json:"pools"` // held, cap
	when  time.Time
}

// samples is how many are kept: of a quarter of an hour.
const samples = 180

// change is what a look found that the one before it had not.
type change struct {
	Seq       uint64            `json:"seq"`
	At        string            `json:"at"`
	Head      json.RawMessage   `json:"head,omitempty"`
	Cards     []json.RawMessage `json:"cards,omitempty"` // new ones, and changed ones as they are now
	Gone      []string          `json:"gone,omitempty"`
	Crossings *crossings        `json:"crossings,omitempty"`
	Samples   []sample          `json:"samples,omitempty"` // new ones
}

// tell takes in a look, and tells what changed.
func (h *hub) tell(s *seen) {
	b := s.board
	h.at, h.has = b.At.Time, b.Dispatcher.State != handsel.DispatcherNone
	out := change{At: stamp(h.at)}
	if now := headOf(b); !bytes.Equal(now, h.head) {
		h.head, out.Head = now, now
	}
	now := make(map[string][]byte, len(b.Cards))
	h.order = h.order[:0]
	for i := range b.Cards {
		id := b.Cards[i].ID
		if _, twice := now[id]; twice {
			continue
		}
		text := mustJSON(&b.Cards[i])
		if now[id] = text; !bytes.Equal(text, h.cards[id]) {
			out.Cards = append(out.Cards, text)
		}
		h.order = append(h.order, id)
	}
	for id := range h.cards {
		if _, still := now[id]; !still {
			out.Gone = append(out.Gone, id)
		}
	}
	slices.Sort(out.Gone)
	h.cards = now
	if s.cross != nil && !bytes.Equal(mustJSON(s.cross), mustJSON(&h.cross)) {
		h.cross, out.Crossings = *s.cross, s.cross
	}
	out.Samples = h.sample(b)
	first := !h.looked
	h.looked = true
	changed := out.Head != nil || len(out.Cards)+len(out.Gone)+len(out.Samples) > 0 || out.Crossings != nil
	if changed {
		h.seq++
		h.full = nil
	}
	out.Seq = h.seq
	switch {
	case first:
		h.full = nil
		h.send(message{"full", h.whole()})
	case changed:
		h.send(message{"change", mustJSON(out)})
	}
}

// sample adds one where it is time to.
func (h *hub) sample(b *handsel.Board) []sample {
	if kept := h.pools.all(); len(kept) > 0 {
		switch since := b.At.Sub(kept[len(kept)-1].when); {
		case since < 0: // the clock was set back, and nothing is of later than now
			h.pools = newRing[sample](samples)
		case since < h.o.pace.sample:
			return nil
		}
	}
	one := sample{At: stamp(b.At.Time), Pools: map[string][2]int{}, when: b.At.Time}
	for _, p := range poolsOf(b) {
		one.Pools[p.Name] = [2]int{p.Held, p.Cap}
	}
	h.pools.add(one)
	return []sample{one}
}

// whole is everything, for a reader that begins.
func (h *hub) whole() []byte {
	if h.full == nil {
		all := make([]json.RawMessage, 0, len(h.order))
		for _, id := range h.order {
			all = append(all, h.cards[id])
		}
		h.full = mustJSON(struct {
			V     int      `json:"v"`
			Boxes []string `json:"boxes"`
			change
			Cards []json.RawMessage `json:"cards"`
		}{1, handsel.Boxes(), change{Seq: h.seq, At: stamp(h.at), Head: h.head, Crossings: &h.cross, Samples: h.pools.all()}, all})
	}
	return h.full
}

// reader is who looks. It belongs to one goroutine at a time.
type reader struct {
	o     Options
	moved string    // what the board had when the journal was read
	again time.Time // not before
}

// look takes a look, and reads the journal's end where something moved.
func (r *reader) look(ctx context.Context) seen {
	began := time.Now()
	s := seen{board: r.o.Look.Look(ctx)}
	s.took = time.Since(began)
	if now := moves(s.board); now != r.moved && !time.Now().Before(r.again) {
		began = time.Now()
		if c, err := r.crossings(ctx); err == nil {
			s.cross, r.moved = c, now
		}
		r.again = time.Now().Add(restOfJournal * time.Since(began))
	}
	return s
}

// moves changes whenever something may have passed: a card came, went, or stands
// elsewhere; an order or an account changed.
func moves(b *handsel.Board) string {
	var t bytes.Buffer
	for i := range b.Cards {
		c := &b.Cards[i]
		for _, word := range []string{c.ID, c.Box, c.Answer, c.Code, c.State, c.Review} {
			t.WriteString(word)
			t.WriteByte(0)
		}
	}
	t.Write(mustJSON(b.Status.Holds))
	for i := range b.Accounts {
		t.WriteString(b.Accounts[i].Engine + "/" + b.Accounts[i].Account + " " + b.Accounts[i].Code + "\n")
	}
	return digest(t.Bytes())
}

// mostCrossings is how many are kept of each arrow.
const mostCrossings = 12

// crossings are the last transfers at each of the five arrows: behind the box of a
// permission stands what its answer let through. What came into an owner's hands
// stands behind quota, which is asked last before that, beside what an account lost
// and got back.
type crossings struct {
	Resource   []told `json:"resource"`
	Quota      []told `json:"quota"`
	Ownership  []told `json:"ownership"`
	Acceptance []told `json:"acceptance"`
	Release    []told `json:"release"`
}

// arrowOf is the arrow at which a transfer is shown, empty where nothing crossed:
// an order, a lane that changed hands while it waits.
func arrowOf(e *handsel.JournalEvent) string {
	switch e.Permission + " " + e.What {
	case "resource offered", "resource admitted", "ownership ended", "acceptance accepted", "acceptance rejected", "release released":
		return e.Permission
	case "ownership granted", "ownership taken":
		return "quota"
	}
	if e.Permission == "quota" {
		return e.Permission
	}
	return ""
}

// crossings reads the end of the journal.
func (r *reader) crossings(ctx context.Context) (*crossings, error) {
	var events iter.Seq[handsel.JournalEvent]
	events, err := r.o.Journal(ctx, "", func(error) {}) // what is wrong with it, the panel of a thing says
	if err != nil {
		return nil, err
	}
	last := map[string]*ring[handsel.JournalEvent]{}
	for e := range events {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at := arrowOf(&e)
		if at == "" {
			continue
		}
		if last[at] == nil {
			last[at] = newRing[handsel.JournalEvent](mostCrossings)
		}
		last[at].add(e)
	}
	of := func(arrow string) []told {
		out := []told{}
		if last[arrow] == nil {
			return out
		}
		for _, e := range last[arrow].all() {
			out = append(out, tell(e))
		}
		slices.Reverse(out) // newest first
		return out
	}
	return &crossings{of("resource"), of("quota"), of("ownership"), of("acceptance"), of("release")}, nil
}
