package machine

import (
	"math"
	"os"

	"golang.org/x/sys/windows"
)

func freeDisk(path string) (int64, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &os.PathError{Op: "GetDiskFreeSpaceEx", Path: path, Err: err}
	}
	return int64(min(free, math.MaxInt64)), nil
}
