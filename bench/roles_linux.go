package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
)

// A role is this program in place of another: one whose system calls are
// traced, or that is killed.
const rolePrefix = "-role="

const (
	roleTraced  = rolePrefix + "traced"  // admits without a cap, between two marks
	roleHolder  = rolePrefix + "holder"  // holds a slot until it is killed
	roleLocks   = rolePrefix + "locks"   // locks all files of a directory
	roleChatter = rolePrefix + "chatter" // prints small events
)

// mark is a path that is nowhere. Asking for it shows in a trace.
const mark = "/handsel-bench-mark"

func play(role string) int {
	err := fmt.Errorf("no role is called %q", role)
	switch role {
	case roleTraced:
		err = admitTraced()
	case roleHolder:
		err = holdUntilKilled()
	case roleLocks:
		err = lockFiles(os.Getenv(locksIn))
	case roleChatter:
		err = chatter()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// admitTraced admits twice, so that what is made once is not in the trace.
func admitTraced() error {
	h, err := handsel.Open()
	if err != nil {
		return err
	}
	if err := admit(h); err != nil {
		return err
	}
	_, _ = os.Lstat(mark)
	err = admit(h)
	_, _ = os.Lstat(mark)
	return err
}

// admit takes the right to run a heavy agent and gives it back.
func admit(h *handsel.Home) error {
	l, err := h.Acquire(context.Background(), handsel.Start{})
	if err != nil {
		return err
	}
	return l.Release()
}

// holdUntilKilled says when it holds a slot. It gives up when nobody listens
// any more.
func holdUntilKilled() error {
	h, err := handsel.Open()
	if err != nil {
		return err
	}
	l, err := h.Acquire(context.Background(), handsel.Start{})
	if err != nil {
		return err
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return l.Release()
}

// locksIn names the directory of roleLocks in its environment.
const locksIn = "BENCH_LOCKS"

// lockFiles says in nanoseconds what it takes to open and lock all files of a
// directory, the table of descriptors grown first: the least that a recovery
// can do.
func lockFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	start := time.Now()
	far, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, len(entries)+64)
	if err != nil {
		return err
	}
	unix.Close(far)
	at, err := unix.Open(dir, dirFlags, 0)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := unix.Openat(at, e.Name(), writeFlags, 0o600)
		if err == nil {
			err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	fmt.Println(int64(time.Since(start)))
	return nil
}
