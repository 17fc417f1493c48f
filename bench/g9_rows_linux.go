package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// manyRows is how many rows wait in G9, G10 and G11.
const manyRows = 10000

// rows measures G9 to G11, and the part of G12 that has 10,000 rows, in one
// home: what a dispatcher weighs with that many lanes in its hands, what it
// burns while nothing happens, and how soon the next one has them all again.
func (b *bench) rows(ctx context.Context) error {
	k, err := b.keeping(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { k.kill() }()
	held, err := occupy(ctx, k.home)
	if err != nil {
		return err
	}
	defer held.Release() //nolint:errcheck // the home is of no use any more
	start := time.Now()
	if err := k.fill(ctx, 0, manyRows, clients); err != nil {
		return err
	}
	b.report.note("G9: %d rows were enqueued by %d clients in %s.", manyRows, clients, short(time.Since(start)))
	if err := b.weigh(ctx, k); err != nil {
		return err
	}
	if err := b.idleRows(ctx, k); err != nil {
		return err
	}
	return b.recoveries(ctx, k)
}

// weigh measures G9. The waiters are far fewer, and what one of them weighs is
// taken times the number of rows: the kernel shares among them what they have
// in common, and they are enough for that to be next to nothing each.
func (b *bench) weigh(ctx context.Context, k *keeper) error {
	if err := sleep(ctx, 12*time.Second); err != nil { // until it has gone to rest
		return err
	}
	ours, err := memory([]int{k.pid}, "Rss")
	if err != nil {
		return err
	}
	n := b.pick(500, 100)
	flock, err := b.weighWaiters(ctx, n, func(lock string) *exec.Cmd { return exec.CommandContext(ctx, "flock", lock, "true") })
	if err != nil {
		return err
	}
	program, err := buildGo(ctx, b.dir(), "waiter", waiterSource)
	if err != nil {
		return err
	}
	golang, err := b.weighWaiters(ctx, n, func(lock string) *exec.Cmd { return exec.CommandContext(ctx, program, lock) })
	if err != nil {
		return err
	}
	b.report.add(row{
		goal: "G9", what: fmt.Sprintf("RSS of a dispatcher with %d rows, their locks held", manyRows),
		ours: megabytes(ours), target: "≤ 25 MB", verdict: judge(ours <= 25e6),
	})
	b.report.weight("G9", "…", ours, fmt.Sprintf("%d blocked flock(1), PSS of %d scaled", manyRows, n), flock*float64(manyRows)/float64(n), 1.0/40)
	b.report.weight("G9", "…", ours, fmt.Sprintf("%d blocked Go programs, PSS of %d scaled", manyRows, n), golang*float64(manyRows)/float64(n), 1.0/250)
	return nil
}

func (r *report) weight(goal, what string, ours float64, name string, beside, most float64) {
	r.add(row{
		goal: goal, what: what, ours: megabytes(ours), beside: megabytes(beside) + " " + name,
		ratio: fraction(ours / beside), target: "≤ " + fraction(most), verdict: judge(ours/beside <= most),
	})
}

func megabytes(bytes float64) string { return digits(bytes/1e6) + " MB" }

// waiterSource is the least that a waiting program in our language can be.
const waiterSource = `package main

import (
	"os"
	"syscall"
)

func main() {
	fd, err := syscall.Open(os.Args[1], syscall.O_RDONLY, 0)
	if err == nil {
		err = syscall.Flock(fd, syscall.LOCK_EX)
	}
	if err != nil {
		panic(err)
	}
}
`

// weighWaiters is what n processes weigh together that wait for one lock.
func (b *bench) weighWaiters(ctx context.Context, n int, waiter func(lock string) *exec.Cmd) (float64, error) {
	lock := filepath.Join(b.dir(), "lock")
	fd, err := unix.Open(lock, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		return 0, err
	}
	cmds := make([]*exec.Cmd, n)
	for i := range cmds {
		cmds[i] = waiter(lock)
	}
	if err := startAll(cmds); err != nil {
		return 0, err
	}
	defer killAll(cmds)
	if err := sleep(ctx, 3*time.Second); err != nil {
		return 0, err
	}
	return memory(pids(cmds), "Pss")
}

func pids(cmds []*exec.Cmd) []int {
	list := make([]int, len(cmds))
	for i, cmd := range cmds {
		list[i] = cmd.Process.Pid
	}
	return list
}

// memory sums a line of smaps_rollup, in bytes.
func memory(pids []int, what string) (sum float64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(text), "\n"+what+":")
		word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		kib, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return 0, fmt.Errorf("smaps_rollup of %d: %w", pid, err)
		}
		sum += kib * 1024
	}
	return sum, nil
}

// idleRows measures G10.
func (b *bench) idleRows(ctx context.Context, k *keeper) error {
	span := time.Duration(b.pick(30, 10)) * time.Second
	took, err := cpuOf(ctx, []int{k.pid}, span)
	if err != nil {
		return err
	}
	goal := time.Duration(float64(50*time.Millisecond) * span.Seconds() / 30)
	b.report.atMost("G10", fmt.Sprintf("CPU of a dispatcher with %d rows, in %v, heartbeat included", manyRows, span), took, goal, "")
	return nil
}

// recoveries measures G11, from the start of the process to when it listens, and
// counts the rows that are there again.
func (b *bench) recoveries(ctx context.Context, k *keeper) error {
	lost := 0
	got, err := b.race(ctx,
		way{"recovery", 1, func() ([]time.Duration, error) {
			k.kill()
			took, err := k.restart(ctx)
			if err != nil {
				return nil, err
			}
			waiting, _, err := k.rows(ctx)
			lost += manyRows - waiting
			return []time.Duration{took}, err
		}},
		way{"open and flock", 1, func() ([]time.Duration, error) {
			k.kill()
			return b.lockAll(ctx, filepath.Join(k.path, "lanes"))
		}},
	)
	if err != nil {
		return err
	}
	b.report.against("G11", fmt.Sprintf("killed → %d rows and their locks again, from its start to its ears", manyRows), got[0].p50,
		"open + flock of as many files", got[1].p50, 3)
	b.report.none("G12", fmt.Sprintf("%d rows, killed %d times: not there again", manyRows, b.turns), lost, "")
	return nil
}

// restart starts the dispatcher and takes the time until it listens.
func (k *keeper) restart(ctx context.Context) (time.Duration, error) {
	ears, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ears.Close()
	cmd := k.command(ctx, "dispatch", "--ready-fd", "3")
	cmd.ExtraFiles = []*os.File{theirs}
	start := time.Now()
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return 0, err
	}
	said, err := io.ReadAll(ears)
	took := time.Since(start)
	if err == nil && len(said) == 0 {
		err = errors.New("the dispatcher did not come up")
	}
	if err == nil {
		k.pidfd, err = unix.PidfdOpen(cmd.Process.Pid, 0)
	}
	if err != nil {
		killAll([]*exec.Cmd{cmd})
		return 0, err
	}
	k.pid = cmd.Process.Pid
	go cmd.Wait() //nolint:errcheck // it is killed
	return took, nil
}

// lockAll opens and locks every file of a directory, in a process of its own
// whose table of descriptors has never been large.
func (b *bench) lockAll(ctx context.Context, dir string) ([]time.Duration, error) {
	cmd := exec.CommandContext(ctx, b.self, roleLocks)
	cmd.Env = append(environ(nil), locksIn+"="+dir)
	cmd.Stderr = b.say
	text, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return []time.Duration{time.Duration(ns)}, err
}
