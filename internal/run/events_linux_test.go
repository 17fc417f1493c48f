package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEventsAreDeliveredAsOutputIs: C105. Who asks for events and does not take
// them holds the agent up, which is no silence of its; once they go nowhere the run
// ends; and nothing of it keeps a request to end from being heard.
func TestEventsAreDeliveredAsOutputIs(t *testing.T) {
	const endless = `while :; do echo '{"type":"text","text":"` + "%s" + `"}'; sleep 0.01; done; sleep T`
	long := strings.ReplaceAll(endless, "%s", strings.Repeat("x", 8000))
	for _, tt := range []struct {
		name string
		body string
		use  func(r, w *os.File) *os.File                      // what becomes of the caller's pipe
		ask  func(t *testing.T, s *Spec, cancel func())        // what happens meanwhile
		want func(o *Outcome, err error, got int, s Spec) bool // got = events the caller got
	}{
		{
			"closed", long,
			func(r, w *os.File) *os.File { r.Close(); return w },
			nil,
			func(o *Outcome, err error, _ int, _ Spec) bool {
				return err == nil && o.Outcome == Cancelled && o.By == unix.SIGPIPE
			},
		},
		{
			"full disk", long,
			func(_, w *os.File) *os.File {
				full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
				if err != nil {
					return w
				}
				return full
			},
			nil,
			func(o *Outcome, err error, _ int, _ Spec) bool {
				return errors.Is(err, unix.ENOSPC) && strings.Contains(err.Error(), "/dev/full") && o.Outcome == Cancelled && o.Raise() == 0
			},
		},
		{
			"not read, and cancelled", long,
			func(_, w *os.File) *os.File { return w },
			func(_ *testing.T, s *Spec, cancel func()) { time.AfterFunc(2*s.Idle, cancel) },
			func(o *Outcome, err error, _ int, s Spec) bool {
				return errors.Is(err, context.Canceled) && o.Outcome == Cancelled && o.Limit == "" && o.Ended.Sub(o.Started) > s.Idle
			},
		},
		{
			"read to the last", `for i in 1 2 3; do echo '{"type":"text","text":"x"}'; done; printf '{"type":"result","text":"ok"}'`,
			func(_, w *os.File) *os.File { return w },
			nil,
			func(o *Outcome, err error, got int, _ Spec) bool {
				return err == nil && o.Outcome == Exited && got == 4
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tok := token(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			spec := sh(strings.ReplaceAll(tt.body, "sleep T", "sleep "+tok))
			spec.Idle = time.Second
			spec.Events = tt.use(r, w)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if tt.ask != nil {
				tt.ask(t, &spec, cancel)
			}
			l := listen()
			out, err := Agent(ctx, spec, Deps{Recorder: l, Stream: l, Events: func(to io.Writer) func() {
				l.to = to
				return func() { _ = l.Close() }
			}})
			_ = l.Close() // what it says now comes too late, and touches nothing
			w.Close()
			text, _ := io.ReadAll(r)
			if !tt.want(out, err, bytes.Count(text, []byte("\n")), spec) || len(alive(t, tok)) > 0 {
				t.Errorf("%+v, %v, %d bytes of events", out, err, len(text))
			}
		})
	}
}
