// Package stream reads what an agent prints while it works, line by line, and
// says in a few neutral words what happened (E9 to E12).
//
// It guarantees that no input ends the reading: lines of any length, bytes that
// are no UTF-8, noise between the events and a last line without its newline
// are counted and passed over, and what comes after them arrives. The memory it
// takes is bounded, whatever it is given.
//
// It knows no engine: what a line means is told it by a Decoder (room engine).
package stream

import "time"

// Kind is what an event is about (E10).
type Kind string

// The kinds of events. No others are written.
const (
	Session Kind = "session" // the conversation has an id
	Text    Kind = "text"    // the agent said something
	Tool    Kind = "tool"    // the agent uses a tool
	Spent   Kind = "usage"   // what it cost so far
	Limit   Kind = "limit"   // the model's service refuses more for a while
	Trouble Kind = "error"   // something failed; the agent may go on
	Result  Kind = "result"  // the turn is over, and how
)

// Fault is why something failed (E11). It is the kind of an ending, too.
type Fault string

// The faults an engine tells of, and those that only the ending shows.
const (
	ByAgent      Fault = "agent"      // the agent or its service gave up on the task
	ByLimit      Fault = "limit"      // a quota is used up, until its reset
	ByThrottle   Fault = "throttle"   // too much at once, or the service is overloaded
	ByLogin      Fault = "login"      // the login is missing or no longer valid
	ByPermission Fault = "permission" // it wanted what it may not have

	Stalled    Fault = "stalled"     // nothing came for too long
	NoResult   Fault = "no_result"   // it ended well and said nothing
	NotStarted Fault = "not_started" // it never ran
	OutputLost Fault = "output_lost" // what it said could not be read to its end
)

// Event is one neutral event. Fields that do not belong to its kind are zero.
type Event struct {
	Kind Kind `json:"kind"`
	// Text is what was said: by the agent, as its answer (Result), or as the
	// message of what failed.
	Text string `json:"text,omitempty"`

	Session string   `json:"session,omitempty"` // the engine's id of the conversation
	Model   string   `json:"model,omitempty"`
	Version string   `json:"version,omitempty"` // the engine's own
	Tools   []string `json:"tools,omitempty"`   // offered to the model (Session)
	Tool    string   `json:"tool,omitempty"`    // the one used (Tool)

	Usage *Usage `json:"usage,omitempty"`

	Failed bool      `json:"failed,omitempty"` // of Result
	Fault  Fault     `json:"fault,omitempty"`  // of Limit, Trouble and a failed Result
	Status int       `json:"status,omitempty"` // the service's HTTP status, where it is told
	Until  time.Time `json:"until,omitzero"`   // when a limit is over, where it is told
	Retry  *Retry    `json:"retry,omitempty"`  // the engine tries again by itself

	// Cut is how many bytes of the line the event came from were passed over
	// because it was too long; Text is then the beginning of what was said. Offset
	// and Len say where the whole of it stands in stdout, in bytes. The Reader sets
	// the three.
	Cut    int64 `json:"cut,omitempty"`
	Offset int64 `json:"offset,omitempty"`
	Len    int64 `json:"len,omitempty"`
}

// Usage is what the engine says that the conversation took so far.
type Usage struct {
	Input  int64   `json:"input_tokens,omitempty"`  // cached ones included
	Cached int64   `json:"cached_tokens,omitempty"` // of Input
	Output int64   `json:"output_tokens,omitempty"`
	Cost   float64 `json:"cost_usd,omitempty"` // as the engine reckons it; 0: not told
	Turns  int     `json:"turns,omitempty"`
}

// Retry is an attempt that the engine makes by itself after a failure.
type Retry struct {
	Attempt int     `json:"attempt"`
	Of      int     `json:"of,omitempty"`      // 0: not told
	AfterS  float64 `json:"after_s,omitempty"` // seconds it waits before
}

// Line is one line as the Reader hands it to a Decoder: a JSON object without
// what stood around it.
type Line struct {
	Data []byte // valid until the Decoder returns; proper JSON, but not always UTF-8
	// Type is the string that Data has at its top under "type", as it is written
	// there; nil: it has none. A Decoder that passes over what does not concern it
	// by Type alone saves the reading of Data. Valid as long as Data.
	Type []byte
	// Offset and Len say where the whole object stands in stdout, in bytes.
	Offset, Len int64
	// Cut is how many bytes of long strings in it were passed over, so that Data
	// is still an object with all its keys.
	Cut int64
}

// Decoder says what the lines of one run mean. It belongs to one run, and is
// never called by two goroutines at once.
type Decoder interface {
	// Line reads one object from stdout.
	Line(Line) []Event
	// Stderr reads one line of text from stderr, for engines that say there, and
	// only there, that they are being refused.
	Stderr(text []byte) []Event
	// End is called once after the last line, for engines whose answer is only
	// known then.
	End() []Event
}
