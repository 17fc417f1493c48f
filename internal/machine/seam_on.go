//go:build failpoint

package machine

import (
	"os"
	"path/filepath"
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
