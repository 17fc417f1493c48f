package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/handsel/handsel"
)

// noon is when every board of these tests is of.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// stand is a source that answers what it is told to, and notes what it is asked.
type stand struct {
	board *handsel.Board
	asked []string
	no    error
	logs  func(context.Context, handsel.LogTo) error
}

func (s *stand) note(what, x string) (string, error) {
	s.asked = append(s.asked, strings.TrimSpace(what+" "+x))
	return what + " is done", s.no
}

func (s *stand) Look(context.Context) *handsel.Board                        { return s.board }
func (s *stand) Cancel(_ context.Context, x string) (string, error)         { return s.note("cancel", x) }
func (s *stand) Hold(_ context.Context, x string) (string, error)           { return s.note("hold", x) }
func (s *stand) Resume(_ context.Context, x string) (string, error)         { return s.note("resume", x) }
func (s *stand) Drain(context.Context) (string, error)                      { return s.note("drain", "") }
func (s *stand) Logs(ctx context.Context, _ string, to handsel.LogTo) error { return s.logs(ctx, to) }

func (s *stand) Why(_ context.Context, x string) (*handsel.Explained, error) {
	_, err := s.note("why", x)
	return &handsel.Explained{Name: x}, err
}

// boardOf is a board of cards, by box as a look deals them.
func boardOf(cards ...handsel.Card) *handsel.Board {
	b := &handsel.Board{V: 1, Root: "/home/a/handsel", Status: &handsel.Snapshot{}, Mode: handsel.ModeDispatcher, Boxes: map[string]handsel.BoxCount{}}
	b.At.Time, b.Status.At.Time = noon, noon
	b.Dispatcher = handsel.SeenDispatcher{State: handsel.DispatcherAnswers, Pid: 77}
	for _, box := range handsel.Boxes() {
		for _, c := range cards {
			if c.Box == box {
				n := b.Boxes[box]
				n.Wait++
				b.Boxes[box], b.Cards = n, append(b.Cards, c)
			}
		}
	}
	return b
}

func queued(lane string, place int) handsel.Card {
	return handsel.Card{ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", place), Lane: lane, Box: "resource", Answer: handsel.AnswerWait, Class: "resource",
		Code: "pool_full", Message: "pool \"all\" is at its cap of 1", State: "queued", Place: place, Argv0: "claude"}
}

// screenOf begins a model that has seen a board, on a screen of this size.
func screenOf(t *testing.T, s *stand, width, height int) *model {
	t.Helper()
	w := newWorks(t.Context())
	m := newModel(s, Words{
		Why:   func(y *handsel.Explained) []string { return []string{"why of " + y.Name} },
		Event: func(line []byte) string { return "event " + string(line) },
	}, paint{plain: true}, w)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(looked{board: s.board, at: noon})
	return m
}

// press types keys, and carries out what they ask for.
func press(m *model, words ...string) {
	for _, word := range words {
		_, cmd := m.Update(keyOf(word))
		carry(m, cmd)
	}
}

// carry runs a command and takes its messages, except those that come later.
func carry(m *model, cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			carry(m, c)
		}
	case looked: // its rest is a timer's
		m.Update(msg)
	case tea.QuitMsg, tea.SuspendMsg, nil:
	default:
		_, next := m.Update(msg)
		if _, ok := msg.(done); !ok {
			carry(m, next)
		}
	}
}

func keyOf(word string) tea.KeyPressMsg {
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp,
		"home": tea.KeyHome, "end": tea.KeyEnd, "tab": tea.KeyTab, "backspace": tea.KeyBackspace}
	if code, ok := named[word]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	return tea.KeyPressMsg{Code: []rune(word)[0], Text: word}
}

func shown(m *model) string { return strings.Join(m.screen(), "\n") }

func wants(t *testing.T, m *model, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(shown(m), text) {
			t.Errorf("%q is not on the screen:\n%s", text, shown(m))
		}
	}
}

