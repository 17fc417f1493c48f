package tui

import (
	"context"

	tea "charm.land/bubbletea/v2"
)

// key takes one key. Each sees the answer to the one before it go.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	word := k.String()
	switch word {
	case "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	}
	switch {
	case m.asking != nil:
		return m.answer(word)
	case m.editing:
		m.edit(k)
		return nil
	}
	m.note = ""
	if m.over != nil {
		return m.over.key(m, word)
	}
	if m.walk(word) {
		return nil
	}
	return m.act(word)
}

// answer takes the key after a question: only y is yes.
func (m *model) answer(word string) tea.Cmd {
	q := m.asking
	m.asking = nil
	if word == "y" || word == "Y" {
		return m.carryOut(q)
	}
	m.note, m.failed = "nothing was done", false
	return nil
}

// edit takes a key of the filter.
func (m *model) edit(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.editing = false
	case "esc":
		m.editing = false
		m.setFilter("")
	case "backspace":
		if text := []rune(m.filter); len(text) > 0 {
			m.setFilter(string(text[:len(text)-1]))
		}
	case "ctrl+u":
		m.setFilter("")
	default:
		if k.Text != "" {
			m.setFilter(m.filter + oneLine(k.Text))
		}
	}
}

// walk takes the keys that only move; false: it is none of them.
func (m *model) walk(word string) bool {
	page := max(m.listRoom()-1, 1)
	switch word {
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+b":
		m.move(-page)
	case "pgdown", "ctrl+f", "space":
		m.move(page)
	case "home", "g":
		m.move(-len(m.rows))
	case "end", "G":
		m.move(len(m.rows))
	case "tab", "right":
		m.turn(m.current + 1)
	case "shift+tab", "left":
		m.turn(m.current - 1)
	case "1", "2", "3", "4", "5", "6", "7", "8", "9":
		m.turn(int(word[0] - '1'))
	case "0":
		m.turn(9)
	default:
		return false
	}
	return true
}

// act takes the keys that ask or order something.
func (m *model) act(word string) tea.Cmd {
	switch word {
	case "q":
		return tea.Quit
	case "?":
		m.over = newHelp()
		return nil
	case "/":
		m.editing = true
		return nil
	case "esc":
		m.setFilter("")
		return nil
	case "d":
		return m.drain()
	case "enter", "w", "l", "c", "h":
	default:
		return nil
	}
	s, ok := m.selected()
	if !ok {
		return m.refuse("nothing is selected")
	}
	switch word {
	case "l":
		return m.logs(s)
	case "c":
		return m.cancel(s)
	case "h":
		return m.hold(s)
	}
	return m.why(s)
}

func (m *model) why(s subject) tea.Cmd {
	if s.x == "" {
		return m.refuse("%s: there is no why of it", s.what)
	}
	return openWhy(m, s)
}

func (m *model) logs(s subject) tea.Cmd {
	if s.run == "" {
		return m.refuse("%s: it is no run", s.what)
	}
	return openLogs(m, s)
}

func (m *model) cancel(s subject) tea.Cmd {
	switch {
	case s.run == "":
		return m.refuse("%s: it is no run", s.what)
	case s.ends == "":
		return m.refuse("%s has ended already", s.what)
	}
	m.question("cancel "+s.what+": "+s.ends, func(ctx context.Context) (string, error) { return m.src.Cancel(ctx, s.run) })
	return nil
}

// hold keeps new starts of what is selected back, or resumes it.
func (m *model) hold(s subject) tea.Cmd {
	switch {
	case s.scope == "":
		return m.refuse("%s has no lane: starts are held by lane, engine, account or pool", s.what)
	case held(m.board, s.scope):
		m.question("resume "+s.scope+": what holds it back is over then", func(ctx context.Context) (string, error) { return m.src.Resume(ctx, s.scope) })
	default:
		m.question("hold "+s.scope+": no new start of it until it is resumed; what runs goes on", func(ctx context.Context) (string, error) { return m.src.Hold(ctx, s.scope) })
	}
	return nil
}

// drain admits nothing new, or ends that.
func (m *model) drain() tea.Cmd {
	switch {
	case m.board == nil:
		return m.refuse("nothing was seen yet")
	case m.board.Draining || held(m.board, "all"):
		m.question("resume: new starts are admitted again", func(ctx context.Context) (string, error) { return m.src.Resume(ctx, "") })
	default:
		m.question("drain: nothing new is admitted until it is resumed; what runs goes on", m.src.Drain)
	}
	return nil
}
