package home

import (
	"errors"
	"fmt"
	"strconv"
)

// The sockets of a home (C10).
const (
	HandoffSocket = "handoff.sock" // frames and descriptors (L23)
	APISocket     = "api.sock"     // HTTP with JSON (L24)
)

// maxBacklog is how many connections may wait to be accepted; the kernel cuts
// it to net.core.somaxconn. A client beyond it waits, see DialUnix.
const maxBacklog = 4096

// Nobody reports that no process listens at a socket of the home: it is not
// there, or whoever made it is gone. Nothing was sent (69).
type Nobody struct {
	Path string
	Err  error // what connect(2) said
}

func (e *Nobody) Error() string {
	return fmt.Sprintf("nobody listens at %s", strconv.QuoteToASCII(e.Path))
}

func (e *Nobody) Unwrap() error { return e.Err }

// errNotListening refuses a descriptor that is to become a listener.
var errNotListening = errors.New("not a listening Unix stream socket that has a name")
