package hook

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// timeout is how many seconds a client waits for the hook before it goes on without.
const timeout = 10

// handler and group are a hook as both clients write it.
type handler struct {
	Type    string `json:"type"`
	Command string `json:"command"`
	Timeout int    `json:"timeout"`
}

type group struct {
	Matcher string    `json:"matcher"`
	Hooks   []handler `json:"hooks"`
}

// found is a hook of ours in a settings file.
type found struct {
	groups      *node // the array of the groups
	group, hook int   // which of them, and which in it
	command     *node
}

// hooks finds the hooks of handsel's in a settings file, and how many of others
// stand at the same event.
func hooks(root *node, c Client) (mine []found, others int, err error) {
	groups, err := groupsOf(root)
	if groups == nil || err != nil {
		return nil, 0, err
	}
	for g, one := range groups.items {
		list, err := one.member("hooks")
		if err != nil {
			return nil, 0, err
		}
		if list == nil {
			continue
		}
		for h, hook := range list.items {
			command, err := hook.member("command")
			if err != nil {
				return nil, 0, err
			}
			if command != nil && ours(command.text, c) {
				mine = append(mine, found{groups, g, h, command})
				continue
			}
			others++
		}
	}
	return mine, others, nil
}

// groupsOf is the array that hooks stand in, nil where there is none yet.
func groupsOf(root *node) (*node, error) {
	if root == nil {
		return nil, nil
	}
	if root.kind != '{' {
		return nil, &misplaced{root.start, "it is no object"}
	}
	all, err := root.member("hooks")
	if all == nil || err != nil {
		return nil, err
	}
	if all.kind != '{' {
		return nil, &misplaced{all.start, "hooks is no object"}
	}
	groups, err := all.member(event)
	if groups != nil && groups.kind != '[' {
		return nil, &misplaced{groups.start, "hooks." + event + " is no list"}
	}
	return groups, err
}

// splice is one change: at a place, some bytes are replaced by others.
type splice struct {
	off, old int
	text     string
}

func (s splice) apply(data []byte) []byte {
	out := make([]byte, 0, len(data)+len(s.text))
	out = append(out, data[:s.off]...)
	out = append(out, s.text...)
	return append(out, data[s.off+s.old:]...)
}

// add is the change that puts the hook in. Where there is none of ours it only
// inserts, behind all others, so that none of them changes its number: Codex trusts
// a hook by it. ok is false where the hook stands there already.
func add(data []byte, c Client, command string) (change splice, ok bool, err error) {
	root, err := tree(data)
	if err != nil {
		return splice{}, false, err
	}
	mine, _, err := hooks(root, c)
	if err != nil {
		return splice{}, false, err
	}
	for _, one := range mine {
		if one.command.text == command {
			return splice{}, false, nil
		}
	}
	if len(mine) > 0 {
		text := mine[0].command
		quoted, err := marshal(command)
		return splice{text.start, text.end - text.start, string(quoted)}, true, err
	}
	e := newEditor(data, root)
	one := group{tool, []handler{{"command", command, timeout}}}
	if root == nil {
		return splice{len(data), 0, e.render("", map[string]any{"hooks": map[string]any{event: []group{one}}}) + e.newline}, true, nil
	}
	all, _ := root.member("hooks")
	if all == nil {
		return e.insert(root, 1, "hooks", map[string]any{event: []group{one}}), true, nil
	}
	groups, _ := all.member(event)
	if groups == nil {
		return e.insert(all, 2, event, []group{one}), true, nil
	}
	return e.insert(groups, 3, "", one), true, nil
}

// take is the change that takes the first hook of ours out, with what would be left
// empty by that. ok is false where there is none.
func take(data []byte, c Client) (change splice, ok bool, err error) {
	root, err := tree(data)
	if err != nil {
		return splice{}, false, err
	}
	mine, _, err := hooks(root, c)
	if len(mine) == 0 || err != nil {
		return splice{}, false, err
	}
	one := mine[0]
	in := one.groups.items[one.group]
	list, _ := in.member("hooks")
	all, _ := root.member("hooks")
	switch {
	case len(list.items) > 1:
		return without(list, one.hook), true, nil
	case len(one.groups.items) > 1:
		return without(one.groups, one.group), true, nil
	case len(all.members) > 1:
		return without(all, indexOf(all, event)), true, nil
	}
	return without(root, indexOf(root, "hooks")), true, nil
}

func indexOf(n *node, name string) int {
	for i, m := range n.members {
		if m.name == name {
			return i
		}
	}
	return -1
}

// without takes the i-th child out, with the comma that goes with it.
func without(n *node, i int) splice {
	list := n.spans()
	from, to := n.start+1, n.end-1
	switch {
	case i > 0:
		from, to = list[i-1][1], list[i][1]
	case len(list) > 1:
		from, to = list[0][0], list[1][0]
	}
	return splice{off: from, old: to - from}
}

// editor writes as the file is written.
type editor struct {
	data          []byte
	newline, unit string
}

func newEditor(data []byte, root *node) *editor {
	e := &editor{data, "\n", "  "}
	if bytes.Contains(data, []byte("\r\n")) {
		e.newline = "\r\n"
	}
	if root != nil && len(root.members) > 0 {
		if indent, own := e.indent(root.members[0].start); own && indent != "" {
			e.unit = indent
		}
	}
	return e
}

// indent is what the line of a place begins with, and whether nothing but that
// comes before it.
func (e *editor) indent(off int) (string, bool) {
	line := e.data[bytes.LastIndexByte(e.data[:off], '\n')+1 : off]
	rest := bytes.TrimLeft(line, " \t")
	return string(line[:len(line)-len(rest)]), len(rest) == 0 && len(line) < off
}

// insert puts a value behind the last child of a container that is nested so deep.
func (e *editor) insert(n *node, depth int, name string, value any) splice {
	indent := strings.Repeat(e.unit, depth)
	list := n.spans()
	if len(list) > 0 {
		if own, alone := e.indent(list[len(list)-1][0]); alone {
			indent = own
		}
	}
	text := e.newline + indent
	if name != "" {
		text += strconv.Quote(name) + ": "
	}
	text += e.render(indent, value)
	if len(list) > 0 {
		return splice{off: list[len(list)-1][1], text: "," + text}
	}
	return splice{off: n.start + 1, text: text + e.newline + strings.TrimSuffix(indent, e.unit)}
}

// render writes a value in JSON, its lines but the first behind indent.
func (e *editor) render(indent string, value any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent(indent, e.unit)
	if err := enc.Encode(value); err != nil {
		panic(err) // texts and numbers of our own
	}
	return strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\n", e.newline)
}
