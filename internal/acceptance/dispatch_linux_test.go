package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/fakeagent"
	"github.com/handsel/handsel/internal/home"
)

// hub is a place whose work a dispatcher keeps. What a driver starts does not
// carry the place's mark, so it is found by its home.
type hub struct {
	*place
	dir home.Dir
	lib *handsel.Home
}

// newHub makes a place in dispatcher mode with these settings besides. Nothing
// is started.
func newHub(t testing.TB, settings string, env ...string) *hub {
	t.Helper()
	p := here(t).with(env...)
	p = p.config(settings + "\n[env]\nallow = [\"ACCEPTANCE_\", \"FAKEAGENT\"]\n[admission]\nmode = \"dispatcher\"\n")
	h := &hub{place: p, dir: home.Dir{Path: p.home, From: home.Variable}}
	var err error
	if h.lib, err = handsel.OpenWith(p.getenv); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.end)
	return h
}

// with is place.with for a hub.
func (h *hub) with(entries ...string) *hub {
	q := *h
	q.place = h.place.with(entries...)
	return &q
}

func (p *place) getenv(name string) string {
	for _, e := range p.env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// rest lists every process of this home: clients, dispatchers, drivers, agents.
func (h *hub) rest() []identity {
	own := []byte("\x00" + home.Variable + "=" + h.home + "\x00")
	return processes(func(pid int) bool {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return bytes.Contains(append([]byte{0}, env...), own)
	})
}

// end ends them all.
func (h *hub) end() {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		all := h.rest()
		if len(all) == 0 {
			return
		}
		for _, id := range all {
			id.signal(syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond) // the kernel takes them away by itself
	}
}

// drivers lists the processes of this home that drive an attempt. A child that a
// driver has forked looks like it until it becomes the agent.
func (h *hub) drivers() []identity {
	all := h.driving()
	return slices.DeleteFunc(slices.Clone(all), func(id identity) bool {
		parent := parentOf(id.pid)
		return slices.ContainsFunc(all, func(up identity) bool { return up.pid == parent })
	})
}

func (h *hub) driving() []identity {
	return slices.DeleteFunc(h.rest(), func(id identity) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.pid))
		words := strings.Split(string(line), "\x00")
		return len(words) < 2 || words[0] != h.bin || words[1] != "drive"
	})
}

// dispatcher starts one and waits until it listens.
func (h *hub) dispatcher(words ...string) *process {
	h.t.Helper()
	return h.serving(start(h.t, h.handsel(append([]string{"dispatch"}, words...)...)))
}

func (h *hub) serving(d *process) *process {
	h.t.Helper()
	d.says("msg=dispatching ")
	return d
}

// kill ends a process of ours at once.
func (p *process) kill() {
	p.t.Helper()
	p.id.signal(syscall.SIGKILL)
	<-p.done
}

// asks calls the dispatcher, within patience. A call gives up much earlier (S28),
// which a busy machine explains as well.
func asks[T any](h *hub, f func(ctx context.Context, c *api.Client) (T, error)) T {
	h.t.Helper()
	for end := time.Now().Add(patience); ; {
		out, err := tries(h, f)
		if err == nil {
			return out
		}
		if !errors.As(err, new(*api.NotAnswering)) || time.Now().After(end) {
			h.t.Fatal(err)
		}
	}
}

func tries[T any](h *hub, f func(ctx context.Context, c *api.Client) (T, error)) (out T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := api.Dial(h.dir)
	if err != nil {
		return out, err
	}
	defer c.Close()
	return f(ctx, c)
}

func (h *hub) state() *api.Status {
	h.t.Helper()
	return asks(h, func(ctx context.Context, c *api.Client) (*api.Status, error) { return c.Status(ctx) })
}

func (h *hub) queue() []api.Waiting {
	h.t.Helper()
	return asks(h, func(ctx context.Context, c *api.Client) (*api.Queue, error) { return c.Queue(ctx, "") }).Rows
}

// attempt is the dispatcher's word on one attempt.
func (h *hub) attempt(id string) api.Attempt {
	h.t.Helper()
	all := asks(h, func(ctx context.Context, c *api.Client) (*api.Attempts, error) {
		return c.Attempts(ctx, api.Filter{Attempt: id})
	}).Attempts
	if len(all) != 1 {
		h.t.Fatalf("%d attempts are called %s", len(all), id)
	}
	return all[0]
}

// ends waits for an attempt's end and returns its outcome.
func (h *hub) outcome(id string) string {
	h.t.Helper()
	eventually(h.t, "attempt "+id+" ends", func() bool { return h.attempt(id).State == "ended" })
	return h.attempt(id).Outcome
}

// driver waits until an attempt is driven, and says by whom.
func (h *hub) driver(id string) identity {
	h.t.Helper()
	eventually(h.t, "attempt "+id+" runs", func() bool { return h.attempt(id).State == "running" })
	d := h.attempt(id).Driver
	return identity{d.Pid, d.Ticks}
}

// enqueued is `handsel enqueue NAME FLAGS… -- fakeagent STEPS…`, accepted.
func (h *hub) enqueued(name string, words ...string) (id string) {
	h.t.Helper()
	out, _ := must(h.t, "exit 0", h.enqueue(name, words...).cmd())
	_, id, _ = strings.Cut(strings.TrimSpace(out), " ")
	return id
}

