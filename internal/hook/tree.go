package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// maxNesting bounds what of a settings file is looked into.
const maxNesting = 200

// node is a value in JSON text, with its place.
type node struct {
	start, end int
	kind       byte // '{', '[', '"' or 0
	text       string
	members    []member // of an object, as written
	items      []*node  // of an array
}

// member is a key of an object with its value.
type member struct {
	name  string
	start int // of the key
	value *node
}

// misplaced is a mistake in JSON text.
type misplaced struct {
	off int
	why string
}

func (e *misplaced) Error() string { return e.why }

// at says where in a file a mistake is.
func at(path string, data []byte, err error) error {
	var m *misplaced
	if !errors.As(err, &m) {
		return err
	}
	off := min(m.off, len(data))
	line := bytes.Count(data[:off], []byte("\n")) + 1
	col := len([]rune(string(data[bytes.LastIndexByte(data[:off], '\n')+1:off]))) + 1
	return &BadSettings{Path: path, Line: line, Col: col, Why: m.why}
}

// tree reads JSON text. Text without any value is an empty object that is not there:
// nil.
func tree(data []byte) (*node, error) {
	if len(bytes.Trim(data, " \t\r\n")) == 0 {
		return nil, nil
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		off := len(data)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			off = max(int(syntax.Offset)-1, 0)
		}
		if off >= len(data)-1 && strings.Contains(err.Error(), "unexpected end") {
			off = len(data)
		}
		return nil, &misplaced{off, "it is no JSON: " + err.Error()}
	}
	w := &walker{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	return w.value(0)
}

type walker struct {
	data []byte
	dec  *json.Decoder
}

// token is the next token and where it begins.
func (w *walker) token() (json.Token, int, error) {
	off := int(w.dec.InputOffset())
	for off < len(w.data) && strings.IndexByte(" \t\r\n,:", w.data[off]) >= 0 {
		off++
	}
	tok, err := w.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, 0, &misplaced{off, "it is no JSON: " + err.Error()}
	}
	return tok, off, nil
}

func (w *walker) value(depth int) (*node, error) {
	tok, off, err := w.token()
	if err != nil {
		return nil, err
	}
	n := &node{start: off}
	switch tok := tok.(type) {
	case string:
		n.kind, n.text = '"', tok
	case json.Delim:
		if depth == maxNesting {
			return nil, &misplaced{off, "it is nested too deeply"}
		}
		n.kind = byte(tok)
		if err := w.inside(n, depth); err != nil {
			return nil, err
		}
	}
	n.end = int(w.dec.InputOffset())
	return n, nil
}

// inside reads members or items, and the bracket that ends them.
func (w *walker) inside(n *node, depth int) error {
	for w.dec.More() {
		if n.kind == '[' {
			item, err := w.value(depth + 1)
			if err != nil {
				return err
			}
			n.items = append(n.items, item)
			continue
		}
		key, off, err := w.token()
		if err != nil {
			return err
		}
		value, err := w.value(depth + 1)
		if err != nil {
			return err
		}
		name, _ := key.(string)
		n.members = append(n.members, member{name, off, value})
	}
	_, _, err := w.token()
	return err
}

// member is the value of a key, nil without one. Two of one name are a mistake:
// which of them counts is not ours to guess.
func (n *node) member(name string) (*node, error) {
	var found *node
	for _, m := range n.members {
		if m.name != name {
			continue
		}
		if found != nil {
			return nil, &misplaced{m.start, "there are two " + name}
		}
		found = m.value
	}
	return found, nil
}

// spans are where the children of an object or an array are written.
func (n *node) spans() (list [][2]int) {
	for _, m := range n.members {
		list = append(list, [2]int{m.start, m.value.end})
	}
	for _, item := range n.items {
		list = append(list, [2]int{item.start, item.end})
	}
	return list
}
