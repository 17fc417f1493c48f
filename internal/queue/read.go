package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/handsel/handsel/internal/attempt"
)

// Reader reads the database beside its writer, in the same process or another.
// Every read is one short transaction, so that none keeps the log from being
// begun again (C095); what is told to a callback was read before it is called.
// Its methods may be called from many goroutines; they take turns.
type Reader struct {
	path string

	mu     sync.Mutex
	conn   *sqlite3.Conn // nil until asked for, and again when idle
	stmts  map[string]*sqlite3.Stmt
	idle   *time.Timer
	closed bool
}

// idleFor is how long a connection that nobody asks anything stays open: its
// cache and its memory would cost more than opening another.
const idleFor = 5 * time.Second

// Look opens the database at path for reading only, for a process that is not
// the dispatcher. A missing one is fs.ErrNotExist; otherwise it refuses what Open
// refuses: SQLite would take a log that was cut for a shorter one, whoever reads
// it first, and wipe the trace of the rest.
func Look(path string) (*Reader, error) {
	if err := trust(path); err != nil {
		return nil, err
	}
	if err := judgeAgain(path, Version); err != nil {
		return nil, err
	}
	r := &Reader{path: path}
	if err := r.use(func() error { return nil }); err != nil {
		return nil, err
	}
	return r, nil
}

// Close ends reading. It is safe to call again.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.rest()
}

// rest closes the connection. The caller has mu.
func (r *Reader) rest() error {
	if r.idle != nil {
		r.idle.Stop()
	}
	if r.conn == nil {
		return nil
	}
	for _, s := range r.stmts {
		_ = s.Close()
	}
	err := r.conn.Close()
	r.conn, r.stmts = nil, nil
	return unusable(r.path, err)
}

// use runs f with the connection.
func (r *Reader) use(f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	if err := r.wake(); err != nil {
		return err
	}
	return unusable(r.path, f())
}

func (r *Reader) wake() (err error) {
	if r.conn != nil {
		r.idle.Reset(idleFor)
		return nil
	}
	if err := makeSides(r.path, 0); err != nil {
		return err
	}
	if r.conn, err = connect(r.path, sqlite3.OPEN_READONLY, readerCache); err != nil {
		return err
	}
	r.stmts = map[string]*sqlite3.Stmt{}
	r.idle = time.AfterFunc(idleFor, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = r.rest()
	})
	return nil
}

// ask is a statement of the reader with nothing bound yet.
func (r *Reader) ask(sql string) *call {
	c := &call{s: r.stmts[sql]}
	if c.s == nil {
		if c.s, c.err = prepared(r.conn, sql); c.err == nil {
			r.stmts[sql] = c.s
		}
	}
	return c
}

const (
	readRows = `SELECT seq, ` + rowColumns + `, ` + offerColumns + ` FROM attempts INDEXED BY alive
		WHERE ended_at IS NULL AND granted_at IS NULL AND seq > ?1 ORDER BY seq LIMIT ?2`
	readOpen = `SELECT seq, ` + rowColumns + `, ` + offerColumns + `, ` + attemptColumns + ` FROM attempts INDEXED BY open
		WHERE ended_at IS NULL AND granted_at IS NOT NULL AND seq > ?1 ORDER BY seq LIMIT ?2`
	readAttempt = `SELECT ` + rowColumns + `, ` + offerColumns + `, ` + attemptColumns + ` FROM attempts `
	readFind    = readAttempt + `WHERE id = ?1`
	readLast    = readAttempt + `WHERE lane = ?1 ORDER BY turn = 0 DESC, turn DESC LIMIT 1`
	readFence   = `SELECT fence FROM lanes WHERE lane = ?1`
	readNewest  = `SELECT coalesce(max(seq), 0) FROM events`
	readPruned  = `SELECT coalesce(sum(n), 0) FROM pruned`

	readTotals = `SELECT 'alive', count(*) FROM attempts INDEXED BY alive WHERE ended_at IS NULL
		UNION ALL SELECT 'open', count(*) FROM attempts INDEXED BY open WHERE ended_at IS NULL AND granted_at IS NOT NULL
		UNION ALL SELECT 'running', count(*) FROM attempts INDEXED BY open WHERE ended_at IS NULL AND granted_at IS NOT NULL AND state = 'running'
		UNION ALL SELECT tally, count(*) FROM attempts INDEXED BY ended WHERE ended_at IS NOT NULL GROUP BY tally
		UNION ALL SELECT tally, n FROM pruned`

	eventColumns   = `SELECT e.seq, e.at, a.lane, a.id, e.what, e.was, e.became, e.detail, a.engine `
	readEvents     = eventColumns + `FROM events e CROSS JOIN attempts a ON a.seq = e.attempt WHERE e.seq > ?1 ORDER BY e.seq LIMIT ?2`
	readLaneEvents = eventColumns + `FROM attempts a CROSS JOIN events e ON e.attempt = a.seq
		WHERE e.seq > ?1 AND a.lane = ?3 ORDER BY e.seq LIMIT ?2`
	readAttemptEvents = eventColumns + `FROM attempts a CROSS JOIN events e ON e.attempt = a.seq
		WHERE e.seq > ?1 AND a.id = ?3 AND (?4 IS NULL OR a.lane = ?4) ORDER BY e.seq LIMIT ?2`
)

// atOnce is how many rows one read takes before they are told.
const atOnce = 512

