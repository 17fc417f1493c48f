package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/stream"
)

// listener is a recorder whose agent's stdout and stderr are read as events.
type listener struct {
	*stream.Reader
	mu     sync.Mutex
	kept   map[string]*bytes.Buffer
	events []stream.Event
	to     io.Writer // gets their texts, a line each; nil = nobody
}

func listen() *listener {
	l := &listener{kept: map[string]*bytes.Buffer{"stdout": {}, "stderr": {}}}
	l.Reader = stream.NewReader(testDecoder{}, stream.Options{Emit: func(e stream.Event) {
		l.events = append(l.events, e)
		if l.to != nil {
			fmt.Fprintln(l.to, e.Text)
		}
	}})
	return l
}

func (l *listener) Running(Running) error { return nil }

func (l *listener) Output(name string) io.Writer {
	to := io.Writer(l.Reader)
	if name == "stderr" {
		to = l.Stderr()
	}
	return writerFunc(func(p []byte) (int, error) {
		l.mu.Lock()
		l.kept[name].Write(p)
		l.mu.Unlock()
		return to.Write(p)
	})
}

// run runs spec and says how it ended, by the process and by the stream.
func (l *listener) run(t *testing.T, spec Spec) (*Outcome, stream.Ending) {
	t.Helper()
	out, err := Agent(context.Background(), spec, Deps{Recorder: l, Stream: l})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	exit := stream.Exit{Started: true, Code: out.ExitCode, Signal: int(out.Signal), Lost: out.OutputLost != nil}
	if out.Limit == LimitIdle {
		exit.Idle = spec.Idle
	}
	s := l.Summary()
	return out, s.End(exit)
}

type testDecoder struct{}

func (testDecoder) Line(l stream.Line) []stream.Event {
	var e stream.Event
	if err := json.Unmarshal(l.Data, &struct {
		Type *stream.Kind
		Text *string
	}{&e.Kind, &e.Text}); err != nil {
		panic(err)
	}
	return []stream.Event{e}
}
func (testDecoder) Stderr([]byte) []stream.Event { return nil }
func (testDecoder) End() []stream.Event          { return nil }

// TestStayingAfterTheResultIsEnded: C047, E12. It counts as exit 0 whatever it dies
// of, the result is kept, and whoever goes on working is left to it.
func TestStayingAfterTheResultIsEnded(t *testing.T) {
	const result = `echo '{"type":"result","text":"ok"}'; `
	for _, tt := range []struct {
		name  string
		body  string
		grace time.Duration
		after bool // it had to be ended
		code  int
	}{
		{"stays", result + `sleep T`, 200 * time.Millisecond, true, 0},
		{"stays with children", result + `setsid sleep T & sleep T & wait`, 200 * time.Millisecond, true, 0},
		{"ignores the request", result + `trap "" TERM; sleep T; sleep T`, 200 * time.Millisecond, true, 0},
		{"answers it with 9", result + `trap 'exit 9' TERM; sleep T & wait`, 200 * time.Millisecond, true, 0},
		{"stays and prints noise", result + `i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done`, 200 * time.Millisecond, true, 0},
		{"stays without a newline", `printf '{"type":"result","text":"ok"}\n{"ty'; sleep T`, 200 * time.Millisecond, true, 0},
		{"leaves in time", result + `sleep 0.05; exit 3`, 10 * time.Minute, false, 3},
		{"has more to tell", result + `for i in 1 2 3 4 5 6; do sleep 1; echo '{"type":"text","text":"'$i'"}'; done; exit 3`, 5 * time.Second, false, 3},
		{"no grace", result + `sleep 0.3; exit 3`, 0, false, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tok := token(t)
			spec := sh(strings.ReplaceAll(tt.body, "sleep T", "sleep "+tok))
			spec.ResultGrace = tt.grace
			lease := &fakeLease{}
			l := listen()
			start := time.Now()
			out, err := Agent(context.Background(), spec, Deps{Recorder: l, Stream: l, Admit: admits(lease).Admit})
			if err != nil || out.Outcome != Exited || out.AfterResult != tt.after || out.ExitCode != tt.code || out.Signal != 0 || out.Raise() != 0 {
				t.Errorf("%+v, %v", out, err)
			}
			if (len(out.Notes) == 1) != tt.after || len(out.Warnings) > 0 || len(out.Survivors) > 0 {
				t.Errorf("notes %q, warnings %v, survivors %v", out.Notes, out.Warnings, out.Survivors)
			}
			if took := time.Since(start); took > time.Minute || tt.after && took < tt.grace {
				t.Errorf("took %v", took)
			}
			if left := alive(t, tok); len(left) > 0 || lease.String() != "record release" {
				t.Errorf("alive %v, lease %s", left, lease)
			}
			if r := l.Summary().Result; r == nil || r.Text != "ok" {
				t.Errorf("result %+v", r)
			}
		})
	}
}

