package machine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Source returns the text of a file in which the kernel tells how the machine
// is, or the seam's stand-in of that name. A name with a slash is of a tree of
// such files: once the seam has anything of a tree, it has all of it.
func Source(name, path string) ([]byte, error) {
	if text, ok, err := seamSource(name); ok {
		return text, err
	}
	return os.ReadFile(path)
}

// FreeDisk is how many bytes we may still write to the file system that holds
// path. The error is the kernel's.
func FreeDisk(path string) (int64, error) {
	text, ok, err := seamSource("disk_free")
	switch {
	case !ok:
		return freeDisk(path)
	case err != nil:
		return 0, err
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("disk_free of the seam: %w", err)
	}
	return n, nil
}
