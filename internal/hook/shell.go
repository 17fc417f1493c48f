package hook

import (
	"slices"
	"strings"
)

// maxDepth bounds what is nested: substitutions, and shells told to run a text.
const maxDepth = 16

// unknown stands in a word for what only the shell could tell. No argument can
// hold it, so a word with it equals no other.
const unknown = '\x00'

// word is a word of a command, without its quotes, and where it begins.
type word struct {
	text string
	at   int
}

// command is a simple command: its words, and where it stands among pipes.
type command struct {
	words []word
	way   way
}

// commands lists the simple commands in shell text as they come to an end: also those
// in pipes, subshells, substitutions, conditions, loops and functions. Assignments
// before a command, redirections, comments and here-documents are left out, and
// what stands in <(…), which runs beside the command that reads it, and calls of
// functions that the text itself defines. ok is false where the text is cut short,
// nested too deeply, opens a descriptor from 3 up, which no gate passes on, or could
// mean something else.
func commands(text string) (list []command, ok bool) {
	r := &reader{text: text}
	ok = r.until(0) && r.at == len(text)
	return slices.DeleteFunc(r.list, r.calls), ok
}

// calls tells a command that is a function of the text.
func (r *reader) calls(c command) bool {
	words := c.words
	for len(words) > 1 && (words[0].text == "time" || words[0].text == "-p") {
		words = words[1:]
	}
	return slices.Contains(r.functions, words[0].text)
}

// way leads to a command: at each level the pipeline, and the place in it.
type way []struct{ pipeline, element int }

// reader reads text from left to right; at is the next byte.
type reader struct {
	text  string
	at    int
	depth int
	list  []command
	way   way
	state
	waiting   []hereDoc
	functions []string // names of those that are defined
}

// state is the command that is being read; a substitution in it has its own.
type state struct {
	argv   []word
	word   []byte
	begins int  // where it does
	open   bool // a word has begun
	quoted bool // part of it was quoted, so that it is no keyword
	into   bool // the next word is where a redirection leads
	here   bool // the next word ends a here-document
	strip  bool // whose end may be behind tabs
	inside bool // double quotes
	base   int  // levels of pipelines at its begin
}

type hereDoc struct {
	end  string
	tabs bool
	raw  bool // its end is quoted, and no line of it goes on behind a backslash
}

// reserved words stand where a command begins, and one begins after them. From one
// that opens to the one that closes, all is one element of a pipeline.
const (
	reserved = " if then elif else fi while until do done { } ! "
	opening  = " if while until for { "
	closes   = " fi done } "
)

// odd are words after which it is not told here what is a command.
const odd = " case select function coproc "

// until reads commands up to closing, which ends a substitution or a subshell and
// is read as well, or to the end of the text for 0.
func (r *reader) until(closing byte) bool {
	if r.depth++; r.depth > maxDepth {
		return false
	}
	outer, way, waiting := r.state, r.way, r.waiting
	r.state, r.way, r.waiting = state{base: len(way) + 1}, append(slices.Clip(way), struct{ pipeline, element int }{}), nil
	for r.at < len(r.text) {
		if c := r.text[r.at]; c == closing && c != 0 {
			r.at++
			// A here-document of one level does not go on in another.
			if !r.endCommand() || len(r.way) != r.base || len(r.waiting) > 0 {
				return false
			}
			r.state, r.way, r.waiting = outer, way, waiting
			r.depth--
			return true
		}
		if !r.step() {
			return false
		}
	}
	r.depth--
	return closing == 0 && r.endCommand() && len(r.way) == r.base && len(r.waiting) == 0
}

