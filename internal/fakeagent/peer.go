package fakeagent

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// PeerScript names the file to use as peer.py, for tests that run where the
// source tree cannot be read.
const PeerScript = "PEER_SCRIPT"

// Peer prepares testdata/peer/peer.py, another implementation of the source's
// slot files, on a directory of leases. The words are its verb and what
// follows; its own text lists them. It is killed when the test ends.
func Peer(t testing.TB, leases string, words ...string) *exec.Cmd {
	t.Helper()
	script := os.Getenv(PeerScript)
	if script == "" {
		_, here, _, ok := runtime.Caller(0)
		if !ok || !filepath.IsAbs(here) {
			t.Fatalf("this test binary does not know its source: set %s", PeerScript)
		}
		script = filepath.Join(filepath.Dir(here), "..", "..", "testdata", "peer", "peer.py")
	}
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		if python, err = exec.LookPath("python3"); err != nil {
			t.Fatalf("the peer needs Python 3: %v", err)
		}
	}
	// -B: nothing is written beside the script.
	return exec.CommandContext(t.Context(), python, append([]string{"-B", script, leases}, words...)...)
}
