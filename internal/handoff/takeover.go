package handoff

// Takeover asks the dispatcher to be relieved by the sender (L21). It answers
// with a Relief that brings the dispatcher's lock and the two listening sockets,
// then with Relieved batches of lanes; each is acknowledged by a Received before
// the next is sent. After the last Received the sender is the dispatcher.
type Takeover struct {
	Version string `json:"version"` // of the program, for the log
}

// Relief begins the handover: three descriptors come with it, the lock's, this
// socket's and the HTTP socket's.
type Relief struct {
	Answer
	Rows int `json:"rows"` // lanes that will follow
}

// Relieved brings the lanes of waiting rows: one descriptor for each attempt, in
// order. The one that names none is the last; everything is the receiver's once
// it has been acknowledged.
type Relieved struct {
	Attempts []string `json:"attempts"`
}

// Received acknowledges a Relief or a Relieved.
type Received struct {
	Got int `json:"got"` // descriptors, so far
}

// Batch is how many lanes one Relieved brings at most (L21).
const Batch = 200

// Type names the message in its frame.
func (Takeover) Type() string { return "takeover" }

// Type names the message in its frame.
func (Relief) Type() string { return "relief" }

// Type names the message in its frame.
func (Relieved) Type() string { return "relieved" }

// Type names the message in its frame.
func (Received) Type() string { return "received" }
