package engine

import "strings"

// unknown stands in a word for a part that only the shell could tell, such as
// a variable. No argument can hold a NUL byte, so it never looks like a name.
const unknown = "\x00"

// shell is sh(1) and its relatives: text after -c, or a script.
func shell(s *search, args []string) (string, bool) {
	text := false
	for len(args) > 0 {
		word := args[0]
		if len(word) < 2 || word[0] != '-' && word[0] != '+' {
			break
		}
		args = args[1:]
		if word == "--" {
			break
		}
		switch long, isLong := strings.CutPrefix(word, "--"); {
		case long == "rcfile" || long == "init-file" || long == "init-command":
			args = args[min(1, len(args)):]
		case isLong:
			text = text || long == "command"
		default:
			text = text || word[0] == '-' && strings.Contains(word, "c")
			if strings.ContainsAny(word[len(word)-1:], "oO") {
				args = args[min(1, len(args)):]
			}
		}
	}
	if len(args) == 0 {
		return "", false
	}
	if text {
		return s.text(args[0])
	}
	return s.script(args)
}

// text judges what a shell is told to run: simple commands one after the
// other, of which exactly one engine is to be found. Anything that may or may
// not run (a pipe, ||, &, a subshell, if, for, …) is not judged.
func (s *search) text(text string) (string, bool) {
	commands, ok := parse(text)
	if !ok {
		return "", false
	}
	found := ""
	for _, argv := range commands {
		if builtins[argv[0]] {
			continue
		}
		name, ok := s.command(argv)
		if ok && found != "" && name != found {
			return "", false
		}
		if ok {
			found = name
		}
		if argv[0] == "exec" {
			break // nothing after it runs
		}
	}
	return found, found != ""
}

// split splits the text of env -S, which knows quotes and backslashes and
// variables, but neither operators nor patterns.
func split(text string) ([]string, bool) {
	p := parser{text: text, words: true}
	ok := p.run()
	if !ok || len(p.commands) > 1 {
		return nil, false
	}
	if len(p.commands) == 0 {
		return nil, true
	}
	return p.commands[0], true
}

// parse reads shell text as simple commands joined by ;, && and ends of line.
// It leaves out assignments, redirections and comments. A command is cut
// before a word that may become several or none.
func parse(text string) (commands [][]string, ok bool) {
	p := parser{text: text}
	ok = p.run()
	return p.commands, ok
}

// parser reads the text from left to right; at is the next byte.
type parser struct {
	text     string
	at       int
	words    bool // env -S: no operators
	commands [][]string

	argv   []string // of the command being read
	cut    bool     // the rest of this command cannot be known
	into   bool     // the next word is the target of a redirection
	word   []byte
	open   bool // a word has begun
	quoted bool // part of it was quoted: it is no keyword
	many   bool // it may become several words, or none
}

// keywords begin commands that are more than simple.
var keywords = map[string]bool{
	"if": true, "then": true, "elif": true, "else": true, "fi": true, "for": true, "while": true, "until": true,
	"do": true, "done": true, "case": true, "esac": true, "select": true, "function": true, "coproc": true,
	"{": true, "}": true, "!": true, "[[": true, "begin": true, "end": true, "switch": true,
}

// builtins are the shell's own commands that start nothing, so that none of
// them is looked for on disk.
var builtins = map[string]bool{
	".": true, ":": true, "source": true, "cd": true, "export": true, "unset": true, "set": true, "shopt": true,
	"ulimit": true, "umask": true, "trap": true, "true": true, "test": true, "[": true, "echo": true, "printf": true,
	"read": true, "sleep": true, "wait": true, "alias": true, "local": true, "readonly": true, "pushd": true, "popd": true,
	"eval": true, "exit": true,
}

func (p *parser) run() bool {
	for p.at < len(p.text) {
		if !p.step() {
			return false
		}
	}
	return p.endCommand()
}

