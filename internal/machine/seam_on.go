//go:build failpoint

package machine

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// seam returns what HANDSEL_TEST_SYS/name says. It is read at every call, so
// that a test can change the world while a process runs.
func seam(name string) (string, bool) {
	dir := os.Getenv("HANDSEL_TEST_SYS")
	if dir == "" {
		return "", false
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", false
	}
	return trimmed(b), true
}

// seamSource stands in for a file of the kernel's. NAME.gone says that there is
// none, and so does a tree (the part of NAME before its first slash) that is
// there without it.
func seamSource(name string) (text []byte, ok bool, err error) {
	dir := os.Getenv("HANDSEL_TEST_SYS")
	if dir == "" {
		return nil, false, nil
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path + ".gone"); err == nil {
		return nil, true, &os.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if b, err := os.ReadFile(path); err == nil {
		return b, true, nil
	}
	if tree, _, below := strings.Cut(name, "/"); below {
		if _, err := os.Stat(filepath.Join(dir, tree)); err == nil {
			return nil, true, &os.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
	}
	return nil, false, nil
}
