//go:build unix

package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

func newWorld(t *testing.T) World {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := home.Dir{Path: dir, From: home.Variable}
	s, _ := config.LoadLenient(config.Env{Getenv: func(string) string { return "" }, Environ: func() []string { return nil },
		UserFile: filepath.Join(t.TempDir(), "none.toml"), MachineFile: filepath.Join(t.TempDir(), "none.toml")})
	return World{Home: d, Settings: s, Leases: d.Leases(), Waiting: d.Waiting(), Now: time.Now()}
}

func find(found []Finding, code string) *Finding {
	for i := range found {
		if found[i].Code == code {
			return &found[i]
		}
	}
	return nil
}

// tree lists a directory with modes, times and contents.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		b.WriteString(path + info.Mode().String() + info.ModTime().String() + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestExaminingChangesNothing(t *testing.T) { // C148
	w := newWorld(t)
	old := filepath.Join(w.Home.Path, ".tmp-1")
	mustWrite(t, old, time.Now().Add(-2*unfinishedAge))
	before := tree(t, w.Home.Path)
	found := w.Examine()
	if f := find(found, KindTemp); f == nil || !f.Can || !f.Wrong() {
		t.Errorf("the half-written file is not found: %+v", found)
	}
	w.Leftovers(0)
	if after := tree(t, w.Home.Path); after != before {
		t.Errorf("looking changed the home:\n%s\n%s", before, after)
	}
	Repair(found)
	if f := find(found, KindTemp); !f.Fixed || f.Wrong() {
		t.Errorf("not repaired: %+v", f)
	}
	if find(w.Examine(), KindTemp) != nil {
		t.Error("a second look finds it again")
	}
}

func mustWrite(t *testing.T, path string, mtime time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, mtime, mtime); err != nil {
		t.Fatal(err)
	}
}

func TestYoungAndForeignFilesStay(t *testing.T) { // C148
	w := newWorld(t)
	long := time.Now().Add(-100 * unfinishedAge)
	mustWrite(t, filepath.Join(w.Home.Path, ".tmp-young"), time.Now())
	mustWrite(t, filepath.Join(w.Home.Path, "notes"), long)
	mustWrite(t, filepath.Join(w.Home.Path, ".hidden"), long)
	if err := os.Symlink("/etc/passwd", filepath.Join(w.Home.Path, ".tmp-link")); err != nil {
		t.Fatal(err)
	}
	if items, problems := w.Leftovers(0); len(items) != 0 || len(problems) != 0 {
		t.Errorf("found %+v, %v", items, problems)
	}
}

func TestRecordsGoByAgeAndOnlyWhenEnded(t *testing.T) { // E14
	w := newWorld(t)
	keep := func(state string, ended time.Time) string {
		r := &record.Run{ID: record.NewID(), Verb: "run", State: state, Confinement: "none", EndedAt: record.At(ended)}
		if state == record.Ended {
			r.Outcome = record.Exited
		}
		if _, err := record.Create(w.Home, r); err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	old := keep(record.Ended, w.Now.Add(-40*24*time.Hour))
	keep(record.Ended, w.Now.Add(-time.Hour))
	keep(record.Running, w.Now.Add(-40*24*time.Hour))
	items, _ := w.Leftovers(0)
	if len(items) != 1 || items[0].ID != old || items[0].Kind != KindRun {
		t.Fatalf("found %+v, want %s", items, old)
	}
	if items, _ := w.Leftovers(30 * time.Minute); len(items) != 2 {
		t.Errorf("older than 30 minutes are %d, want 2", len(items))
	}
	if items, _ := w.Leftovers(2 * time.Hour); len(items) != 1 {
		t.Errorf("older than 2 hours are %d, want 1", len(items))
	}
	items[0].Do()
	if !items[0].Done {
		t.Error(items[0].Error)
	}
	if again, _ := w.Leftovers(0); len(again) != 0 {
		t.Errorf("a second look finds %+v", again)
	}
}

func TestRepairSaysWhatItCouldNotDo(t *testing.T) {
	w := newWorld(t)
	w.Lost = func() ([]Left, error) {
		return []Left{{ID: "x", Text: "gone", Close: func() error { return errors.New("the disk is full") }}}, nil
	}
	found := w.Examine()
	Repair(found)
	if f := find(found, KindLost); f == nil || f.Fixed || !f.Wrong() || !strings.Contains(f.Text, "the disk is full") {
		t.Errorf("found %+v", f)
	}
}

func TestHomeThatIsNotOursIsNamed(t *testing.T) { // C6, S28
	w := newWorld(t)
	if err := os.Chmod(w.Home.Path, 0o777); err != nil {
		t.Fatal(err)
	}
	if f := find(w.Examine(), "home"); f == nil || f.Level != Bad || !strings.Contains(f.Text, "0777") {
		t.Errorf("found %+v", f)
	}
	if items, _ := w.Leftovers(0); len(items) != 0 {
		t.Errorf("leftovers of a home that is not ours: %+v", items)
	}
}

func TestSlotThatNamesNothing(t *testing.T) {
	w := newWorld(t)
	for _, text := range []string{"", "all", "all/", "/0", "all/00", "all/-1", "all/x", "../all/0", "all/0/1", "ALL/0", "all/99999999"} {
		if _, err := w.LookSlot(text); !errors.As(err, new(*BadSlot)) {
			t.Errorf("LookSlot(%q) = %v, want *BadSlot", text, err)
		}
		if err := w.FreeSlot(text); !errors.As(err, new(*BadSlot)) {
			t.Errorf("FreeSlot(%q) = %v, want *BadSlot", text, err)
		}
	}
	if err := w.FreeSlot("all/0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("FreeSlot of a pool that is not there = %v", err)
	}
}
