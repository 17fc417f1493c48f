package tui

import (
	"time"

	"golang.org/x/sys/windows"
)

// cpuTime is how much of a processor this process has used.
func cpuTime() time.Duration {
	var made, ended, kernel, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &made, &ended, &kernel, &user) != nil {
		return 0
	}
	return time.Duration(hundreds(kernel)+hundreds(user)) * 100
}

func hundreds(t windows.Filetime) int64 { return int64(t.HighDateTime)<<32 + int64(t.LowDateTime) }
