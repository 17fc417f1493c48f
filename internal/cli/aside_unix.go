//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"
)

// apart has a process begin in a session of its own, which no key of our terminal
// reaches.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

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