// asking is an enqueue that was not started yet.
type asking struct {
	h     *hub
	words []string
}

func (a asking) cmd() *exec.Cmd { return a.h.handsel(a.words...) }

func (h *hub) enqueue(name string, words ...string) asking {
	at := slices.Index(words, "--")
	argv := append([]string{"enqueue", name}, words[:max(at, 0)]...)
	argv = append(argv, "--", fakeagent.Build(h.t))
	return asking{h, append(argv, words[at+1:]...)}
}

// gives enqueues through the library, which costs no process.
func (h *hub) gives(name string, o handsel.EnqueueOptions, steps ...string) (string, error) {
	o.Dir = h.place.dir
	o.Env = h.env
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := h.lib.Enqueue(ctx, name, append([]string{fakeagent.Build(h.t)}, steps...), o)
	if err != nil {
		return "", err
	}
	return e.Attempt, nil
}

// idle waits until nothing waits or runs, and checks that nothing is left but
// dispatchers, and that they hold no lane, no slot and no descriptor too many.
func (h *hub) idle() {
	h.t.Helper()
	dwindles(h.t, "nothing waits and nothing runs", func() int {
		s := h.state()
		return s.Rows["queued"] + s.Rows["starting"] + s.Attempts + s.Offers
	}, h.says)
	dwindles(h.t, "no driver is left", func() int { return len(h.drivers()) }, h.says)
	dwindles(h.t, "no descriptor is left", func() int { return h.state().Descriptors.Used }, h.says)
	until(h.t, "nobody has a lane", func() string { return fmt.Sprint(h.seats()) }, "[]")
	until(h.t, "no entry is left", func() (left string) {
		all, _ := filepath.Glob(filepath.Join(h.home, "queue", "*.json"))
		for _, name := range all {
			text, _ := os.ReadFile(name)
			left += string(text)
		}
		return left
	}, "")
	for name, pool := range h.status().Pools {
		if pool.Held != 0 {
			h.t.Errorf("pool %s still has %d slots held: %+v", name, pool.Held, pool.Holders)
		}
	}
}

// stops asks the dispatcher to end, and waits for it and for all of the rest.
func (h *hub) stops(d *process) {
	h.t.Helper()
	must(h.t, "exit 0", h.handsel("dispatch", "stop"))
	if end := d.wait(); end != "exit 0" {
		h.t.Errorf("the dispatcher: %s, %q", end, d.said())
	}
	until(h.t, "no process is left", func() string { return fmt.Sprint(h.rest()) }, "[]")
}

// agents counts, by their own words, the starts of each id in a log.
func starts(t testing.TB, log string) map[string]int {
	t.Helper()
	events, err := fakeagent.ReadLog(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, e := range events {
		if e.Kind == "S" {
			n[e.ID]++
		}
	}
	return n
}

// TestKilledDriversLaneIsOrphanedUntilCancelled is L1, L18, S23: while the agent
// of a killed driver lives, nobody gets its lane, whatever is restarted; cancel
// ends it, and then the lane is free.
func TestKilledDriversLaneIsOrphanedUntilCancelled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ killed, back bool }{
		"the dispatcher lives":                       {false, false},
		"the dispatcher is killed and comes back":    {true, true},
		"the dispatcher is killed and is not missed": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, "")
			d := h.dispatcher()
			log, note := h.file("log"), h.file("note")
			id := h.enqueued("l", "--", "pid", note, "then", "log", log, "id", "first", "hold", "600s")
			agent := h.noted(note)
			drv := h.driver(id)
			eventually(t, "the lane knows its agent", func() bool {
				all := h.seats()
				return len(all) == 1 && all[0].Child == agent.pid
			})
			if tt.killed {
				d.kill()
			}
			drv.signal(syscall.SIGKILL)
			eventually(t, "the driver is gone", func() bool { return !drv.alive() })
			if tt.back {
				d = h.dispatcher()
			}
			if all := h.seats(); len(all) != 1 || all[0].State != "orphaned" || all[0].Child != agent.pid {
				t.Errorf("status shows %+v", all)
			}
			if !tt.killed || tt.back {
				eventually(t, "the entry says so", func() bool {
					e, err := attempt.ReadEntry(h.dir, "l")
					return err == nil && e.Reason != nil && e.Reason.Code == "orphaned"
				})
				if a := h.attempt(id); a.State != "running" {
					t.Errorf("the dispatcher says %+v", a)
				}
				_, errs := must(t, "exit 75", h.handsel("retry", "l"))
				oneLine(t, errs, "orphaned")
			}
			_, errs := must(t, "exit 75", h.enqueue("l", "--", "touch", h.file("never")).cmd())
			oneLine(t, errs, `lane "l"`, fmt.Sprint("orphaned agent ", agent.pid))
			must(t, "exit 75", h.agent("--lane", "l", "--wait", "0", "--", "touch", h.file("never")))
			must(t, "exit 0", h.handsel("gc", "--yes"))
			if !agent.alive() {
				t.Fatal("the agent is gone")
			}
			must(t, "exit 0", h.handsel("cancel", "l"))
			if agent.alive() {
				t.Error("the agent outlives the cancelling")
			}
			if r := h.recordFor(id); r.State != "ended" || r.Outcome != "cancelled" {
				t.Errorf("its record says %+v", r)
			}
			if len(h.seats()) != 0 {
				t.Errorf("status shows %+v", h.seats())
			}
			if tt.killed && !tt.back {
				d = h.dispatcher()
			}
			if got := h.outcome(id); got != "cancelled" {
				t.Errorf("the dispatcher says %s: %+v", got, h.attempt(id))
			}
			next := h.enqueued("l", "--", "log", log, "id", "second")
			if got := h.outcome(next); got != "exited" {
				t.Errorf("the next: %s", got)
			}
			if n := starts(t, log); n["first"] != 1 || n["second"] != 1 || exists(h.file("never")) {
				t.Errorf("starts: %v", n)
			}
			h.idle()
			h.stops(d)
		})
	}
}

