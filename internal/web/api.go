package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/handsel/handsel"
)

//go:embed page
var files embed.FS

// types are what the files of the page are; a machine's own table may say
// anything.
var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// handler is all that is served. What is begun by it ends with ctx, and not with
// the request: closing the page takes nothing back.
func (s *Server) handler(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { page(w, "index.html") })
	mux.HandleFunc("GET /{file}", func(w http.ResponseWriter, r *http.Request) { page(w, r.PathValue("file")) })
	mux.HandleFunc("POST /api/session", s.door.enter)
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /api/events":    s.events,
		"GET /api/board":     s.board,
		"GET /api/why":       s.why,
		"GET /api/journal":   s.journal,
		"GET /api/durations": s.durations,
		"POST /api/{verb}":   func(w http.ResponseWriter, r *http.Request) { s.act(ctx, w, r) },
	} {
		mux.HandleFunc(pattern, s.door.inside(h))
	}
	return s.door.guard(s.counted(mux))
}

// counted answers nothing once the server has ended.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.answers.begin() {
			refuse(w, http.StatusServiceUnavailable, "ending", "handsel web has ended")
			return
		}
		defer s.answers.going.Done()
		next.ServeHTTP(w, r)
	})
}

// page serves a file of the page.
func page(w http.ResponseWriter, name string) {
	text, err := files.ReadFile("page/" + name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) {
			refuse(w, http.StatusInternalServerError, "failed", err.Error())
			return
		}
		refuse(w, http.StatusNotFound, "not_found", "nothing is here")
		return
	}
	w.Header().Set("Content-Type", types[name[strings.LastIndexByte(name, '.'):]])
	_, _ = w.Write(text) // whoever asked may have left
}

// refusal is what is answered instead.
type refusal struct {
	V     int             `json:"v"`
	Error *handsel.Reason `json:"error"`
}

func refuse(w http.ResponseWriter, status int, code, text string) {
	refuseWith(w, status, &handsel.Reason{Class: "config", Code: code, Message: text})
}

func refuseWith(w http.ResponseWriter, status int, why *handsel.Reason) {
	write(w, status, refusal{V: 1, Error: why})
}

func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

func write(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"v":1,"error":{"class":"resource","code":"failed","message":"the answer cannot be written","retryable":false}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// failed answers with what the library said.
func failed(w http.ResponseWriter, err error) {
	status, why := refused(err)
	refuseWith(w, status, why)
}

// refused puts an error of the library into a status and a reason.
func refused(err error) (int, *handsel.Reason) {
	why := handsel.ReasonOf(err)
	switch {
	case errors.As(err, new(*handsel.NotFound)):
		why.Code = "not_found"
		return http.StatusNotFound, why
	case errors.As(err, new(*handsel.Ambiguous)):
		why.Code = "ambiguous"
		return http.StatusBadRequest, why
	case errors.As(err, new(*handsel.BadName)), errors.As(err, new(*handsel.BadOption)), errors.As(err, new(*handsel.BadScope)), errors.As(err, new(*handsel.BadLane)):
		return http.StatusBadRequest, why
	case errors.As(err, new(*handsel.Decides)), errors.As(err, new(*handsel.NotYours)):
		return http.StatusForbidden, why
	case errors.As(err, new(*handsel.NoDispatcher)), errors.As(err, new(*handsel.SilentDispatcher)):
		return http.StatusServiceUnavailable, why
	case errors.As(err, new(*handsel.ReviewRefused)), errors.As(err, new(*handsel.Refused)), errors.As(err, new(*handsel.LaneOwned)), errors.As(err, new(*handsel.Declined)):
		return http.StatusConflict, why
	}
	return http.StatusInternalServerError, why
}

// readBody reads one JSON object whose fields are all known. It has answered when
// it says no.
func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "bad_request", "the body must be application/json")
		return false
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the body is longer than anything that is asked for here")
		return false
	case err != nil:
		refuse(w, http.StatusBadRequest, "bad_request", "the body did not come")
		return false
	}
	if err := decode(text, into); err != nil {
		refuse(w, http.StatusBadRequest, "bad_request", err.Error())
		return false
	}
	return true
}

