//go:build engines

package enginetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// process is a process as we see it from outside: a number and the tick of
// the boot it started at. It is read here from /proc and not through
// handsel's own rooms, so that a fault there cannot hide itself.
type process struct {
	pid   int
	ticks uint64
}

// stat reads one process; ok is false when there is none or it is a zombie,
// which runs nothing and holds nothing.
func stat(pid int) (process, bool) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name in parentheses may hold anything; the last one closes it.
	fields := strings.Fields(string(body[bytes.LastIndexByte(body, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return process{}, false
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	return process{pid, ticks}, err == nil
}

// alive reports whether this very process still runs.
func (p process) alive() bool {
	now, ok := stat(p.pid)
	return ok && now == p
}

// end kills this very process and nothing that got its number later.
func (p process) end() {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if p.alive() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // gone meanwhile is as good
	}
}

// all lists the processes we can see.
func all(t *testing.T) []process {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []process
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if one, ok := stat(pid); ok {
			found = append(found, one)
		}
	}
	return found
}

// withEnv lists the processes that were started with this NAME=VALUE.
func withEnv(t *testing.T, variable string) []process {
	t.Helper()
	var found []process
	for _, one := range all(t) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", one.pid))
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
			found = append(found, one)
		}
	}
	return found
}

func (p process) String() string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return fmt.Sprintf("%d (%s)", p.pid, strings.ReplaceAll(strings.Trim(string(line), "\x00"), "\x00", " "))
}
