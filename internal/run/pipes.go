package run

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
)

// pipes stand between a child and the caller's stdio when output is kept or
// silence is measured. Each end here belongs to pipes until close.
type pipes struct {
	stdin, stdout, stderr *os.File // the child's ends, until childHasThem
	tty                   *tty     // nil = no pseudo-terminal
	payload               []byte
	feed                  *os.File // our end of the child's stdin; nil = none

	pumps   []*pump
	broken  chan error    // the first write to the caller that failed
	drained chan struct{} // closed when every pump is done
	stop    *stopper      // ends waits on the caller

	last    atomic.Int64 // time of the last byte, Unix nanoseconds
	lastRun time.Time    // when pipes were made: the origin of the monotonic clock in last
	busy    atomic.Int32 // pumps that wait for the caller
	held    atomic.Int64 // until when the caller last made the child wait, as last
	events  *outlet      // for what is made of the output; nil = nobody wants it
	read    func()       // told when all is read; nil = nobody asked
	started bool
	rest    sync.WaitGroup // keyboard and payload
}

// pump moves one stream.
type pump struct {
	name string
	from *os.File
	to   *outlet
	log  io.Writer // the recorder's; nil = none
	err  error     // of the log; read after drained, as the two below
	over time.Time // when the child closed it; zero = it did not
	lost error     // why it could not be read to its end
}

func newPipes(spec Spec, rec Recorder) (p *pipes, err error) {
	p = &pipes{
		payload: spec.Payload, broken: make(chan error, 3), drained: make(chan struct{}), lastRun: time.Now(),
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.stop, err = newStopper(); err != nil {
		return p, err
	}
	if spec.Payload != nil {
		if p.stdin, p.feed, err = os.Pipe(); err != nil {
			return p, err
		}
	}
	if !spec.NoPTY {
		if p.tty, err = newTTY(spec); err != nil {
			return p, err
		}
	}
	if p.tty != nil {
		p.stdout = p.tty.slave
		p.add("stdout", p.tty.master, spec.Stdout, rec)
		if p.stdin == nil && p.tty.keyboard != nil {
			p.stdin = p.tty.slave
		}
		if p.tty.errToo {
			p.stderr = p.tty.slave
			return p, nil
		}
	} else if p.stdout, err = p.pipe("stdout", spec.Stdout, rec); err != nil {
		return p, err
	}
	p.stderr, err = p.pipe("stderr", spec.Stderr, rec)
	return p, err
}

// pipe makes one stream and returns the child's end.
func (p *pipes) pipe(name string, to *os.File, rec Recorder) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	widen(r)
	p.add(name, r, to, rec)
	return w, nil
}

func (p *pipes) add(name string, from, to *os.File, rec Recorder) {
	m := &pump{name: name, from: from, to: p.outlet(to)}
	if rec != nil {
		m.log = rec.Output(name)
	}
	p.pumps = append(p.pumps, m)
}

// fill gives the child's ends to spec.
func (p *pipes) fill(spec *proc.Spec) {
	spec.Stdin, spec.Stdout, spec.Stderr = p.stdin, p.stdout, p.stderr
	if p.tty != nil {
		spec.HasTerminal, spec.OwnTerminal = true, 1
	}
}

// childHasThem closes our copies of the child's ends; a copy kept here would
// keep the streams open for ever.
func (p *pipes) childHasThem() {
	closed := map[*os.File]bool{nil: true}
	for _, f := range []**os.File{&p.stdin, &p.stdout, &p.stderr} {
		if !closed[*f] {
			closed[*f] = true
			(*f).Close()
		}
		*f = nil
	}
	if p.tty != nil {
		if !closed[p.tty.slave] {
			p.tty.slave.Close()
		}
		p.tty.slave = nil
	}
}

// start sets everything in motion.
func (p *pipes) start() {
	p.started = true
	var all sync.WaitGroup
	for _, m := range p.pumps {
		all.Go(func() { p.run(m) })
	}
	go func() {
		all.Wait()
		if p.read != nil {
			p.read()
		}
		close(p.drained)
	}()
	if p.feed != nil {
		p.rest.Go(func() {
			_, _ = p.feed.Write(p.payload) // a child that does not read it all is no error
			p.feed.Close()
		})
	}
	if p.tty != nil {
		p.tty.start(p)
	}
}

// atATime is how much is read at a time, in bytes: what a pipe holds by default.
const atATime = 64 << 10

