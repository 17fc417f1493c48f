package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parsed is one file, read to the end in spite of its mistakes. It is never
// changed after parse returns, so it may be shared.
type parsed struct {
	path  string
	data  string
	sets  []assignment
	caps  []Cap
	names []namedAt
	later map[string]any
	bads  []error

	notify []Notify
}

// assignment is one key that holds what it may hold.
type assignment struct {
	key   *key
	path  []string
	value any
}

// namedAt is where a file gives a pool or an engine its name.
type namedAt struct {
	name string
	key  []string
	at   span
}

func (p *parsed) problems() []error { return p.bads }

// apply puts what the file says into s, over what files of less weight said.
// Caps are added.
func (p *parsed) apply(s *Settings) {
	for _, c := range p.caps {
		s.Caps[c.Pool] = append(s.Caps[c.Pool], c)
	}
	for _, a := range p.sets {
		a.key.set(s, a.path, a.value)
		s.from[strings.Join(a.path, ".")] = p.path
	}
	s.Notify = append(s.Notify, p.notify...) // each file's commands are told
	for name, table := range p.later {
		s.Later[name] = overlay(s.Later[name], table)
		s.from[name] = p.path
	}
}

// overlay puts the entries of one table over those of another.
func overlay(under, over any) any {
	a, okA := under.(map[string]any)
	b, okB := over.(map[string]any)
	if !okA || !okB {
		return over
	}
	out := make(map[string]any, len(a)+len(b))
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		out[k] = v
	}
	return out
}

// cache keeps the parsed form of each file for as long as its bytes stay the same.
var cache struct {
	sync.Mutex
	files map[string]*parsed
}

func parseCached(path string, data []byte) *parsed {
	cache.Lock()
	defer cache.Unlock()
	if p := cache.files[path]; p != nil && p.data == string(data) {
		return p
	}
	p := parse(path, data)
	if cache.files == nil || len(cache.files) > 64 {
		cache.files = map[string]*parsed{}
	}
	cache.files[path] = p
	return p
}

func parse(path string, data []byte) *parsed {
	p := &parsed{path: path, data: string(data)}
	doc := map[string]any{}
	if err := toml.Unmarshal(data, &doc); err != nil {
		p.bads = []error{p.syntax(err)}
		return p
	}
	w := walker{p: p, doc: doc, parser: &unstable.Parser{}}
	w.parser.Reset(data)
	var table []string
	for w.parser.NextExpression() {
		switch node := w.parser.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			var at span
			table, at = keyOf(node, nil)
			w.table(table, at, node.Kind == unstable.ArrayTable)
		case unstable.KeyValue:
			w.keyValue(node, table)
		}
	}
	w.closeRules()
	return p
}

func (p *parsed) syntax(err error) error {
	decode, ok := errors.AsType[*toml.DecodeError](err)
	if !ok {
		return &Bad{File: p.path, Why: escape(err.Error())}
	}
	line, col := decode.Position()
	start := 0
	for range line - 1 {
		start += strings.IndexByte(p.data[start:], '\n') + 1
	}
	return p.bad(span{start + col - 1, 1}, strings.Join(decode.Key(), "."), "",
		escape(strings.TrimPrefix(decode.Error(), "toml: ")))
}

// bad is a mistake at a place in the file. text is what stands there.
func (p *parsed) bad(at span, key, text, why string) *Bad {
	line, col := position(p.data, at.off)
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return &Bad{File: p.path, Line: line, Col: col, Key: key, Text: escape(text), Why: why, Caret: caret(p.data, at)}
}

// walker goes through a file's keys in order, with their places.
type walker struct {
	p      *parsed
	doc    map[string]any
	parser *unstable.Parser
	rules  []rule // [[notify]] so far
}

// keyOf is the key of an expression below a table, and where it is written.
func keyOf(node *unstable.Node, table []string) (path []string, at span) {
	path = append(path, table...)
	for it := node.Key(); it.Next(); {
		part := it.Node()
		path = append(path, string(part.Data))
		if at.len == 0 {
			at.off = int(part.Raw.Offset)
		}
		at.len = int(part.Raw.Offset+part.Raw.Length) - at.off
	}
	return path, at
}

// valueOf is where the value of a key-value expression is written. Arrays carry
// no place of their own, so it is what follows the key.
func valueOf(node *unstable.Node, data string, key span) span {
	end := int(node.Raw.Offset + node.Raw.Length)
	rest := data[key.off+key.len : end]
	value := strings.TrimLeft(rest, " \t")
	value = strings.TrimLeft(strings.TrimPrefix(value, "="), " \t")
	return span{end - len(value), len(value)}
}