// TestOverstayedRunIsDeliveredWhole: the caller gets all of it, however long he
// takes, as after any ordinary end.
func TestOverstayedRunIsDeliveredWhole(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan int)
	time.AfterFunc(flushLimit+3*time.Second, func() {
		text, _ := io.ReadAll(r)
		r.Close()
		got <- len(text)
	})
	tok := token(t)
	spec := sh(`echo '{"type":"result","text":"ok"}'; head -c 90000 /dev/zero; sleep ` + tok)
	spec.Stdout, spec.ResultGrace = w, time.Second
	out, _ := listen().run(t, spec)
	w.Close()
	if n := <-got; n != 90030 || !out.AfterResult {
		t.Errorf("%d bytes, %+v", n, out)
	}
}

// TestIdleLimitAsksForProgress: C048, C126, E12. What a stream tells nothing new by
// does not keep a run alive; what it says, does.
func TestIdleLimitAsksForProgress(t *testing.T) {
	every := func(what string) string {
		return `echo '{"type":"text","text":"a"}'; i=0; while [ $i -lt 100 ]; do i=$((i+1)); ` + what + `; sleep 0.05; done`
	}
	for _, tt := range []struct {
		name  string
		body  string
		idle  time.Duration
		ended bool
	}{
		{"silent", `echo '{"type":"text"}'; sleep T`, 400 * time.Millisecond, true},
		{"silent from the beginning", `sleep T`, 400 * time.Millisecond, true},
		{"only stderr", every(`echo $i >&2`), 400 * time.Millisecond, true},
		{"empty lines", every(`echo`), 400 * time.Millisecond, true},
		{"the same error again", every(`echo '{"type":"error","text":"429"}'; echo`), 400 * time.Millisecond, true},
		{"events", `for i in 1 2 3 4 5 6; do echo '{"type":"text","text":"'$i'"}'; sleep 1; done`, 5 * time.Second, false},
		{"other lines", `for i in 1 2 3 4 5 6; do echo $i; sleep 1; done`, 5 * time.Second, false},
		{"a result", `echo '{"type":"result","text":"ok"}'; sleep 6`, 5 * time.Second, false}, // the grace is for that
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.ended {
				t.Parallel() // they take their time
			}
			tok := token(t)
			spec := sh(strings.ReplaceAll(tt.body, "sleep T", "sleep "+tok))
			spec.Idle, spec.ResultGrace = tt.idle, 20*time.Second
			l := listen()
			start := time.Now()
			out, end := l.run(t, spec)
			switch {
			case tt.ended && (out.Outcome != TimedOut || out.Limit != LimitIdle || end.Kind != stream.Stalled || time.Since(start) > time.Minute):
				t.Errorf("%+v, %+v after %v", out, end, time.Since(start))
			case !tt.ended && out.Outcome != Exited:
				t.Errorf("%+v, %+v", out, end)
			}
		})
	}
}

// TestCallerWhoTakesHisTimeIsNotTheAgentsSilence, also where progress is asked for.
func TestCallerWhoTakesHisTimeIsNotTheAgentsSilence(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	time.AfterFunc(8*time.Second, func() { _, _ = io.Copy(io.Discard, r); r.Close() })
	spec := sh(`i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo "$i 0123456789012345678901234567890123456789012345678901234567890123456789"; done; echo '{"type":"result","text":"ok"}'`)
	spec.Idle, spec.Stdout = 5*time.Second, w
	l := listen()
	if out, end := l.run(t, spec); out.Outcome != Exited || !end.Succeeded {
		t.Errorf("%+v, %+v", out, end)
	}
}

// TestStdoutThatIsClosedIsNotTheEnd: C103. The run ends with its process.
func TestStdoutThatIsClosedIsNotTheEnd(t *testing.T) {
	for _, tt := range []struct {
		body   string
		code   int
		kind   stream.Fault
		closed bool
	}{
		{`for i in 1 2 3; do echo '{"type":"text"}'; done; exec >&-; sleep 2; exit 0`, 0, stream.NoResult, true},
		{`echo '{"type":"text"}'; exec >&- 2>&-; sleep 2; exit 1`, 1, stream.ByAgent, true},
		{`echo '{"type":"result","text":"ok"}'; exec >&-; sleep 2; exit 0`, 0, "", true},
		{`echo '{"type":"text"}'; exit 0`, 0, stream.NoResult, false},
	} {
		spec := sh(tt.body)
		start := time.Now()
		var before, after unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
		out, end := listen().run(t, spec)
		_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
		if out.Outcome != Exited || out.ExitCode != tt.code || end.Kind != tt.kind || end.Succeeded != (tt.kind == "") {
			t.Errorf("%s: %+v, %+v", tt.body, out, end)
		}
		if tt.closed && (time.Since(start) < 2*time.Second || out.StdoutClosed.Before(start) || out.Ended.Sub(out.StdoutClosed) < livedOn) || !tt.closed && !out.StdoutClosed.IsZero() {
			t.Errorf("%s: stdout closed %v, ended %v", tt.body, out.StdoutClosed, out.Ended)
		}
		if used := time.Duration(after.Utime.Nano() - before.Utime.Nano()); tt.closed && used > time.Second {
			t.Errorf("%s: %v of processor time while nothing came", tt.body, used)
		}
	}
}

