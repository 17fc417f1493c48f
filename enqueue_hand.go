package handsel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
)

// answerPatience is how long the first answer is waited for, and askPatience
// how long it is asked afterwards what became of the attempt (L9). Tests
// shorten them.
var (
	answerPatience = 5 * time.Second
	askPatience    = 5 * time.Second
)

// askPause lies between two questions that nobody answered.
const askPause = 20 * time.Millisecond

// codeUnknownAttempt says that an attempt was never accepted.
const codeUnknownAttempt = "unknown_attempt"

// WrongVersion reports a dispatcher that speaks another version of the protocol.
type WrongVersion = handoff.VersionError

// hand writes what the dispatcher needs and hands the lane over (L5). On any
// error but *Unknown the dispatcher does not have it and never will.
func (r *request) hand(ctx context.Context) (*Enqueued, error) {
	var err error
	if r.flush, err = attempt.Put(r.home.dir, r.row.ID, &r.payload); err != nil {
		return nil, err
	}
	failpoint.Hit("enqueue.payload")
	answer, err := r.present(ctx)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("enqueue.answered")
	if err := refusalOf(answer); err != nil {
		return nil, err
	}
	if err := r.flush.Wait(); err != nil && r.o.OnNote != nil {
		// It is accepted, and will run; what is not sure is only that it would
		// after a power loss.
		r.o.OnNote(fmt.Sprintf("accepted, and may be lost with the power: %v", err))
	}
	return r.accepted(answer.State, answer.Outcome), nil
}

// present writes the entry and sends the row. The dispatcher may be removing
// the entry of the lane's last attempt at that moment, and ours with it: it says
// so, and as the lane is ours the next one stays.
func (r *request) present(ctx context.Context) (*handoff.Answer, error) {
	for tries := 1; ; tries++ {
		r.wrote = true
		if err := attempt.WriteEntry(r.home.dir, r.entry()); err != nil {
			return nil, err
		}
		failpoint.Hit("enqueue.entry")
		answer, err := r.send(ctx)
		if err != nil || answer.OK || answer.Code != codeNoEntry || tries == entryTries {
			return answer, err
		}
	}
}

// codeNoEntry refuses a lane whose entry is not there, or another attempt's.
const codeNoEntry = "no_entry"

// entryTries is how often the entry is written at most.
const entryTries = 3

// entry is the view of the lane until the dispatcher has it: ours, with the
// place in line that it is to keep.
func (r *request) entry() *attempt.Entry {
	me := r.hold.Record().Holder
	return attempt.EntryOf(&r.row, attempt.Owner{Role: r.hold.Record().Role, Pid: me.Pid, Started: me.Ticks}, "")
}

// send sends the row with exactly one descriptor and waits for the answer. An
// answer that does not come is asked for. A dispatcher that closes before it has
// the whole row is being relieved or has ended: whoever listens now gets it.
func (r *request) send(ctx context.Context) (*handoff.Answer, error) {
	for until := time.Now().Add(answerPatience); ; {
		answer, err := r.sendOnce(ctx)
		unsent, ok := errors.AsType[*notSent](err)
		switch {
		case ok && ctx.Err() == nil && time.Now().Before(until):
			time.Sleep(askPause)
			continue
		case ok:
			return nil, r.unreached(unsent.err)
		}
		return answer, err
	}
}

func (r *request) sendOnce(ctx context.Context) (*handoff.Answer, error) {
	conn, err := handoff.Dial(ctx, r.home.dir)
	if err != nil {
		return nil, r.unreached(err)
	}
	defer conn.Close()
	failpoint.Hit("enqueue.connected")
	answer, err := r.offer(ctx, conn, answerPatience)
	if lost, ok := errors.AsType[*lostAnswer](err); ok {
		return r.ask(ctx, lost)
	}
	return answer, err
}

// notSent reports a connection that was closed before the whole row was on its
// way: it was not accepted there, and will not be.
type notSent struct{ err error }

func (e *notSent) Error() string { return e.err.Error() }

// lostAnswer reports a row that was sent, and not answered.
type lostAnswer struct {
	err error
	// over says that the other side has closed: what it has not done by now with
	// what we sent, it will not do.
	over bool
}

func (e *lostAnswer) Error() string { return e.err.Error() }

// offer sends the row on a connection and reads the answer. The error is
// *lostAnswer once the whole row is on its way: a part of a frame is never
// accepted.
func (r *request) offer(ctx context.Context, conn *handoff.Conn, patience time.Duration) (*handoff.Answer, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	sent := conn.Send(ctx, handoff.Enqueue{Row: r.row}, r.hold.Fd())
	failpoint.Hit("enqueue.sent")
	answer, err := receive(ctx, conn)
	switch {
	case err == nil, errors.As(err, new(*WrongVersion)): // a refusal may come before all was read
		return answer, err
	case sent != nil && closed(sent):
		return nil, &notSent{sent}
	case sent != nil:
		return nil, r.unreached(sent)
	}
	return nil, &lostAnswer{err, closed(err)}
}

