package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/handsel/handsel/internal/home"
)

// example is the commented file Init writes. Everything in it is commented out.
//
//go:embed example.toml
var example []byte

// ErrExists reports that Init found a file and left it alone.
var ErrExists = errors.New("the file exists already")

// Init writes a commented example file, in which nothing is set, and creates the
// directories above it. It never replaces a file.
func Init(path string) error {
	if err := makeParents(path); err != nil {
		return err
	}
	_, err := os.Lstat(path)
	if err == nil {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return &home.Unusable{Path: path, Err: err}
	}
	return home.WriteFileMode(path, example, modeOf(path))
}

// Check reads one file as Load would, without the others, and returns all of its
// mistakes. A missing file has none.
func Check(path string) []error {
	read := home.ReadFile
	if path == MachineFile {
		read = home.ReadRootFile
	}
	data, err := read(path, maxFile)
	switch {
	case isMissing(err):
		return nil
	case err != nil:
		return []error{err}
	}
	p := parseCached(path, data)
	return append(p.problems(), nameTable{}.add(p)...)
}

// Set changes one key of a file, creating the file if need be, and leaves every
// other byte as it is. value is as a person types it: text without quotes, lists
// with commas. The result is read back before it replaces the file; a *Bad says
// what is wrong with key, value or file. An empty value takes the key out.
func Set(path, key, value string) error {
	parts := strings.Split(key, ".")
	k := find(parts)
	switch {
	case k == nil && isTable(parts):
		return &Bad{Key: key, Why: "it is a table; name a key in it"}
	case k == nil:
		return &Bad{Key: key, Why: "unknown key; " + known(parts)}
	case k.kind == open, arrays[parts[0]]:
		return &Bad{Key: key, Why: "this table is not changed by a command; edit the file"}
	}
	// The file may be edited by hand meanwhile; what is replaced must be what was
	// changed.
	for range 8 {
		old, err := readForEdit(path)
		if err != nil {
			return err
		}
		next, err := edited(path, old, parts, k.kind, value)
		if err != nil {
			return err
		}
		if now, err := readForEdit(path); err != nil || !bytes.Equal(now, old) {
			continue
		}
		if err := makeParents(path); err != nil {
			return err
		}
		return home.WriteFileMode(path, next, modeOf(path))
	}
	return &home.Unusable{Path: path, Err: errors.New("it keeps changing")}
}

func readForEdit(path string) ([]byte, error) {
	data, err := home.ReadFile(path, maxFile)
	if err != nil && !isMissing(err) {
		return nil, err
	}
	return data, nil
}

// modeOf keeps a file's mode. A new machine file must be readable by all.
func modeOf(path string) uint32 {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		return uint32(info.Mode().Perm())
	}
	if path == MachineFile {
		return 0o644
	}
	return 0o600
}

// makeParents creates the directories above a file, as its owner needs them.
func makeParents(path string) error {
	mode := fs.FileMode(0o700)
	if path == MachineFile {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(path), mode); err != nil {
		return &home.Unusable{Path: filepath.Dir(path), Err: err}
	}
	return home.TrustParent(path)
}

// edited is the file with the key changed. Where a new key can go depends on how
// the file writes its tables, so the ways are tried in order and each is read back.
func edited(path string, old []byte, key []string, kind kind, value string) ([]byte, error) {
	before := parse(path, old)
	if len(before.bads) > 0 {
		return nil, before.bads[0]
	}
	l := layoutOf(old)
	literal := ""
	if strings.Trim(value, blanks) != "" {
		literal = literalOf(kind, value)
	}
	var ways [][]byte
	switch at, ok := l.values[strings.Join(key, "\x00")]; {
	case ok && literal == "":
		ways = [][]byte{l.without(at)}
	case ok:
		ways = [][]byte{splice(old, at.value, literal)}
	case literal == "":
		return old, nil
	default:
		ways = l.insertions(key, literal)
	}
	var first error
	for _, next := range ways {
		p := parse(path, next)
		p.bads = append(p.bads, nameTable{}.add(p)...)
		if len(p.bads) == 0 && p.holds(key, kind, literal) {
			return next, nil
		}
		if first == nil && len(p.bads) > 0 {
			first = p.bads[0]
		}
	}
	if first == nil {
		first = &Bad{File: path, Key: strings.Join(key, "."), Why: "the way the file writes this table cannot be changed by a command; edit the file"}
	}
	return nil, first
}

// holds tells whether the key has (or, without a literal, has not) been set.
func (p *parsed) holds(key []string, kind kind, literal string) bool {
	name := strings.Join(key, ".")
	found := false
	for _, a := range p.sets {
		found = found || strings.Join(a.path, ".") == name
	}
	if kind == capacity {
		for _, n := range p.names {
			found = found || strings.Join(n.key, ".") == name
		}
	}
	return found == (literal != "")
}

