package lease

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/fakeagent"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/slot"
)

// spec is what a test asks of another process: it is passed as JSON in its
// environment.
type spec struct {
	Root     string
	Pools    []Pool
	Wait     time.Duration
	Poll     time.Duration
	Patience time.Duration
	Priority int
	Child    int // record this pid as the agent
	Name     string
	Log      string // append "Name\n" when admitted, then release at once
	Hold     bool
	Workload string
	Held     string // a file whose presence is a hold on this start
	NoWatch  bool   // no inotify instance can be had (in a user namespace of its own)
	Inner    *spec  // what the agent itself asks for once it is admitted
	Storm    *storm // instead of all else
}

const specVar = "HANDSEL_LEASE_TEST_SPEC"

func TestMain(m *testing.M) {
	if text := os.Getenv(specVar); text != "" {
		os.Exit(play(text))
	}
	os.Exit(fakeagent.Main(m))
}

// play is the other process: it says "waiting" when it waits, "admitted" or
// "refused CODE", and holds until its input ends.
func play(text string) int {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Println("bad", err)
		return 1
	}
	if s.Storm != nil {
		return s.Storm.play(s)
	}
	if s.NoWatch {
		if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0); err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	w := s.want()
	if s.Held != "" {
		w.Check = func() Answer {
			if _, err := os.Lstat(s.Held); err == nil {
				return Answer{Code: "hold", Message: "held"}
			}
			return Answer{}
		}
	}
	w.OnWait = func(why Waiting) { fmt.Println("waiting", why.Code, why.Pool) }
	l, err := Acquire(context.Background(), places(s.Root), w)
	if err != nil {
		var refused *Refused
		if errors.As(err, &refused) {
			fmt.Println("refused", refused.Code, refused)
			return 75
		}
		fmt.Println("error", err)
		return 1
	}
	if s.Log != "" {
		f, err := os.OpenFile(s.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Fprintln(f, s.Name)
		f.Close()
	}
	if s.Child != 0 {
		id, err := proc.Identify(s.Child)
		if err == nil {
			err = l.RecordChild(id)
		}
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	fmt.Println("admitted", s.Name)
	if s.Inner != nil {
		return s.playInner(l)
	}
	if s.Hold {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	l.Release()
	return 0
}

// playInner is the agent of a spec asking for one of its own: its lines pass
// through as they are.
func (s spec) playInner(l *Lease) int {
	text, err := json.Marshal(s.Inner)
	if err != nil {
		return 1
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), specVar+"="+string(text))
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		return 1
	}
	id, err := proc.Identify(c.Process.Pid)
	if err == nil {
		err = l.RecordChild(id)
	}
	if err != nil {
		fmt.Println("error", err)
	}
	_ = c.Wait()
	_ = l.Release()
	return 0
}

func places(root string) Places {
	return Places{Leases: root + "/leases", Waiting: root + "/waiting", Holds: root + "/holds"}
}

func (s spec) want() Want {
	poll := s.Poll
	if poll == 0 {
		poll = time.Hour // every wake-up in these tests must come from an event
	}
	workload := s.Workload
	if workload == "" {
		workload = "heavy"
	}
	return Want{
		Pools:  func() ([]Pool, error) { return append([]Pool(nil), s.Pools...), nil },
		Engine: "codex", Workload: workload, Run: "run-" + s.Name, Wait: s.Wait, Poll: poll, Patience: s.Patience, Priority: s.Priority,
	}
}

// other is another process that plays a spec.
type other struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, s spec, prefix ...string) *other {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(prefix, exe)
	cmd := exec.Command(argv[0], argv[1:]...)
	if s.NoWatch {
		cmd.SysProcAttr = ownUserNamespace()
	}
	cmd.Env = append(os.Environ(), specVar+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		if s.NoWatch {
			t.Skipf("no user namespace can be had here: %v", err)
		}
		t.Fatal(err)
	}
	o := &other{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(o.kill)
	return o
}

func (o *other) kill() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Process.Signal(syscall.SIGCONT)
	_ = o.cmd.Wait()
}

func (o *other) end() { o.in.Close(); _ = o.cmd.Wait() }

// says waits for a line that begins with want.
func (o *other) says(want string) string {
	o.t.Helper()
	got := make(chan string, 1)
	go func() {
		for {
			text, err := o.out.ReadString('\n')
			if err != nil || strings.HasPrefix(text, want) {
				got <- text
				return
			}
		}
	}()
	select {
	case text := <-got:
		if !strings.HasPrefix(text, want) {
			o.t.Fatalf("the other process ended without saying %q (%q)", want, text)
		}
		return strings.TrimSpace(text)
	case <-time.After(time.Minute):
		o.t.Fatalf("the other process did not say %q", want)
	}
	return ""
}

