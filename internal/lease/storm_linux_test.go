package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/fakeagent"
	"github.com/handsel/handsel/internal/line"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/slot"
	"golang.org/x/sys/unix"
)

// storm is one worker among many: until its time is over it asks to be
// admitted, runs a stand-in that notes its own life, and lets go; now and then
// it gives up waiting, or ends without releasing.
type storm struct {
	Agent string // the stand-in
	Log   string
	Until int64 // CLOCK_BOOTTIME
	Seed  uint64
}

func (s *storm) play(sp spec) int {
	rnd := rand.New(rand.NewPCG(s.Seed, 7))
	w := sp.want()
	w.Poll = 2 * time.Second
	for n := 0; boottime() < s.Until; n++ {
		w.Run = fmt.Sprintf("%d-%d", os.Getpid(), n)
		w.Wait = time.Duration(rnd.IntN(3)) * 300 * time.Millisecond
		w.Priority = rnd.IntN(5) - 2
		if code := s.one(rnd, sp, w); code != 0 {
			return code
		}
	}
	return 0
}

func (s *storm) one(rnd *rand.Rand, sp spec, w Want) int {
	l, err := Acquire(context.Background(), places(sp.Root), w)
	if refused := new(Refused); errors.As(err, &refused) {
		if refused.Code == LockStuck || refused.Code == OwnAncestors {
			fmt.Println("error", err)
			return 1
		}
		return 0
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	// The stand-in begins, and says so, once it is recorded: what is not started
	// through handsel itself has nothing to end it if we are killed before.
	ready := sp.Root + "/" + w.Run
	c := exec.Command(s.Agent, "until", ready, "then", "log", s.Log, "id", w.Run, "hold", (time.Duration(rnd.IntN(20)) * time.Millisecond).String())
	c.Env = append(os.Environ(), "FAKEAGENT_LIFE=3s")
	if err := c.Start(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	id, err := proc.Identify(c.Process.Pid)
	if err == nil {
		err = l.RecordChild(id)
	}
	if err == nil {
		err = os.WriteFile(ready, []byte("go\n"), 0o600)
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	if rnd.IntN(50) == 0 {
		return 77 // ends early: the slot stays while the stand-in lives
	}
	_ = c.Wait()
	if err := l.Release(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

func boottime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}

// S10, S16: however many processes ask, die and are killed, the agents' own
// notes and an outside count never show more than the cap, and nothing is left
// behind. HANDSEL_SOAK=10m makes it longer.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("storms for seconds")
	}
	total := 6 * time.Second
	if d, err := time.ParseDuration(os.Getenv("HANDSEL_SOAK")); err == nil && d > 0 {
		total = d
	}
	for _, limit := range []int{1, 3, 8} {
		t.Run("cap "+strconv.Itoa(limit), func(t *testing.T) { stormAt(t, limit, 64, total/3) })
	}
}

func stormAt(t *testing.T, limit, workers int, long time.Duration) {
	root, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	agent := fakeagent.Build(t)
	end := boottime() + int64(long)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var all sync.WaitGroup
	var mu sync.Mutex
	var alive []*other
	worker := func(n uint64) *other {
		return start(t, spec{Root: root, Pools: one("all", limit), Storm: &storm{Agent: agent, Log: log, Until: end, Seed: seed + n}})
	}
	for n := range workers {
		alive = append(alive, worker(uint64(n)))
	}
	stop := make(chan struct{})
	all.Go(func() { probe(t, root, limit, stop) })
	for n := uint64(1000); boottime() < end; n++ {
		time.Sleep(time.Duration(5+rnd.IntN(30)) * time.Millisecond) // the storm's own pace
		mu.Lock()
		if n%2 == 0 {
			killAgent(t, root, log)
		} else {
			i := rnd.IntN(len(alive))
			alive[i].kill()
			alive[i] = worker(n)
		}
		mu.Unlock()
	}
	for _, o := range alive {
		out, _ := readAll(o)
		if strings.Contains(out, "error") {
			t.Errorf("a worker said %q", out)
		}
	}
	close(stop)
	all.Wait()
	judge(t, root, log, limit)
}

func readAll(o *other) (string, error) {
	var b strings.Builder
	_, err := o.out.WriteTo(&b)
	_ = o.cmd.Wait()
	return b.String(), err
}

// killAgent kills some stand-in that runs now, and notes beforehand that from
// here on its life proves nothing.
func killAgent(t *testing.T, root, log string) {
	taken, err := Taken(root + "/leases")
	if err != nil {
		t.Error(err)
	}
	for _, h := range taken {
		if h.Child == 0 {
			continue
		}
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		if err := fakeagent.Append(log, fakeagent.Event{Kind: "K", ID: h.Run, At: ts.Nano(), Pid: h.Child, Engine: "x"}); err != nil {
			t.Error(err)
		}
		_ = syscall.Kill(h.Child, syscall.SIGKILL)
		return
	}
}

// probe counts from outside, under the locks of admission, so that no slot can
// be taken meanwhile.
func probe(t *testing.T, root string, limit int, stop chan struct{}) {
	looks := 0
	defer func() { t.Logf("%d outside looks", looks) }()
	for {
		select {
		case <-stop:
			return
		case <-time.After(3 * time.Millisecond):
		}
		p, err := slot.Open(root+"/leases", "all", false)
		if err != nil {
			continue // not there yet
		}
		f, err := p.Dir().Pass(context.Background(), slot.AdmissionLock, time.Minute)
		if err == nil {
			c, err := p.Count()
			if err != nil || c.Held > limit {
				t.Errorf("%d slots held of %d: %v", c.Held, limit, err)
			}
			looks++
			f.Close()
		}
		p.Close()
	}
}

func judge(t *testing.T, root, log string, limit int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); held(t, root, "all") > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("slots stay held with nothing alive")
		}
	}
	events, err := fakeagent.ReadLog(log)
	if err != nil {
		t.Fatal(err)
	}
	if most, at := fakeagent.Peak(mended(events)); most > limit {
		t.Errorf("%d agents at once under a cap of %d, at %d", most, limit, at)
	}
	t.Logf("%d notes", len(events))
	// Who comes next sweeps what the killed left in line.
	acquire(t, spec{Root: root, Pools: one("all", limit), Wait: time.Minute, Priority: -1000}).Release()
	if names := inLine(t, root); len(names) > 0 {
		t.Errorf("left in line: %q", names)
	}
}