// Of a long filter, the end is in sight: there somebody writes.
func TestTheEndOfALongFilterIsSeen(t *testing.T) {
	m := screenOf(t, &stand{board: boardOf(queued("api/one", 1))}, 80, 24)
	press(m, "/")
	m.Update(tea.PasteMsg{Content: strings.Repeat("世", 500) + strings.Repeat("x", 90)})
	press(m, "Y")
	wants(t, m, "xxxY_")
	for _, line := range m.screen() {
		if n := Cells(ansi.Strip(line)); n > 80 {
			t.Errorf("a line has %d columns: %q", n, line)
		}
	}
}

// A terminal that is gone ends the screen, SIGHUP or not: no key could.
func TestATerminalThatIsGoneEndsIt(t *testing.T) {
	read, write, err := os.Pipe() // no terminal either: what counts is the end of it
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	_ = write.Close()
	sig, err := Run(t.Context(), &stand{board: boardOf()}, Words{}, Terminal{In: read, Out: null, Plain: true})
	if sig != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Run = %v, %v", sig, err)
	}
}

func TestOrdersAskFirstAndOnlyYIsYes(t *testing.T) {
	running := handsel.Card{ID: "00000000-0000-7000-8000-00000000abcd", Lane: "api/review", Box: "ownership", Answer: handsel.AnswerGo, State: "running", Child: 4711}
	for _, tt := range []struct {
		keys  []string
		text  string
		asked string // after y
	}{
		{[]string{"3", "c"}, "cancel lane api/review (run 0000abcd): ends its agent (pid 4711) and all that it started?", "cancel run:" + running.ID},
		{[]string{"3", "h"}, "hold lane:api/review: no new start of it until it is resumed", "hold lane:api/review"},
		{[]string{"d"}, "drain: nothing new is admitted until it is resumed", "drain"},
	} {
		for _, answer := range []string{"n", "enter", "esc", "q", "y"} {
			s := &stand{board: boardOf(running)}
			m := screenOf(t, s, 120, 30)
			press(m, tt.keys...)
			wants(t, m, tt.text)
			if len(s.asked) != 0 {
				t.Fatalf("%v: asked for %q before anybody said yes", tt.keys, s.asked)
			}
			press(m, answer)
			switch got := strings.Join(s.asked, "; "); {
			case answer == "y" && got != tt.asked:
				t.Errorf("%v y: asked for %q, want %q", tt.keys, got, tt.asked)
			case answer != "y" && got != "":
				t.Errorf("%v %s: asked for %q", tt.keys, answer, got)
			}
			if m.asking != nil {
				t.Errorf("%v %s: still asks", tt.keys, answer)
			}
		}
	}
}

func TestRefusalsAreShown(t *testing.T) {
	lone := handsel.Card{ID: "00000000-0000-7000-8000-000000000001", Box: "ownership", Answer: handsel.AnswerGo, State: "running", Child: 1}
	over := handsel.Card{ID: "00000000-0000-7000-8000-000000000002", Lane: "b", Box: handsel.BoxEnded, State: "exited"}
	s := &stand{board: boardOf(lone, over), no: errors.New("cancel: only its own\n\x1b[2Jdescendants")}
	m := screenOf(t, s, 100, 30)
	press(m, "1", "c")
	wants(t, m, "nothing is selected")
	press(m, "3", "h")
	wants(t, m, "has no lane: starts are held by lane, engine, account or pool")
	press(m, "6", "c")
	wants(t, m, "lane b (run 00000002) has ended already")
	press(m, "3", "c", "y")
	wants(t, m, `cancel: only its own; \x1b[2Jdescendants`)
	press(m, "w")
	wants(t, m, "why run 00000001", `\x1b[2Jdescendants`)
}

func TestWhatIsHeldIsResumed(t *testing.T) {
	s := &stand{board: boardOf(queued("a", 1))}
	s.board.Status.Holds = append(s.board.Status.Holds, handsel.Snapshot{}.Holds...)
	b := s.board
	b.Draining = true
	m := screenOf(t, s, 100, 30)
	press(m, "d")
	wants(t, m, "resume: new starts are admitted again?")
	press(m, "y")
	if strings.Join(s.asked, ";") != "resume" {
		t.Errorf("asked for %q, want a resume of everything", s.asked)
	}
}