// TestDescriptorLimitRefusesBeforeAnythingIsLost is G13 and L7.
func TestDescriptorLimitRefusesBeforeAnythingIsLost(t *testing.T) {
	t.Parallel()
	h := newHub(t, "[pools]\nall = 1\n")
	d := h.serving(start(t, h.command("sh", "-c", `ulimit -n 256; exec "$@"`, "sh", h.bin, "dispatch")))
	later := handsel.EnqueueOptions{NotBefore: time.Now().Add(time.Hour)}
	var kept []string
	var refused error
	for i := 0; refused == nil && i < 300; i++ {
		name := fmt.Sprintf("l%03d", i)
		if _, refused = h.gives(name, later, "touch", h.file("never")); refused == nil {
			kept = append(kept, name)
		} else {
			until(t, "the lane of a refused row", func() string { return free(t, h, name) }, "free")
		}
	}
	var declined *handsel.Declined
	if !errors.As(refused, &declined) || declined.Reason.Class != "resource" || declined.Reason.Code != "descriptor_limit" || !declined.Reason.Retryable {
		t.Fatalf("after %d rows: %v", len(kept), refused)
	}
	s := h.state().Descriptors
	if s.Limit != 256 || len(kept) != s.Limit-s.Reserve || s.Used != len(kept) {
		t.Errorf("%d rows, and status says %+v", len(kept), s)
	}
	_, errs := must(t, "exit 75", h.enqueue("one-more", "--", "touch", h.file("never")).cmd())
	oneLine(t, errs, "256", "open files")
	if exists(filepath.Join(h.home, "queue", "one-more.json")) {
		t.Error("the entry of a refused row is left")
	}
	until(t, "the lane of a refused row", func() string { return free(t, h, "one-more") }, "free")
	var wg sync.WaitGroup // many at once, at the edge
	for i := range 64 {
		wg.Go(func() {
			name := fmt.Sprint("over", i)
			_, err := h.gives(name, later, "touch", h.file("never"))
			var declined *handsel.Declined
			if !errors.As(err, &declined) || declined.Reason.Class != "resource" || !declined.Reason.Retryable {
				t.Errorf("at the edge: %v", err) // for want of a lane's descriptor, or of a connection's
				return
			}
			eventually(t, "the lane is free", func() bool { return free(t, h, name) == "free" })
		})
	}
	wg.Wait()
	out, _ := must(t, "exit 0", h.handsel("dispatch", "status"))
	if !strings.Contains(out, fmt.Sprintf("descriptors: %d of 256", len(kept))) {
		t.Errorf("status says %q", out)
	}
	must(t, "exit 0", h.handsel("queue"))
	var have []string
	for _, r := range h.queue() {
		have = append(have, r.Lane)
		if free(t, h, r.Lane) != "held" {
			t.Errorf("lane %s is not held any more", r.Lane)
		}
	}
	slices.Sort(have)
	if !slices.Equal(have, kept) {
		t.Errorf("rows: %q, accepted %q", have, kept)
	}
	must(t, "exit 0", h.handsel(append([]string{"cancel"}, kept[:3]...)...))
	kept = kept[3:]
	for _, name := range []string{"again0", "again1", "again2"} {
		if _, err := h.gives(name, later, "touch", h.file("never")); err != nil {
			t.Errorf("after rows have left: %v", err)
		}
		kept = append(kept, name)
	}
	// A dispatcher that comes back with no more room than before keeps them all.
	d.kill()
	d = h.serving(start(t, h.command("sh", "-c", `ulimit -n 256; exec "$@"`, "sh", h.bin, "dispatch")))
	if n := len(h.queue()); n != len(kept) {
		t.Errorf("%d rows after a restart, had %d", n, len(kept))
	}
	d.kill()
	// One with less keeps every row, whether it has a descriptor for it or not.
	d = h.serving(start(t, h.command("sh", "-c", `ulimit -n 128; exec "$@"`, "sh", h.bin, "dispatch")))
	rows := h.queue()
	if len(rows) != len(kept) {
		t.Errorf("%d rows under half of the limit, had %d", len(rows), len(kept))
	}
	short := 0
	for _, r := range rows {
		if r.Reason != nil && r.Reason.Code == "descriptor_limit" {
			short++
		}
	}
	if want := len(kept) - h.state().Descriptors.Used; short != want {
		t.Errorf("%d rows wait for a descriptor, want %d", short, want)
	}
	must(t, "exit 0", h.handsel(append([]string{"cancel"}, kept...)...))
	if exists(h.file("never")) {
		t.Error("a row was started")
	}
	h.idle()
	h.stops(d)
}

