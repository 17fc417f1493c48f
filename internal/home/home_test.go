package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/machine"
)

func getenv(value string) func(string) string {
	return func(name string) string {
		if name == Variable {
			return value
		}
		return "" // HOME among them: it must not matter
	}
}

func TestHomeVariableMustBeAbsolute(t *testing.T) { // C9
	for _, tt := range []struct{ value, path string }{
		{"/srv/h", "/srv/h"},
		{"/srv/h/", "/srv/h"},
		{"/srv/./x/../h", "/srv/h"},
		{"/srv/with blank\nand newline", "/srv/with blank\nand newline"},
		{"relative", ""},
		{".", ""},
		{"~/h", ""},
		{" /srv/h", ""},
		{"/", ""},
		{"//", ""},
		{"/..", ""},
	} {
		d, err := Locate(getenv(tt.value))
		if tt.path == "" {
			bad, ok := errors.AsType[*BadPath](err)
			if !ok || bad.Var != Variable {
				t.Errorf("Locate(%q) = %v, %v, want *BadPath of %s", tt.value, d, err, Variable)
			}
			continue
		}
		if err != nil || d.Path != tt.path || d.From != Variable {
			t.Errorf("Locate(%q) = %+v, %v, want %s", tt.value, d, err, tt.path)
		}
	}
}

func TestMessagesHoldNoControlBytes(t *testing.T) { // C135
	for _, err := range []error{
		&BadPath{Var: Variable, Value: "x\x1b[2J\n\u202e", Why: "no"},
		&Untrusted{Path: "/x\x1b[2J\n\u202e", Why: "no"},
		&NetworkFS{Path: "/x\x1b[2J\n\u202e", Kind: "nfs"},
		&Unusable{Path: "/x\x1b[2J\n\u202e", Err: fs.ErrPermission},
	} {
		for _, r := range err.Error() {
			if r < ' ' || r > '~' {
				t.Errorf("%q holds %q", err.Error(), r)
			}
		}
	}
}

func TestHomeWithoutVariableIgnoresHOME(t *testing.T) { // C111
	t.Setenv("HOME", t.TempDir())
	d, err := Locate(getenv(""))
	user, userErr := UserHome()
	if userErr != nil {
		if err == nil {
			t.Fatalf("Locate = %v though UserHome = %v", d, userErr)
		}
		return
	}
	if err != nil || d.Path != filepath.Join(user, ".local", "state", "handsel") || d.From != "passwd" {
		t.Errorf("Locate = %+v, %v", d, err)
	}
	if strings.HasPrefix(d.Path, os.Getenv("HOME")) {
		t.Errorf("Locate = %s, below $HOME", d.Path)
	}
}

func TestLocateTouchesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	if _, err := Locate(getenv(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Locate made %s", filepath.Dir(path))
	}
}

func TestEnsureCreatesPrivateDirectories(t *testing.T) {
	base := t.TempDir()
	d := Dir{Path: filepath.Join(base, "a", "b", "h"), From: Variable}
	for range 2 {
		if err := d.Ensure(); err != nil {
			t.Fatal(err)
		}
	}
	for path := d.Path; path != base; path = filepath.Dir(path) {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	if err := d.Check(); err != nil {
		t.Error(err)
	}
}

func TestCheckCreatesNothing(t *testing.T) { // S28
	d := Dir{Path: filepath.Join(t.TempDir(), "h"), From: Variable}
	if err := d.Check(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Check = %v, want ErrNotExist", err)
	}
	if _, err := os.Lstat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("Check created the home")
	}
}

