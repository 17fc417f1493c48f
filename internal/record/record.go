// Package record keeps what is known of each run: who started what, in which
// pools, when, and how it ended (E13, E15, E16; C12, C13).
//
// It guarantees that a record is seen whole, old or new; that it is private to
// its user; that prompts, arguments and environment values are not in it (C137);
// that damaged records of others never stop a reader; and that a record of a
// newer version is never rewritten. Starting a record takes some twenty system
// calls and flushes nothing, so a power loss may lose it.
//
// It decides nothing: whether a run without a record may go on, what a record
// that never ended means, and when old ones are removed is the caller's to say.
// Admission never reads records.
package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/stream"
)

// Version is the version of the formats written here (C12).
const Version = 1

// The words of C13. No others are written.
const (
	Queued   = "queued"
	Starting = "starting"
	Running  = "running"
	Ended    = "ended"

	Exited     = "exited"
	Signaled   = "signaled"
	TimedOut   = "timed_out"
	Cancelled  = "cancelled"
	Refused    = "refused"
	NotStarted = "not_started"
	Lost       = "lost"

	Succeeded = "succeeded"
	Failed    = "failed"
)

// Run is one record. Fields that are not known are left out.
type Run struct {
	V     int    `json:"v"`
	ID    string `json:"id"`
	Verb  string `json:"verb"` // "run", "agent" or "gate"
	State string `json:"state"`
	// Outcome is how it ended; empty until then.
	Outcome string `json:"outcome,omitempty"`
	// Result and Kind are what the engine's stream said; empty when nobody read it.
	// Message is what the engine said of a failure, Until when it may be over.
	Result  string `json:"result,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Message string `json:"message,omitempty"` // at most MaxMessage bytes
	Until   Time   `json:"until,omitzero"`

	Argv0   string `json:"argv0"`
	Argc    int    `json:"argc"`           // how many arguments, argv[0] included
	Command string `json:"command_sha256"` // Digest of the arguments
	Cwd     string `json:"cwd"`

	Engine      string `json:"engine,omitempty"`
	Account     string `json:"account,omitempty"` // of the engine, by name
	Workload    string `json:"workload,omitempty"`
	Confinement string `json:"confinement"`           // how it is confined; "none"
	Interactive bool   `json:"interactive,omitempty"` // a person sits in it, at a terminal
	Pools       []Pool `json:"pools,omitempty"`
	// Lane is the seat of work the run owned, Fence the number by which it got it:
	// of the grant, or of a direct run's taking it. It is greater than that of any
	// run that had the lane before (P9).
	Lane     string `json:"lane,omitempty"`
	Fence    uint64 `json:"fence,omitempty"`
	Enqueued bool   `json:"enqueued,omitempty"` // it is an attempt, and no direct run

	// Review is "pending" once it succeeded and is to be reviewed (P7). What came
	// of that stands in files of its own (room review). RetryOf is the attempt that
	// it tries again, RetryVerdict the number of that one's verdict, if it had one.
	Review       string `json:"review,omitempty"`
	RetryOf      string `json:"retry_of,omitempty"`
	RetryVerdict int    `json:"retry_verdict,omitempty"`

	// What the engine's stream told of itself, as far as somebody read it.
	Session       string        `json:"session_id,omitempty"` // of the conversation
	Model         string        `json:"model,omitempty"`
	EngineVersion string        `json:"engine_version,omitempty"`
	Usage         *stream.Usage `json:"usage,omitempty"`
	Trouble       *Trouble      `json:"trouble,omitempty"` // what it fights with just now
	Profile       string        `json:"profile,omitempty"`

	// Temp are the directories outside of the run's own that go with its end.
	Temp []string `json:"temp,omitempty"`

	UID       int       `json:"uid"`
	StartedBy []Process `json:"started_by,omitempty"` // nearest first, at most MaxChain
	Author    string    `json:"author,omitempty"`
	// Labels are the user's own words.
	Labels map[string]string `json:"labels,omitempty"`

	Handsel Identity  `json:"handsel"`
	Child   *Identity `json:"child,omitempty"`

	ExitCode *int    `json:"exit_code,omitempty"`
	Signal   int     `json:"signal,omitempty"`
	Reason   *Reason `json:"reason,omitempty"`

	QueuedAt   Time    `json:"queued_at,omitzero"`
	AdmittedAt Time    `json:"admitted_at,omitzero"`
	ClaimedAt  Time    `json:"claimed_at,omitzero"` // when an attempt was granted to its driver
	StartedAt  Time    `json:"started_at,omitzero"`
	FirstAt    Time    `json:"first_output_at,omitzero"` // of its recorded output
	EndedAt    Time    `json:"ended_at,omitzero"`
	WaitedS    float64 `json:"waited_s"`        // seconds in line, by the monotonic clock
	RanS       float64 `json:"ran_s,omitempty"` // seconds from spawn to end, by the monotonic clock
	// WaitedFor is what WaitedS was spent on, in seconds by class/code of the
	// reason, as far as it was counted.
	WaitedFor map[string]float64 `json:"waited_for,omitempty"`

	Limits    *Limits    `json:"limits,omitempty"`
	Output    *Output    `json:"output,omitempty"`
	Survivors []Survivor `json:"survivors,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
	HostBoot  string     `json:"host_boot,omitempty"` // the boot id times and pids belong to
}

