package cli

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/creack/pty"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/tui"
)

// waitLine tells a person why a start waits: one line when it begins and when
// the reason changes, at most one a minute; on a terminal one live line (S17).
type waitLine struct {
	a    *app
	live bool

	mu    sync.Mutex
	last  time.Time
	why   handsel.Waiting
	shown bool
	stop  chan struct{}
	ended sync.WaitGroup
}

const waitLineEvery = time.Minute

func newWaitLine(a *app) *waitLine {
	return &waitLine{a: a, live: isTerminal(a.Err)}
}

// show is told why by whoever waits; it must not block for long.
func (w *waitLine) show(why handsel.Waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = why
	if w.live {
		w.goLive()
		return
	}
	if now := time.Now(); !w.shown || now.Sub(w.last) >= waitLineEvery {
		w.shown, w.last = true, now
		w.a.say("waiting: %s", w.text())
	}
}

func (w *waitLine) text() string {
	text := oneLine(w.why.Reason())
	if w.why.Place > 0 {
		text += fmt.Sprintf("; place %d in line", w.why.Place)
	}
	return text
}

// goLive redraws the line every second until the wait is over.
func (w *waitLine) goLive() {
	if w.stop != nil {
		return
	}
	w.stop = make(chan struct{})
	began := time.Now()
	w.ended.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			w.mu.Lock()
			fmt.Fprintf(w.a.Err, "\r\x1b[Khandsel: waiting %ds: %s", int(time.Since(began)/time.Second), tui.Cut(w.text(), width(w.a)-24))
			w.mu.Unlock()
			select {
			case <-tick.C:
			case <-w.stop:
				fmt.Fprint(w.a.Err, "\r\x1b[K")
				return
			}
		}
	})
}

// done takes the live line off the screen.
func (w *waitLine) done() {
	w.mu.Lock()
	stop := w.stop
	w.stop = nil
	w.mu.Unlock()
	if stop != nil {
		close(stop)
		w.ended.Wait()
	}
}

// isTerminal tells whether f is a terminal.
func isTerminal(f *os.File) bool {
	_, _, err := pty.Getsize(f)
	return err == nil
}

// width is how many columns stderr's terminal has.
func width(a *app) int {
	if columns := terminalWidth(a.Err); columns >= 40 {
		return columns
	}
	return 80
}

// terminalWidth is how many columns f has, 0 where that is not known.
func terminalWidth(f *os.File) int {
	_, columns, err := pty.Getsize(f)
	if err != nil {
		return 0
	}
	return columns
}

func fit(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