func TestEnsureNeverCreatesTheUserHomeItself(t *testing.T) {
	base := t.TempDir()
	d := Dir{Path: filepath.Join(base, "nobody", ".local", "state", "handsel"), From: "passwd"}
	if _, ok := errors.AsType[*Unusable](d.Ensure()); !ok {
		t.Errorf("Ensure = %v, want *Unusable", d.Ensure())
	}
	if _, err := os.Lstat(filepath.Join(base, "nobody")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("Ensure created the home directory of the passwd entry")
	}
	if err := os.Mkdir(filepath.Join(base, "nobody"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Ensure(); err != nil {
		t.Errorf("Ensure = %v with the home directory there", err)
	}
}

// onKind makes every path seem to lie on a file system of that kind.
func onKind(t *testing.T, kind machine.FS) {
	t.Helper()
	before := kindOf
	t.Cleanup(func() { kindOf = before })
	kindOf = func(path string) (machine.FS, error) {
		if _, err := os.Lstat(path); err != nil {
			return machine.FS{}, err // as statfs would
		}
		return kind, nil
	}
}

func TestNetworkFileSystemIsRefusedBeforeAnythingIsCreated(t *testing.T) { // C087
	onKind(t, machine.FS{Name: "nfs", Network: true, Known: true})
	d := Dir{Path: filepath.Join(t.TempDir(), "a", "h"), From: Variable}
	network, ok := errors.AsType[*NetworkFS](d.Ensure())
	if !ok || network.Kind != "nfs" || !strings.Contains(network.Error(), Variable) {
		t.Fatalf("Ensure = %v, want *NetworkFS naming nfs and the variable", d.Ensure())
	}
	if _, err := os.Lstat(filepath.Dir(d.Path)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("Ensure created something on a network file system")
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*NetworkFS](d.Ensure()); !ok {
		t.Error("an existing home on a network file system is taken")
	}
	if _, ok := errors.AsType[*NetworkFS](Local(filepath.Join(d.Path, "x", "y"))); !ok {
		t.Error("Local takes a place on a network file system")
	}
}

func TestUnknownFileSystemWarnsAndGoesOn(t *testing.T) { // C087
	onKind(t, machine.FS{Name: "0x1234"})
	d := Dir{Path: filepath.Join(t.TempDir(), "h"), From: Variable}
	if !strings.Contains(d.Unknown(), "0x1234") {
		t.Errorf("Unknown = %q, want the type named", d.Unknown())
	}
	if err := d.Ensure(); err != nil {
		t.Errorf("Ensure = %v", err)
	}
	onKind(t, machine.FS{Name: "ext4", Known: true})
	if d.Unknown() != "" {
		t.Errorf("Unknown = %q on a known file system", d.Unknown())
	}
}

func TestWrittenFileIsWholeAndPrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for name, write := range map[string]func(string, []byte) error{"fast": WriteFile, "sync": WriteFileSync} {
		if err := write(path, []byte(name)); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path, 10)
		if err != nil || string(got) != name {
			t.Errorf("ReadFile = %q, %v, want %q", got, err, name)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left, want the one", len(left))
	}
}

func TestReadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteFile(path, []byte("12345")); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(path, 5); err != nil || string(got) != "12345" {
		t.Errorf("ReadFile = %q, %v at the bound", got, err)
	}
	if _, err := ReadFile(path, 4); !errors.Is(err, ErrTooLarge) {
		t.Errorf("ReadFile = %v, want ErrTooLarge", err)
	}
	if _, err := ReadFile(filepath.Join(filepath.Dir(path), "none"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadFile = %v, want ErrNotExist", err)
	}
}

func TestAppendStopsAtItsBound(t *testing.T) { // E16
	f, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, want := range []error{nil, nil, ErrFull} {
		if err := f.Append("log", []byte("1234\n"), 11); !errors.Is(err, want) {
			t.Errorf("line %d: %v, want %v", i, err, want)
		}
	}
	got, err := f.ReadFile("log", 100)
	if err != nil || string(got) != "1234\n1234\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

func TestFolderMakesAndLists(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "h"), From: Variable}
	if _, err := d.Open("runs"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open = %v, want ErrNotExist", err)
	}
	f, err := d.Make("runs", "2026-11-30")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WriteFile("x", nil); err != nil {
		t.Fatal(err)
	}
	if err := f.Mkdir("y"); err != nil {
		t.Fatal(err)
	}
	if err := f.Mkdir("y"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Mkdir = %v, want ErrExist", err)
	}
	for range 2 { // listing twice lists the same
		names, err := f.Names()
		if err != nil || len(names) != 2 {
			t.Errorf("Names = %v, %v", names, err)
		}
	}
	for _, name := range []string{"x", "y"} {
		if err := f.Remove(name); err != nil {
			t.Error(err)
		}
	}
	if err := f.Remove("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Remove = %v, want ErrNotExist", err)
	}
}
