// Package queue keeps every attempt of every lane in one SQLite file, from the
// moment its row is accepted to its outcome, and has all SQL of the project
// (L8, L10, L14, L15a, L18, L20, L24).
//
// It guarantees that a call that returns nil is on the disk (WAL,
// synchronous=FULL); that calls made together share a commit, and that one
// that is refused takes no other with it; that each change of state is made on
// the condition of the state it starts from, so that of a claim and an expiry
// one wins; that each writes its event in the same transaction; that a lane has
// at most one waiting row and its fence never falls; and that a file of a newer
// version, or a damaged one, is refused and left exactly as it is.
//
// It holds no lane, asks no kernel and decides nothing: what the rows say is
// what was intended, and who owns a lane now is for locks and records to tell
// (L3). One process writes, whoever has the dispatcher's lock. Others may read.
package queue

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/record"
)

// Version is the schema's version written here (PRAGMA user_version).
const Version = 1

// ErrMoved reports that the attempt is not, or no longer, in the state that
// the change starts from. Nothing was changed.
var ErrMoved = errors.New("the attempt is in another state")

// ErrClosed reports a call on a database that was closed. Nothing was changed.
var ErrClosed = errors.New("the database is closed")

// Exists reports a row that cannot be accepted: its lane has a waiting row, or
// its attempt is known. Attempt is the one that is there.
type Exists struct {
	Lane    string
	Attempt string
}

func (e *Exists) Error() string {
	return fmt.Sprintf("lane %s has attempt %s", strconv.Quote(e.Lane), e.Attempt)
}

// Newer reports a database of a later version. Not a byte of it was written.
type Newer struct {
	Path       string
	Have, Want int
}

func (e *Newer) Error() string {
	return fmt.Sprintf("%s was written by a newer version (its schema is %d, ours is %d): use that version", strconv.QuoteToASCII(e.Path), e.Have, e.Want)
}

// Damaged reports a database that cannot be trusted. It was not repaired and
// nothing was removed; that is for its owner to decide.
type Damaged struct {
	Path string
	Err  error
}

func (e *Damaged) Error() string {
	return fmt.Sprintf("%s is damaged: %v; nothing was changed: move it away together with its -wal and -shm to begin with an empty queue, or put a backup in its place",
		strconv.QuoteToASCII(e.Path), e.Err)
}

func (e *Damaged) Unwrap() error { return e.Err }

// Driver is the process an attempt was granted to.
type Driver struct {
	Pid    int    `json:"pid"`
	Ticks  uint64 `json:"start_ticks,omitempty"`
	BootID string `json:"boot_id,omitempty"`
}

// End is how an attempt ends.
type End struct {
	Outcome  string // of C13
	Result   string // "succeeded" or "failed", when somebody could tell; empty = by outcome and exit code
	Kind     string // of a failure (E11)
	Reason   *record.Reason
	ExitCode *int
	Signal   int
	At       time.Time // zero = now

	// Waiting makes it the end of a waiting row only: ErrMoved once it was granted.
	Waiting bool
	// Began says that it ran, although nobody told Begun. The outcomes exited,
	// signaled, timed_out and lost say so by themselves.
	Began bool
}

// Attempt is all that is known of one attempt here.
type Attempt struct {
	Row         attempt.Row    `json:"row"`
	State       string         `json:"state"`           // queued, starting, running, ended
	Fence       uint64         `json:"fence,omitempty"` // 0 until it is granted
	GrantedAt   attempt.Time   `json:"granted_at,omitzero"`
	GrantedBoot string         `json:"granted_boot,omitempty"`
	Driver      Driver         `json:"driver,omitzero"`
	BegunAt     attempt.Time   `json:"begun_at,omitzero"`
	Outcome     string         `json:"outcome,omitempty"`
	Result      string         `json:"result,omitempty"`
	Kind        string         `json:"kind,omitempty"`
	Reason      *record.Reason `json:"reason,omitempty"`
	ExitCode    *int           `json:"exit_code,omitempty"`
	Signal      int            `json:"signal,omitempty"`
	EndedAt     attempt.Time   `json:"ended_at,omitzero"`
}

// Waiting tells a row that no driver was granted from an open or ended attempt.
func (a *Attempt) Waiting() bool { return a.State != record.Ended && a.GrantedAt.IsZero() }

// Event is one change, as it was written with it (L24).
type Event struct {
	Seq     int64        `json:"seq"`
	At      attempt.Time `json:"at"`
	Lane    string       `json:"lane"`
	Attempt string       `json:"attempt"`
	What    string       `json:"what"`
	From    string       `json:"from,omitempty"`
	To      string       `json:"to,omitempty"`
	Detail  string       `json:"detail,omitempty"`
	Engine  string       `json:"engine,omitempty"` // of the attempt
}

// Filter chooses events. Zero fields choose all.
type Filter struct {
	After   int64 // only those with a greater Seq
	Lane    string
	Attempt string
	Limit   int // at most so many, the earliest; 0 and more than 1000 = 1000
}

// Totals counts every attempt there ever was, pruned ones included (C024).
// Started = Succeeded + Failed + Lost + Running, and Accepted = Waiting + Claimed
// + Started + Unstarted, at every read.
type Totals struct {
	Accepted  int64 `json:"accepted"`
	Waiting   int64 `json:"waiting"` // rows, offered ones included
	Claimed   int64 `json:"claimed"` // granted to a driver, and not begun
	Running   int64 `json:"running"`
	Started   int64 `json:"started"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Lost      int64 `json:"lost"`
	Unstarted int64 `json:"unstarted"` // ended without having run
}
