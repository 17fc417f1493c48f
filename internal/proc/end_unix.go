//go:build unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// End ends what is left of a run: TERM to its group and to what left the
// group, Grace, KILL, and up to Kill more. The child stays unreaped until its
// group has been dealt with; afterwards it is reaped, and LeaderGone holds.
//
// An error says that it could not be found out what is left. The child itself
// has been signalled then all the same.
func (e Ending) End() (Report, error) {
	tr := &tree{
		child: e.Child, born: e.Child.born, run: e.Run, adopting: e.Adopting, leaveDaemons: e.LeaveDaemons, passOver: e.PassOver,
		known: map[int]uint64{}, spare: map[int]bool{os.Getpid(): true},
	}
	if e.Adopting && e.Child.Ended() && len(liveChildren()) == 1 && onlyChild(e.Child.Pid) {
		// The usual end: nothing is left. The proof comes after the reaping.
		e.Child.Reap()
		if noChildren() {
			return Report{LeaderGone: true}, nil
		}
	}
	h := &hunt{tree: tr, grace: orGrace(e.Grace), kill: orGrace(e.Kill), now: e.Now}
	if e.Child.hasGroup() {
		h.group = e.Child.SignalGroup
	}
	defer h.close()
	report, err := h.run()
	if err != nil {
		err = errors.Join(err, endBlind(e.Child, h))
	}
	return e.settle(tr, report), err
}

// settle reaps the child, looks once more at what only then can be known, and
// says whether the child is gone.
func (e Ending) settle(tr *tree, report Report) Report {
	patience := 100 * time.Millisecond
	if st, err := ReadStat(e.Child.Pid); errors.Is(err, ErrGone) || err == nil && st.Zombie() {
		patience = time.Minute // it has ended, and on a busy machine the word of it takes longer
	}
	if !e.Child.Ended() && !waitEnded(e.Child, patience) {
		e.Child.Abandon()
		return report
	}
	e.Child.Reap()
	tr.collectOrphans()
	report.LeaderGone = true
	return report
}

// waitEnded gives the goroutine that waits for the child a moment: the table
// can show the end before it does.
func waitEnded(c *Child, d time.Duration) bool {
	select {
	case <-c.Exited():
		return true
	case <-time.After(d):
		return false
	}
}

// signalBlindly signals the child's group, or the child where it has none.
func (c *Child) signalBlindly(sig syscall.Signal) {
	if c.SignalGroup(sig) != nil && !c.Ended() {
		_ = c.Signal(sig)
	}
}

// endBlind ends the group of a child where the process table cannot be read:
// strays cannot be found then, which the caller learns from the error.
func endBlind(c *Child, h *hunt) error {
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{unix.SIGTERM, h.grace}, {unix.SIGKILL, h.kill}} {
		c.signalBlindly(step.sig)
		if step.sig == unix.SIGTERM {
			select {
			case <-c.Exited():
			case <-h.now:
			case <-time.After(step.wait):
			}
			continue
		}
		if !waitEnded(c, step.wait) {
			return fmt.Errorf("process %d has not ended", c.Pid)
		}
	}
	return nil
}

// hunt ends a tree.
type hunt struct {
	tree        *tree
	group       func(syscall.Signal) error // the whole group in one step; nil = none
	grace, kill time.Duration
	now         <-chan struct{}

	termed map[int]uint64 // pid to ticks of those that have had TERM
	denied map[int]uint64 // … and of those we may not signal
	eyes   map[int]eye
}

// eye is a descriptor that becomes readable when its process ends.
type eye struct {
	ticks uint64
	fd    int
}

func (h *hunt) run() (Report, error) {
	h.termed, h.denied, h.eyes = map[int]uint64{}, map[int]uint64{}, map[int]eye{}
	hurry := newWaker(h.now)
	defer hurry.close()

	living, kept, err := h.phase(unix.SIGTERM, time.Now().Add(h.grace), hurry)
	if err == nil && len(living) > 0 {
		living, kept, err = h.phase(unix.SIGKILL, time.Now().Add(h.kill), nil)
	}
	return Report{Survivors: h.survivors(living), Kept: keptList(kept)}, err
}

