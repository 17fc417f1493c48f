package stream

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// found is what a look for a JSON object came to.
type found int

const (
	whole      found = iota
	unfinished       // what is there may be the beginning of one
	broken           // it begins like one, and whatever follows it is none
	other            // something else is there
	nothing          // nothing is there
)

// maxNesting is how deep an object may be nested. Engines need about ten.
const maxNesting = 1024

// nesting remembers which of the open brackets are those of objects.
type nesting struct {
	depth int
	bits  [maxNesting / 64]uint64
}

// push opens a bracket, and tells whether there was room for it.
func (n *nesting) push(object bool) bool {
	if n.depth == maxNesting {
		return false
	}
	word, bit := n.depth/64, uint64(1)<<(n.depth%64)
	n.bits[word] &^= bit
	if object {
		n.bits[word] |= bit
	}
	n.depth++
	return true
}

func (n *nesting) inObject() bool {
	at := n.depth - 1
	return n.bits[at/64]&(1<<(at%64)) != 0
}

// want is what may come next in a JSON text.
type want int

const (
	wantValue want = iota
	wantValueOrEnd
	wantKey
	wantKeyOrEnd
	wantColon
	wantComma
)

// scan is one reading of an object. It proves the grammar of JSON, and nothing
// about what is in the strings but their escapes.
type scan struct {
	open   nesting
	want   want
	isType bool   // the value to come is that of the key "type" at the top
	kind   []byte // that value
}

// object reads the JSON object at the beginning of b, which must be a brace. n is
// where it ends, kind its string "type" at the top as it is written, without the
// quotes.
func object(b []byte) (n int, kind []byte, f found) {
	var s scan
	for i := 0; i < len(b); {
		if blank(b[i]) {
			i++
			continue
		}
		n, f := s.token(b[i:])
		if f != whole {
			return 0, nil, f
		}
		if i += n; s.open.depth == 0 {
			return i, s.kind, whole
		}
	}
	return 0, nil, unfinished
}

// token reads one token, and says how long it is.
func (s *scan) token(b []byte) (int, found) {
	switch s.want {
	case wantKeyOrEnd, wantKey:
		if b[0] == '}' && s.want == wantKeyOrEnd {
			return s.shut()
		}
		return s.key(b)
	case wantColon:
		s.want = wantValue
		return is(b[0] == ':')
	case wantComma:
		return s.comma(b[0])
	default:
		if b[0] == ']' && s.want == wantValueOrEnd {
			return s.shut()
		}
		return s.value(b)
	}
}

// is is the length of a token of one byte, if that is what it had to be.
func is(ok bool) (int, found) {
	if !ok {
		return 0, broken
	}
	return 1, whole
}

func (s *scan) shut() (int, found) {
	s.open.depth--
	s.want = wantComma
	return 1, whole
}

func (s *scan) comma(c byte) (int, found) {
	object := s.open.inObject()
	switch {
	case c == ',' && object:
		s.want = wantKey
	case c == ',':
		s.want = wantValue
	case c == '}' && object, c == ']' && !object:
		return s.shut()
	default:
		return 0, broken
	}
	return 1, whole
}

func (s *scan) key(b []byte) (int, found) {
	if b[0] != '"' {
		return 0, broken
	}
	n, f := text(b)
	if f == whole {
		s.isType = s.open.depth == 1 && string(b[1:n-1]) == "type"
		s.want = wantColon
	}
	return n, f
}

func (s *scan) value(b []byte) (n int, f found) {
	isType := s.isType
	s.isType = false
	s.want = wantComma
	switch c := b[0]; {
	case c == '"':
		n, f = text(b)
		if isType && f == whole {
			s.kind = b[1 : n-1]
		}
		return n, f
	case c == '{':
		s.want = wantKeyOrEnd
		return is(s.open.push(true))
	case c == '[':
		s.want = wantValueOrEnd
		return is(s.open.push(false))
	case c == 't':
		return word(b, "true")
	case c == 'f':
		return word(b, "false")
	case c == 'n':
		return word(b, "null")
	default:
		return number(b)
	}
}

func word(b []byte, w string) (int, found) {
	switch {
	case len(b) >= len(w) && string(b[:len(w)]) == w:
		return len(w), whole
	case len(b) < len(w) && string(b) == w[:len(b)]:
		return 0, unfinished
	}
	return 0, broken
}

