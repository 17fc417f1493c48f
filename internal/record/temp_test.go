package record

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const tempID = "01a22f22-660b-7e6a-bfda-f08e409ba91e"

// TestAbandonRemovesWhatIsTheRunsOnly: what its record names, if the name is this
// run's; a link in its place goes, and what it leads to stays.
func TestAbandonRemovesWhatIsTheRunsOnly(t *testing.T) {
	for _, tt := range []struct {
		name string
		temp string
		gone bool
	}{
		{"scratch", ScratchName(tempID), true},
		{"short", ShortScratchName(tempID), true},
		{"link", ScratchName(tempID), true},
		{"another run's", ScratchName("01a22f22-660b-7e6a-bfda-f08e409ba91f"), false},
		{"no scratch at all", "src", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			kept, path := filepath.Join(dir, "kept"), filepath.Join(dir, tt.temp)
			build := func() error { return os.MkdirAll(filepath.Join(path, "a", "b"), 0o700) }
			if tt.name == "link" {
				build = func() error { return os.Symlink(kept, path) }
			}
			for _, err := range []error{os.MkdirAll(filepath.Join(kept, "x"), 0o700), build()} {
				if err != nil {
					t.Fatal(err)
				}
			}
			r := &Run{ID: tempID, Temp: []string{path}, Trouble: &Trouble{Text: "engine retrying"}}
			r.Abandon()
			if _, err := os.Lstat(path); os.IsNotExist(err) != tt.gone {
				t.Errorf("gone: %v", !tt.gone)
			}
			if _, err := os.Stat(filepath.Join(kept, "x")); err != nil || len(r.Temp) > 0 || len(r.Notes) > 0 || r.Trouble != nil {
				t.Errorf("%v; %+v", err, r)
			}
		})
	}
}

// TestRemovingScratchFollowsNoLink: an agent puts a link in its directory's place
// and makes the place read-only, so that it cannot be removed.
func TestRemovingScratchFollowsNoLink(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("nothing is read-only for root")
	}
	dir := t.TempDir()
	kept, work := filepath.Join(dir, "kept"), filepath.Join(dir, "work")
	inner := filepath.Join(kept, "inner")
	real, link := filepath.Join(dir, "real"), filepath.Join(work, ScratchName(tempID))
	for _, err := range []error{
		os.MkdirAll(inner, 0o700), os.Chmod(inner, 0o755), os.Mkdir(work, 0o700), os.Symlink(kept, link), os.Chmod(work, 0o500),
		os.MkdirAll(filepath.Join(real, "a", "b"), 0o700), os.Chmod(filepath.Join(real, "a"), 0o500),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(work, 0o700) })
	r := &Run{ID: tempID, Temp: []string{link}}
	r.Abandon()
	st, err := os.Stat(inner)
	if err != nil || st.Mode().Perm() != 0o755 || !slices.Equal(r.Temp, []string{link}) || len(r.Notes) != 1 {
		t.Errorf("%v, %v, %+v", st.Mode(), err, r)
	}
	if err := RemoveScratch(real); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(real); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
