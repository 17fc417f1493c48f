//go:build engines

package enginetest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside marks, in our own environment, how far the way into the namespace
// has been gone. Engines do not get it: their environment is built from nothing.
const inside = "ENGINETEST_NETNS"

// TestMain runs the tests in a network namespace of their own with loopback
// only, so that no engine can reach anything but the stub. It needs no tool
// and no privilege: an ordinary user gets a user namespace in which he is
// himself.
func TestMain(m *testing.M) {
	var err error
	code := 1
	switch os.Getenv(inside) {
	case "":
		code, err = enter()
	case "up":
		err = raiseLoopback()
	default:
		if err = onlyLoopback(); err == nil {
			code = max(m.Run(), table.report())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "enginetest:", err)
	}
	os.Exit(code)
}

// enter starts this test binary again in a new network namespace and waits.
func enter() (int, error) {
	runtime.LockOSThread() // Pdeathsig is about this thread
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	built, remove, err := build()
	if err != nil {
		return 1, err
	}
	defer remove()
	again.Env = append(os.Environ(), inside+"=up", "HANDSEL_BIN="+built)
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		again.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		again.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	err = again.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("network namespace: %w", err)
	}
	return 0, nil
}

// raiseLoopback brings lo up, gives the one capability that took back, and
// goes on as the same binary.
func raiseLoopback() error {
	runtime.LockOSThread() // ambient capabilities belong to a thread
	if err := linkUp("lo"); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := os.Setenv(inside, "in"); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

func linkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// onlyLoopback refuses to test where a packet could leave.
func onlyLoopback() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	var names []string
	for _, one := range all {
		if one.Flags&net.FlagUp != 0 {
			names = append(names, one.Name)
		}
	}
	if len(names) != 1 || names[0] != "lo" {
		return fmt.Errorf("interfaces up: %s; want lo alone", strings.Join(names, " "))
	}
	return nil
}
