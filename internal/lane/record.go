package lane

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
)

// RecordSize is the length in bytes to which a record is padded, so that one
// pwrite always replaces all of the one before it. A name of 200 control bytes
// takes 1,200 of them in JSON.
const RecordSize = 2048

// maxRecord is the longest text in bytes that is still read as a record (S7).
const maxRecord = 64 << 10

// version is the version of the record's format (C12).
const version = 1

// The roles in which a lane is owned.
const (
	RoleRun        = "run"        // a direct run's supervisor
	RoleLauncher   = "launcher"   // who enqueues, until the dispatcher has accepted
	RoleDispatcher = "dispatcher" // on behalf of a launcher that left
	RoleDriver     = "driver"     // who claimed it, until the attempt has ended
)

// Process is a process as a record names it; pid and start make it one.
type Process struct {
	Pid   int    `json:"pid"`
	Ticks uint64 `json:"start_ticks,omitempty"` // since boot; 0 = not known
}

// Record is what the owner of a lane writes into its file, at the same steps at
// which a slot's is written (L1). What is left of it when nobody owns the lane
// is its name and fence.
type Record struct {
	V    int    `json:"v"`
	Lane string `json:"lane"` // the full name, which the file's need not tell (C11)
	// Fence is the number of the last grant of this lane, by the dispatcher (L14) or
	// on being taken by a direct run (P9); 0 = it was never granted. It only grows,
	// and it is the one thing that outlives every owner.
	Fence uint64 `json:"fence,omitempty"`

	Role    string `json:"role,omitempty"`
	Attempt string `json:"attempt,omitempty"`
	// Run is the id that the agent carries as HANDSEL_RUN. Only who is about to
	// start one sets it: by it an agent is found that its supervisor could not
	// record any more.
	Run    string   `json:"run,omitempty"`
	Holder *Process `json:"holder,omitempty"` // who wrote this, nil = nobody owns the lane
	Child  *Process `json:"child,omitempty"`  // the agent, nil until it exists
	BootID string   `json:"boot_id,omitempty"`
	PidNS  uint64   `json:"pid_ns,omitempty"`
	Since  string   `json:"since,omitempty"` // RFC 3339, UTC, milliseconds (C12)
	Argv0  string   `json:"argv0,omitempty"`
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// Mine is a record of this process in a role, from now on.
func Mine(role string) Record {
	me := proc.Self()
	return Record{
		Role: role, Holder: &Process{me.Pid, me.Ticks}, BootID: me.Boot, PidNS: me.NS,
		Since: machine.Now().UTC().Format(timeFormat),
	}
}

// SinceTime is when the owner took the lane, zero when that is not said.
func (r *Record) SinceTime() time.Time {
	t, err := time.Parse(time.RFC3339, r.Since)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// Owned tells whether the record names an owner, present or past.
func (r *Record) Owned() bool { return r != nil && r.Holder != nil }

// HolderClaim is what the record says of the process that wrote it.
func (r *Record) HolderClaim() proc.Claim { return r.claim(r.Holder) }

// ChildClaim is what the record says of the agent; false when it names none.
func (r *Record) ChildClaim() (proc.Claim, bool) {
	if r == nil || r.Child == nil {
		return proc.Claim{}, false
	}
	return r.claim(r.Child), true
}

func (r *Record) claim(p *Process) proc.Claim {
	if p == nil {
		return proc.Claim{}
	}
	return proc.Claim{Pid: p.Pid, Ticks: p.Ticks, Boot: r.BootID, NS: r.PidNS}
}

// idle is what stays of a record when its owner lets go.
func (r *Record) idle() Record { return Record{V: version, Lane: r.Lane, Fence: r.Fence} }

// ErrTooLong reports a record that does not fit its size: its attempt or run is
// no id.
var errTooLong = errors.New("the record does not fit its size")

// encode is the record as it stands on disk. What only a person reads is cut
// short where it would not fit.
func (r Record) encode() ([]byte, error) {
	for {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r); err != nil {
			return nil, err
		}
		text := bytes.TrimRight(out.Bytes(), "\n")
		if len(text) < RecordSize {
			padded := bytes.Repeat([]byte{' '}, RecordSize)
			copy(padded, text)
			padded[RecordSize-1] = '\n'
			return padded, nil
		}
		if r.Argv0 == "" {
			return nil, errTooLong
		}
		r.Argv0 = r.Argv0[:len(r.Argv0)/2]
	}
}

// Parse reads a record. A text that is no JSON object that says its version and
// lane, or that is too long, is no record at all (S7): nil.
func Parse(text []byte) *Record {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || len(text) > maxRecord || text[0] != '{' {
		return nil
	}
	r := new(Record)
	if json.Unmarshal(text, r) != nil || r.V < 1 || r.Lane == "" {
		return nil
	}
	return r
}
