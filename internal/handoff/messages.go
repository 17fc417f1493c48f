package handoff

import "github.com/handsel/handsel/internal/attempt"

// The codes of refusals by this room. Those of the dispatcher are its own.
const (
	CodeFrame       = "frame"       // what came is not a frame, or not the message it says
	CodeSlow        = "slow"        // a frame was not finished, or not begun, in time
	CodeMisplaced   = "misplaced"   // descriptors came elsewhere than on a frame's first byte
	CodeDescriptors = "descriptors" // descriptors were lost: we may not open more of them
	CodeBusy        = "busy"        // too many connections
	CodeVersion     = "version"     // another version of the protocol
	CodeForeign     = "foreign"     // the peer is another user
)

// Enqueue hands a lane over, with exactly one descriptor, on which its lock is
// held. The answer leaves after the row is committed (L6, L8).
type Enqueue struct {
	Row attempt.Row `json:"row"`
}

// Ask asks what became of an attempt (L9). The lane's descriptor may come with
// it, from the launcher that still has it: the dispatcher takes it if it has
// accepted the attempt and does not have the lane, and closes it otherwise.
type Ask struct {
	Attempt string `json:"attempt"`
}

// Answer says what was done, or why nothing was, or what became of an attempt.
type Answer struct {
	OK      bool   `json:"ok"`
	Code    string `json:"code,omitempty"`
	Class   string `json:"class,omitempty"` // of a reason (C13)
	Message string `json:"message,omitempty"`
	// Retryable says that the same request may succeed later.
	Retryable bool   `json:"retryable,omitempty"`
	Until     string `json:"until,omitempty"`

	State   string `json:"state,omitempty"`
	Lane    string `json:"lane,omitempty"`
	Attempt string `json:"attempt,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Owner   string `json:"owner,omitempty"`
}

// Claim is a driver asking for the attempt it was started for (L14).
type Claim struct {
	Attempt string `json:"attempt"`
	Token   string `json:"token"`
}

// SlotRef names a slot whose descriptor travels with a Granted.
type SlotRef struct {
	Pool  string `json:"pool"`
	Index int    `json:"index"`
	Cap   int    `json:"cap"`
}

// Granted answers a Claim. If it is OK the lane's descriptor comes with it, and
// after that one for each of Slots, in order.
type Granted struct {
	Answer
	Row   attempt.Row `json:"row,omitzero"`
	Fence uint64      `json:"fence,omitempty"`
	Start int         `json:"start,omitempty"`
	Slots []SlotRef   `json:"slots,omitempty"`
}

// Ack is the driver's word, on the connection of its claim, that it owns the
// lane and has begun, or that it found the start withdrawn and closed
// everything. It is not answered.
type Ack struct {
	Attempt string `json:"attempt"`
	Start   int    `json:"start"`
	Begun   bool   `json:"begun"`
}

// Ended tells the dispatcher what is in run.json already (L17).
type Ended struct {
	Attempt  string `json:"attempt"`
	Start    int    `json:"start"`
	Outcome  string `json:"outcome"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   int    `json:"signal,omitempty"`
}

// Type names the message in its frame.
func (Enqueue) Type() string { return "enqueue" }

// Type names the message in its frame.
func (Ask) Type() string { return "ask" }

// Type names the message in its frame.
func (Answer) Type() string { return "answer" }

// Type names the message in its frame.
func (Claim) Type() string { return "claim" }

// Type names the message in its frame.
func (Granted) Type() string { return "granted" }

// Type names the message in its frame.
func (Ack) Type() string { return "ack" }

// Type names the message in its frame.
func (Ended) Type() string { return "ended" }
