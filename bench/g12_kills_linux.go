package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
)

const (
	running = 3
	starts  = 23 // three run and twenty wait
	victims = 10
)

// tally is what the rounds of a storm came to.
type tally struct {
	rounds, killed int
	unaccounted    int // its command was not killed, and it did not run to its end
	twice          int
	stuck          int // still waiting when it could long have run
	peak           int
	broken         []string // how the cap was exceeded
}

// storm measures the direct-run part of G12: of 23 starts at cap 3 some are
// killed with SIGKILL at random moments, from their first system call to their
// last, with and without the agent that they run.
func (b *bench) storm(ctx context.Context) error {
	var t tally
	for range b.pick(20, 5) {
		if err := b.stormRound(ctx, &t); err != nil {
			return err
		}
	}
	b.report.none("G12", fmt.Sprintf("%d of %d starts killed at random: unaccounted", t.killed, t.rounds*starts), t.unaccounted, "")
	b.report.none("G12", "… run twice", t.twice, "")
	b.report.none("G12", "… stuck", t.stuck, "")
	b.report.add(row{
		goal: "G12", what: "… most agents at once, cap 3", ours: strconv.Itoa(t.peak), target: "≤ 3", verdict: judge(t.peak <= running),
	})
	for _, text := range t.broken {
		b.report.note("G12, cap exceeded: %s.", text)
	}
	return nil
}

// start is one start of a storm.
type start struct {
	id     string
	cmd    *exec.Cmd
	victim bool
	killed int64         // when, by the clock of the agents; 0 = not
	over   chan struct{} // closed when it has ended, with err
	err    error
	done   chan struct{} // closed when its killer is through
}

func (b *bench) stormRound(ctx context.Context, t *tally) error {
	home, log := b.home(), filepath.Join(b.dir(), "log")
	starts, err := b.startStorm(ctx, home, log)
	if err != nil {
		return err
	}
	late := time.After(30 * time.Second)
	for _, s := range starts {
		select {
		case <-s.over:
			if s.err != nil && !s.victim {
				t.unaccounted++
			}
		case <-late:
			t.stuck++
			late = time.After(0)
			_ = s.cmd.Process.Kill()
			<-s.over
		}
	}
	for _, s := range starts {
		<-s.done
	}
	if err := b.agentsEnd(ctx, log); err != nil {
		return err
	}
	if !b.free(ctx, home) {
		t.stuck++
	}
	t.rounds, t.killed = t.rounds+1, t.killed+victims
	return t.judge(starts, log)
}

// startStorm starts all and has the killers under way.
func (b *bench) startStorm(ctx context.Context, home, log string) ([]*start, error) {
	all := make([]*start, starts)
	for i, n := range rand.Perm(starts) {
		all[i] = &start{id: strconv.Itoa(i), victim: n < victims, over: make(chan struct{}), done: make(chan struct{})}
		s := all[i]
		s.cmd = b.run(ctx, home, running, b.stamp, log, s.id, "120")
		if err := s.cmd.Start(); err != nil {
			return nil, err
		}
		go func() {
			defer close(s.over)
			s.err = s.cmd.Wait()
		}()
		go func() {
			defer close(s.done)
			if s.victim {
				b.kill(s, log)
			}
		}()
	}
	return all, nil
}

// kill kills a start: every other one within the few milliseconds in which it
// is admitted or begins to wait, the others at any time of the round.
func (b *bench) kill(s *start, log string) {
	when := time.Duration(rand.Int64N(int64(8 * time.Millisecond)))
	if rand.IntN(2) == 0 {
		when = time.Duration(rand.Int64N(int64(time.Second)))
	}
	select {
	case <-time.After(when):
	case <-s.over:
		return
	}
	s.killed = monotonic()
	_ = s.cmd.Process.Kill()
	<-s.over
	if rand.IntN(2) == 0 {
		return // its agent lives on
	}
	events, _ := readLog(log)
	agent, ran := find(events, "S", s.id)
	if _, ended := find(events, "E", s.id); !ran || ended {
		return
	}
	// From here on its life proves nothing.
	line := fmt.Sprintf("K %s %d %d\n", s.id, monotonic(), agent.pid)
	if appendLine(log, line) == nil {
		_ = b.killStamp(agent.pid)
	}
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// agentsEnd waits for the agents that lost their supervisors.
func (b *bench) agentsEnd(ctx context.Context, log string) error {
	time.Sleep(50 * time.Millisecond) // one may just have been started
	return until(ctx, 10*time.Second, func() (bool, error) {
		events, err := readLog(log)
		over := map[string]bool{}
		for _, e := range events {
			over[e.id] = over[e.id] || e.kind != "S"
		}
		for _, e := range events {
			if !over[e.id] {
				return false, err
			}
		}
		return true, err
	})
}

// free tells whether every slot of a home can be had again.
func (b *bench) free(ctx context.Context, home string) bool {
	h, err := open(home, running)
	if err != nil {
		return false
	}
	ok := true
	for range running {
		l, err := h.Acquire(ctx, handsel.Start{Wait: time.Second})
		if err != nil {
			ok = false
			continue
		}
		defer l.Release() //nolint:errcheck // the home is of no use any more
	}
	return ok
}

// judge reads the agents' own log.
func (t *tally) judge(all []*start, log string) error {
	events, err := readLog(log)
	peak := most(events)
	if peak > running {
		t.broken = append(t.broken, crowd(all, events))
	}
	t.peak = max(t.peak, peak)
	for _, s := range all {
		began, ended := 0, 0
		for _, e := range events {
			if e.id == s.id && e.kind == "S" {
				began++
			}
			if e.id == s.id && e.kind == "E" {
				ended++
			}
		}
		if began > 1 {
			t.twice++
		}
		if !s.victim && (began != 1 || ended != 1) {
			t.unaccounted++
		}
	}
	return err
}

// crowd says who was alive when too many were, and when their supervisors were
// killed.
func crowd(all []*start, events []event) string {
	alive := map[string]event{}
	for _, e := range events {
		if e.kind != "S" {
			delete(alive, e.id)
			continue
		}
		if alive[e.id] = e; len(alive) <= running {
			continue
		}
		var who []string
		for _, s := range all {
			began, ok := alive[s.id]
			switch {
			case !ok:
			case s.killed != 0 && s.killed < e.at:
				who = append(who, fmt.Sprintf("%s (its supervisor killed %v after its start)", s.id, time.Duration(s.killed-began.at)))
			default:
				who = append(who, s.id)
			}
		}
		return fmt.Sprintf("when %s began, alive were %s", e.id, strings.Join(who, ", "))
	}
	return ""
}

// killedNeighbours shows what the neighbours make of a SIGKILL.
func (b *bench) killedNeighbours(ctx context.Context) error {
	dir := b.dir()
	atFlock := func(argv ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "flock", append([]string{"-o", filepath.Join(dir, "lock")}, argv...)...)
	}
	atSem := func(argv ...string) *exec.Cmd { return sem(ctx, dir, 1, argv...) }
	for _, n := range []struct {
		name  string
		start func(...string) *exec.Cmd
	}{{"flock -o", atFlock}, {"GNU sem -j1", atSem}} {
		peak, err := b.killHolder(ctx, n.start)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		b.report.add(row{what: "… most at once after a holder is killed, cap 1", beside: fmt.Sprintf("%d %s", peak, n.name)})
	}
	for _, n := range []struct {
		name string
		lose func(context.Context, string) error
	}{{"task-spooler, its server killed", b.killSpooler}, {"GNU parallel killed", b.killParallel}} {
		log := filepath.Join(b.dir(), "log")
		if err := n.lose(ctx, log); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		events, err := readLog(log)
		if err != nil {
			return err
		}
		b.report.add(row{what: "… never run, of 20 that wait", beside: fmt.Sprintf("%d %s", starts-len(ids(events)), n.name)})
	}
	return nil
}