// free asks the kernel, as a third party, whether a lane is.
func free(t testing.TB, h *hub, name string) string {
	t.Helper()
	fd, err := unix.Open(filepath.Join(h.dir.Lanes(), home.LaneFile(name)+".lock"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return "free"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return "held"
	} else if err != nil {
		t.Fatal(err)
	}
	return "free"
}

// part is a number of a usual run, or that of a soak. Where these tests have run
// in full and only run again as another user (TESTED_IN_FULL), it is a third of
// the usual one: what a user changes shows in the first rounds.
func part(usual, soak int) int {
	switch {
	case os.Getenv("HANDSEL_SOAK") != "":
		return soak
	case os.Getenv("TESTED_IN_FULL") != "":
		return max(usual/3, min(usual, 2))
	}
	return usual
}

// TestUncappedRowsRunUnderTheNumberOfProcessors is L13a: a home where a cap was
// forgotten does not start all that was queued, and says so.
func TestUncappedRowsRunUnderTheNumberOfProcessors(t *testing.T) {
	t.Parallel()
	h := newHub(t, "")
	must(t, "exit 0", h.handsel("drain", "--reason", "test"))
	d := h.dispatcher()
	log := h.file("log")
	n := max(part(60, 1000), 3*runtime.NumCPU())
	for i := range n {
		if _, err := h.gives(fmt.Sprint("l", i), handsel.EnqueueOptions{}, "log", log, "id", fmt.Sprint(i), "hold", "20ms"); err != nil {
			t.Fatal(err)
		}
	}
	out, _ := must(t, "exit 0", h.handsel("dispatch", "status"))
	for _, want := range []string{fmt.Sprintf("rows run under one of %d", runtime.NumCPU()), "draining", fmt.Sprintf("rows: %d queued", n)} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not say %q: %q", want, out)
		}
	}
	must(t, "exit 0", h.handsel("resume"))
	looks := 0
	dwindles(t, "all have run", func() int {
		looks++
		s := h.state()
		if s.Rows["starting"] > 4 || s.Offers > 4 {
			t.Errorf("%+v: more than 4 offers are open", s)
		}
		if s.Attempts > runtime.NumCPU()+4 {
			t.Errorf("%+v: %d attempts at once", s, s.Attempts)
		}
		return s.Rows["queued"] + s.Rows["starting"] + s.Attempts
	}, h.says)
	events, err := fakeagent.ReadLog(log)
	if err != nil {
		t.Fatal(err)
	}
	most, at, lives := peak(events)
	if most > runtime.NumCPU() || lives != n {
		t.Errorf("%d lives, %d at once at %d, on %d processors", lives, most, at, runtime.NumCPU())
	}
	if looks < 2 { // how many there were is the machine's business
		t.Error("it was over before anybody looked")
	}
	h.idle()
	h.stops(d)
}

// TestResumeStartsNoMoreThanTheCap is C006 and L22: what was held back starts in
// order and under the cap, also when the dispatcher was restarted meanwhile.
func TestResumeStartsNoMoreThanTheCap(t *testing.T) {
	t.Parallel()
	h := newHub(t, "[pools]\nall = 4\n")
	d := h.dispatcher()
	must(t, "exit 0", h.handsel("drain", "--reason", "updating"))
	log := h.file("log")
	ids := map[string]string{}
	var before []string
	for i := range 37 {
		name := fmt.Sprint("l", i)
		id, err := h.gives(name, handsel.EnqueueOptions{Priority: i % 3}, "log", log, "id", name, "hold", "30ms")
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = id
	}
	for _, r := range h.queue() {
		before = append(before, r.ID)
	}
	d.kill()
	d = h.dispatcher()
	if s := h.state(); !s.Draining || s.Rows["queued"] != 37 || s.Offers+s.Attempts != 0 {
		t.Errorf("after a restart: %+v", s)
	}
	var after []string
	for _, r := range h.queue() {
		after = append(after, r.ID)
	}
	if !slices.Equal(before, after) {
		t.Errorf("the order was %q and is %q", before, after)
	}
	if len(starts(t, log)) != 0 {
		t.Error("something was started while it was drained")
	}
	must(t, "exit 0", h.handsel("resume"))
	dwindles(t, "all have run", func() int { return 37 - len(starts(t, log)) }, h.says)
	h.idle()
	events, _ := fakeagent.ReadLog(log)
	if most, at, lives := peak(events); most > 4 || lives != 37 {
		t.Errorf("%d lives, %d at once at %d", lives, most, at)
	}
	inOrder(t, h.lives(ids), func(*life) bool { return false })
	h.stops(d)
}

