package queue

import (
	"encoding/json"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/handsel/handsel/internal/attempt"
)

// The statements of the writer, by name.
const (
	sqlBegin = iota
	sqlCommit
	sqlRollback
	sqlKnown
	sqlWaiting
	sqlInsert
	sqlEvent
	sqlOffer
	sqlState
	sqlWithdraw
	sqlGrant
	sqlFence
	sqlBegun
	sqlRequeue
	sqlEnd
	sqlPriority
	sqlNote
	sqlPruneFind
	sqlPruneEvents
	sqlPruneAttempt
	sqlPruneTally
	sqlCount
)

var texts = [sqlCount]string{
	sqlBegin:    `BEGIN IMMEDIATE`,
	sqlCommit:   `COMMIT`,
	sqlRollback: `ROLLBACK`,

	sqlKnown:   `SELECT lane FROM attempts WHERE id = ?1`,
	sqlWaiting: `SELECT id FROM attempts WHERE lane = ?1 AND turn = 0`,
	sqlInsert: `INSERT INTO attempts (` + rowColumns + `) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
		?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)`,
	sqlEvent: `INSERT INTO events (at, attempt, what, was, became, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`,

	// Each change says in its own condition what it starts from.
	sqlOffer: `UPDATE attempts SET state = 'starting', state_since = ?2, admitted_at = ?2, token = ?3, starts = starts + 1
		WHERE id = ?1 AND state = 'queued' RETURNING seq, starts`,
	sqlState: `SELECT seq, lane, state, granted_at, begun_at, token, priority FROM attempts WHERE id = ?1`,
	sqlWithdraw: `UPDATE attempts SET state = 'queued', state_since = ?3, admitted_at = NULL, token = NULL,
			unclaimed = unclaimed + ?4, last_failure = CASE ?4 WHEN 0 THEN last_failure ELSE ?5 END
		WHERE seq = ?1 AND state = 'starting' AND granted_at IS NULL AND token = ?2 RETURNING seq`,
	sqlGrant: `UPDATE attempts SET turn = seq, token = NULL, granted_at = ?3, granted_boot = ?4, driver_pid = ?5, driver_ticks = ?6, driver_boot = ?7,
			fence = max(?8, coalesce((SELECT fence FROM lanes WHERE lane = attempts.lane), 0)) + 1
		WHERE seq = ?1 AND state = 'starting' AND granted_at IS NULL AND token = ?2 RETURNING fence`,
	sqlFence: `INSERT INTO lanes (lane, fence) VALUES (?1, ?2) ON CONFLICT (lane) DO UPDATE SET fence = excluded.fence`,
	sqlBegun: `UPDATE attempts SET state = 'running', state_since = ?2, begun_at = ?2
		WHERE id = ?1 AND state = 'starting' AND granted_at IS NOT NULL RETURNING seq`,
	sqlRequeue: `UPDATE attempts SET turn = 0, state = 'queued', state_since = ?2, admitted_at = NULL, last_failure = ?3, fence = 0, granted_at = NULL,
			granted_boot = NULL, driver_pid = NULL, driver_ticks = NULL, driver_boot = NULL
		WHERE seq = ?1 AND state = 'starting' AND granted_at IS NOT NULL RETURNING seq`,
	sqlEnd: `UPDATE attempts SET turn = seq, state = 'ended', state_since = ?2, ended_at = ?2, token = NULL, begun_at = ?3, tally = ?4,
			outcome = ?5, result = ?6, kind = ?7, reason = ?8, exit_code = ?9, signal = ?10
		WHERE seq = ?1 AND ended_at IS NULL AND (?11 = 0 OR granted_at IS NULL) RETURNING seq`,
	sqlPriority: `UPDATE attempts SET priority = ?2 WHERE seq = ?1 AND ended_at IS NULL AND granted_at IS NULL RETURNING seq`,
	sqlNote: `UPDATE attempts SET unclaimed = ?2, last_failure = ?3, not_before = ?4
		WHERE id = ?1 AND ended_at IS NULL AND granted_at IS NULL RETURNING seq`,

	// The attempt of the newest event stays, so that no number of an event is
	// given twice; and so does what a waiting row comes after.
	sqlPruneFind: `SELECT seq, tally FROM attempts INDEXED BY ended
		WHERE ended_at IS NOT NULL AND ended_at < ?1
			AND seq <> coalesce((SELECT attempt FROM events ORDER BY seq DESC LIMIT 1), 0)
			AND id NOT IN (SELECT json_extract(a.value, '$.attempt') FROM attempts w, json_each(w.after) a
				WHERE w.ended_at IS NULL AND w.after IS NOT NULL AND json_extract(a.value, '$.attempt') IS NOT NULL)
		ORDER BY ended_at LIMIT min(?2, max(0, (SELECT count(*) FROM attempts WHERE ended_at IS NOT NULL) - ?3))`,
	sqlPruneEvents:  `DELETE FROM events WHERE attempt = ?1`,
	sqlPruneAttempt: `DELETE FROM attempts WHERE seq = ?1`,
	sqlPruneTally:   `INSERT INTO pruned (tally, n) VALUES (?1, 1) ON CONFLICT (tally) DO UPDATE SET n = n + 1`,
}

