// Package journal keeps one line for every transfer of a permission: what passed
// from whom to whom, on what evidence, when (P11).
//
// It is an append-only file of lines, journal.ndjson in the home, because `run`
// opens no database and only the dispatcher writes that one; what the dispatcher
// did stands in the database's events, written in the same transaction, and
// readers merge both. A line is written whole or not at all. A file that has
// grown to its bound is set aside under a name with its time, is read all the
// same, and is never removed from here. It is a record, and no proof against the
// same user, who can edit it.
package journal

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
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

// Permissions are the words an event's Permission may be.
var Permissions = []string{Resource, Quota, Ownership, Acceptance, Release}

// What the events of direct runs, and of people's orders, say happened.
const (
	Admitted  = "admitted"  // resource: slots were taken for a direct run
	Taken     = "taken"     // ownership: a direct run took its lane
	Ended     = "ended"     // ownership: a direct run is over, and gave back what it had
	Held      = "held"      // resource: an order holds starts back
	Drained   = "drained"   // resource: nothing new is admitted
	Resumed   = "resumed"   // resource: an order was taken back
	Cancelled = "cancelled" // ownership: somebody asked for the end of what runs
)

// Where an event was written.
const (
	FromFile     = "journal" // journal.ndjson
	FromDatabase = "events"  // the dispatcher's database
)

// Event is one transfer.
type Event struct {
	V          int       `json:"v"`
	At         time.Time `json:"at"` // written in UTC with milliseconds (C12)
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

	// Of the end of a direct run: how it ended, in words of C13, and how long it
	// waited and ran, in seconds (P12). WaitedFor is by class/code of the reason.
	Outcome   string             `json:"outcome,omitempty"`
	Result    string             `json:"result,omitempty"`
	WaitedS   float64            `json:"waited_s,omitempty"`
	RanS      float64            `json:"ran_s,omitempty"`
	WaitedFor map[string]float64 `json:"waited_for,omitempty"`

	// Of an event that was read: where it stands. Append leaves both out.
	Source string `json:"source,omitempty"`
	Seq    int64  `json:"seq,omitempty"` // of a row of the database
}

// moment is written as C12 has it, milliseconds even when they are zero.
type moment time.Time

func (t moment) MarshalJSON() ([]byte, error) {
	at := time.Time(t).UTC()
	if year := at.Year(); year < 0 || year > 9999 {
		return nil, errors.New("a time outside the years 0 to 9999")
	}
	return []byte(at.Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// IsZero tells of no time at all.
func (t moment) IsZero() bool { return time.Time(t).IsZero() }

// MarshalJSON writes times in UTC with milliseconds.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	return json.Marshal(struct {
		V  int    `json:"v"`
		At moment `json:"at"`
		plain
		Until moment `json:"until,omitzero"`
	}{e.V, moment(e.At), plain(e), moment(e.Until)})
}

const (
	// File is the journal's name in the home. A part that was set aside is
	// journal-TIME-RANDOM.ndjson.
	File = "journal.ndjson"

	partPrefix, partSuffix = "journal-", ".ndjson"
	partTime               = "20060102T150405.000Z"
)

const (
	version = 1
	// maxLine bounds one event in bytes, so that a line is one write(2).
	maxLine = 16 << 10
	// maxEvidence bounds what one event may list.
	maxEvidence = 64
)

// partSize is how large the file may grow before it is set aside: some 200,000
// events. A test makes it small.
var partSize int64 = 64 << 20

// Append adds events, in one write(2). A zero At is now. The home is created if
// need be.
func Append(d home.Dir, events ...Event) error {
	var lines []byte
	for _, e := range events {
		line, err := lineOf(e)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		lines = append(lines, line...)
	}
	if len(lines) == 0 {
		return nil
	}
	folder, err := d.Make()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer folder.Close()
	if err := add(folder, lines); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

func lineOf(e Event) ([]byte, error) {
	e.V, e.Source, e.Seq = version, "", 0
	if e.At.IsZero() {
		e.At = machine.Now()
	}
	e.At = e.At.UTC().Truncate(time.Millisecond)
	if len(e.Evidence) > maxEvidence {
		e.Evidence = append(e.Evidence[:maxEvidence:maxEvidence], fmt.Sprintf("and %d more", len(e.Evidence)-maxEvidence))
	}
	for {
		line, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		if len(line) < maxLine {
			return append(line, '\n'), nil
		}
		if !e.shorten() {
			return nil, fmt.Errorf("an event of %d bytes is too long", len(line))
		}
	}
}

// shorten takes something off an event that is too long to be one write: the text
// for people first, then what a record beside it has whole. It is false when
// nothing is left to take.
func (e *Event) shorten() bool {
	const keep = 256
	switch {
	case len(e.Text) > keep:
		e.Text = strings.TrimSuffix(strings.ToValidUTF8(e.Text[:len(e.Text)/2], ""), "…") + "…"
	case len(e.Evidence) > 1:
		e.Evidence = append(slices.Clone(e.Evidence[:(len(e.Evidence)-1)/2]), "and more")
	case len(e.WaitedFor) > 0:
		e.WaitedFor = nil
	case len(e.By) > keep: // a signer may call himself anything
		e.By = strings.ToValidUTF8(e.By[:keep/2], "") + "…"
	default:
		return false
	}
	return true
}

// add writes lines, and sets a full file aside first. Of several that do so at
// once each renames what has the name at that moment, to a name of its own: the
// second finds a short file, or none, and nothing is written over.
func add(folder *home.Folder, lines []byte) error {
	err := folder.Append(File, lines, partSize)
	for tries := 0; errors.Is(err, home.ErrFull) && tries < 8; tries++ {
		if err := folder.Rename(File, partName(machine.Now())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = folder.Append(File, lines, partSize)
	}
	return err
}

// partName is one that nobody else gives: a part is never written over.
func partName(at time.Time) string {
	return partPrefix + at.UTC().Format(partTime) + "-" + strings.ToLower(rand.Text()) + partSuffix
}

func isPart(name string) bool {
	return strings.HasPrefix(name, partPrefix) && strings.HasSuffix(name, partSuffix)
}
