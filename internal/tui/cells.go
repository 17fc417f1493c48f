package tui

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/handsel/handsel"
)

// Cells is how many columns a legible text takes on the screen.
func Cells(text string) int {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return ansi.StringWidthWc(text)
		}
	}
	return len(text)
}

// Cut makes a legible text of what others chose, at most width columns of it.
func Cut(text string, width int) string {
	if width < 1 {
		return ""
	}
	if len(text) > 4*width+4 {
		text = text[:4*width+4] // no rune is longer, and an escape does not get shorter
	}
	text = handsel.Legible(text)
	if Cells(text) <= width {
		return text
	}
	used := 0
	for i, r := range text {
		w := 1
		if r >= 0x80 {
			w = ansi.StringWidthWc(string(r))
		}
		if used+w > width-1 {
			return text[:i] + "…"
		}
		used += w
	}
	return text
}

// cutLeft is the end of a legible text, at most width columns of it: where somebody
// is writing.
func cutLeft(text string, width int) string {
	if Cells(text) <= width {
		return text
	}
	runes := []rune(text[max(len(text)-4*width, 0):]) // no rune is longer
	for len(runes) > 0 && Cells(string(runes)) > width-1 {
		runes = runes[1:]
	}
	return "…" + strings.TrimPrefix(string(runes), "\uFFFD")
}

// Fill is Cut, padded to exactly width columns.
func Fill(text string, width int) string {
	text = Cut(text, width)
	return text + strings.Repeat(" ", max(width-Cells(text), 0))
}

// wrap breaks a legible text into lines of at most width columns, at spaces where
// there are some.
func wrap(text string, width int) (lines []string) {
	text = handsel.Legible(text)
	for Cells(text) > width {
		used, end, space := 0, 0, 0
		for i, r := range text {
			w := Cells(string(r))
			if used+w > width {
				break
			}
			used, end = used+w, i+len(string(r))
			if r == ' ' && i > 0 {
				space = i
			}
		}
		if space > width/3 {
			end = space
		}
		if end == 0 {
			break // narrower than one rune
		}
		lines = append(lines, text[:end])
		text = strings.TrimPrefix(text[end:], " ")
	}
	return append(lines, text)
}

// tone is what a text is about, for those who see colours; the words say it too.
type tone int

const (
	plain tone = iota
	good
	waits
	bad
	faint
	strong
	chosen
)

// paint puts colours on text: the first eight, which every terminal has set to
// what can be read on its own background.
type paint struct{ plain bool }

var inks = [...]string{plain: "", good: "32", waits: "35", bad: "1;31", faint: "2", strong: "1", chosen: "7"}

func (p paint) in(t tone, text string) string {
	code := inks[t]
	if p.plain {
		switch t {
		case bad:
			code = "1" // emphasis is no colour
		case good, waits:
			code = ""
		}
	}
	if code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
