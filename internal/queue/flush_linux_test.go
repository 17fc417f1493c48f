package queue

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func flush(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// processor is the time this process had a processor for.
func processor() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
