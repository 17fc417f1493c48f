package cli

import (
	"bufio"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/tui"
)

// clean makes text that others chose safe to show (C135).
func clean(s string) string { return handsel.Legible(s) }

// oneLine keeps a message on one line.
func oneLine(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "; ")
}

// quoteWord is a name that another program chose.
func quoteWord(s string) string { return clean(s) }

// printJSON writes one value to stdout.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printJSONLine writes one value on one line, for a stream of them.
func (a *app) printJSONLine(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table writes rows in columns, on a terminal no wider than it is.
type table struct {
	a    *app
	rows [][]string
}

func (a *app) table(head ...string) *table { return &table{a: a, rows: [][]string{head}} }

func (t *table) row(cells ...string) {
	for i := range cells {
		if cells[i] == "" {
			cells[i] = "-"
		}
		cells[i] = clean(cells[i])
	}
	t.rows = append(t.rows, cells)
}

func (t *table) end() error {
	var widths []int
	for _, cells := range t.rows {
		for i, text := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], tui.Cells(text))
		}
	}
	room := terminalWidth(t.a.Out)
	if room > 0 {
		squeeze(widths, room-between*(len(widths)-1))
	}
	w := bufio.NewWriter(t.a.Out)
	for _, cells := range t.rows {
		line := ""
		for i, text := range cells {
			line += cellText(text, widths[i], i < len(cells)-1)
		}
		if room > 0 {
			line = tui.Cut(line, room)
		}
		_, _ = w.WriteString(line + "\n") // Flush tells
	}
	return w.Flush()
}

// cellText is one cell, cut to its column, with what parts it from the next.
func cellText(text string, width int, filled bool) string {
	room := width - tui.Cells(text)
	if room < 0 {
		text, room = tui.Fill(text, width), 0
	}
	if filled {
		text += strings.Repeat(" ", room+between)
	}
	return text
}

const (
	between    = 2 // columns between two cells
	leastWidth = 8 // of a cell that is cut: the end of an id has that many
)

// squeeze takes from the widest columns until all of them have room, or none has
// anything to give.
func squeeze(widths []int, room int) {
	total := 0
	for _, w := range widths {
		total += w
	}
	for ; total > room; total-- {
		widest := 0
		for i, w := range widths {
			if w >= widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= leastWidth {
			return
		}
		widths[widest]--
	}
}

// ago says how long ago t was, roughly.
func ago(now, t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return ""
	}
	return span(now.Sub(t))
}

// span writes a duration in at most two units; never a negative one.
func span(d time.Duration) string { return handsel.Span(d) }

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
