//go:build unix

package dispatch

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/review"
)

// desk answers what moves no descriptor (L24).
type desk struct {
	sock   *net.UnixListener
	room   chan struct{} // has a place for each connection that may be open
	server http.Server
}

// openDesk binds the second socket, or takes the one that was passed on.
func (d *Dispatcher) openDesk(sock *net.UnixListener) (*desk, error) {
	k := &desk{sock: sock, room: make(chan struct{}, d.fds.calls())}
	if sock == nil {
		var err error
		if k.sock, err = d.cfg.Home.ListenUnix(home.APISocket); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathStatus, d.getStatus)
	mux.HandleFunc("GET "+api.PathQueue, d.getQueue)
	mux.HandleFunc("GET "+api.PathAttempts, d.getAttempts)
	mux.HandleFunc("GET "+api.PathEvents, d.getEvents)
	mux.HandleFunc("POST "+api.PathCancel, d.acting(d.postCancel))
	mux.HandleFunc("POST "+api.PathPrio, d.acting(d.postPrio))
	mux.HandleFunc("POST "+api.PathRetry, d.acting(d.postRetry))
	mux.HandleFunc("POST "+api.PathReconcile, d.postReconcile)
	mux.HandleFunc("POST "+api.PathStop, d.postStop)
	mux.HandleFunc("POST "+api.PathWake, d.postWake)
	mux.HandleFunc("GET "+api.PathMetrics, d.getMetrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		api.Refuse(w, record.Reason{Class: "config", Code: api.CodeNotFound, Message: "there is no " + r.Method + " " + r.URL.Path + " here"})
	})
	k.server = http.Server{
		Handler: mux, ReadHeaderTimeout: handoff.FrameTime, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return d.life },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, peerKey{}, c) },
	}
	return k, nil
}

type peerKey struct{}

// own accepts only connections of our own user, as the kernel tells it, and no
// more at once than there is room for: the others wait in the socket's backlog.
type own struct {
	*net.UnixListener
	room chan struct{}
}

func (l own) Accept() (net.Conn, error) {
	for {
		l.room <- struct{}{}
		c, err := l.AcceptUnix()
		if err != nil {
			<-l.room
			return nil, err
		}
		if _, err := handoff.Own(c); err != nil {
			c.Close()
			<-l.room
			continue
		}
		return &guest{UnixConn: c, leave: sync.OnceFunc(func() { <-l.room })}, nil
	}
}

// guest is a connection that gives its place back when it is closed.
type guest struct {
	*net.UnixConn
	leave func()
}

func (g *guest) Close() error {
	defer g.leave()
	return g.UnixConn.Close()
}

func (k *desk) serve(sock *net.UnixListener) { _ = k.server.Serve(own{sock, k.room}) }

func (k *desk) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if k.server.Shutdown(ctx) != nil {
		_ = k.server.Close()
	}
}

// from is the pid on the other side, 0 when it cannot be told.
func from(r *http.Request) int {
	c, ok := r.Context().Value(peerKey{}).(*guest)
	if !ok {
		return 0
	}
	p, err := handoff.Own(c.UnixConn)
	if err != nil {
		return 0
	}
	return p.Pid
}

// mayDecide refuses an agent that would decide about the queue (C15).
func (d *Dispatcher) mayDecide(w http.ResponseWriter, r *http.Request) bool {
	err := d.peers.outside(from(r))
	if err != nil {
		api.Refuse(w, record.Reason{Class: "ownership", Code: "inside_agent", Message: err.Error()})
	}
	return err == nil
}

// acting lets a request change rows that comes before the dispatcher begins to
// leave, which then waits for it: what was handed over is written by nobody
// else (L21).
func (d *Dispatcher) acting(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begun := false
		d.do(func() {
			if begun = d.leaving == nil; begun {
				d.acts++
			}
		})
		if !begun {
			broken(w, errStopping)
			return
		}
		defer d.do(func() { d.acts-- })
		h(w, r)
	}
}

func (d *Dispatcher) getStatus(w http.ResponseWriter, _ *http.Request) {
	s := api.Status{V: api.Version, Pid: d.pid(), Started: record.At(d.started), Version: d.cfg.Version, Mode: "dispatcher", Boot: machine.BootID(), DefaultAll: d.cfg.Limit()}
	if !d.do(func() {
		s.Rows = map[string]int{attempt.Queued: 0, attempt.Starting: 0}
		for _, r := range d.rows {
			s.Rows[r.State]++
		}
		s.Offers, s.Attempts = d.offers, len(d.attempts)
		s.Draining = slices.ContainsFunc(d.ordered.All, func(o hold.Order) bool { return o.Kind == hold.Drain })
	}) {
		broken(w, errStopping)
		return
	}
	if t, err := d.db.Totals(); err == nil {
		s.Totals = api.Totals(t)
	}
	s.Seq, _ = d.db.LastEvent() // 0 makes whoever follows read from the beginning
	s.Descriptors = api.Descriptors{Used: int(d.fds.used.Load()), Limit: d.fds.limit, Reserve: d.fds.reserve}
	api.Answer(w, s)
}