// step reads one byte, or one unit that begins with it.
func (r *reader) step() bool {
	switch c := r.text[r.at]; c {
	case ' ', '\t': // a carriage return is part of a word
		r.at++
		return r.endWord()
	case '\n':
		r.at++
		return r.endCommand() && r.bodies()
	case ';':
		r.at++
		return r.endCommand()
	case '|':
		r.at++
		if strings.HasPrefix(r.text[r.at:], "|") {
			r.at++
			return r.endCommand()
		}
		if strings.HasPrefix(r.text[r.at:], "&") {
			r.at++
		}
		return r.endElement()
	case '&':
		if r.at++; strings.HasPrefix(r.text[r.at:], ">") {
			return r.endWord()
		}
		return r.endCommand()
	case '(':
		return r.parenthesis()
	case ')':
		return false
	case '<', '>':
		return r.redirect()
	case '#':
		if r.open {
			r.put(c)
			return true
		}
		r.comment()
	case '\\':
		return r.escape()
	case '\'':
		return r.single()
	case '"':
		return r.double()
	case '`':
		return r.backquote()
	case '$':
		return r.dollar()
	default:
		r.put(c)
	}
	return true
}

// begin notes that a word begins here, or goes on.
func (r *reader) begin() {
	if !r.open {
		r.open, r.begins = true, r.at
	}
}

func (r *reader) put(c byte) {
	r.begin()
	r.word = append(r.word, c)
	r.at++
}

func (r *reader) unknown() {
	r.begin()
	r.word = append(r.word, unknown)
}

// parenthesis reads what is in ( ): arithmetic, a list that becomes a variable's
// value, the sign of a function, or a subshell. What else it may be is not told here.
func (r *reader) parenthesis() bool {
	switch rest := r.text[r.at+1:]; {
	case r.open && len(r.word) > 1 && r.word[len(r.word)-1] == '=':
		list := r.list
		r.at++
		ok := r.until(')')
		r.list = list
		return ok
	case r.open || len(r.argv) > 0:
		if len(r.argv) > 0 && r.open || !strings.HasPrefix(strings.TrimLeft(rest, " \t"), ")") {
			return false
		}
		r.at += 2 + len(rest) - len(strings.TrimLeft(rest, " \t"))
		r.functions = append(r.functions, string(r.word))
		if len(r.argv) > 0 {
			r.functions = append(r.functions, r.argv[0].text)
		}
		r.argv, r.word, r.open, r.quoted = nil, nil, false, false
		return true
	case r.into:
		return false
	}
	if is, ok := r.arithmetic(); is || !ok {
		return ok
	}
	r.at++
	return r.until(')')
}

func (r *reader) comment() {
	if end := strings.IndexByte(r.text[r.at:], '\n'); end >= 0 {
		r.at += end
		return
	}
	r.at = len(r.text)
}

// endWord puts the word that ends here where it belongs.
func (r *reader) endWord() bool {
	if !r.open {
		return true
	}
	one, quoted := word{string(r.word), r.begins}, r.quoted
	r.word, r.open, r.quoted = nil, false, false
	first := len(r.argv) == 0 && !quoted
	switch {
	case r.here:
		r.waiting = append(r.waiting, hereDoc{one.text, r.strip, quoted})
		r.here, r.into = false, false
	case r.into:
		r.into = false
	case first && one.text == "[[":
		return r.test()
	case first && strings.Contains(odd, " "+one.text+" "):
		return false
	case first && strings.Contains(closes, " "+one.text+" "):
		return r.leave()
	case first && strings.Contains(reserved, " "+one.text+" "):
		return !strings.Contains(opening, " "+one.text+" ") || r.enter()
	case len(r.argv) == 0 && assignment(one.text):
	default:
		r.argv = append(r.argv, one)
		return !first || one.text != "for" || r.enter()
	}
	return true
}

// enter begins what a later word closes.
func (r *reader) enter() bool {
	r.depth++
	r.way = append(slices.Clip(r.way), struct{ pipeline, element int }{})
	return r.depth <= maxDepth
}

// leave ends it.
func (r *reader) leave() bool {
	if len(r.way) == r.base {
		return false
	}
	r.depth--
	r.way = r.way[:len(r.way)-1]
	return true
}

// endElement ends a command, and a pipe leads to the next.
func (r *reader) endElement() bool {
	ok := r.endWord() && !r.into
	if len(r.argv) > 0 {
		r.list = append(r.list, command{r.argv, slices.Clone(r.way)})
		r.argv = nil
	}
	r.way[len(r.way)-1].element++
	return ok
}

