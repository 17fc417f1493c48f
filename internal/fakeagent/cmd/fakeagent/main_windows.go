package main

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

// errUnix refuses what has no meaning on Windows.
var errUnix = errors.New("not on Windows")

const memberWord = "member"

var began = time.Now()

func monotonic() int64      { return int64(time.Since(began)) }
func startTicks(int) uint64 { return 0 }

func kill([]string) error         { return errUnix }
func ids([]string) error          { return errUnix }
func descriptors([]string) error  { return errUnix }
func terminal([]string) error     { return errUnix }
func signals([]string) error      { return errUnix }
func stubborn([]string) error     { return errUnix }
func tree([]string) error         { return errUnix }
func daemon([]string) error       { return errUnix }
func member([]string) error       { return errUnix }
func orphanRun([]string) error    { return errUnix }
func orphanStatus([]string) error { return errUnix }

// replace runs another program and ends with its status.
func replace(args []string) error {
	if len(args) == 0 {
		return errors.New("become CMD…")
	}
	c := exec.Command(args[0], args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	if c.ProcessState != nil {
		return status(c.ProcessState.ExitCode())
	}
	return err
}