func TestSelectionStaysWithWhatWasSelected(t *testing.T) {
	var all []handsel.Card
	for i := range 50 {
		all = append(all, queued(fmt.Sprintf("lane%02d", i), i+1))
	}
	s := &stand{board: boardOf(all...)}
	m := screenOf(t, s, 100, 30)
	for range 30 {
		press(m, "down")
	}
	wants(t, m, "> lane30")
	before := m.spots[0].cursor - m.spots[0].top
	m.Update(looked{board: boardOf(all[5:]...), at: noon}) // five before it have gone
	wants(t, m, "> lane30")
	if after := m.spots[0].cursor - m.spots[0].top; after != before {
		t.Errorf("it was on line %d of the list, and is on %d", before, after)
	}
	press(m, "/", "l", "a", "n", "e", "3", "enter")
	wants(t, m, "> lane30", "filter /lane3")
	press(m, "esc", "end")
	wants(t, m, "> lane49")
	press(m, "pgup", "home")
	wants(t, m, "> lane05")
	m.Update(looked{board: boardOf(), at: noon})
	wants(t, m, "  nothing")
	press(m, "end", "pgdown", "w") // nothing to go to, and nothing breaks
}

// TestOnlyWhatIsVisibleIsMade is W10: ten thousand rows cost what a screen costs.
func TestOnlyWhatIsVisibleIsMade(t *testing.T) {
	allocs := func(rows int) float64 {
		var all []handsel.Card
		for i := range rows {
			all = append(all, queued(fmt.Sprintf("lane%05d", i), i+1))
		}
		m := screenOf(t, &stand{board: boardOf(all...)}, 120, 40)
		made := &counting{section: m.sections[0]}
		m.sections[0] = made
		press(m, "end", "up", "pgup")
		if len(m.screen()) != 40 {
			t.Fatalf("%d lines on 40", len(m.screen()))
		}
		made.rows = 0
		m.screen()
		if made.rows == 0 || made.rows > 40 {
			t.Errorf("%d of %d rows were made for a screen of 40 lines", made.rows, rows)
		}
		return testing.AllocsPerRun(5, func() { press(m, "up"); m.screen() })
	}
	few, many := allocs(100), allocs(10_000)
	if many > few*1.2+20 {
		t.Errorf("a key costs %.0f allocations among 10,000 rows, and %.0f among 100", many, few)
	}
}

type counting struct {
	section
	rows int
}

func (c *counting) cells(i int) []string { c.rows++; return c.section.cells(i) }

func TestNoLineIsWiderThanTheScreen(t *testing.T) {
	nasty := queued("界界"+strings.Repeat("界", 60)+"\x1b[31m\u202e\u009b2J"+strings.Repeat("e\u0301\u0301", 40), 1)
	nasty.Author, nasty.Message, nasty.Argv0 = "\r\nforged", "\x1b]52;c;cm0=\a", strings.Repeat("👍🏽", 30)
	s := &stand{board: boardOf(nasty, queued("b", 2))}
	s.board.Problems = []string{"home \x1b[2J: " + strings.Repeat("long ", 100)}
	s.board.Root = "/home/\x1b]0;p0wn\a"
	for _, size := range [][2]int{{60, 16}, {80, 24}, {81, 25}, {133, 40}, {200, 60}} {
		m := screenOf(t, s, size[0], size[1])
		for _, keys := range [][]string{{}, {"1", "down"}, {"0"}, {"9"}, {"7"}, {"?"}, {"q", "1", "c"}, {"n", "w"}, {"q", "/", "x"}} {
			press(m, keys...)
			lines := m.screen()
			if len(lines) != size[1] {
				t.Errorf("%v %v: %d lines", size, keys, len(lines))
			}
			for _, line := range lines {
				bare := ansi.Strip(line)
				if w := ansi.StringWidthWc(bare); w > size[0] {
					t.Errorf("%v %v: %d columns: %q", size, keys, w, line)
				}
				for _, r := range bare {
					if handsel.Legible(string(r)) != string(r) {
						t.Errorf("%v %v: %q is on the screen: %q", size, keys, r, line)
					}
				}
			}
		}
	}
	for _, size := range [][2]int{{59, 24}, {80, 15}, {20, 5}, {1, 1}, {0, 0}} {
		m := screenOf(t, s, size[0], size[1])
		if lines := m.screen(); len(lines) > max(size[1], 1) || size[0] > 40 && !strings.Contains(strings.Join(lines, " "), "handsel top needs 60x16") {
			t.Errorf("%v: %q", size, lines)
		}
	}
}

