package handsel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// fakeDispatcher answers at a home's API socket from what a test tells it.
type fakeDispatcher struct {
	t  *testing.T
	at home.Dir

	mu       sync.Mutex
	attempts map[string]*api.Attempt
	events   []api.Event
	more     *sync.Cond
	woken    int

	lock   *flock.File
	server *http.Server
	ended  chan error
	quit   context.CancelFunc
}

func homeOf(h *handsel.Home) home.Dir { return home.Dir{Path: h.Path(), From: h.From()} }

func newFake(t *testing.T, h *handsel.Home) *fakeDispatcher {
	t.Helper()
	f := &fakeDispatcher{t: t, at: homeOf(h), attempts: map[string]*api.Attempt{}}
	f.more = sync.NewCond(&f.mu)
	must(t, f.at.Ensure())
	f.start()
	t.Cleanup(f.stop)
	return f
}

func (f *fakeDispatcher) start() {
	f.lock = lockDispatcher(f.t, f.at)
	l, err := f.at.ListenUnix(api.Socket)
	must(f.t, err)
	ctx, quit := context.WithCancel(context.Background())
	f.quit = quit
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathStatus, f.status)
	mux.HandleFunc("GET "+api.PathQueue, f.queue)
	mux.HandleFunc("GET "+api.PathAttempts, f.find)
	mux.HandleFunc("GET "+api.PathEvents, func(w http.ResponseWriter, r *http.Request) { f.stream(ctx, w, r) })
	mux.HandleFunc("POST "+api.PathWake, func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.woken++
		api.Answer(w, api.Woken{V: 1})
	})
	f.server, f.ended = &http.Server{Handler: mux}, make(chan error, 1)
	go func() { f.ended <- f.server.Serve(l) }()
}

func (f *fakeDispatcher) stop() {
	if f.server == nil {
		return
	}
	f.quit()
	f.more.Broadcast()
	f.server.Close()
	<-f.ended
	f.lock.Close()
	f.server = nil
}

// lockDispatcher takes the dispatcher's lock for this process.
func lockDispatcher(t *testing.T, d home.Dir) *flock.File {
	t.Helper()
	must(t, d.Ensure())
	dir, err := flock.OpenDir(d.Path)
	must(t, err)
	defer dir.Close()
	lock, err := flock.Take(dir, api.LockFile, flock.Own)
	must(t, err)
	me := proc.Self()
	text, err := json.Marshal(api.Dispatcher{V: 1, Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot})
	must(t, err)
	must(t, home.WriteFile(filepath.Join(d.Path, api.SelfFile), text))
	return lock
}

// add makes a waiting row.
func (f *fakeDispatcher) add(lane string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := record.NewID()
	f.attempts[id] = &api.Attempt{V: 1, State: record.Queued, Row: attempt.Row{
		V: 1, ID: id, Lane: lane, State: attempt.Queued, QueueStart: attempt.At(time.Now()), StateSince: attempt.At(time.Now()),
		Placement: attempt.Placement{Cwd: "/", Workload: "heavy", Confinement: "none"}, Labels: map[string]string{"of": lane},
	}}
	must(f.t, attempt.WriteEntry(f.at, &attempt.Entry{V: 1, Lane: lane, Attempt: id, State: attempt.Queued,
		QueueStart: attempt.At(time.Now()), StateSince: attempt.At(time.Now()), Owner: attempt.Owner{Role: "dispatcher"}, Heartbeat: attempt.HeartbeatFile,
		Placement: attempt.Placement{Cwd: "/", Workload: "heavy", Confinement: "none"}}))
	return id
}

// end ends an attempt and tells of it.
func (f *fakeDispatcher) end(id, outcome string, code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.attempts[id]
	at.State, at.Outcome, at.EndedAt = record.Ended, outcome, attempt.At(time.Now())
	if outcome == record.Exited {
		at.ExitCode = &code
	}
	f.events = append(f.events, api.Event{Seq: int64(len(f.events) + 1), Attempt: id, Lane: at.Row.Lane, What: "ended", To: record.Ended})
	f.more.Broadcast()
}

func (f *fakeDispatcher) status(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	api.Answer(w, api.Status{V: 1, Pid: os.Getpid(), Seq: int64(len(f.events))})
}

func (f *fakeDispatcher) queue(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var rows []*attempt.Row
	for _, at := range f.attempts {
		if at.State == record.Queued {
			rows = append(rows, &at.Row)
		}
	}
	api.Answer(w, api.Queue{V: 1, Rows: api.Order(rows)})
}

func (f *fakeDispatcher) find(w http.ResponseWriter, r *http.Request) {
	want, err := api.FilterOf(r)
	if err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := api.Attempts{V: 1, Attempts: []api.Attempt{}}
	if at := f.attempts[want.Attempt]; at != nil {
		out.Attempts = append(out.Attempts, *at)
	}
	api.Answer(w, out)
}

