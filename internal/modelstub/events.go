package modelstub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// events writes server-sent events, with the pause a step asks for between
// them, until the engine hangs up or the stub closes.
type events struct {
	w     http.ResponseWriter
	gone  <-chan struct{}
	left  <-chan struct{}
	pause time.Duration
	n     int // events sent; also the sequence number OpenAI's clients expect
}

func (e *events) begin() {
	e.w.Header().Set("Content-Type", "text/event-stream")
	e.w.Header().Set("Cache-Control", "no-cache")
	e.w.WriteHeader(http.StatusOK)
	e.flush()
}

// send writes one event; name is left out where the API has none.
func (e *events) send(name string, value any) {
	if e.n > 0 && e.pause > 0 {
		select {
		case <-time.After(e.pause):
		case <-e.gone:
		case <-e.left:
		}
	}
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // our own value: a fault in this package
	}
	if name != "" {
		fmt.Fprintf(e.w, "event: %s\n", name)
	}
	fmt.Fprintf(e.w, "data: %s\n\n", body)
	e.n++
	e.flush()
}

// raw writes one event that is not JSON.
func (e *events) raw(line string) {
	fmt.Fprintf(e.w, "data: %s\n\n", line)
	e.flush()
}

// stall waits until somebody gives up.
func (e *events) stall() {
	select {
	case <-e.gone:
	case <-e.left:
	}
}

func (e *events) flush() {
	if f, ok := e.w.(http.Flusher); ok {
		f.Flush()
	}
}
