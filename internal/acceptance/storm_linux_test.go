package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/fakeagent"
)

const (
	// stormSize is how many handsel processes there are at any time.
	stormSize = 64

	// wakeBound is how long a place may stay free while somebody stands in
	// line. A wake-up takes milliseconds (S15); with the poll set to an hour a
	// lost one would take for ever, and the storm with it, so this only has to
	// outlast a busy machine.
	wakeBound = patience
)

// span is how long a storm lasts: a fraction in a usual run, all of it in a
// soak (HANDSEL_SOAK=1, or a duration).
func span(usual, soak time.Duration) time.Duration {
	text := os.Getenv("HANDSEL_SOAK")
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d
	}
	if text != "" {
		return soak
	}
	return usual
}

// seed is random, or the one that ACCEPTANCE_SEED asks for again.
func seed(t *testing.T) uint64 {
	n := rand.Uint64()
	if text := os.Getenv("ACCEPTANCE_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (ACCEPTANCE_SEED=%d repeats its choices)", n, n)
	return n
}

// storm is many starts at once, some of which end badly.
type storm struct {
	*place
	t     *testing.T
	cap   int
	log   string
	seed  uint64
	until time.Time
	least int // lives, however long that takes: fewer prove little

	lived, starts, kills, deaths, refusals atomic.Int64

	mu     sync.Mutex
	killed map[string]bool // stand-ins we killed, by id
}

func newStorm(t *testing.T, limit, least int, length time.Duration, setting string) *storm {
	p := here(t).config(fmt.Sprintf("%s\n[pools]\nall = %d\n[admission]\npoll = \"1h\"\n", setting, limit))
	return &storm{
		place: p, t: t, cap: limit, least: least, log: p.file("log"), seed: seed(t), until: time.Now().Add(length), killed: map[string]bool{},
	}
}

// TestStormNeverExceedsTheCap is S10, S11, S15, S23 and C002, C012, C062: never
// above the cap, never below it while somebody waits, and nothing is left.
func TestStormNeverExceedsTheCap(t *testing.T) {
	must(t, "exit 0", here(t).handsel("status")) // from here on this process has what it needs
	for _, limit := range []int{1, 3, 8} {
		t.Run(fmt.Sprint("cap ", limit), func(t *testing.T) {
			before := fds(t)
			s := newStorm(t, limit, 40, span(20*time.Second, 10*time.Minute)/3, "")
			s.rage(nil)
			// Whoever stands behind all of the dead sweeps their tickets away.
			must(t, "exit 0", s.agent("--priority", "-1000", "--", "exit", "0"))
			s.settled()
			if files, _ := filepath.Glob(filepath.Join(s.pool, "all", "*.lock")); len(files) > limit {
				t.Errorf("%d slots on disk under a cap of %d", len(files), limit)
			}
			if after := fds(t); after > before {
				t.Errorf("%d descriptors open, had %d", after, before)
			}
			s.judge()
		})
	}
}

