package handoff

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// past is a deadline that is over.
var past = time.Unix(1, 0)

// clock says how long a call in one direction of a socket may take, so that the
// end of a context ends the call that is under way, and no later one.
//
// The socket's own deadline is set only when a call comes to wait, since most do
// not and setting it costs as much as a read. So the socket may have the
// deadline of an earlier call or step, which expired tells from ours.
type clock struct {
	set func(time.Time) error

	mu   sync.Mutex
	turn int       // of the call under way
	over bool      // its context has ended
	due  time.Time // it must be done by then; zero = no limit
	has  time.Time // the deadline the socket has
}

// begin starts a call, which may take limit (0 = as long as ctx). What it
// returns ends the call.
func (k *clock) begin(ctx context.Context, limit time.Duration) (end func()) {
	k.mu.Lock()
	k.turn++
	turn := k.turn
	k.over = false
	k.mu.Unlock()
	k.allow(limit)
	if ctx.Done() == nil {
		return func() {}
	}
	stop := context.AfterFunc(ctx, func() { k.expire(turn) })
	return func() {
		stop()
		k.mu.Lock()
		k.turn++
		k.mu.Unlock()
	}
}

// allow gives the call under way limit from now on.
func (k *clock) allow(limit time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.due = time.Time{}
	if limit > 0 {
		k.due = time.Now().Add(limit)
	}
}

// wait is called when the call comes to wait.
func (k *clock) wait() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.arm(k.due)
	}
}

// arm sets the socket's deadline. The caller holds the mutex.
func (k *clock) arm(by time.Time) {
	if !by.Equal(k.has) {
		k.has = by
		_ = k.set(by) // a socket that was closed meanwhile says so when it is used
	}
}

// expired tells whether err says that the time of the call under way is over. If
// it was an older deadline that passed, the socket gets the right one.
func (k *clock) expired(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over || !k.due.IsZero() && !time.Now().Before(k.due) {
		return true
	}
	k.arm(k.due)
	return false
}

func (k *clock) expire(turn int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turn == turn {
		k.over = true
		k.arm(past)
	}
}
