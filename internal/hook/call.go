package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// MaxCall bounds what is read of a tool call, and MaxLine the command in it.
const (
	MaxCall = 8 << 20
	MaxLine = 1 << 20
)

// Call is what a client is about to do.
type Call struct {
	Client Client
	Line   string // the shell line; empty where the tool is no shell

	input map[string]json.RawMessage // the tool's input as the client gave it
}

// ReadCall reads the JSON that a client hands to a hook. A call of another tool, or of
// another event, has no Line. What is no such JSON is an error, and so is a line
// that could not be repeated byte for byte.
func ReadCall(c Client, from io.Reader) (*Call, error) {
	data, err := io.ReadAll(io.LimitReader(from, MaxCall+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the tool call: %w", err)
	case len(data) > MaxCall:
		return nil, fmt.Errorf("the tool call has more than %d bytes", MaxCall)
	case !utf8.Valid(data):
		return nil, fmt.Errorf("the tool call is not UTF-8")
	}
	var in struct {
		Event string                     `json:"hook_event_name"`
		Tool  string                     `json:"tool_name"`
		Input map[string]json.RawMessage `json:"tool_input"`
	}
	call := &Call{Client: c}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("the tool call is no JSON that we know: %s", kindOf(err))
	}
	if in.Event != event || in.Tool != tool {
		return call, nil
	}
	if err := json.Unmarshal(in.Input["command"], &call.Line); err != nil {
		return nil, fmt.Errorf("the call of %s has no command that is a string", tool)
	}
	switch {
	case len(call.Line) > MaxLine:
		return nil, fmt.Errorf("the command has more than %d bytes", MaxLine)
	case strings.ContainsRune(call.Line, 0) || strings.ContainsRune(call.Line, utf8.RuneError):
		return nil, fmt.Errorf("the command holds what no argument can")
	}
	call.input = in.Input
	return call, nil
}

// kindOf says of JSON that does not fit what does not, without the names of our types.
func kindOf(err error) string {
	bad, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err.Error()
	case bad.Field == "":
		return "it is of the kind " + bad.Value + ", and no object"
	}
	return bad.Field + " is of the kind " + bad.Value
}

// Answer is what the client is told: that it runs line instead, all else of the
// call being as it was.
func (c *Call) Answer(line string) ([]byte, error) {
	input := map[string]json.RawMessage{}
	for name, value := range c.input {
		input[name] = value
	}
	command, err := marshal(line)
	if err != nil {
		return nil, err
	}
	input["command"] = command
	out := struct {
		Event    string                     `json:"hookEventName"`
		Decision string                     `json:"permissionDecision,omitempty"`
		Input    map[string]json.RawMessage `json:"updatedInput"`
	}{event, c.Client.decision(), input}
	return marshal(map[string]any{"hookSpecificOutput": out})
}

// marshal writes JSON without the escapes that are for web pages.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
