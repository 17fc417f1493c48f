package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// clean makes text that others chose safe to show: control bytes, C1 controls,
// bidi controls and what is not UTF-8 become escapes, so that it stays in its
// row and cannot speak to the terminal (C135).
func clean(s string) string {
	safe := true
	for _, r := range s {
		if !shows(r) {
			safe = false
			break
		}
	}
	if safe {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case shows(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// shows tells whether a rune may be written as it is. Marks that combine, of
// which hundreds may pile up on one letter, are not.
func shows(r rune) bool {
	return r != unicode.ReplacementChar && unicode.IsPrint(r) && !unicode.In(r, unicode.Mn, unicode.Me)
}

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

// table writes rows in columns.
type table struct{ w *tabwriter.Writer }

func (a *app) table(head ...string) *table {
	t := &table{tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t *table) row(cells ...string) {
	for i := range cells {
		if cells[i] == "" {
			cells[i] = "-"
		}
		cells[i] = clean(cells[i])
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) end() error { return t.w.Flush() }

// ago says how long ago t was, roughly.
func ago(now, t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return ""
	}
	return span(now.Sub(t))
}

// span writes a duration in at most two units; never a negative one.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d/time.Minute), int(d%time.Minute/time.Second))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d/time.Hour), int(d%time.Hour/time.Minute))
	}
	return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
