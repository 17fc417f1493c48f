package run

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/proc"
)

// stream is the run itself: it lasts until the child has ended, or until
// something says that it must (r.why).
func (r *run) stream(ctx context.Context) {
	var broken <-chan error
	if r.pipes != nil {
		r.pipes.start()
		broken = r.pipes.broken
	}
	idle := r.newIdle()
	defer idle.stop()
	stay := r.newStay()
	defer stay.stop()
	hangup := r.watchTerminal()
	continued := r.watchContinue()
	suspended := r.watchSuspend()
	for r.why == nil {
		select {
		case <-r.child.Exited():
			return
		case sig := <-r.spec.Signals:
			r.signalled(sig)
		case <-ctx.Done():
			r.asked++
			r.why = &why{word: Cancelled, err: ctx.Err()}
		case <-r.timeUp():
			r.why = &why{word: TimedOut, limit: LimitTotal}
		case <-idle.C():
			// With the result there it is the grace that counts.
			if !stay.counting() && idle.over() {
				r.why = &why{word: TimedOut, limit: LimitIdle}
			}
		case <-stay.result:
			stay.count()
		case <-stay.C():
			if stay.over() {
				r.overstayed()
			}
		case err := <-broken:
			r.outputBroke(err)
		case <-hangup:
			hangup = nil
			if r.term.HasIt() {
				r.why = &why{word: Cancelled, signal: syscall.SIGHUP}
			}
		case sig := <-r.child.Stops():
			r.childStopped(sig)
		case <-continued:
			r.resume()
		case <-suspended:
			// The key came to us because the shell gave us the terminal while the
			// child went on in the background; its stop will stop us, too.
			_ = r.child.SignalGroup(suspendSignal)
		}
	}
}

func (r *run) signalled(sig os.Signal) {
	switch {
	case r.endsRun(sig):
		r.why = &why{word: Cancelled, signal: number(sig)}
	case passedOn(number(sig)):
		_ = r.child.Signal(number(sig))
	}
}

// newIdle arms the idle limit; without one it never fires.
func (r *run) newIdle() *idle {
	if r.spec.Idle <= 0 || r.pipes == nil {
		return &idle{}
	}
	left := r.spec.Idle - time.Since(r.out.Admitted)
	return &idle{
		limit: r.spec.Idle, pipes: r.pipes, stream: r.deps.Stream, timer: time.NewTimer(max(left, time.Millisecond)), since: r.out.Admitted,
	}
}

// idle is the limit on silence: on time without progress, where a stream is read,
// and else on time without a byte. Time in which the caller does not take what
// the child has written is not the child's silence.
type idle struct {
	limit  time.Duration
	since  time.Time // admission
	pipes  *pipes
	stream Stream // nil = none
	timer  *time.Timer
}

func (i *idle) C() <-chan time.Time {
	if i.timer == nil {
		return nil
	}
	return i.timer.C
}

// over judges when the timer fires, and sets it again if it is not over.
func (i *idle) over() bool {
	quiet := time.Since(i.last())
	if i.pipes.delivering() {
		quiet = 0
	}
	if quiet >= i.limit {
		return true
	}
	i.timer.Reset(i.limit - quiet)
	return false
}

