package engine

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// geminiDecoder reads what gemini prints with --output-format stream-json, and
// the one object that agy prints with --output-format json.
type geminiDecoder struct {
	now    func() time.Time
	answer answer // what the agent says since it last used a tool
	// trouble is the last error that the agent has not got over; zero: none.
	trouble stream.Event
	// refused is the last refusal that stderr told of, since the text of a result
	// need not say it.
	refused stream.Event
	dump    bool // stderr is in the middle of an error's parts
	partial bool // agy's own limit cut the turn off
}

func newGeminiDecoder() stream.Decoder { return &geminiDecoder{now: time.Now} }

// geminiLine is a line of either. Keys that one engine has are the other's zero.
type geminiLine struct {
	Type      string
	SessionID string `json:"session_id"`
	Model     string
	Role      string
	Content   string
	ToolName  string          `json:"tool_name"`
	Error     json.RawMessage // an object of gemini's, a text of agy's
	Severity  string
	Message   string
	Status    string
	Stats     struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
		Cached int64
	}

	Conversation string `json:"conversation_id"`
	Response     *string
	Turns        int `json:"num_turns"`
	Usage        struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
		Cached int64 `json:"cache_read_tokens"`
	}
	Denied []struct {
		Action string
		Name   string `json:"display_name"`
	} `json:"denied_actions"`
}

// geminiError is why something failed, as gemini says it.
type geminiError struct{ Type, Message string }

func (l *geminiLine) failure() (e geminiError) {
	if json.Unmarshal(l.Error, &e) != nil {
		_ = json.Unmarshal(l.Error, &e.Message) // a text, or nothing that can be shown
	}
	return e
}

func (d *geminiDecoder) Line(l stream.Line) []stream.Event {
	var line geminiLine
	if json.Unmarshal(l.Data, &line) != nil {
		return nil // an object of other shape is none of its events
	}
	switch line.Type {
	case "init":
		return []stream.Event{{Kind: stream.Session, Session: line.SessionID, Model: line.Model}}
	case "message":
		return d.message(&line, l.Cut)
	case "tool_use":
		d.answer.reset()
		d.trouble = stream.Event{}
		return []stream.Event{{Kind: stream.Tool, Tool: line.ToolName}}
	case "tool_result":
		return denied(&line)
	case "error":
		return d.failed(&line)
	case "result":
		return d.result(&line)
	case "":
		if line.Conversation != "" || line.Response != nil || line.Status == "ERROR" {
			return d.envelope(&line)
		}
	}
	return nil
}

func (d *geminiDecoder) message(line *geminiLine, cut int64) []stream.Event {
	if line.Role != "assistant" || line.Content == "" {
		return nil
	}
	d.trouble, d.refused = stream.Event{}, stream.Event{}
	d.answer.add(line.Content, cut)
	return []stream.Event{{Kind: stream.Text, Text: line.Content}}
}

// geminiAsks is what a tool says that would have to be asked for first.
var geminiAsks = pattern(`^Tool execution for ".*" requires user confirmation, which is not supported in non-interactive mode\.$`)

// denied tells of a tool that is forbidden, or would have to be asked for.
func denied(line *geminiLine) []stream.Event {
	e := line.failure()
	if line.Status != "error" || e.Type != "policy_violation" && !geminiAsks().MatchString(e.Message) {
		return nil
	}
	return []stream.Event{{Kind: stream.Trouble, Text: e.Message, Fault: stream.ByPermission}}
}

// failed reads an event about an error. A warning does not outlive a good result,
// an error that the agent does not get over does.
func (d *geminiDecoder) failed(line *geminiLine) []stream.Event {
	e := refusalIn(line.Message).event(line.Message, d.now())
	if line.Severity == "error" {
		d.trouble = e
	}
	return []stream.Event{e}
}

func (d *geminiDecoder) result(line *geminiLine) []stream.Event {
	s := line.Stats
	e := stream.Event{Kind: stream.Result, Usage: &stream.Usage{Input: s.Input, Cached: s.Cached, Output: s.Output}}
	if line.Status == "success" && d.trouble.Kind == "" {
		e.Text, e.Cut = d.answer.text.String(), d.answer.more
		return []stream.Event{e}
	}
	why := d.trouble
	if f := line.failure(); f.Message != "" {
		why = d.why(f)
	}
	e.Failed, e.Text, e.Fault, e.Status, e.Until = true, why.Text, why.Fault, why.Status, why.Until
	if e.Fault == "" {
		e.Fault = stream.ByAgent
	}
	return []stream.Event{e}
}

// why judges the reason a result gives. What it leaves open, stderr has told.
func (d *geminiDecoder) why(f geminiError) stream.Event {
	r := refusalIn(f.Message)
	switch {
	case f.Type == "FatalAuthenticationError":
		r.fault = stream.ByLogin
	case r.status == 0 && has(f.Message, geminiLimited...):
		r.status = 429
		r.fault = faultOf(429, "", strings.ToLower(f.Message), r.after)
	}
	e := r.event(f.Message, d.now())
	if d.refused.Kind == stream.Limit && (r.fault == stream.ByAgent || e.Until.IsZero()) || r.fault == stream.ByAgent && d.refused.Kind != "" {
		e = d.refused
		e.Text = f.Message
	}
	return e
}

// geminiLimited is what gemini itself puts behind a message whose status was 429.
var geminiLimited = []string{"Please wait and try again later. To increase your limits", "Possible quota limitations in place"}

