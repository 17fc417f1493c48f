//go:build failpoint

package acceptance

import (
	"os"
	"path/filepath"

	"github.com/handsel/handsel/internal/cli"
)

// seams tells whether the executable under test has the seams of C16.
const seams = true

// asHandsel makes this test binary handsel when it is called so: an executable
// with the seams that needs no compiler.
func asHandsel() bool {
	if filepath.Base(os.Args[0]) != "handsel" {
		return false
	}
	os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	return true
}

// theBuild is HANDSEL_BIN_FAILPOINT, or a copy of this test binary, which other
// users may not be able to reach where it is.
func theBuild() (string, error) {
	if path := os.Getenv("HANDSEL_BIN_FAILPOINT"); path != "" {
		return filepath.Abs(path)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	out := filepath.Join(built.dir, "handsel")
	return out, os.WriteFile(out, self, 0o755)
}