// number reads a number that something else follows: inside an object, something
// always does.
func number(b []byte) (int, found) {
	i := 0
	if b[0] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	default:
		n := digits(b[i:])
		if n == 0 && i < len(b) {
			return 0, broken
		}
		i += n
	}
	if i < len(b) && b[i] == '.' {
		n := digits(b[i+1:])
		if n == 0 && i+1 < len(b) {
			return 0, broken
		}
		i += 1 + n
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digits(b[i:])
		if n == 0 && i < len(b) {
			return 0, broken
		}
		i += n
	}
	if i == len(b) {
		return 0, unfinished
	}
	return i, whole
}

func digits(b []byte) (n int) {
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return n
}

// text reads a string with its quotes.
func text(b []byte) (int, found) {
	for i := 1; ; {
		i += plain(b[i:])
		switch {
		case i == len(b):
			return 0, unfinished
		case b[i] == '"':
			return i + 1, whole
		case b[i] != '\\':
			return 0, broken // a control byte
		case i+1 < len(b) && short[b[i+1]]:
			i += 2
			continue
		}
		n, f := escape(b[i:])
		if f != whole {
			return 0, f
		}
		i += n
	}
}

// short are the bytes that make an escape of two bytes.
var short = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// escape reads what begins with a backslash.
func escape(b []byte) (int, found) {
	if len(b) < 2 {
		return 0, unfinished
	}
	if b[1] != 'u' {
		if !short[b[1]] {
			return 0, broken
		}
		return 2, whole
	}
	for i := 2; i < 6; i++ {
		if i == len(b) {
			return 0, unfinished
		}
		if _, ok := hex(b[i]); !ok {
			return 0, broken
		}
	}
	return 6, whole
}

func hex(c byte) (uint16, bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint16(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return uint16(c|0x20-'a') + 10, true
	}
	return 0, false
}

// plain is how many bytes at the beginning of b a string may have as they are: no
// quote, no backslash, no control byte. It looks at eight at a time.
func plain(b []byte) (n int) {
	const (
		ones = 0x0101010101010101
		tops = 0x8080808080808080
	)
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, slash := x^ones*'"', x^ones*'\\'
		// The lowest bit that is set is right; what borrowed from it may not be.
		if found := ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & tops; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(b) && b[n] >= 0x20 && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// blank tells whether c may stand between the tokens of JSON.
func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// preface is what stands in front of an object, in bytes of each sort.
type preface struct {
	length   int
	bom      bool
	sequence bool // of a terminal, such as the title of a window
}

// before reads what may stand in front of an object without being text: blanks, a
// byte order mark, control bytes and the sequences of terminals (C101).
func before(b []byte) (p preface) {
	for p.length < len(b) {
		rest := b[p.length:]
		switch n := sequence(rest); {
		case n > 0:
			p.sequence = true
			p.length += n
		case bytes.HasPrefix(rest, []byte("\ufeff")):
			p.bom = true
			p.length += 3
		case rest[0] <= ' ' && rest[0] != 0x1b || rest[0] == 0x7f:
			p.length++
		default:
			return p
		}
	}
	return p
}

// sequence is the length of the terminal sequence at the beginning of b; 0: there
// is none, or it does not end.
func sequence(b []byte) int {
	if len(b) < 2 || b[0] != 0x1b {
		return 0
	}
	switch c := b[1]; {
	case c == '[':
		for i, c := range b[2:] {
			if 0x40 <= c && c <= 0x7e {
				return i + 3
			}
			if c < 0x20 || c > 0x7e {
				return 0
			}
		}
		return 0
	case c == ']', c == 'P', c == 'X', c == '^', c == '_':
		return ended(b)
	case 0x20 <= c && c <= 0x2f:
		if len(b) > 2 && 0x30 <= b[2] && b[2] <= 0x7e {
			return 3
		}
		return 0
	case 0x30 <= c && c <= 0x7e:
		return 2
	}
	return 0
}

// ended is the length of a sequence that lasts until BEL or ST.
func ended(b []byte) int {
	for i := 2; i < len(b); i++ {
		switch {
		case b[i] == 0x07:
			return i + 1
		case b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\':
			return i + 2
		}
	}
	return 0
}

// clean makes one line of at most n bytes out of text that somebody shall read:
// what is neither printable nor UTF-8 becomes a blank, and blanks become one.
func clean(b []byte, n int) string {
	var out []byte
	for len(b) > 0 {
		if s := sequence(b); s > 0 {
			b = b[s:]
			continue
		}
		c, size := utf8.DecodeRune(b)
		b = b[size:]
		if c <= ' ' || 0x7f <= c && c < 0xa0 || c == utf8.RuneError {
			if len(out) > 0 && out[len(out)-1] != ' ' {
				out = append(out, ' ')
			}
			continue
		}
		if len(out)+size > n {
			break
		}
		out = utf8.AppendRune(out, c)
	}
	return string(bytes.TrimRight(out, " "))
}
