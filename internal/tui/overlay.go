package tui

import (
	"context"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/handsel/handsel"
)

// overlay covers the list until it is closed.
type overlay interface {
	title() string
	key(m *model, word string) tea.Cmd
	take(m *model, msg tea.Msg) tea.Cmd
	lines(width, height int) []string // at most height of them
}

// bottom is further down than any text goes.
const bottom = 1 << 30

// sheet is a text that is scrolled.
type sheet struct {
	head string
	text []string // lines as they came, legible
	hang int      // columns that the rest of a line is put in by
	top  int
}

func (s *sheet) title() string { return s.head }

func (s *sheet) take(*model, tea.Msg) tea.Cmd { return nil }

func (s *sheet) key(m *model, word string) tea.Cmd {
	if !s.scroll(word, m.overRoom()) {
		closes(m, word)
	}
	return nil
}

// closes takes the keys that close an overlay.
func closes(m *model, word string) bool {
	switch word {
	case "q", "esc", "enter", "backspace":
		m.over = nil
		return true
	}
	return false
}

func (s *sheet) scroll(word string, page int) bool {
	switch word {
	case "up", "k":
		s.top--
	case "down", "j":
		s.top++
	case "pgup", "ctrl+b":
		s.top -= page
	case "pgdown", "ctrl+f", "space":
		s.top += page
	case "home", "g":
		s.top = 0
	case "end", "G":
		s.top = bottom
	default:
		return false
	}
	return true
}

func (s *sheet) lines(width, height int) []string {
	var all []string
	for _, line := range s.text {
		all = append(all, hung(line, width, s.hang)...)
	}
	s.top = max(min(s.top, len(all)-height), 0)
	return all[s.top:min(s.top+height, len(all))]
}

// hung wraps a line, what is over put in by some columns.
func hung(line string, width, hang int) []string {
	all := wrap(line, width)
	if len(all) == 1 || hang == 0 {
		return all
	}
	rest := strings.TrimLeft(strings.TrimPrefix(line, all[0]), " ")
	for i, more := range wrap(rest, width-hang) {
		all = append(all[:i+1], strings.Repeat(" ", hang)+more)
	}
	return all
}

func newHelp() overlay {
	return &sheet{head: "keys", text: strings.Split(strings.TrimSpace(help), "\n")}
}

const help = `
up down j k         select          PgUp PgDn Home End g G   scroll
tab  1 … 9 0        other section   /   filter (esc: none)
enter w   why: what each permission answers, who holds it, what would end it
l         logs: what is kept of its output, as it grows
c         cancel: asks, then ends the run and all that it started
h         hold or resume what is selected: its lane, pool, engine or account
d         drain, or resume: nothing new is admitted
q Ctrl-C  leave          Ctrl-Z  suspend          ?  this

Sections 1 to 5 are the permissions, and what is at each: resource (may the host
take more), quota (may the account), ownership (who has the lane, and runs),
acceptance (is the result good enough), release (may it go out). Then what ended,
slots that are taken, places in line, orders and accounts that hold starts back,
and what could not be read. "!" marks an agent whose supervisor is gone, or that
cannot be looked at from here. In a pool's bar # is held, . is free, ! is above
the cap.
`

// whySheet is what each permission answers.
type whySheet struct {
	sheet
	x string
}

// whyHang is where the answers of a why begin.
const whyHang = 19

// explained is the answer to a why.
type explained struct {
	x     string
	lines []string
}

func openWhy(m *model, s subject) tea.Cmd {
	m.over = &whySheet{sheet{head: "why " + handsel.Legible(s.what), text: []string{"…"}, hang: whyHang}, s.x}
	src, tell := m.src, m.words.Why
	return m.works.ask(func(ctx context.Context) tea.Msg {
		y, err := src.Why(ctx, s.x)
		if err != nil {
			return explained{s.x, []string{oneLine(err.Error())}}
		}
		return explained{s.x, tell(y)}
	})
}

func (w *whySheet) take(_ *model, msg tea.Msg) tea.Cmd {
	if e, ok := msg.(explained); ok && e.x == w.x {
		w.text = e.lines
	}
	return nil
}

func (w *whySheet) key(m *model, word string) tea.Cmd {
	if !w.scroll(word, m.overRoom()) {
		closes(m, word)
	}
	return nil
}
