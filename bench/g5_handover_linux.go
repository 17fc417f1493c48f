package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	waiters  = 60
	lifeOf   = "20" // milliseconds that each agent runs
	sequence = `i=0; while [ $i -lt %d ]; do %s %s $i %s; i=$((i+1)); done`
)

// handover measures G5 and G6: sixty agents of 20 ms each wait for one slot;
// how long is it from the end of one to the start of the next, and do they
// start in the order in which they came?
func (b *bench) handover(ctx context.Context) error {
	misplaced := 0
	got, err := b.race(ctx,
		way{"handsel", 1, func() ([]time.Duration, error) {
			events, err := b.queueUp(ctx)
			misplaced += outOfPlace(events)
			return gaps(events), err
		}},
		way{"shell loop", 1, func() ([]time.Duration, error) { return b.shellLoop(ctx) }},
		way{"flock", 1, func() ([]time.Duration, error) { return b.queueAtFlock(ctx) }},
	)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("one agent's end → the next one's start, %d wait", waiters)
	b.report.against("G5", what+", p50", got[0].p50, "shell loop", got[1].p50, 2)
	b.report.atMost("G5", "… p95", got[0].p95, 10*time.Millisecond, short(got[1].p95)+" shell loop")
	b.report.against("", "… p50, for comparison", got[0].p50, "flock(1), nobody's order", got[2].p50, 0)
	b.report.none("G6", fmt.Sprintf("out of place among %d, in all turns", b.turns*waiters), misplaced, "")
	return nil
}

// queueUp lets agents stand in line one after the other for a slot that is
// held, and then has it given back.
func (b *bench) queueUp(ctx context.Context) ([]event, error) {
	home, log := b.home(), filepath.Join(b.dir(), "log")
	h, err := b.hold(ctx, home)
	if err != nil {
		return nil, err
	}
	defer h.kill()
	var cmds []*exec.Cmd
	defer func() { killAll(cmds) }()
	for i := range waiters {
		cmd := b.run(ctx, home, 1, b.stamp, log, strconv.Itoa(i), lifeOf)
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		cmds = append(cmds, cmd)
		if err := queue(ctx, home, i+1); err != nil {
			return nil, fmt.Errorf("start %d does not stand in line: %w", i, err)
		}
	}
	if err := h.release(); err != nil {
		return nil, err
	}
	if err := waitAll(cmds); err != nil {
		return nil, err
	}
	events, err := readLog(log)
	if err == nil && len(events) != 2*waiters {
		err = fmt.Errorf("%d of %d events", len(events), 2*waiters)
	}
	return events, err
}

// holder is a process that holds the only slot of a home. We do not hold it
// ourselves: what we start would then wait for its own ancestor, and is refused.
type holder struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func (b *bench) hold(ctx context.Context, home string) (*holder, error) {
	cmd := exec.CommandContext(ctx, b.self, roleHolder)
	cmd.Env, cmd.Stderr = environ(settings(home, 1)), b.say
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &holder{cmd, stdin}
	if _, err := io.ReadFull(stdout, make([]byte, len("held\n"))); err != nil {
		h.kill()
		return nil, fmt.Errorf("the holder holds nothing: %w", err)
	}
	return h, nil
}

func (h *holder) release() error { return errors.Join(h.stdin.Close(), h.cmd.Wait()) }

func (h *holder) kill() { killAll([]*exec.Cmd{h.cmd}) }

// outOfPlace counts the agents that started after one who came later.
func outOfPlace(events []event) (n int) {
	last := -1
	for _, e := range events {
		if e.kind != "S" {
			continue
		}
		i, _ := strconv.Atoi(e.id)
		if i < last {
			n++
		}
		last = max(last, i)
	}
	return n
}

// shellLoop is the floor: nothing stands between one agent and the next but
// fork and exec.
func (b *bench) shellLoop(ctx context.Context) ([]time.Duration, error) {
	log := filepath.Join(b.dir(), "log")
	script := fmt.Sprintf(sequence, waiters, b.stamp, log, lifeOf)
	if err := exec.CommandContext(ctx, "sh", "-c", script).Run(); err != nil {
		return nil, err
	}
	events, err := readLog(log)
	return gaps(events), err
}

// queueAtFlock lets them block on one lock file.
func (b *bench) queueAtFlock(ctx context.Context) ([]time.Duration, error) {
	dir := b.dir()
	log, lock := filepath.Join(dir, "log"), filepath.Join(dir, "lock")
	cmds := make([]*exec.Cmd, waiters)
	for i := range cmds {
		cmds[i] = exec.CommandContext(ctx, "flock", lock, b.stamp, log, strconv.Itoa(i), lifeOf)
	}
	if err := startAll(cmds); err != nil {
		return nil, err
	}
	if err := waitAll(cmds); err != nil {
		return nil, err
	}
	events, err := readLog(log)
	return gaps(events), err
}

