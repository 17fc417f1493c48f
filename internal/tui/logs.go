package tui

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"

	tea "charm.land/bubbletea/v2"

	"github.com/handsel/handsel"
)

const (
	keptLines = 2000    // of a log; older ones go
	keptLine  = 2048    // bytes of a line; what is longer is cut
	readEvent = 1 << 20 // bytes of an event, which may have many lines of text
)

// tail keeps the last lines of what is written, however much that is. Writers and
// the screen may use it at the same time.
type tail struct {
	mu    sync.Mutex
	lines []string
	gone  int // lines that were dropped
	grown chan struct{}
}

func newTail() *tail { return &tail{grown: make(chan struct{}, 1)} }

func (t *tail) add(line string) {
	t.mu.Lock()
	if len(t.lines) == keptLines {
		t.lines, t.gone = append(t.lines[:0], t.lines[keptLines/4:]...), t.gone+keptLines/4
	}
	t.lines = append(t.lines, line)
	t.mu.Unlock()
	select {
	case t.grown <- struct{}{}:
	default: // it is known already
	}
}

func (t *tail) look() (lines []string, gone int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.lines...), t.gone
}

// liner writes to a tail line by line.
type liner struct {
	to    *tail
	most  int                      // bytes of a line that are read; the rest is passed over
	tell  func(line []byte) string // "": nothing
	begun []byte
}

func (w *liner) Write(text []byte) (int, error) {
	for rest := text; ; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		w.begun = append(w.begun, part[:min(len(part), w.most-len(w.begun))]...)
		if !whole {
			return len(text), nil
		}
		w.end()
		rest = after
	}
}

// end tells the line that was begun.
func (w *liner) end() {
	told := w.tell(w.begun)
	w.begun = w.begun[:0]
	if told == "" {
		return
	}
	for line := range strings.SplitSeq(told, "\n") {
		line = handsel.Legible(strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), "\r"))
		if len(line) > keptLine {
			line = strings.ToValidUTF8(line[:keptLine], "") + "…"
		}
		w.to.add(line)
	}
}

// logSheet is what is kept of a run's output, as it grows.
type logSheet struct {
	sheet
	tail   *tail
	follow bool   // the end is in sight, and stays so
	end    string // how it ended; empty: it goes on
	over   chan struct{}
}

type (
	logGrew  struct{ of *tail }
	logEnded struct {
		of  *tail
		err error
	}
)

// openLogs follows what a run prints until the sheet is closed.
func openLogs(m *model, s subject) tea.Cmd {
	l := &logSheet{sheet: sheet{head: "logs of " + handsel.Legible(s.what)}, tail: newTail(), follow: true, over: make(chan struct{})}
	m.over = l
	src, event := m.src, m.words.Event
	return tea.Batch(l.grows(m), m.works.ask(func(ctx context.Context) tea.Msg {
		ctx, stop := context.WithCancel(ctx)
		var closing sync.WaitGroup
		defer closing.Wait()
		defer stop()
		closing.Go(func() {
			select {
			case <-l.over:
				stop()
			case <-ctx.Done():
			}
		})
		out := &liner{to: l.tail, most: keptLine, tell: func(line []byte) string { return string(line) + " " }}
		errs := &liner{to: l.tail, most: keptLine, tell: func(line []byte) string { return "! " + string(line) }}
		err := src.Logs(ctx, s.run, handsel.LogTo{Events: &liner{to: l.tail, most: readEvent, tell: event}, Stdout: out, Stderr: errs})
		for _, w := range []*liner{out, errs} {
			if len(w.begun) > 0 {
				w.end()
			}
		}
		return logEnded{l.tail, err}
	}))
}

// grows tells once that there is more.
func (l *logSheet) grows(m *model) tea.Cmd {
	return m.works.ask(func(ctx context.Context) tea.Msg {
		select {
		case <-l.tail.grown:
			return logGrew{l.tail}
		case <-l.over:
		case <-ctx.Done():
		}
		return nil
	})
}

func (l *logSheet) take(m *model, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case logGrew:
		if msg.of == l.tail {
			l.refresh("")
			return l.grows(m)
		}
	case logEnded:
		if msg.of == l.tail {
			end := "— it has ended —"
			if msg.err != nil {
				end = "— " + oneLine(msg.err.Error()) + " —"
			}
			l.refresh(end)
		}
	}
	return nil
}

// refresh takes over what the tail has; a last line may follow.
func (l *logSheet) refresh(end string) {
	lines, gone := l.tail.look()
	if gone > 0 {
		lines = append([]string{fmt.Sprintf("— %d earlier lines: handsel logs has them —", gone)}, lines...)
	}
	if end == "" && l.end != "" {
		end = l.end
	}
	if l.end = end; end != "" {
		lines = append(lines, end)
	}
	l.text = lines
}

func (l *logSheet) key(m *model, word string) tea.Cmd {
	if l.scroll(word, m.overRoom()) {
		l.follow = word == "end" || word == "G"
		return nil
	}
	if closes(m, word) {
		close(l.over)
	}
	return nil
}

func (l *logSheet) lines(width, height int) []string {
	if l.follow {
		l.top = bottom
	}
	return l.sheet.lines(width, height)
}
