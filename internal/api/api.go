// Package api is what moves no descriptor between the dispatcher and everybody
// else: HTTP and JSON on a Unix socket in the home (L24), the types of both
// ends and the client.
//
// It guarantees that a dispatcher that does not answer is told from one that
// does not run, by its lock and never by a ping (C028); that every call ends
// within its time; and that both ends read and write the same words. It does
// not serve, decides nothing, and never removes a socket.
package api

import (
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

// Version is the version of every object here (C12).
const Version = 1

// Socket is the name of the socket in the home.
const Socket = home.APISocket

// The paths. A GET takes its arguments in the query, a POST one JSON object.
const (
	PathStatus    = "/v1/status"
	PathQueue     = "/v1/queue"
	PathAttempts  = "/v1/attempts"
	PathEvents    = "/v1/events"
	PathCancel    = "/v1/cancel"
	PathPrio      = "/v1/prio"
	PathRetry     = "/v1/retry"
	PathReconcile = "/v1/reconcile"
	PathStop      = "/v1/stop"
	PathWake      = "/v1/wake"
	PathMetrics   = "/metrics" // text, as Prometheus reads it
)

// Status is the dispatcher as it sees itself.
type Status struct {
	V           int            `json:"v"`
	Pid         int            `json:"pid"`
	Started     record.Time    `json:"started"`
	Version     string         `json:"version"`
	Mode        string         `json:"mode"`
	Boot        string         `json:"boot_id"`
	Draining    bool           `json:"draining"`
	Rows        map[string]int `json:"rows"`     // by state: queued, starting
	Offers      int            `json:"offers"`   // starting, and not yet claimed
	Attempts    int            `json:"attempts"` // claimed, and not yet ended
	Descriptors Descriptors    `json:"descriptors"`
	DefaultAll  int            `json:"default_all,omitempty"` // the cap of all that rows run under where none is set (L13a)
	Seq         int64          `json:"seq"`                   // of the last event
	Totals      Totals         `json:"totals"`
}

// Descriptors are the dispatcher's open files: each waiting lane costs one.
type Descriptors struct {
	Used    int `json:"used"`
	Limit   int `json:"limit"`
	Reserve int `json:"reserve"` // kept back for claims and answers
}

// Totals count every attempt there ever was, those that are kept no longer
// included. Started is always the sum of succeeded, failed, lost and running
// (C024).
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

// Queue is every waiting row, in the order in which they would start.
type Queue struct {
	V    int         `json:"v"`
	At   record.Time `json:"at"`
	Rows []Waiting   `json:"rows"`
}

// Waiting is a row and why it waits.
type Waiting struct {
	attempt.Row
	Pools         []string       `json:"pools"`                     // all that it counts against (C007)
	Place         int            `json:"place"`                     // among the rows that want one of its pools, from 1
	Behind        int            `json:"behind"`                    // rows ahead of it that have a higher priority (C076)
	AheadByAuthor []Author       `json:"ahead_by_author,omitempty"` // whose the rows ahead are, most first, at most MaxAuthors (C085)
	Reason        *record.Reason `json:"reason,omitempty"`
}

// Author is how many rows somebody has.
type Author struct {
	Author string `json:"author"` // empty: not said
	Rows   int    `json:"rows"`
}

// MaxAuthors bounds Waiting.AheadByAuthor.
const MaxAuthors = 5

// Attempts is the answer to PathAttempts.
type Attempts struct {
	V        int       `json:"v"`
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one start of one lane, from its row to its end. Its state is the
// attempt's (queued, starting, running or ended) and may be ahead of the row's.
type Attempt struct {
	V         int            `json:"v"`
	Row       attempt.Row    `json:"row"`
	State     string         `json:"state"`
	Fence     uint64         `json:"fence,omitempty"`
	GrantedAt attempt.Time   `json:"granted_at,omitzero"`
	BegunAt   attempt.Time   `json:"begun_at,omitzero"`
	Driver    *Driver        `json:"driver,omitempty"`
	Outcome   string         `json:"outcome,omitempty"`
	Result    string         `json:"result,omitempty"`
	Kind      string         `json:"kind,omitempty"`
	ExitCode  *int           `json:"exit_code,omitempty"`
	Signal    int            `json:"signal,omitempty"`
	Reason    *record.Reason `json:"reason,omitempty"`
	EndedAt   attempt.Time   `json:"ended_at,omitzero"`
	Review    string         `json:"review,omitempty"` // of one that ended (C13)
}

// Driver is the process that claimed an attempt.
type Driver struct {
	Pid    int    `json:"pid"`
	Ticks  uint64 `json:"start_ticks,omitempty"`
	BootID string `json:"boot_id,omitempty"`
}

// Events is the answer to PathEvents.
type Events struct {
	V      int     `json:"v"`
	Events []Event `json:"events"`
}

// Event is one change of state, as it was committed with the change itself.
type Event struct {
	Seq     int64        `json:"seq"`
	At      attempt.Time `json:"at"`
	Lane    string       `json:"lane"`
	Attempt string       `json:"attempt"`
	What    string       `json:"what"`
	From    string       `json:"from,omitempty"`
	To      string       `json:"to,omitempty"`
	Detail  string       `json:"detail,omitempty"`
}

// Target names what a POST is about: a lane, which means its present attempt,
// or one attempt by its id.
type Target struct {
	Lane    string `json:"lane,omitempty"`
	Attempt string `json:"attempt,omitempty"`
}

// Prio is the body of PathPrio.
type Prio struct {
	Target
	Priority int `json:"priority"`
}

// Stop is the body of PathStop.
type Stop struct {
	CancelRunning bool `json:"cancel_running,omitempty"`
}

// Done is what became of a POST about one attempt.
type Done struct {
	V        int            `json:"v"`
	Lane     string         `json:"lane"`
	Attempt  string         `json:"attempt"`
	RetryOf  string         `json:"retry_of,omitempty"`
	Verdict  int            `json:"retry_verdict,omitempty"` // of RetryOf, when it was tried again
	State    string         `json:"state"`
	Outcome  string         `json:"outcome,omitempty"`
	ExitCode *int           `json:"exit_code,omitempty"`
	Signal   int            `json:"signal,omitempty"`
	Orphaned bool           `json:"orphaned,omitempty"` // its driver is gone, its agent lives
	Did      string         `json:"did,omitempty"`      // a word for programs: cancelled, already_ended, …
	Message  string         `json:"message,omitempty"`
	Priority int            `json:"priority"`
	Place    int            `json:"place,omitempty"`
	Fence    uint64         `json:"fence,omitempty"`
	Driver   *Driver        `json:"driver,omitempty"`
	Reason   *record.Reason `json:"reason,omitempty"`
}

// Stopping is the answer to PathStop: what the dispatcher leaves behind.
type Stopping struct {
	V       int `json:"v"`
	Queued  int `json:"queued"`  // rows that wait for the next dispatcher
	Running int `json:"running"` // attempts that go on without one, or are being cancelled
}

// Woken is the answer to PathWake.
type Woken struct {
	V int `json:"v"`
}

// failure is the body of an answer that is not 2xx.
type failure struct {
	V     int           `json:"v"`
	Error record.Reason `json:"error"`
}

const (
	// Beat is how often a stream that has nothing to tell says so.
	Beat = 15 * time.Second
	// Patience bounds one call, so that whoever looks answers within two seconds
	// whatever the dispatcher does (S28).
	Patience = 1200 * time.Millisecond
	// maxAnswer bounds an answer in bytes: 10,000 rows take some 10 MiB.
	maxAnswer = 256 << 20
)
