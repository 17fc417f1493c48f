//go:build unix

package dispatch

import (
	"context"
	"errors"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/metrics"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

// Pool is one budget as metrics tell of it.
type Pool struct {
	Name      string
	Held, Cap int // 0: no cap
}

// How something was started, as a label.
const (
	asAttempt = "attempt" // enqueued, and claimed by a driver
	asDirect  = "direct"  // by run, agent or gate
)

// meters count durations and outcomes for as long as this dispatcher lives
// (P12). What only the journal knows, of direct runs and of reviews, is read from
// it when somebody asks. No lane has a series of its own.
type meters struct {
	home home.Dir

	queueWait, claim, run map[string]*metrics.Histogram // by how it was started
	review                metrics.Histogram             // from the end to a reviewer's first act
	acceptance            metrics.Histogram             // from the end to its acceptance
	release               metrics.Histogram             // from acceptance to release

	mu       sync.Mutex           // held for a moment only: the loop counts
	outcomes map[[2]string]uint64 // how it was started, and its outcome
	waits    map[string]time.Duration

	reading sync.Mutex // held by one who asks, while he reads the journal
	tail    *journal.Tail
	judged  map[string]*judged
}

// finder finds attempts, as the database does.
type finder interface {
	Find(id string) (*queue.Attempt, error)
}

// judged is an attempt under review.
type judged struct {
	journal.Judged
	ended time.Time
}

// maxJudged bounds how many attempts are kept for what may follow.
const maxJudged = 4096

func newMeters(at home.Dir) *meters {
	both := func() map[string]*metrics.Histogram {
		return map[string]*metrics.Histogram{asAttempt: {}, asDirect: {}}
	}
	return &meters{
		home: at, queueWait: both(), claim: map[string]*metrics.Histogram{asAttempt: {}}, run: both(),
		outcomes: map[[2]string]uint64{}, waits: map[string]time.Duration{}, tail: journal.NewTail(at), judged: map[string]*judged{},
	}
}

// ended takes in an attempt that was granted, and has ended.
func (m *meters) ended(a *open, end *queue.End) {
	if at := a.row.AdmittedAt.Time; !at.IsZero() {
		m.queueWait[asAttempt].Observe(at.Sub(a.row.Asked()).Seconds())
		if !a.grantedAt.IsZero() {
			m.claim[asAttempt].Observe(a.grantedAt.Sub(at).Seconds())
		}
	}
	if !a.begunAt.IsZero() && !end.At.IsZero() {
		m.run[asAttempt].Observe(end.At.Sub(a.begunAt).Seconds())
	}
	m.count(asAttempt, end.Outcome)
}

func (m *meters) count(how, outcome string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[[2]string{how, outcome}]++
}

func (m *meters) waited(why string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits[why] += d
}

// follow takes in what the journal has new.
func (m *meters) follow(db finder) error {
	m.reading.Lock()
	defer m.reading.Unlock()
	return m.tail.Next(func(e journal.Event) {
		switch {
		case e.What == journal.Ended && e.Permission == journal.Ownership:
			m.direct(&e)
		case e.Permission == journal.Acceptance, e.Permission == journal.Release:
			m.reviewed(db, &e)
		}
	})
}

// direct takes in the end of a direct run.
func (m *meters) direct(e *journal.Event) {
	m.queueWait[asDirect].Observe(e.WaitedS)
	if e.RanS > 0 {
		m.run[asDirect].Observe(e.RanS)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ended := [2]string{asDirect, e.Outcome}; len(m.outcomes) < maxWords || m.outcomes[ended] > 0 {
		m.outcomes[ended]++
	}
	for why, s := range e.WaitedFor {
		// The file is anybody's of this user to write: a counter never falls.
		if d := time.Duration(min(s, longest.Seconds()) * float64(time.Second)); d > 0 && (len(m.waits) < maxWords || m.waits[why] > 0) {
			m.waits[why] = min(m.waits[why]+d, math.MaxInt64-longest)
		}
	}
}

// longest bounds what one run is believed to have waited.
const longest = 10 * 365 * 24 * time.Hour

// reviewed takes in a verdict, or what followed from one.
func (m *meters) reviewed(db finder, e *journal.Event) {
	j := m.judged[e.Attempt]
	if j == nil {
		j = m.before(db, e)
		if len(m.judged) >= maxJudged {
			clear(m.judged)
		}
		m.judged[e.Attempt] = j
	}
	was := j.Judged
	if !j.Add(e) || j.ended.IsZero() {
		return
	}
	if was.First.IsZero() {
		m.review.Observe(j.First.Sub(j.ended).Seconds())
	}
	if was.Accepted.IsZero() && !j.Accepted.IsZero() {
		m.acceptance.Observe(j.Accepted.Sub(j.ended).Seconds())
	}
	if was.Released.IsZero() && !j.Released.IsZero() && !j.Accepted.IsZero() {
		m.release.Observe(j.Released.Sub(j.Accepted).Seconds())
	}
}

// before is what is known of an attempt up to an event of it.
func (m *meters) before(db finder, e *journal.Event) *judged {
	j := &judged{}
	if at, err := db.Find(e.Attempt); err == nil && at != nil {
		j.ended = at.EndedAt.Time
	} else if run, err := record.Load(m.home, e.Attempt); err == nil {
		j.ended = run.EndedAt.Time
	}
	for old := range journal.Read(m.home, journal.Filter{Attempt: e.Attempt, Until: e.At}, nil) {
		j.Add(&old)
	}
	return j
}

func (d *Dispatcher) getMetrics(w http.ResponseWriter, r *http.Request) {
	text, err := d.metrics(r.Context())
	if err != nil {
		broken(w, err)
		return
	}
	w.Header().Set("Content-Type", metrics.ContentType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(text)) // whoever asked may have left
}

// gauges is how things stand at one moment.
type gauges struct {
	rows   map[string]int // waiting, by state
	open   map[string]int // granted, by state
	waits  map[string]int // rows by what they wait for
	orders map[string]int // in force, by kind
}

func (d *Dispatcher) gauges() (g gauges, ok bool) {
	g = gauges{map[string]int{attempt.Queued: 0, attempt.Starting: 0}, map[string]int{attempt.Starting: 0, runningState: 0}, map[string]int{}, map[string]int{"hold": 0, "drain": 0, "park": 0, "pause": 0, "pace": 0}}
	ok = d.do(func() {
		for _, r := range d.rows {
			g.rows[r.State]++
			if r.offer == nil {
				g.waits[d.waitsFor(r)]++
			}
		}
		for _, a := range d.attempts {
			g.open[a.state]++
		}
		for _, o := range d.ordered.All {
			g.orders[string(o.Kind)]++
		}
	})
	return g, ok
}

// metrics is the page, as of now.
func (d *Dispatcher) metrics(ctx context.Context) (string, error) {
	if err := d.meters.follow(d.db); err != nil {
		d.cfg.Log.Warn("read the journal", "error", err)
	}
	g, ok := d.gauges()
	if !ok {
		return "", errStopping
	}
	t := &metrics.Text{}
	t.Family("handsel_dispatcher_start_time_seconds", metrics.Gauge, "When this dispatcher started, in seconds since the epoch.")
	t.Sample("handsel_dispatcher_start_time_seconds", float64(d.started.UnixMilli())/1000)
	t.Family("handsel_dispatcher_info", metrics.Gauge, "Which dispatcher runs; always 1.")
	t.Sample("handsel_dispatcher_info", 1, "version", d.cfg.Version)
	if totals, err := d.db.Totals(); err == nil {
		t.Family("handsel_attempts_total", metrics.Counter, "Attempts that have ended in this home, by what became of them. It goes on across dispatchers.")
		for _, one := range []struct {
			word string
			n    int64
		}{{"succeeded", totals.Succeeded}, {"failed", totals.Failed}, {"lost", totals.Lost}, {"unstarted", totals.Unstarted}} {
			t.Sample("handsel_attempts_total", float64(one.n), "result", one.word)
		}
	}
	writeCounts(t, "handsel_rows", "Waiting lanes, by state: queued, or starting (offered to a driver).", "state", g.rows)
	writeCounts(t, "handsel_attempts_open", "Attempts that a driver has, by state.", "state", g.open)
	writeCounts(t, "handsel_orders", "Orders in force that hold starts back, by kind.", "kind", g.orders)
	t.Family("handsel_rows_waiting", metrics.Gauge, "Waiting lanes, by what they wait for.")
	for _, why := range slices.Sorted(maps.Keys(g.waits)) {
		class, code, _ := strings.Cut(why, "/")
		t.Sample("handsel_rows_waiting", float64(g.waits[why]), "class", class, "code", code)
	}
	if d.cfg.Pools != nil {
		writePools(t, d.cfg.Pools(ctx))
	}
	d.meters.write(t)
	return t.String(), nil
}

func writeCounts(t *metrics.Text, name, help, label string, counts map[string]int) {
	t.Family(name, metrics.Gauge, help)
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		t.Sample(name, float64(counts[word]), label, word)
	}
}

func writePools(t *metrics.Text, pools []Pool) {
	t.Family("handsel_pool_held", metrics.Gauge, "Slots of a pool that are taken.")
	for _, p := range pools {
		t.Sample("handsel_pool_held", float64(p.Held), "pool", p.Name)
	}
	t.Family("handsel_pool_cap", metrics.Gauge, "The smallest cap of a pool that is in play. A pool without one has no sample.")
	for _, p := range pools {
		if p.Cap > 0 {
			t.Sample("handsel_pool_cap", float64(p.Cap), "pool", p.Name)
		}
	}
}

func (m *meters) write(t *metrics.Text) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.Family("handsel_ends_total", metrics.Counter, "What has ended since this dispatcher started, by how it was started and its outcome.")
	for _, key := range slices.SortedFunc(maps.Keys(m.outcomes), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		t.Sample("handsel_ends_total", float64(m.outcomes[key]), "how", key[0], "outcome", key[1])
	}
	t.Family("handsel_waited_seconds_total", metrics.Counter, "Seconds that starts have waited since this dispatcher started, by what for.")
	for _, why := range slices.Sorted(maps.Keys(m.waits)) {
		class, code, _ := strings.Cut(why, "/")
		t.Sample("handsel_waited_seconds_total", m.waits[why].Seconds(), "class", class, "code", code)
	}
	t.Histograms("handsel_queue_wait_seconds", "From being asked for to being admitted.", byHow(m.queueWait)...)
	t.Histograms("handsel_claim_wait_seconds", "From being admitted to being claimed by a driver.", byHow(m.claim)...)
	t.Histograms("handsel_run_seconds", "From the start of what was asked for to its end.", byHow(m.run)...)
	t.Histograms("handsel_review_wait_seconds", "From the end to the first act of a reviewer.", metrics.Named{Histogram: &m.review})
	t.Histograms("handsel_acceptance_seconds", "From the end to its acceptance.", metrics.Named{Histogram: &m.acceptance})
	t.Histograms("handsel_release_wait_seconds", "From acceptance to release.", metrics.Named{Histogram: &m.release})
}

