//go:build unix

package review

import (
	"errors"
	"os"
)

// flush brings a directory's names to the disk.
func flush(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