// MaxMessage bounds Message, in bytes.
const MaxMessage = 1 << 10

// Trouble is a failure that the engine tries to overcome by itself.
type Trouble struct {
	Text    string `json:"text"`             // such as "engine retrying: 401, attempt 5 of 10"
	Fault   string `json:"fault,omitempty"`  // a kind of an ending (E11)
	Status  int    `json:"status,omitempty"` // of HTTP
	Attempt int    `json:"attempt,omitempty"`
	Of      int    `json:"of,omitempty"`
	Since   Time   `json:"since"`
	Until   Time   `json:"until,omitzero"`
}

// MaxChain bounds StartedBy.
const MaxChain = 8

// Pool is one slot that was held. Cap 0 is none.
type Pool struct {
	Name string `json:"name"`
	Slot int    `json:"slot"`
	Cap  int    `json:"cap,omitempty"`
}

// Process is a process in passing: good to show, never to signal.
type Process struct {
	Pid  int    `json:"pid"`
	Comm string `json:"comm"`
}

// Identity is a process that can be told from a later one with its pid.
type Identity struct {
	Pid    int    `json:"pid"`
	Ticks  uint64 `json:"start_ticks,omitempty"`
	BootID string `json:"boot_id,omitempty"`
	PidNS  uint64 `json:"pid_ns,omitempty"`
}

// Reason says why something did not start or did not go on (C13).
type Reason struct {
	Class     string   `json:"class"`
	Code      string   `json:"code"`
	Message   string   `json:"message"`
	Until     Time     `json:"until,omitzero"`
	Holders   []Holder `json:"holders,omitempty"`
	Retryable bool     `json:"retryable"`
}

// Holder is who has what somebody waits for: a slot of a pool, or a lane.
type Holder struct {
	Pool  string `json:"pool,omitempty"`
	Slot  int    `json:"slot"` // 0 for a lane
	Lane  string `json:"lane,omitempty"`
	Pid   int    `json:"pid,omitempty"`
	Child int    `json:"child,omitempty"`
	Run   string `json:"run,omitempty"`
}

// Limits are the time limits a run was given, in seconds; 0 is none.
type Limits struct {
	TimeoutS float64 `json:"timeout_s,omitempty"`
	IdleS    float64 `json:"idle_s,omitempty"`
}

// Output is how much a recorded run wrote, and how much of it is not kept.
type Output struct {
	StdoutBytes    int64 `json:"stdout_bytes"`
	StderrBytes    int64 `json:"stderr_bytes"`
	EventsBytes    int64 `json:"events_bytes,omitempty"` // of events.ndjson
	TruncatedBytes int64 `json:"truncated_bytes"`
}

// Survivor is a process that could not be ended, or was left on purpose.
type Survivor struct {
	Pid  int    `json:"pid"`
	Comm string `json:"comm"`
	Why  string `json:"why"`
}

// Time is a moment as it is written: RFC 3339, UTC, milliseconds (C12).
type Time struct{ time.Time }

const timeFormat = "2006-01-02T15:04:05.000Z"

// At is t as it will be read back.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// MarshalJSON writes milliseconds even when they are zero.
func (t Time) MarshalJSON() ([]byte, error) {
	if !t.writable() {
		return nil, errors.New("a time outside the years 0 to 9999")
	}
	return []byte(`"` + t.UTC().Format(timeFormat) + `"`), nil
}

