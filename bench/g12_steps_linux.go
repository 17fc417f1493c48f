package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel"
)

// Steps at which whoever comes there first is killed. Those of recovery need a
// dispatcher that was killed before.
var (
	dispatcherSteps = []string{
		"accept.received", "accept.proved", "accept.committed", "accept.entered", "accept.answered",
		"admit.admitted", "admit.offered", "admit.spawned",
		"grant.asked", "grant.granted", "grant.sent", "grant.settling", "grant.handed", "grant.begun",
		"queue.accept", "queue.accept.done", "queue.offer", "queue.offer.done", "queue.grant", "queue.grant.done",
		"queue.begun", "queue.begun.done", "queue.end", "queue.end.done", "queue.commit",
	}
	recoverySteps = []string{"dispatch.locked", "dispatch.opened", "recover.begin", "recover.row", "recover.rows", "recover.attempt", "recover.attempts"}
	driverSteps   = []string{
		"claim.token", "claim.connected", "claim.sent", "claim.received", "claim.proved", "claim.recorded", "claim.begun", "claim.acked",
		"drive.spawn", "run.spawned", "run.recorded", "run.ended", "drive.outcome", "drive.told", "drive.closed",
	}
	launcherSteps = []string{"enqueue.taken", "enqueue.payload", "enqueue.entry", "enqueue.connected", "enqueue.sent", "enqueue.answered", "enqueue.closed"}
)

// stepKills is the rest of G12: 23 rows at cap 3, and at each step of launcher,
// dispatcher and driver whoever comes there first is killed. The program is
// built with its failpoints for that, and only for that.
func (b *bench) stepKills(ctx context.Context) error {
	program := filepath.Join(b.dir(), "handsel")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "failpoint", "-o", program, "./cmd/handsel")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build with failpoints: %w\n%s", err, said)
	}
	var t stepTally
	rounds := [][]string{{""}} // nobody is killed at a step, but the dispatcher at a random moment
	for _, step := range slices.Concat(dispatcherSteps, driverSteps, launcherSteps) {
		rounds = append(rounds, []string{step})
	}
	for _, step := range recoverySteps {
		rounds = append(rounds, []string{"admit.offered", step})
	}
	for i, steps := range rounds {
		if b.quick && i%4 != 0 {
			continue
		}
		if err := b.stepRound(ctx, program, steps, &t); err != nil {
			return fmt.Errorf("killed at %s: %w", strings.Join(steps, " and "), err)
		}
	}
	b.report.none("G12", fmt.Sprintf("%d × (3 run and 20 wait), killed at each of %d steps, reached %d: unaccounted", t.rounds, t.steps, t.reached), len(t.unaccounted), "")
	b.report.none("G12", "… run twice", len(t.twice), "")
	b.report.none("G12", "… stuck", len(t.stuck), "")
	b.report.add(row{goal: "G12", what: "… most agents at once, cap 3", ours: strconv.Itoa(t.peak), target: "≤ 3", verdict: judge(t.peak <= running)})
	for what, list := range map[string][]string{"unaccounted": t.unaccounted, "run twice": t.twice, "stuck": t.stuck, "step not reached": t.missed} {
		if len(list) > 0 {
			b.report.note("G12, %s: %s.", what, strings.Join(list, "; "))
		}
	}
	return nil
}

// stepTally is what the rounds came to; each entry names its step.
type stepTally struct {
	rounds, steps, reached, peak int

	unaccounted, twice, stuck, missed []string
}

// stepRound is one round: 23 rows and a launcher that may be the one to die.
func (b *bench) stepRound(ctx context.Context, program string, steps []string, t *stepTally) error {
	k, err := b.keep(running)
	if err != nil {
		return err
	}
	fired, log := filepath.Join(b.dir(), "fired"), filepath.Join(b.dir(), "log")
	k.program = program
	k.vars["HANDSEL_FAILPOINT"], k.vars["HANDSEL_FAILPOINT_LOG"] = armed(steps), fired
	s := &stormed{keeper: k, attempts: map[string]string{}}
	stop := s.guard(ctx, steps[0] == "")
	defer func() { stop(); k.kill() }()
	for i := range starts {
		if err := s.hand(ctx, strconv.Itoa(i), b.stamp, log, strconv.Itoa(i), "120"); err != nil {
			return err
		}
	}
	victim := k.command(ctx, "enqueue", "victim", "--", b.stamp, log, "victim", "120")
	_ = victim.Run() // it may be killed, and then be queued or not
	stuck := s.settle(ctx) != nil
	where := strings.Join(steps, "+")
	if stuck {
		t.stuck = append(t.stuck, where)
	}
	t.rounds++
	t.count(steps, fired)
	return s.judge(ctx, log, where, t)
}