func fds(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// rage runs the storm to its end; also is told its end to join in.
func (s *storm) rage(also func(until time.Time)) {
	over := make(chan struct{})
	var crew, watch sync.WaitGroup
	watch.Go(func() { s.probe(over) })
	watch.Go(func() { s.killAgents(over) })
	for i := range stormSize {
		crew.Go(func() { s.work(i) })
	}
	if also != nil {
		crew.Go(func() { also(s.until) })
	}
	crew.Wait()
	close(over)
	watch.Wait()
}

// rages tells whether it is to go on. A slow machine gets the time it needs.
func (s *storm) rages() bool {
	now := time.Now()
	return now.Before(s.until) || s.lived.Load() < int64(s.least) && now.Before(s.until.Add(2*patience))
}

// work starts one after the other until the time is over.
func (s *storm) work(worker int) {
	dice := rand.New(rand.NewPCG(s.seed, uint64(worker)))
	for n := 0; s.rages(); n++ {
		s.one(dice, fmt.Sprintf("w%d-%d", worker, n))
	}
}

// one is one start and what becomes of it.
func (s *storm) one(dice *rand.Rand, id string) {
	s.starts.Add(1)
	flags := []string{"--priority", strconv.Itoa(dice.IntN(3) - 1)}
	expect := []string{"exit 0"}
	switch dice.IntN(12) {
	case 0:
		flags, expect = append(flags, "--wait", "0"), append(expect, "exit 75")
	case 1:
		flags, expect = append(flags, "--wait", "0.1"), append(expect, "exit 75")
	}
	steps := []string{"log", s.log, "id", id, "hold", fmt.Sprint(time.Duration(dice.IntN(20+20*s.cap)) * time.Millisecond)}
	if dice.IntN(10) == 0 { // an early exit, of its own kind
		steps, expect[0] = append(steps, "then", "exit", "3"), "exit 3"
	}
	c := s.agent(append(append(flags, "--"), steps...)...)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer null.Close()
	c.Stdin, c.Stdout, c.Stderr = null, null, null
	if err := c.Start(); err != nil {
		s.t.Error(err)
		return
	}
	done := make(chan struct{})
	go func() {
		_ = c.Wait() // how it ended is judged below
		close(done)
	}()
	fate := dice.IntN(8)
	if fate < 2 {
		select {
		case <-done:
		case <-time.After(time.Duration(dice.IntN(300)) * time.Millisecond):
			expect = append(expect, s.strike(fate == 0, identify(c.Process.Pid), id, dice.IntN(2) == 0))
		}
	}
	<-done
	end := how(c.ProcessState)
	s.mu.Lock()
	if s.killed[id] {
		expect = append(expect, "signal SIGKILL")
	}
	s.mu.Unlock()
	switch end {
	case "exit 75":
		s.refusals.Add(1)
	case expect[0]:
		s.lived.Add(1)
	}
	if !slices.Contains(expect, end) {
		s.t.Errorf("%s ended with %s, want one of %q", id, end, expect)
	}
}

// strike ends a supervisor: politely, or by SIGKILL, its agent with it or not.
// It returns how the supervisor may end then.
//
// SIGKILL in the instant between the start of an agent and its record leaves
// an agent that status lists and nothing counts (C022). That has its own test;
// here the moment is avoided, so that the cap is exact.
func (s *storm) strike(kill bool, holder identity, id string, both bool) string {
	if !kill {
		s.note(id) // its agent ends with it
		holder.signal(syscall.SIGTERM)
		return "signal SIGTERM"
	}
	if !holder.signal(syscall.SIGSTOP) {
		return ""
	}
	for end := time.Now().Add(patience); !allStopped(holder.pid) && holder.alive() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	kids := processes(func(pid int) bool { return parentOf(pid) == holder.pid })
	for _, kid := range kids {
		if !s.recorded(kid.pid) {
			holder.signal(syscall.SIGCONT)
			return ""
		}
	}
	s.kills.Add(1)
	if both && len(kids) > 0 {
		s.note(id)
		for _, kid := range kids {
			kid.signal(syscall.SIGKILL)
		}
	}
	holder.signal(syscall.SIGKILL)
	return "signal SIGKILL"
}

// allStopped tells whether no thread of a process runs any more.
func allStopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		if at := bytes.LastIndexByte(text, ')'); at > 0 && !bytes.HasPrefix(text[at+1:], []byte(" T")) {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// recorded tells whether a slot of the pool names pid as its agent.
func (s *storm) recorded(pid int) bool {
	files, _ := filepath.Glob(filepath.Join(s.pool, "all", "*.lock"))
	return slices.ContainsFunc(files, func(path string) bool {
		var rec struct {
			Child int `json:"child_pid"`
		}
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(bytes.TrimSpace(text), &rec) == nil && rec.Child == pid
	})
}

// note says in the log that from now on the life of id proves nothing.
func (s *storm) note(id string) {
	if err := fakeagent.Append(s.log, fakeagent.Event{Kind: "K", ID: id, At: monotonic(), Engine: "judge"}); err != nil {
		s.t.Error(err)
	}
}

func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}

// agents lists the stand-ins of this storm that run, by the process table
// alone. Whoever was there before and after the look was there at one moment.
func (s *storm) agents() (all []identity) {
	all = processes(func(pid int) bool { return s.idOf(pid) != "" })
	return slices.DeleteFunc(all, func(id identity) bool { return !id.alive() })
}

// idOf is the id of the stand-in that pid is, if it is one.
func (s *storm) idOf(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	words := strings.Split(string(line), "\x00")
	if len(words) > 4 && filepath.Base(words[0]) == "fakeagent" && words[2] == s.log {
		return words[4]
	}
	return ""
}

// killAgents kills one now and then, whether its supervisor lives or not.
func (s *storm) killAgents(over <-chan struct{}) {
	dice := rand.New(rand.NewPCG(s.seed, math.MaxUint64))
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(dice.IntN(150)) * time.Millisecond):
		}
		all := s.agents()
		if len(all) == 0 {
			continue
		}
		victim := all[dice.IntN(len(all))]
		id := s.idOf(victim.pid)
		if id == "" {
			continue
		}
		s.mu.Lock()
		s.killed[id] = true
		s.mu.Unlock()
		s.note(id)
		if victim.signal(syscall.SIGKILL) {
			s.deaths.Add(1)
		}
	}
}

// probe looks from outside, all the time.
func (s *storm) probe(over <-chan struct{}) {
	var since time.Time // somebody stands in line and a place is free, since then
	var size int64
	for {
		select {
		case <-over:
			return
		case <-time.After(20 * time.Millisecond):
		}
		running, locked, line := len(s.agents()), s.locked("all"), len(s.place.waiting())
		if running > s.cap || locked > s.cap {
			s.t.Errorf("%d agents run and %d slots are locked under a cap of %d", running, locked, s.cap)
		}
		info, err := os.Stat(s.log)
		moved := err == nil && info.Size() != size
		if moved {
			size = info.Size()
		}
		switch {
		case moved || line == 0 || locked >= s.cap || running >= s.cap:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > wakeBound:
			s.t.Errorf("%d agents run and %d slots are locked under a cap of %d, and %d files stand in line, for %v",
				running, locked, s.cap, line, wakeBound)
			since = time.Time{}
			s.killAll() // or they would wait for ever, and the test with them
		}
	}
}