// Rows tells every waiting row, in the order of acceptance, with the hash of its
// token when it is offered. The row is fn's until fn returns, so fn copies what
// it keeps; slices and maps of several rows may be the same ones, and must not be
// changed. A row that changes meanwhile is told as it is when its part is read.
func (r *Reader) Rows(fn func(row *attempt.Row, token []byte) error) error {
	part := make([]struct {
		row   attempt.Row
		token []byte
	}, 0, atOnce)
	return r.parts(readRows, func(c *cursor) {
		part = part[:len(part)+1]
		w := &part[len(part)-1]
		w.row = attempt.Row{}
		w.token = c.row(&w.row)
	}, func() error {
		for i := range part {
			if err := fn(&part[i].row, part[i].token); err != nil {
				return err
			}
		}
		part = part[:0]
		return nil
	})
}

// Attempts tells every open attempt: granted to a driver, and not ended.
func (r *Reader) Attempts(fn func(*Attempt) error) error {
	var part []*Attempt
	return r.parts(readOpen, func(c *cursor) {
		a := new(Attempt)
		c.attempt(a)
		part = append(part, a)
	}, func() error {
		for _, a := range part {
			if err := fn(a); err != nil {
				return err
			}
		}
		part = part[:0]
		return nil
	})
}

// parts reads what sql tells a part at a time, and lets each be told when its
// read is over.
func (r *Reader) parts(sql string, read func(*cursor), tell func() error) error {
	c := newCursor()
	for last, n := int64(0), atOnce; n == atOnce; {
		n = 0
		err := r.use(func() error {
			err := r.ask(sql).int(last).int(atOnce).rows(func(s *sqlite3.Stmt) {
				c.at(s)
				last = c.int()
				read(c)
				n++
			})
			return errors.Join(err, c.err)
		})
		if err != nil {
			return err
		}
		if err := tell(); err != nil {
			return err
		}
	}
	return nil
}

// Find is the attempt of that id, nil when it is not known.
func (r *Reader) Find(id string) (*Attempt, error) { return r.one(readFind, id) }

// LastOfLane is the attempt that waits in the lane, else the one that was
// accepted last; nil when none is known.
func (r *Reader) LastOfLane(lane string) (*Attempt, error) { return r.one(readLast, lane) }

func (r *Reader) one(sql, key string) (a *Attempt, err error) {
	err = r.use(func() error {
		c := newCursor()
		_, err := r.ask(sql).text(key).row(func(s *sqlite3.Stmt) {
			a = new(Attempt)
			c.at(s)
			c.attempt(a)
		})
		return errors.Join(err, c.err)
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Fence is the lane's last fence, 0 when it never had one.
func (r *Reader) Fence(lane string) (fence uint64, err error) {
	err = r.use(func() error {
		_, err := r.ask(readFence).text(lane).row(func(s *sqlite3.Stmt) { fence = uint64(s.ColumnInt64(0)) })
		return err
	})
	return fence, err
}

// LastEvent is the Seq of the newest event, 0 when there is none.
func (r *Reader) LastEvent() (seq int64, err error) {
	err = r.use(func() error {
		_, err := r.ask(readNewest).row(func(s *sqlite3.Stmt) { seq = s.ColumnInt64(0) })
		return err
	})
	return seq, err
}

// mostEvents is how many events one call tells. Whoever wants more asks again
// after the last one.
const mostEvents = 1000

// Events lists events in order, the earliest that the filter chooses.
func (r *Reader) Events(f Filter) (list []Event, err error) {
	limit := int64(f.Limit)
	if limit <= 0 || limit > mostEvents {
		limit = mostEvents
	}
	err = r.use(func() error {
		c := newCursor()
		return errors.Join(r.chosen(f, limit).rows(func(s *sqlite3.Stmt) {
			c.at(s)
			list = append(list, Event{
				Seq: c.int(), At: c.time(), Lane: c.word(), Attempt: c.word(), What: c.word(), From: c.word(), To: c.word(), Detail: c.text(), Engine: c.word(),
			})
		}), c.err)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (r *Reader) chosen(f Filter, limit int64) *call {
	switch {
	case f.Attempt != "":
		return r.ask(readAttemptEvents).int(f.After).int(limit).text(f.Attempt).some(f.Lane)
	case f.Lane != "":
		return r.ask(readLaneEvents).int(f.After).int(limit).text(f.Lane)
	}
	return r.ask(readEvents).int(f.After).int(limit)
}

// Totals counts, in one read.
func (r *Reader) Totals() (t Totals, err error) {
	n := map[string]int64{}
	err = r.use(func() error {
		return r.ask(readTotals).rows(func(s *sqlite3.Stmt) { n[s.ColumnText(0)] += s.ColumnInt64(1) })
	})
	t = Totals{
		Waiting: n["alive"] - n["open"], Claimed: n["open"] - n["running"], Running: n["running"],
		Succeeded: n[succeeded], Failed: n[failed], Lost: n[lost], Unstarted: n[unstarted],
	}
	t.Started = t.Succeeded + t.Failed + t.Lost + t.Running
	t.Accepted = t.Waiting + t.Claimed + t.Started + t.Unstarted
	return t, err
}

// Pruned counts the attempts that are not kept any more, and their events with
// them.
func (r *Reader) Pruned() (n int64, err error) {
	err = r.use(func() error {
		_, err := r.ask(readPruned).row(func(s *sqlite3.Stmt) { n = s.ColumnInt64(0) })
		return err
	})
	return n, err
}

// Backup copies the database, as it is at one moment, to a new file. One that is
// there already is fs.ErrExist.
func (r *Reader) Backup(path string) error {
	var refused error
	err := r.use(func() error {
		if err := backup(r.conn, path); errors.Is(err, fs.ErrExist) {
			refused = fmt.Errorf("back up to %q: %w", path, fs.ErrExist)
		} else if err != nil {
			return err
		}
		return nil
	})
	return errors.Join(err, refused)
}