// UnmarshalJSON reads RFC 3339 of any zone. What could not be written again is
// an error.
func (t *Time) UnmarshalJSON(data []byte) error {
	if err := t.Time.UnmarshalJSON(data); err != nil {
		return err
	}
	if *t = At(t.Time); !t.writable() {
		return errors.New("a time outside the years 0 to 9999")
	}
	return nil
}

func (t Time) writable() bool { year := t.UTC().Year(); return 0 <= year && year <= 9999 }

// Seconds is a duration as it is written, never negative (C14).
func Seconds(d time.Duration) float64 { return max(0, d.Round(time.Millisecond).Seconds()) }

// Digest names a command without telling it: SHA-256 of the arguments joined by NUL.
func Digest(argv []string) string {
	sum := sha256.New()
	for i, arg := range argv {
		if i > 0 {
			sum.Write([]byte{0})
		}
		sum.Write([]byte(arg))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// NewID names a run: a UUIDv7, so that names sort by time.
func NewID() string {
	id, err := uuid.NewV7()
	if err != nil {
		// Only a kernel without random bytes comes here; a name made of the time
		// alone would not be one.
		panic(fmt.Sprintf("no random bytes: %v", err))
	}
	return id.String()
}

// dateOf is the UTC date in an id, the directory its run is in.
func dateOf(id string) (string, bool) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 || u.String() != id {
		return "", false
	}
	return timeOf(u).Format(time.DateOnly), true
}

func timeOf(u uuid.UUID) time.Time {
	ms := int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
	return time.UnixMilli(ms).UTC()
}

const (
	runFile = "run.json"
	runsDir = "runs"
	// maxRun bounds a record that is read, in bytes.
	maxRun = 1 << 20
)

// ErrNone reports a file that should be a record and is none: it is empty when
// who made it was killed before it had written anything.
var ErrNone = errors.New("not a record")

// ErrNewer reports a record that a later version wrote. It can be read, as far
// as its fields are known here, and must not be rewritten (C12).
var ErrNewer = errors.New("the record was written by a newer version")

// Writer keeps one run's record up to date. Its methods are for one goroutine
// at a time.
type Writer struct {
	home home.Dir
	date string
	id   string
	file *os.File // run.json, while it is still the file that Create made
}

// space is what Create reserves for a record. As long as it fits, it is
// replaced in place by one write of the whole space: making a second file and
// renaming it would cost more than all else that a record does, and can fail
// on a disk that was filled since. A reader that catches the write in the
// middle reads again.
const space = 4096

// Create makes the run's directory and writes its first record. An empty ID is
// given one. The directory may be there already, as that of an attempt with its
// payload (room attempt): it must have no record yet, or the error is
// fs.ErrExist. An error leaves everything as it was, and the decision to the
// caller; the run itself needs no record.
func Create(d home.Dir, r *Run) (*Writer, error) {
	if r.ID == "" {
		r.ID = NewID()
	}
	date, ok := dateOf(r.ID)
	if !ok {
		return nil, fmt.Errorf("record %q: not the id of a run", r.ID)
	}
	day, err := d.Make(runsDir, date)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", r.ID, err)
	}
	defer day.Close()
	if err := day.Mkdir(r.ID); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("record %s: %w", r.ID, err)
	}
	dir, err := day.Sub(r.ID)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", r.ID, err)
	}
	defer dir.Close()
	w := &Writer{home: d, date: date, id: r.ID}
	if err := w.begin(dir, r); err != nil {
		_ = day.Remove(r.ID) // no directory that holds nothing; one of an attempt is not empty
		return nil, fmt.Errorf("record %s: %w", r.ID, err)
	}
	return w, nil
}

// begin writes the first record. It is whole as soon as it is not empty. An
// error leaves none that was not there before.
func (w *Writer) begin(dir *home.Folder, r *Run) (err error) {
	data, err := encode(r)
	if err != nil {
		return err
	}
	if w.file, err = dir.Create(runFile); err != nil {
		return err
	}
	if len(data) <= space {
		err = w.overwrite(data)
	} else if err = w.Close(); err == nil {
		err = dir.WriteFile(runFile, data)
	}
	if err != nil {
		_ = w.Close()
		_ = dir.Remove(runFile)
	}
	return err
}