func (d *Dispatcher) getQueue(w http.ResponseWriter, r *http.Request) {
	only := r.URL.Query().Get("lane")
	q := api.Queue{V: api.Version, At: record.At(machine.Now())}
	var rows []*attempt.Row
	reasons := map[string]*record.Reason{}
	if !d.do(func() { rows = d.waiting(reasons) }) {
		broken(w, errStopping) // an empty list would be a lie
		return
	}
	q.Rows = api.Order(rows) // not by the loop: of ten thousand it takes a while
	for i := range q.Rows {
		q.Rows[i].Reason = reasons[q.Rows[i].ID]
	}
	if only != "" {
		q.Rows = slices.DeleteFunc(q.Rows, func(w api.Waiting) bool { return w.Lane != only })
	}
	api.Answer(w, q)
}

// waiting copies the rows, and why each waits.
func (d *Dispatcher) waiting(reasons map[string]*record.Reason) []*attempt.Row {
	all := make([]*attempt.Row, 0, len(d.rows))
	for id, r := range d.rows {
		copied := r.Row
		all = append(all, &copied)
		reasons[id] = d.reason(r)
	}
	return all
}

// reason says what a row waits for (P1).
func (d *Dispatcher) reason(r *row) *record.Reason {
	if r.why != nil {
		return r.why
	}
	if r.offer != nil {
		return &record.Reason{Class: "ownership", Code: "claim", Message: "it is offered to a driver, which has not claimed it yet", Retryable: true}
	}
	g := r.group
	if g.stand != nil && g.stand.last.Code != "" {
		return waitReason(g.stand.last)
	}
	if len(g.ready) > 0 && g.ready[0] != r {
		return &record.Reason{Class: "resource", Code: "queue", Message: "others in the queue come before it", Retryable: true}
	}
	return &record.Reason{Class: "resource", Code: "line", Message: "it is next in line", Retryable: true}
}

// waitReason is why the row that stands in line is not admitted; those behind
// it wait for the same.
func waitReason(w lease.Waiting) *record.Reason {
	r := &record.Reason{Class: waitClass(w), Code: w.Code, Message: w.Reason(), Until: record.At(w.Until), Retryable: true}
	if w.Until.IsZero() {
		r.Until = record.Time{}
	}
	for _, h := range w.Holders {
		r.Holders = append(r.Holders, record.Holder{Pool: h.Pool, Slot: h.Index, Pid: h.Pid, Child: h.Child, Run: h.Run})
	}
	return r
}

func waitClass(w lease.Waiting) string {
	switch kind := hold.Kind(w.Code); {
	case w.Class != "":
		return w.Class
	case kind == hold.Hold || kind == hold.Drain:
		return "hold"
	case kind == hold.Park || kind == hold.Pause:
		return "quota"
	}
	return "resource"
}

func (d *Dispatcher) getAttempts(w http.ResponseWriter, r *http.Request) {
	f, err := api.FilterOf(r)
	if err != nil {
		badRequest(w, err)
		return
	}
	found, err := d.find(f)
	if err != nil {
		broken(w, err)
		return
	}
	out := api.Attempts{V: api.Version, Attempts: []api.Attempt{}}
	for _, at := range found {
		a := shown(at)
		a.Review = d.reviewOf(at)
		out.Attempts = append(out.Attempts, a)
	}
	api.Answer(w, out)
}

// reviewOf is where an attempt stands in its review, by what is on disk: the
// database knows nothing of it (C13).
func (d *Dispatcher) reviewOf(at *queue.Attempt) string {
	if at.State != record.Ended {
		return ""
	}
	if at.Outcome != record.Exited { // and so has not succeeded
		return review.None
	}
	rec, err := record.Load(d.cfg.Home, at.Row.ID)
	if err != nil {
		return review.None
	}
	return review.Of(d.cfg.Home, rec)
}

