// Package modelstub plays the model behind an agent CLI, for tests only.
//
// It speaks the streamed and the whole-answer forms of the APIs the four
// engines talk to (Anthropic Messages, OpenAI Responses and Chat Completions,
// Gemini generateContent) on a loopback address, answers from a script, and
// keeps every request. What a test believes about a turn it takes from that
// log, from files and from processes, never from what an engine prints.
//
// It guarantees that the answer to a request depends on the script and on the
// tool results the request carries, not on how often the request was sent, so
// an engine that repeats itself gets the same answer again. It does not check
// that requests are well formed, counts no tokens, and knows nothing of
// authentication: any key is accepted.
package modelstub

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxBody bounds one request. The engines send their whole tool list and
// conversation each time; the largest seen is below 200 kB.
const maxBody = 64 << 20

// Step is the answer to one request of a conversation. A step with a tool call
// is done when its result has come back; a step without one ends the turn and
// is given again for as long as the engine asks.
type Step struct {
	// Text is said first; it may stand alone.
	Text string

	// Shell, when not empty, is run through whatever shell tool the engine
	// offers, under that tool's own name and argument.
	Shell string

	// Call is a tool call by name, for tools other than the shell.
	Call *Call

	// Fail answers with an error instead of all of the above. Times says how
	// many requests it is given to before the script goes on; 0 means all.
	Fail  *Fail
	Times int

	// Stall sends the head of the answer and then nothing until the engine
	// hangs up or the stub closes.
	Stall bool

	// Piece is how many bytes of text go into one event (default 16 KiB) and
	// Pause the time between two events.
	Piece int
	Pause time.Duration

	// Before runs when the request has been logged and before anything of the
	// answer is sent: the engine is then between two steps and waits for us.
	Before func(Request)
}

// Call names a tool and its arguments as the engine declared them.
type Call struct {
	Name      string
	Namespace string // in the Responses API, where the tools of a server have one
	Args      map[string]any
}

// Fail is an API error: its status, headers (a reset time, say) and message.
// Kind is the API's own word for it; empty means the usual one of the status.
// More are further members of the error in the body.
type Fail struct {
	Status  int
	Kind    string
	Message string
	Header  map[string]string
	More    map[string]any
}

// Result is what an engine sent back for a tool call of ours.
type Result struct {
	ID   string
	Text string
}

// API says which protocol a request spoke.
type API string

// The protocols, as they appear in Request.API.
const (
	Anthropic API = "anthropic"
	Responses API = "openai-responses"
	Chat      API = "openai-chat"
	Gemini    API = "gemini"
	Other     API = "other" // a path none of them has; answered 404
)

// Request is one line of the log.
type Request struct {
	API     API
	Method  string
	Path    string // with the query
	Model   string
	Stream  bool
	Tools   []string // names offered, in order
	Results []Result // results of the running script's calls, in order
	Step    int      // index of the step it was answered with; -1 for side requests
	Body    []byte
}

// Stub is a running server. The zero value is not usable; call Start.
type Stub struct {
	URL string // http://127.0.0.1:PORT, no trailing slash

	server *http.Server
	gone   chan struct{} // closed by Close: ends stalled answers
	done   chan struct{} // closed when Serve has returned

	mu     sync.Mutex
	script []Step
	failed []int // requests each Fail step has answered
	play   int   // how often Play was called; part of every call's id
	log    []Request
}

// Start listens on a free loopback port and plays script.
func Start(script ...Step) (*Stub, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("model stub: %w", err)
	}
	s := &Stub{
		URL:  "http://" + listener.Addr().String(),
		gone: make(chan struct{}),
		done: make(chan struct{}),
	}
	s.Play(script...)
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener) // returns when Close is called
	}()
	return s, nil
}

// Play starts a new script. Results of an earlier script's calls, which a
// resumed conversation still carries, do not count towards it.
func (s *Stub) Play(script ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
	s.failed = make([]int, len(script))
	s.play++
}

// Close ends every open answer and returns when the server is gone.
func (s *Stub) Close() error {
	close(s.gone)
	err := s.server.Close()
	<-s.done
	return err
}

// Log returns a copy of all requests so far, oldest first.
func (s *Stub) Log() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.log...)
}

// Results returns the tool results of the running script as the last request
// that carried any showed them.
func (s *Stub) Results() []Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.log) - 1; i >= 0; i-- {
		if len(s.log[i].Results) > 0 {
			return s.log[i].Results
		}
	}
	return nil
}

// ServeHTTP answers one request.
func (s *Stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	wire, asked := route(r, body)
	asked.Method, asked.Path, asked.Body = r.Method, r.URL.RequestURI(), body
	if wire == nil {
		s.record(asked)
		http.NotFound(w, r)
		return
	}
	if counting(r.URL.Path) {
		s.record(asked)
		wire.count(w)
		return
	}
	step, asked, id := s.choose(asked)
	if step.Before != nil {
		step.Before(asked)
	}
	s.answer(w, r, wire, asked, step, id)
}

// choose finds the step for a request, logs it, and makes the id a tool call
// of that step gets.
func (s *Stub) choose(asked Request) (Step, Request, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := fmt.Sprintf("call_p%d_", s.play)
	asked.Results = ours(asked.Results, mark)
	asked.Step = -1
	if len(asked.Tools) > 0 {
		asked.Step = s.next(len(asked.Results))
	}
	s.log = append(s.log, asked)
	if asked.Step < 0 {
		return Step{Text: sideAnswer}, asked, ""
	}
	return s.script[asked.Step], asked, fmt.Sprintf("%s%d", mark, asked.Step)
}

// sideAnswer is for requests that offer no tools: titles, classifications and
// the like. An empty object is JSON for those that ask for JSON, and harmless
// as a title.
const sideAnswer = "{}"

