//go:build unix

package home

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// another is a user that is not us.
const another = 65534

// giveAway makes path somebody else's. Root changes the owner; another user
// looks at the own file with another's eyes, which comes to the same judgement.
func giveAway(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := os.Lchown(path, another, another); err != nil {
			t.Fatal(err)
		}
		return
	}
	before := self
	self = func() int { return os.Geteuid() + 1 }
	t.Cleanup(func() { self = before })
}

func plant(t *testing.T, kind, path string) {
	t.Helper()
	var err error
	switch kind {
	case "symlink":
		target := path + ".target"
		if err = os.WriteFile(target, []byte("planted"), 0o600); err == nil {
			err = os.Symlink(target, path)
		}
	case "dangling symlink":
		err = os.Symlink(path+".none", path)
	case "FIFO":
		err = syscall.Mkfifo(path, 0o600)
	case "hard link":
		if err = os.WriteFile(path+".other", []byte("planted"), 0o600); err == nil {
			err = os.Link(path+".other", path)
		}
	case "directory":
		err = os.Mkdir(path, 0o700)
	case "socket":
		var l net.Listener
		if l, err = net.Listen("unix", path); err == nil {
			t.Cleanup(func() { l.Close() })
		}
	case "world-writable":
		if err = os.WriteFile(path, []byte("planted"), 0o600); err == nil {
			err = os.Chmod(path, 0o666)
		}
	case "group-writable":
		if err = os.WriteFile(path, []byte("planted"), 0o600); err == nil {
			err = os.Chmod(path, 0o620)
		}
	case "foreign":
		if err = os.WriteFile(path, []byte("planted"), 0o644); err == nil {
			giveAway(t, path)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

var plants = []string{"symlink", "dangling symlink", "FIFO", "hard link", "directory", "socket", "world-writable", "group-writable", "foreign"}

// short is a directory whose socket paths fit.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestNothingPlantedIsRead(t *testing.T) { // S5, C134, issue "planted at each path we open"
	for _, kind := range plants {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(short(t), "f")
			plant(t, kind, path)
			got, err := ReadFile(path, 100)
			if u, ok := errors.AsType[*Untrusted](err); !ok || u.Path != path {
				t.Errorf("ReadFile = %q, %v, want *Untrusted naming the path", got, err)
			}
			if err := Trust(path, false); !isUntrusted(err) {
				t.Errorf("Trust = %v, want *Untrusted", err)
			}
		})
	}
}

func TestNothingPlantedIsAppendedTo(t *testing.T) {
	for _, kind := range plants {
		t.Run(kind, func(t *testing.T) {
			dir := short(t)
			f, err := OpenFolder(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			plant(t, kind, filepath.Join(dir, "f"))
			if err := f.Append("f", []byte("line\n"), 1<<20); !isUntrusted(err) {
				t.Errorf("Append = %v, want *Untrusted", err)
			}
			for _, name := range []string{"f.target", "f.other"} {
				if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil && string(text) != "planted" {
					t.Errorf("%s holds %q", name, text)
				}
			}
		})
	}
}

// A write replaces what is in its place and follows nothing.
func TestWriteReplacesWhatIsPlanted(t *testing.T) {
	for _, kind := range []string{"symlink", "dangling symlink", "FIFO", "hard link", "socket", "world-writable"} {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(short(t), "f")
			plant(t, kind, path)
			if err := WriteFile(path, []byte("ours")); err != nil {
				t.Fatal(err)
			}
			if got, err := ReadFile(path, 100); err != nil || string(got) != "ours" {
				t.Errorf("ReadFile = %q, %v", got, err)
			}
			for _, other := range []string{path + ".target", path + ".other"} {
				if text, err := os.ReadFile(other); err == nil && string(text) != "planted" {
					t.Errorf("%s was written through", other)
				}
			}
			if _, err := os.Lstat(path + ".none"); err == nil {
				t.Error("the target of a dangling link was created")
			}
		})
	}
}

