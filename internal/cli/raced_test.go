//go:build race

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// atOnce is how many scripts run at a time: what is race-built waits half of its time
// for what it started.
const atOnce = "4"

// chooser is what the scripts start as `handsel` under the race detector. A
// program that looks for races takes ten times as long to start, and finds
// next to nothing in a verb that asks or decides, prints and ends: one goroutine
// does nearly all of that, and what it calls has tests of its own that are
// race-built. The scripts start those most of all, so they get the same code built
// plainly. What lives long or does several things at once is race-built,
// and with it all that it starts: dispatchers, drivers, runs. So is a verb that
// is not in this list. Which one was started cannot be told from within: the
// shell becomes it.
const chooser = `#!/bin/sh
case ${1-} in
runs | show | why | status | queue | journal | story | doctor | config | version | completion | man | help | --help | \
	hold | resume | drain | quota | prio | retry | accept | reject | release | reconcile | hook | trust | gc)
	exec '%s' "$@" ;;
esac
exec '%s' "$@"
`

// theHandsel makes the `handsel` of scripts.
func theHandsel(t *testing.T) string {
	t.Helper()
	raced, err := exec.LookPath("handsel") // testscript's copy of this test binary
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain", "handsel")
	build := exec.Command("go", "build", "-o", plain, "../../cmd/handsel")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build handsel: %v\n%s", err, out)
	}
	path := filepath.Join(dir, "handsel")
	if err := os.WriteFile(path, fmt.Appendf(nil, chooser, plain, raced), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
