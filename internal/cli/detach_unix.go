//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
)

// startAside starts this executable in a session of its own, as no part of any
// run, with the null device for stdin and stdout and line as descriptor 3.
func startAside(args []string, stderr, line *os.File) (*os.Process, error) {
	env, _ := asideEnv()
	return startBeside(env, args, stderr, line)
}

// startBeside starts this executable in a session of its own, with the null device
// for stdin and stdout and more from descriptor 3 up.
func startBeside(env, args []string, stderr *os.File, more ...*os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.StartProcess(ownPath(), args, &os.ProcAttr{
		Env: env, Files: append([]*os.File{null, null, stderr}, more...), Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// lineOf is the pipe that this process was started with.
func lineOf(fd int) (*os.File, error) {
	var st unix.Stat_t
	if fd < 3 || !handsel.InheritedFD(fd) || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, errors.New("nobody waits there for what comes of --detach")
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "line"), nil
}

// silence lets go of whoever reads our stderr.
func silence(stderr *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	return redirect(int(stderr.Fd()), int(null.Fd()))
}
