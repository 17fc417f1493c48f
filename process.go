package handsel

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/proc"
)

// RunSignals are the signals that Options.Signals is for. One that this process
// was told to ignore, as under nohup(1), is not among them.
func RunSignals() []os.Signal {
	var all []os.Signal
	for _, sig := range append(proc.EndSignals(), passedOn...) {
		all = append(all, sig)
	}
	return all
}

// CloseInherited marks every descriptor of this process from 3 up
// close-on-exec, so that what its caller left open does not reach an agent
// (S20, C071). Programs whose own children rely on such descriptors should not
// call it.
func CloseInherited() error { return proc.CloseOnExecFrom(3) }

// InheritedFD tells whether fd came to this process from its parent. It must be
// asked before CloseInherited; only such a descriptor may be passed on, since
// any other is one of ours, and may hold a slot's lock (S9).
func InheritedFD(fd int) bool { return proc.Inherited(fd) }

// DieBy ends this process by the default action of sig, so that its parent sees
// what it would have seen without us (S22).
func DieBy(sig syscall.Signal) { proc.DieBy(sig) }

// ParseDuration reads a duration as flags and the configuration have it: Go's
// (90s, 10m) or a number of seconds; finite and not negative.
func ParseDuration(text string) (time.Duration, error) {
	d, err := config.ParseDuration("", text)
	var bad *config.Bad
	if errors.As(err, &bad) && bad.Why != "" {
		return 0, errors.New(bad.Why)
	}
	return d, err
}
