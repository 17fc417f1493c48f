package attempt

import (
	"strings"
	"time"
)

// The states of a row (C13). A row that was claimed is none any more.
const (
	Queued   = "queued"
	Starting = "starting"
)

// Placement is where and how an attempt is to run: resolved by the launcher,
// and kept with the work.
type Placement struct {
	// Cwd is shown to people. The payload has its bytes, which need not be text.
	Cwd         string   `json:"cwd"`
	Engine      string   `json:"engine,omitempty"`
	Account     string   `json:"account,omitempty"` // of the engine, by name
	Workload    string   `json:"workload"`
	Profile     string   `json:"profile,omitempty"`
	Confinement string   `json:"confinement"`
	Pools       []string `json:"pools,omitempty"` // named ones, besides those of an agent
	// Caps are the variables HANDSEL_MAX_AGENTS* of the launcher, as they were:
	// they join the minimum wherever the row is admitted (S2, L13).
	Caps map[string]string `json:"caps,omitempty"`
	// TimeoutS and IdleS are in seconds and count from the claim (L22); 0 is none.
	TimeoutS     float64 `json:"timeout_s,omitempty"`
	IdleS        float64 `json:"idle_s,omitempty"`
	LeaveDaemons bool    `json:"leave_daemons,omitempty"`
	Review       bool    `json:"review,omitempty"` // it is to be reviewed once it has succeeded (P7)
}

// After holds a row until another ended: a lane's attempt of that moment, or one
// attempt. Any is satisfied by any end, otherwise it must have succeeded.
type After struct {
	Lane    string `json:"lane,omitempty"`
	Attempt string `json:"attempt,omitempty"`
	Any     bool   `json:"any,omitempty"`
}

// Row is one waiting lane (L10). QueueStart and Priority are fixed at arrival
// and survive every requeue, restart and retry.
type Row struct {
	V       int    `json:"v"`
	Lane    string `json:"lane"`
	ID      string `json:"id"` // of the attempt, and of its run
	RetryOf string `json:"retry_of,omitempty"`
	// RetryVerdict is the number of the verdict that RetryOf had when it was tried
	// again; 0 is none (P10).
	RetryVerdict int `json:"retry_verdict,omitempty"`

	QueueStart Time `json:"queue_start"`
	// BootStartNS is QueueStart by CLOCK_BOOTTIME of the boot BootID, and EpochMS
	// the wall clock at which that clock was zero, in ms: see Key.
	BootStartNS int64  `json:"boot_start_ns,omitempty"`
	BootID      string `json:"boot_id,omitempty"`
	EpochMS     int64  `json:"epoch_ms,omitempty"`
	Priority    int    `json:"priority"`

	State      string `json:"state"`
	StateSince Time   `json:"state_since"`

	Placement Placement         `json:"placement"`
	Author    string            `json:"author,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`

	NotBefore Time    `json:"not_before,omitzero"`
	After     []After `json:"after,omitempty"`
	RetryLost int     `json:"retry_lost,omitempty"` // how often it may be started again when lost
	// Driver is the command that claims it instead of our own; empty is ours.
	Driver []string `json:"driver,omitempty"`

	// Of the command only this is known here; the payload has the rest.
	Argv0   string `json:"argv0"` // its base name
	Argc    int    `json:"argc"`
	Command string `json:"command_sha256"`

	Starts      int    `json:"starts,omitempty"`    // offers so far
	Unclaimed   int    `json:"unclaimed,omitempty"` // of those, the last in a row that nobody claimed
	LastFailure string `json:"last_failure,omitempty"`
	AdmittedAt  Time   `json:"admitted_at,omitzero"`
	Fence       uint64 `json:"fence,omitempty"`

	// WaitedFor is how long it waited for what, in seconds by class/code of the
	// reason, as far as the dispatcher that grants it has counted (P12). It comes
	// with the grant, and is stored nowhere but in the run's record.
	WaitedFor map[string]float64 `json:"waited_for,omitempty"`
}

// minuteMS is what one step of priority is worth (C5).
const minuteMS = 60_000

// Asked is when this very attempt was asked for. A new attempt of one that has ended
// has its place in line, and so its QueueStart; what the old one took, and whoever
// judged it, is no part of the new one's wait.
func (r *Row) Asked() time.Time {
	if at, ok := timeOf(r.ID); ok && r.RetryOf != "" && at.After(r.QueueStart.Time) {
		return at
	}
	return r.QueueStart.Time
}

// Key is the row's place in line in ms: smaller is first (C5).
//
// Within a boot it follows CLOCK_BOOTTIME, so that no step of the wall clock
// changes the order of rows that have one EpochMS; across boots it follows the
// wall clock (C14). Whoever accepts rows gives all rows of one boot the EpochMS
// of the first, with Align.
func (r *Row) Key() int64 {
	start := r.QueueStart.UnixMilli()
	if r.BootID != "" && r.EpochMS != 0 {
		start = r.EpochMS + r.BootStartNS/int64(time.Millisecond)
	}
	return start - minuteMS*int64(r.Priority)
}

// Align puts the row on the line of rows whose boot began at epochMS.
func (r *Row) Align(epochMS int64) { r.EpochMS = epochMS }

// Before tells whether a comes before b: by key, ties by id, so that no two
// ever swap places.
func Before(a, b *Row) bool {
	ka, kb := a.Key(), b.Key()
	if ka != kb {
		return ka < kb
	}
	return strings.Compare(a.ID, b.ID) < 0
}