// TestStoppingLeavesWhatRuns is C021 and L22, by verb and by signal.
func TestStoppingLeavesWhatRuns(t *testing.T) {
	t.Parallel()
	signalled := func(sig syscall.Signal) func(*hub, *process) string {
		return func(_ *hub, d *process) string {
			d.id.signal(sig)
			return ""
		}
	}
	for name, tt := range map[string]struct {
		stop  func(h *hub, d *process) string
		says  string
		lives bool
	}{
		"stop": {func(h *hub, _ *process) string {
			out, _ := must(t, "exit 0", h.handsel("dispatch", "stop"))
			return out
		}, "stopped; 2 attempts go on without it, 1 row waits", true},
		"cancel running": {func(h *hub, _ *process) string {
			out, _ := must(t, "exit 0", h.handsel("dispatch", "stop", "--cancel-running"))
			return out
		}, "2 attempts were ended, 1 row waits", false},
		"TERM": {signalled(syscall.SIGTERM), "", true},
		"INT":  {signalled(syscall.SIGINT), "", true},
		"HUP":  {signalled(syscall.SIGHUP), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, "[pools]\nall = 2\n")
			d := h.dispatcher()
			var ids []string
			var agents []identity
			for _, name := range []string{"a", "b"} {
				ids = append(ids, h.enqueued(name, "--", "pid", h.file(name), "then", "until", h.file("go"), "1", "then", "exit", "7"))
				agents = append(agents, h.noted(h.file(name)))
			}
			third := h.enqueued("c", "--priority", "5", "--", "touch", h.file("third"))
			was := h.attempt(third).Row
			for _, id := range ids {
				h.driver(id)
			}
			if out := tt.stop(h, d); !strings.Contains(out, tt.says) {
				t.Errorf("it says %q", out)
			}
			if end := d.wait(); end != "exit 0" {
				t.Errorf("the dispatcher: %s, %q", end, d.said())
			}
			for _, a := range agents {
				if a.alive() != tt.lives {
					t.Errorf("agent %v is alive: %v", a, a.alive())
				}
			}
			want := "cancelled"
			if tt.lives {
				h.write("go", "go\n")
				want = "exited"
				dwindles(t, "the drivers end by themselves", func() int { return len(h.drivers()) }, h.says)
			}
			for _, id := range ids {
				if r := h.recordFor(id); r.State != "ended" || r.Outcome != want {
					t.Errorf("without a dispatcher, a record says %+v", r)
				}
			}
			if free(t, h, "c") != "free" || exists(h.file("third")) {
				t.Error("the row that waits is owned by nobody, and was not started")
			}
			must(t, "exit 0", h.handsel("drain"))
			d = h.dispatcher()
			now := h.attempt(third).Row
			if now.Priority != 5 || !now.QueueStart.Equal(was.QueueStart.Time) || now.State != "queued" || free(t, h, "c") != "held" {
				t.Errorf("the row was %+v and is %+v", was, now)
			}
			for _, id := range ids {
				if got := h.outcome(id); got != want {
					t.Errorf("the next dispatcher says %s", got)
				}
			}
			must(t, "exit 0", h.handsel("resume"))
			if got := h.outcome(third); got != "exited" || !exists(h.file("third")) {
				t.Errorf("the row that waited: %s", got)
			}
			h.idle()
			h.stops(d)
		})
	}
}

// TestLeftoversBlockNoStart is C026, L19: what a killed dispatcher left, or
// somebody wrote in its name, keeps none from starting.
func TestLeftoversBlockNoStart(t *testing.T) {
	t.Parallel()
	h := newHub(t, "")
	h.dispatcher().kill()
	for _, left := range []string{`{"v":1,"pid":1,"start_ticks":1,"version":"9"}`, "garbage", "", "\x00\xff"} {
		if err := os.WriteFile(filepath.Join(h.home, api.SelfFile), []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		h.dispatcher().kill()
	}
	for _, name := range []string{home.HandoffSocket, home.APISocket} {
		if err := os.Remove(filepath.Join(h.home, name)); err != nil {
			t.Fatal(err)
		}
	}
	d := h.dispatcher()
	second := start(t, h.handsel("dispatch"))
	if end := second.wait(); end != "exit 75" {
		t.Errorf("a second one: %s", end)
	}
	oneLine(t, second.said(), fmt.Sprintf("another dispatcher is running (pid %d)", d.id.pid))
	if h.outcome(h.enqueued("l", "--", "exit", "0")) != "exited" {
		t.Error("the first does not work any more")
	}
	h.stops(d)
}

// dispatchers lists those of this home that hold or want its lock.
func (h *hub) dispatchers() []identity {
	return slices.DeleteFunc(h.rest(), func(id identity) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.pid))
		words := strings.Split(string(line), "\x00")
		return len(words) < 2 || words[1] != "dispatch"
	})
}

