package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bad reports a value, key or name in a file or variable that cannot be taken
// (78). Its texts hold no control characters, whatever the file holds.
type Bad struct {
	File string // empty for a variable or an argument
	Line int    // from 1; 0 when the whole file is meant
	Col  int    // in bytes, from 1
	Key  string // the dotted key, or the variable's name
	Text string // what stands there, escaped
	Why  string

	// Caret is the line of the file and, below it, a mark; empty without a file.
	Caret string
}

// Error is one line, without the Caret.
func (b *Bad) Error() string {
	var out strings.Builder
	if b.File != "" {
		out.WriteString(escape(b.File))
		if b.Line > 0 {
			fmt.Fprintf(&out, ":%d:%d", b.Line, b.Col)
		}
		out.WriteString(": ")
	}
	if b.Key != "" {
		out.WriteString(escape(b.Key))
		if b.Text != "" {
			out.WriteString(" = " + b.Text)
		}
		out.WriteString(": ")
	}
	return out.String() + b.Why
}

func badVariable(name, text, why string) *Bad {
	return &Bad{Key: name, Text: quote(text), Why: why}
}

// maxText bounds what a message repeats of a value.
const maxText = 80

func quote(text string) string {
	if len(text) > maxText {
		return strconv.QuoteToASCII(text[:maxText]) + "…"
	}
	return strconv.QuoteToASCII(text)
}

// escape makes text fit for one line: printable ASCII stays, the rest becomes
// Go escapes.
func escape(text string) string {
	cut := len(text) > 4*maxText
	if cut {
		text = text[:4*maxText]
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
		case r < ' ' || r > '~':
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			out.WriteRune(r)
		}
		text = text[size:]
	}
	if cut {
		out.WriteString("…")
	}
	return out.String()
}

// span is a stretch of a file in bytes.
type span struct{ off, len int }

// position tells line and column of an offset, both from 1.
func position(data string, off int) (line, col int) {
	off = min(max(off, 0), len(data))
	line = 1 + strings.Count(data[:off], "\n")
	return line, off - strings.LastIndexByte(data[:off], '\n')
}

// caretWidth bounds the part of a line that is shown.
const caretWidth = 120

// caret shows the line that holds at and marks the stretch.
func caret(data string, at span) string {
	line, col := position(data, at.off)
	text := strings.Split(data, "\n")[line-1]
	text = strings.TrimSuffix(text, "\r")
	before := plain(text[:min(col-1, len(text))])
	rest := plain(text[min(col-1, len(text)):])
	marked := plain(text[min(col-1, len(text)):min(col-1+at.len, len(text))])
	if cut := len(before) - caretWidth/2; cut > 0 {
		before = before[cut:]
	}
	rest = rest[:min(len(rest), caretWidth-len(before))]
	width := max(1, min(len(marked), len(rest)))
	return before + rest + "\n" + strings.Repeat(" ", len(before)) + "^" + strings.Repeat("~", width-1)
}

// plain makes every character one column of printable ASCII.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r > '~':
			return '?'
		}
		return r
	}, text)
}
