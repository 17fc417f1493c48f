package run

import (
	"errors"
	"os"
	"syscall"
)

const (
	suspendSignal = syscall.Signal(0)
	contSignal    = syscall.Signal(0)
	brokenPipe    = syscall.SIGPIPE
)

func notifyContinue(chan os.Signal) {}

func passedOn(syscall.Signal) bool { return false }

func wantsTerminal(syscall.Signal) bool { return false }

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.ERROR_BROKEN_PIPE) }

var errStopped = errors.New("stopped")

// stopper cannot interrupt a write on Windows.
type stopper struct{}

func newStopper() (*stopper, error) { return &stopper{}, nil }

func (*stopper) set()   {}
func (*stopper) close() {}

func (*stopper) write(f *os.File, data []byte, _ bool) error {
	_, err := f.Write(data)
	return err
}

func neverWaits(*os.File) bool { return false }

func widen(*os.File) {}

// readReady cannot look without waiting on Windows.
func readReady(*os.File, []byte) int { return 0 }

// tty is never made on Windows.
type tty struct {
	master, slave, keyboard *os.File
	errToo                  bool
}

func newTTY(Spec) (*tty, error) { return nil, nil }

func (*tty) start(*pipes) {}
func (*tty) stop()        {}
func (*tty) close()       {}
