//go:build unix

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newHome(t *testing.T) home.Dir {
	t.Helper()
	d := home.Dir{Path: filepath.Join(t.TempDir(), "home")}
	must(t, d.Ensure())
	return d
}

// serve answers at a home's socket, as a dispatcher that has its lock.
func serve(t *testing.T, d home.Dir, h http.Handler) {
	t.Helper()
	lockAs(t, d, proc.Self())
	l, err := d.ListenUnix(Socket)
	must(t, err)
	s := &http.Server{Handler: h}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		<-ended
	})
}

// lockAs takes the dispatcher's lock and says that id has it.
func lockAs(t *testing.T, d home.Dir, id proc.ID) {
	t.Helper()
	dir, err := flock.OpenDir(d.Path)
	must(t, err)
	defer dir.Close()
	f, err := flock.Take(dir, LockFile, flock.Own)
	must(t, err)
	t.Cleanup(f.Close)
	data, err := json.Marshal(Dispatcher{V: 1, Pid: id.Pid, Ticks: id.Ticks, BootID: id.Boot, Mode: "dispatcher"})
	must(t, err)
	must(t, home.WriteFile(filepath.Join(d.Path, SelfFile), data))
}

func dial(t *testing.T, d home.Dir) *Client {
	t.Helper()
	c, err := Dial(d)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestAnswersAreWhatWasAsked(t *testing.T) {
	d := newHome(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathStatus, func(w http.ResponseWriter, _ *http.Request) { Answer(w, Status{V: 1, Pid: 7, Draining: true}) })
	mux.HandleFunc("GET "+PathAttempts, func(w http.ResponseWriter, r *http.Request) {
		f, err := FilterOf(r)
		if err != nil || f.Lane != "a/b c" || !f.Open || f.Limit != 3 {
			t.Errorf("asked for %+v, %v", f, err)
		}
		Answer(w, Attempts{V: 1, Attempts: []Attempt{{State: record.Running}}})
	})
	mux.HandleFunc("POST "+PathPrio, func(w http.ResponseWriter, r *http.Request) {
		var p Prio
		if err := ReadBody(w, r, &p); err != nil || p.Lane != "x" || p.Priority != -5 {
			t.Errorf("asked for %+v, %v", p, err)
		}
		Answer(w, Done{V: 1, Lane: p.Lane, Priority: p.Priority})
	})
	serve(t, d, mux)
	c := dial(t, d)
	ctx := context.Background()
	if st, err := c.Status(ctx); err != nil || st.Pid != 7 || !st.Draining {
		t.Errorf("Status = %+v, %v", st, err)
	}
	if all, err := c.Attempts(ctx, Filter{Lane: "a/b c", Open: true, Limit: 3}); err != nil || len(all.Attempts) != 1 {
		t.Errorf("Attempts = %+v, %v", all, err)
	}
	if done, err := c.Prio(ctx, Target{Lane: "x"}, -5); err != nil || done.Priority != -5 {
		t.Errorf("Prio = %+v, %v", done, err)
	}
}

func TestRefusalKeepsItsReason(t *testing.T) {
	for _, tt := range []struct {
		reason record.Reason
		status int
	}{
		{record.Reason{Class: "config", Code: CodeNotFound, Message: "no"}, 404},
		{record.Reason{Class: "config", Code: "bad_request", Message: "no"}, 400},
		{record.Reason{Class: "ownership", Code: CodeLaneOwned, Message: "no", Retryable: true}, 503},
		{record.Reason{Class: "ownership", Code: CodeEnded, Message: "no"}, 409},
		{record.Reason{Class: "resource", Code: CodeFailed, Message: "no", Retryable: true}, 500},
	} {
		d := newHome(t)
		serve(t, d, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Refuse(w, tt.reason) }))
		_, err := dial(t, d).Retry(context.Background(), Target{Lane: "x"})
		no, ok := errors.AsType[*Refused](err)
		if !ok || no.Status != tt.status || no.Reason.Code != tt.reason.Code || no.Reason.Class != tt.reason.Class || no.Reason.Retryable != tt.reason.Retryable {
			t.Errorf("%+v came as %+v", tt.reason, err)
		}
	}
}

func TestAnswerOfAnotherKindIsAFailure(t *testing.T) {
	d := newHome(t)
	serve(t, d, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }))
	_, err := dial(t, d).Status(context.Background())
	if no, ok := errors.AsType[*Refused](err); !ok || no.Reason.Code != CodeFailed {
		t.Errorf("Status = %v", err)
	}
}