// TestTwentyStartOneDispatcher is C027: twenty enqueues at once bring up exactly
// one, which keeps all twenty rows, also while dispatchers are killed.
func TestTwentyStartOneDispatcher(t *testing.T) {
	t.Parallel()
	for round := range part(2, 50) {
		h := newHub(t, "")
		var all []*process
		for i := range 20 {
			all = append(all, start(t, h.enqueue(fmt.Sprint("l", i), "--start", "--not-before", "1h", "--", "touch", h.file("never")).cmd()))
		}
		killed := round%2 == 1
		if killed {
			eventually(t, "one is there", func() bool { return len(h.dispatchers()) > 0 })
			if list := h.dispatchers(); len(list) > 0 {
				list[round%len(list)].signal(syscall.SIGKILL)
			}
		}
		allEnd(t, "every enqueue ends", all)
		want := map[string]bool{}
		for i, c := range all {
			end := c.wait()
			switch {
			case end == "exit 0":
				want[fmt.Sprint("l", i)] = true
			case !killed:
				t.Errorf("enqueue: %s, %q", end, c.said())
			case end != "exit 69" && end != "exit 75":
				t.Errorf("enqueue, with a dispatcher killed: %s, %q", end, c.said())
			}
		}
		if killed {
			must(t, "exit 0", h.handsel("dispatch", "--background"))
		}
		until(t, "exactly one is left", func() int { return len(h.dispatchers()) }, 1)
		if s := h.state(); s.Pid != h.dispatchers()[0].pid {
			t.Errorf("%d answers, %v lives", s.Pid, h.dispatchers())
		}
		have := map[string]bool{}
		for _, r := range h.queue() {
			if have[r.Lane] {
				t.Errorf("lane %s has two rows", r.Lane)
			}
			have[r.Lane] = true
		}
		for name := range want {
			if !have[name] {
				t.Errorf("lane %s was accepted and is lost", name)
			}
		}
		must(t, "exit 0", h.handsel("dispatch", "stop"))
		until(t, "no process is left", func() string { return fmt.Sprint(h.rest()) }, "[]")
	}
}

// TestStoppedDispatcherIsNamed is C028 and C146: a dispatcher that is stopped is
// named and left alone, and goes on where it was.
func TestStoppedDispatcherIsNamed(t *testing.T) {
	t.Parallel()
	h := newHub(t, "[pools]\nall = 4\n")
	d := h.dispatcher()
	running := h.enqueued("running", "--", "until", h.file("go"), "1")
	h.driver(running)
	h.enqueued("waiting", "--not-before", "1h", "--", "true")
	d.id.signal(syscall.SIGSTOP)
	eventually(t, "it is stopped", d.id.stopped)
	pid := fmt.Sprint("pid ", d.id.pid)
	asked := start(t, h.handsel("dispatch", "status"))
	_, errs := must(t, "exit 75", h.handsel("dispatch"))
	oneLine(t, errs, pid)
	_, errs = must(t, "exit 75", h.enqueue("waiting", "--", "true").cmd())
	oneLine(t, errs, `lane "waiting"`)
	if s := h.status(); s.Pools["all"].Held != 1 {
		t.Errorf("status shows %+v", s.Pools)
	}
	seats := len(h.seats())
	if seats < 2 {
		t.Errorf("status shows %+v", h.seats())
	}
	if end := asked.wait(); end != "exit 69" {
		t.Errorf("dispatch status: %s", end)
	}
	oneLine(t, asked.said(), pid, "stopped")
	// Whoever asks waits for an answer, and gets it when it goes on.
	late := start(t, h.enqueue("late", "--", "exit", "0").cmd())
	eventually(t, "it asks, with its lane in hand", func() bool { return len(h.seats()) > seats })
	if late.ended() {
		t.Errorf("enqueue: %s, %q", late.wait(), late.said())
	}
	d.id.signal(syscall.SIGCONT)
	if end := late.wait(); end != "exit 0" {
		t.Errorf("enqueue: %s, %q", end, late.said())
	}
	h.write("go", "go\n")
	eventually(t, "it works again", func() bool {
		s := h.state()
		return s.Rows["queued"] == 1 && s.Attempts == 0
	})
	must(t, "exit 0", h.handsel("cancel", "waiting"))
	h.idle()
	h.stops(d)
}

// TestRemovedSocketsComeBack is C034: who removes the sockets takes nothing away.
func TestRemovedSocketsComeBack(t *testing.T) {
	t.Parallel()
	h := newHub(t, "[pools]\nall = 3\n")
	d := h.dispatcher()
	var ids []string
	for i := range 3 {
		ids = append(ids, h.enqueued(fmt.Sprint("l", i), "--", "until", h.file("go"), "1"))
	}
	for _, id := range ids {
		h.driver(id)
	}
	row := h.enqueued("row", "--", "exit", "0")
	for _, name := range []string{home.HandoffSocket, home.APISocket} {
		if err := os.Remove(filepath.Join(h.home, name)); err != nil {
			t.Fatal(err)
		}
	}
	if s := h.status(); s.Pools["all"].Held != 3 || s.Pools["all"].Cap != 3 {
		t.Errorf("status shows %+v", s.Pools)
	}
	if n := len(h.seats()); n != 4 {
		t.Errorf("status shows %+v", h.seats())
	}
	_, errs := must(t, "exit 75", h.handsel("dispatch"))
	oneLine(t, errs, fmt.Sprint("pid ", d.id.pid))
	eventually(t, "the sockets are there again", func() bool {
		return exists(filepath.Join(h.home, home.HandoffSocket)) && exists(filepath.Join(h.home, home.APISocket))
	})
	out, _ := must(t, "exit 0", h.handsel("dispatch", "status"))
	if !strings.Contains(out, fmt.Sprint("pid ", d.id.pid)) {
		t.Errorf("status says %q", out)
	}
	h.write("go", "go\n")
	for _, id := range append(ids, row) {
		if got := h.outcome(id); got != "exited" {
			t.Errorf("%s: %s", id, got)
		}
	}
	// A takeover hands on the sockets that are there now.
	next := h.dispatcher("takeover")
	if end := d.wait(); end != "exit 0" {
		t.Errorf("relieved: %s, %q", end, d.said())
	}
	if h.outcome(h.enqueued("again", "--", "exit", "0")) != "exited" {
		t.Error("the next does not work")
	}
	if n := zombies(next.id.pid); n != 0 {
		t.Errorf("%d dead children", n)
	}
	h.idle()
	h.stops(next)
}