func (d *Dispatcher) find(f api.Filter) ([]*queue.Attempt, error) {
	one := func(at *queue.Attempt, err error) ([]*queue.Attempt, error) {
		if err != nil || at == nil || f.Open && at.State == record.Ended {
			return nil, err
		}
		return []*queue.Attempt{at}, nil
	}
	switch {
	case f.Attempt != "":
		return one(d.db.Find(f.Attempt))
	case f.Lane != "":
		return one(d.db.LastOfLane(f.Lane))
	}
	var all []*queue.Attempt
	err := d.db.Attempts(func(at *queue.Attempt) error {
		all = append(all, at)
		return nil
	})
	return all, err
}

// shown is an attempt as the windows see it.
func shown(at *queue.Attempt) api.Attempt {
	a := api.Attempt{
		V: api.Version, Row: at.Row, State: at.State, Fence: at.Fence, GrantedAt: at.GrantedAt, BegunAt: at.BegunAt,
		Outcome: at.Outcome, Result: at.Result, Kind: at.Kind, ExitCode: at.ExitCode, Signal: at.Signal, Reason: at.Reason, EndedAt: at.EndedAt,
	}
	if at.Driver.Pid != 0 {
		a.Driver = &api.Driver{Pid: at.Driver.Pid, Ticks: at.Driver.Ticks, BootID: at.Driver.BootID}
	}
	return a
}

// eventsAtOnce bounds one answer, and eventsEvery is how often a stream looks
// for what the database has new.
const (
	eventsAtOnce = 1000
	eventsEvery  = 200 * time.Millisecond
)

func (d *Dispatcher) getEvents(w http.ResponseWriter, r *http.Request) {
	f, err := api.FilterOf(r)
	if err != nil {
		badRequest(w, err)
		return
	}
	if api.Streams(r) {
		d.streamEvents(w, r, f)
		return
	}
	events, err := d.events(f)
	if err != nil {
		broken(w, err)
		return
	}
	api.Answer(w, api.Events{V: api.Version, Events: events})
}

func (d *Dispatcher) events(f api.Filter) ([]api.Event, error) {
	if f.Limit == 0 || f.Limit > eventsAtOnce {
		f.Limit = eventsAtOnce
	}
	list, err := d.db.Events(queue.Filter{After: f.After, Lane: f.Lane, Attempt: f.Attempt, Limit: f.Limit})
	out := make([]api.Event, 0, len(list))
	for _, e := range list {
		out = append(out, api.Event{Seq: e.Seq, At: e.At, Lane: e.Lane, Attempt: e.Attempt, What: e.What, From: e.From, To: e.To, Detail: e.Detail})
	}
	return out, err
}

