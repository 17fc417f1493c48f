package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/handsel/handsel/internal/failpoint"
)

// DB is the database, open for writing. Its methods may be called from many
// goroutines at once. What it reads with, it opens when it is asked.
type DB struct {
	Reader
	w      *writer
	once   sync.Once
	closed error // what Close returned first
}

// start gives the connection to the one goroutine that writes.
func start(w *writer) *DB {
	db := &DB{w: w}
	db.Reader.path, w.reader = w.path, &db.Reader
	w.asks, w.quit, w.gone = make(chan *ask), make(chan struct{}), make(chan struct{})
	go w.loop()
	return db
}

// Close waits for what is being written and read, moves the log into the
// database and closes it. Calls made later return ErrClosed. It is safe to call
// again.
func (db *DB) Close() error {
	db.once.Do(func() {
		close(db.w.quit)
		<-db.w.gone
		db.closed = errors.Join(db.Reader.Close(), db.w.close())
	})
	return db.closed
}

// ask is one change that somebody waits for.
type ask struct {
	// do makes the change, or refuses and changes nothing. It runs in the
	// writer's goroutine.
	do   func(*writer) error
	done chan error // has room for the answer
}

// change has do done and returns when it is on the disk. ctx bounds the wait for
// the writer; a change that the writer has taken is waited for in any case, so
// that no answer leaves its outcome open.
func (db *DB) change(ctx context.Context, do func(*writer) error) error {
	a := &ask{do: do, done: make(chan error, 1)}
	select {
	case db.w.asks <- a:
		return <-a.done
	case <-ctx.Done():
		return ctx.Err()
	case <-db.w.quit:
		return ErrClosed
	}
}

// writer is the connection that writes. It belongs to the goroutine in loop.
type writer struct {
	path string
	conn *sqlite3.Conn
	stmt [len(texts)]*sqlite3.Stmt // prepared when first used

	reader *Reader // of this process

	asks chan *ask
	quit chan struct{} // closed: no ask is taken any more
	gone chan struct{} // closed by loop when it ends

	fault  error // of SQLite, in the transaction at hand: it must not be committed
	broken error // a flush failed, so what is on the disk is not known: nothing is written any more

	log   int // pages in the log after the last commit
	next  int // how long it may be before it is checkpointed
	force int // how long it may be before readers are waited for
}

// ready prepares the connection for loop.
func (w *writer) ready() error {
	w.next, w.force = logPages, 3*logPages
	w.conn.WALHook(w.committed)
	return unusable(w.path, w.conn.Exec(fmt.Sprintf("PRAGMA journal_size_limit = %d", logLimit)))
}

// close is for whoever has the connection when loop does not run.
func (w *writer) close() error {
	for _, s := range w.stmt {
		_ = s.Close() // tells the last error of a statement again
	}
	return unusable(w.path, w.conn.Close())
}

func (w *writer) loop() {
	defer close(w.gone)
	var batch []*ask
	for {
		select {
		case a := <-w.asks:
			batch = w.gather(append(batch[:0], a))
			w.serve(batch)
			clear(batch)
			w.checkpoint()
		case <-w.quit:
			return
		}
	}
}

// most bounds a batch, and so how long its first waits for its last.
const most = 256

// gather adds what others ask at the same time. It lets them come to it first:
// with one processor none could have.
func (w *writer) gather(batch []*ask) []*ask {
	for n := 0; n < len(batch); {
		n = len(batch)
		runtime.Gosched()
		for more := true; more && len(batch) < most; {
			select {
			case a := <-w.asks:
				batch = append(batch, a)
			default:
				more = false
			}
		}
	}
	return batch
}

// serve makes the changes of a batch in one transaction and answers. When it
// cannot be committed, nothing of it is. If that was for a fault of one change,
// each is made alone, so that the others do not suffer from it; if it was the
// disk's, all get that answer.
func (w *writer) serve(batch []*ask) {
	answers := make([]error, len(batch))
	err := w.together(batch, answers)
	switch {
	case err != nil && len(batch) > 1 && !isOfDisk(err):
		for i, a := range batch {
			if err := w.together(batch[i:i+1], answers[i:i+1]); err != nil {
				answers[i] = err
			}
			a.done <- answers[i]
		}
		return
	case err != nil:
		for i := range answers {
			answers[i] = err
		}
	}
	for i, a := range batch {
		a.done <- answers[i]
	}
}

// together makes changes in one transaction. Refusals go to answers; an error
// says that nothing was changed.
func (w *writer) together(batch []*ask, answers []error) error {
	if w.broken != nil {
		return w.broken
	}
	w.fault = nil
	if err := w.run(sqlBegin).exec(); err != nil {
		return unusable(w.path, err)
	}
	before := w.conn.TotalChanges()
	for i, a := range batch {
		start := w.conn.TotalChanges()
		answers[i] = a.do(w)
		if answers[i] != nil && w.fault == nil && w.conn.TotalChanges() != start {
			w.fault = fmt.Errorf("a change that refused (%w) had written", answers[i])
		}
		if w.fault != nil {
			return w.rollback(w.fault)
		}
	}
	if w.conn.TotalChanges() == before { // refusals only: nothing to flush
		return w.rollback(nil)
	}
	failpoint.Hit("queue.commit")
	if err := w.run(sqlCommit).exec(); err != nil {
		return w.rollback(err)
	}
	return nil
}

// rollback undoes the transaction because of err.
func (w *writer) rollback(err error) error {
	if !w.conn.GetAutocommit() {
		if again := w.run(sqlRollback).exec(); again != nil {
			w.broken = unusable(w.path, again)
		}
	}
	if errors.Is(err, sqlite3.IOERR_FSYNC) || errors.Is(err, sqlite3.IOERR_DIR_FSYNC) {
		// The kernel may have dropped what it could not write and forget that it
		// did: only reading it again tells what is there.
		w.broken = unusable(w.path, fmt.Errorf("it must be opened again: %w", err))
		return w.broken
	}
	return unusable(w.path, err)
}

// isOfDisk tells whether every change would meet the same error.
func isOfDisk(err error) bool {
	for _, code := range []sqlite3.ErrorCode{sqlite3.FULL, sqlite3.IOERR, sqlite3.CORRUPT, sqlite3.NOTADB, sqlite3.READONLY, sqlite3.CANTOPEN, sqlite3.BUSY, sqlite3.LOCKED} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// checkpoint moves a long log into the database, after everybody was answered.
// Readers that use its pages keep it from being begun again; they are short, so
// when it has grown for long they are waited for (C095).
func (w *writer) checkpoint() {
	if w.log < w.next || w.broken != nil {
		return
	}
	// An error is no loss: what was committed is in the log, and a later commit
	// comes here again.
	w.next = w.log + logPages/4
	if w.log < w.force {
		_, _, _ = w.conn.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
		return
	}
	w.reader.mu.Lock() // our own reads are not in the way then
	defer w.reader.mu.Unlock()
	_ = w.conn.BusyTimeout(patience)
	_, _, _ = w.conn.WALCheckpoint("main", sqlite3.CHECKPOINT_RESTART)
	_ = w.conn.BusyTimeout(busy)
	w.force = w.log + logPages // it may be somebody's long read: not at each commit
}

// patience is how long changes wait at most for another process's readers to
// let go of the log.
const patience = time.Second

// committed hears how long the log is after each commit.
func (w *writer) committed(_ *sqlite3.Conn, _ string, pages int) error {
	if pages < w.log { // it was begun again
		w.next, w.force = logPages, 3*logPages
	}
	w.log = pages
	return nil
}
