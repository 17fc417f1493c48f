package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/proc"
)

// TestEndings is the table of how a run can end: S21, S22, C036, C114.
func TestEndings(t *testing.T) {
	var ready string // the file that a body makes when it may be ended
	whenReady := func(do func()) {
		go func(path string) {
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if _, err := os.Stat(path); err == nil {
					do()
					return
				}
			}
		}(ready)
	}
	signals := func(sigs ...os.Signal) func(*Spec, *context.CancelFunc) {
		return func(s *Spec, _ *context.CancelFunc) {
			c := make(chan os.Signal, 4)
			s.Signals = c
			whenReady(func() {
				for _, sig := range sigs {
					c <- sig
				}
			})
		}
	}
	const tree = `sleep T & (trap "" TERM; sleep T; sleep T) & (trap "" HUP; sleep T) & setsid sleep T & `
	const wait = `: >"$READY"; wait`
	for _, tt := range []struct {
		name   string
		body   string
		change func(*Spec, *context.CancelFunc)
		want   Outcome
		raise  syscall.Signal
		err    error
	}{
		{"exit 0", tree + `exit 0`, nil, Outcome{Outcome: Exited}, 0, nil},
		{"exit 75", tree + `exit 75`, nil, Outcome{Outcome: Exited, ExitCode: 75}, 0, nil},
		{"SIGKILL from outside", tree + `kill -9 $$`, nil, Outcome{Outcome: Signaled, Signal: unix.SIGKILL}, unix.SIGKILL, nil},
		{"SIGINT to us", tree + wait, signals(unix.SIGINT), Outcome{Outcome: Cancelled, By: unix.SIGINT, Signal: unix.SIGTERM}, unix.SIGINT, nil},
		{"SIGTERM to us", tree + wait, signals(unix.SIGTERM), Outcome{Outcome: Cancelled, By: unix.SIGTERM, Signal: unix.SIGTERM}, unix.SIGTERM, nil},
		{"SIGHUP to us", tree + wait, signals(unix.SIGHUP), Outcome{Outcome: Cancelled, By: unix.SIGHUP, Signal: unix.SIGTERM}, unix.SIGHUP, nil},
		{"exits 9 on TERM", tree + `trap 'exit 9' TERM; ` + wait, signals(unix.SIGTERM), Outcome{Outcome: Cancelled, By: unix.SIGTERM, ExitCode: 9}, unix.SIGTERM, nil},
		{"twice at once", `trap "" TERM INT; ` + tree + `: >"$READY"; while :; do sleep T; done`, signals(unix.SIGINT, unix.SIGINT), Outcome{Outcome: Cancelled, By: unix.SIGINT, Signal: unix.SIGKILL}, unix.SIGINT, nil},
		{"total limit", tree + `wait`, func(s *Spec, _ *context.CancelFunc) { s.Timeout = time.Second }, Outcome{Outcome: TimedOut, Limit: LimitTotal, Signal: unix.SIGTERM}, 0, nil},
		{"idle limit", tree + `echo x; wait`, func(s *Spec, _ *context.CancelFunc) { s.Idle = 100 * time.Millisecond }, Outcome{Outcome: TimedOut, Limit: LimitIdle, Signal: unix.SIGTERM}, 0, nil},
		{"context", tree + wait, func(_ *Spec, cancel *context.CancelFunc) { whenReady(*cancel) }, Outcome{Outcome: Cancelled, Signal: unix.SIGTERM}, 0, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tok := token(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			spec := sh(strings.ReplaceAll(tt.body, "sleep T", "sleep "+tok))
			ready = filepath.Join(t.TempDir(), "ready")
			spec.Env = append(spec.Env, "READY="+ready)
			if tt.change != nil {
				tt.change(&spec, &cancel)
			}
			lease := &fakeLease{atEnd: func() {
				if left := alive(t, tok); len(left) > 0 {
					t.Errorf("the slots were released while %v were alive", left)
				}
			}}
			start := time.Now()
			out, err := Agent(ctx, spec, admits(lease))
			if took := time.Since(start); took > time.Minute { // the bodies sleep for minutes
				t.Errorf("took %v", took)
			}
			if !errors.Is(err, tt.err) || (tt.err == nil) != (err == nil) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if out.Outcome != tt.want.Outcome || out.ExitCode != tt.want.ExitCode || out.Signal != tt.want.Signal ||
				out.By != tt.want.By || out.Limit != tt.want.Limit || out.Raise() != tt.raise {
				t.Errorf("outcome %+v, raise %v; want %+v, %v", *out, out.Raise(), tt.want, tt.raise)
			}
			if len(out.Survivors) > 0 || len(out.Warnings) > 0 || lease.String() != "record release" || lease.recorded.Ticks == 0 {
				t.Errorf("survivors %v, warnings %v, lease: %s of %+v", out.Survivors, out.Warnings, lease, lease.recorded)
			}
		})
	}
}