func ids(events []event) map[string]bool {
	seen := map[string]bool{}
	for _, e := range events {
		seen[e.id] = true
	}
	return seen
}

// killHolder kills whoever holds the only place while another waits, and
// returns how many ran at once before the first one's agent would have ended.
func (b *bench) killHolder(ctx context.Context, start func(...string) *exec.Cmd) (int, error) {
	log := filepath.Join(b.dir(), "log")
	first, next := start(b.stamp, log, "first", "10000"), start(b.stamp, log, "next", "100")
	if err := first.Start(); err != nil {
		return 0, err
	}
	defer killAll([]*exec.Cmd{first})
	agent, err := logged(ctx, log, "S", "first")
	if err != nil {
		return 0, err
	}
	defer b.killStamp(agent.pid) //nolint:errcheck // it ends by itself
	if err := next.Start(); err != nil {
		return 0, err
	}
	defer killAll([]*exec.Cmd{next})
	if err := sleep(ctx, 1500*time.Millisecond); err != nil {
		return 0, err
	}
	if err := first.Process.Kill(); err != nil {
		return 0, err
	}
	_ = first.Wait() // or it stays in the process table, where sem sees it
	err = until(ctx, 7*time.Second, func() (bool, error) {
		events, err := readLog(log)
		_, started := find(events, "S", "next")
		return started, err
	})
	if err != nil && !errors.Is(err, errTooLong) {
		return 0, err
	}
	events, err := readLog(log)
	return most(events), err
}

// killSpooler kills the server of a task-spooler that has three jobs running
// and twenty waiting.
func (b *bench) killSpooler(ctx context.Context, log string) error {
	s := newSpooler(b.dir(), running)
	if err := s.tsp(ctx, "-l").Run(); err != nil {
		return err
	}
	server, err := s.server()
	if err != nil {
		return err
	}
	for i := range starts {
		if err := s.tsp(ctx, "-n", b.stamp, log, strconv.Itoa(i), "500").Run(); err != nil {
			return err
		}
	}
	if err := sleep(ctx, 200*time.Millisecond); err != nil {
		return err
	}
	if err := unix.Kill(server, unix.SIGKILL); err != nil {
		return err
	}
	return sleep(ctx, 3*time.Second)
}

// server finds the one process that our socket belongs to, before any job is
// submitted.
func (s *spooler) server() (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if strings.Contains("\x00"+string(env), "\x00"+s.socket+"\x00") {
			return pid, nil
		}
	}
	return 0, errors.New("no process has our socket")
}

// killParallel kills GNU parallel with three jobs running and twenty to come.
func (b *bench) killParallel(ctx context.Context, log string) error {
	var numbers strings.Builder
	for i := range starts {
		fmt.Fprintln(&numbers, i)
	}
	cmd := exec.CommandContext(ctx, "parallel", "-j"+strconv.Itoa(running), b.stamp, log, "{}", "500")
	cmd.Stdin, cmd.Env = strings.NewReader(numbers.String()), append(environ(nil), "HOME="+b.dir())
	if err := cmd.Start(); err != nil {
		return err
	}
	defer killAll([]*exec.Cmd{cmd})
	if _, err := logged(ctx, log, "S", strconv.Itoa(running-1)); err != nil {
		return err
	}
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	return sleep(ctx, 2*time.Second)
}