// holder is another process that holds one lease. Waiters are children of this
// one, so a lease of our own would be their ancestor's (S13).
func holder(t *testing.T, root string, pools []Pool) *other {
	t.Helper()
	h := start(t, spec{Root: root, Pools: pools, Hold: true})
	h.says("admitted")
	return h
}

func one(name string, limit int) []Pool { return []Pool{{Name: name, Cap: limit, CapFrom: "TEST"}} }

func acquire(t *testing.T, s spec) *Lease {
	t.Helper()
	l, err := Acquire(t.Context(), places(s.Root), s.want())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() })
	return l
}

func held(t *testing.T, root, pool string) int {
	t.Helper()
	p, err := slot.Open(root+"/leases", pool, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for tries := 0; ; tries++ {
		c, err := p.Count()
		if err != nil {
			t.Fatal(err)
		}
		if c.Doubts == 0 || tries > 50 {
			return c.Held
		}
		runtime.Gosched()
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// S10, S11, S18: a full pool refuses, names pool, cap and holders, and leaves
// nothing behind.
func TestFullPoolRefusesAndKeepsNothing(t *testing.T) {
	root := t.TempDir()
	acquire(t, spec{Root: root, Pools: one("heavy", 2)})
	acquire(t, spec{Root: root, Pools: one("heavy", 2)})
	runtime.GC()
	before := openFDs(t)
	_, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: append(one("all", 9), one("heavy", 2)...)}.want())
	var refused *Refused
	if !errors.As(err, &refused) {
		t.Fatalf("Acquire = %v, want *Refused", err)
	}
	if refused.Code != PoolFull || refused.Pool != "heavy" || refused.Cap != 2 || len(refused.Holders) != 2 {
		t.Errorf("refusal %+v", refused)
	}
	if want := `heavy codex agent not admitted; pool "heavy" is at its cap of 2 (TEST), held by pid `; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("text %q, want prefix %q", err, want)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	if n := held(t, root, "all"); n != 0 {
		t.Errorf("pool all holds %d slots of a refused start", n)
	}
}

// S15: a release wakes the first in line although the poll is an hour away.
func TestReleaseWakesWaiter(t *testing.T) {
	root := t.TempDir()
	l := holder(t, root, one("all", 1))
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Name: "w"})
	w.says("waiting pool_full")
	l.end()
	w.says("admitted")
}

// S15: a holder's death by SIGKILL wakes, and so does the end of the agent it
// left behind.
func TestDeathOfHolderAndEndOfOrphanWake(t *testing.T) {
	root := t.TempDir()
	h := start(t, spec{Root: root, Pools: one("all", 1), Hold: true})
	h.says("admitted")
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Hold: true})
	w.says("waiting")
	h.kill()
	w.says("admitted")

	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	w.end()
	h = start(t, spec{Root: root, Pools: one("all", 1), Hold: true, Child: child.Process.Pid})
	h.says("admitted")
	h.kill()
	w = start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour})
	w.says("waiting")
	p, err := slot.Open(root+"/leases", "all", false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if c, err := p.Count(); err != nil || len(c.Slots) != 1 || c.Slots[0].State != slot.Orphaned {
		t.Fatalf("Count = %+v, %v; want one orphaned slot (S7)", c, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	w.says("admitted")
}

// S16: the start order of waiters with mixed priorities is that of their keys.
func TestOrderIsByKey(t *testing.T) {
	root := t.TempDir()
	l := holder(t, root, one("all", 1))
	log := filepath.Join(root, "log")
	var all []*other
	want := make([]string, 0, 12)
	for _, prio := range []int{5, 0, -5} {
		for i := range 4 {
			want = append(want, fmt.Sprintf("p%d-%d", prio, i))
		}
	}
	for i := range 4 { // arrivals interleave the priorities
		for _, prio := range []int{-5, 5, 0} {
			w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Priority: prio, Name: fmt.Sprintf("p%d-%d", prio, i), Log: log})
			w.says("waiting")
			all = append(all, w)
		}
	}
	l.end()
	for _, w := range all {
		w.says("admitted")
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(want, "\n") + "\n"; string(got) != text {
		t.Errorf("order:\n%swant:\n%s", got, text)
	}
}

// S16: waiters killed or stopped in the middle of the line delay nobody.
func TestDeadAndStoppedWaitersDelayNobody(t *testing.T) {
	root := t.TempDir()
	l := holder(t, root, one("all", 1))
	var all []*other
	for i := range 7 {
		w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Name: strconv.Itoa(i), Poll: 2 * time.Second})
		w.says("waiting")
		all = append(all, w)
	}
	// The stopping comes first: the death of 2 wakes 3, which would be stopped
	// with the line's lock in its hand, and that is another test's matter (S10).
	for _, i := range []int{0, 3, 4} {
		_ = all[i].cmd.Process.Signal(syscall.SIGSTOP)
	}
	waitStopped(t, all[0], all[3], all[4])
	all[2].kill()
	began := time.Now()
	l.end()
	for _, i := range []int{1, 5, 6} {
		all[i].says("admitted")
	}
	t.Logf("the living were through after %v", time.Since(began))
	for _, i := range []int{0, 3, 4} {
		_ = all[i].cmd.Process.Signal(syscall.SIGCONT)
		all[i].says("admitted")
	}
}

