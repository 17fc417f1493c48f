//go:build failpoint && unix

package failpoint

import (
	"syscall"
)

func signalSelf(verb string) {
	switch verb {
	case "kill":
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nothing after this step may run
	case "stop":
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}