// next is the index of the first step that is not done, given how many of the
// script's tool calls have been answered; -1 for an empty script.
func (s *Stub) next(results int) int {
	for i, step := range s.script {
		switch {
		case step.Fail != nil:
			if step.Times == 0 || s.failed[i] < step.Times {
				s.failed[i]++
				return i
			}
		case step.Shell != "" || step.Call != nil:
			if results == 0 {
				return i
			}
			results--
		default:
			return i
		}
	}
	return len(s.script) - 1
}

func (s *Stub) record(asked Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked.Step = -1
	s.log = append(s.log, asked)
}

// answer sends a step in the request's protocol.
func (s *Stub) answer(w http.ResponseWriter, r *http.Request, wire wire, asked Request, step Step, id string) {
	if step.Fail != nil {
		for k, v := range step.Fail.Header {
			w.Header().Set(k, v)
		}
		writeJSON(w, step.Fail.Status, wire.failure(*step.Fail))
		return
	}
	says := reply{id: id, model: asked.Model, text: step.Text, call: callOf(step, asked.Tools)}
	if !asked.Stream && !step.Stall {
		writeJSON(w, http.StatusOK, wire.whole(says))
		return
	}
	out := &events{w: w, gone: s.gone, left: r.Context().Done(), pause: step.Pause}
	out.begin()
	wire.head(out, says)
	if step.Stall {
		out.stall()
		return
	}
	wire.tell(out, says, pieces(step.Text, step.Piece))
}

// reply is one answer, in no protocol yet.
type reply struct {
	id    string // of the tool call, and unique within a script
	model string
	text  string
	call  *Call
}

// wire is one protocol's way of writing.
type wire interface {
	head(*events, reply)                 // what a stream begins with
	tell(*events, reply, []string)       // text in pieces, the call, the end
	whole(reply) any                     // the same as one JSON value
	failure(Fail) any                    // an error body
	count(http.ResponseWriter)           // the answer to a token count
	read(*Request, json.RawMessage) bool // tools, results and model of a request
}

// route finds the protocol by path and reads the request with it.
func route(r *http.Request, body []byte) (wire, Request) {
	asked := Request{API: Other}
	var found wire
	switch path := r.URL.Path; {
	case r.Method != http.MethodPost:
		return nil, asked
	case strings.HasSuffix(path, "/messages"), strings.HasSuffix(path, "/messages/count_tokens"):
		asked.API, found = Anthropic, anthropic{}
	case strings.HasSuffix(path, "/responses"):
		asked.API, found = Responses, responses{}
	case strings.HasSuffix(path, "/chat/completions"):
		asked.API, found = Chat, chat{}
	case strings.Contains(path, ":"):
		asked.API, found = Gemini, gemini{}
		model, verb, _ := strings.Cut(path[strings.LastIndex(path, "/")+1:], ":")
		asked.Model, asked.Stream = model, verb == "streamGenerateContent"
	default:
		return nil, asked
	}
	if !found.read(&asked, body) {
		return nil, Request{API: Other}
	}
	return found, asked
}

// counting reports a request for a token count.
func counting(path string) bool {
	return strings.HasSuffix(path, "/count_tokens") || strings.HasSuffix(path, ":countTokens")
}

// ours keeps the results of calls this script made. An API without call ids
// gives none; its results then all count.
func ours(all []Result, mark string) []Result {
	var kept []Result
	for _, one := range all {
		if one.ID == "" || strings.HasPrefix(one.ID, mark) {
			kept = append(kept, one)
		}
	}
	return kept
}

// shells are the shell tools of the engines and the name of their argument.
var shells = map[string]string{
	"Bash":              "command", // claude
	"exec_command":      "cmd",     // codex
	"shell_command":     "command", // codex, other models
	"run_shell_command": "command", // gemini
	"bash":              "command", // pi
}

// callOf is the tool call of a step, with a shell command put into whichever
// shell tool was offered. An engine that offers none gets a call of a tool it
// does not know, which it reports back; the log then shows the offer.
func callOf(step Step, offered []string) *Call {
	if step.Shell == "" {
		return step.Call
	}
	for _, name := range offered {
		if arg, ok := shells[name]; ok {
			args := map[string]any{arg: step.Shell}
			if name == "Bash" || name == "run_shell_command" {
				args["description"] = "Run the scripted command"
			}
			return &Call{Name: name, Args: args}
		}
	}
	return &Call{Name: "shell", Args: map[string]any{"command": step.Shell}}
}

// pieces cuts text at byte bounds that do not split a character.
func pieces(text string, size int) []string {
	if size <= 0 {
		size = 16 << 10
	}
	var cut []string
	for len(text) > size {
		end := size
		for end > 1 && text[end]&0xC0 == 0x80 {
			end--
		}
		cut, text = append(cut, text[:end]), text[end:]
	}
	if text != "" {
		cut = append(cut, text)
	}
	return cut
}

// readBody reads a request, unpacking it when the engine compressed it.
func readBody(r *http.Request) ([]byte, error) {
	var from io.Reader = r.Body
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fmt.Errorf("gzip body: %w", err)
		}
		from = unpacked
	default:
		return nil, errors.New("content encoding not spoken here")
	}
	return io.ReadAll(io.LimitReader(from, maxBody))
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the engine hung up: nothing to do
}

// obj keeps the JSON below readable.
type obj = map[string]any

// text gathers the text of a content value, which every API writes either as
// a string or as a list of objects with a text.
func text(raw json.RawMessage) string {
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	var all strings.Builder
	for _, part := range parts {
		all.WriteString(part.Text)
	}
	return all.String()
}