// table judges a header, or an inline table that is empty.
func (w *walker) table(path []string, at span, array bool) {
	name := strings.Join(path, ".")
	switch {
	case !isTable(path):
		why := "unknown table; " + known(path)
		if find(path) != nil {
			why = "it is a value, not a table"
		}
		w.mistake(at, name, "", why)
	case array && !arrays[name]:
		w.mistake(at, name, "", "it is one table, written ["+escape(name)+"]")
	case !array && arrays[name]:
		w.mistake(at, name, "", "it is a list of tables, written [["+name+"]]")
	case array:
		w.newRule(at)
	case path[0] == "engine" && len(path) == 2:
		w.name(path, 1, at, badEngineName)
	case badQuotaKey(path) != "":
		w.mistake(at, name, "", badQuotaKey(path))
	case path[0] == "accounts" && len(path) == 3:
		w.p.sets = append(w.p.sets, assignment{accountTable, path, nil})
	case find(path) != nil && find(path).kind == open || len(path) == 1 && isLater(path[0]):
		w.keep(path[0])
	}
}

func isLater(top string) bool { return strings.Contains(laterTables, " "+top+" ") }

const laterTables = " credentials "

func (w *walker) keyValue(node *unstable.Node, table []string) {
	path, at := keyOf(node, table)
	value := node.Value()
	if value.Kind == unstable.InlineTable {
		empty := true
		for it := value.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				empty = false
				w.keyValue(it.Node(), path)
			}
		}
		if empty {
			w.table(path, at, false)
		}
		return
	}
	w.leaf(path, at, valueOf(node, w.p.data, at))
}

// leaf judges one key and its value.
func (w *walker) leaf(path []string, at, value span) {
	name := strings.Join(path, ".")
	raw := w.p.data[value.off : value.off+value.len]
	k := find(path)
	switch {
	case k == nil && isTable(path):
		if arrays[name] && strings.HasPrefix(raw, "[") {
			w.inlineRules(path, at)
			return
		}
		w.mistake(at, name, raw, "it is a table, not a value")
		return
	case k == nil:
		w.mistake(at, name, raw, "unknown key; "+known(path))
		return
	case k.kind == open:
		w.keep(path[0])
		return
	}
	if path[0] == "engine" && !w.name(path[:2], 1, at, badEngineName) || path[0] == "gate" && !w.name(path, 2, at, badPoolName) {
		return
	}
	if why := cmp.Or(badEngineKey(path), badQuotaKey(path)); why != "" {
		w.mistake(at, name, "", why)
		return
	}
	if len(path) == 3 && path[1] == "shim" {
		if why := badEngineName(path[2]); why != "" {
			w.mistake(at, name, raw, why)
			return
		}
	}
	var held any
	switch list, _ := w.doc[path[0]].([]any); {
	case arrays[path[0]] && len(list) == 0:
		w.mistake(at, name, raw, "it is a list of tables, written [["+path[0]+"]]")
		return
	case arrays[path[0]]:
		held = w.ruleValue(path)
	default:
		held = descend(w.doc, path)
	}
	v, why := k.kind.value(held, raw)
	if why == "" && k.check != nil {
		why = k.check(v)
	}
	if why != "" {
		w.mistake(value, name, raw, why)
		return
	}
	if arrays[path[0]] {
		w.setRule(path[1], v)
		return
	}
	if k.kind != capacity {
		w.p.sets = append(w.p.sets, assignment{k, path, v})
		return
	}
	if w.name(path, 1, at, badPoolName) && v.(int) > 0 {
		w.p.caps = append(w.p.caps, Cap{Pool: path[1], N: v.(int), From: w.p.path})
	}
}

// name notes a pool's or engine's name, the i-th part of a path, and tells whether
// it can be one.
func (w *walker) name(path []string, i int, at span, judge func(string) string) bool {
	if why := judge(path[i]); why != "" {
		w.mistake(at, strings.Join(path, "."), "", why)
		return false
	}
	w.p.names = append(w.p.names, namedAt{path[i], path, at})
	return true
}

// keep takes a whole top-level table as it is.
func (w *walker) keep(top string) {
	if w.p.later == nil {
		w.p.later = map[string]any{}
	}
	w.p.later[top] = w.doc[top]
}

func (w *walker) mistake(at span, key, text, why string) {
	w.p.bads = append(w.p.bads, w.p.bad(at, key, text, why))
}

func descend(doc map[string]any, path []string) any {
	var at any = doc
	for _, part := range path {
		table, ok := at.(map[string]any)
		if !ok {
			return fmt.Errorf("no table")
		}
		at = table[part]
	}
	return at
}
