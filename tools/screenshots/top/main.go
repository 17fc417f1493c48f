// Command top turns what tmux captured of handsel's screen into an SVG
// (tools/screenshots/top.sh calls it).
//
//	tmux capture-pane -e -p | go run . -columns 100 -rows 30 -title 'handsel top' >top.svg
//
// What differs from one time to the next (pids, ids, ages, the time, the home) is
// put in words that do not, so that the same screen makes the same picture. It
// knows the colours and attributes that the screen uses, and passes over every
// other sequence. A rune is taken for one column wide.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The size of a cell, and what is around the screen.
const (
	cellWidth  = 8.4
	cellHeight = 18
	margin     = 14
	bar        = 28
)

func main() {
	columns, rows := flag.Int("columns", 100, "of the terminal"), flag.Int("rows", 30, "of the terminal")
	title := flag.String("title", "", "of the window")
	flag.Parse()
	if err := draw(os.Stdin, os.Stdout, *columns, *rows, *title); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// style is how a text is shown.
type style struct {
	ink                    string
	strong, faint, reverse bool
}

var inks = map[int]string{31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea"}

const (
	paper = "#0d1117"
	ink   = "#e6edf3"
)

// take changes a style by one sequence of attributes.
func (s *style) take(codes string) {
	for code := range strings.SplitSeq(codes, ";") {
		n, _ := strconv.Atoi(code) // an empty one is 0
		switch {
		case n == 0:
			*s = style{}
		case n == 1:
			s.strong = true
		case n == 2:
			s.faint = true
		case n == 7:
			s.reverse = true
		case n == 22:
			s.strong, s.faint = false, false
		case n == 27:
			s.reverse = false
		case n == 39:
			s.ink = ""
		case inks[n] != "":
			s.ink = inks[n]
		}
	}
}

func draw(in io.Reader, out io.Writer, columns, rows int, title string) error {
	w := bufio.NewWriter(out)
	width, height := float64(columns)*cellWidth+2*margin, float64(rows*cellHeight+2*margin+bar)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label=%q>`+"\n", width, height, html.EscapeString(title))
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", paper)
	fmt.Fprintf(w, `<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" fill="%s">`+"\n", ink)
	fmt.Fprintf(w, `<text x="%.1f" y="20" text-anchor="middle" opacity=".6">%s</text>`+"\n", width/2, html.EscapeString(title))
	lines := bufio.NewScanner(in)
	var now style
	for row := 0; lines.Scan() && row < rows; row++ {
		drawLine(w, steady(lines.Text()), bar+margin+row*cellHeight, &now)
	}
	fmt.Fprintln(w, "</g>\n</svg>")
	if err := lines.Err(); err != nil {
		return err
	}
	return w.Flush()
}

// steady puts words that stay the same for what does not. The spaces after it
// are part of it, so that columns stay columns.
func steady(line string) string {
	for _, v := range []struct{ what, word string }{
		{`/tmp/tmp\.\w{10}/home`, "/var/lib/machine/handsel"}, // as long
		{`\d\d:\d\d:\d\dZ`, "12:00:00Z"},
		{`, held by .*`, ", held by pid 4711 (child 4712) …"},
		{`\b[0-9a-f]{8}\b *`, "5f0c2a9e"},
		{`\b(\d+m)?\d+s\b *`, "42s"},
		{`\b\d{3,7}\b *`, "4711"},
	} {
		line = regexp.MustCompile(v.what).ReplaceAllStringFunc(line, func(found string) string {
			if !strings.HasSuffix(found, " ") {
				return v.word
			}
			return fmt.Sprintf("%-*s", len(found), v.word)
		})
	}
	return line
}

// drawLine draws one line of the screen, whose top is at y.
func drawLine(w io.Writer, line string, y int, now *style) {
	sequence := regexp.MustCompile("\x1b\\[([0-9;]*)([A-Za-z])")
	column := 0
	for line != "" {
		at := sequence.FindStringSubmatchIndex(line)
		text := line
		if at != nil {
			text = line[:at[0]]
		}
		column += drawText(w, text, column, y, *now)
		if at == nil {
			return
		}
		if line[at[4]:at[5]] == "m" {
			now.take(line[at[2]:at[3]])
		}
		line = line[at[1]:]
	}
}

// drawText draws a text of one style, and returns how many columns it takes.
//
// Blanks are such that no viewer joins them.
func drawText(w io.Writer, text string, column, y int, s style) int {
	cells := utf8.RuneCountInString(text)
	x, wide := margin+float64(column)*cellWidth, float64(cells)*cellWidth
	fill := s.ink
	if s.reverse {
		if fill == "" {
			fill = ink
		}
		fmt.Fprintf(w, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, wide, cellHeight, fill)
		fill = paper
	}
	if strings.TrimSpace(text) == "" {
		return cells
	}
	more := ""
	if fill != "" {
		more += fmt.Sprintf(` fill="%s"`, fill)
	}
	if s.strong {
		more += ` font-weight="bold"`
	}
	if s.faint {
		more += ` opacity=".65"`
	}
	fmt.Fprintf(w, `<text x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs"%s>%s</text>`+"\n", x, y+14, wide, more, strings.ReplaceAll(html.EscapeString(text), " ", "\u00a0"))
	return cells
}
