package tui

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/handsel/handsel"
)

// The least screen on which the parts have room beside each other.
const (
	leastWidth  = 60
	leastHeight = 16
)

// View makes the screen as it is now.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	return v
}

// screen is all lines of it, as many as it has, none wider than it is.
func (m *model) screen() []string {
	switch {
	case m.width < leastWidth || m.height < leastHeight:
		return m.tooSmall()
	case m.board == nil:
		return m.framed([]string{m.titleLine()}, []string{m.paint.in(faint, "looking at the home …")}, m.footer())
	case m.over != nil:
		head := append(m.head(), m.paint.in(strong, Fill("── "+m.over.title()+" ", m.width)))
		return m.framed(head, m.over.lines(m.width, m.overRoom()), m.footer())
	}
	return m.framed(append(m.head(), m.tabs()...), m.list(), m.footer())
}

// framed puts the footer at the bottom.
func (m *model) framed(head, body, foot []string) []string {
	all := append(head, body...)
	for len(all) < m.height-len(foot) {
		all = append(all, "")
	}
	return append(all[:m.height-len(foot)], foot...)
}

func (m *model) tooSmall() []string {
	text := fmt.Sprintf("handsel top needs %dx%d, and this terminal has %dx%d. Make it larger, or press q and use handsel status.", leastWidth, leastHeight, m.width, m.height)
	lines := wrap(text, max(m.width, 1))
	return lines[:min(len(lines), max(m.height, 1))]
}

// head is what stands above the sections: whose home, the dispatcher, the pools,
// and what holds everything up.
func (m *model) head() []string {
	b := m.board
	lines := []string{m.titleLine()}
	away := time.Duration(0)
	if !m.missed.IsZero() && m.answered {
		away = m.seen.Sub(m.missed)
	}
	text, trouble := dispatcherText(b, m.answered, away)
	lines = append(lines, m.told(text, trouble, bad, faint)...)
	lines = append(lines, m.poolLines()...)
	if text := heldText(b); text != "" {
		lines = append(lines, m.told(text, true, waits, waits)...)
	}
	if n := len(b.Problems); n > 0 {
		text := "! " + b.Problems[0]
		if n > 1 {
			text = fmt.Sprintf("! %d problems (0 shows them), one is: %s", n, b.Problems[0])
		}
		lines = append(lines, m.paint.in(bad, Cut(text, m.width)))
	}
	return lines
}

// told is a text on one line, or on two where it matters.
func (m *model) told(text string, matters bool, t, otherwise tone) (lines []string) {
	if !matters {
		return []string{m.paint.in(otherwise, Cut(text, m.width))}
	}
	all := wrap(text, m.width)
	if len(all) > 2 {
		all[1] = Cut(all[1]+" "+all[2], m.width)
		all = all[:2]
	}
	for _, line := range all {
		lines = append(lines, m.paint.in(t, line))
	}
	return lines
}

// titleLine says whose home it is, and of when what is shown is.
func (m *model) titleLine() string {
	left, right := "handsel top", ""
	if m.board != nil {
		left += "  " + m.board.Root
		right = m.board.At.UTC().Format("15:04:05Z")
	}
	if m.looking && m.now.Sub(m.began) >= slowLook {
		right = "looking for " + handsel.Span(m.now.Sub(m.began))
		if m.board != nil {
			right += "; this is " + handsel.Span(m.now.Sub(m.seen)) + " old"
		}
	}
	return m.paint.in(strong, Fill(left, m.width-Cells(right)-1)+" "+right)
}

// poolLines puts the pools beside each other, on a few lines.
func (m *model) poolLines() (lines []string) {
	texts, tones := poolTexts(m.board)
	if len(texts) == 0 {
		return []string{m.paint.in(faint, "no pool has a cap, and no slot is held")}
	}
	most := 2
	if m.height >= 40 {
		most = 5
	}
	line, used := "", 0
	for i, text := range texts {
		text = Cut(text, m.width)
		if used > 0 && used+3+Cells(text) > m.width {
			lines, line, used = append(lines, line), "", 0
			if len(lines) == most {
				lines[most-1] = m.paint.in(faint, fmt.Sprintf("and %d pools more, of %d: handsel status", len(texts)-i+1, len(texts)))
				return lines
			}
		}
		if used > 0 {
			line, used = line+"   ", used+3
		}
		line, used = line+m.paint.in(tones[i], text), used+Cells(text)
	}
	return append(lines, line)
}

// tabs name the sections: the five permissions, and below them the others.
func (m *model) tabs() []string {
	var lines []string
	line, used := "", 0
	for i, s := range m.sections {
		text := fmt.Sprintf("%d %s %d", (i+1)%10, s.name(), count(m.board, s))
		if i == m.current {
			text = "[" + text + "]"
		} else {
			text = " " + text + " "
		}
		if i == 5 {
			lines, line, used = append(lines, line), "", 0
		}
		if used+Cells(text) > m.width {
			text = Cut(text, m.width-used)
		}
		used += Cells(text)
		if i == m.current {
			text = m.paint.in(strong, text)
		}
		line += text
	}
	return append(lines, line)
}