// streamEvents sends events as they come, until the reader leaves. Each look is
// a short read, so no reader keeps the log from being checkpointed (C095).
func (d *Dispatcher) streamEvents(w http.ResponseWriter, r *http.Request, f api.Filter) {
	s := api.OpenStream(w)
	look, beat := time.NewTicker(eventsEvery), time.NewTicker(api.Beat)
	defer look.Stop()
	defer beat.Stop()
	for {
		events, err := d.events(f)
		if err != nil {
			return
		}
		for _, e := range events {
			if s.Send(e) != nil {
				return
			}
			f.After = e.Seq
		}
		select {
		case <-look.C:
		case <-beat.C:
			if s.Beat() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func badRequest(w http.ResponseWriter, err error) {
	api.Refuse(w, record.Reason{Class: "config", Code: "bad_request", Message: err.Error()})
}

func broken(w http.ResponseWriter, err error) {
	var why *no
	if errors.As(err, &why) {
		api.Refuse(w, record.Reason{Class: why.class, Code: why.code, Message: why.text, Retryable: why.retryable})
		return
	}
	api.Refuse(w, record.Reason{Class: "resource", Code: api.CodeFailed, Message: err.Error(), Retryable: true})
}

// target finds the attempt that a request means: by its id, or the one its lane
// has now, or had last.
func (d *Dispatcher) target(t api.Target) (*queue.Attempt, error) {
	id := t.Attempt
	if id == "" {
		d.do(func() { id = d.lanes[t.Lane] })
	}
	var at *queue.Attempt
	var err error
	if id != "" {
		at, err = d.db.Find(id)
	} else {
		at, err = d.db.LastOfLane(t.Lane)
	}
	if err == nil && at == nil {
		return nil, refusef("config", api.CodeNotFound, false, "no attempt is known by the name %q", cmp.Or(t.Attempt, t.Lane))
	}
	return at, err
}

func done(at *queue.Attempt, did, text string) api.Done {
	a := shown(at)
	return api.Done{
		V: api.Version, Lane: at.Row.Lane, Attempt: at.Row.ID, RetryOf: at.Row.RetryOf, Verdict: at.Row.RetryVerdict, State: at.State, Outcome: at.Outcome,
		Did: did, Message: text, Priority: at.Row.Priority, Fence: at.Fence, Driver: a.Driver, Reason: at.Reason,
	}
}

func (d *Dispatcher) postPrio(w http.ResponseWriter, r *http.Request) {
	var ask api.Prio
	if err := api.ReadBody(w, r, &ask); err != nil {
		badRequest(w, err)
		return
	}
	if !d.mayDecide(w, r) {
		return
	}
	at, err := d.target(ask.Target)
	if err == nil {
		err = d.prio(r.Context(), at, ask.Priority)
	}
	if err != nil {
		broken(w, err)
		return
	}
	out := done(at, "changed", "")
	out.Priority = ask.Priority
	api.Answer(w, out)
}

// maxPriority is the range of priorities, either way (C5).
const maxPriority = 1000

// prio moves a waiting row in line.
func (d *Dispatcher) prio(ctx context.Context, at *queue.Attempt, n int) error {
	if n < -maxPriority || n > maxPriority {
		return refusef("config", "bad_request", false, "a priority is a whole number from -1000 to 1000, and %d is none", n)
	}
	err := d.db.SetPriority(ctx, at.Row.ID, n)
	if errors.Is(err, queue.ErrMoved) {
		return refusef("ownership", "not_waiting", false, "attempt %s of lane %q is %s, and no longer in line", at.Row.ID, at.Row.Lane, at.State)
	}
	if err != nil {
		return err
	}
	d.do(func() {
		r := d.rows[at.Row.ID]
		if r == nil {
			return
		}
		d.unready(r) // by the key it had
		r.Priority = n
		d.judge(r)
		d.show(r)
	})
	return nil
}

func (d *Dispatcher) postRetry(w http.ResponseWriter, r *http.Request) {
	var ask api.Target
	if err := api.ReadBody(w, r, &ask); err != nil {
		badRequest(w, err)
		return
	}
	if !d.mayDecide(w, r) {
		return
	}
	at, err := d.target(ask)
	var next *attempt.Row
	if err == nil {
		next, err = d.retry(&at.Row, at.State, at.Row.RetryLost)
	}
	if err != nil {
		broken(w, err)
		return
	}
	out := done(at, "retried", "")
	out.RetryOf, out.Attempt, out.State, out.Outcome, out.Reason = at.Row.ID, next.ID, attempt.Queued, "", nil
	out.Verdict = next.RetryVerdict
	api.Answer(w, out)
}

// postReconcile answers what became of an attempt, whatever was lost on the way
// (L15). What is open is looked at again first.
func (d *Dispatcher) postReconcile(w http.ResponseWriter, r *http.Request) {
	var ask api.Target
	if err := api.ReadBody(w, r, &ask); err != nil {
		badRequest(w, err)
		return
	}
	at, err := d.target(ask)
	if err != nil {
		broken(w, err)
		return
	}
	var text string
	d.do(func() {
		switch a, r := d.attempts[at.Row.ID], d.rows[at.Row.ID]; {
		case a != nil && a.orphaned:
			text = "its driver is gone and its agent lives on"
		case a != nil && a.state != runningState:
			text = "a driver has it and has not begun yet"
		case r != nil && d.reason(r) != nil:
			text = d.reason(r).Message
		}
	})
	api.Answer(w, done(at, "looked", text))
}

func (d *Dispatcher) postWake(w http.ResponseWriter, _ *http.Request) {
	d.do(func() {
		d.readOrders()
		d.again = true
	})
	api.Answer(w, api.Woken{V: api.Version})
}

func (d *Dispatcher) postStop(w http.ResponseWriter, r *http.Request) {
	var ask api.Stop
	if err := api.ReadBody(w, r, &ask); err != nil {
		badRequest(w, err)
		return
	}
	out := api.Stopping{V: api.Version}
	d.do(func() {
		out.Queued, out.Running = len(d.rows), len(d.attempts)
		d.leave(&leaving{cancel: ask.CancelRunning})
	})
	api.Answer(w, out)
}

func (d *Dispatcher) postCancel(w http.ResponseWriter, r *http.Request) {
	var ask api.Target
	if err := api.ReadBody(w, r, &ask); err != nil {
		badRequest(w, err)
		return
	}
	if !d.mayDecide(w, r) {
		return
	}
	at, err := d.target(ask)
	if err != nil {
		broken(w, err)
		return
	}
	out, err := d.cancel(r.Context(), at)
	if err != nil {
		broken(w, err)
		return
	}
	api.Answer(w, out)
}
