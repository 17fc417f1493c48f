//go:build engines

package enginetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// root is the repository: the nearest directory above with a go.mod.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the working directory")
}

// cacheDir is where cells live: ENGINETEST_DIR, for those who cannot write to
// the repository, else its ignored cache. An ordinary user has to get through it.
func cacheDir() (string, error) {
	if dir := os.Getenv("ENGINETEST_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	root, err := root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "enginetest")
	return dir, os.MkdirAll(dir, 0o755)
}

// build gives the handsel under test: HANDSEL_BIN, else one built from this
// tree. It runs before the network namespace, where Go may still need modules.
func build() (path string, remove func(), err error) {
	if path := os.Getenv("HANDSEL_BIN"); path != "" {
		path, err := filepath.Abs(path)
		return path, func() {}, err
	}
	root, err := root()
	if err != nil {
		return "", nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp(cache, "bin-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "handsel")
	compile := exec.Command("go", "build", "-o", path, "./cmd/handsel")
	compile.Dir = root
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("build handsel: %w\n%s", err, out)
	}
	return path, remove, os.Chmod(dir, 0o755) // for the ordinary user's cells
}

// under is the prefix that is being tested.
func (c *cell) under() []string {
	return []string{os.Getenv("HANDSEL_BIN"), "run", "--outcome", c.outcome(), "--"}
}

// outcome is where under leaves what it says of the end.
func (c *cell) outcome() string { return filepath.Join(c.work, "outcome.json") }

// pools are those an agent of the cell counts against (S1).
func (c *cell) pools() []string { return []string{"all", c.engine.pool, "heavy"} }
