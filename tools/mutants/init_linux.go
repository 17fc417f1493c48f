package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// initWord makes this program the first process of a pid namespace.
const initWord = "mutants-init"

// initTrouble is its exit status when it could not run the tests at all; no
// test binary ends with it.
const initTrouble = 121

// apart is how a process is started that must not reach any but its own: the
// namespaces, where there is a way to have them, and a group of its own.
func apart(bare bool) *syscall.SysProcAttr {
	if bare {
		return &syscall.SysProcAttr{Setpgid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
}

// maxData and maxFile bound what a fault can cost: a loop that never ends may
// allocate or write as long as it runs.
const (
	maxData = 3 << 30
	maxFile = 1 << 30
)

// initMain runs "ROOT COMMAND…" and ends as it ended; whatever it left behind
// in the namespace ends with us.
func initMain(args []string) int {
	if os.Getpid() == 1 {
		if err := separate(args[0]); err != nil {
			fmt.Println("mutants:", err)
			return initTrouble
		}
	}
	pid, err := syscall.ForkExec(args[1], args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		fmt.Println("mutants:", err)
		return initTrouble
	}
	for {
		var ended syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ended, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Println("mutants:", err)
			return initTrouble
		case got != pid:
		case ended.Signaled():
			fmt.Println("the tests were ended by", ended.Signal())
			return 128 + int(ended.Signal())
		default:
			return ended.ExitStatus()
		}
	}
}

// separate gives the namespace its own /proc, makes the copy of the tree
// read-only in it, and sets the bounds.
func separate(root string) error {
	const private = syscall.MS_REC | syscall.MS_PRIVATE
	if err := syscall.Mount("", "/", "", private, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := syscall.Mount(root, root, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the copy: %w", err)
	}
	if err := syscall.Mount("", root, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make the copy read-only: %w", err)
	}
	// The working directory is still that of the mount below.
	here, err := os.Getwd()
	if err == nil {
		err = os.Chdir(here)
	}
	if err != nil {
		return err
	}
	for which, most := range map[int]uint64{syscall.RLIMIT_DATA: maxData, syscall.RLIMIT_FSIZE: maxFile} {
		if err := syscall.Setrlimit(which, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit: %w", err)
		}
	}
	return nil
}
