package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLookingPassesShimsOver: what is looked for is never the way back to us,
// whatever the shim is called and wherever it lies (W6).
func TestLookingPassesShimsOver(t *testing.T) {
	dir := t.TempDir()
	put := func(path, text string) string {
		t.Helper()
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return full
	}
	shim := func(name string) string { return "#!/x/handsel --shim=" + name + "\n" + ShimMark + name + "\n" }
	put("shims/claude", shim("claude"))
	put("copy/claude", shim("claude"))
	put("copy/other", shim("claude"))
	put("copy/codex", shim("pi"))
	put("copy/pi", shim("codex"))
	put("copy/lonely", shim("lonely"))
	real := put("bin/claude", "#!/bin/sh\n")
	mention := put("bin/mention", "#!/bin/sh\necho '\n"+ShimMark+"claude'\n")
	put("bin/other", "#!/bin/sh\n")
	if err := unix.Mkfifo(filepath.Join(dir, "bin", "fifo"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../copy/claude", filepath.Join(dir, "bin", "link")); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + strings.Join([]string{dir + "/shims", dir + "/copy", dir + "/bin"}, ":")}
	for name, want := range map[string]string{
		"claude": real, "other": real, "link": real, dir + "/shims/claude": real, dir + "/copy/other": real, "mention": mention,
		dir + "/bin/fifo": dir + "/bin/fifo", // which nobody waits at
	} {
		if got, err := LookPath(name, env, ""); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"codex", "pi", "lonely", dir + "/copy/codex"} {
		if got, err := LookPath(name, env, ""); kindOf(err) != NotFound {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
}