// C028: whether a dispatcher runs is told by its lock, never by a connection.
func TestLockTellsWhetherOneRuns(t *testing.T) {
	d := newHome(t)
	for range 2 {
		if _, err := Dial(d); !errors.As(err, new(*NotRunning)) {
			t.Fatalf("without a lock: %v", err)
		}
		// A socket that a dead dispatcher left changes nothing, and stays.
		l, err := d.ListenUnix(Socket)
		must(t, err)
		must(t, l.Close())
	}
	if _, err := os.Lstat(filepath.Join(d.Path, Socket)); err != nil {
		t.Errorf("the socket: %v", err)
	}
	lockAs(t, d, proc.Self())
	_, err := Dial(d)
	if silent, ok := errors.AsType[*NotAnswering](err); !ok || silent.Pid != os.Getpid() {
		t.Errorf("with a lock, and nobody listening: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(d.Path, Socket)); err != nil {
		t.Errorf("the socket: %v", err)
	}
}

func TestHomeThatIsNotThereHasNoDispatcher(t *testing.T) {
	d := home.Dir{Path: filepath.Join(t.TempDir(), "none")}
	if _, err := Dial(d); !errors.As(err, new(*NotRunning)) {
		t.Errorf("Dial = %v", err)
	}
	if _, err := os.Lstat(d.Path); !os.IsNotExist(err) {
		t.Error("looking made the home")
	}
}

// C028: a stopped dispatcher is named, within the time, and nothing is removed.
func TestStoppedDispatcherIsNamed(t *testing.T) {
	d := newHome(t)
	stopped := exec.Command("sleep", "1000")
	must(t, stopped.Start())
	defer func() { _ = stopped.Process.Kill(); _ = stopped.Wait() }()
	id, err := proc.Identify(stopped.Process.Pid)
	must(t, err)
	lockAs(t, d, id)
	l, err := d.ListenUnix(Socket) // the kernel takes connections for it, nobody accepts
	must(t, err)
	defer l.Close()
	must(t, stopped.Process.Signal(syscall.SIGSTOP))
	began := time.Now()
	c := dial(t, d)
	_, err = c.Status(context.Background())
	silent, ok := errors.AsType[*NotAnswering](err)
	if !ok || silent.Pid != stopped.Process.Pid || !strings.Contains(err.Error(), fmt.Sprint(stopped.Process.Pid)) {
		t.Fatalf("Status = %v", err)
	}
	if Patience >= 2*time.Second || time.Since(began) > time.Minute {
		t.Errorf("given up after %s, with a patience of %s; want one under two seconds (S28)", time.Since(began), Patience)
	}
	if _, err := os.Lstat(filepath.Join(d.Path, Socket)); err != nil {
		t.Errorf("the socket: %v", err)
	}
}

func TestCallerWhoGivesUpIsToldSo(t *testing.T) {
	d := newHome(t)
	asked, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	serve(t, d, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-leave
	}))
	ctx, stop := context.WithCancel(context.Background())
	go func() { <-asked; stop() }()
	if _, err := dial(t, d).Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Status = %v", err)
	}
}

func TestEventsAreFollowedFromWhereOneWas(t *testing.T) {
	d := newHome(t)
	serve(t, d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := FilterOf(r)
		if err != nil || !Streams(r) {
			t.Errorf("asked for %+v, %v, stream %v", f, err, Streams(r))
		}
		s := OpenStream(w)
		for seq := f.After + 1; seq <= 3; seq++ {
			if s.Beat() != nil || s.Send(Event{Seq: seq, Lane: "a\nb"}) != nil {
				return
			}
		}
	}))
	c := dial(t, d)
	var seen []int64
	for _, after := range []int64{0, 2} {
		err := c.Follow(context.Background(), Filter{After: after}, func(e Event) error {
			if e.Lane != "a\nb" {
				t.Errorf("lane %q", e.Lane)
			}
			seen = append(seen, e.Seq)
			return nil
		})
		if !errors.As(err, new(*NotAnswering)) { // the stream ended, and the lock is held
			t.Errorf("Follow = %v", err)
		}
	}
	if fmt.Sprint(seen) != "[1 2 3 3]" {
		t.Errorf("saw %v", seen)
	}
}

func TestFollowerDecidesWhenItIsOver(t *testing.T) {
	d := newHome(t)
	serve(t, d, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := OpenStream(w)
		_ = s.Send(Event{Seq: 1})
		<-r.Context().Done()
	}))
	c := dial(t, d)
	over := errors.New("over")
	if err := c.Follow(context.Background(), Filter{}, func(Event) error { return over }); !errors.Is(err, over) {
		t.Errorf("Follow = %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := c.Follow(ctx, Filter{}, func(Event) error { stop(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow = %v", err)
	}
}

// A dispatcher that takes connections and says nothing is noticed by followers.
func TestSilentStreamIsNoticed(t *testing.T) {
	d := newHome(t)
	leave := make(chan struct{})
	defer close(leave)
	serve(t, d, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	if err := dial(t, d).Follow(context.Background(), Filter{}, func(Event) error { return nil }); !errors.As(err, new(*NotAnswering)) {
		t.Errorf("Follow = %v", err)
	}
}

func TestLookingLeavesTheLockFree(t *testing.T) {
	d := newHome(t)
	dir, err := flock.OpenDir(d.Path)
	must(t, err)
	defer dir.Close()
	f, err := flock.Take(dir, LockFile, flock.Own)
	must(t, err)
	if _, held := Judge(d); !held {
		t.Error("a lock that is held reads free")
	}
	f.Close()
	if _, held := Judge(d); held {
		t.Error("a lock that is free reads held")
	}
	again, err := flock.Take(dir, LockFile, flock.Own) // a third party agrees
	must(t, err)
	again.Close()
}