// TestEveryShapeEndsAtTheLimit: C044. A shell may or may not exec its last
// command, so one shape proves nothing.
func TestEveryShapeEndsAtTheLimit(t *testing.T) {
	var all sync.WaitGroup
	for _, shell := range []string{"bash", "dash"} {
		for _, body := range []string{`sleep T`, `sleep T; true`, `sleep T & wait`, `(sleep T)`, `sleep T | cat`} {
			tok := token(t)
			spec := sh("")
			spec.Argv = []string{shell, "-c", strings.ReplaceAll(body, "T", tok)}
			spec.Timeout, spec.RunID = 200*time.Millisecond, "run-"+tok
			all.Go(func() {
				start := time.Now()
				out, err := Agent(context.Background(), spec, Deps{})
				if took := time.Since(start); err != nil || out.Outcome != TimedOut || took > time.Minute || len(alive(t, tok)) > 0 { // the bodies sleep for minutes
					t.Errorf("%s %q: %+v, %v after %v, alive %v", shell, body, out, err, took, alive(t, tok))
				}
			})
		}
	}
	all.Wait()
}

// TestHeldPipeDelaysNothing: C043, S21b.
func TestHeldPipeDelaysNothing(t *testing.T) {
	for name, body := range map[string]string{
		"background": `echo '{"type":"result"}'; sleep T & exit 0`,
		"setsid":     `echo '{"type":"result"}'; setsid sleep T & until [ "$(cut -d" " -f6 /proc/$!/stat)" = $! ]; do sleep 0.01; done; exit 0`,
		"pipe":       `echo '{"type":"result"}'; sleep T | cat & exit 0`,
	} {
		for _, leave := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " leave=", leave), func(t *testing.T) {
				tok := token(t)
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				spec := sh(strings.ReplaceAll(body, "T", tok))
				spec.Record, spec.Stdout, spec.LeaveDaemons = true, w, leave
				start := time.Now()
				out, err := Agent(context.Background(), spec, Deps{})
				w.Close()
				if took := time.Since(start); err != nil || out.Outcome != Exited || took > time.Minute { // who holds it sleeps for minutes
					t.Errorf("%+v, %v after %v", out, err, took)
				}
				text, _ := io.ReadAll(r)
				if string(text) != "{\"type\":\"result\"}\n" {
					t.Errorf("output %q", text)
				}
				left := alive(t, tok)
				if want := leave && name == "setsid"; want != (len(left) > 0) || want != (len(out.Kept) > 0) {
					t.Errorf("left %v, kept %v", left, out.Kept)
				}
			})
		}
	}
}

// memory is a Recorder that keeps everything.
type memory struct {
	mu       sync.Mutex
	running  []Running
	out, err strings.Builder
	order    func(string)
}

func (m *memory) Running(r Running) error {
	m.running = append(m.running, r)
	if m.order != nil {
		m.order("recorded")
	}
	return nil
}