func TestDispatcherIsSaid(t *testing.T) {
	for _, tt := range []struct {
		name     string
		set      func(*handsel.Board)
		answered bool
		away     time.Duration
		want     string
		trouble  bool
	}{
		{"answers", func(*handsel.Board) {}, true, 0, "dispatcher answers (pid 77)", false},
		{"killed", func(b *handsel.Board) { b.Dispatcher.State, b.AgeS = handsel.DispatcherNone, 12 }, true, 3 * time.Second,
			"DISPATCHER IS GONE for 3s; waiting lanes are from its files, 12s old; slots and lanes by their locks, now", true},
		{"stopped", func(b *handsel.Board) { b.Dispatcher.State, b.AgeS = handsel.DispatcherSilent, 65 }, true, 0,
			"DISPATCHER (pid 77) DOES NOT ANSWER; waiting lanes are from its files, 1m05s old; slots and lanes by their locks, now", true},
		{"never ran", func(b *handsel.Board) { b.Dispatcher = handsel.SeenDispatcher{State: handsel.DispatcherNone} }, false, 0,
			"NO DISPATCHER RUNS; waiting lanes are from its files, of unknown age; slots and lanes by their locks, now", true},
		{"is not wanted", func(b *handsel.Board) {
			b.Mode, b.Dispatcher = handsel.ModeWaiter, handsel.SeenDispatcher{State: handsel.DispatcherNone}
		}, false, 0, "no dispatcher (waiter mode): each start waits in its own process", false},
	} {
		b := boardOf()
		tt.set(b)
		if text, trouble := dispatcherText(b, tt.answered, tt.away); text != tt.want || trouble != tt.trouble {
			t.Errorf("%s: %q, %v; want %q, %v", tt.name, text, trouble, tt.want, tt.trouble)
		}
	}
}

func TestPoolsAreBars(t *testing.T) {
	for _, tt := range []struct {
		held, limit, inForce int
		want                 string
	}{
		{0, 4, 4, "p [....] 0/4"},
		{3, 4, 4, "p [###.] 3/4"},
		{4, 4, 4, "p [####] 4/4 full"},
		{1, 400, 400, "p [#.........] 1/400"},
		{4, 2, 2, "p [##!!] 4/2 draining"},
		{1, 8, 2, "p [#.] 1/2 (cap 8 when holders that read 2 are gone)"},
		{3, 0, 0, "p 3, no cap"},
	} {
		if got, _ := poolText("p", tt.held, tt.limit, tt.inForce); got != tt.want {
			t.Errorf("%d of %d (%d): %q, want %q", tt.held, tt.inForce, tt.limit, got, tt.want)
		}
	}
}

func TestLooksAreSpaced(t *testing.T) {
	for _, tt := range []struct{ took, cpu, want time.Duration }{
		{10 * time.Millisecond, 5 * time.Millisecond, 490 * time.Millisecond},
		{400 * time.Millisecond, 300 * time.Millisecond, 1100 * time.Millisecond}, // 300 of 1500 ms
		{2 * time.Second, 10 * time.Millisecond, lookRest},                        // a dispatcher that did not answer costs nothing
	} {
		if got := restAfter(tt.took, tt.cpu); got != tt.want {
			t.Errorf("after %v that cost %v: %v, want %v", tt.took, tt.cpu, got, tt.want)
		}
	}
}

// TestOneLookAtATime: while one goes on, the screen takes keys, begins no other,
// and says how old what it shows is.
func TestOneLookAtATime(t *testing.T) {
	m := screenOf(t, &stand{board: boardOf(queued("a", 1), queued("b", 2))}, 100, 30)
	if m.look(noon) == nil {
		t.Fatal("no look began")
	}
	for _, msg := range []tea.Msg{lookNow{noon}, done{"held", nil}} {
		if _, cmd := m.Update(msg); cmd != nil {
			t.Errorf("%T began a second look", msg)
		}
	}
	m.Update(pulse{noon.Add(5 * time.Second)})
	wants(t, m, "looking for 5s; this is 5s old")
	press(m, "down")
	wants(t, m, "> b")
}

