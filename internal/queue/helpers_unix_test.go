//go:build unix

package queue

import (
	"os"
	"testing"
)

// onlyOurs fails when others may read the file.
func onlyOurs(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v", path, info.Mode())
	}
}
