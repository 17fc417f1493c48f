package queue

import (
	"encoding/json"
	"reflect"

	"github.com/ncruces/go-sqlite3"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/record"
)

// rowColumns are the columns of an attempt.Row, in the order in which bindRow
// binds them and row reads them. offerColumns come with an offer or a claim, and
// attemptColumns after it.
const (
	rowColumns = `id, lane, state, state_since, queue_start, boot_start_ns, boot_id, epoch_ms, priority,
		cwd, engine, workload, confinement, author, labels, not_before, after, argv0, argc, command, more,
		starts, unclaimed, last_failure`
	offerColumns   = `admitted_at, fence, token`
	attemptColumns = `granted_at, granted_boot, driver_pid, driver_ticks, driver_boot, begun_at,
		outcome, result, kind, reason, exit_code, signal, ended_at`
)

// more is what few rows have, or many alike. It is one column, which is NULL
// when there is nothing of it.
type more struct {
	RetryOf      string            `json:"retry_of,omitempty"`
	RetryLost    int               `json:"retry_lost,omitempty"`
	Account      string            `json:"account,omitempty"`
	Profile      string            `json:"profile,omitempty"`
	Pools        []string          `json:"pools,omitempty"`
	Caps         map[string]string `json:"caps,omitempty"`
	TimeoutS     float64           `json:"timeout_s,omitempty"`
	IdleS        float64           `json:"idle_s,omitempty"`
	LeaveDaemons bool              `json:"leave_daemons,omitempty"`
	Driver       []string          `json:"driver,omitempty"`
	Review       bool              `json:"review,omitempty"`
	RetryVerdict int               `json:"retry_verdict,omitempty"`
}

func moreOf(r *attempt.Row) *more {
	p := &r.Placement
	return &more{r.RetryOf, r.RetryLost, p.Account, p.Profile, p.Pools, p.Caps, p.TimeoutS, p.IdleS, p.LeaveDaemons, r.Driver, p.Review, r.RetryVerdict}
}

func (m *more) give(r *attempt.Row) {
	p := &r.Placement
	r.RetryOf, r.RetryLost, r.Driver, r.RetryVerdict = m.RetryOf, m.RetryLost, m.Driver, m.RetryVerdict
	p.Account, p.Profile, p.Pools, p.Caps, p.TimeoutS, p.IdleS, p.LeaveDaemons, p.Review = m.Account, m.Profile, m.Pools, m.Caps, m.TimeoutS, m.IdleS, m.LeaveDaemons, m.Review
}

// bindRow binds a new row.
func bindRow(c *call, r *attempt.Row, state, since string) *call {
	p, rest := &r.Placement, moreOf(r)
	c.text(r.ID).text(r.Lane).text(state).text(since)
	c.text(stamp(r.QueueStart.Time)).int(r.BootStartNS).some(r.BootID).int(r.EpochMS).int(int64(r.Priority))
	c.some(p.Cwd).some(p.Engine).some(p.Workload).some(p.Confinement)
	c.some(r.Author).json(len(r.Labels) == 0, r.Labels).time(r.NotBefore.Time).json(len(r.After) == 0, r.After)
	c.some(r.Argv0).int(int64(r.Argc)).some(r.Command).json(reflect.ValueOf(*rest).IsZero(), rest)
	return c.int(int64(r.Starts)).int(int64(r.Unclaimed)).some(r.LastFailure)
}

// cursor reads the columns of result rows in order. What comes again and again
// is kept once. Columns are taken one by one: taking them all at once would put
// each into an interface, which costs more than reading it.
type cursor struct {
	s     *sqlite3.Stmt
	n     int
	words map[string]string
	mores map[string]*more
	err   error
}

func newCursor() *cursor {
	return &cursor{words: map[string]string{}, mores: map[string]*more{}}
}

// at begins with the row that s stands at.
func (c *cursor) at(s *sqlite3.Stmt) { c.s, c.n = s, 0 }

// raw is good until s moves; nil is NULL.
func (c *cursor) raw() []byte {
	c.n++
	return c.s.ColumnRawText(c.n - 1)
}

func (c *cursor) text() string { return string(c.raw()) }

// word is a text that many rows have.
func (c *cursor) word() string {
	b := c.raw()
	if w, ok := c.words[string(b)]; ok || len(b) == 0 {
		return w
	}
	w := string(b)
	c.words[w] = w
	return w
}

func (c *cursor) int() int64 {
	c.n++
	return c.s.ColumnInt64(c.n - 1)
}

func (c *cursor) blob() []byte {
	c.n++
	return c.s.ColumnBlob(c.n-1, nil)
}

func (c *cursor) time() attempt.Time { return moment(c.raw()) }

func (c *cursor) json(v any) { c.decode(c.raw(), v) }

func (c *cursor) decode(b []byte, v any) {
	if b == nil {
		return
	}
	if err := json.Unmarshal(b, v); err != nil && c.err == nil {
		c.err = err
	}
}

func (c *cursor) more() *more {
	b := c.raw()
	m := c.mores[string(b)]
	if m == nil {
		m = new(more)
		c.decode(b, m)
		c.mores[string(b)] = m
	}
	return m
}

// row reads rowColumns and offerColumns.
func (c *cursor) row(r *attempt.Row) (token []byte) {
	p := &r.Placement
	r.V = attempt.Version
	r.ID, r.Lane, r.State, r.StateSince = c.text(), c.text(), c.word(), c.time()
	r.QueueStart, r.BootStartNS, r.BootID, r.EpochMS, r.Priority = c.time(), c.int(), c.word(), c.int(), int(c.int())
	p.Cwd, p.Engine, p.Workload, p.Confinement = c.word(), c.word(), c.word(), c.word()
	r.Author = c.word()
	c.json(&r.Labels)
	r.NotBefore = c.time()
	c.json(&r.After)
	r.Argv0, r.Argc, r.Command = c.word(), int(c.int()), c.text()
	c.more().give(r)
	r.Starts, r.Unclaimed, r.LastFailure = int(c.int()), int(c.int()), c.word()
	r.AdmittedAt, r.Fence = c.time(), uint64(c.int())
	return c.blob()
}

// attempt reads all columns.
func (c *cursor) attempt(a *Attempt) {
	c.row(&a.Row)
	a.State, a.Fence = a.Row.State, a.Row.Fence
	a.GrantedAt, a.GrantedBoot = c.time(), c.word()
	a.Driver = Driver{Pid: int(c.int()), Ticks: uint64(c.int()), BootID: c.word()}
	a.BegunAt = c.time()
	a.Outcome, a.Result, a.Kind = c.word(), c.word(), c.word()
	if b := c.raw(); b != nil {
		a.Reason = new(record.Reason)
		c.decode(b, a.Reason)
	}
	if c.s.ColumnType(c.n) != sqlite3.NULL {
		code := int(c.s.ColumnInt64(c.n))
		a.ExitCode = &code
	}
	c.n++
	a.Signal, a.EndedAt = int(c.int()), c.time()
}