// mended ends the lives of agents that were killed before they could note their
// start: the K may come first.
func mended(events []fakeagent.Event) []fakeagent.Event {
	killed := map[string]bool{}
	var good []fakeagent.Event
	for _, e := range events {
		if e.Kind == "K" {
			killed[e.ID] = true
		}
	}
	for _, e := range events {
		if !killed[e.ID] || e.Kind != "S" || slices.ContainsFunc(events, func(k fakeagent.Event) bool { return k.Kind == "K" && k.ID == e.ID && k.At >= e.At }) {
			good = append(good, e)
		}
	}
	return good
}

// inLine lists what lies in the line besides its lock.
func inLine(t *testing.T, root string) []string {
	t.Helper()
	entries, err := os.ReadDir(root + "/waiting")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != ".line" {
			names = append(names, e.Name())
		}
	}
	return names
}

// S6: agents counted by another implementation of the source, on one directory
// and at one time with ours, are never more than the cap together.
func TestSideBySideWithAnotherImplementation(t *testing.T) {
	if testing.Short() {
		t.Skip("storms for seconds")
	}
	root, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(root+"/leases", 0o700); err != nil {
		t.Fatal(err)
	}
	const limit, seconds = 3, 4
	peer := fakeagent.Peer(t, root+"/leases", "storm", "all", strconv.Itoa(limit), "6", strconv.Itoa(seconds), log)
	peer.Env = append(os.Environ(), "PEER_POLL=0.05")
	peer.Stderr = os.Stderr
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	end := boottime() + int64(seconds*time.Second)
	var alive []*other
	for n := range 6 {
		alive = append(alive, start(t, spec{Root: root, Pools: one("all", limit), Storm: &storm{Agent: fakeagent.Build(t), Log: log, Until: end, Seed: uint64(n)}}))
	}
	for _, o := range alive {
		if out, _ := readAll(o); strings.Contains(out, "error") {
			t.Errorf("a worker said %q", out)
		}
	}
	_ = peer.Wait() // its own storm has no meaningful status
	judge(t, root, log, limit)
	events, err := fakeagent.ReadLog(log)
	if err != nil {
		t.Fatal(err)
	}
	by := map[bool]int{}
	for _, e := range events {
		by[e.Engine == "peer"]++
	}
	t.Logf("ours %d, theirs %d notes", by[false], by[true])
	if by[false] == 0 || by[true] == 0 {
		t.Error("only one side ran")
	}
}

// S10: over several pools a start has all its slots or none, whoever else asks.
func TestAllPoolsOrNone(t *testing.T) {
	root := t.TempDir()
	sets := [][]Pool{
		append(one("all", 3), one("codex", 2)...),
		append(one("all", 3), one("heavy", 1)...),
		append(one("codex", 2), one("heavy", 1)...),
		append(append(one("all", 3), one("codex", 2)...), one("heavy", 1)...),
	}
	var mu sync.Mutex
	letting := map[string]bool{} // runs that are letting go
	stop := make(chan struct{})
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				w := spec{Root: root, Pools: sets[n%len(sets)], Wait: time.Minute, Name: fmt.Sprintf("%d/%d", n, round)}.want()
				l, err := Acquire(context.Background(), places(root), w)
				if err != nil {
					t.Error(err)
					return
				}
				if len(l.Slots()) != len(sets[n%len(sets)]) {
					t.Errorf("%d slots", len(l.Slots()))
				}
				mu.Lock()
				letting[w.Run] = true
				mu.Unlock()
				_ = l.Release()
			}
		})
	}
	want := map[int]int{0: 2, 1: 2, 2: 2, 3: 3}
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		seen := underLocks(t, root, "all", "codex", "heavy")
		mu.Lock()
		for run, slots := range seen {
			var n int
			if _, err := fmt.Sscanf(run, "run-%d/", &n); err != nil {
				t.Error(err)
			}
			if slots != want[n%len(sets)] && !letting[run] {
				t.Errorf("%s holds %d slots of %d", run, slots, want[n%len(sets)])
			}
		}
		mu.Unlock()
	}
	close(stop)
	all.Wait()
	for _, name := range []string{"all", "codex", "heavy"} {
		if n := held(t, root, name); n != 0 {
			t.Errorf("pool %s holds %d in the end", name, n)
		}
	}
	if names := inLine(t, root); len(names) > 0 {
		t.Errorf("left in line: %q", names)
	}
}

// underLocks counts the slots of each run while no admission can be going on.
func underLocks(t *testing.T, root string, pools ...string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	l, err := line.Open(root+"/waiting", true)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.Lock(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range pools {
		p, err := slot.Open(root+"/leases", name, true)
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Count()
		p.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.Slots {
			if r := s.Record(); r != nil {
				seen[r.Run]++
			}
		}
	}
	return seen
}
