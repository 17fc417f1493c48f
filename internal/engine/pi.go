package engine

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// piBuild asks pi with the prompt on its stdin, which it reads to the end and
// takes as it is but for blanks around it: an argument that begins with - or @
// would be an option or a file to it.
func piBuild(a Ask) (Command, error) {
	c := Command{Argv: []string{or(a.Binary, "pi"), "-p", "--mode", "json"}, Stdin: a.Prompt}
	if a.Model != "" {
		c.Argv = append(c.Argv, "--model", a.Model)
	}
	if a.Resume != "" {
		c.Argv = append(c.Argv, "--session", a.Resume)
	}
	switch {
	case a.System == "":
	case a.Files != "":
		path := filepath.Join(a.Files, "instructions")
		c.Files = map[string][]byte{path: []byte(a.System)}
		c.Argv = append(c.Argv, "--append-system-prompt", path)
	default:
		c.Stdin = withSystem(a)
	}
	c.Argv = append(c.Argv, a.Args...)
	return c, nil
}

// piValued are pi's flags that take the next word, whatever it is.
const piValued = "--mode --provider --model --api-key --system-prompt --append-system-prompt --session --fork --session-dir " +
	"--models --tools -t --thinking --export --extension -e --skill --prompt-template --theme"

// piStreams follows pi's own reading of its arguments: the last mode it knows is
// the one.
func piStreams(args []string) bool {
	mode := ""
	for i := 0; i < len(args); i++ {
		if !among(piValued, args[i]) || i+1 == len(args) {
			continue
		}
		i++
		if value := args[i]; args[i-1] == "--mode" && (value == "text" || value == "json" || value == "rpc") {
			mode = value
		}
	}
	return mode == "json"
}

// piDecoder reads what pi prints with --mode json. Its exit status is 0 whatever
// went wrong.
type piDecoder struct {
	now     func() time.Time
	session string
	usage   stream.Usage
	last    piMessage // the last of the agent
	// failed is the result of a failed turn: pi may try again by itself, so it
	// stands only once pi says so or ends.
	failed *stream.Event
	done   bool // a result was told of, and nothing has begun since
}

func newPiDecoder() stream.Decoder { return &piDecoder{now: time.Now} }

// piLine is a line of pi's.
type piLine struct {
	ID       string
	Message  piMessage
	ToolName string

	Attempt     int
	MaxAttempts int
	DelayMs     float64
	Error       string `json:"errorMessage"`
	Success     *bool
	FinalError  string
}

type piMessage struct {
	Role    string
	Content json.RawMessage // a list, or a text of the user's
	Model   string
	Usage   struct {
		Input, Output, CacheRead, CacheWrite int64
		Cost                                 struct{ Total float64 }
	}
	StopReason   string
	ErrorMessage string
}

// text is what a message says; thoughts and calls are not part of it.
func (m *piMessage) text() string {
	var parts []struct{ Type, Text string }
	if json.Unmarshal(m.Content, &parts) != nil {
		return ""
	}
	var all strings.Builder
	for _, part := range parts {
		if part.Type == "text" {
			all.WriteString(part.Text)
		}
	}
	return all.String()
}

// piMeant are the lines that mean something here. Of those between the beginning
// and the end of a message, each of which repeats all of it, there are thousands.
var piMeant = strings.Fields("session agent_start message_end tool_execution_start agent_end auto_retry_start auto_retry_end compaction_start")

func (d *piDecoder) Line(l stream.Line) []stream.Event {
	kind := string(l.Type)
	if !slices.Contains(piMeant, kind) {
		return nil
	}
	var line piLine
	if kind != "agent_end" && json.Unmarshal(l.Data, &line) != nil {
		return nil // an object of other shape is none of its events
	}
	switch kind {
	case "session":
		d.session = line.ID
		return []stream.Event{{Kind: stream.Session, Session: line.ID}}
	case "agent_start", "compaction_start":
		return d.goesOn()
	case "message_end":
		return d.message(&line.Message)
	case "tool_execution_start":
		return []stream.Event{{Kind: stream.Tool, Tool: line.ToolName}}
	case "agent_end":
		return d.turnEnd()
	case "auto_retry_start":
		return d.retry(&line)
	case "auto_retry_end":
		if line.Success != nil && !*line.Success {
			return d.End()
		}
	}
	return nil
}

// goesOn tells after a result that there is more to come, so that nobody takes
// pi for finished: it works through several messages, and shortens its memory.
func (d *piDecoder) goesOn() []stream.Event {
	if !d.done {
		return nil
	}
	d.done = false
	return []stream.Event{{Kind: stream.Session, Session: d.session}}
}

// message reads one message that is complete.
func (d *piDecoder) message(m *piMessage) []stream.Event {
	if m.Role != "assistant" {
		return nil
	}
	d.last = *m
	u := &d.usage
	u.Input += m.Usage.Input + m.Usage.CacheRead + m.Usage.CacheWrite
	u.Cached += m.Usage.CacheRead
	u.Output += m.Usage.Output
	u.Cost += m.Usage.Cost.Total
	if m.StopReason == "error" || m.StopReason == "aborted" {
		e := refusalIn(m.ErrorMessage).event(or(m.ErrorMessage, m.StopReason), d.now())
		return []stream.Event{e}
	}
	u.Turns++
	spent := *u
	events := []stream.Event{{Kind: stream.Spent, Model: m.Model, Usage: &spent}}
	if text := m.text(); text != "" {
		events = append(events, stream.Event{Kind: stream.Text, Text: text})
	}
	return events
}

// turnEnd is the end of one turn, by the last message of the agent in it.
func (d *piDecoder) turnEnd() []stream.Event {
	m, spent := &d.last, d.usage
	e := stream.Event{Kind: stream.Result, Usage: &spent, Model: m.Model}
	if m.StopReason != "error" && m.StopReason != "aborted" {
		e.Text, d.failed, d.done = m.text(), nil, true
		return []stream.Event{e}
	}
	why := refusalIn(m.ErrorMessage).event(or(m.ErrorMessage, m.StopReason), d.now())
	e.Failed, e.Text, e.Fault, e.Status, e.Until = true, why.Text, why.Fault, why.Status, why.Until
	d.failed = &e
	return nil
}

func (d *piDecoder) retry(line *piLine) []stream.Event {
	d.failed = nil
	e := refusalIn(line.Error).event(line.Error, d.now())
	e.Retry = &stream.Retry{Attempt: line.Attempt, Of: line.MaxAttempts, AfterS: line.DelayMs / 1000}
	return []stream.Event{e}
}

// Stderr tells of what keeps pi from beginning at all.
func (d *piDecoder) Stderr(text []byte) []stream.Event {
	for _, start := range []string{"No API key found", "No models available", "Error: No API key"} {
		if bytes.HasPrefix(text, []byte(start)) {
			return []stream.Event{{Kind: stream.Trouble, Text: string(text), Fault: stream.ByLogin}}
		}
	}
	return nil
}

// End gives the result of a turn that failed and was not tried again.
func (d *piDecoder) End() []stream.Event {
	if d.failed == nil {
		return nil
	}
	e := *d.failed
	d.failed, d.done = nil, true
	return []stream.Event{e}
}
