package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// claudeDecoder reads claude's --output-format stream-json.
//
// What went wrong it takes from claude's own words for it (error, error_status,
// rate_limit_info), and from texts only in a result that says is_error, or in the
// message claude writes itself in the model's place when a request was refused.
type claudeDecoder struct {
	now   func() time.Time
	limit stream.Event // the refusal that stands, as last told; zero: none
}

func newClaudeDecoder() stream.Decoder { return &claudeDecoder{now: time.Now} }

// claudeLine is a line of any type: what is read of it.
type claudeLine struct {
	Type      string
	Subtype   string
	SessionID string  `json:"session_id"`
	Parent    *string `json:"parent_tool_use_id"` // of an agent inside the agent

	Model   string // init
	Version string `json:"claude_code_version"`
	Tools   []string

	Attempt    int     // api_retry
	MaxRetries int     `json:"max_retries"`
	DelayMS    float64 `json:"retry_delay_ms"`
	HTTP       *int    `json:"error_status"`
	Error      json.RawMessage

	Rate claudeRate `json:"rate_limit_info"`

	IsError  bool            `json:"is_error"` // result
	APIError *int            `json:"api_error_status"`
	Result   json.RawMessage `json:"result"`
	Errors   json.RawMessage
	Turns    int     `json:"num_turns"`
	Cost     float64 `json:"total_cost_usd"`
	Usage    *struct {
		Input   int64 `json:"input_tokens"`
		Created int64 `json:"cache_creation_input_tokens"`
		Read    int64 `json:"cache_read_input_tokens"`
		Output  int64 `json:"output_tokens"`
	}
	Denials []struct {
		Tool string `json:"tool_name"`
	} `json:"permission_denials"`
}

// claudeSaid is a line of the type assistant, of which there are more than of all
// others: it is read by itself, and once.
type claudeSaid struct {
	Parent  *string `json:"parent_tool_use_id"`
	Error   json.RawMessage
	Message struct {
		Content []struct{ Type, Text, Name string }
	}
}

// claudeRate is what claude tells subscribers of their limits. Above one of them
// it may go on, on credit.
type claudeRate struct {
	Status   string // "allowed", "allowed_warning", "rejected"
	ResetsAt int64  // seconds since 1970
	Type     string `json:"rateLimitType"`
	Overage  string `json:"overageStatus"`
}

// claudeTypes are the types of the lines that are read.
var claudeTypes = []string{"system", "assistant", "rate_limit_event", "result"}

// Line reads one event.
func (d *claudeDecoder) Line(line stream.Line) []stream.Event {
	if !slices.Contains(claudeTypes, string(line.Type)) {
		return nil
	}
	if string(line.Type) == "assistant" {
		var said claudeSaid
		if json.Unmarshal(line.Data, &said) != nil {
			return nil
		}
		return d.said(&said)
	}
	var l claudeLine
	if json.Unmarshal(line.Data, &l) != nil {
		return nil // a field of another type than ever seen: kept raw, like all else
	}
	switch l.Type {
	case "system":
		return d.system(&l)
	case "rate_limit_event":
		return d.rate(&l)
	case "result":
		return d.result(&l)
	}
	return nil
}

// Stderr tells nothing: what claude says there it says on stdout as well.
func (d *claudeDecoder) Stderr([]byte) []stream.Event { return nil }

// End adds nothing.
func (d *claudeDecoder) End() []stream.Event { return nil }

func (d *claudeDecoder) system(l *claudeLine) []stream.Event {
	switch l.Subtype {
	case "init":
		return []stream.Event{{Kind: stream.Session, Session: l.SessionID, Model: l.Model, Version: l.Version, Tools: l.Tools}}
	case "api_retry":
		word, status := textOf(l.Error), httpStatus(l.HTTP)
		return []stream.Event{{
			Kind: stream.Trouble, Text: word, Fault: claudeFault(word, status), Status: status,
			Retry: &stream.Retry{Attempt: l.Attempt, Of: l.MaxRetries, AfterS: l.DelayMS / 1000},
		}}
	}
	return nil
}

// said reads a message of the model's, or the one claude writes in its place when
// a request was refused, which alone has an error.
func (d *claudeDecoder) said(l *claudeSaid) []stream.Event {
	if word := textOf(l.Error); word != "" {
		var text strings.Builder
		for _, block := range l.Message.Content {
			text.WriteString(block.Text)
		}
		e := d.refused(word, 0, text.String())
		return []stream.Event{e}
	}
	if l.Parent == nil {
		d.limit = stream.Event{} // it was got over
	}
	var events []stream.Event
	for _, block := range l.Message.Content {
		switch {
		case block.Type == "tool_use":
			events = append(events, stream.Event{Kind: stream.Tool, Tool: block.Name})
		case block.Type == "text" && l.Parent == nil:
			events = append(events, stream.Event{Kind: stream.Text, Text: block.Text})
		}
	}
	return events
}

