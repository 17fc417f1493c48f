//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// memberWord begins the command line of a process of a tree. It shows in a
// process list who is who.
const memberWord = "member"

// members are the processes that tree leaves behind, each with the way it is
// started. Each notes itself in the file as soon as it is what it claims.
var members = []struct {
	name  string
	start func(self, name, file string) error
}{
	{"shell", fromShell},             // a background child of a shell that has ended, in our group
	{"daemon", inSession},            // in a session of its own
	{"scrubbed", orphan},             // double fork, own session, no environment
	{"stubborn", inGroup},            // ignores HUP, INT, QUIT and TERM, in our group
	{"stubborn-daemon", inSession},   // the same in a session of its own
	{"stdout", holdingOutput},        // own session, keeps our stdout and stderr open
	{"stopped", inSession},           // own session, stopped by SIGSTOP
	{"nested-shell", shellInSession}, // what claude's Bash tool leaves: a shell's child in the shell's session
}

// tree starts members and waits until each has noted itself.
func tree(args []string) error {
	if len(args) == 0 {
		return errors.New("tree FILE [NAME…]")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	count := lines(args[0])
	for _, m := range members {
		if len(args) > 1 && !slices.Contains(args[1:], m.name) {
			continue
		}
		if err := m.start(self, m.name, args[0]); err != nil {
			return fmt.Errorf("start %s: %w", m.name, err)
		}
		count++
	}
	return reach(args[0], count)
}

func lines(path string) int {
	text, _ := os.ReadFile(path)
	return strings.Count(string(text), "\n")
}

// member is one process of a tree: member NAME FILE [PARENT]. With "fork" in
// front it is the middle of a double fork.
func member(args []string) error {
	if len(args) > 3 && args[0] == "fork" {
		c := exec.Command(args[1], memberWord, args[2], args[3], strconv.Itoa(os.Getpid()))
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return c.Start()
	}
	if len(args) < 2 {
		return errors.New("member NAME FILE")
	}
	name, file := args[0], args[1]
	if strings.HasPrefix(name, "stubborn") {
		signal.Ignore(polite...)
	}
	if len(args) > 2 {
		adopted(args[2])
	}
	if err := note(file, name); err != nil {
		return err
	}
	if name == "stopped" {
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			return err
		}
	}
	time.Sleep(life())
	return nil
}

// adopted waits until the parent that forked us has ended, and we have another.
func adopted(parent string) {
	for end := time.Now().Add(life()); strconv.Itoa(os.Getppid()) == parent && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func inGroup(self, name, file string) error {
	return exec.Command(self, memberWord, name, file).Start()
}

func inSession(self, name, file string) error {
	c := exec.Command(self, memberWord, name, file)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c.Start()
}

func holdingOutput(self, name, file string) error {
	c := exec.Command(self, memberWord, name, file)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Start()
}

const background = `"$0" "$@" </dev/null >/dev/null 2>&1 &`

func fromShell(self, name, file string) error {
	return exec.Command("/bin/sh", "-c", background, self, memberWord, name, file).Run()
}

func shellInSession(self, name, file string) error {
	c := exec.Command("/bin/sh", "-c", background, self, memberWord, name, file)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c.Run()
}

// orphan forks twice and clears the environment on the way.
func orphan(self, name, file string) error {
	c := exec.Command(self, memberWord, "fork", self, name, file)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Env = []string{}
	return c.Run()
}

// daemon leaves one process behind that has forked twice, with its
// environment kept, and waits until it has noted itself.
func daemon(args []string) error {
	if len(args) == 0 {
		return errors.New("daemon FILE")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	count := lines(args[0])
	c := exec.Command(self, memberWord, "fork", self, "daemon", args[0])
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Run(); err != nil {
		return err
	}
	return reach(args[0], count+1)
}

// orphanRun starts CMD from a process that has no environment and no parent
// of ours left: orphan-run OUT CMD…. CMD takes that process's place, and what
// it says goes to OUT. The second stage of the fork comes in here again.
func orphanRun(args []string) error { return detached("orphan-run", args) }

// orphanStatus is the same with CMD as a child, whose end is noted as a last
// line "status N" of OUT.
func orphanStatus(args []string) error { return detached("orphan-status", args) }

func detached(verb string, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%s OUT CMD…", verb)
	}
	switch args[0] {
	case "fork": // between the two forks
		c, err := scrubbed(append([]string{verb, "last", strconv.Itoa(os.Getpid())}, args[1:]...))
		if err != nil {
			return err
		}
		return c.Start()
	case "last":
		adopted(args[1])
		return run(verb == "orphan-status", args[2], args[3:])
	default:
		c, err := scrubbed(append([]string{verb, "fork"}, args...))
		if err != nil {
			return err
		}
		return c.Run()
	}
}

// scrubbed is ourselves again, in a new session and with no environment.
func scrubbed(args []string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Env = []string{}
	return c, nil
}

func run(asChild bool, out string, argv []string) error {
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return errors.Join(line(out, "status 127"), err)
	}
	if asChild {
		c := exec.Command(path, argv[1:]...)
		c.Args[0], c.Stdout, c.Stderr, c.Env = argv[0], f, f, []string{}
		_ = c.Run() // its status is what we note
		return line(out, "status "+strconv.Itoa(c.ProcessState.ExitCode()))
	}
	for _, fd := range []int{1, 2} {
		if err := dup(int(f.Fd()), fd); err != nil {
			return err
		}
	}
	return syscall.Exec(path, argv, []string{})
}