// phase signals all that is found until nothing is, or until the deadline.
func (h *hunt) phase(sig syscall.Signal, deadline time.Time, hurry *waker) (living, kept []Stat, err error) {
	for round := 0; ; round++ {
		living, kept, err = h.look()
		if err != nil || len(living) == 0 {
			return living, kept, err
		}
		if hurry.woken() || !time.Now().Before(deadline) {
			if sig == unix.SIGTERM && round == 0 {
				h.signal(sig, living, true) // told before it is killed, however short the time
			}
			return living, kept, nil
		}
		h.signal(sig, living, round == 0)
		if !h.await(living, deadline, hurry) {
			return h.look()
		}
	}
}

// look finds the living. Finding none counts only when it is found twice: a
// table read while its processes fork can miss one.
func (h *hunt) look() (living, kept []Stat, err error) {
	for range 2 {
		h.tree.collectOrphans()
		t, err := readTable()
		if err != nil {
			return nil, nil, fmt.Errorf("look for what the run left: %w", err)
		}
		if living, kept = h.tree.look(t); len(living) > 0 {
			break
		}
	}
	return living, kept, nil
}

// signal delivers sig. TERM reaches each process once; KILL is repeated, as
// new ones may have been born in between.
func (h *hunt) signal(sig syscall.Signal, living []Stat, first bool) {
	lead := h.tree.leader()
	grouped := h.group != nil && (first || sig == unix.SIGKILL) && h.group(sig) == nil
	for _, st := range living {
		if sig == unix.SIGTERM {
			if h.termed[st.Pid] == st.Ticks && st.Ticks != 0 {
				continue
			}
			h.termed[st.Pid] = st.Ticks
		}
		if !grouped || st.Pgrp != lead {
			if err := signalExactly(st, sig); errors.Is(err, unix.EPERM) {
				h.denied[st.Pid] = st.Ticks
			}
		}
		if sig == unix.SIGTERM && stoppedNow(st) {
			_ = signalExactly(st, unix.SIGCONT) // a stopped process cannot heed TERM
		}
	}
}

// stoppedNow looks after TERM was sent whether the process is stopped: it may have
// stopped itself since it was found, and would sleep on its TERM. One that stops
// itself later has had TERM first.
func stoppedNow(st Stat) bool {
	now, err := ReadStat(st.Pid)
	return err == nil && now.Ticks == st.Ticks && now.State == 'T'
}

// blindPause is how long to wait between looks where the kernel gives no
// event for some of the processes.
const blindPause = 25 * time.Millisecond

