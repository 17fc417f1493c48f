package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

// Whatever direct runs, grants and crashes a lane sees: each that gets it is given
// a greater fence than all before it, by whichever of the two ways (P9).
func TestFencesOnlyGrowWhoeverGivesThem(t *testing.T) {
	for seed := range uint64(8) {
		f := newFences(t)
		steps := f.steps()
		chance := rand.New(rand.NewPCG(seed, 9))
		for range 40 {
			step := steps[chance.IntN(len(steps))]
			f.did = append(f.did, step.name)
			step.do()
		}
		f.close()
	}
}

type step struct {
	name string
	do   func()
}

// steps are what may happen to the lane.
func (f *fences) steps() []step {
	return []step{
		{"direct", func() { f.release(f.direct()) }},
		{"direct, killed", func() { f.direct().Keep() }},
		{"launcher that gives up", func() { f.release(f.take(lane.RoleLauncher)) }},
		{"attempt", func() {
			h, id := f.granted()
			f.end(id)
			f.release(h)
		}},
		{"attempt, its driver killed", func() {
			h, id := f.granted()
			h.Keep()
			f.end(id)
		}},
		{"grant withdrawn", func() {
			h, id := f.granted()
			if err := f.d.db.Requeue(context.Background(), id, "it did not begin"); err != nil {
				f.Fatal(err)
			}
			f.end(id)
			f.release(h)
		}},
		{"dispatcher killed before it has told anybody", func() {
			h := f.take(lane.RoleDispatcher)
			id, hash := f.offered()
			if _, err := f.d.db.Grant(context.Background(), id, hash, queue.Driver{Pid: 1}, h.Record().Fence); err != nil {
				f.Fatal(err)
			}
			h.Keep()
			f.reopen()
			f.end(id)
		}},
		{"dispatcher come back", func() {
			f.reopen()
			lanes, err := flock.OpenDir(f.d.cfg.Home.Lanes())
			if err != nil {
				return // nobody had a lane yet
			}
			defer lanes.Close()
			if h, err := lane.Regain(lanes, "l"); err == nil {
				h.Keep()
			}
		}},
		{"cleaner", func() {
			err := lane.Remove(f.d.cfg.Home, lane.FileName("l"))
			if f.last > 0 && !errors.As(err, new(*lane.InUse)) {
				f.Fatalf("%v: the file of a lane that has had fence %d is removed: %v", f.did, f.last, err)
			}
		}},
	}
}

type fences struct {
	*testing.T
	d    *Dispatcher
	last uint64   // the greatest that anybody was given
	did  []string // so far
}

func newFences(t *testing.T) *fences {
	at := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
	if err := at.Ensure(); err != nil {
		t.Fatal(err)
	}
	f := &fences{T: t, d: &Dispatcher{cfg: Config{Home: at, Log: slog.New(slog.DiscardHandler)}}}
	f.open()
	return f
}

func (f *fences) close() {
	if err := f.d.db.Close(); err != nil {
		f.Fatal(err)
	}
}

func (f *fences) release(h *lane.Hold) {
	if err := h.Release(); err != nil {
		f.Fatal(err)
	}
}

func (f *fences) open() {
	db, err := queue.Open(context.Background(), filepath.Join(f.d.cfg.Home.Path, Database))
	if err != nil {
		f.Fatal(err)
	}
	f.d.db = db
}

func (f *fences) reopen() {
	f.close()
	f.open()
}

func (f *fences) take(role string) *lane.Hold {
	h, err := lane.Take(f.d.cfg.Home, "l", lane.Mine(role))
	if err != nil {
		f.Fatal(err)
	}
	return h
}

func (f *fences) given(n uint64) {
	if n <= f.last {
		f.Fatalf("%v: fence %d was given after %d", f.did, n, f.last)
	}
	f.last = n
}

func (f *fences) direct() *lane.Hold {
	h := f.take(lane.RoleRun)
	n, err := h.Grant()
	if err != nil {
		f.Fatal(err)
	}
	f.given(n)
	return h
}

func (f *fences) offered() (id string, hash []byte) {
	now := attempt.At(machine.Now())
	r := &attempt.Row{V: attempt.Version, ID: record.NewID(), Lane: "l", QueueStart: now, State: attempt.Queued, StateSince: now, Argv0: "x", Argc: 1}
	r.Placement.Cwd, r.Placement.Workload, r.Placement.Confinement = "/", "heavy", "none"
	hash = []byte("hash")
	if err := f.d.db.Accept(context.Background(), r); err != nil {
		f.Fatal(err)
	}
	if _, err := f.d.db.Offer(context.Background(), r.ID, hash, machine.Now()); err != nil {
		f.Fatal(err)
	}
	return r.ID, hash
}

func (f *fences) granted() (*lane.Hold, string) {
	h := f.take(lane.RoleDispatcher)
	id, hash := f.offered()
	n, err := f.d.fence(h, id, hash, queue.Driver{Pid: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.given(n)
	return h, id
}

func (f *fences) end(id string) {
	if err := f.d.db.End(context.Background(), id, queue.End{Outcome: record.Cancelled, At: machine.Now()}); err != nil {
		f.Fatal(err)
	}
}