// step reads one byte, or one unit that begins with it.
func (p *parser) step() bool {
	c := p.text[p.at]
	if p.words && strings.IndexByte("\n;&|()<>`*?[{", c) >= 0 {
		if c == '\n' {
			c = ' '
		} else {
			p.put(c)
			return true
		}
	}
	switch c {
	case ' ', '\t', '\r':
		p.at++
		return p.endWord()
	case '\n', ';':
		p.at++
		return !strings.HasPrefix(p.text[p.at-1:], ";;") && p.endCommand()
	case '&':
		return p.ampersand()
	case '|', '(', ')':
		return false
	case '<', '>':
		return p.redirect()
	case '#':
		if !p.open {
			p.comment()
			return true
		}
	case '*', '?', '[', '{':
		p.many = p.many || c != '{' || strings.ContainsAny(p.rest(), ",.")
	case '\\':
		return p.escape()
	case '\'':
		return p.single()
	case '"':
		return p.double()
	case '`':
		return p.backquote(false)
	case '$':
		return p.dollar(false)
	}
	p.put(c)
	return true
}

// rest is what follows of the word being read, as far as blanks show.
func (p *parser) rest() string {
	rest := p.text[p.at:]
	if end := strings.IndexAny(rest, " \t\n;"); end >= 0 {
		return rest[:end]
	}
	return rest
}

func (p *parser) put(c byte) {
	p.word, p.open = append(p.word, c), true
	p.at++
}

func (p *parser) comment() {
	if end := strings.IndexByte(p.text[p.at:], '\n'); end >= 0 {
		p.at += end
		return
	}
	p.at = len(p.text)
}

func (p *parser) ampersand() bool {
	switch rest := p.text[p.at:]; {
	case strings.HasPrefix(rest, "&&"):
		p.at += 2
		return p.endCommand()
	case strings.HasPrefix(rest, "&>"):
		p.at++
		return p.endWord() && p.redirect()
	default:
		return false
	}
}

// redirect reads the operator; the word after it is left out. Here-documents
// and process substitutions are not read.
func (p *parser) redirect() bool {
	if p.open && !p.quoted && strings.Trim(string(p.word), "0123456789") == "" {
		p.word, p.open = nil, false // the number of a descriptor
	}
	if !p.endWord() || p.into {
		return false
	}
	for _, op := range []string{"<<<", "<<", "<(", ">(", ">>", "<&", ">&", "<>", ">|", "<", ">"} {
		if strings.HasPrefix(p.text[p.at:], op) {
			p.at += len(op)
			p.into = true
			return op != "<<" && op != "<(" && op != ">("
		}
	}
	return false
}

func (p *parser) escape() bool {
	if p.at++; p.at == len(p.text) {
		return false
	}
	if p.text[p.at] == '\n' {
		p.at++
		return true
	}
	if p.words && (p.text[p.at] == '_' || name(p.text[p.at:p.at+1]) > 0) {
		return false // env -S gives letters a meaning of their own here
	}
	p.quoted = true
	p.put(p.text[p.at])
	return true
}

func (p *parser) single() bool {
	end := strings.IndexByte(p.text[p.at+1:], '\'')
	if end < 0 {
		return false
	}
	p.word = append(p.word, p.text[p.at+1:p.at+1+end]...)
	p.open, p.quoted = true, true
	p.at += end + 2
	return true
}

func (p *parser) double() bool {
	p.open, p.quoted = true, true
	p.at++
	for p.at < len(p.text) {
		switch c := p.text[p.at]; c {
		case '"':
			p.at++
			return true
		case '\\':
			if p.at++; p.at == len(p.text) {
				return false
			}
			if next := p.text[p.at]; next == '\n' {
				p.at++
				continue
			} else if strings.IndexByte("$`\"\\", next) < 0 {
				p.word = append(p.word, '\\')
			}
			p.put(p.text[p.at])
		case '`':
			if p.words {
				p.put(c)
			} else if !p.backquote(true) {
				return false
			}
		case '$':
			if !p.dollar(true) {
				return false
			}
		default:
			p.put(c)
		}
	}
	return false
}

