package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	// maxLine is how long a message may be, in bytes: more than any prompt that is
	// accepted, so that one that is too long is refused by its name.
	maxLine = 32 << 20
	// maxDepth is how deep arrays and objects may be nested in a message.
	maxDepth = 200
	// maxID is how long the id of a request may be, in bytes.
	maxID = 1 << 10
)

// fault is what is wrong with a message: the answer to it.
type fault struct {
	code    int64
	message string
}

// parcel is a line as it was read. A line beyond maxLine has no text.
type parcel struct {
	text []byte
	long bool
	scan scanner
}

// message is what a line says. Of one without a fault, either answers says which
// requests are refused, or method is what is asked for; with neither there is
// nothing to do.
type message struct {
	id     json.RawMessage // as it came; nil: it has none
	method string
	params json.RawMessage // an object, or nil
	fault  *fault
	also   []json.RawMessage // further ids that get the same fault
}

var null = json.RawMessage("null")

// judge reads a line. ok is false where there is nothing to answer or to do.
func judge(p *parcel) (m message, ok bool) {
	text := bytes.TrimSpace(bytes.TrimPrefix(p.text, []byte("\xef\xbb\xbf")))
	switch {
	case p.long:
		return refused(p.scan.id(), jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message has more than %d bytes", maxLine)), true
	case len(text) == 0:
		return message{}, false
	case !utf8.Valid(text):
		return refused(nil, jsonrpc.CodeParseError, "the message is not UTF-8"), true
	case p.scan.deepest > maxDepth && p.scan.depth == 0:
		return refused(p.scan.id(), jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message is nested deeper than %d", maxDepth)), true
	case p.scan.deepest > maxDepth || !json.Valid(text):
		return refused(nil, jsonrpc.CodeParseError, "the message is not JSON"), true
	case text[0] == '[':
		return batch(text), true
	case text[0] != '{':
		return refused(nil, jsonrpc.CodeInvalidRequest, "the message is not an object"), true
	}
	return object(text)
}

// refused is a message that is answered by a fault; without an id by one that has
// none.
func refused(id json.RawMessage, code int64, why string) message {
	if id == nil {
		id = null
	}
	return message{id: id, fault: &fault{code, why}}
}

// batch refuses an array of messages, each request in it by its own id.
func batch(text []byte) message {
	var all []json.RawMessage
	_ = json.Unmarshal(text, &all) // it is valid
	m := refused(nil, jsonrpc.CodeInvalidRequest, "several messages in one array are not taken: send each on a line of its own")
	var ids []json.RawMessage
	for _, one := range all {
		if len(one) > 0 && one[0] == '{' {
			if inner, ok := object(one); ok && inner.id != nil && !bytes.Equal(inner.id, null) {
				ids = append(ids, inner.id)
			}
		}
	}
	if len(ids) > 0 {
		m.id, m.also = ids[0], ids[1:]
	}
	return m
}

// object reads one message. text is a JSON object.
func object(text []byte) (m message, ok bool) {
	fields, twice := members(text)
	id, hasID := fields["id"]
	if twice == "id" || hasID && !isID(id) {
		return refused(nil, jsonrpc.CodeInvalidRequest, `the id must be one string or number`), true
	}
	rawMethod, hasMethod := fields["method"]
	if !hasMethod {
		_, result := fields["result"]
		_, failure := fields["error"]
		if result || failure {
			return m, false // we never ask the client for anything
		}
		return refused(id, jsonrpc.CodeInvalidRequest, "the message has no method"), true
	}
	why := func(code int64, text string) (message, bool) {
		return refused(id, code, text), hasID // a notification is never answered
	}
	if twice != "" {
		return why(jsonrpc.CodeInvalidRequest, "the message has "+strconv.QuoteToASCII(cut(twice))+" twice")
	}
	if version := fields["jsonrpc"]; string(version) != `"2.0"` {
		return why(jsonrpc.CodeInvalidRequest, `jsonrpc must be "2.0"`)
	}
	if json.Unmarshal(rawMethod, &m.method) != nil || m.method == "" {
		return why(jsonrpc.CodeInvalidRequest, "the method must be a string that is not empty")
	}
	params := fields["params"]
	switch {
	case params == nil || bytes.Equal(params, null):
	case params[0] != '{':
		return why(jsonrpc.CodeInvalidParams, "params must be an object")
	default:
		if name := doubled(params); name != "" {
			return why(jsonrpc.CodeInvalidParams, "params have "+strconv.QuoteToASCII(cut(name))+" twice in one object")
		}
		m.params = params
	}
	if m.method == "initialize" {
		fields, _ := members(params)
		if version := fields["protocolVersion"]; len(version) == 0 || version[0] != '"' {
			return why(jsonrpc.CodeInvalidParams, "initialize must name its protocolVersion, a string")
		}
	}
	if hasID {
		m.id = id
	}
	return m, true
}

// isID tells whether a value may name a request.
func isID(raw json.RawMessage) bool {
	return len(raw) > 0 && len(raw) <= maxID && (raw[0] == '"' || raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// members are the members of a valid object, and the first name that is there
// twice. Names count by their exact spelling.
func members(text []byte) (all map[string]json.RawMessage, twice string) {
	all = map[string]json.RawMessage{}
	dec := json.NewDecoder(bytes.NewReader(text))
	_, _ = dec.Token() // the brace
	for dec.More() {
		token, err := dec.Token()
		name, isName := token.(string)
		var value json.RawMessage
		if err != nil || !isName || dec.Decode(&value) != nil {
			return all, twice // it is valid
		}
		if _, have := all[name]; have && (twice == "" || name == "id") {
			twice = name
		}
		all[name] = value
	}
	return all, twice
}

// doubled is a name that an object in text has twice, empty for none. text is
// valid, and no deeper than maxDepth.
func doubled(text []byte) string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var walk func() string
	walk = func() string {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		open, isDelim := token.(json.Delim)
		if !isDelim {
			return ""
		}
		seen := map[string]bool{}
		for dec.More() {
			if open == '{' {
				token, err := dec.Token()
				name, isName := token.(string)
				if err != nil || !isName {
					return ""
				}
				if seen[name] {
					return name
				}
				seen[name] = true
			}
			if name := walk(); name != "" {
				return name
			}
		}
		_, _ = dec.Token() // its end
		return ""
	}
	return walk()
}

// scanner follows a line byte by byte, however long it is: how deep it is nested,
// and the id of the message, so that also one that is not kept is answered by it.
type scanner struct {
	depth, deepest int
	inText, escape bool
	name           []byte // the text or number that is being read, in the outermost object
	tooLong        bool   // name is not whole
	last           []byte // the name before the colon
	value          bool   // what comes is a value
	got            []byte
	times          int // how often there was an id
}

// feed takes the next bytes. Of a text that is not kept only its end is looked for.
func (s *scanner) feed(p []byte) {
	for i := 0; i < len(p); i++ {
		if s.inText && !s.escape && (s.depth != 1 || s.tooLong) {
			skip := endOrEscape(p[i:])
			if skip < 0 {
				return
			}
			i += skip
		}
		s.next(p[i])
	}
}

// endOrEscape is where the next quotation mark or backslash is, -1 for nowhere.
func endOrEscape(p []byte) int {
	end := bytes.IndexByte(p, '"')
	if end >= 0 {
		p = p[:end]
	}
	if escape := bytes.IndexByte(p, '\\'); escape >= 0 {
		return escape
	}
	return end
}

func (s *scanner) next(b byte) {
	if s.inText {
		s.keep(b)
		switch {
		case s.escape:
			s.escape = false
		case b == '\\':
			s.escape = true
		case b == '"':
			s.inText = false
		}
		return
	}
	switch b {
	case '"':
		s.inText = true
		s.begin()
		s.keep(b)
	case '{', '[':
		s.depth++
		s.deepest = max(s.deepest, s.depth)
	case '}', ']':
		s.endValue()
		s.depth--
	case ':':
		if s.depth == 1 {
			s.last, s.value = append(s.last[:0], s.name...), true
			s.begin()
		}
	case ',':
		s.endValue()
	case ' ', '\t', '\r', '\n':
	default:
		s.keep(b)
	}
}

func (s *scanner) begin() {
	if s.depth == 1 {
		s.name, s.tooLong = s.name[:0], false
	}
}

func (s *scanner) keep(b byte) {
	if s.depth != 1 {
		return
	}
	if len(s.name) == maxID {
		s.tooLong = true
		return
	}
	s.name = append(s.name, b)
}

// endValue takes in a member of the outermost object.
func (s *scanner) endValue() {
	if s.depth == 1 && s.value && string(s.last) == `"id"` {
		s.times++
		if s.got = nil; !s.tooLong {
			s.got = bytes.Clone(s.name)
		}
	}
	if s.depth == 1 {
		s.value = false
		s.begin()
	}
}

// id is the id of the message, nil where it has none that can be used.
func (s *scanner) id() json.RawMessage {
	if s.times != 1 || !isID(s.got) || !json.Valid(s.got) || !utf8.Valid(s.got) {
		return nil
	}
	return s.got
}
