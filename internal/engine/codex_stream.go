package engine

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// codexDecoder reads what codex exec --json prints. codex has no words for what
// went wrong, only messages, in error and turn.failed; nothing else is read for
// that.
type codexDecoder struct {
	now    func() time.Time
	tool   string       // the item whose use of a tool was told of
	answer stream.Event // what the agent said last, as the turn's result
}

func newCodexDecoder() stream.Decoder { return &codexDecoder{now: time.Now} }

// codexEvent is a line of any type: what is read of it.
type codexEvent struct {
	Type     string
	ThreadID string `json:"thread_id"`
	Message  string // error
	Error    struct{ Message string }
	Item     struct{ ID, Type, Text, Message, Server, Tool string }
	Usage    *struct {
		Input  int64 `json:"input_tokens"`
		Cached int64 `json:"cached_input_tokens"`
		Output int64 `json:"output_tokens"`
	}
}

// codexTools are the items that are the use of a tool.
var codexTools = map[string]string{
	"command_execution": "exec_command",
	"file_change":       "apply_patch",
	"web_search":        "web_search",
	"image_generation":  "image_generation",
	"collab_tool_call":  "collab",
	"mcp_tool_call":     "mcp",
}

// Line reads one event.
func (d *codexDecoder) Line(line stream.Line) []stream.Event {
	switch string(line.Type) {
	case "thread.started", "item.started", "item.completed", "turn.completed", "turn.failed", "error":
	default:
		return nil
	}
	var l codexEvent
	if json.Unmarshal(line.Data, &l) != nil {
		return nil // a field of another type than ever seen: kept raw, like all else
	}
	switch l.Type {
	case "thread.started":
		return []stream.Event{{Kind: stream.Session, Session: l.ThreadID}}
	case "item.started", "item.completed":
		return d.item(&l, line)
	case "error":
		return []stream.Event{d.trouble(l.Message)}
	case "turn.completed":
		return d.completed(&l)
	case "turn.failed":
		e := d.trouble(l.Error.Message)
		e.Kind, e.Failed, e.Retry = stream.Result, true, nil
		return []stream.Event{e}
	}
	return nil
}

// Stderr tells nothing: codex prints there what it prints in no stream, and none
// of it is a refusal.
func (d *codexDecoder) Stderr([]byte) []stream.Event { return nil }

// End adds nothing.
func (d *codexDecoder) End() []stream.Event { return nil }

func (d *codexDecoder) item(l *codexEvent, line stream.Line) []stream.Event {
	item := l.Item
	if name, ok := codexTools[item.Type]; ok {
		if item.ID == d.tool {
			return nil // its beginning was told of
		}
		d.tool = item.ID
		if item.Type == "mcp_tool_call" {
			name = item.Server + "." + item.Tool
		}
		return []stream.Event{{Kind: stream.Tool, Tool: name}}
	}
	switch {
	case l.Type != "item.completed":
	case item.Type == "agent_message":
		d.answer = stream.Event{Kind: stream.Result, Text: item.Text}
		if line.Cut > 0 { // the turn's own line is whole; what it ends with is not
			d.answer.Cut, d.answer.Offset, d.answer.Len = line.Cut, line.Offset, line.Len
		}
		return []stream.Event{{Kind: stream.Text, Text: item.Text}}
	case item.Type == "error": // a warning; what ends the turn comes without an item
		return []stream.Event{{Kind: stream.Trouble, Fault: stream.ByAgent, Text: item.Message}}
	}
	return nil
}

// completed: what the agent said last is its answer.
func (d *codexDecoder) completed(l *codexEvent) []stream.Event {
	var events []stream.Event
	if u := l.Usage; u != nil {
		events = append(events, stream.Event{Kind: stream.Spent, Usage: &stream.Usage{Input: u.Input, Cached: u.Cached, Output: u.Output}})
	}
	d.answer.Kind = stream.Result
	return append(events, d.answer)
}

// codexRetry is how codex says that it tries again.
var codexRetry = pattern(`^Reconnecting\.\.\. (\d{1,4})/(\d{1,4})`)

// codexStatus is how it says what the service answered: "unexpected status 401
// Unauthorized", "last status: 429 Too Many Requests".
var codexStatus = pattern(`\b(?:unexpected|last) status:? ([1-5]\d\d)\b`)

// trouble reads a message about an error.
func (d *codexDecoder) trouble(text string) stream.Event {
	e := stream.Event{Kind: stream.Trouble, Text: strings.TrimSpace(text)}
	if m := codexStatus().FindStringSubmatch(text); m != nil {
		e.Status, _ = strconv.Atoi(m[1]) // three digits
	}
	if m := codexRetry().FindStringSubmatch(text); m != nil {
		e.Retry = &stream.Retry{}
		e.Retry.Attempt, _ = strconv.Atoi(m[1]) // digits, both
		e.Retry.Of, _ = strconv.Atoi(m[2])
	}
	e.Fault = codexFault(text, e.Status)
	if e.Fault == stream.ByLimit || e.Fault == stream.ByThrottle {
		e.Until = codexReset(text, d.now())
	}
	if e.Fault == stream.ByLimit {
		e.Kind = stream.Limit
	}
	return e
}

// codexFault judges a message by codex's own sentences, then by the status.
func codexFault(text string, status int) stream.Fault {
	known := func(sentences ...string) bool {
		for _, one := range sentences {
			if strings.Contains(text, one) {
				return true
			}
		}
		return false
	}
	switch {
	case known("ve hit your usage limit", "Quota exceeded.", "out of credits"):
		return stream.ByLimit
	case known("could not be refreshed", "Please log out and sign in again", "Not logged in", "Missing environment variable"):
		return stream.ByLogin
	}
	if fault := ofStatus(status); fault != "" {
		return fault
	}
	if known("Rate limit reached", "at capacity", "is overloaded", "currently experiencing high demand") {
		return stream.ByThrottle
	}
	return stream.ByAgent
}
