//go:build unix

package shim

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
)

// TestEveryPathOfHandselIsStarted: short or long, with blanks and quotes in it, the
// shim gives it the name, its own path, and the words of the call unchanged.
func TestEveryPathOfHandselIsStarted(t *testing.T) {
	for _, sub := range []string{"plain", "a blank", `quote ' and " and $HOME`, strings.Repeat("long", 40)} {
		dir := filepath.Join(t.TempDir(), sub)
		d := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		handsel := filepath.Join(dir, "handsel")
		if err := os.Symlink("/usr/bin/printf", handsel); err != nil {
			t.Fatal(err)
		}
		done, err := Install(d, handsel, []string{"claude"})
		if err != nil || done[0].Did != Installed {
			t.Fatalf("%s: %+v, %v", sub, done, err)
		}
		text, err := os.ReadFile(done[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		if got := starts(string(text), "claude"); got != handsel {
			t.Errorf("%q is read as %q", text, got)
		}
		if name, ok := proc.ShimOf(done[0].Path); !ok || name != "claude" {
			t.Errorf("%q is no shim, or of %q", text, name)
		}
		// printf takes its first word for the format, which has nothing to fill in.
		out, err := exec.Command(done[0].Path, "a b", "").Output()
		if err != nil || string(out) != Flag+"claude" {
			t.Errorf("%s: %q, %v", sub, out, err)
		}
		all, err := Look(d, handsel, []string{"claude"})
		if err != nil || len(all) != 1 || all[0].Handsel != handsel || all[0].State == Broken || all[0].State == Stale {
			t.Errorf("%s: %+v, %v", sub, all, err)
		}
		if err := os.Remove(handsel); err != nil {
			t.Fatal(err)
		}
		if all, err := Look(d, "/usr/bin/printf", []string{"claude"}); err != nil || all[0].State != Broken {
			t.Errorf("%s: %+v, %v", sub, all, err)
		}
	}
}

// TestNothingButShimsOfOursIsTouched: a link, a directory, a FIFO and a file under
// the name stay, whichever verb meets them, and nothing else is changed either.
func TestNothingButShimsOfOursIsTouched(t *testing.T) {
	d := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
	if _, err := Install(d, "/usr/bin/printf", []string{"codex"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Shims(), "pi")
	for what, plant := range map[string]func() error{
		"link to a shim": func() error { return os.Symlink("codex", path) },
		"dangling link":  func() error { return os.Symlink("nowhere", path) },
		"directory":      func() error { return os.Mkdir(path, 0o755) },
		"file":           func() error { return os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700) },
		"shim of codex":  func() error { return os.WriteFile(path, []byte(text("/usr/bin/printf", "codex")), 0o700) },
		"unfinished":     func() error { return os.WriteFile(path, []byte("#!/x --shim=pi\n"+proc.ShimMark+"pi"), 0o700) },
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		var foreign *Foreign
		if _, err := Install(d, "/usr/bin/printf", []string{"gemini", "pi"}); !errors.As(err, &foreign) || foreign.Path != path {
			t.Errorf("%s: install says %v", what, err)
		}
		if _, err := Remove(d, []string{"codex", "pi"}); !errors.As(err, &foreign) {
			t.Errorf("%s: remove says %v", what, err)
		}
		if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() || !os.SameFile(after, before) {
			t.Errorf("%s: it is %v now, %v", what, after, err)
		}
		if names, err := installed(d); err != nil || len(names) != 1 || names[0] != "codex" {
			t.Errorf("%s: installed are %q, %v", what, names, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLineIsOneWordForItsShell: whatever the home is called, the line does what it
// says and nothing more.
func TestLineIsOneWordForItsShell(t *testing.T) {
	for _, name := range []string{"home", "a b", "it's", `"$HOME"`, "`x`", `back\slash`} {
		d := home.Dir{Path: filepath.Join("/x", name)}
		out, err := exec.Command("sh", "-c", Line(d, "bash")+`; printf %s "$PATH"`).Output()
		if err != nil || !strings.HasPrefix(string(out), d.Shims()+":") {
			t.Errorf("%s: PATH is %q, %v", name, out, err)
		}
	}
	if got, want := Line(home.Dir{Path: `/x/it's\`}, "fish"), `set -gx PATH '/x/it\'s\\/shims' $PATH`; got != want {
		t.Errorf("fish: %s, want %s", got, want)
	}
}