// run is a statement of the writer with nothing bound yet.
func (w *writer) run(name int) *call {
	c := &call{fault: &w.fault}
	if w.stmt[name] == nil {
		w.stmt[name], c.err = prepared(w.conn, texts[name])
	}
	c.s = w.stmt[name]
	return c
}

func prepared(conn *sqlite3.Conn, sql string) (*sqlite3.Stmt, error) {
	s, _, err := conn.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
	return s, err
}

// call is one use of a statement: its values are bound in order, then it is
// stepped and reset. The first error ends it, and is the transaction's fault.
type call struct {
	s     *sqlite3.Stmt
	n     int
	err   error
	fault *error
}

func (c *call) text(v string) *call {
	if c.n++; c.err == nil {
		c.err = c.s.BindText(c.n, v)
	}
	return c
}

// some is text where the empty string is NULL.
func (c *call) some(v string) *call {
	if v == "" {
		return c.null()
	}
	return c.text(v)
}

func (c *call) null() *call {
	if c.n++; c.err == nil {
		c.err = c.s.BindNull(c.n)
	}
	return c
}

func (c *call) int(v int64) *call {
	if c.n++; c.err == nil {
		c.err = c.s.BindInt64(c.n, v)
	}
	return c
}

func (c *call) bool(v bool) *call {
	if v {
		return c.int(1)
	}
	return c.int(0)
}

func (c *call) blob(v []byte) *call {
	if c.n++; c.err == nil {
		c.err = c.s.BindBlob(c.n, v)
	}
	return c
}

// json is a value as JSON, NULL when there is nothing in it.
func (c *call) json(empty bool, v any) *call {
	if empty {
		return c.null()
	}
	data, err := json.Marshal(v)
	if err != nil && c.err == nil {
		c.err = err
	}
	return c.text(string(data))
}

// time is a moment, NULL when it is zero.
func (c *call) time(t time.Time) *call {
	if t.IsZero() {
		return c.null()
	}
	return c.text(stamp(t))
}

// exec runs a statement that tells nothing.
func (c *call) exec() error {
	if c.err == nil {
		c.err = c.s.Exec()
	}
	return c.done()
}

// row runs a statement that tells at most one row, and gives it to read.
func (c *call) row(read func(s *sqlite3.Stmt)) (found bool, err error) {
	err = c.rows(func(s *sqlite3.Stmt) {
		found = true
		if read != nil {
			read(s)
		}
	})
	return found, err
}

// rows runs a statement to its end.
func (c *call) rows(read func(s *sqlite3.Stmt)) error {
	if c.err != nil {
		return c.done()
	}
	for c.s.Step() {
		read(c.s)
	}
	c.err = c.s.Reset()
	return c.done()
}

func (c *call) done() error {
	if c.err != nil && c.fault != nil && *c.fault == nil {
		*c.fault = c.err
	}
	return c.err
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// stamp is a moment as it is stored. One that cannot be written in this form is
// the nearest that can.
func stamp(t time.Time) string {
	t = t.UTC()
	switch year := t.Year(); {
	case year < 0:
		t = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	case year > 9999:
		t = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	}
	return t.Format(timeFormat)
}

// moment reads a stamp. What is none is the zero time.
func moment(b []byte) attempt.Time {
	if len(b) != len(timeFormat) {
		return attempt.Time{}
	}
	n := func(from, to int) (n int) {
		for _, c := range b[from:to] {
			n = n*10 + int(c-'0')
		}
		return n
	}
	return attempt.Time{Time: time.Date(n(0, 4), time.Month(n(5, 7)), n(8, 10), n(11, 13), n(14, 16), n(17, 19), n(20, 23)*1e6, time.UTC)}
}