func (p *pipes) run(m *pump) {
	buf := make([]byte, atATime)
	for {
		n, err := m.from.Read(buf)
		if n > 0 {
			p.take(m, buf[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.drain(m, buf)
			return
		}
		if err != nil {
			m.over = time.Now()
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EIO) { // EIO is the end of file of a pseudo-terminal
				m.lost = err
			}
			return
		}
	}
}

// maxDrain is how much is still read once the tree has ended: the most that a
// pipe holds. A survivor that goes on writing is not followed.
const maxDrain = 1 << 20

// drain takes what is in the pipe already, and waits for nothing.
func (p *pipes) drain(m *pump, buf []byte) {
	_ = m.from.SetReadDeadline(time.Time{})
	for total := 0; total < maxDrain; {
		n := readReady(m.from, buf)
		if n <= 0 {
			return
		}
		total += n
		p.take(m, buf[:n])
	}
}

// take delivers what the child has written.
func (p *pipes) take(m *pump, data []byte) {
	p.touch()
	if m.log != nil && m.err == nil {
		_, m.err = m.log.Write(data)
	}
	if m.to.to != nil {
		_, _ = m.to.Write(data)
		p.touch()
	}
}

// outlet is where something goes that the caller gets. One goroutine at a time
// may write to it.
type outlet struct {
	pipes *pipes
	to    *os.File // nil = nowhere, or nowhere any more
	slow  bool     // to may make us wait for whoever reads it
}

func (p *pipes) outlet(to *os.File) *outlet {
	return &outlet{pipes: p, to: to, slow: !neverWaits(to)}
}

// Write delivers data, which may take as long as the caller likes. It never
// fails: that nobody reads ends the run, and what comes after goes nowhere.
func (o *outlet) Write(data []byte) (int, error) {
	if o.to == nil {
		return len(data), nil
	}
	p := o.pipes
	p.busy.Add(1)
	begun := time.Now()
	err := p.stop.write(o.to, data, o.slow)
	if time.Since(begun) > atOnce {
		p.held.Store(p.clock())
	}
	p.busy.Add(-1)
	if err == nil {
		return len(data), nil
	}
	if !errors.Is(err, errStopped) {
		p.broken <- &os.PathError{Op: "write", Path: o.to.Name(), Err: err}
	}
	o.to = nil
	return len(data), nil
}

// atOnce is how long a write takes at most whose reader makes nobody wait.
const atOnce = 10 * time.Millisecond

func (p *pipes) touch() { p.last.Store(p.clock()) }

// clock is the time since lastRun, and never 0.
func (p *pipes) clock() int64 { return int64(time.Since(p.lastRun)) + 1 }

func (p *pipes) moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return p.lastRun.Add(time.Duration(n))
}

// lastActivity is when the last byte came; zero before the first.
func (p *pipes) lastActivity() time.Time { return p.moment(p.last.Load()) }

// lastHeldUp is until when the caller last made the child wait; zero = never.
func (p *pipes) lastHeldUp() time.Time { return p.moment(p.held.Load()) }

func (p *pipes) delivering() bool { return p.busy.Load() > 0 }

// childEnded stops the reading: what is in the pipes is still taken, whoever
// holds them open is not waited for (S21b).
func (p *pipes) childEnded() {
	for _, m := range p.pumps {
		_ = m.from.SetReadDeadline(time.Now())
	}
	if p.tty != nil {
		p.tty.stop()
	}
	if p.feed != nil {
		p.feed.Close()
	}
}

// abort stops the waiting for the caller.
func (p *pipes) abort() { p.stop.set() }

// livedOn is how long a child must go on after it has closed its stdout to be
// said to have done so: the end of a process closes it, too.
const livedOn = time.Second

// tell puts into the outcome what the pumps have seen. The child ended when gone
// says.
func (p *pipes) tell(o *Outcome, gone time.Time) {
	if o.OutputErr == nil {
		select {
		case o.OutputErr = <-p.broken:
		default:
		}
	}
	if last := p.lastActivity(); !last.IsZero() {
		o.LastOutput = machine.Now().Add(-time.Since(last))
	}
	for _, m := range p.pumps {
		if m.err != nil {
			o.Warnings = append(o.Warnings, m.err)
		}
		if m.name != "stdout" {
			continue
		}
		if o.OutputLost = m.lost; !m.over.IsZero() && gone.Sub(m.over) > livedOn {
			o.StdoutClosed = machine.Now().Add(-time.Since(m.over))
		}
	}
}

// close gives back every descriptor and waits for every goroutine.
func (p *pipes) close() {
	p.childHasThem()
	if p.stop != nil {
		p.stop.set()
	}
	if p.started {
		p.childEnded()
		<-p.drained
		p.rest.Wait()
	}
	if p.feed != nil {
		p.feed.Close()
	}
	for _, m := range p.pumps {
		m.from.Close()
	}
	if p.tty != nil {
		p.tty.close()
	}
	if p.events != nil {
		p.events.to = nil // what somebody still makes of the output comes too late
	}
	if p.stop != nil {
		p.stop.close()
	}
}