func waitStopped(t *testing.T, all ...*other) {
	t.Helper()
	for _, o := range all {
		for {
			st, err := proc.ReadStat(o.cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			if st.Stopped() {
				break
			}
			runtime.Gosched()
		}
	}
}

// S16: a waiter that reads a smaller cap blocks nobody who reads a larger one.
func TestSmallerCapOfAWaiterBlocksNobody(t *testing.T) {
	root := t.TempDir()
	a := start(t, spec{Root: root, Pools: one("all", 3), Hold: true})
	a.says("admitted")
	small := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour})
	small.says("waiting")
	for range 20 { // more often than a passed ticket must bear (16): it is held back by its own cap alone
		b := start(t, spec{Root: root, Pools: one("all", 3), Wait: time.Hour})
		b.says("admitted")
		b.end()
	}
	a.end()
	small.says("admitted")
}

// S11: the smallest cap in play counts, whoever comes first.
func TestSmallestCapInPlayCounts(t *testing.T) {
	root := t.TempDir()
	two := acquire(t, spec{Root: root, Pools: one("all", 2)})
	acquire(t, spec{Root: root, Pools: one("all", 5)})
	_, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 5)}.want())
	var refused *Refused
	if !errors.As(err, &refused) || refused.Cap != 2 {
		t.Fatalf("Acquire with cap 5 beside a holder that read 2 = %v; want a refusal at 2", err)
	}
	two.Release()
	acquire(t, spec{Root: root, Pools: one("all", 5)})
}

// S16: a ticket that a full second pool keeps back is passed, but not for ever:
// after 16 passes the last free slot of the other pool is left for it.
func TestPassedTicketIsPassedSixteenTimes(t *testing.T) {
	root := t.TempDir()
	full := holder(t, root, one("codex", 1))
	both := append(one("all", 2), one("codex", 1)...)
	w := start(t, spec{Root: root, Pools: both, Wait: time.Hour, Name: "both"})
	w.says("waiting pool_full codex")
	light := spec{Root: root, Pools: one("all", 2)}
	holder(t, root, light.Pools) // one of two is always taken
	passes := 1
	for ; passes < 40; passes++ {
		l := start(t, light)
		if !strings.HasPrefix(l.says(""), "admitted") {
			if code := l.cmd.Wait(); code == nil {
				t.Error("a refused start ended with success")
			}
			break
		}
		l.end() // the next one must find its slot free
	}
	if passes != passesAllowed {
		t.Errorf("passed %d times, want %d", passes, passesAllowed)
	}
	full.end()
	w.says("admitted")
}

// S16: an admissible ticket must not be passed, and the newcomer says so; one
// that does not act for 250 ms blocks nobody.
func TestAdmissibleTicketIsNotPassedUntilItsTimeToActIsOver(t *testing.T) {
	root := t.TempDir()
	l := holder(t, root, one("all", 1))
	w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Hold: true, Patience: 2 * time.Second})
	w.says("waiting")
	// A ticket whose owner runs but does not look: this process.
	ln, err := line.Open(places(root).Waiting, false)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	me := self()
	place, err := ln.Stand(line.Name(machine.SinceBoot(), 900, line.NewID()), line.Record{V: 1, Boot: me.Boot, Pid: me.Pid, Ticks: me.Ticks, NS: me.NS, Pools: []line.Pool{{Name: "all", Cap: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	defer place.Leave()
	l.end()
	_, err = Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 1)}.want())
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code != InLine {
		t.Fatalf("a newcomer got %v, want a refusal with %q", err, InLine)
	}
	w.says("admitted") // after its patience, past the one that sleeps
}

