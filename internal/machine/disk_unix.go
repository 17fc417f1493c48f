//go:build unix

package machine

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func freeDisk(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	size := uint64(st.Bsize)
	if size != 0 && st.Bavail > math.MaxInt64/size {
		return math.MaxInt64, nil
	}
	return int64(st.Bavail * size), nil
}