// endCommand ends a command and the pipeline it is in.
func (r *reader) endCommand() bool {
	ok := r.endElement()
	last := &r.way[len(r.way)-1]
	last.pipeline, last.element = last.pipeline+1, 0
	return ok
}

// test passes over [[ … ]], where && and < mean something else. The commands
// substituted in it are found.
func (r *reader) test() bool {
	for ok := true; ok && r.at < len(r.text); {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n':
			r.at++
			rest := r.text[r.at:]
			if strings.HasPrefix(rest, "#") {
				return false
			}
			if strings.HasPrefix(rest, "]]") && (len(rest) == 2 || strings.IndexByte(" \t\n;&|)", rest[2]) >= 0) {
				r.at += len("]]")
				r.word, r.open, r.quoted = nil, false, false
				return true
			}
		case '\\':
			ok = r.escape()
		case '\'':
			ok = r.single()
		case '"':
			ok = r.double()
		case '`':
			ok = r.backquote()
		case '$':
			ok = r.dollar()
		default:
			r.at++
		}
	}
	return false
}

// assignment tells whether a word before a command sets a variable: NAME=…,
// NAME+=… or NAME[…]=….
func assignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	name = strings.TrimSuffix(name, "+")
	if i := strings.IndexByte(name, '['); i > 0 && strings.HasSuffix(name, "]") {
		name = name[:i]
	}
	return ok && variable(name)
}

func variable(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// redirect reads an operator; the word after it is no argument.
func (r *reader) redirect() bool {
	if r.open && !r.quoted && strings.Trim(string(r.word), "0123456789") == "" {
		if n := strings.TrimLeft(string(r.word), "0"); len(n) > 1 || n > "2" {
			return false
		}
		r.word, r.open = nil, false // the number of a descriptor
	}
	rest := r.text[r.at:]
	if strings.HasPrefix(rest, "<(") || strings.HasPrefix(rest, ">(") {
		r.unknown()
		r.at += 2
		list := r.list
		ok := r.until(')')
		r.list = list
		return ok
	}
	if w := string(r.word); strings.HasPrefix(w, "{") && strings.HasSuffix(w, "}") { // a variable gets the number
		return false
	}
	if !r.endWord() || r.into {
		return false
	}
	for _, op := range []string{"<<<", "<<-", "<<", ">>", "<&", ">&", "<>", ">|", "<", ">"} {
		if strings.HasPrefix(rest, op) {
			r.at += len(op)
			r.into = true
			r.here, r.strip = op == "<<" || op == "<<-", op == "<<-"
			break
		}
	}
	return true
}

// bodies passes over the here-documents that begin on this line.
func (r *reader) bodies() bool {
	for len(r.waiting) > 0 {
		doc := r.waiting[0]
		if r.at >= len(r.text) {
			return false
		}
		line := r.bodyLine()
		for !doc.raw && goesOn(line) && r.at < len(r.text) {
			line = line[:len(line)-1] + r.bodyLine()
		}
		if doc.tabs {
			line = strings.TrimLeft(line, "\t")
		}
		if line == doc.end {
			r.waiting = r.waiting[1:]
		}
	}
	return true
}

// bodyLine reads to the end of a line.
func (r *reader) bodyLine() string {
	line, _, more := strings.Cut(r.text[r.at:], "\n")
	if r.at += len(line); more {
		r.at++
	}
	return line
}

// goesOn tells whether a backslash takes the end of a line away.
func goesOn(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 > 0
}

func (r *reader) escape() bool {
	if r.at+1 == len(r.text) {
		return false
	}
	if r.text[r.at+1] == '\n' {
		r.at += 2
		return true
	}
	r.begin()
	r.quoted = true
	r.at++
	r.put(r.text[r.at])
	return true
}

func (r *reader) single() bool {
	end := strings.IndexByte(r.text[r.at+1:], '\'')
	if end < 0 {
		return false
	}
	r.begin()
	r.word = append(r.word, r.text[r.at+1:r.at+1+end]...)
	r.quoted = true
	r.at += end + 2
	return true
}

// ansi reads $'…', whose escapes nobody needs to know.
func (r *reader) ansi() bool {
	r.unknown()
	r.quoted = true
	for r.at += 2; r.at < len(r.text); r.at++ {
		switch r.text[r.at] {
		case '\\':
			r.at++
		case '\'':
			r.at++
			return true
		}
	}
	r.at = len(r.text)
	return false
}

func (r *reader) double() bool {
	r.begin()
	r.at++
	r.quoted = true
	outer := r.inside
	r.inside = true
	defer func() { r.inside = outer }()
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case '"':
			r.at++
			return true
		case '\\':
			if r.at++; r.at == len(r.text) {
				return false
			}
			switch next := r.text[r.at]; {
			case next == '\n':
				r.at++
				continue
			case strings.IndexByte("$`\"\\", next) < 0:
				r.word = append(r.word, '\\')
			}
			r.put(r.text[r.at])
		case '`':
			if !r.backquote() {
				return false
			}
		case '$':
			if !r.dollar() {
				return false
			}
		default:
			r.put(c)
		}
	}
	return false
}