func (f *fakeDispatcher) stream(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	want, err := api.FilterOf(r)
	if err != nil {
		f.t.Error(err)
	}
	s := api.OpenStream(w)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer context.AfterFunc(r.Context(), f.more.Broadcast)()
	for sent := int(want.After); ctx.Err() == nil && r.Context().Err() == nil; {
		if sent == len(f.events) {
			f.more.Wait()
			continue
		}
		if s.Send(f.events[sent]) != nil {
			return
		}
		sent++
	}
}

// byEvent is the limit of a wait that must end by an event. It does not ask for
// speed: a look that would end it as well comes after lookEvery, 15 s.
const byEvent = 14 * time.Second

// limit bounds a wait.
func limit(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}

// wait waits for what names mean, and tells how each ended in a word.
func wait(ctx context.Context, t *testing.T, h *handsel.Home, o handsel.WaitOptions, names ...string) (told chan string, over chan error) {
	t.Helper()
	list, err := h.FindAllWork(ctx, names)
	must(t, err)
	told, over = make(chan string, len(list)), make(chan error, 1)
	o.Told = func(k handsel.KnownRun) { told <- k.Lane + " " + k.Word() }
	go func() { over <- h.WaitWork(ctx, list, o) }()
	return told, over
}

// C141: each end is told as it comes, by the dispatcher's events.
func TestWaitTakesTheDispatchersEvents(t *testing.T) {
	h := open(t, nil)
	f := newFake(t, h)
	a, b := f.add("a"), f.add("b")
	told, over := wait(limit(t, byEvent), t, h, handsel.WaitOptions{}, "a", "lane:b", "run:"+a)
	f.end(a, record.Exited, 0)
	if got := <-told; got != "a exited" {
		t.Fatalf("told %q", got)
	}
	select {
	case err := <-over:
		t.Fatalf("over before b had ended: %v", err)
	default:
	}
	f.end(b, record.Lost, 0)
	if got := <-told; got != "b lost" {
		t.Fatalf("told %q", got)
	}
	must(t, <-over)
}

func TestWaitAnyReturnsAtTheFirstEnd(t *testing.T) {
	h := open(t, nil)
	f := newFake(t, h)
	f.add("a")
	b := f.add("b")
	told, over := wait(limit(t, byEvent), t, h, handsel.WaitOptions{Any: true}, "a", "b")
	f.end(b, record.Exited, 3)
	must(t, <-over)
	if got := <-told; got != "b exited" || len(told) != 0 {
		t.Errorf("told %q, and %d more", got, len(told))
	}
}

// C010: whatever can be started can be waited for in one call.
func TestThousandLanesAreOneWait(t *testing.T) {
	h := open(t, nil)
	f := newFake(t, h)
	var names, ids []string
	for i := range 1000 {
		name := fmt.Sprintf("lane number %d", i)
		names, ids = append(names, name), append(ids, f.add(name))
	}
	told, over := wait(limit(t, time.Minute), t, h, handsel.WaitOptions{}, names...)
	for _, id := range ids {
		f.end(id, record.Exited, 0)
	}
	must(t, <-over)
	if len(told) != len(ids) {
		t.Errorf("told of %d ends", len(told))
	}
}

// A dispatcher that goes, and one that comes, end no wait; what happened in
// between is not missed, and it is said once that there was none.
func TestWaitOutlivesTheDispatcher(t *testing.T) {
	h := open(t, nil)
	f := newFake(t, h)
	a, b := f.add("a"), f.add("b")
	var mu sync.Mutex
	var notes []string
	noted := make(chan struct{}, 16)
	told, over := wait(limit(t, time.Minute), t, h, handsel.WaitOptions{Note: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, text)
		noted <- struct{}{}
	}}, "a", "b")
	f.end(a, record.Exited, 0)
	<-told
	f.stop()
	<-noted
	f.end(b, record.Exited, 1) // nobody listens
	f.start()
	if got := <-told; got != "b exited" {
		t.Errorf("told %q", got)
	}
	must(t, <-over)
	mu.Lock()
	defer mu.Unlock()
	if len(notes) != 1 || !strings.Contains(notes[0], "no dispatcher is running") {
		t.Errorf("said %q", notes)
	}
}

// Without any dispatcher, a record that says the end is enough.
func TestWaitWithoutADispatcherReadsRecords(t *testing.T) {
	h := open(t, nil)
	f := newFake(t, h)
	a := f.add("a")
	f.stop()
	code := 0
	w, err := record.Create(f.at, &record.Run{ID: a, Verb: "run", State: record.Ended, Outcome: record.Exited, ExitCode: &code, Lane: "a", Fence: 1, Confinement: "none"})
	must(t, err)
	must(t, w.Close())
	told, over := wait(limit(t, time.Minute), t, h, handsel.WaitOptions{}, a)
	must(t, <-over)
	if got := <-told; got != "a exited" {
		t.Errorf("told %q", got)
	}
}