// literalOf writes a typed value in TOML. What does not fit the kind is written
// as it is, or as text, so that reading it back names the mistake.
func literalOf(kind kind, value string) string {
	trimmed := strings.Trim(value, blanks)
	switch kind {
	case capacity, number:
		if digits(trimmed) {
			if n, err := strconv.ParseUint(trimmed, 10, 64); err == nil {
				return strconv.FormatUint(n, 10) // TOML has no leading zeros
			}
		}
	case yes:
		if trimmed == "true" || trimmed == "false" {
			return trimmed
		}
	case size:
		if digits(trimmed) && (trimmed == "0" || trimmed[0] != '0') {
			return trimmed
		}
	case decimal:
		if _, why := decimalValue(trimmed); why == "" && (len(trimmed) == 1 || trimmed[0] != '0' || trimmed[1] == '.') {
			return trimmed // TOML has no leading zeros
		}
	case ports:
		if strings.HasPrefix(trimmed, "[") && !strings.ContainsAny(trimmed, "\n#") {
			return trimmed
		}
		if trimmed != "" && strings.Trim(trimmed, "0123456789, ") == "" {
			return "[" + trimmed + "]"
		}
	case commands:
		if strings.HasPrefix(trimmed, "[") && !strings.ContainsAny(trimmed, "\n") {
			return trimmed
		}
	case words:
		return tomlValue(splitList(strings.TrimSuffix(strings.TrimPrefix(trimmed, "["), "]")))
	}
	return tomlText(value)
}

// layout is where a file has its tables and keys, in bytes.
type layout struct {
	data    []byte
	newline string
	values  map[string]place
	// ends has, for each table that has a header or a dotted key, where the last
	// line that belongs to it ends.
	ends   map[string]int
	dotted map[string]int
	first  int // where the first header's line begins, len(data) without one
}

// place is where a key-value expression is.
type place struct {
	expr, value span
	inline      bool
}

func layoutOf(data []byte) *layout {
	l := &layout{data: data, newline: "\n", values: map[string]place{}, ends: map[string]int{}, dotted: map[string]int{}, first: len(data)}
	if bytes.Contains(data, []byte("\r\n")) {
		l.newline = "\r\n"
	}
	p := &unstable.Parser{}
	p.Reset(data)
	var table []string
	for p.NextExpression() {
		node := p.Expression()
		path, at := keyOf(node, nil)
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = path
			l.first = min(l.first, l.lineStart(at.off))
			l.ends[strings.Join(table, "\x00")] = l.lineEnd(at.off + at.len)
		case unstable.KeyValue:
			l.keyValue(node, table, false)
			end := l.lineEnd(int(node.Raw.Offset + node.Raw.Length))
			l.ends[strings.Join(table, "\x00")] = end
			if len(table) == 0 {
				for i := 1; i < len(path); i++ {
					l.dotted[strings.Join(path[:i], "\x00")] = end
				}
			}
		}
	}
	return l
}

func (l *layout) keyValue(node *unstable.Node, table []string, inline bool) {
	path, at := keyOf(node, table)
	value := valueOf(node, string(l.data), at)
	l.values[strings.Join(path, "\x00")] = place{span{at.off, value.off + value.len - at.off}, value, inline}
	if node.Value().Kind == unstable.InlineTable {
		for it := node.Value().Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				l.keyValue(it.Node(), path, true)
			}
		}
	}
}

func (l *layout) lineStart(off int) int { return bytes.LastIndexByte(l.data[:off], '\n') + 1 }

// lineEnd is just behind the newline of the line that holds off.
func (l *layout) lineEnd(off int) int {
	if i := bytes.IndexByte(l.data[off:], '\n'); i >= 0 {
		return off + i + 1
	}
	return len(l.data)
}

// insertions are the ways to add a key, the most natural first.
func (l *layout) insertions(key []string, literal string) (ways [][]byte) {
	table, last := key[:len(key)-1], key[len(key)-1]
	line := last + " = " + literal + l.newline
	name := strings.Join(table, "\x00")
	if len(table) == 0 {
		if end, ok := l.ends[""]; ok {
			return [][]byte{l.insert(end, line)}
		}
		return [][]byte{l.insert(l.first, line+l.newline), l.insert(0, line+l.newline)}
	}
	if end, ok := l.ends[name]; ok {
		ways = append(ways, l.insert(end, line))
	}
	if end, ok := l.dotted[name]; ok {
		ways = append(ways, l.insert(end, strings.Join(key, ".")+" = "+literal+l.newline))
	}
	header := "[" + strings.Join(table, ".") + "]" + l.newline + line
	if len(l.data) > 0 {
		header = l.newline + header
	}
	return append(ways, l.insert(len(l.data), header))
}

// insert puts whole lines at a place where a line begins.
func (l *layout) insert(at int, lines string) []byte {
	if at > 0 && l.data[at-1] != '\n' {
		lines = l.newline + lines
	}
	return splice(l.data, span{at, 0}, lines)
}

// without takes an expression out, with its line when it is alone on it. In an
// inline table nothing is taken out, which reading back then refuses.
func (l *layout) without(at place) []byte {
	if at.inline {
		return l.data
	}
	start, end := l.lineStart(at.expr.off), l.lineEnd(at.expr.off+at.expr.len)
	return splice(l.data, span{start, end - start}, "")
}

func splice(data []byte, at span, with string) []byte {
	out := make([]byte, 0, len(data)+len(with))
	out = append(out, data[:at.off]...)
	out = append(out, with...)
	return append(out, data[at.off+at.len:]...)
}
