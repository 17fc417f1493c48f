package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/handsel/handsel/internal/machine"
	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for everything it shows
// to user space.
const ticksPerSecond = 100

// ReadStat looks at pid through /proc/PID/stat. It returns ErrGone when the
// kernel has no such process, and another error when the table cannot be read.
func ReadStat(pid int) (Stat, error) {
	var buf [1024]byte
	text, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return Stat{}, statError(pid, err)
	}
	return ParseStat(text)
}

// statError tells "gone" from "cannot look": a /proc that is not mounted, or
// hides other users' processes, has no entry for a process that lives.
func statError(pid int, err error) error {
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if errors.Is(err, unix.ENOENT) && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return ErrGone
	}
	return fmt.Errorf("look at process %d: %w", pid, err)
}

// ParseStat reads the text of a /proc/PID/stat file. The name may hold any
// byte, so fields are counted from its last closing parenthesis.
func ParseStat(text []byte) (Stat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("process status %q: no name", clip(text))
	}
	f := strings.Fields(string(text[end+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return Stat{}, fmt.Errorf("process status %q: too few fields", clip(text))
	}
	st := Stat{State: f[0][0], Comm: string(text[open+1 : end])}
	var err error
	for _, n := range []struct {
		into *int
		text string
	}{
		{&st.Pid, strings.TrimSpace(string(text[:open]))},
		{&st.PPid, f[1]}, {&st.Pgrp, f[2]}, {&st.Session, f[3]}, {&st.TTY, f[4]}, {&st.Tpgid, f[5]}, {&st.Threads, f[17]},
	} {
		if *n.into, err = strconv.Atoi(n.text); err != nil {
			return Stat{}, fmt.Errorf("process status %q: %w", clip(text), err)
		}
	}
	flags, err := strconv.ParseUint(f[6], 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("process status %q: %w", clip(text), err)
	}
	st.Exiting = flags&flagExiting != 0
	if st.Ticks, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return Stat{}, fmt.Errorf("process status %q: %w", clip(text), err)
	}
	return st, nil
}

// flagExiting is PF_EXITING of the kernel's <linux/sched.h>, in field 9 of
// /proc/PID/stat: set before the first descriptor is closed.
const flagExiting = 0x4

func clip(text []byte) []byte { return text[:min(len(text), 80)] }

// Self is this process. It is looked at once.
var Self = sync.OnceValue(lookAtSelf)

func lookAtSelf() ID {
	id, err := Identify(os.Getpid())
	if err != nil {
		// Without a process table there is no start to name; the pid still helps a person.
		return ID{Pid: os.Getpid(), Boot: machine.BootID(), NS: machine.PidNS()}
	}
	return id
}

// StartedEpoch is the start in seconds since the epoch the way psutil computes
// it: the boot's wall time in whole seconds (btime in /proc/stat, which the
// kernel takes from the same two clocks) plus the ticks. It moves with the wall
// clock and is written only for readers that know nothing better (S6).
func (id ID) StartedEpoch() float64 {
	if id.Ticks == 0 {
		return 0
	}
	var wall, boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME, &wall) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0
	}
	btime := (wall.Nano() - boot.Nano()) / 1e9
	return float64(btime) + float64(id.Ticks)/ticksPerSecond
}

// Env returns the value name had in the environment pid was started with. The
// error tells that the environment cannot be read (another user's process, or
// one that is gone).
func Env(pid int, name string) (value string, found bool, err error) {
	text, err := environ(pid)
	if err != nil {
		return "", false, err
	}
	value, found = LookEnv(text, name)
	return value, found, nil
}

// environ is the environment pid was started with, NUL-separated.
func environ(pid int) ([]byte, error) {
	text, err := readSmall("/proc/"+strconv.Itoa(pid)+"/environ", make([]byte, 8192))
	if err != nil {
		return nil, fmt.Errorf("environment of process %d: %w", pid, err)
	}
	return text, nil
}

// executed tells whether pid has executed its program, so that the environment it
// shows is its own: the kernel sets arguments and environment in one step, and a
// program without arguments is too rare to be told from one on its way.
func executed(pid int) bool {
	text, err := readSmall("/proc/"+strconv.Itoa(pid)+"/cmdline", make([]byte, 256))
	return err == nil && len(text) > 0
}

// readSmall reads a file of /proc with as few system calls as it takes.
func readSmall(path string, buf []byte) ([]byte, error) {
	fd, err := ignoreEINTR(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for {
		m, err := ignoreEINTR(func() (int, error) { return unix.Read(fd, buf[n:]) })
		if err != nil {
			return nil, err
		}
		if m == 0 {
			return buf[:n], nil
		}
		if n += m; n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}
