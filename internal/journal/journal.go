// Package journal keeps one line for every transfer of a permission: what passed
// from whom to whom, on what evidence, when (P11).
//
// It is an append-only file of lines, journal.ndjson in the home, because `run`
// opens no database and only the dispatcher writes that one; what the dispatcher
// did stands in the database's events, written in the same transaction, and
// readers merge both. A line is written whole or not at all. It is a record, and
// no proof against the same user, who can edit it.
package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/machine"
)

// The permissions that pass (P1).
const (
	Resource   = "resource"
	Quota      = "quota"
	Ownership  = "ownership"
	Acceptance = "acceptance"
	Release    = "release"
)

// Event is one transfer.
type Event struct {
	V          int       `json:"v"`
	At         time.Time `json:"at"`
	Permission string    `json:"permission"`
	What       string    `json:"what"` // a past participle: admitted, parked, accepted
	Lane       string    `json:"lane,omitempty"`
	Attempt    string    `json:"attempt,omitempty"` // or the run
	Engine     string    `json:"engine,omitempty"`
	Account    string    `json:"account,omitempty"`
	From       string    `json:"from,omitempty"` // who had it: a role and a process, an account, a state
	To         string    `json:"to,omitempty"`   // who has it now
	Identity   string    `json:"identity,omitempty"`
	Evidence   []string  `json:"evidence,omitempty"`
	By         string    `json:"by,omitempty"` // who decided
	Code       string    `json:"code,omitempty"`
	Text       string    `json:"text,omitempty"` // one line for people
	Until      time.Time `json:"until,omitzero"`
}

// File is the journal's name in the home.
const File = "journal.ndjson"

const (
	version = 1
	// maxLine bounds one event in bytes, so that a line is one write(2).
	maxLine = 16 << 10
)

// Append adds an event. A zero At is now. The home is created if need be.
func Append(d home.Dir, e Event) error {
	e.V = version
	if e.At.IsZero() {
		e.At = machine.Now()
	}
	e.At = e.At.UTC().Truncate(time.Millisecond)
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if len(line) >= maxLine {
		return fmt.Errorf("journal: an event of %d bytes is too long", len(line))
	}
	folder, err := d.Make()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer folder.Close()
	if err := folder.Append(File, append(line, '\n'), maxSize); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// maxSize is how large the file may grow before nothing more is added.
const maxSize = 1 << 30
