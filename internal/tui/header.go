package tui

import (
	"fmt"
	"strings"
	"time"

	"github.com/handsel/handsel"
)

// dispatcherText says what is known of the dispatcher, and, where it does not
// answer, what is shown instead and how old that is (C146). trouble: somebody
// should look. answered: it did, earlier.
func dispatcherText(b *handsel.Board, answered bool, away time.Duration) (text string, trouble bool) {
	d := &b.Dispatcher
	instead := "; waiting lanes are from its files"
	switch {
	case b.AgeS > 0:
		instead += fmt.Sprintf(", %s old", handsel.Span(time.Duration(b.AgeS*float64(time.Second))))
	case d.Heartbeat.IsZero():
		instead += ", of unknown age"
	}
	instead += "; slots and lanes by their locks, now"
	since := ""
	if away > 0 {
		since = " for " + handsel.Span(away)
	}
	switch {
	case d.State == handsel.DispatcherAnswers:
		return fmt.Sprintf("dispatcher answers (pid %d)", d.Pid), false
	case d.State == handsel.DispatcherSilent && d.Pid != 0:
		return fmt.Sprintf("DISPATCHER (pid %d) DOES NOT ANSWER%s%s", d.Pid, since, instead), true
	case d.State == handsel.DispatcherSilent:
		return "DISPATCHER DOES NOT ANSWER" + since + instead, true
	case answered:
		return "DISPATCHER IS GONE" + since + instead, true
	case b.Mode == handsel.ModeDispatcher, !d.Heartbeat.IsZero():
		return "NO DISPATCHER RUNS" + since + instead, true
	}
	return "no dispatcher (waiter mode): each start waits in its own process", false
}

// poolTexts are the pools that have a cap or a slot taken, as bars.
func poolTexts(b *handsel.Board) (all []string, tones []tone) {
	for _, name := range b.Status.Order() {
		p := b.Status.Pools[name]
		if p.Cap == 0 && p.Held == 0 {
			continue
		}
		text, t := poolText(handsel.Legible(name), p.Held, p.Cap, p.Effective)
		all, tones = append(all, text), append(tones, t)
	}
	return all, tones
}

// poolText is one pool: its slots that are held, and of how many.
func poolText(name string, held, limit, inForce int) (string, tone) {
	if inForce == 0 {
		return fmt.Sprintf("%s %d, no cap", name, held), good
	}
	text := fmt.Sprintf("%s %s %d/%d", name, bar(held, inForce), held, inForce)
	t := good
	switch {
	case held > inForce:
		text, t = text+" draining", bad
	case held == inForce:
		text, t = text+" full", waits
	}
	if limit != inForce && limit != 0 {
		text += fmt.Sprintf(" (cap %d when holders that read %d are gone)", limit, inForce)
	}
	return text, t
}

// barCells is how long a bar is at most.
const barCells = 10

// bar draws a pool: a cell for each slot, up to barCells of them; what is held
// above the cap is told apart.
func bar(held, limit int) string {
	size := min(limit, barCells)
	full := min(held*size/limit, size)
	if held > 0 && full == 0 {
		full = 1
	}
	text := strings.Repeat("#", full) + strings.Repeat(".", size-full)
	if held > limit {
		text += strings.Repeat("!", max(1, min((held-limit)*size/limit, barCells)))
	}
	return "[" + text + "]"
}

// heldText says what holds starts back, shortest first what holds everything.
func heldText(b *handsel.Board) string {
	var parts []string
	running := b.Boxes[boxOwnership].Go
	for _, h := range b.Status.Holds {
		until := ""
		if !h.Until.IsZero() {
			until = " until " + moment(h.Until.Time)
		}
		switch {
		case h.Kind == string(handsel.KindDrain):
			parts = append([]string{fmt.Sprintf("DRAINING, %d running: nothing new is admitted%s", running, until)}, parts...)
		case h.Scope == "all":
			parts = append([]string{"ALL STARTS ARE HELD" + until}, parts...)
		default:
			parts = append(parts, h.Kind+" of "+h.Scope+until)
		}
	}
	return strings.Join(parts, "; ")
}
