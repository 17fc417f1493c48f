package proc

import (
	"errors"
	"os"
)

// errNoTable: Windows has no slots, so nothing there is judged by a record.
var errNoTable = errors.New("no process table on this platform")

// ReadStat cannot look on Windows.
func ReadStat(int) (Stat, error) { return Stat{}, errNoTable }

// Self is this process, without a start.
func Self() ID { return ID{Pid: os.Getpid()} }

// StartedEpoch is unknown on Windows.
func (id ID) StartedEpoch() float64 { return 0 }

// Env cannot be read on Windows.
func Env(int, string) (string, bool, error) { return "", false, errNoTable }