// dollar reads an expansion. Its value is unknown; the commands in it are not.
func (r *reader) dollar() bool {
	rest := r.text[r.at:]
	switch {
	case strings.HasPrefix(rest, "$'") && !r.inside:
		return r.ansi()
	case strings.HasPrefix(rest, "$("):
		r.unknown()
		r.at++
		if is, ok := r.arithmetic(); is || !ok {
			return ok
		}
		r.at++
		return r.until(')')
	case strings.HasPrefix(rest, "$["), strings.HasPrefix(rest, "${ "), strings.HasPrefix(rest, "${\t"), strings.HasPrefix(rest, "${\n"), strings.HasPrefix(rest, "${|"):
		return false // old arithmetic, and commands in braces
	case strings.HasPrefix(rest, "${"):
		r.unknown()
		r.at += 2
		return r.braces()
	}
	r.begin()
	r.at++
	if r.at < len(r.text) && (variable(r.text[r.at:r.at+1]) || strings.IndexByte("0123456789@*#?-$!", r.text[r.at]) >= 0) {
		r.unknown()
		for first := true; r.at < len(r.text) && (first || variable("_"+r.text[r.at:r.at+1])); first = false {
			r.at++
		}
		return true
	}
	r.word = append(r.word, '$')
	return true
}

// arithmetic passes over ((…)), in which < and # are no operators of the shell. It
// is none where the two at the end are apart: that is a subshell in another. ok is
// false where a quote in it could hide a parenthesis.
func (r *reader) arithmetic() (is, ok bool) {
	rest := r.text[r.at:]
	if !strings.HasPrefix(rest, "((") {
		return false, true
	}
	open := 0
	for i := range len(rest) {
		switch rest[i] {
		case '\'', '"', '`', '\\':
			return false, false
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				if rest[i-1] != ')' {
					return false, true
				}
				r.at += i + 1
				return true, true
			}
		}
	}
	return false, false
}

// braces reads the rest of ${…}.
func (r *reader) braces() bool {
	if r.depth++; r.depth > maxDepth {
		return false
	}
	defer func() { r.depth-- }()
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case '}':
			r.at++
			return true
		case '\\':
			r.at = min(r.at+2, len(r.text))
		case '\'':
			if r.inside { // it quotes behind some operators, and not behind others
				return false
			}
			end := strings.IndexByte(r.text[r.at+1:], '\'')
			if end < 0 {
				return false
			}
			r.at += end + 2
		case '"':
			if !r.double() {
				return false
			}
		case '`':
			if !r.backquote() {
				return false
			}
		case '$':
			if !r.dollar() {
				return false
			}
		default:
			r.at++
		}
	}
	return false
}

// backquote reads `…`. With a backslash in it, its text is not what is run, and its
// commands are not looked for.
func (r *reader) backquote() bool {
	r.unknown()
	r.at++
	end := r.at
	for end < len(r.text) && r.text[end] != '`' {
		if r.text[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(r.text) {
		return false
	}
	if strings.IndexByte(r.text[r.at:end], '\\') >= 0 {
		r.at = end + 1
		return true
	}
	return r.until('`') && r.at == end+1 // the first one ends it, also in a comment
}