// list is the heads of the columns, the rows that are in sight, and what there is
// to say about the selected one.
func (m *model) list() []string {
	s := m.section()
	at := &m.spots[m.current]
	widths := layout(s.columns(), m.width-2)
	lines := []string{m.paint.in(faint, Fill("  "+row(heads(s.columns()), widths), m.width))}
	room := m.listRoom()
	for i := at.top; i < min(at.top+room, len(m.rows)); i++ {
		text := row(s.cells(m.rows[i]), widths)
		if i == at.cursor {
			lines = append(lines, m.paint.in(chosen, Fill("> "+text, m.width)))
			continue
		}
		lines = append(lines, m.paint.in(s.tone(m.rows[i]), strings.TrimRight("  "+text, " ")))
	}
	if len(m.rows) == 0 {
		lines = append(lines, m.paint.in(faint, m.emptyText(s)))
	}
	for len(lines) < room+1 {
		lines = append(lines, "")
	}
	return append(lines, m.details(s)...)
}

func (m *model) emptyText(s section) string {
	if m.filter != "" && s.len() > 0 {
		return Cut(fmt.Sprintf("  none of %d fits the filter (esc shows all)", s.len()), m.width)
	}
	return "  nothing"
}

// detailLines is how many lines there are about the selected row.
const detailLines = 3

func (m *model) details(s section) []string {
	place := ""
	if n := len(m.rows); n > 0 {
		at := m.spots[m.current]
		place = fmt.Sprintf(" %d of %d ", at.cursor+1, n)
	}
	lines := []string{m.paint.in(faint, strings.Repeat("-", max(m.width-len(place)-2, 0))+place+"--")}
	if len(m.rows) > 0 {
		for _, text := range s.more(m.rows[m.spots[m.current].cursor]) {
			lines = append(lines, Cut(text, m.width))
		}
	}
	for len(lines) < detailLines {
		lines = append(lines, "")
	}
	return lines[:detailLines]
}

// footer is the bottom line: a question, the filter, what was done, or the keys.
func (m *model) footer() []string {
	switch {
	case m.asking != nil:
		// What is asked must be read whole.
		lines := wrap(m.asking.text+"?  y: yes, any other key: no", m.width)
		for i := range lines {
			lines[i] = m.paint.in(bad, lines[i])
		}
		return lines[:min(len(lines), m.height/2)]
	case m.editing:
		return []string{m.paint.in(strong, "/"+cutLeft(m.filter+"_", m.width-1))}
	case m.note != "" && m.failed:
		return m.told(m.note, true, bad, bad)
	case m.note != "":
		return m.told(m.note, true, good, good)
	}
	keys := "w why  l logs  c cancel  h hold  d drain  / filter  tab section  ? help  q leave"
	if m.over != nil {
		keys = "q back  up down PgUp PgDn Home End scroll"
	} else if m.filter != "" {
		keys = "filter /" + m.filter + "  (esc: none)  " + keys
	}
	return []string{m.paint.in(faint, Cut(keys, m.width))}
}

// listRoom is how many rows of a list are in sight.
func (m *model) listRoom() int {
	if m.board == nil {
		return 1
	}
	return max(m.height-len(m.head())-2-1-detailLines-len(m.footer()), 1)
}

// overRoom is how many lines of an overlay are in sight.
func (m *model) overRoom() int {
	if m.board == nil {
		return 1
	}
	return max(m.height-len(m.head())-1-len(m.footer()), 1)
}

func heads(all []column) []string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.head
	}
	return names
}

// layout gives each column its width, 0 to those that this screen has no room
// for. What is over is the last one's.
func layout(all []column, width int) []int {
	widths := make([]int, len(all))
	left := width
	for i, c := range all {
		if c.width > 0 && c.from <= width+2 && left > c.width {
			widths[i] = c.width
			left -= c.width + 1
		}
	}
	last := len(all) - 1
	if last == 0 || all[last].width == 0 && left < leastWhy {
		widths[0] += left
		return widths
	}
	if grow := min((left-24)/2, 24); grow > 0 { // a name is told apart by its end
		widths[0] += grow
		left -= grow
	}
	widths[last] = left
	return widths
}

// leastWhy is what the last column needs to say anything.
const leastWhy = 8

// row puts cells into their columns.
func row(cells []string, widths []int) string {
	var b strings.Builder
	for i, text := range cells {
		if widths[i] == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if text == "" {
			text = "-"
		}
		b.WriteString(Fill(text, widths[i]))
	}
	return b.String()
}