// rate: only a limit that stops the work is told of, not a warning.
func (d *claudeDecoder) rate(l *claudeLine) []stream.Event {
	if l.Rate.Status != "rejected" || l.Rate.Overage == "allowed" || l.Rate.Overage == "allowed_warning" {
		return nil
	}
	d.limit = stream.Event{Kind: stream.Limit, Fault: stream.ByLimit, Text: l.Rate.Type, Status: 429}
	if l.Rate.ResetsAt > 0 && l.Rate.ResetsAt < farthest {
		d.limit.Until = time.Unix(l.Rate.ResetsAt, 0).UTC()
	}
	return []stream.Event{d.limit}
}

// farthest is the last reset that is believed: 9999-12-31, in seconds since 1970.
const farthest = 253402214400

// refused is the event of a request that was refused, from claude's word for it,
// the service's status and claude's message. What the limits said before is more
// than the message says.
func (d *claudeDecoder) refused(word string, status int, text string) stream.Event {
	e := stream.Event{Kind: stream.Trouble, Fault: claudeFault(word, status), Status: status, Text: text}
	until, limited := claudeReset(text, d.now())
	if e.Fault == stream.ByThrottle && (limited || !until.IsZero() || d.limit.Fault == stream.ByLimit) {
		e.Fault = stream.ByLimit
	}
	if e.Fault == stream.ByAgent && limited {
		e.Fault = stream.ByLimit
	}
	if e.Fault == stream.ByLimit {
		e.Kind, e.Until = stream.Limit, until
		if !d.limit.Until.IsZero() {
			e.Until = d.limit.Until
		}
	}
	if e.Fault == stream.ByAgent && claudeNoLogin(text) {
		e.Fault = stream.ByLogin
	}
	d.limit = e
	return e
}

// result: a subtype other than success is a failure, and so is is_error with any
// subtype.
func (d *claudeDecoder) result(l *claudeLine) []stream.Event {
	var events []stream.Event
	if l.Usage != nil {
		u := l.Usage
		events = append(events, stream.Event{Kind: stream.Spent, Usage: &stream.Usage{
			Input: u.Input + u.Created + u.Read, Cached: u.Read, Output: u.Output, Cost: l.Cost, Turns: l.Turns,
		}})
	}
	for _, tool := range l.denied() {
		events = append(events, stream.Event{Kind: stream.Trouble, Fault: stream.ByPermission, Tool: tool, Text: tool + " was not permitted"})
	}
	end := stream.Event{Kind: stream.Result, Session: l.SessionID, Text: textOf(l.Result)}
	if end.Failed = l.IsError || l.Subtype != "success"; end.Failed {
		end = d.failed(end, l)
	}
	return append(events, end)
}

// failed says why a result is a failure.
func (d *claudeDecoder) failed(end stream.Event, l *claudeLine) stream.Event {
	if end.Text == "" {
		end.Text = strings.Join(textsOf(l.Errors), "\n")
	}
	if end.Text == "" {
		end.Text = l.Subtype
	}
	status := httpStatus(l.APIError)
	why := d.limit
	if why.Fault == "" || why.Fault == stream.ByAgent {
		why = d.refused("", status, end.Text)
	}
	end.Fault, end.Until = why.Fault, why.Until
	if end.Status = status; status == 0 {
		end.Status = why.Status
	}
	return end
}

// denied are the tools that were not permitted, each once.
func (l *claudeLine) denied() []string {
	var tools []string
	for _, one := range l.Denials {
		if !slices.Contains(tools, one.Tool) {
			tools = append(tools, one.Tool)
		}
	}
	return tools
}

// claudeFault is what claude's word for an error means, or, where it has none, or
// only a general one, the service's status.
func claudeFault(word string, status int) stream.Fault {
	switch word {
	case "authentication_failed", "oauth_org_not_allowed":
		return stream.ByLogin
	case "billing_error":
		return stream.ByLimit
	case "rate_limit", "overloaded":
		return stream.ByThrottle
	}
	if fault := ofStatus(status); fault != "" {
		return fault
	}
	return stream.ByAgent
}

// claudeNoLogin knows the messages of versions that have no word for it.
func claudeNoLogin(text string) bool {
	for _, known := range []string{"Invalid API key", "Please run /login", "Failed to authenticate", "OAuth token has expired", "OAuth token revoked"} {
		if strings.Contains(text, known) {
			return true
		}
	}
	return false
}

// httpStatus is a status as a service gives one; 0 for none.
func httpStatus(told *int) int {
	if told == nil || *told < 100 || *told > 599 {
		return 0
	}
	return *told
}

// textOf is a JSON string, or "" for anything else.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// textsOf are the strings of a JSON list.
func textsOf(raw json.RawMessage) []string {
	var texts []string
	if json.Unmarshal(raw, &texts) != nil {
		return nil
	}
	return texts
}