func TestNothingPlantedBecomesTheHome(t *testing.T) { // C093, C134
	for _, tt := range []struct {
		kind  string
		plant func(t *testing.T, path string)
	}{
		{"symlink", func(t *testing.T, p string) { must(t, os.Mkdir(p+".real", 0o700)); must(t, os.Symlink(p+".real", p)) }},
		{"dangling symlink", func(t *testing.T, p string) { must(t, os.Symlink(p+".none", p)) }},
		{"file", func(t *testing.T, p string) { must(t, os.WriteFile(p, nil, 0o600)) }},
		{"FIFO", func(t *testing.T, p string) { must(t, syscall.Mkfifo(p, 0o600)) }},
		{"0777", func(t *testing.T, p string) { must(t, os.Mkdir(p, 0o700)); must(t, os.Chmod(p, 0o777)) }},
		{"1777", func(t *testing.T, p string) {
			must(t, os.Mkdir(p, 0o700))
			must(t, os.Chmod(p, 0o777|fs.ModeSticky))
		}},
		{"0770", func(t *testing.T, p string) { must(t, os.Mkdir(p, 0o700)); must(t, os.Chmod(p, 0o770)) }},
		{"foreign", func(t *testing.T, p string) { must(t, os.Mkdir(p, 0o755)); giveAway(t, p) }},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "h")
			tt.plant(t, path)
			d := Dir{Path: path, From: Variable}
			for name, err := range map[string]error{"Ensure": d.Ensure(), "Check": d.Check()} {
				if !isUntrusted(err) {
					t.Errorf("%s = %v, want *Untrusted", name, err)
				}
			}
			if _, err := d.Make("runs"); !isUntrusted(err) {
				t.Errorf("Make = %v, want *Untrusted", err)
			}
			if strings.HasPrefix(tt.kind, "0") || tt.kind == "foreign" {
				if text := d.Ensure().Error(); !strings.Contains(text, "owner") || !strings.Contains(text, "mode") {
					t.Errorf("%q names not owner and mode", text)
				}
			}
		})
	}
}

func TestSharedTmpIsNoHomeButADirectoryBelowIs(t *testing.T) { // C134
	if err := (Dir{Path: "/tmp", From: Variable}).Ensure(); !isUntrusted(err) {
		t.Errorf("Ensure(/tmp) = %v, want *Untrusted", err)
	}
	dir, err := os.MkdirTemp("/tmp", "handsel-test")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := (Dir{Path: dir, From: Variable}).Ensure(); err != nil {
		t.Errorf("Ensure(%s) = %v", dir, err)
	}
}

func TestPlantedSubdirectoryIsNotEntered(t *testing.T) {
	base := t.TempDir()
	elsewhere := filepath.Join(base, "elsewhere")
	d := Dir{Path: filepath.Join(base, "h"), From: Variable}
	must(t, os.Mkdir(elsewhere, 0o700))
	must(t, d.Ensure())
	must(t, os.Symlink(elsewhere, d.Runs()))
	if _, err := d.Make("runs", "day"); !isUntrusted(err) {
		t.Errorf("Make = %v, want *Untrusted", err)
	}
	if left, _ := os.ReadDir(elsewhere); len(left) != 0 {
		t.Errorf("%v was created through a link", left)
	}
	if err := EnsureDir(d.Runs()); !isUntrusted(err) {
		t.Errorf("EnsureDir = %v, want *Untrusted", err)
	}
	if err := EnsureDir(d.Holds()); err != nil {
		t.Errorf("EnsureDir = %v", err)
	}
}

func TestUmaskNeitherLoosensNorBreaksModes(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077, 0o777} {
		base := t.TempDir()
		before := syscall.Umask(umask)
		d := Dir{Path: filepath.Join(base, "a", "h"), From: Variable}
		f, err := d.Make("runs", "day")
		var file *os.File
		if err == nil {
			err = errors.Join(f.WriteFile("w", []byte("x")), f.Append("a", []byte("x"), 10))
			var created error
			file, created = f.Create("c")
			err = errors.Join(err, created)
			f.Close()
		}
		syscall.Umask(before)
		if err != nil {
			t.Fatalf("umask %04o: %v", umask, err)
		}
		file.Close()
		must(t, filepath.WalkDir(base, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || path == base {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[entry.IsDir()]; info.Mode().Perm() != want {
				t.Errorf("umask %04o: %s has mode %v", umask, path, info.Mode())
			}
			return nil
		}))
	}
}

