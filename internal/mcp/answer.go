package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel"
)

// The kinds of errors (W3). There are no others.
const (
	notFound     = "not_found"
	invalidInput = "invalid_input"
	conflict     = "conflict"
	unavailable  = "unavailable"
	internal     = "internal"
)

// failure is the error of a tool, as data.
type failure struct {
	V     int       `json:"v"`
	Error failureOf `json:"error"`
}

type failureOf struct {
	Kind       string                 `json:"kind"`
	Code       string                 `json:"code"`
	Message    string                 `json:"message"`
	Argument   string                 `json:"argument,omitempty"` // that is refused
	Retryable  bool                   `json:"retryable"`
	RetryAfter *int                   `json:"retry_after,omitempty"` // seconds
	Holders    []handsel.ReasonHolder `json:"holders,omitempty"`
	Run        string                 `json:"run,omitempty"`
	Fits       []string               `json:"fits,omitempty"` // what an ambiguous name may mean
}

// told is an answer in words and as data. Some clients show their model the data
// only, so the words are in it, too.
func told(data any, format string, args ...any) *sdk.CallToolResult {
	words := fmt.Sprintf(format, args...)
	return both(data, words, words)
}

// both is told with other words in the data, where those are long and stand in it
// already.
func both(data any, words, says string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: words}}, StructuredContent: saying{says, data}}
}

// saying is data with words in front.
type saying struct {
	says string
	data any
}

// MarshalJSON puts the words first: a model reads from the beginning.
func (s saying) MarshalJSON() ([]byte, error) {
	says, err := json.Marshal(s.says)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(s.data)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(`{"says":`), says, []byte(","), data[1:]), nil // of an object that has members
}

// failed is an error as the answer of a tool.
func failed(err error, now time.Time) *sdk.CallToolResult {
	f := explain(err, now)
	text := fmt.Sprintf("%s (%s): %s", f.Kind, f.Code, plain(f.Message))
	switch {
	case f.Kind == invalidInput || f.Kind == notFound:
		text += "\nNothing was done. The same arguments will be refused again: change them."
	case f.Code == codeUnknown:
		text += "\nDo not ask for it again under another key: it may have been accepted."
	case f.Kind == internal:
		text += "\nThis is a fault of handsel, not of the request. Before it is repeated, look with list or status what has become of it."
	case !f.Retryable:
		text += "\nThis refusal is final. Nothing was started, and the same request will always be refused here: do not repeat it."
	case f.RetryAfter != nil:
		text += fmt.Sprintf("\nNothing was started. The same request may be accepted in %d s.", *f.RetryAfter)
	default:
		text += "\nNothing was started. The same request may be accepted later, when that has changed."
	}
	r := told(failure{V: 1, Error: f}, "%s", text)
	r.IsError = true
	return r
}

// codeUnknown is the code of a request that may have been accepted.
const codeUnknown = "unknown"

// explain puts an error into the words of W3.
func explain(err error, now time.Time) failureOf {
	if bad, ok := errors.AsType[*badArgument](err); ok {
		return failureOf{Kind: invalidInput, Code: "argument", Message: bad.Error(), Argument: bad.Name}
	}
	if bad := handsel.OptionOf(err); bad != nil {
		name := argumentOf(bad.Option)
		said := name
		if name == "lane" || name == "cwd" {
			said += " " + short(bad.Value)
		}
		return failureOf{Kind: invalidInput, Code: "argument", Message: said + ": " + bad.Why, Argument: name}
	}
	f := failureOf{Message: err.Error()}
	r := handsel.WaitReason(err)
	f.Code, f.Retryable, f.Holders = r.Code, r.Retryable, r.Holders
	if left := r.Until.Sub(now); !r.Until.IsZero() && left > 0 {
		seconds := int(math.Ceil(left.Seconds()))
		f.RetryAfter = &seconds
	}
	f.Kind = kindOf(err, r)
	switch f.Kind {
	case notFound, invalidInput:
		f.Retryable = false
	}
	if several, ok := errors.AsType[*handsel.Ambiguous](err); ok {
		f.Code, f.Fits = "ambiguous", several.Fits
	}
	if other, ok := errors.AsType[*handsel.OtherRequest](err); ok {
		f.Code, f.Retryable, f.Run = "other_request", false, other.ID
	}
	if errors.As(err, new(*handsel.KeyBusy)) {
		f.Kind, f.Code, f.Retryable = unavailable, "lock_stuck", true
	}
	if unheard, ok := errors.AsType[*handsel.Unheard](err); ok {
		f.Run = unheard.Run
	}
	if unknown, ok := errors.AsType[*handsel.Unknown](err); ok {
		f.Run = unknown.Attempt
	}
	if f.Kind == notFound {
		f.Code = "not_found"
	}
	return f
}

// kindOf sorts an error. Those that come from another process have a reason only.
func kindOf(err error, r *handsel.Reason) string {
	switch {
	case errors.As(err, new(*handsel.NotFound)):
		return notFound
	case errors.As(err, new(*handsel.OtherRequest)), errors.As(err, new(*handsel.Inside)), errors.As(err, new(*handsel.NotYours)), errors.Is(err, handsel.ErrOwnRun):
		return conflict
	case errors.As(err, new(*handsel.Ambiguous)), errors.As(err, new(*handsel.BadName)), errors.As(err, new(*handsel.BadKey)):
		return invalidInput
	}
	switch r.Code {
	case "nested", "inside_agent", handsel.CodeLaneOwned, handsel.CodeOwnAncestors, "queued":
		return conflict
	case "failed":
		return internal
	case codeUnknown:
		return unavailable
	}
	if r.Class == "config" {
		return invalidInput
	}
	return unavailable
}

// argumentOf is an option of the command line as the tools call it.
func argumentOf(option string) string {
	if name, ok := map[string]string{"chdir": "cwd", "pool": "pools", "label": "labels", "timeout": "timeout_s", "idle": "idle_s"}[option]; ok {
		return name
	}
	return option
}

// plain escapes what others chose, so that it is one line and shows as it is (C135).
func plain(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

// hidden tells of what moves a cursor, turns the direction of writing, or cannot
// be seen.
func hidden(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) && r != ' ' }

// lines is plain for text of several lines.
func lines(text string) string {
	all := strings.Split(text, "\n")
	for i, line := range all {
		parts := strings.Split(strings.TrimSuffix(line, "\r"), "\t")
		for k := range parts {
			parts[k] = plain(parts[k])
		}
		all[i] = strings.Join(parts, "\t")
	}
	return strings.Join(all, "\n")
}