// decode reads one JSON value and nothing after it.
func decode(text []byte, into any) error {
	if !utf8.Valid(text) {
		return errors.New("the body is no UTF-8")
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	bad, kind := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the body is empty")
	case kind && bad.Field == "":
		return errors.New("the body is of the kind " + bad.Value + ", and no object")
	case kind:
		return errors.New(bad.Field + " is of the kind " + bad.Value)
	case err != nil:
		return errors.New("the body is not what is asked for: " + err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body has more than one value")
	}
	return nil
}

// maxName bounds what may name a thing.
const maxName = 8 << 10

// subject reads ?x=.
func subject(w http.ResponseWriter, r *http.Request) (string, bool) {
	if q := r.URL.Query(); len(q) == 1 && len(q["x"]) == 1 {
		if why := badName(q["x"][0]); why != "" {
			refuse(w, http.StatusBadRequest, "bad_request", why)
			return "", false
		}
		return q["x"][0], true
	}
	refuse(w, http.StatusBadRequest, "bad_request", "ask about one thing: ?x=NAME")
	return "", false
}

// badName is why a text names nothing.
func badName(x string) string {
	switch {
	case x == "":
		return "x is empty: it names what this is about"
	case len(x) > maxName:
		return "x is longer than any name"
	case !utf8.ValidString(x):
		return "x is no UTF-8"
	}
	return ""
}

func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	x, ok := subject(w, r)
	if !ok {
		return
	}
	y, err := s.o.Home.Why(r.Context(), x)
	if err != nil {
		failed(w, err)
		return
	}
	answer(w, y)
}

// told is a transfer with its sentence.
type told struct {
	handsel.JournalEvent
	Sentence string
}

// MarshalJSON keeps what the event says of itself, its form of times included.
func (t told) MarshalJSON() ([]byte, error) {
	event, err := json.Marshal(t.JournalEvent)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t.Sentence)
	return append(append(append(event[:len(event)-1], `,"sentence":`...), text...), '}'), err
}

func tell(e handsel.JournalEvent) told { return told{e, handsel.Sentence(&e)} }

// mostTold is how many transfers of one thing are shown, the last ones.
const mostTold = 200

// journalAnswer is the journal of one thing.
type journalAnswer struct {
	V        int      `json:"v"`
	Chosen   int      `json:"chosen"` // those that are not shown included
	Events   []told   `json:"events"`
	Problems []string `json:"problems"`
}

func (s *Server) journal(w http.ResponseWriter, r *http.Request) {
	x, ok := subject(w, r)
	if !ok {
		return
	}
	out := journalAnswer{V: 1, Events: []told{}, Problems: []string{}}
	events, err := s.o.Journal(r.Context(), x, func(err error) { out.Problems = append(out.Problems, err.Error()) })
	if err != nil {
		failed(w, err)
		return
	}
	last := newRing[handsel.JournalEvent](mostTold)
	for e := range events {
		if r.Context().Err() != nil {
			return
		}
		out.Chosen++
		last.add(e)
	}
	for _, e := range last.all() {
		out.Events = append(out.Events, tell(e))
	}
	answer(w, out)
}

// spans keeps the last reading of the durations: it reads every record.
type spans struct {
	mu   sync.Mutex
	at   time.Time
	list *handsel.DurationList
}

// Of how long ago durations are told, and for how long a reading is good enough.
const (
	spansSince = 7 * 24 * time.Hour
	spansFresh = 5 * time.Second
)

func (s *Server) durations(w http.ResponseWriter, _ *http.Request) {
	s.spans.mu.Lock()
	defer s.spans.mu.Unlock()
	if s.spans.list == nil || time.Since(s.spans.at) > spansFresh {
		list, err := s.o.Home.Durations(handsel.RunFilter{Since: time.Now().Add(-spansSince), Limit: 1})
		if err != nil {
			failed(w, err)
			return
		}
		s.spans.at, s.spans.list = time.Now(), list
	}
	l := s.spans.list
	answer(w, map[string]any{"v": 1, "at": l.At, "since_s": spansSince.Seconds(), "names": handsel.DurationNames(), "durations": l.Durations, "waited_for_s": l.WaitedFor, "problems": l.Problems})
}

// board answers with the whole of the last look.
func (s *Server) board(w http.ResponseWriter, r *http.Request) {
	c, ok := s.hub.join(r.Context())
	if !ok {
		refuse(w, http.StatusServiceUnavailable, "too_many", "too many pages are open")
		return
	}
	defer s.hub.leave(c)
	for {
		select {
		case m, ok := <-c.messages:
			switch {
			case !ok:
				refuse(w, http.StatusServiceUnavailable, "ending", "handsel web is ending")
				return
			case m.kind == "full":
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(m.data)
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// events tells the whole, and then each change, until the reader leaves, does not
// keep up, or the server ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	c, ok := s.hub.join(r.Context())
	if !ok {
		refuse(w, http.StatusServiceUnavailable, "too_many", "too many pages are open")
		return
	}
	defer s.hub.leave(c)
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Time{}); err != nil { // else the request's own ends the stream
		failed(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(m message) error {
		if err := rc.SetWriteDeadline(time.Now().Add(s.o.pace.write)); err != nil {
			return err
		}
		for _, part := range [][]byte{[]byte("event: " + m.kind + "\ndata: "), m.data, []byte("\n\n")} {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return rc.Flush()
	}
	if rc.Flush() != nil {
		return
	}
	for {
		select {
		case m, ok := <-c.messages:
			if !ok || send(m) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
