package handsel

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Legible makes text that others chose safe to show: control bytes, C1 controls,
// bidi controls, marks that combine and what is not UTF-8 become escapes, so that
// it stays on its line and cannot speak to the terminal (C135). Text that is
// legible stays as it is.
func Legible(text string) string {
	if !strings.ContainsFunc(text, illegible) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !illegible(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// illegible tells whether a rune may not be written as it is. Of marks that
// combine, hundreds may pile up on one letter.
func illegible(r rune) bool {
	return r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.In(r, unicode.Mn, unicode.Me)
}

// Span writes a duration as people read it, in at most two units; never a
// negative one.
func Span(d time.Duration) string {
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
