//go:build unix

package confine

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openPlain opens path for reading, without following a link and without waiting
// for a writer; nil without an error where there is a link, or nothing.
func openPlain(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}