// polling shows for comparison what the same hand-over takes by polling every
// two seconds: ten pools with one that waits in each.
func (b *bench) polling(ctx context.Context) error {
	got, err := b.race(ctx, way{"python", 1, func() ([]time.Duration, error) { return b.pollTurn(ctx, 10) }})
	if err != nil {
		return err
	}
	b.report.add(row{what: "… Python with a poll every 2 s, 1 waits, p50 and p95", beside: short(got[0].p50) + "; " + short(got[0].p95)})
	return nil
}

func (b *bench) pollTurn(ctx context.Context, pools int) ([]time.Duration, error) {
	var cmds []*exec.Cmd
	var logs []string
	defer func() { killAll(cmds) }()
	for range pools {
		dir := b.dir()
		log := filepath.Join(dir, "log")
		life := strconv.Itoa(300 + rand.IntN(2000))
		first := b.python(ctx, filepath.Join(dir, "leases"), 1, b.stamp, log, "0", life)
		next := b.python(ctx, filepath.Join(dir, "leases"), 1, b.stamp, log, "1", "0")
		cmds, logs = append(cmds, first, next), append(logs, log)
		if err := first.Start(); err != nil {
			return nil, err
		}
		if _, err := logged(ctx, log, "S", "0"); err != nil {
			return nil, err
		}
		if err := next.Start(); err != nil {
			return nil, err
		}
	}
	if err := waitAll(cmds); err != nil {
		return nil, err
	}
	var list []time.Duration
	for _, log := range logs {
		events, err := readLog(log)
		if err != nil {
			return nil, err
		}
		list = append(list, gaps(events)...)
	}
	return list, nil
}

// killed measures the rest of G5: from the SIGKILL to the start of the next
// agent. A program that only holds a slot frees it by its death; of a run both
// the supervisor and the agent have to die.
func (b *bench) killed(ctx context.Context) error {
	n := b.pick(20, 8)
	got, err := b.race(ctx,
		way{"program that holds a slot", n, func() ([]time.Duration, error) { return b.killProgram(ctx) }},
		way{"supervisor and agent", n, func() ([]time.Duration, error) { return b.killRun(ctx) }},
	)
	if err != nil {
		return err
	}
	const most = 15 * time.Millisecond
	b.report.atMost("G5", "holder killed → the next one's start, p95", got[0].p95, most, short(got[0].p50)+" p50")
	b.report.atMost("G5", "supervisor and agent killed → the next one's start, p95", got[1].p95, most, short(got[1].p50)+" p50")
	return nil
}

func (b *bench) killProgram(ctx context.Context) ([]time.Duration, error) {
	home := b.home()
	h, err := b.hold(ctx, home)
	if err != nil {
		return nil, err
	}
	defer h.kill()
	return b.nextAfter(ctx, home, h.cmd.Process.Kill)
}

func (b *bench) killRun(ctx context.Context) ([]time.Duration, error) {
	home, log := b.home(), filepath.Join(b.dir(), "log")
	holder := b.run(ctx, home, 1, b.stamp, log, "held", "60000")
	if err := holder.Start(); err != nil {
		return nil, err
	}
	defer killAll([]*exec.Cmd{holder})
	agent, err := logged(ctx, log, "S", "held")
	if err != nil {
		return nil, err
	}
	return b.nextAfter(ctx, home, func() error {
		return errors.Join(holder.Process.Kill(), b.killStamp(agent.pid))
	})
}

// killStamp kills a stand-in, if that is what the number still means.
func (b *bench) killStamp(pid int) error {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || program != b.stamp {
		return nil // it has ended by itself
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// nextAfter lets one agent stand in line, kills, and takes the time from there
// to the agent's start.
func (b *bench) nextAfter(ctx context.Context, home string, kill func() error) ([]time.Duration, error) {
	log := filepath.Join(b.dir(), "log")
	next := b.run(ctx, home, 1, b.stamp, log, "next", "0")
	if err := next.Start(); err != nil {
		return nil, err
	}
	defer killAll([]*exec.Cmd{next})
	if err := queue(ctx, home, 1); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(2+rand.IntN(8)) * time.Millisecond) // it goes to sleep
	start := monotonic()
	if err := kill(); err != nil {
		return nil, err
	}
	if err := next.Wait(); err != nil {
		return nil, err
	}
	events, err := readLog(log)
	began, ok := find(events, "S", "next")
	if err == nil && !ok {
		err = errors.New("the next agent did not start")
	}
	return []time.Duration{time.Duration(began.at - start)}, err
}
