package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"golang.org/x/sys/unix"
)

// TestMain is also the driver that tests start: one that leaves its token in the
// home, for the test to claim with, and lives until it is ended.
func TestMain(m *testing.M) {
	if os.Getenv("HANDSEL_TEST_DRIVER") == "" {
		os.Exit(m.Run())
	}
	switch os.Getenv("HANDSEL_TEST_DRIVER") {
	case "claims", "drives":
		claimAndStop()
	}
	token := make([]byte, 256)
	n, err := os.NewFile(tokenFD, "token").Read(token)
	if err != nil {
		os.Exit(3)
	}
	id, secret, _ := strings.Cut(strings.TrimSpace(string(token[:n])), "\n")
	path := filepath.Join(os.Getenv("HANDSEL_HOME"), "tokens", id)
	if os.WriteFile(path+".new", []byte(secret), 0o600) != nil || os.Rename(path+".new", path) != nil {
		os.Exit(4)
	}
	if os.Getenv("HANDSEL_TEST_DRIVER") == "leaves" {
		os.Exit(0)
	}
	// Until it is ended, or the test is over.
	if f, err := os.Open(filepath.Join(os.Getenv("HANDSEL_HOME"), "stay")); err == nil {
		_, _ = f.Read(make([]byte, 1))
	}
}

// world is a home with a dispatcher in this process.
type world struct {
	*testing.T
	home home.Dir
	cfg  Config
	d    *Dispatcher
	done chan error
	born time.Time

	waiter atomic.Bool // the home says that it is in waiter mode
}

// room admits whatever asks, unless it is shut.
type room struct{ open chan struct{} }

func newRoom(open bool) *room {
	r := &room{make(chan struct{})}
	if open {
		close(r.open)
	}
	return r
}

