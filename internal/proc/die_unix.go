//go:build unix

package proc

import (
	"os/signal"
	"runtime"
	"syscall"
)

// DieBy ends this process by sig, so that whoever waits for it sees a death by
// that signal (S22). No core is written: the one worth reading is the
// child's. It returns only if the signal's default action does not end a
// process; the caller then exits with 128 + sig.
func DieBy(sig syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	noCore()
	signal.Reset(sig)
	defaultAction(sig)
	_ = raise(sig)
}

// EndSignals lists the signals that end a run: SIGHUP, SIGINT, SIGQUIT and
// SIGTERM, without those that were ignored when this process started, as far as
// the Go runtime respects that: SIGHUP (nohup) and SIGINT ("&" in a script).
// Those stay ignored, in the child too, as with env(1).
func EndSignals() []syscall.Signal {
	var list []syscall.Signal
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !signal.Ignored(sig) {
			list = append(list, sig)
		}
	}
	return list
}
