//go:build unix

package proc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeOnExecListed marks the descriptors that dir lists.
func closeOnExecListed(dir string, first int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("mark inherited descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
