package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/handsel/handsel/internal/machine"
	"golang.org/x/sys/unix"
)

// ReadStat looks at pid through sysctl kern.proc.pid. Ticks are microseconds
// since the epoch here: macOS keeps each start as it was first noted.
func ReadStat(pid int) (Stat, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EIO) || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			return Stat{}, ErrGone
		}
		return Stat{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	if int(k.Proc.P_pid) != pid {
		return Stat{}, ErrGone
	}
	start := k.Proc.P_starttime
	session, _ := unix.Getsid(pid)
	return Stat{
		Pid: pid, PPid: int(k.Eproc.Ppid), Pgrp: int(k.Eproc.Pgid), Session: session,
		TTY: int(k.Eproc.Tdev), Tpgid: int(k.Eproc.Tpgid), State: stateLetter(k.Proc.P_stat),
		Exiting: k.Proc.P_flag&flagExiting != 0,
		Ticks:   uint64(start.Sec)*1e6 + uint64(start.Usec), Comm: unix.ByteSliceToString(k.Proc.P_comm[:]),
	}, nil
}

// flagExiting is P_WEXIT of <sys/proc.h>.
const flagExiting = 0x2000

// stateLetter translates p_stat of <sys/proc.h>.
func stateLetter(s int8) byte {
	switch s {
	case 4:
		return 'T'
	case 5:
		return 'Z'
	default:
		return 'S'
	}
}

// Self is this process. It is looked at once.
var Self = sync.OnceValue(lookAtSelf)

func lookAtSelf() ID {
	id, err := Identify(os.Getpid())
	if err != nil {
		return ID{Pid: os.Getpid(), Boot: machine.BootID()}
	}
	return id
}

// StartedEpoch is the start in seconds since the epoch.
func (id ID) StartedEpoch() float64 { return float64(id.Ticks) / 1e6 }

// Env returns the value name had in the environment pid was started with. For
// platform binaries such as /bin/sh macOS tells nobody.
func Env(pid int, name string) (value string, found bool, err error) {
	text, err := environ(pid)
	if err != nil {
		return "", false, err
	}
	value, found = LookEnv(text, name)
	return value, found, nil
}

// executed is not known here: a platform binary shows nobody its environment.
func executed(int) bool { return false }

// environ is the environment pid was started with, NUL-separated.
func environ(pid int) ([]byte, error) {
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return nil, fmt.Errorf("environment of process %d: %w", pid, err)
	}
	if len(raw) < 4 {
		return nil, fmt.Errorf("environment of process %d: empty", pid)
	}
	// argc, the executable's path, padding, argc strings, then the environment.
	argc := int(binary.LittleEndian.Uint32(raw))
	_, rest, _ := bytes.Cut(raw[4:], []byte{0})
	rest = bytes.TrimLeft(rest, "\x00")
	for range argc {
		_, rest, _ = bytes.Cut(rest, []byte{0})
	}
	return rest, nil
}