// overwrite replaces the record in place, by one pwrite(2) of the same length
// each time.
func (w *Writer) overwrite(data []byte) error {
	padded := make([]byte, space)
	for i := copy(padded, data); i < space; i++ {
		padded[i] = ' '
	}
	padded[space-1] = '\n'
	_, err := w.file.WriteAt(padded, 0)
	return err
}

// Close lets go of the record. It is safe to call again.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

// Reopen is a Writer for a run that is on disk, for whoever finds out how it
// ended. It is ErrNewer for a record of a later version.
func Reopen(d home.Dir, id string) (*Writer, *Run, error) {
	r, err := Load(d, id)
	if err != nil {
		return nil, nil, err
	}
	if r.V > Version {
		return nil, r, fmt.Errorf("record %s: %w", id, ErrNewer)
	}
	date, _ := dateOf(id)
	return &Writer{home: d, date: date, id: id}, r, nil
}

// Anew is a Writer for a run whose record is ErrNone: Save puts one in its place.
func Anew(d home.Dir, id string) (*Writer, error) {
	date, ok := dateOf(id)
	if !ok {
		return nil, fmt.Errorf("record %q: not the id of a run", id)
	}
	return &Writer{home: d, date: date, id: id}, nil
}

// Save replaces the record.
func (w *Writer) Save(r *Run) error {
	if r.ID != w.id {
		return fmt.Errorf("record %s: given the record of %q", w.id, r.ID)
	}
	data, err := encode(r)
	if err == nil {
		err = w.replace(data, r.State == Ended)
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", w.id, err)
	}
	return nil
}

// replace writes the record where it is. The last time it looks whether that still
// is where it is looked for: an agent may have removed it.
func (w *Writer) replace(data []byte, last bool) error {
	if w.file != nil && len(data) <= space && (!last || w.named()) {
		return w.overwrite(data)
	}
	dir, err := w.home.Open(runsDir, w.date, w.id)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := w.Close(); err != nil {
		return err
	}
	return dir.WriteFile(runFile, data)
}

// named tells whether the record that is open still has its name.
func (w *Writer) named() bool {
	open, err := w.file.Stat()
	there, lerr := os.Lstat(filepath.Join(w.Dir(), runFile))
	return err == nil && lerr == nil && os.SameFile(open, there)
}

// ID is the run's name.
func (w *Writer) ID() string { return w.id }

// Dir is the run's directory.
func (w *Writer) Dir() string { return filepath.Join(w.home.Runs(), w.date, w.id) }

func encode(r *Run) ([]byte, error) {
	r.V = Version
	r.WaitedS, r.RanS = max(0, r.WaitedS), max(0, r.RanS)
	if len(r.StartedBy) > MaxChain {
		r.StartedBy = r.StartedBy[:MaxChain]
	}
	data, err := json.Marshal(r)
	return append(data, '\n'), err
}

// Load reads one record. A missing one is fs.ErrNotExist.
func Load(d home.Dir, id string) (*Run, error) {
	date, ok := dateOf(id)
	if !ok {
		return nil, fmt.Errorf("record %q: %w", id, fs.ErrNotExist)
	}
	day, err := d.Open(runsDir, date)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", id, err)
	}
	defer day.Close()
	r, err := read(day, id)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", id, err)
	}
	return r, nil
}

func read(day *home.Folder, id string) (*Run, error) {
	dir, err := day.Sub(id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for tries := 1; ; tries++ {
		data, err := dir.ReadFile(runFile, maxRun)
		if err != nil {
			return nil, err
		}
		r, err := decode(data, id)
		if err == nil || tries == readTries {
			return r, err
		}
		time.Sleep(time.Millisecond) // it may be being written; damage does not mend itself
	}
}

// readTries is how often a record that does not parse is read.
const readTries = 4

// decode reads a record as far as its fields are known here. One that says
// nothing of itself, or is another run's, is no record.
func decode(data []byte, id string) (*Run, error) {
	r := new(Run)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	switch {
	case r.V < 1:
		return nil, fmt.Errorf("%w: no version", ErrNone)
	case r.ID != id:
		return nil, errors.New("not the record of this run")
	}
	return r, nil
}