// TestOutputThatCannotBeReadIsTold: the caller learns that something is missing.
func TestOutputThatCannotBeReadIsTold(t *testing.T) {
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := &pipes{pumps: []*pump{{name: "stdout", from: w}}} // the wrong end of it
	p.run(p.pumps[0])
	var o Outcome
	if p.tell(&o, time.Now()); !errors.Is(o.OutputLost, unix.EBADF) {
		t.Errorf("%+v", o)
	}
}

// TestEventsArriveWholeHoweverTheyAreWritten: C098, C100, C101, C102, C104.
func TestEventsArriveWholeHoweverTheyAreWritten(t *testing.T) {
	const text = "中文🎉é"
	big := strings.Repeat(text, 100<<10/len(text)) // more than a pipe takes
	result := `{"type":"result","text":"` + big + `"}`
	for _, tt := range []struct {
		name    string
		body    string
		payload string
		result  string
		success bool
		texts   int
	}{
		{"byte by byte", `export LC_ALL=C; head -n 1 | while IFS= read -r -n 1 c; do printf %s "$c"; sleep 0.001; done`, `{"type":"result","text":"` + text + `"}` + "\n", text, true, 0},
		{"larger than a pipe", `cat`, result + "\n", big, true, 0},
		{"without its newline", `cat`, result, big, true, 0},
		{"half of it", `head -c 200000`, result[:200], "", false, 0},
		{"much on stderr before", `head -c 10000000 /dev/zero | tr '\0' '\n' >&2; cat`, result, big, true, 0},
		{"65,537 bytes on stderr", `head -c 65537 /dev/zero >&2; cat`, result, big, true, 0},
		{"much on both", `(for i in 1 2 3; do head -c 3000000 /dev/zero | tr '\0' x >&2; done) & i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo '{"type":"text","text":"'$i'"}'; done; wait; cat`, result, big, true, 300},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := sh(tt.body)
			spec.Argv[0] = "bash"
			spec.Payload = []byte(tt.payload)
			l := listen()
			out, end := l.run(t, spec)
			if out.Outcome != Exited || out.ExitCode != 0 || end.Succeeded != tt.success {
				t.Errorf("%+v, %.300s", out, fmt.Sprintf("%+v", end))
			}
			if r := l.Summary().Result; (r != nil) != tt.success || r != nil && r.Text != tt.result {
				t.Errorf("a result: %v", r != nil)
			}
			texts := 0
			for _, e := range l.events {
				if e.Kind == stream.Text {
					if texts++; e.Text != fmt.Sprint(texts) {
						t.Fatalf("event %d says %q", texts, e.Text)
					}
				}
			}
			if texts != tt.texts || !strings.Contains(l.kept["stdout"].String(), strings.TrimSpace(tt.payload)) {
				t.Errorf("%d texts; %d bytes kept", texts, l.kept["stdout"].Len())
			}
		})
	}
}

// TestWhatIsInThePipeIsRead: C104. A run whose reader was stopped meanwhile loses
// nothing of what its agent had written before it exited.
func TestWhatIsInThePipeIsRead(t *testing.T) {
	stopped := make(chan struct{})
	l := listen()
	slow := &slowRecorder{listener: l, wait: stopped}
	time.AfterFunc(500*time.Millisecond, func() { close(stopped) })
	spec := sh(`head -c 60000 /dev/zero | tr '\0' '\n'; echo '{"type":"result","text":"ok"}'; exit 0`)
	out, err := Agent(context.Background(), spec, Deps{Recorder: slow, Stream: l})
	_ = l.Close()
	s := l.Summary()
	if err != nil || out.Outcome != Exited || s.Result == nil || s.Counts.Lines != 60001 {
		t.Errorf("%+v, %v, %+v", out, err, s.Counts)
	}
}

// slowRecorder takes nothing until it may.
type slowRecorder struct {
	*listener
	wait chan struct{}
}

func (s *slowRecorder) Output(name string) io.Writer {
	to := s.listener.Output(name)
	return writerFunc(func(p []byte) (int, error) {
		<-s.wait
		return to.Write(p)
	})
}

// TestOnlyFilesAreWrittenWithoutWaiting: what may make us wait is asked first, so
// that the waiting can be given up.
func TestOnlyFilesAreWrittenWithoutWaiting(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, _ := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	defer null.Close()
	full, _ := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	defer full.Close()
	for f, want := range map[*os.File]bool{file: true, null: true, w: false, full: false} {
		if neverWaits(f) != want {
			t.Errorf("%s: %v", f.Name(), !want)
		}
	}
	spec := sh(`head -c 3000000 /dev/zero; echo end`)
	spec.Record, spec.Stdout = true, file
	if out, err := Agent(context.Background(), spec, Deps{}); err != nil || out.Outcome != Exited {
		t.Fatalf("%+v, %v", out, err)
	}
	text, err := os.ReadFile(file.Name())
	if err != nil || len(text) != 3000004 || !bytes.HasSuffix(text, []byte("\x00end\n")) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