// closed tells an answer that will not come from one that did not come in time.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// receive reads one answer. What comes with it is closed: nothing should.
func receive(ctx context.Context, conn *handoff.Conn) (*handoff.Answer, error) {
	f, err := conn.Receive(ctx)
	if err != nil {
		return nil, err
	}
	f.CloseFds()
	answer := new(handoff.Answer)
	if f.Type != answer.Type() {
		return nil, fmt.Errorf("the dispatcher answered with a message of type %q", f.Type)
	}
	return answer, f.Decode(answer)
}

// ask finds out what became of a row whose answer did not come, for at most
// askPatience. Our copy of the lane stays: were the row not accepted, nobody
// else could have taken the lane meanwhile. It goes along with the question, as
// the one who accepted the row may be dead, and who answers for it without the
// lane as long as we have it.
func (r *request) ask(ctx context.Context, lost *lostAnswer) (*handoff.Answer, error) {
	ctx, stop := context.WithTimeout(ctx, askPatience)
	defer stop()
	for {
		answer, err := r.askOnce(ctx, lost)
		if err == nil {
			return answer, nil
		}
		if !errors.Is(err, errAskAgain) && ctx.Err() == nil {
			lost.err = err
		}
		select {
		case <-ctx.Done():
			return nil, r.unknown(lost)
		case <-time.After(askPause):
		}
	}
}

// unknown says that nobody answered, and who should have: by the dispatcher's
// own word on itself, since a socket tells who made it.
func (r *request) unknown(lost *lostAnswer) *Unknown {
	u := &Unknown{Lane: r.row.Lane, Attempt: r.row.ID, Err: lost.err}
	if who, held := api.Judge(r.home.dir); held && who != nil {
		u.Pid = who.Pid
	}
	return u
}

var errAskAgain = errors.New("not known yet")

// askOnce asks on a connection of its own. What was never accepted is offered
// again under the same id, which is accepted once, however often it is sent. A
// refusal counts only where the first offer cannot be accepted any more: while
// it may still lie unread, it may be the second that comes too early.
func (r *request) askOnce(ctx context.Context, lost *lostAnswer) (*handoff.Answer, error) {
	conn, err := handoff.Dial(ctx, r.home.dir)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.Send(ctx, handoff.Ask{Attempt: r.row.ID}, r.hold.Fd()); err != nil {
		return nil, err
	}
	failpoint.Hit("enqueue.asked")
	answer, err := receive(ctx, conn)
	switch {
	case err != nil:
		return nil, err
	case answer.OK:
		return answer, nil
	case answer.Code != codeUnknownAttempt:
		return nil, errAskAgain // busy, or about to stop
	}
	return r.offerAgain(ctx, lost)
}

func (r *request) offerAgain(ctx context.Context, lost *lostAnswer) (*handoff.Answer, error) {
	conn, err := handoff.Dial(ctx, r.home.dir)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := r.offer(ctx, conn, askPatience)
	if later, ok := errors.AsType[*lostAnswer](err); ok {
		lost.over = lost.over && later.over
		return nil, later.err
	}
	if err == nil && !answer.OK && !lost.over {
		return nil, errAskAgain
	}
	return answer, err
}

// unreached is why no dispatcher got the row.
func (r *request) unreached(err error) error {
	who, held := api.Judge(r.home.dir)
	switch {
	case !held && (errors.As(err, new(*home.Nobody)) || closed(err)):
		return &NoDispatcher{Home: r.home.dir.Path}
	case held && (closed(err) || errors.As(err, new(*home.Nobody)) || errors.As(err, new(*home.Unusable)) || errors.As(err, new(*handoff.Broken)) || errors.Is(err, context.DeadlineExceeded)):
		silent := &SilentDispatcher{Err: err}
		if who != nil {
			silent.Pid = who.Pid
		}
		return silent
	}
	return fmt.Errorf("hand lane %s over: %w", strconv.QuoteToASCII(r.row.Lane), err)
}

// refusalOf is an answer's no as an error, nil for a yes.
func refusalOf(a *handoff.Answer) error {
	if a.OK {
		return nil
	}
	switch a.Code {
	case codeUnknownAfter, codeCyclicAfter:
		return &BadAfter{Why: a.Message, code: a.Code}
	case codeWaiterMode:
		return &WrongMode{Mode: "waiter"}
	}
	reason := Reason{Class: a.Class, Code: a.Code, Message: a.Message, Retryable: a.Retryable}
	if until, err := time.Parse(time.RFC3339, a.Until); err == nil {
		reason.Until = at(until)
	}
	return &Declined{Reason: reason}
}

// codeWaiterMode refuses for the mode, which another process may see otherwise
// than we do.
const codeWaiterMode = "waiter_mode"
