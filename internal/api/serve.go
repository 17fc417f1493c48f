package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/record"
)

// StreamType is the Accept header that asks PathEvents for a stream.
const StreamType = "text/event-stream"

// Answer writes v as the answer.
func Answer(w http.ResponseWriter, v any) { answer(w, http.StatusOK, v) }

// Refuse answers with a reason instead. Status follows from it: 404 for what is
// not found, 400 for a wrong request, 503 for what may work later, 409 for what
// will not, 500 where the code is "failed".
func Refuse(w http.ResponseWriter, r record.Reason) {
	answer(w, statusOf(r), failure{Version, r})
}

func statusOf(r record.Reason) int {
	switch {
	case r.Code == CodeNotFound:
		return http.StatusNotFound
	case r.Code == CodeFailed:
		return http.StatusInternalServerError
	case r.Class == "config":
		return http.StatusBadRequest
	case r.Retryable:
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // whoever asked may have left
}

// BodyTime is how long the body of a POST may take to come: it is a few hundred
// bytes from the same machine.
const BodyTime = 5 * time.Second

// ReadBody reads the one JSON object of a POST into v. Whoever does not send it in
// time is refused, so that a client that was stopped keeps no connection.
func ReadBody(w http.ResponseWriter, r *http.Request, v any) error {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(BodyTime)) // nothing that answers without a connection needs one
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("the request is not the JSON object that %s takes: %w", r.URL.Path, err)
	}
	_ = conn.SetReadDeadline(time.Time{}) // the answer may take longer; after an error the rest is still to come
	return nil
}

// Filter says which attempts or events are wanted; the zero Filter wants all.
type Filter struct {
	After   int64 // events with a greater seq
	Lane    string
	Attempt string
	Limit   int // 0: as many as the dispatcher gives at once
	Open    bool
}

// FilterOf reads a filter from a request's query.
func FilterOf(r *http.Request) (f Filter, err error) {
	q := r.URL.Query()
	f.Lane, f.Attempt = q.Get("lane"), q.Get("attempt")
	if f.Attempt == "" {
		f.Attempt = q.Get("id")
	}
	f.Open = q.Get("open") == "1"
	if text := q.Get("after"); text != "" {
		if f.After, err = strconv.ParseInt(text, 10, 64); err != nil || f.After < 0 {
			return f, fmt.Errorf("after=%q is not the number of an event", text)
		}
	}
	if text := q.Get("limit"); text != "" {
		if f.Limit, err = strconv.Atoi(text); err != nil || f.Limit < 0 {
			return f, fmt.Errorf("limit=%q is not a number", text)
		}
	}
	return f, nil
}

// Streams tells whether a request to PathEvents asks for a stream.
func Streams(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), StreamType) }

// Stream is one reader of events. It is for one goroutine.
type Stream struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

// OpenStream begins to answer with a stream.
func OpenStream(w http.ResponseWriter) *Stream {
	w.Header().Set("Content-Type", StreamType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s := &Stream{w, http.NewResponseController(w)}
	_ = s.Beat()
	return s
}

// Send writes one event. The error says that the reader is gone, or too slow.
func (s *Stream) Send(e Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "id: %d\ndata: %s\n\n", e.Seq, data); err != nil {
		return err
	}
	return s.out.Flush()
}

// Beat says that the stream is alive; it is due every Beat when there is no
// event.
func (s *Stream) Beat() error {
	if _, err := fmt.Fprint(s.w, ":\n\n"); err != nil {
		return err
	}
	return s.out.Flush()
}
