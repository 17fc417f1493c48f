package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRenameNewReplacesNothing(t *testing.T) {
	for name, rename := range map[string]func(from, to string) error{"in one step": RenameNew, "in two": linkNew} {
		dir := t.TempDir()
		to := filepath.Join(dir, "x")
		for i, from := range []string{"a", "b"} {
			from := filepath.Join(dir, from)
			if err := os.WriteFile(from, []byte(filepath.Base(from)), 0o600); err != nil {
				t.Fatal(err)
			}
			switch err := rename(from, to); {
			case i == 0 && err != nil, i == 1 && !errors.Is(err, fs.ErrExist):
				t.Errorf("%s: %s = %v", name, from, err)
			}
		}
		if text, err := os.ReadFile(to); err != nil || string(text) != "a" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "b")); err != nil {
			t.Errorf("%s: what lost is gone: %v", name, err)
		}
	}
}
