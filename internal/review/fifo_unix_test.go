//go:build unix

package review

import (
	"path/filepath"
	"syscall"
	"testing"
)

func TestManifestWaitsForNoFIFO(t *testing.T) {
	dir := t.TempDir()
	before := of(t, dir).Value
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	if of(t, dir).Value == before {
		t.Error("it is not seen")
	}
}