func armed(steps []string) string {
	var rules []string
	for _, step := range steps {
		if step != "" {
			rules = append(rules, step+"=once:kill")
		}
	}
	return strings.Join(rules, ",")
}

func (t *stepTally) count(steps []string, fired string) {
	for _, step := range steps {
		if step == "" {
			continue
		}
		t.steps++
		if _, err := os.Stat(fired + "." + step); err == nil {
			t.reached++
		} else {
			t.missed = append(t.missed, step)
		}
	}
}

// stormed is a home whose dispatcher is started again whenever it has died.
type stormed struct {
	*keeper
	attempts map[string]string // id of the agent → attempt
}

// guard starts the dispatcher, and again when it has ended, until stop is called.
// It kills it once, some time into the round, when random is set.
func (s *stormed) guard(ctx context.Context, random bool) (stop func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(gone)
		for {
			select {
			case <-quit:
				return
			default:
			}
			if s.pid == 0 {
				_ = s.start(ctx) // it may be killed while it starts
				continue
			}
			if random && time.Since(began) > 400*time.Millisecond {
				random = false
				s.kill()
			} else if s.over(5 * time.Millisecond) {
				s.kill()
			}
		}
	}()
	return func() { close(quit); <-gone }
}

// hand enqueues until it is done: what was refused leaves nothing, and of what is
// not known the dispatcher that comes next knows.
func (s *stormed) hand(ctx context.Context, id string, argv ...string) error {
	return until(ctx, 30*time.Second, func() (bool, error) {
		out, err := s.home.Enqueue(ctx, "storm-"+id, argv, handsel.EnqueueOptions{Env: []string{"PATH=" + os.Getenv("PATH")}})
		if err == nil {
			s.attempts[id] = out.Attempt
			return true, nil
		}
		if unknown, is := errors.AsType[*handsel.Unknown](err); is {
			return s.found(ctx, id, unknown.Attempt), nil
		}
		var wrong *handsel.WrongMode
		return false, ignore(err, errors.As(err, &wrong))
	})
}

// ignore drops errors of a dispatcher that is not there at the moment.
func ignore(err error, final bool) error {
	if final {
		return err
	}
	return nil
}

// found tells whether an attempt is known after all.
func (s *stormed) found(ctx context.Context, id, attempt string) bool {
	known := false
	_ = until(ctx, 10*time.Second, func() (bool, error) {
		r, err := s.home.Reconcile(ctx, attempt)
		if err != nil {
			return false, nil //nolint:nilerr // nobody knows yet
		}
		known = r.Known
		return true, nil
	})
	if known {
		s.attempts[id] = attempt
	}
	return known
}

// settle returns when nothing waits and nothing runs.
func (s *stormed) settle(ctx context.Context) error {
	return until(ctx, 60*time.Second, func() (bool, error) {
		time.Sleep(10 * time.Millisecond)
		waiting, going, err := s.rows(ctx)
		return err == nil && waiting+going == 0, nil
	})
}

// judge compares what ran with what was accepted. An attempt that did not run to
// its end is accounted for when its outcome says so.
func (s *stormed) judge(ctx context.Context, log, where string, t *stepTally) error {
	events, err := readLog(log)
	if err != nil {
		return err
	}
	began, ended := map[string]int{}, map[string]int{}
	for _, e := range events {
		if e.kind == "S" {
			began[e.id]++
		} else {
			ended[e.id]++
		}
	}
	for id, n := range began {
		if n > 1 {
			t.twice = append(t.twice, where+": "+id)
		}
	}
	for id, attempt := range s.attempts {
		if began[id] == 1 && ended[id] == 1 {
			continue
		}
		if r, err := s.home.Reconcile(ctx, attempt); err != nil || !r.Known || r.Outcome == "" {
			t.unaccounted = append(t.unaccounted, where+": "+id)
		}
	}
	// When an agent without an end was killed is not known: it says nothing of
	// how many lived.
	whole := slices.DeleteFunc(events, func(e event) bool { return ended[e.id] == 0 })
	t.peak = max(t.peak, most(whole))
	return nil
}
