package lease

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/line"
)

// turnOf is something that starts come to one at a time.
type turnOf struct {
	mu   sync.Mutex
	free time.Time
	went []int
}

// between is long enough for one who was let through and came second to be in line
// again before the next turn: in between it has no place, and who is behind may go.
const between = 250 * time.Millisecond

func (o *turnOf) check() Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Now().Before(o.free) {
		return Answer{Code: "min_gap", Turn: "x", Until: o.free}
	}
	return Answer{}
}

func (o *turnOf) claim(who int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Now().Before(o.free) {
		return false
	}
	o.went, o.free = append(o.went, who), time.Now().Add(between)
	return true
}

// P3: those who wait for the same turn come to it in the order of the line, and not
// as they happen to wake; whoever does not wait for it passes them.
func TestTurnsGoInLine(t *testing.T) {
	root, o := t.TempDir(), &turnOf{free: time.Now().Add(time.Hour)}
	start := func(who int) {
		w := spec{Root: root, Pools: one("all", 20), Wait: time.Hour, Patience: 10 * time.Second}.want()
		w.Check, w.Turns, w.Start = o.check, []string{"x"}, time.Duration(who+1)*time.Second
		for {
			l, err := Acquire(t.Context(), places(root), w)
			if err != nil {
				t.Error(err)
				return
			}
			ok := o.claim(who)
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			if ok {
				return
			}
		}
	}
	const starts = 12
	var all sync.WaitGroup
	for who := range starts {
		all.Go(func() { start(who) })
	}
	at, err := line.Open(root+"/waiting", true)
	must(t, err)
	defer at.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		names, err := at.Names()
		must(t, err)
		if len(names) == starts {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("in line: %q", names)
		}
	}
	other := spec{Root: root, Pools: one("all", 20)}.want()
	other.Turns = []string{"y"}
	l, err := Acquire(t.Context(), places(root), other)
	must(t, err)
	o.mu.Lock()
	o.free = time.Now()
	o.mu.Unlock()
	must(t, l.Release()) // which they hear
	all.Wait()
	if !slices.IsSorted(o.went) || len(o.went) != starts {
		t.Errorf("they went as %s", fmt.Sprint(o.went))
	}
	if names, err := at.Names(); len(names) > 0 || err != nil {
		t.Errorf("left in line: %q, %v", names, err)
	}
}

// An answer that ends while we are still about to sleep is asked for again at once,
// though nothing tells of its end and the poll is an hour away.
func TestAnswerThatEndsBeforeTheSleep(t *testing.T) {
	root := t.TempDir()
	w := spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Poll: time.Hour}.want()
	var end time.Time
	w.Check = func() Answer {
		if end.IsZero() {
			end = time.Now().Add(50 * time.Millisecond)
		}
		if time.Now().Before(end) {
			return Answer{Code: "parked", Until: end}
		}
		return Answer{}
	}
	w.OnWait = func(Waiting) {
		for time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := Acquire(ctx, places(root), w)
	must(t, err)
	must(t, l.Release())
}