func TestWaitCanBeGivenUpAtAnyTime(t *testing.T) {
	h := open(t, nil)
	f := newFake(t, h)
	a := f.add("a")
	ctx, stop := context.WithCancel(t.Context())
	_, over := wait(ctx, t, h, handsel.WaitOptions{}, "a")
	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("WaitWork = %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attempts[a].State != record.Queued {
		t.Error("giving up touched the lane")
	}
}

// C146: what a look at the queue comes from, and how old that is, is said.
func TestQueueSaysWhatItReadAndHowOld(t *testing.T) {
	h := open(t, nil)
	f := newFake(t, h)
	f.add("a")
	if q := h.Queue(t.Context()); q.Source != handsel.FromDispatcher || q.Dispatcher.State != handsel.DispatcherAnswers || len(q.Rows) != 1 {
		t.Errorf("with a dispatcher: %+v", q)
	}
	f.stop()
	old := time.Now().Add(-90 * time.Second)
	must(t, os.Chtimes(filepath.Join(h.Path(), api.SelfFile), old, old))
	q := h.Queue(t.Context())
	if q.Source != handsel.FromEntries || q.Dispatcher.State != handsel.DispatcherNone || q.AgeS < 90 || len(q.Rows) != 1 {
		t.Errorf("without: %+v", q)
	}
	if r := q.Rows[0].Reason; r == nil || r.Code != "no_dispatcher" || q.Rows[0].Lane != "a" || q.Rows[0].Place != 1 {
		t.Errorf("its row: %+v", q.Rows[0])
	}
	lock := lockDispatcher(t, f.at) // it has the home, and nobody listens
	defer lock.Close()
	q = h.Queue(t.Context())
	if q.Dispatcher.State != handsel.DispatcherSilent || q.Dispatcher.Pid != os.Getpid() || q.Rows[0].Reason.Code != "dispatcher_silent" {
		t.Errorf("silent: %+v", q)
	}
}

// L22: an order binds whoever comes next, with and without a dispatcher, which
// is told.
func TestHoldBindsWhoeverComesNext(t *testing.T) {
	h := open(t, nil)
	acquire := func() error {
		l, err := h.Acquire(t.Context(), handsel.Start{Engine: "codex"})
		if err == nil {
			must(t, l.Release())
		}
		return err
	}
	must(t, acquire())
	if _, err := h.Hold(t.Context(), "codex", "why", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if refused, ok := errors.AsType[*handsel.Refused](acquire()); !ok || refused.Code != "hold" || !strings.Contains(refused.Error(), "why") {
		t.Errorf("under a hold: %v", acquire())
	}
	f := newFake(t, h)
	gone, silent, err := h.Resume(t.Context(), "engine:codex")
	if err != nil || len(gone) != 1 || silent != "" || f.woken != 1 {
		t.Errorf("Resume = %v, %q, %v; the dispatcher was told %d times", gone, silent, err, f.woken)
	}
	must(t, acquire())
	for range 2 {
		if _, err := h.Drain(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if refused, ok := errors.AsType[*handsel.Refused](acquire()); !ok || refused.Code != "drain" {
		t.Errorf("under a drain: %v", acquire())
	}
	if gone, _, err := h.Resume(t.Context(), ""); err != nil || len(gone) != 1 {
		t.Errorf("Resume = %v, %v", gone, err)
	}
	must(t, acquire())
}

// C4: a name that fits one thing means it.
func TestNamesThatFitSeveralThingsAreRefused(t *testing.T) {
	h := open(t, nil)
	f := newFake(t, h)
	f.add("codex")
	if _, err := h.Hold(t.Context(), "codex", "", time.Time{}); !errors.As(err, new(*handsel.Ambiguous)) {
		t.Errorf("Hold = %v", err)
	}
	id := f.add("x")
	found, err := h.FindWork(t.Context(), id[len(id)-8:], false)
	if err != nil || len(found) != 1 || found[0].Lane != "x" || found[0].State != record.Queued {
		t.Errorf("by the end of its id: %v, %v", found, err)
	}
	if found, err := h.FindWork(t.Context(), "label:of=x", false); err != nil || len(found) != 1 {
		t.Errorf("by its label: %v, %v", found, err)
	}
	if found, err := h.FindWork(t.Context(), "pool:heavy", false); err != nil || len(found) != 2 {
		t.Errorf("by its pool: %v, %v", found, err)
	}
	if _, err := h.FindWork(t.Context(), "nobody", false); !errors.As(err, new(*handsel.NotFound)) {
		t.Errorf("by no name: %v", err)
	}
}
