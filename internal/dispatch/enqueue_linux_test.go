package dispatch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/lane"
	"golang.org/x/sys/unix"
)

// Every refusal has three halves: the answer, the descriptors, and what a third
// party is told by the kernel (L6, L7).
func TestRefusalKeepsNoCopy(t *testing.T) {
	open := func(t *testing.T, path string) int {
		t.Helper()
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	for _, tt := range []struct {
		name string
		code string
		give func(w *world, l *launcher) []int // the descriptors sent with l's row
	}{
		{"zero descriptors", "one_descriptor", func(*world, *launcher) []int { return nil }},
		{"two descriptors", "one_descriptor", func(_ *world, l *launcher) []int { return []int{l.hold.Fd(), l.hold.Fd()} }},
		{"another lane's descriptor", "not_owned", func(w *world, _ *launcher) []int { return []int{w.launcher("other").hold.Fd()} }},
		{"a pipe", "not_owned", func(w *world, _ *launcher) []int {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				w.Fatal(err)
			}
			w.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
			return p[:1]
		}},
		{"the file opened again, locked by somebody else", "not_owned", func(w *world, l *launcher) []int {
			return []int{open(w.T, filepath.Join(w.home.Lanes(), lane.FileName(l.row.Lane)))}
		}},
		{"no entry", "no_entry", func(w *world, l *launcher) []int {
			if err := attempt.RemoveEntry(w.home, l.row.Lane); err != nil {
				w.Fatal(err)
			}
			return []int{l.hold.Fd()}
		}},
		{"an entry with another start", "no_entry", func(_ *world, l *launcher) []int {
			l.row.QueueStart = attempt.At(l.row.QueueStart.Add(-1e9))
			return []int{l.hold.Fd()}
		}},
		{"an entry with another priority", "no_entry", func(_ *world, l *launcher) []int {
			l.row.Priority = 7
			return []int{l.hold.Fd()}
		}},
		{"waiter mode", "waiter_mode", func(w *world, l *launcher) []int {
			w.waiter.Store(true)
			return []int{l.hold.Fd()}
		}},
		{"a row that is none", "bad_row", func(_ *world, l *launcher) []int {
			l.row.ID = "../../etc"
			return []int{l.hold.Fd()}
		}},
		{"a lane after itself", "cyclic", func(_ *world, l *launcher) []int {
			l.row.After = []attempt.After{{Lane: l.row.Lane}}
			return []int{l.hold.Fd()}
		}},
		{"after nobody", "unknown_dependency", func(_ *world, l *launcher) []int {
			l.row.After = []attempt.After{{Lane: "nobody"}}
			return []int{l.hold.Fd()}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, false, nil)
			l := w.launcher("api/review")
			fds := tt.give(w, l)
			before := openFDs(t)
			a := w.ask(handoff.Enqueue{Row: l.row}, fds...)
			if a.OK || a.Code != tt.code || a.Message == "" {
				t.Errorf("answer %+v, want a refusal %q with a sentence", a, tt.code)
			}
			w.settledFDs(before)
			if w.free("api/review") {
				t.Error("the launcher's lane is free")
			}
			l.hold.Keep()
			if !w.freed("api/review") {
				t.Error("after the launcher closed its copy, somebody still has the lane")
			}
			if r, ok := w.rowOf(l.row.ID); ok {
				t.Errorf("a refused row is in the queue: %+v", r)
			}
		})
	}
}

// The row, the entry and the lock say the same after an enqueue, and what the
// launcher must not decide is not taken from it (L8).
func TestAcceptedRowIsHeldAndShown(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.launcher("api/review")
	l.row.Priority = 3
	l.row.Starts, l.row.Unclaimed, l.row.LastFailure, l.row.Fence = 2, 1, "a lie", 7 // which are not the launcher's to say
	w.enter(l)
	w.accepted(l)
	if w.free("api/review") {
		t.Error("the lane is free after its launcher left")
	}
	r, ok := w.rowOf(l.row.ID)
	if !ok || !r.QueueStart.Equal(l.row.QueueStart.Time) || r.Priority != 3 || r.State != attempt.Queued {
		t.Errorf("the row is %+v (%v), want the launcher's start and priority", r, ok)
	}
	if r.Starts != 0 || r.Unclaimed != 0 || r.LastFailure != "" || r.Fence != 0 || !r.AdmittedAt.IsZero() {
		t.Errorf("the row believes what its launcher says of starts: %+v", r)
	}
	e, err := attempt.ReadEntry(w.home, "api/review")
	if err != nil || e.Owner.Role != "dispatcher" || e.Heartbeat != attempt.HeartbeatFile || !e.QueueStart.Equal(l.row.QueueStart.Time) || e.Priority != 3 {
		t.Errorf("the entry is %+v, %v", e, err)
	}
	seen, err := lane.Look(w.home, "api/review")
	if err != nil || seen.Record.Role != lane.RoleDispatcher || seen.Record.Holder.Pid != os.Getpid() || seen.Record.Run != "" {
		t.Errorf("the lane's record is %+v, %v", seen.Record, err)
	}
}

func TestSecondEnqueueOfALaneIsRefused(t *testing.T) {
	w := newWorld(t, false, nil)
	first := w.enqueue("x")
	second := *first
	second.row.ID = w.launcher("y").row.ID
	if a := w.ask(handoff.Enqueue{Row: second.row}, w.launcher("z").hold.Fd()); a.OK {
		t.Errorf("a second row of lane x was accepted: %+v", a)
	}
}

// An enqueue whose answer never came is asked again, and stands once (L9).
func TestKnownAttemptIsAnsweredNotRepeated(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.launcher("x")
	fd, err := unix.FcntlInt(uintptr(l.hold.Fd()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	w.accepted(l)
	before := openFDs(t)
	for range 8 { // more than the descriptors that may have been on their way out at the first count
		if a := w.ask(handoff.Enqueue{Row: l.row}, fd); !a.OK || a.State != attempt.Queued {
			t.Errorf("asked again: %+v", a)
		}
	}
	if a := w.ask(handoff.Ask{Attempt: l.row.ID}); !a.OK || a.Lane != "x" {
		t.Errorf("what became of it: %+v", a)
	}
	if a := w.ask(handoff.Ask{Attempt: w.launcher("never").row.ID}); a.OK || a.Code != "unknown_attempt" {
		t.Errorf("of what was never sent: %+v", a)
	}
	w.settledFDs(before + 1) // the lane "never" that was taken here
}
