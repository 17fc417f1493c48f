//go:build !failpoint

package acceptance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// seams tells whether the executable under test has the seams of C16.
const seams = false

func asHandsel() bool { return false }

// theBuild is HANDSEL_BIN, or handsel built from this tree.
func theBuild() (string, error) {
	if path := os.Getenv("HANDSEL_BIN"); path != "" {
		return filepath.Abs(path)
	}
	out := filepath.Join(built.dir, "handsel")
	return out, compile(out)
}

func compile(out string) error {
	_, here, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(here) {
		return errors.New("this test binary does not know its source: set HANDSEL_BIN")
	}
	c := exec.Command("go", "build", "-o", out, "./cmd/handsel")
	c.Dir = filepath.Join(filepath.Dir(here), "..", "..")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build handsel: %w\n%s", err, text)
	}
	return os.Chmod(out, 0o755)
}