// envelope reads agy's object: the whole of what it says.
func (d *geminiDecoder) envelope(line *geminiLine) (events []stream.Event) {
	u := line.Usage
	end := stream.Event{
		Kind: stream.Result, Usage: &stream.Usage{Input: u.Input, Cached: u.Cached, Output: u.Output, Turns: line.Turns},
	}
	if line.Conversation != "" {
		events = append(events, stream.Event{Kind: stream.Session, Session: line.Conversation})
	}
	said := ""
	if line.Response != nil {
		said = string(bytes.TrimRight([]byte(*line.Response), "\n"))
	}
	for _, one := range line.Denied {
		name := or(one.Name, one.Action)
		events = append(events, stream.Event{Kind: stream.Trouble, Tool: name, Text: "refused: " + name, Fault: stream.ByPermission})
	}
	f := line.failure()
	switch {
	case line.Status != "SUCCESS" || f.Message != "":
		why := d.why(f)
		end.Failed, end.Text, end.Fault, end.Status, end.Until = true, or(f.Message, or(said, "status "+line.Status)), why.Fault, why.Status, why.Until
	case said == "" && len(line.Denied) > 0:
		end.Failed, end.Text, end.Fault = true, "it may not do what it was asked, and said nothing", stream.ByPermission
	case d.partial:
		end.Failed, end.Text, end.Fault = true, or(said, "its own time limit cut the turn off"), stream.ByAgent
	default:
		end.Text = said
	}
	return append(events, end)
}

// What gemini and agy say of refusals on stderr, and only there: each at the
// beginning of a line.
var (
	geminiRetry = pattern(`^Attempt (\d+) failed(?: with status (\d+)| with (\d+) error[^.]*)?(?:: (.*?))?\. (?:Retrying after (\d+)ms|Retrying with backoff|Max attempts reached)`)
	geminiDump  = pattern(`^Error when talking to Gemini API .*?\b(\w*Error): (.*)$`)
	geminiPart  = pattern(`^\s+(status|code|retryDelayMs): (\d{1,15}),?$`)
	geminiLogin = pattern(`^(?:Please set an Auth method in your |Authentication consent could not be obtained|Manual authorization is required but |Failed to authenticate with |Error authenticating: |The enforced authentication type is )`)
	geminiTrust = pattern(`^Gemini CLI is not running in a trusted directory`)
	agyTimeout  = pattern(`^\[agy\] print timeout after `)
)

func (d *geminiDecoder) Stderr(text []byte) []stream.Event {
	if d.dump {
		return d.part(text)
	}
	switch {
	case geminiLogin().Match(text):
		return []stream.Event{{Kind: stream.Trouble, Text: string(text), Fault: stream.ByLogin}}
	case geminiTrust().Match(text):
		return []stream.Event{{Kind: stream.Trouble, Text: string(text), Fault: stream.ByPermission}}
	case agyTimeout().Match(text):
		d.partial = true
		return []stream.Event{{Kind: stream.Trouble, Text: string(text), Fault: stream.ByAgent}}
	}
	if found := geminiRetry().FindSubmatch(text); found != nil {
		return d.retry(found, string(text))
	}
	found := geminiDump().FindSubmatch(text)
	if found == nil {
		return nil
	}
	d.dump = true
	r := refusalIn(string(found[2]))
	switch string(found[1]) {
	case "TerminalQuotaError":
		r.fault = stream.ByLimit
	case "RetryableQuotaError":
		r.fault = stream.ByThrottle
	}
	d.refused = r.event(string(found[2]), d.now())
	return []stream.Event{d.refused}
}

// retry reads that gemini tries again by itself.
func (d *geminiDecoder) retry(found [][]byte, text string) []stream.Event {
	message := string(found[4])
	r := refusalIn(text)
	if message != "" {
		r = refusalIn(message)
		if r.status == 0 && r.fault == stream.ByAgent {
			// Only a refusal with a time to come back after is told of in these words.
			r.fault = stream.ByThrottle
		}
	}
	for _, status := range [][]byte{found[2], found[3]} {
		if n, err := strconv.Atoi(string(status)); err == nil {
			r.status, r.fault = n, faultOf(n, "", message, r.after)
		}
	}
	e := r.event(or(message, text), d.now())
	attempt, _ := strconv.Atoi(string(found[1]))
	wait, _ := strconv.ParseFloat(string(found[5]), 64)
	d.refused = e
	if !strings.HasSuffix(text, "Max attempts reached") {
		e.Retry = &stream.Retry{Attempt: attempt, AfterS: wait / 1000}
	}
	return []stream.Event{e}
}

// part reads the parts of an error, which follow its trace: they tell the status
// where its message does not. The end of it is a brace at the beginning of a line.
func (d *geminiDecoder) part(text []byte) []stream.Event {
	if bytes.Equal(text, []byte("}")) || len(text) > 0 && text[0] != ' ' && text[0] != '\t' && text[0] != '}' {
		d.dump = false
		return nil
	}
	found := geminiPart().FindSubmatch(text)
	if found == nil {
		return nil
	}
	n, _ := strconv.Atoi(string(found[2]))
	switch known := &d.refused; string(found[1]) {
	case "retryDelayMs":
		if known.Until.IsZero() && known.Kind == stream.Limit {
			known.Until = d.now().Add(time.Duration(min(int64(n), longest.Milliseconds())) * time.Millisecond).UTC()
			return []stream.Event{*known}
		}
	default:
		if known.Status == 0 && n >= 100 && n <= 599 {
			fault := known.Fault
			if fault == stream.ByAgent {
				fault = faultOf(n, "", "", 0)
			}
			was := *known
			*known = refusal{fault: fault, status: n}.event(was.Text, d.now())
			known.Until = was.Until
			return []stream.Event{*known}
		}
	}
	return nil
}

func (d *geminiDecoder) End() []stream.Event { return nil }
