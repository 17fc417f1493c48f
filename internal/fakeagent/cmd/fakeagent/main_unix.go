//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kill ends us by a signal, as a program would that never heard of it. The
// runtime catches some signals for itself, so a shell does it in our place.
func kill(args []string) error {
	name := strings.TrimPrefix(strings.ToUpper(word(args, 0, "TERM")), "SIG")
	return syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -" + name + " $$; sleep 60"}, os.Environ())
}

// ids prints pid, parent, group and session.
func ids([]string) error {
	session, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("pid %d ppid %d pgid %d sid %d\n", os.Getpid(), os.Getppid(), unix.Getpgrp(), session)
	return err
}

// descriptors lists what was inherited: a descriptor that survived exec cannot
// be close-on-exec, and those the runtime opened for itself are. A 0, 1 or 2
// that was closed shows as the null device, which the runtime puts there.
func descriptors([]string) error {
	var text strings.Builder
	for fd := range 1024 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		fmt.Fprintln(&text, fd, target(fd))
	}
	_, err := os.Stdout.WriteString(text.String())
	return err
}

// terminal tells about the controlling terminal.
func terminal([]string) error {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		_, err = fmt.Println("no tty:", errors.Unwrap(err))
		return err
	}
	defer tty.Close()
	front, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return err
	}
	size, err := unix.IoctlGetWinsize(int(tty.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return err
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("tty pgid %d foreground %t sid %d size %dx%d\n", unix.Getpgrp(), front == unix.Getpgrp(), session, size.Row, size.Col)
	return err
}

// signals notes every signal in FILE, and exits after N of them.
func signals(args []string) error {
	if len(args) == 0 {
		return errors.New("signals FILE [N]")
	}
	most, err := strconv.Atoi(word(args, 1, "0"))
	if err != nil {
		return err
	}
	got := make(chan os.Signal, 256)
	signal.Notify(got)
	if err := line(args[0], fmt.Sprintf("ready %d %d", os.Getpid(), monotonic())); err != nil {
		return err
	}
	end := time.After(life())
	for n := 0; most == 0 || n < most; {
		select {
		case s := <-got:
			number := s.(syscall.Signal)
			if number == syscall.SIGURG { // the runtime sends it to itself
				continue
			}
			n++
			if err := line(args[0], fmt.Sprintf("%s %d", unix.SignalName(number), monotonic())); err != nil {
				return err
			}
		case <-end:
			return errors.New("no more signals came")
		}
	}
	return nil
}

// polite are the signals that ask for an end.
var polite = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// stubborn lives on through them.
func stubborn(args []string) error {
	signal.Ignore(polite...)
	if len(args) > 0 {
		if err := note(args[0], "stubborn"); err != nil {
			return err
		}
	}
	time.Sleep(life())
	return nil
}

// replace becomes another program.
func replace(args []string) error {
	if len(args) == 0 {
		return errors.New("become CMD…")
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, args, os.Environ())
}
