//go:build unix

package queue

import (
	"os"

	"github.com/handsel/handsel/internal/home"
)

// syncDir makes what was created or renamed in a directory survive a power loss.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err == nil {
		defer dir.Close()
		err = dir.Sync()
	}
	if err != nil {
		return &home.Unusable{Path: path, Err: bare(err)}
	}
	return nil
}