func (p *parser) backquote(inDouble bool) bool {
	for i := p.at + 1; i < len(p.text); i++ {
		switch p.text[i] {
		case '\\':
			i++
		case '`':
			p.expand(i+1, inDouble)
			return true
		}
	}
	return false
}

// dollar reads an expansion. What it becomes is unknown; in double quotes it
// stays part of one word, except "$@".
func (p *parser) dollar(inDouble bool) bool {
	rest := p.text[p.at+1:]
	switch {
	case rest == "":
		p.put('$')
	case rest[0] == '(' && !p.words:
		end := closing(rest)
		if end < 0 {
			return false
		}
		p.expand(p.at+1+end, inDouble)
	case rest[0] == '{':
		end := strings.IndexByte(rest, '}')
		if end < 0 || strings.ContainsAny(rest[1:end], "`'\"\\({$ \n") {
			return false // more than a plain variable with a plain default
		}
		p.expand(p.at+1+end+1, inDouble && !strings.ContainsAny(rest[:end], "@*"))
	case rest[0] == '\'' && !inDouble:
		return p.ansi()
	case rest[0] == '"' && !inDouble:
		p.at++
		return p.double()
	case rest[0] == '@' || rest[0] == '*':
		p.expand(p.at+2, false)
	case strings.IndexByte("#?$!-0123456789", rest[0]) >= 0:
		p.expand(p.at+2, inDouble)
	case name(rest) > 0:
		p.expand(p.at+1+name(rest), inDouble)
	default:
		p.put('$')
	}
	return true
}

// expand notes an unknown part that ends before end. Outside quotes it may
// fall into several words, except that a path below a variable ($HOME/bin/x)
// is taken for one, as everybody who writes it does.
func (p *parser) expand(end int, whole bool) {
	below := !p.open && end < len(p.text) && p.text[end] == '/'
	p.many = p.many || !whole && !below
	p.word = append(p.word, unknown...)
	p.open, p.quoted = true, true
	p.at = end
}

// ansi reads $'…' without translating its escapes.
func (p *parser) ansi() bool {
	for i := p.at + 2; i < len(p.text); i++ {
		switch p.text[i] {
		case '\\':
			i++
		case '\'':
			p.expand(i+1, true)
			return true
		}
	}
	return false
}

// name is the length of the variable name that text begins with.
func name(text string) int {
	n := 0
	for n < len(text) {
		c := text[n]
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || n > 0 && c >= '0' && c <= '9') {
			break
		}
		n++
	}
	return n
}

// closing finds the end of a command substitution: the byte after the
// parenthesis that closes the one text begins with, or -1.
func closing(text string) int {
	depth, double := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '"':
			double = !double
		case double:
		case c == '\'':
			end := strings.IndexByte(text[i+1:], '\'')
			if end < 0 {
				return -1
			}
			i += end + 1
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

func (p *parser) endWord() bool {
	if !p.open {
		return true
	}
	word, quoted, many, into := string(p.word), p.quoted, p.many, p.into
	p.word, p.open, p.quoted, p.many, p.into = nil, false, false, false, false
	switch {
	case into || p.cut:
		return true
	case len(p.argv) == 0 && !p.words && assignment(word):
		return true
	case len(p.argv) == 0 && !p.words && !quoted && keywords[word]:
		return false
	case many:
		p.cut = true
	default:
		p.argv = append(p.argv, word)
	}
	return true
}

// assignment tells NAME=value and NAME+=value from other words.
func assignment(word string) bool {
	n := name(word)
	return n > 0 && strings.HasPrefix(strings.TrimPrefix(word[n:], "+"), "=")
}

func (p *parser) endCommand() bool {
	if !p.endWord() || p.into {
		return false
	}
	if len(p.argv) > 0 {
		p.commands = append(p.commands, p.argv)
	}
	p.argv, p.cut = nil, false
	return true
}
