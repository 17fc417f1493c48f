package fakeagent

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Alive tells whether the process is still there: same pid, same start, and
// not a zombie.
func (p Process) Alive() bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/stat")
	if err != nil {
		return false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return false
	}
	return fields[19] == strconv.FormatUint(p.Ticks, 10)
}