// S8: the collector cannot free a held lock.
func TestHeldLockSurvivesCollection(t *testing.T) {
	root := t.TempDir()
	l := acquire(t, spec{Root: root, Pools: one("all", 1)})
	for range 20 {
		runtime.GC()
		if _, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 1)}.want()); err == nil {
			t.Fatal("a second lease was given")
		}
	}
	runtime.KeepAlive(l)
}

// C069: releasing twice, or after a refusal, leaves the next owner alone.
func TestSecondReleaseLeavesTheNextOwnerAlone(t *testing.T) {
	root := t.TempDir()
	l := acquire(t, spec{Root: root, Pools: one("all", 1)})
	l.Release()
	next := acquire(t, spec{Root: root, Pools: one("all", 1)})
	l.Release()
	if _, err := Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 1)}.want()); err == nil {
		t.Fatal("the second release freed another owner's slot")
	}
	next.Release()
}

// S12: slots are kept or given up together.
func TestKeepLeavesRecordsOfALivingChild(t *testing.T) {
	root := t.TempDir()
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	l := acquire(t, spec{Root: root, Pools: append(one("all", 1), one("heavy", 1)...)})
	if err := l.Keep(); !errors.Is(err, ErrLocksKept) {
		t.Errorf("Keep without a recorded child = %v, want ErrLocksKept", err)
	}
	id, err := proc.Identify(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.RecordChild(id); err != nil {
		t.Fatal(err)
	}
	if err := l.Keep(); err != nil {
		t.Errorf("Keep with whole records = %v", err)
	}
	if n := held(t, root, "heavy"); n != 1 {
		t.Errorf("heavy holds %d, want the recorded child's slot", n)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if n := held(t, root, "heavy"); n != 0 {
		t.Errorf("heavy holds %d after the child's end", n)
	}
}

// Cancelling a wait leaves no ticket, no descriptor, no goroutine.
func TestCancelledWaitLeavesNothing(t *testing.T) {
	root := t.TempDir()
	acquire(t, spec{Root: root, Pools: one("all", 1)})
	runtime.GC()
	before := openFDs(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := spec{Root: root, Pools: one("all", 1), Wait: time.Hour}.want()
	var once sync.Once
	w.OnWait = func(Waiting) { once.Do(cancel) }
	if _, err := Acquire(ctx, places(root), w); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire = %v, want the context's error", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	names, err := filepath.Glob(root + "/waiting/[^.]*")
	if err != nil || len(names) != 0 {
		t.Errorf("left in line: %v %v", names, err)
	}
}

// S10: a stopped process that holds the line's lock is named, within the bound.
func TestStuckLockIsNamed(t *testing.T) {
	root := t.TempDir()
	acquire(t, spec{Root: root, Pools: one("all", 2)})
	d, err := flock.OpenDir(places(root).Waiting)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f, err := flock.Take(d, ".line", flock.Pass)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = Acquire(t.Context(), places(root), spec{Root: root, Pools: one("all", 2)}.want())
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code != LockStuck || !strings.Contains(err.Error(), fmt.Sprint("held by pid ", os.Getpid())) {
		t.Fatalf("Acquire = %v, want %s naming pid %d", err, LockStuck, os.Getpid())
	}
}

// S15: an idle waiter makes hardly any context switch and opens nothing.
func TestIdleWaitersCostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("watches idle processes for 10 s")
	}
	root := t.TempDir()
	holder(t, root, one("all", 1))
	var all []*other
	for range 3 {
		w := start(t, spec{Root: root, Pools: one("all", 1), Wait: time.Hour, Poll: DefaultPoll})
		w.says("waiting")
		all = append(all, w)
	}
	before := make([]int, len(all))
	for i, w := range all {
		before[i] = switches(t, w.cmd.Process.Pid)
	}
	time.Sleep(10 * time.Second) // the clause counts over 10 s of real idling
	for i, w := range all {
		if n := switches(t, w.cmd.Process.Pid) - before[i]; n > 20 {
			t.Errorf("waiter %d made %d voluntary context switches in 10 s, want at most 20", i, n)
		} else {
			t.Logf("waiter %d: %d switches", i, n)
		}
	}
}

// switches adds up the voluntary context switches of all threads.
func switches(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n, err := strconv.Atoi(strings.TrimSpace(rest))
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}
