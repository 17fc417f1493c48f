package profile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/handsel/handsel/internal/home"
)

// TestTrust is E8: what is trusted is a directory, whatever it is called by, and
// only until it is taken back.
func TestTrust(t *testing.T) {
	d := home.Dir{Path: filepath.Join(t.TempDir(), "home")}
	root := t.TempDir()
	dir, other, link := filepath.Join(root, "a\xffb"), filepath.Join(root, "other"), filepath.Join(root, "link")
	for _, err := range []error{os.Mkdir(dir, 0o700), os.Mkdir(other, 0o700), os.Symlink(dir, link), os.WriteFile(filepath.Join(root, "file"), nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if Trusts(d, dir) {
		t.Error("trusted by nobody")
	}
	for range 2 {
		if path, err := Trust(d, link); err != nil || path != dir {
			t.Fatalf("%q, %v", path, err)
		}
	}
	if !Trusts(d, dir) || !Trusts(d, link) || Trusts(d, other) || Trusts(d, filepath.Dir(dir)) {
		t.Error("another directory is trusted than that one")
	}
	if all, err := Trusted(d); err != nil || !slices.Equal(all, []string{dir}) {
		t.Errorf("%q, %v", all, err)
	}
	for _, name := range []string{"file", "none"} {
		if path, err := Trust(d, filepath.Join(root, name)); err == nil {
			t.Errorf("%s is trusted as %s", name, path)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Distrust(d, dir); err != nil {
		t.Errorf("a directory that is gone: %v", err)
	}
	if _, err := Distrust(d, other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that never was: %v", err)
	}
	if all, err := Trusted(d); err != nil || len(all) != 0 {
		t.Errorf("%q, %v", all, err)
	}
}

// TestTrustAtOnce: nobody's word is lost.
func TestTrustAtOnce(t *testing.T) {
	d := home.Dir{Path: filepath.Join(t.TempDir(), "home")}
	root := t.TempDir()
	var work sync.WaitGroup
	for i := range 16 {
		dir := filepath.Join(root, string(rune('a'+i)))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			if _, err := Trust(d, dir); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if all, err := Trusted(d); err != nil || len(all) != 16 {
		t.Errorf("%q, %v", all, err)
	}
}