// TestFullPoolHoldsUpNobodyElse is C073: the head of the line waits for what it
// needs, and those behind it that need something else start at once.
func TestFullPoolHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	h := newHub(t, "[pools]\ncodex = 1\n")
	d := h.dispatcher()
	log := h.file("log")
	first := h.enqueued("first", "--engine", "codex", "--", "until", h.file("go"), "1")
	h.driver(first)
	var waits []string
	for i := range 3 {
		waits = append(waits, h.enqueued(fmt.Sprint("codex", i), "--engine", "codex", "--priority", "9", "--", "log", log, "id", fmt.Sprint(i)))
	}
	for i := range 3 {
		id := h.enqueued(fmt.Sprint("gemini", i), "--engine", "gemini", "--", "exit", "0")
		if got := h.outcome(id); got != "exited" {
			t.Errorf("gemini: %s", got)
		}
	}
	for i, id := range waits {
		if a := h.attempt(id); a.State != "queued" {
			t.Errorf("codex %d is %s", i, a.State)
		}
	}
	out, _ := must(t, "exit 0", h.handsel("why", "codex0"))
	if !strings.Contains(out, "codex") {
		t.Errorf("why says %q", out)
	}
	h.write("go", "go\n")
	for _, id := range waits {
		h.outcome(id)
	}
	events, _ := fakeagent.ReadLog(log)
	var order string
	for _, e := range events {
		if e.Kind == "S" {
			order += e.ID
		}
	}
	if most, _, _ := peak(events); order != "012" || most != 1 {
		t.Errorf("they ran in the order %s, %d at once", order, most)
	}
	h.idle()
	h.stops(d)
}

// TestCancelWorksInEveryState is C083: queued, offered, claimed, running or over,
// cancel ends it once, and then nothing runs and the lane is free.
func TestCancelWorksInEveryState(t *testing.T) {
	t.Parallel()
	h := newHub(t, "[pools]\nall = 2\n")
	d := h.dispatcher()
	n := seed(t)
	dice := rand.New(rand.NewPCG(n, 2))
	log := h.file("log")
	outcomes := map[string]int{}
	for i := range part(24, 1000) {
		name := fmt.Sprint("l", i)
		id, err := h.gives(name, handsel.EnqueueOptions{}, "log", log, "id", name, "hold", "600s")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(dice.IntN(120)) * time.Millisecond) // to be anywhere on its way
		state := h.attempt(id).State
		var both sync.WaitGroup
		for range 1 + dice.IntN(2) { // it may be cancelled twice at once
			c := start(t, h.handsel("cancel", "--json", name))
			both.Go(func() {
				if end := c.wait(); end != "exit 0" {
					t.Errorf("cancel, %s: %s, %q, %q", state, end, c.printed(), c.said())
				}
			})
		}
		both.Wait()
		if free(t, h, name) != "free" {
			t.Errorf("lane %s, cancelled while %s, is held: %+v", name, state, h.seats())
		}
		if got := h.outcome(id); got != "cancelled" {
			t.Errorf("cancelled while %s, it is %s", state, got)
		}
		outcomes[state]++
		must(t, "exit 0", h.handsel("cancel", name))
	}
	t.Logf("cancelled while %v", outcomes)
	events, _ := fakeagent.ReadLog(log)
	for _, e := range events {
		if e.Kind == "E" {
			t.Errorf("%s ran to its end", e.ID)
		}
	}
	for id, n := range starts(t, log) {
		if n != 1 {
			t.Errorf("%s was started %d times", id, n)
		}
	}
	h.idle()
	h.stops(d)
}

// raw is a connection to the handoff socket that speaks no protocol yet.
func (h *hub) raw() *net.UnixConn {
	h.t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(h.home, home.HandoffSocket), Net: "unix"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// TestOtherProtocolsAreRefusedInOneLine is C096 and L23: both versions are named,
// nobody is restarted, and the dispatcher goes on.
func TestOtherProtocolsAreRefusedInOneLine(t *testing.T) {
	t.Parallel()
	h := newHub(t, "")
	d := h.dispatcher()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			c := h.raw()
			body := []byte(`{"v":7,"type":"enqueue","row":{}}`)
			if i%4 == 3 {
				body = []byte("GET / HTTP/1.1\r\n\r\n")
			} else {
				body = append([]byte{0, 0, 0, byte(len(body))}, body...)
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := c.Write(body); err != nil {
				t.Error(err)
			}
			said, err := io.ReadAll(c)
			if err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
			if i%4 != 3 && (!bytes.Contains(said, []byte(`"version"`)) || !bytes.Contains(said, []byte("7")) || !bytes.Contains(said, []byte("1"))) {
				t.Errorf("another version is answered with %q", said)
			}
		})
	}
	all.Wait()
	if len(h.dispatchers()) != 1 || !d.id.alive() {
		t.Errorf("%v", h.dispatchers())
	}
	if h.outcome(h.enqueued("l", "--", "exit", "0")) != "exited" {
		t.Error("it does not work any more")
	}
	h.idle()
	h.stops(d)
}

