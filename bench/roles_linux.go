package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/handsel/handsel"
)

// A role is this program in place of another: one whose system calls are
// traced, or that is killed.
const rolePrefix = "-role="

const (
	roleTraced = rolePrefix + "traced" // admits without a cap, between two marks
	roleHolder = rolePrefix + "holder" // holds a slot until it is killed
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