// judge reads what the stand-ins wrote.
func (s *storm) judge() {
	s.t.Helper()
	events, err := fakeagent.ReadLog(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	most, at, lives := peak(events)
	s.t.Logf("%d starts, %d lives, %d refused, %d supervisors and %d agents killed; at most %d at once",
		s.starts.Load(), lives, s.refusals.Load(), s.kills.Load(), s.deaths.Load(), most)
	if most > s.cap {
		s.t.Errorf("%d agents lived at %d, under a cap of %d", most, at, s.cap)
	}
	if 2*most < s.cap || lives < s.least { // a slow machine starts them one by one
		s.t.Errorf("a storm of %d lives, %d at once, proves little", lives, most)
	}
}

// peak is the largest number of lives at one moment by their own words, and
// that moment. A life lasts from S to E, or to K, after which it proves
// nothing; one whose K came first never counts.
func peak(events []fakeagent.Event) (most int, at int64, lives int) {
	type life struct{ from, to int64 }
	all := map[string]life{}
	for _, e := range events {
		l, ok := all[e.ID]
		if !ok {
			l = life{math.MaxInt64, math.MaxInt64}
		}
		if e.Kind == "S" {
			l.from = e.At
		} else {
			l.to = min(l.to, e.At)
		}
		all[e.ID] = l
	}
	type step struct {
		at int64
		by int
	}
	var steps []step
	for _, l := range all {
		if l.from < l.to {
			steps = append(steps, step{l.from, 1}, step{l.to, -1})
			lives++
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		if a.at != b.at {
			return int(max(-1, min(1, a.at-b.at)))
		}
		return a.by - b.by
	})
	now := 0
	for _, st := range steps {
		if now += st.by; now > most {
			most, at = now, st.at
		}
	}
	return most, at, lives
}

func TestPeakSeesAnAgentTooMany(t *testing.T) {
	e := func(kind, id string, at int64) fakeagent.Event { return fakeagent.Event{Kind: kind, ID: id, At: at} }
	for _, tt := range []struct {
		name   string
		events []fakeagent.Event
		most   int
	}{
		{"one after the other", []fakeagent.Event{e("S", "a", 1), e("E", "a", 2), e("S", "b", 2), e("E", "b", 3)}, 1},
		{"two at once", []fakeagent.Event{e("S", "a", 1), e("S", "b", 2), e("E", "a", 3), e("E", "b", 4)}, 2},
		{"one never ended", []fakeagent.Event{e("S", "a", 1), e("S", "b", 9)}, 2},
		{"one was killed", []fakeagent.Event{e("S", "a", 1), e("K", "a", 2), e("S", "b", 9)}, 1},
		{"killed before it began", []fakeagent.Event{e("K", "a", 1), e("S", "a", 2), e("S", "b", 3)}, 1},
	} {
		if most, _, _ := peak(tt.events); most != tt.most {
			t.Errorf("%s: %d, want %d", tt.name, most, tt.most)
		}
	}
}

// TestStormBesideAnotherImplementation is S6: another program that keeps the
// source's own format counts against the same pool while ours run.
func TestStormBesideAnotherImplementation(t *testing.T) {
	leases := scratch(t, os.Geteuid())
	if err := os.Chmod(leases, 0o700); err != nil {
		t.Fatal(err)
	}
	s := newStorm(t, 3, 50, span(5*time.Second, time.Minute), fmt.Sprintf("leases_dir = %q", leases))
	s.pool = leases
	const few = 10
	theirs := func() (n int) {
		events, err := fakeagent.ReadLog(s.log)
		if err != nil {
			t.Error(err)
		}
		for _, e := range events {
			if e.Engine == "peer" && e.Kind == "S" {
				n++
			}
		}
		return n
	}
	s.rage(func(until time.Time) {
		for length := time.Until(until); ; length = 5 * time.Second { // longer on a slow machine
			c := fakeagent.Peer(t, leases, "storm", "all", "3", "6", fmt.Sprintf("%.1f", length.Seconds()), s.log)
			c.Env = append(slices.Clone(s.env), "PEER_CRASH=20")
			if text, err := c.CombinedOutput(); err != nil {
				t.Errorf("peer: %v\n%s", err, text)
				return
			}
			if theirs() >= few || time.Since(until) > 2*patience {
				return
			}
		}
	})
	must(t, "exit 0", s.agent("--priority", "-1000", "--", "exit", "0"))
	s.settled()
	if n := theirs(); n < few {
		t.Errorf("the peer was admitted %d times: it proves little", n)
	}
	s.judge()
}
