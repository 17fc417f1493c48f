package machine

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads CLOCK_MONOTONIC, which on macOS counts from boot and goes
// on during sleep.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// PidNS is 0: macOS has one pid space.
func PidNS() uint64 { return 0 }

func readBootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(id))
}

func kind(path string) (FS, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FS{}, err
	}
	name := unix.ByteSliceToString(st.Fstypename[:])
	local := st.Flags&unix.MNT_LOCAL != 0
	return FS{Name: name, Network: networkNames[name] || !local, Known: true}, nil
}