// last is when the silence began.
func (i *idle) last() time.Time {
	last := i.pipes.lastActivity()
	if i.stream != nil {
		last = later(i.stream.Progress(), i.pipes.lastHeldUp())
	}
	if last.IsZero() {
		return i.since
	}
	return last
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (i *idle) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

// newStay arms the grace after the result; without one nothing is waited for.
func (r *run) newStay() *stay {
	if r.spec.ResultGrace <= 0 || r.deps.Stream == nil {
		return &stay{}
	}
	return &stay{grace: r.spec.ResultGrace, stream: r.deps.Stream, result: r.deps.Stream.Result()}
}

// stay is the limit on a process that stays after its result. An agent that still
// has something to tell, such as one that begins another turn because a task of
// its own is done, is not staying: the grace counts from the last event.
type stay struct {
	grace  time.Duration
	stream Stream
	result <-chan struct{} // nil: not waited for, or there
	timer  *time.Timer     // once the result is there
}

func (s *stay) counting() bool { return s.timer != nil }

func (s *stay) count() {
	s.result = nil
	s.timer = time.NewTimer(s.grace)
}

func (s *stay) C() <-chan time.Time {
	if s.timer == nil {
		return nil
	}
	return s.timer.C
}

// over judges when the timer fires, and sets it again if it is not over.
func (s *stay) over() bool {
	left := s.grace - time.Since(s.stream.Settled())
	if left <= 0 {
		return true
	}
	s.timer.Reset(left)
	return false
}

func (s *stay) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// overstayed ends a run that is over but for its process. One that has ended in
// the same moment ended by itself.
func (r *run) overstayed() {
	select {
	case <-r.child.Exited():
	default:
		r.why = &why{word: Exited, result: true}
	}
}

// outputBroke ends the run when nobody reads it any more: without us in
// between, the child would have got SIGPIPE.
func (r *run) outputBroke(err error) {
	r.out.OutputErr = err
	r.why = &why{word: Cancelled, err: err}
	if isBrokenPipe(err) {
		r.why = &why{word: Cancelled, signal: brokenPipe}
	}
}

// watchTerminal tells when the terminal that was handed over is closed. A
// child that ignores SIGHUP would not end by itself then.
func (r *run) watchTerminal() <-chan struct{} {
	if r.term == nil || signal.Ignored(syscall.SIGHUP) {
		return nil
	}
	gone := make(chan struct{})
	r.onClose(r.term.OnHangup(func() { close(gone) }))
	return gone
}

// watchContinue tells when a shell has continued us.
func (r *run) watchContinue() <-chan os.Signal {
	if r.term == nil {
		return nil
	}
	c := make(chan os.Signal, 1)
	notifyContinue(c)
	r.onClose(func() { signal.Stop(c) })
	return c
}

// watchSuspend tells when Ctrl-Z comes to us instead of to the child.
func (r *run) watchSuspend() <-chan os.Signal {
	if r.term == nil || signal.Ignored(suspendSignal) {
		return nil
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, suspendSignal)
	r.onClose(func() { signal.Stop(c) })
	return c
}

// childStopped passes a stop of the child on to the shell that waits for us:
// to it, we are the job.
func (r *run) childStopped(sig syscall.Signal) {
	if r.term == nil {
		return
	}
	if wantsTerminal(sig) && r.term.Foreground() {
		r.resume() // the shell has given us the terminal, and the child now asks for it
		return
	}
	r.term.KeepModes()
	r.takeTerminal()
	proc.StopSelf()
	r.resume()
}

// resume continues the child, with the terminal if it is ours to give.
func (r *run) resume() {
	if r.term.Foreground() {
		if err := r.term.Give(r.child.Pid); err != nil {
			r.warn(err)
		}
	}
	_ = r.child.SignalGroup(contSignal)
}

// flush brings the rest of the output to the caller. The slots are free by
// now, so that a reader who takes his time holds up nobody. After an ordinary
// end he may take as long as he likes, until a signal; otherwise flushLimit.
func (r *run) flush(ctx context.Context) {
	if r.pipes == nil {
		return
	}
	var limit <-chan time.Time
	if r.why != nil && !r.why.result || r.undoing {
		t := time.NewTimer(flushLimit)
		defer t.Stop()
		limit = t.C
	}
	for {
		select {
		case <-r.pipes.drained:
			return
		case <-limit:
			r.pipes.abort()
			limit = nil
		case <-r.after(ctx):
			r.pipes.abort()
			<-r.pipes.drained
			return
		case sig := <-r.spec.Signals:
			if r.endsRun(sig) {
				r.out.By = number(sig)
				r.pipes.abort()
			}
		}
	}
}

// hearOut waits, not for long, until what is read of a stream is read to its end.
func (r *run) hearOut() {
	if r.deps.Heard == nil || r.deps.Stream == nil || r.pipes == nil {
		return
	}
	t := time.NewTimer(flushLimit)
	defer t.Stop()
	select {
	case <-r.pipes.drained:
		r.deps.Heard()
	case <-t.C:
	}
}

// flushLimit is how long a run that was ended waits for its reader.
const flushLimit = time.Second

// after is the context's end, unless that is what ended the run.
func (r *run) after(ctx context.Context) <-chan struct{} {
	if ctx.Err() != nil && r.why != nil {
		return nil
	}
	return ctx.Done()
}
