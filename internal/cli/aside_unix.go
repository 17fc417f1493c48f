//go:build unix

package cli

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
)

// asideEnv is our environment without the mark of the run we may be part of.
func asideEnv() (env []string, marked bool) {
	env = os.Environ()
	rest := slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "HANDSEL_RUN=") })
	return rest, len(rest) != len(env)
}

// aside makes this process nobody's: in a session of its own, and no part of a
// run, by whose end it would be found and ended (S21a). What the kernel shows of
// an environment is what a process was started with, so it starts itself again.
func aside() error {
	if env, marked := asideEnv(); marked {
		return syscall.Exec(ownPath(), os.Args, env)
	}
	_, err := syscall.Setsid()
	if errors.Is(err, syscall.EPERM) {
		return nil // it leads a group already, as the dispatcher's drivers do
	}
	return err
}