// A directory that cannot be written gives one clear error. Root may write
// everywhere, so root looks at a file system that nobody can write.
func TestUnwritablePlaceIsOneClearError(t *testing.T) {
	parent := "/proc/self"
	if os.Geteuid() != 0 {
		parent = t.TempDir()
		must(t, os.Chmod(parent, 0o500))
	}
	d := Dir{Path: filepath.Join(parent, "h"), From: Variable}
	for name, err := range map[string]error{"Ensure": d.Ensure(), "EnsureDir": EnsureDir(d.Path), "WriteFile": WriteFile(d.Path, nil)} {
		u, ok := errors.AsType[*Unusable](err)
		if !ok && !(name == "WriteFile" && errors.Is(err, fs.ErrNotExist)) { // /proc says ENOENT to a new file
			t.Errorf("%s = %v, want *Unusable", name, err)
		} else if ok && strings.Contains(u.Error(), "\n") {
			t.Errorf("%s: %q is more than one line", name, u.Error())
		}
	}
}

func TestFullDiskLeavesNoHalfFile(t *testing.T) {
	// A file that may not grow is what a full disk looks like to write(2).
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, WriteFile(path, []byte("old")))
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := before
	limit.Cur = 4096
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	err := WriteFile(path, make([]byte, 8192))
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	if _, ok := errors.AsType[*Unusable](err); !ok {
		t.Errorf("WriteFile = %v, want *Unusable", err)
	}
	if got, err := ReadFile(path, 10); err != nil || string(got) != "old" {
		t.Errorf("ReadFile = %q, %v, want the old content", got, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left, want the one", len(left))
	}
}

func TestDirectoryOthersCanWriteIsNoPlaceForAFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, tt := range []struct {
		mode fs.FileMode
		ok   bool
	}{{0o700, true}, {0o755, true}, {0o775, false}, {0o777, false}, {0o777 | fs.ModeSticky, true}} {
		must(t, os.Chmod(dir, tt.mode))
		if err := TrustParent(path); (err == nil) != tt.ok || err != nil && !isUntrusted(err) {
			t.Errorf("mode %v: TrustParent = %v", tt.mode, err)
		}
	}
}

func TestRootFileMustBeRoots(t *testing.T) { // C6
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, []byte("x"), 0o644))
	got, err := ReadRootFile(path, 10)
	if os.Geteuid() == 0 {
		if err != nil || string(got) != "x" {
			t.Fatalf("ReadRootFile = %q, %v of root's file", got, err)
		}
		must(t, os.Chown(path, another, another))
		_, err = ReadRootFile(path, 10)
	}
	if !isUntrusted(err) {
		t.Errorf("ReadRootFile = %v of another's file, want *Untrusted", err)
	}
}

func TestOwnUnreadableFileSaysItsMode(t *testing.T) { // C093
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, []byte("x"), 0))
	must(t, os.Chmod(path, 0))
	got, err := ReadFile(path, 10)
	if os.Geteuid() == 0 {
		if err != nil || string(got) != "x" { // root is not stopped by a mode
			t.Errorf("ReadFile = %q, %v", got, err)
		}
		return
	}
	if u, ok := errors.AsType[*Unusable](err); !ok || !strings.Contains(u.Error(), "mode 0000") {
		t.Errorf("ReadFile = %v, want *Unusable with the mode", err)
	}
}

func isUntrusted(err error) bool {
	_, ok := errors.AsType[*Untrusted](err)
	return ok
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A file that is replaced between the opening and the judging of it has no name any
// more. That is no fault of the file, and what was read of it stood a moment ago.
func TestFileIsReadWhileItIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	must(t, WriteFile(path, []byte("0")))
	read := make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-read:
				return
			default:
			}
			if err := WriteFile(path, []byte(strconv.Itoa(n))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer close(read)
	folder, err := OpenFolder(dir)
	must(t, err)
	defer folder.Close()
	for range 5000 {
		for name, read := range map[string]func() ([]byte, error){
			"by its path": func() ([]byte, error) { return ReadFile(path, 100) },
			"in a folder": func() ([]byte, error) { return folder.ReadFile("x", 100) },
		} {
			if data, err := read(); err != nil || len(data) == 0 {
				t.Fatalf("%s: %q, %v", name, data, err)
			}
		}
	}
}