// await waits until one of the living has ended. It returns false at the
// deadline or when hurry was woken.
func (h *hunt) await(living []Stat, deadline time.Time, hurry *waker) bool {
	fds := []unix.PollFd{}
	if hurry != nil {
		fds = append(fds, unix.PollFd{Fd: int32(hurry.fd()), Events: unix.POLLIN})
	}
	blind := false
	for _, st := range living {
		fd, ok := h.watch(st)
		if !ok {
			blind = true
			continue
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	left := time.Until(deadline)
	if blind {
		left = min(left, blindPause)
	}
	n, err := unix.Poll(fds, int(max(left, 0)/time.Millisecond)+1)
	switch {
	case err != nil && !errors.Is(err, unix.EINTR):
		time.Sleep(blindPause) // out of memory for the poll: look again later
	case n > 0 && !hurry.woken():
		// What ends together is looked at together.
		_, _ = unix.Poll(nil, 1)
	}
	return !hurry.woken() && time.Now().Before(deadline)
}

// maxEyes bounds the descriptors an ending holds open.
const maxEyes = 256

func (h *hunt) watch(st Stat) (fd int, ok bool) {
	if e, have := h.eyes[st.Pid]; have {
		if e.ticks == st.Ticks {
			return e.fd, true
		}
		unix.Close(e.fd)
		delete(h.eyes, st.Pid)
	}
	if len(h.eyes) >= maxEyes {
		h.prune()
	}
	if len(h.eyes) >= maxEyes {
		return 0, false
	}
	fd, err := pidfdOpen(st.Pid)
	if err != nil {
		return 0, false
	}
	h.eyes[st.Pid] = eye{st.Ticks, fd}
	return fd, true
}

// prune closes the descriptors of those that have ended.
func (h *hunt) prune() {
	for pid, e := range h.eyes {
		if st, err := ReadStat(pid); err != nil || st.Ticks != e.ticks || st.Zombie() {
			unix.Close(e.fd)
			delete(h.eyes, pid)
		}
	}
}

func (h *hunt) close() {
	for _, e := range h.eyes {
		unix.Close(e.fd)
	}
	h.eyes = nil
}

func (h *hunt) survivors(living []Stat) []Survivor {
	var list []Survivor
	for _, st := range living {
		why := "did not end on KILL"
		switch {
		case h.denied[st.Pid] == st.Ticks && st.Ticks != 0:
			why = "belongs to another user"
		case st.State == 'D':
			why = "asleep in the kernel"
		}
		list = append(list, Survivor{Pid: st.Pid, ID: st.ID(), Comm: st.Comm, Why: why})
	}
	return list
}

func keptList(kept []Stat) []Survivor {
	var list []Survivor
	for _, st := range kept {
		list = append(list, Survivor{Pid: st.Pid, ID: st.ID(), Comm: st.Comm, Why: "left on purpose"})
	}
	return list
}

// EndOrphan ends a child whose supervisor is gone, with its group and whatever
// carries its run's id. Only what is proven is signalled: the child by its
// identity, the group while the child lives, strays by the marker in the
// environment they started with. A child that is gone is no error.
func EndOrphan(o Orphan) (Report, error) {
	tr := &tree{run: o.Run, born: o.Child.Ticks, passOver: o.PassOver, known: map[int]uint64{}, spare: map[int]bool{os.Getpid(): true}}
	for _, up := range Ancestors(os.Getpid()) {
		tr.spare[up.Pid] = true
	}
	if o.Child.Boot != "" && o.Child.Boot != Self().Boot {
		return Report{LeaderGone: true}, nil // nothing of another boot is alive
	}
	switch Judge(o.Child) {
	case Unverifiable:
		return Report{}, fmt.Errorf("process %d: %w", o.Child.Pid, ErrUnverifiable)
	case Alive:
		if tr.spare[o.Child.Pid] || o.Child.Pid <= 1 || o.Child.Pid == unix.Getpgrp() {
			return Report{}, fmt.Errorf("process %d: %w", o.Child.Pid, ErrNotToEnd)
		}
		st, err := ReadStat(o.Child.Pid)
		// Judged again with the start just read, so that both mean one process.
		if err == nil && Judge(o.Child) == Alive {
			tr.root, tr.born = st, st.Ticks
		}
	}
	if tr.root.Pid == 0 && o.Run == "" {
		return Report{LeaderGone: true}, nil
	}
	h := &hunt{tree: tr, grace: orGrace(o.Grace), kill: orGrace(o.Kill), now: o.Now}
	defer h.close()
	report, err := h.run()
	report.LeaderGone = err == nil && Judge(o.Child) != Alive
	return report, err
}

// waker turns the closing of a channel into a readable descriptor. A nil
// waker never wakes.
type waker struct {
	now  <-chan struct{}
	r, w int
	stop chan struct{}
	done chan struct{}
}

func newWaker(now <-chan struct{}) *waker {
	if now == nil {
		return nil
	}
	var p [2]int
	if err := pipe(p[:]); err != nil {
		return nil // the grace is then simply not cut short
	}
	k := &waker{now: now, r: p[0], w: p[1], stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(k.done)
		select {
		case <-k.now:
			_, _ = unix.Write(k.w, []byte{0})
		case <-k.stop:
		}
	}()
	return k
}

func (k *waker) fd() int { return k.r }

func (k *waker) woken() bool {
	if k == nil {
		return false
	}
	select {
	case <-k.now:
		return true
	default:
		return false
	}
}

func (k *waker) close() {
	if k == nil {
		return
	}
	close(k.stop)
	<-k.done
	unix.Close(k.r)
	unix.Close(k.w)
}

// pipe makes a pipe that no child inherits.
func pipe(p []int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(p); err != nil {
		return err
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return nil
}