func byHow(all map[string]*metrics.Histogram) (named []metrics.Named) {
	for _, how := range slices.Sorted(maps.Keys(all)) {
		named = append(named, metrics.Named{Histogram: all[how], Labels: []string{"how", how}})
	}
	return named
}

// metricsRetry is how often a port that is taken is tried again: a dispatcher
// that is relieved has it until it ends.
const metricsRetry = time.Second

// serveMetrics serves the page at the loopback address as well. A port that
// cannot be had stops nothing: it is said once, and tried again.
func (d *Dispatcher) serveMetrics() {
	if d.cfg.Metrics == "" {
		return
	}
	d.aside(func() {
		said := false
		for d.life.Err() == nil {
			l, err := net.Listen("tcp", d.cfg.Metrics) //nolint:noctx // it does not wait
			if err == nil {
				d.cfg.Log.Info("metrics", "address", d.cfg.Metrics)
				d.serveMetricsAt(l)
				return
			}
			if !said || !errors.Is(err, syscall.EADDRINUSE) {
				d.cfg.Log.Error("serve the metrics", "address", d.cfg.Metrics, "error", err)
				said = true
			}
			select {
			case <-time.After(metricsRetry):
			case <-d.life.Done():
			}
		}
	})
}

// serveMetricsAt answers one path and nothing else: whoever is on this machine
// may ask here.
func (d *Dispatcher) serveMetricsAt(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathMetrics, d.getMetrics)
	server := http.Server{
		Handler: mux, ReadHeaderTimeout: handoff.FrameTime, ReadTimeout: handoff.FrameTime, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return d.life },
	}
	stop := context.AfterFunc(d.life, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(limited{l, make(chan struct{}, metricsGuests)}); err != nil && d.life.Err() == nil {
		d.cfg.Log.Error("serve the metrics", "error", err)
	}
}

// metricsGuests is how many may be connected at the loopback address: each costs
// a descriptor, which the rows need.
const metricsGuests = 8

// limited is a listener that lets so many in at a time.
type limited struct {
	net.Listener
	room chan struct{}
}

func (l limited) Accept() (net.Conn, error) {
	l.room <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &visitor{Conn: c, leave: sync.OnceFunc(func() { <-l.room })}, nil
}

// visitor gives its place back when it is closed.
type visitor struct {
	net.Conn
	leave func()
}

func (v *visitor) Close() error {
	defer v.leave()
	return v.Conn.Close()
}