func TestLogsAreBoundedAndFollowed(t *testing.T) {
	feed, fed := make(chan string), make(chan struct{})
	s := &stand{board: boardOf(queued("a", 1)), logs: func(ctx context.Context, to handsel.LogTo) error {
		for {
			select {
			case text := <-feed:
				_, _ = to.Stdout.Write([]byte(text))
				fed <- struct{}{}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}}
	m := screenOf(t, s, 80, 24)
	_, cmd := m.Update(keyOf("l"))
	batch := cmd().(tea.BatchMsg)
	over := make(chan tea.Msg)
	go func() { over <- batch[1]() }()
	send := func(text string) { feed <- text; <-fed }
	send("first\n")
	m.Update(batch[0]())
	wants(t, m, "first")
	for i := range 3 * keptLines {
		send(fmt.Sprintf("line %d \x1b[2J%s\n", i, strings.Repeat("x", 3*keptLine)))
	}
	send("last\n")
	l := m.over.(*logSheet)
	m.Update(logGrew{l.tail})
	wants(t, m, "last")
	if len(l.text) > keptLines+2 || !strings.Contains(l.text[0], "earlier lines") {
		t.Errorf("%d lines are kept, the first is %q", len(l.text), l.text[0])
	}
	for _, line := range l.text {
		if len(line) > keptLine+len("…") || strings.Contains(line, "\x1b") {
			t.Fatalf("kept: %.80q, %d bytes", line, len(line))
		}
	}
	press(m, "home")
	send("more\n")
	m.Update(logGrew{l.tail})
	wants(t, m, "earlier lines") // whoever reads further up stays there
	press(m, "q")
	if msg := (<-over).(logEnded); !errors.Is(msg.err, context.Canceled) {
		t.Errorf("closed, the reading ended with %v", msg.err)
	}
}

func TestWorkThatGoesOnIsWaitedFor(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	w := newWorks(ctx)
	begun, finish := make(chan struct{}), make(chan struct{})
	ended := false
	go w.order(func(ctx context.Context) tea.Msg {
		close(begun)
		<-finish
		ended = ctx.Err() == nil
		return nil
	})()
	<-begun
	stop()
	go close(finish)
	w.wait()
	if !ended {
		t.Error("an order was given up, or not waited for")
	}
	if w.ask(func(context.Context) tea.Msg { t.Error("began after the end"); return nil })() != nil {
		t.Error("something came of it")
	}
}

func TestCutsByColumns(t *testing.T) {
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"界界界", 6, "界界界"},
		{"界界界", 5, "界界…"},
		{"界界界", 4, "界…"},
		{"a\u0301b", 20, `a\u0301b`},
		{"\u202ex", 20, `\u202ex`},
		{"\xff", 20, `\xff`},
		{"abc", 0, ""},
	} {
		if got := Cut(tt.text, tt.width); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
	for _, line := range wrap(strings.Repeat("界 word ", 40), 17) {
		if Cells(line) > 17 {
			t.Errorf("wrapped to %d columns: %q", Cells(line), line)
		}
	}
}

// The first look opens where something is, and later ones leave the section as it
// was chosen.
func TestFirstLookOpensWhereSomethingIs(t *testing.T) {
	running := queued("api/x", 1)
	running.Box = "ownership"
	ended := queued("api/y", 2)
	ended.Box = handsel.BoxEnded
	for _, tt := range []struct {
		cards []handsel.Card
		want  int
	}{
		{nil, 0}, {[]handsel.Card{ended}, 0}, {[]handsel.Card{running, ended}, 2}, {[]handsel.Card{queued("api/z", 3), running}, 0},
	} {
		m := screenOf(t, &stand{board: boardOf(tt.cards...)}, 80, 24)
		if m.current != tt.want {
			t.Errorf("%d cards: section %d, want %d", len(tt.cards), m.current, tt.want)
		}
		m.Update(looked{board: boardOf(queued("api/z", 3)), at: noon})
		if m.current != tt.want {
			t.Errorf("%d cards: a later look went to section %d", len(tt.cards), m.current)
		}
	}
}
