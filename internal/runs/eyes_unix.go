//go:build unix

package runs

import (
	"context"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// eyes see the ends of processes and the writing of records, and wake when the
// context ends. They belong to one goroutine.
type eyes struct {
	nerve    // what the kernel offers
	r, w     int
	stop     func()
	watching map[string]*watched // by run
}

// watched is what is watched of one run.
type watched struct {
	supervisor, child uint64 // start ticks of those that are; 0 = not
	dir               bool
}

func newEyes(ctx context.Context) (*eyes, error) {
	e := &eyes{watching: map[string]*watched{}}
	if err := e.pipe(); err != nil {
		return nil, err
	}
	if err := e.open(e.r); err != nil {
		unix.Close(e.r)
		unix.Close(e.w)
		return nil, err
	}
	done := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(done)
		_, _ = unix.Write(e.w, []byte{0})
	})
	e.stop = func() {
		if !unhook() {
			<-done // it has begun, and uses the pipe
		}
	}
	return e, nil
}

// pipe makes the pipe by which the end of the context wakes a sleep.
func (e *eyes) pipe() error {
	var p [2]int
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(p[:]); err != nil {
		return err
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	e.r, e.w = p[0], p[1]
	return nil
}

func (e *eyes) close() {
	e.stop()
	e.shut()
	unix.Close(e.r)
	unix.Close(e.w)
}

// watch begins to watch what of a run is not watched yet, and tells whether
// anything was added.
func (e *eyes) watch(p Place, r *Run) (added bool) {
	w := e.watching[r.ID]
	if w == nil {
		w = &watched{}
		e.watching[r.ID] = w
	}
	added = e.follow(r.ID, claim(r.Handsel), &w.supervisor)
	if r.Child != nil {
		added = e.follow(r.ID, claim(*r.Child), &w.child) || added
	}
	if !w.dir && e.directory(r.ID, p.dirOf(r.ID)) {
		w.dir, added = true, true
	}
	return added
}

func (e *eyes) follow(run string, c proc.Claim, ticks *uint64) bool {
	if c.Ticks == 0 || *ticks == c.Ticks || proc.Judge(c) != proc.Alive || !e.process(run, c) {
		return false
	}
	*ticks = c.Ticks
	return true
}

// blind tells whether the end of one of the runs may come without an event.
func (e *eyes) blind(list []Run) bool {
	for _, r := range list {
		w := e.watching[r.ID]
		if w == nil || w.supervisor == 0 && w.child == 0 || !w.dir {
			return true
		}
	}
	return false
}

func (e *eyes) forget(run string) {
	delete(e.watching, run)
	e.drop(run)
}

// wait sleeps until something was seen or d is over.
func (e *eyes) wait(d time.Duration) { e.sleep(d) }