func (m *memory) Output(name string) io.Writer {
	b := &m.out
	if name == "stderr" {
		b = &m.err
	}
	return writerFunc(func(p []byte) (int, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return b.Write(p)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestRecordingSeesWhatTheCallerSees, and the child reads the payload or
// nothing: S20, C054.
func TestRecordingSeesWhatTheCallerSees(t *testing.T) {
	open, hold, err := os.Pipe() // a stdin that stays open
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	defer hold.Close()
	big := strings.Repeat("0123456789abcdef", 10<<16) // 10 MiB
	for _, tt := range []struct {
		name, body string
		payload    []byte
		out, err   string
	}{
		{"null device", `cat; echo o; echo e >&2`, nil, "o\n", "e\n"},
		{"empty payload", `cat; echo o`, []byte{}, "o\n", ""},
		{"payload", `cat`, []byte(big), big, ""},
		{"payload not read", `echo o`, []byte(big), "o\n", ""},
		{"a lot at the end", `head -c 1000000 /dev/zero | tr '\0' x; echo; exit 0`, nil, strings.Repeat("x", 1000000) + "\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan string)
			go func() {
				text, _ := io.ReadAll(r)
				r.Close()
				got <- string(text)
			}()
			spec := sh(tt.body)
			spec.Record, spec.Payload, spec.Stdin, spec.Stdout = true, tt.payload, open, w
			kept := &memory{}
			out, err := Agent(context.Background(), spec, Deps{Recorder: kept})
			w.Close()
			text := <-got
			if err != nil || out.Outcome != Exited || out.ExitCode != 0 {
				t.Errorf("%+v, %v", out, err)
			}
			if text != tt.out || kept.out.String() != tt.out || kept.err.String() != tt.err {
				t.Errorf("caller %d bytes, kept %d and %q; want %d and %q", len(text), kept.out.Len(), kept.err.String(), len(tt.out), tt.err)
			}
			if len(kept.running) != 1 || kept.running[0].Child != out.Child || out.LastOutput.IsZero() {
				t.Errorf("running %+v, last output %v", kept.running, out.LastOutput)
			}
		})
	}
}

// TestSilenceOfTheReaderIsNotTheAgents: C048. stderr and blank lines count as
// output; time in which the caller does not read does not count as silence.
func TestSilenceOfTheReaderIsNotTheAgents(t *testing.T) {
	var all sync.WaitGroup
	for name, body := range map[string]string{
		"stderr":      `for i in 1 2 3 4 5 6; do echo x >&2; sleep 1; done`,
		"blank lines": `for i in 1 2 3 4 5 6; do echo; sleep 1; done`,
	} {
		spec := sh(body)
		spec.Idle = 5 * time.Second
		all.Go(func() {
			if out, err := Agent(context.Background(), spec, Deps{}); err != nil || out.Outcome != Exited {
				t.Errorf("%s: %+v, %v", name, out, err)
			}
		})
	}
	defer all.Wait()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(6*time.Second, func() { _, _ = io.Copy(io.Discard, r); r.Close() })
	spec := sh(`head -c 300000 /dev/zero`)
	spec.Idle, spec.Stdout = 3*time.Second, w
	out, err := Agent(context.Background(), spec, Deps{})
	w.Close()
	if err != nil || out.Outcome != Exited {
		t.Errorf("slow reader: %+v, %v", out, err)
	}
}

// TestReaderGoneEndsTheRun: C105.
func TestReaderGoneEndsTheRun(t *testing.T) {
	tok := token(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	spec := sh("echo x; sleep " + tok)
	spec.Record, spec.Stdout = true, w
	out, err := Agent(context.Background(), spec, Deps{})
	if err != nil || out.Outcome != Cancelled || out.By != unix.SIGPIPE || !errors.Is(out.OutputErr, unix.EPIPE) || len(alive(t, tok)) > 0 {
		t.Errorf("%+v, %v", out, err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	spec = sh("echo x; sleep " + tok)
	spec.Record, spec.Stdout = true, full
	out, err = Agent(context.Background(), spec, Deps{})
	if !errors.Is(err, unix.ENOSPC) || out.Outcome != Cancelled || out.Raise() != 0 || len(alive(t, tok)) > 0 {
		t.Errorf("full disk: %+v, %v", out, err)
	}
}

// TestOrderOfTheWalk: S19.
func TestOrderOfTheWalk(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(s string) { mu.Lock(); order = append(order, s); mu.Unlock() }
	lease := &fakeLease{}
	deps := Deps{
		Nested:   func() error { note("nested"); return nil },
		Admit:    func(context.Context) (Lease, error) { note("admitted"); return lease, nil },
		Recorder: &memory{order: func(s string) { note(s + " after: " + lease.String()) }},
	}
	if _, err := Agent(context.Background(), sh(`exit 0`), deps); err != nil {
		t.Fatal(err)
	}
	want := []string{"nested", "admitted", "recorded after: record"}
	if !slices.Equal(order, want) || lease.String() != "record release" {
		t.Errorf("order %q, lease %s", order, lease)
	}
}

// TestRefusalsStartNothing: S19, C112, C129. Nothing is waited for once it is
// clear that nothing can run; what was taken is given back.
func TestRefusalsStartNothing(t *testing.T) {
	no := errors.New("no")
	marker := filepath.Join(t.TempDir(), "started")
	touch := sh("touch " + marker)
	gone, missing := touch, touch
	gone.Dir = "/no/such/dir"
	missing.Argv = []string{"no-such-engine"}
	for _, tt := range []struct {
		name  string
		spec  Spec
		deps  func(*fakeLease) Deps
		word  string
		lease string
		kind  proc.StartKind
	}{
		{"nested", touch, func(l *fakeLease) Deps { d := admits(l); d.Nested = func() error { return no }; return d }, Refused, "", -1},
		{"no directory", gone, admits, NotStarted, "", proc.NoDir},
		{"pool full", touch, func(*fakeLease) Deps {
			return Deps{Admit: func(context.Context) (Lease, error) { return nil, no }}
		}, Refused, "", -1},
		{"no program", missing, admits, NotStarted, "release", proc.NotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lease := &fakeLease{}
			out, err := Agent(context.Background(), tt.spec, tt.deps(lease))
			var start *proc.StartError
			switch {
			case tt.kind < 0 && !errors.Is(err, no):
				t.Errorf("error %v", err)
			case tt.kind >= 0 && (!errors.As(err, &start) || start.Kind != tt.kind):
				t.Errorf("error %v", err)
			}
			if out.Outcome != tt.word || out.Child.Pid != 0 || lease.String() != tt.lease {
				t.Errorf("%+v, lease %q", out, lease)
			}
			if _, err := os.Stat(marker); err == nil {
				t.Error("it was started")
			}
		})
	}
}

// TestUnwritableSlotEndsTheTree: S12.
func TestUnwritableSlotEndsTheTree(t *testing.T) {
	tok := token(t)
	no := errors.New("slot all/0 cannot be written")
	lease := &fakeLease{record: no, atEnd: func() {
		if left := alive(t, tok); len(left) > 0 {
			t.Errorf("released while %v are alive", left)
		}
	}}
	out, err := Agent(context.Background(), sh("setsid sleep "+tok+" & sleep "+tok), admits(lease))
	if !errors.Is(err, no) || out.Outcome != Refused || lease.String() != "record release" {
		t.Errorf("%+v, %v, lease %s", out, err, lease)
	}
}

// TestUnknownStartRefusesUnderACap: S12. Read twice; without slots it runs on.
func TestUnknownStartRefusesUnderACap(t *testing.T) {
	was := identify
	defer func() { identify = was }()
	calls := 0
	fails := 2
	identify = func(pid int) (proc.ID, error) {
		if calls++; calls <= fails {
			return proc.ID{}, errors.New("unreadable")
		}
		return was(pid)
	}
	for _, tt := range []struct {
		name  string
		fails int
		empty bool
		word  string
		lease string
	}{
		{"second read works", 1, false, Exited, "record release"},
		{"slots held", 2, false, Refused, "release"},
		{"no slots", 2, true, Exited, "record release"},
	} {
		calls, fails = 0, tt.fails
		lease := &fakeLease{empty: tt.empty}
		out, err := Agent(context.Background(), sh(`trap "" TERM; exit 0`), admits(lease))
		if out.Outcome != tt.word || lease.String() != tt.lease || (tt.word == Refused) != errors.Is(err, ErrNoIdentity) {
			t.Errorf("%s: %+v, %v, lease %s", tt.name, out, err, lease)
		}
	}
}

// TestWaitCanBeEnded: S22. By a signal, the total limit and the context; a
// lease that arrives in the same moment is given back.
func TestWaitCanBeEnded(t *testing.T) {
	for _, late := range []bool{false, true} {
		lease := &fakeLease{}
		waits := func(ctx context.Context) (Lease, error) {
			<-ctx.Done()
			if late {
				return lease, nil
			}
			return nil, ctx.Err()
		}
		for name, change := range map[string]func(*Spec) (context.Context, Outcome){
			"signal": func(s *Spec) (context.Context, Outcome) {
				c := make(chan os.Signal, 1)
				c <- unix.SIGTERM
				s.Signals = c
				return context.Background(), Outcome{Outcome: Cancelled, By: unix.SIGTERM}
			},
			"limit": func(s *Spec) (context.Context, Outcome) {
				s.Timeout = 10 * time.Millisecond
				return context.Background(), Outcome{Outcome: TimedOut, Limit: LimitTotal}
			},
			"context": func(*Spec) (context.Context, Outcome) {
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(10*time.Millisecond, cancel)
				return ctx, Outcome{Outcome: Cancelled}
			},
		} {
			lease.did = nil
			spec := sh("exit 3")
			ctx, want := change(&spec)
			out, err := Agent(ctx, spec, Deps{Admit: waits})
			if out.Outcome != want.Outcome || out.By != want.By || out.Limit != want.Limit || out.Child.Pid != 0 {
				t.Errorf("%s: %+v, %v", name, out, err)
			}
			if (name == "context") != (err != nil) || late != (lease.String() == "release") {
				t.Errorf("%s: error %v, lease %q", name, err, lease)
			}
		}
	}
}

// TestCancelRacesStart: C042. Whatever the moment, one outcome, no survivor,
// slots released.
func TestCancelRacesStart(t *testing.T) {
	tok := token(t)
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for i := range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		lease := &fakeLease{}
		spec := sh("sleep " + tok + " & sleep " + tok)
		time.AfterFunc(time.Duration(rand.Intn(5000))*time.Microsecond, cancel)
		out, _ := Agent(ctx, spec, admits(lease))
		cancel()
		if out.Outcome != Cancelled || !strings.HasSuffix(lease.String(), "release") {
			t.Fatalf("round %d: %+v, lease %s", i, out, lease)
		}
		if left := alive(t, tok); len(left) > 0 {
			t.Fatalf("round %d: alive %v", i, left)
		}
	}
	if kids := childrenOf(os.Getpid()); len(kids) > 0 {
		t.Errorf("children at rest: %+v", kids)
	}
}

// TestRunLeavesNoGoroutineOrDescriptor, for programs that embed the library.
func TestRunLeavesNoGoroutineOrDescriptor(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	once := func(i int) {
		spec := sh("cat; echo x; sleep 0.01 & exit 0")
		spec.Stdout = null
		switch i % 4 {
		case 1:
			spec.Record = true
		case 2:
			spec.Payload = []byte("p")
		case 3:
			spec.Record, spec.Argv = true, []string{"no-such-engine"}
		}
		_, _ = Agent(context.Background(), spec, Deps{Recorder: &memory{}})
	}
	for i := range 4 {
		once(i)
	}
	before := openFDs(t)
	for i := range 40 {
		once(i)
	}
	goleak.VerifyNone(t)
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	if kids := childrenOf(os.Getpid()); len(kids) > 0 {
		t.Errorf("children at rest: %+v", kids)
	}
}

// TestMarkersAreSetOverWhatWasThere: S24, C9.
func TestMarkersAreSetOverWhatWasThere(t *testing.T) {
	was := []string{"A=1", "HANDSEL_AGENT_DEPTH=0", "HANDSEL_OUTCOME=/x", "B=", "HANDSEL_RUN=old", "A=2", "HANDSEL_AGENT_DEPTH=7", "HANDSEL_TOKEN_FD=9", "odd"}
	for _, tt := range []struct {
		name string
		spec Spec
		want []string
	}{
		{"run", Spec{Env: was, Depth: 1, RunID: "new"}, []string{"A=1", "HANDSEL_AGENT_DEPTH=1", "B=", "HANDSEL_RUN=new", "A=2", "odd"}},
		{"gate", Spec{Env: was, Gate: true, RunID: "new"}, []string{"A=1", "HANDSEL_AGENT_DEPTH=0", "B=", "HANDSEL_RUN=new", "A=2", "HANDSEL_AGENT_DEPTH=7", "odd"}},
		{"seat in an empty environment", Spec{Depth: 0, RunID: "new"}, []string{"HANDSEL_AGENT_DEPTH=0", "HANDSEL_RUN=new"}},
	} {
		if got := ChildEnv(tt.spec); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestUserSignalsArePassedOn to the child alone.
func TestUserSignalsArePassedOn(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	signals := make(chan os.Signal, 1)
	spec := sh(`trap 'exit 5' USR1; echo ready; while :; do sleep 0.02; done`)
	spec.Stdout, spec.Signals = w, signals
	go func() {
		_, _ = r.Read(make([]byte, 16))
		signals <- unix.SIGUSR1
	}()
	out, err := Agent(context.Background(), spec, Deps{})
	w.Close()
	if err != nil || out.Outcome != Exited || out.ExitCode != 5 {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestUnendedChildKeepsItsSlots: S12, D1. All are kept by record, or all by lock.
func TestUnendedChildKeepsItsSlots(t *testing.T) {
	r := begin(Spec{}, Deps{})
	was := len(unreleased.leases)
	for _, keep := range []error{nil, errors.New("record incomplete")} {
		lease := &fakeLease{keep: keep}
		r.lease, r.child, r.report = lease, &proc.Child{}, proc.Report{}
		if err := r.release(); err != nil || !r.out.SlotsKept || lease.String() != "keep" {
			t.Errorf("release: %v, %+v, lease %s", err, r.out, lease)
		}
	}
	unreleased.Lock()
	defer unreleased.Unlock()
	if got := len(unreleased.leases) - was; got != 1 {
		t.Errorf("%d leases kept reachable, want the one whose locks must stay", got)
	}
}
