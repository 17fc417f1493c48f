package tui

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/handsel/handsel"
)

const (
	// lookEvery is how often the screen looks at least, from beginning to beginning.
	lookEvery = 500 * time.Millisecond
	// lookShare is how many times what a look cost passes before the next: a fifth
	// of a core at most.
	lookShare = 5
	// lookRest is between two looks, however long they take.
	lookRest = 50 * time.Millisecond
	// slowLook is when it is said that a look goes on.
	slowLook = 2 * time.Second
)

// The messages of the screen.
type (
	looked struct { // a look is over
		board     *handsel.Board
		at        time.Time
		took, cpu time.Duration
	}
	lookNow struct{ at time.Time }
	pulse   struct{ at time.Time } // once a second: texts have ages
	done    struct {               // an order was carried out, or refused
		did string
		err error
	}
)

// model is the screen. It belongs to the goroutine of the program.
type model struct {
	src   Source
	words Words
	paint paint
	works *works

	width, height int
	now           time.Time

	board    *handsel.Board // nil: nothing was seen yet
	seen     time.Time      // when that came
	looking  bool
	began    time.Time // the look that goes on
	answered bool      // the dispatcher did, once
	missed   time.Time // when it was first missed since; zero: it answers

	sections []section
	current  int
	spots    [10]spot
	rows     []int // of the current section, those that fit the filter
	filter   string
	editing  bool // the filter

	over   overlay   // what covers the list; nil: nothing
	asking *question // waits for y or n
	note   string    // one line about what was done or refused
	failed bool      // the note is of a refusal
}

// spot is where a section is scrolled to, and what is selected in it.
type spot struct {
	top, cursor int // among rows
	key         string
}

// question is an order that waits for a yes.
type question struct {
	text string
	do   func(context.Context) (string, error)
}

func newModel(src Source, words Words, p paint, w *works) *model {
	return &model{src: src, words: words, paint: p, works: w, width: 80, height: 24}
}

// Init begins to look, and to count seconds.
func (m *model) Init() tea.Cmd {
	now := time.Now()
	m.now = now
	return tea.Batch(m.look(now), m.after(time.Second, func(at time.Time) tea.Msg { return pulse{at} }))
}

// after is a message that comes later, unless the screen ends before.
func (m *model) after(d time.Duration, msg func(time.Time) tea.Msg) tea.Cmd {
	return m.works.ask(func(ctx context.Context) tea.Msg {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case at := <-t.C:
			return msg(at)
		case <-ctx.Done():
			return nil
		}
	})
}

// look takes a look beside the screen, unless one goes on.
func (m *model) look(now time.Time) tea.Cmd {
	if m.looking {
		return nil
	}
	m.looking, m.began = true, now
	src := m.src
	return m.works.ask(func(ctx context.Context) tea.Msg {
		began, spent := time.Now(), cpuTime()
		b := src.Look(ctx)
		return looked{b, time.Now(), time.Since(began), cpuTime() - spent}
	})
}

// restAfter is how long to wait after a look that took so long and cost so much.
func restAfter(took, cpu time.Duration) time.Duration {
	return max(max(lookEvery, lookShare*cpu)-took, lookRest)
}

// Update takes one message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.scroll()
		return m, tea.ClearScreen // a frame of the old size may have been half drawn
	case looked:
		return m, m.saw(msg)
	case lookNow:
		return m, m.look(msg.at)
	case pulse:
		m.now = msg.at
		return m, m.after(time.Second, func(at time.Time) tea.Msg { return pulse{at} })
	case done:
		m.say(msg.did, msg.err)
		return m, m.look(m.now)
	case tea.PasteMsg:
		if m.editing {
			m.setFilter(m.filter + oneLine(msg.Content))
		}
		return m, nil
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	if m.over != nil {
		return m, m.over.take(m, msg)
	}
	return m, nil
}

// saw takes over what a look saw.
func (m *model) saw(l looked) tea.Cmd {
	first := m.board == nil
	m.looking, m.board, m.seen, m.now = false, l.board, l.at, l.at
	if l.board.Dispatcher.State == handsel.DispatcherAnswers {
		m.answered, m.missed = true, time.Time{}
	} else if m.missed.IsZero() {
		m.missed = l.at
	}
	m.sections = sectionsOf(l.board)
	if first {
		m.current = opening(l.board, m.sections)
	}
	m.find()
	return m.after(restAfter(l.took, l.cpu), func(at time.Time) tea.Msg { return lookNow{at} })
}

// opening is the section that is shown first: of the permissions, the first that
// has anything.
func opening(b *handsel.Board, sections []section) int {
	for i, box := range handsel.Boxes() {
		if box != handsel.BoxEnded && count(b, sections[i]) > 0 {
			return i
		}
	}
	return 0
}

func (m *model) say(did string, err error) {
	m.note, m.failed = oneLine(did), err != nil
	if err != nil {
		m.note = oneLine(err.Error())
	}
}

// oneLine keeps a message on one line.
func oneLine(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = handsel.Legible(lines[i])
	}
	return strings.Join(lines, "; ")
}

// find lists the rows that fit the filter, and keeps what is selected selected,
// wherever it is now.
func (m *model) find() {
	m.rows = m.rows[:0]
	if m.board == nil {
		return
	}
	s := m.section()
	want := strings.ToLower(m.filter)
	at := &m.spots[m.current]
	found := -1
	for i := range s.len() {
		if want != "" && !strings.Contains(strings.ToLower(s.text(i)), want) {
			continue
		}
		if at.key != "" && s.key(i) == at.key {
			found = len(m.rows)
		}
		m.rows = append(m.rows, i)
	}
	if found >= 0 {
		at.top += found - at.cursor // it stays where it is on the screen
		at.cursor = found
	}
	m.scroll()
}

func (m *model) section() section { return m.sections[m.current] }

// scroll keeps the selected row among the rows and on the screen.
func (m *model) scroll() {
	at := &m.spots[m.current]
	at.cursor = max(min(at.cursor, len(m.rows)-1), 0)
	room := max(m.listRoom(), 1)
	at.top = max(min(at.top, at.cursor), at.cursor-room+1, 0)
	at.top = max(min(at.top, len(m.rows)-room), 0)
	at.key = ""
	if len(m.rows) > 0 {
		at.key = m.section().key(m.rows[at.cursor])
	}
}

// selected is what the keys are about.
func (m *model) selected() (subject, bool) {
	if m.board == nil || len(m.rows) == 0 {
		return subject{}, false
	}
	return m.section().subject(m.rows[m.spots[m.current].cursor]), true
}

func (m *model) setFilter(text string) {
	m.filter = text
	m.find()
}

// turn goes to another section.
func (m *model) turn(to int) {
	if m.board == nil {
		return
	}
	m.current = (to + len(m.sections)) % len(m.sections)
	m.find()
}

// move selects another row.
func (m *model) move(by int) {
	m.spots[m.current].cursor += by
	m.scroll()
}

// question asks for a yes to an order.
func (m *model) question(text string, do func(context.Context) (string, error)) {
	m.asking = &question{oneLine(text), do}
}

// carryOut does what was said yes to, beside the screen.
func (m *model) carryOut(q *question) tea.Cmd {
	m.note, m.failed = "…", false
	return m.works.order(func(ctx context.Context) tea.Msg {
		did, err := q.do(ctx)
		return done{did, err}
	})
}

// refuse says why a key does nothing.
func (m *model) refuse(format string, args ...any) tea.Cmd {
	m.note, m.failed = oneLine(fmt.Sprintf(format, args...)), true
	return nil
}