// TestSecretsAreNowhereInTheHome is C113, C139, L10, L11 and L13a: not the token,
// not what looks like a secret, and not the prompt outside its own file.
func TestSecretsAreNowhereInTheHome(t *testing.T) {
	t.Parallel()
	h := newHub(t, "")
	kept, dropped := "LC_KEPT="+strings.Repeat("k", 4095), "LC_DROPPED="+strings.Repeat("d", 4096)
	secret := "hunter2-hunter2"
	asker := h.with("X_TOKEN="+secret, "x_secret="+secret, "MY_API_KEY_FILE="+secret, "LC_PASSWORD="+secret, "FAKEAGENT_AUTH="+secret, kept, dropped)
	d := h.dispatcher()
	driver := h.program("driver", "#!/bin/sh\ncat <&$HANDSEL_TOKEN_FD >"+h.file("offer.new")+"\nmv "+h.file("offer.new")+" "+h.file("offer")+"\nexec "+fakeagent.Build(t)+" until "+h.file("go")+" 1\n")
	out, errs := must(t, "exit 0", asker.enqueue("offered", "--driver", driver, "--", "env", "LC_KEPT", "LC_DROPPED", "X_TOKEN").cmd())
	if strings.Contains(out+errs, secret) || !strings.Contains(errs, "LC_DROPPED") || !strings.Contains(errs, "x_secret") || strings.Contains(errs, "LC_KEPT") {
		t.Errorf("enqueue says %q, %q", out, errs)
	}
	prompt := "say-nothing-of-this-prompt"
	waits := asker.enqueued("waits", "--not-before", "1h", "--", "print", prompt)
	eventually(t, "it is offered", func() bool { return exists(h.file("offer")) })
	text, _ := os.ReadFile(h.file("offer"))
	words := strings.Fields(string(text))
	if len(words) != 2 || len(words[1]) < 32 {
		t.Fatalf("the offer is %q", text)
	}
	token := words[1]
	var shown string
	for _, cmd := range [][]string{{"status"}, {"status", "--json"}, {"queue", "--json"}, {"dispatch", "status", "--json"}, {"runs", "--json"}, {"why", "offered"}} {
		out, errs := must(t, "exit 0", h.handsel(cmd...))
		shown += out + errs
	}
	for _, id := range h.rest() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.pid))
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id.pid))
		shown += string(line) + string(env)
	}
	shown += d.err.String()
	for _, word := range []string{token, secret, prompt} {
		if strings.Contains(shown, word) {
			t.Errorf("%q is shown", word)
		}
	}
	files := 0
	err := filepath.WalkDir(h.home, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		for _, word := range []string{token, secret, "X_TOKEN", "x_secret", "LC_PASSWORD", "LC_DROPPED"} {
			if bytes.Contains(text, []byte(word)) {
				if word == "LC_DROPPED" || word == "X_TOKEN" { // they are arguments of the command
					if filepath.Base(path) == "payload.json" {
						continue
					}
				}
				t.Errorf("%q is in %s", word, path)
			}
		}
		if info, _ := e.Info(); filepath.Base(path) != "payload.json" && bytes.Contains(text, []byte(prompt)) || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, or the prompt", path, info.Mode())
		}
		return err
	})
	if err != nil || files < 8 {
		t.Errorf("%d files: %v", files, err)
	}
	// Guesses consume nothing (L14): the right one is still good.
	claim := func(offer string) *exec.Cmd {
		c := h.command("sh", "-c", `exec 3<&0 </dev/null; HANDSEL_TOKEN_FD=3 exec "$@"`, "sh", h.bin, "drive")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		if _, err := w.WriteString(offer); err != nil {
			t.Fatal(err)
		}
		w.Close()
		c.Stdin = r
		return c
	}
	id := words[0]
	for _, guess := range []string{strings.ToUpper(token), token[:32], token + "0", "0", strings.Repeat("0", len(token)), waits} {
		if end, _, errs := ends(t, claim(id+"\n"+guess+"\n")); end == "exit 0" || strings.Contains(errs, token) {
			t.Errorf("the guess %q: %s, %q", guess, end, errs)
		}
	}
	must(t, "exit 0", claim(string(text)))
	if got := h.outcome(id); got != "exited" {
		t.Errorf("it %s", got)
	}
	stdout, _ := filepath.Glob(filepath.Join(h.home, "runs", "*", id, "stdout"))
	saw, _ := os.ReadFile(append(stdout, "none")[0])
	if !bytes.Contains(saw, []byte(strings.Repeat("k", 4095))) || bytes.Contains(saw, []byte("ddd")) || bytes.Contains(saw, []byte(secret)) {
		t.Errorf("the agent saw %.200q", saw)
	}
	h.write("go", "go\n")
	must(t, "exit 0", h.handsel("cancel", "waits"))
	h.idle()
	h.stops(d)
}