// admit gives a lease of nothing: pools are the lease room's business.
func (r *room) admit(at home.Dir) Admit {
	return func(ctx context.Context, _ *attempt.Row, _ func(lease.Waiting)) (*lease.Lease, error) {
		select {
		case <-r.open:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return lease.Acquire(ctx, lease.Places{Leases: at.Leases(), Waiting: at.Waiting(), Holds: at.Holds()},
			lease.Want{Pools: func() ([]lease.Pool, error) { return nil, nil }})
	}
}

func newWorld(t *testing.T, admits bool, change func(*Config)) *world {
	t.Helper()
	at := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: "HANDSEL_HOME"}
	if err := at.Ensure(); err != nil {
		t.Fatal(err)
	}
	if err := home.EnsureDir(filepath.Join(at.Path, "tokens")); err != nil {
		t.Fatal(err)
	}
	stay := filepath.Join(at.Path, "stay")
	if err := unix.Mkfifo(stay, 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := unix.Open(stay, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(open) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, home: at, born: time.Now()}
	w.cfg = Config{
		Home: at, Version: "test", Driver: []string{exe}, Env: []string{"HANDSEL_TEST_DRIVER=stays", "HANDSEL_HOME=" + at.Path, "GORACE=atexit_sleep_ms=10"},
		Admit: newRoom(admits).admit(at), Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)), AckWindow: patience / 3,
	}
	w.cfg.Mode = func() error {
		if w.waiter.Load() {
			return errors.New("waiter mode")
		}
		return nil
	}
	if change != nil {
		change(&w.cfg)
	}
	w.start()
	return w
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func (w *world) start() {
	w.Helper()
	d, err := Open(w.Context(), w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.d, w.done = d, make(chan error, 1)
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { w.done <- d.Serve(ctx, Sockets{Ready: func() { close(ready) }}) }()
	<-ready
	w.Cleanup(func() {
		cancel()
		w.ended()
	})
}

// ended waits for the dispatcher's end. It may be asked again.
func (w *world) ended() {
	if err, ok := <-w.done; ok {
		close(w.done)
		if err != nil {
			w.Error(err)
		}
	}
}

// stop ends the dispatcher as `dispatch stop` does.
func (w *world) stop() {
	w.Helper()
	c, err := api.Dial(w.home)
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Stop(w.Context(), api.Stop{}); err != nil {
		w.Fatal(err)
	}
	w.ended()
}

// launcher is a lane that somebody means to enqueue.
type launcher struct {
	hold *lane.Hold
	row  attempt.Row
}

func (w *world) launcher(name string) *launcher { return w.launcherOf(name, record.NewID()) }

func (w *world) launcherOf(name, id string) *launcher {
	w.Helper()
	rec := lane.Mine(lane.RoleLauncher)
	rec.Attempt = id
	h, err := lane.Take(w.home, name, rec)
	if err != nil {
		w.Fatal(err)
	}
	l := &launcher{hold: h, row: attempt.Row{
		V: attempt.Version, Lane: name, ID: id, QueueStart: attempt.At(machine.Now()), BootStartNS: int64(machine.SinceBoot()),
		BootID: machine.BootID(), EpochMS: machine.Now().Add(-machine.SinceBoot()).UnixMilli(), State: attempt.Queued, StateSince: attempt.At(machine.Now()),
		Placement: attempt.Placement{Cwd: "/", Workload: "heavy", Confinement: "none"},
		Argv0:     "true", Argc: 1, Command: record.Digest([]string{"true"}),
	}}
	w.Cleanup(h.Keep)
	if err := attempt.Write(w.home, id, &attempt.Payload{Argv: attempt.Bytes([]string{"true"}), Cwd: []byte("/")}); err != nil {
		w.Fatal(err)
	}
	w.enter(l)
	return l
}

func (w *world) enter(l *launcher) {
	w.Helper()
	if err := attempt.WriteEntry(w.home, attempt.EntryOf(&l.row, attempt.Owner{Role: "launcher", Pid: os.Getpid()}, "")); err != nil {
		w.Fatal(err)
	}
}

// ask sends one message and reads the answer.
func (w *world) ask(msg handoff.Message, fds ...int) handoff.Answer {
	w.Helper()
	conn, err := handoff.Dial(w.Context(), w.home)
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	f, err := conn.Exchange(w.Context(), msg, fds...)
	if err != nil {
		w.Fatal(err)
	}
	defer f.CloseFds()
	var a handoff.Answer
	if err := f.Decode(&a); err != nil {
		w.Fatal(err)
	}
	return a
}

// enqueue hands a lane over and closes the launcher's copy.
func (w *world) enqueue(name string) *launcher {
	w.Helper()
	l := w.launcher(name)
	w.accepted(l)
	return l
}

func (w *world) accepted(l *launcher) {
	w.Helper()
	w.handed(l)
	l.hold.Keep()
}

// handed is accepted, for a launcher that keeps its copy a while.
func (w *world) handed(l *launcher) {
	w.Helper()
	a := w.ask(handoff.Enqueue{Row: l.row}, l.hold.Fd())
	for tries := 1; a.Code == "no_entry" && tries < 3; tries++ {
		// As launchers do: the entry of the lane's last attempt was just being removed.
		w.enter(l)
		a = w.ask(handoff.Enqueue{Row: l.row}, l.hold.Fd())
	}
	if !a.OK {
		w.Fatalf("enqueue %q: %s: %s", l.row.Lane, a.Code, a.Message)
	}
}

// sleeper starts a process that lives as long as the test.
func (w *world) sleeper(t *testing.T) proc.ID {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	id, err := proc.Identify(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// token waits for the token of an attempt's offer, and takes it away, so that
// the next one is another's.
func (w *world) token(id string) string {
	w.Helper()
	path := filepath.Join(w.home.Path, "tokens", id)
	for {
		text, err := os.ReadFile(path)
		if err == nil {
			_ = os.Remove(path)
			return string(text)
		}
		if !errors.Is(err, os.ErrNotExist) {
			w.Fatal(err)
		}
		w.breathe()
	}
}

// patience bounds how long a test waits for what should come at once.
const patience = 60 * time.Second

// breathe gives others the processor between two looks.
func (w *world) breathe() {
	w.Helper()
	if time.Since(w.born) > patience {
		w.Fatal("what was waited for never came")
	}
	<-time.After(2 * time.Millisecond)
}

// rowOf is what the queue shows of an attempt.
func (w *world) rowOf(id string) (api.Waiting, bool) {
	w.Helper()
	c, err := api.Dial(w.home)
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	q, err := c.Queue(w.Context(), "")
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range q.Rows {
		if r.ID == id {
			return r, true
		}
	}
	return api.Waiting{}, false
}

// until waits for a state of an attempt's row.
func (w *world) until(id, state string) api.Waiting {
	w.Helper()
	for {
		if r, ok := w.rowOf(id); ok && r.State == state {
			return r
		}
		w.breathe()
	}
}

// freed waits for a lane to be free: on a busy machine a driver that
// was just forked may have a copy of a lock for longer than one look allows.
func (w *world) freed(name string) bool {
	w.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if w.free(name) {
			return true
		}
	}
	return false
}

// free asks the kernel, as a third party, whether nobody has a lane.
func (w *world) free(name string) bool {
	w.Helper()
	dir, err := flock.OpenDir(w.home.Lanes())
	if err != nil {
		w.Fatal(err)
	}
	defer dir.Close()
	for range 25 { // a lock just closed may look held (S8)
		f, err := flock.Take(dir, lane.FileName(name), flock.Look)
		if err == nil {
			f.Close()
			return true
		}
		if !errors.Is(err, flock.ErrHeld) {
			w.Fatal(err)
		}
		time.Sleep(4 * time.Millisecond)
	}
	return false
}

// openFDs counts this process's descriptors, the dispatcher's among them.
func openFDs(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// settledFDs waits until no more descriptors are open than before.
func (w *world) settledFDs(before int) {
	w.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if openFDs(w.T) <= before {
			return
		}
	}
	names, _ := filepath.Glob("/proc/self/fd/*")
	var all []string
	for _, n := range names {
		to, _ := os.Readlink(n)
		all = append(all, fmt.Sprint(filepath.Base(n), "→", to))
	}
	w.Fatalf("%d descriptors are open, %d were: %s", len(names), before, strings.Join(all, " "))
}
