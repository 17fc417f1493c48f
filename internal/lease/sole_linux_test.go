package lease

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/line"
)

// P2: a go that is good for one is good for one, whoever was told so before the
// first of them was admitted.
func TestOneIsLetThrough(t *testing.T) {
	root := t.TempDir()
	want := func(wait time.Duration, workload string) Want {
		w := spec{Root: root, Pools: one("all", 20), Wait: wait, Workload: workload}.want()
		w.Check = func() Answer {
			return Answer{Class: "resource", Code: "memory", Message: "short", Sole: true, Again: 20 * time.Millisecond}
		}
		return w
	}
	first, err := Acquire(t.Context(), places(root), want(0, "heavy"))
	must(t, err)
	_, err = Acquire(t.Context(), places(root), want(0, "heavy"))
	if refused := new(Refused); !errors.As(err, &refused) || refused.Code != "memory" || refused.Class != "resource" || !refused.Retryable() {
		t.Fatalf("the second: %v", err)
	}
	gate, err := Acquire(t.Context(), places(root), want(0, GateWorkload))
	must(t, err) // a heavy command is no agent, nor keeps one from starting
	must(t, first.Release())
	first, err = Acquire(t.Context(), places(root), want(0, "heavy"))
	must(t, err)
	must(t, gate.Release())

	var now, done atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			l, err := Acquire(t.Context(), places(root), want(time.Hour, "heavy"))
			if err != nil {
				t.Error(err)
				return
			}
			if n := now.Add(1); n > 1 {
				t.Errorf("%d were let through at once", n)
			}
			time.Sleep(2 * time.Millisecond) // whoever else comes in finds us here
			now.Add(-1)
			done.Add(1)
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	at, err := line.Open(root+"/waiting", true)
	must(t, err)
	defer at.Close()
	var names []string
	for deadline := time.Now().Add(time.Minute); len(names) < 8; time.Sleep(time.Millisecond) {
		names, err = at.Names()
		must(t, err)
		if time.Now().After(deadline) {
			t.Fatalf("in line: %q", names)
		}
	}
	for _, name := range names {
		ticket, err := at.Read(name, true)
		if err != nil || ticket.Parked == nil || ticket.Parked.Code != "memory" {
			t.Errorf("%s: %+v, %v", name, ticket, err) // it would block those behind it
		}
	}
	must(t, first.Release())
	all.Wait()
	if done.Load() != 8 {
		t.Errorf("%d of 8 were let through", done.Load())
	}
	if names := inLine(t, root); len(names) > 0 {
		t.Errorf("left in line: %q", names)
	}
}

// A check that says when to ask again is asked then, though nothing happens and
// the poll is an hour away; and until then not.
func TestCheckSaysWhenToAskAgain(t *testing.T) {
	root := t.TempDir()
	asked := 0
	w := spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Poll: time.Hour}.want()
	began := time.Now()
	w.Check = func() Answer {
		if asked++; time.Since(began) > 500*time.Millisecond {
			return Answer{}
		}
		return Answer{Code: "memory", Again: 100 * time.Millisecond}
	}
	l, err := Acquire(t.Context(), places(root), w)
	must(t, err)
	must(t, l.Release())
	if asked > 12 {
		t.Errorf("asked %d times", asked)
	}
}
