package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// kind is what the value of an argument is.
type kind int

const (
	aText     kind = iota // a string
	someOf                // a string that is one of some words
	aNumber               // a whole number
	aFlag                 // true or false
	aList                 // an array of strings
	oneOrMore             // a string, or an array of them
	aMap                  // an object whose values are strings
)

// argument is one that a tool takes. The schema that the client gets and the
// judgement of what it sends are made of the same table.
type argument struct {
	name     string
	kind     kind
	about    string
	required bool
	words    func() []string // of someOf
	least    int
	most     int  // of a number; of a text, a list or a map its length, 0: not bounded here
	each     int  // how long an element of a list, or a name or value of a map, may be, in bytes
	filled   bool // the first element of a list has to say something
}

// badArgument is an argument that is refused, by its name.
type badArgument struct{ Name, Why string }

func (e *badArgument) Error() string { return e.Name + ": " + e.Why }

// schema is the JSON schema of a tool's input.
func schema(args []argument) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, a := range args {
		properties[a.name] = a.schema()
		if a.required {
			required = append(required, a.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

func (a *argument) schema() map[string]any {
	text := map[string]any{"type": "string", "minLength": 1}
	s := map[string]any{}
	switch a.kind {
	case aText:
		s = text
	case someOf:
		s["type"], s["enum"] = "string", a.words()
	case aNumber:
		s["type"], s["minimum"], s["maximum"] = "integer", a.least, a.most
	case aFlag:
		s["type"] = "boolean"
	case aList:
		s["type"], s["items"], s["minItems"] = "array", map[string]any{"type": "string"}, 1
	case oneOrMore:
		s["anyOf"] = []any{text, map[string]any{"type": "array", "items": text, "minItems": 1}}
	case aMap:
		s["type"], s["additionalProperties"] = "object", map[string]any{"type": "string"}
	}
	s["description"] = a.about
	return s
}

// values are the arguments of one call, judged.
type values map[string]any

func (v values) text(name string) string { s, _ := v[name].(string); return s }
func (v values) list(name string) []string {
	l, _ := v[name].([]string)
	return l
}
func (v values) words(name string) map[string]string { m, _ := v[name].(map[string]string); return m }
func (v values) flag(name string) bool               { b, _ := v[name].(bool); return b }

// number is the value of an argument, or what it means when it is not given.
func (v values) number(name string, otherwise int) int {
	if n, ok := v[name].(int); ok {
		return n
	}
	return otherwise
}

// read judges the arguments of a call by the table. The error is *badArgument.
func read(raw json.RawMessage, args []argument) (values, error) {
	given := map[string]json.RawMessage{}
	if len(raw) > 0 && json.Unmarshal(raw, &given) != nil {
		return nil, &badArgument{"arguments", "they must be an object"}
	}
	out := values{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		at := slices.IndexFunc(args, func(a argument) bool { return a.name == name })
		if at < 0 {
			return nil, &badArgument{short(name), "there is no such argument; there are " + names(args)}
		}
		if string(given[name]) == "null" {
			continue // as if it were not there
		}
		value, why := args[at].read(given[name])
		if why != "" {
			return nil, &badArgument{name, why}
		}
		out[name] = value
	}
	for _, a := range args {
		if _, have := out[a.name]; a.required && !have {
			return nil, &badArgument{a.name, "it is needed: " + a.about}
		}
	}
	return out, nil
}

func names(args []argument) string {
	if len(args) == 0 {
		return "none"
	}
	var all []string
	for _, a := range args {
		all = append(all, a.name)
	}
	return strings.Join(all, ", ")
}

// read is one value, or why it is none.
func (a *argument) read(raw json.RawMessage) (value any, why string) {
	switch a.kind {
	case aNumber:
		return a.number(raw)
	case aFlag:
		var b bool
		if json.Unmarshal(raw, &b) != nil {
			return nil, "it must be true or false, not " + called(raw)
		}
		return b, ""
	case aList:
		return a.list(raw)
	case oneOrMore:
		if raw[0] == '[' {
			return a.list(raw)
		}
		one := argument{kind: aText, most: a.each}
		text, why := one.oneText(raw)
		return []string{text}, why
	case aMap:
		return a.pairs(raw)
	}
	return a.oneText(raw)
}

func (a *argument) pairs(raw json.RawMessage) (any, string) {
	var all map[string]*string
	if raw[0] != '{' || json.Unmarshal(raw, &all) != nil {
		return nil, "it must be an object whose values are strings"
	}
	if len(all) > a.most {
		return nil, fmt.Sprintf("it has %d members, and %d is the most", len(all), a.most)
	}
	m := make(map[string]string, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name]
		switch {
		case name == "":
			return nil, "one of its members has no name"
		case value == nil:
			return nil, "the value of " + short(name) + " must be a string, not null"
		case max(len(name), len(*value)) > a.each:
			return nil, fmt.Sprintf("%s: it has %d bytes, and %d is the most", short(name), max(len(name), len(*value)), a.each)
		case strings.ContainsRune(name+*value, 0):
			return nil, short(name) + ": it has a NUL byte"
		}
		m[name] = *value
	}
	return m, ""
}

func (a *argument) oneText(raw json.RawMessage) (text, why string) {
	var s string
	bad := raw[0] != '"' || json.Unmarshal(raw, &s) != nil
	if a.kind == someOf {
		if words := a.words(); bad || !slices.Contains(words, s) {
			return "", "it must be one of " + strings.Join(words, ", ") + ", not " + called(raw)
		}
		return s, ""
	}
	switch {
	case bad:
		return "", "it must be a string, not " + called(raw)
	case s == "":
		return "", "it is empty"
	case strings.ContainsRune(s, 0):
		return "", "it has a NUL byte"
	case a.most > 0 && len(s) > a.most:
		return "", fmt.Sprintf("it has %d bytes, and %d is the most", len(s), a.most)
	}
	return s, ""
}

func (a *argument) number(raw json.RawMessage) (any, string) {
	f, err := strconv.ParseFloat(string(raw), 64)
	n := int(f)
	if err != nil || math.IsInf(f, 0) || f != math.Trunc(f) || f < float64(a.least) || f > float64(a.most) {
		return nil, fmt.Sprintf("it must be a whole number from %d to %d, not %s", a.least, a.most, called(raw))
	}
	return n, ""
}

func (a *argument) list(raw json.RawMessage) (any, string) {
	var l []string
	switch {
	case raw[0] != '[' || json.Unmarshal(raw, &l) != nil:
		return nil, "it must be an array of strings, not " + called(raw)
	case len(l) == 0:
		return nil, "it is empty"
	case a.most > 0 && len(l) > a.most:
		return nil, fmt.Sprintf("it has %d elements, and %d is the most", len(l), a.most)
	}
	for i, s := range l {
		switch {
		case strings.ContainsRune(s, 0):
			return nil, fmt.Sprintf("its element %d has a NUL byte", i)
		case a.each > 0 && len(s) > a.each:
			return nil, fmt.Sprintf("its element %d has %d bytes, and %d is the most", i, len(s), a.each)
		case s == "" && (a.filled && i == 0 || a.kind == oneOrMore):
			return nil, fmt.Sprintf("its element %d is empty", i)
		}
	}
	return l, ""
}

// called shows a value that is not what it should be, not all of a long one.
func called(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return short(string(raw))
}

// short shows a text of the client's, not all of a long one.
func short(text string) string { return plain(cut(text)) }

// cut is the beginning of a long text, and all of another.
func cut(text string) string {
	const most = 60
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
