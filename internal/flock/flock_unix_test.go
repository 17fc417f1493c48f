//go:build unix

package flock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openDir(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// S5: whatever stands where a lock file should is refused by every way in, and
// is neither followed, opened for ever nor written to.
func TestPlantedFilesAreRefused(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	must(t, os.WriteFile(elsewhere, []byte("untouched"), 0o600))
	plants := map[string]func(path string) error{
		"symbolic link": func(p string) error { return os.Symlink(elsewhere, p) },
		"dangling link": func(p string) error { return os.Symlink(elsewhere+"-not", p) },
		"FIFO":          func(p string) error { return unix.Mkfifo(p, 0o600) },
		"hard link":     func(p string) error { return os.Link(elsewhere, p) },
		"directory":     func(p string) error { return os.Mkdir(p, 0o700) },
	}
	if os.Geteuid() == 0 {
		plants["foreign owner"] = func(p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o600), os.Chown(p, 65534, -1))
		}
	}
	for what, plant := range plants {
		t.Run(what, func(t *testing.T) {
			path := t.TempDir()
			d := openDir(t, path)
			must(t, plant(path+"/0.lock"))
			ways := map[string]func() error{
				"take":  func() error { _, err := Take(d, "0.lock", Own); return err },
				"look":  func() error { _, err := d.Open("0.lock", Look); return err },
				"probe": func() error { _, _, err := d.Probe("0.lock", make([]byte, 10)); return err },
				"pass":  func() error { _, err := d.Pass(t.Context(), "0.lock", time.Minute); return err },
			}
			for way, enter := range ways {
				var odd *Untrusted
				if err := enter(); !errors.As(err, &odd) {
					t.Errorf("%s: %v, want *Untrusted", way, err)
				}
			}
		})
	}
	if text, err := os.ReadFile(elsewhere); err != nil || string(text) != "untouched" {
		t.Errorf("the file behind the links: %q, %v", text, err)
	}
	if _, err := os.Stat(elsewhere + "-not"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the end of a dangling link was made: %v", err)
	}
}

// A directory that others can write to, or that is a link, is no place for
// locks.
func TestPlantedDirectoryIsRefused(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/open", 0o700))
	must(t, os.Chmod(root+"/open", 0o777))
	must(t, os.Mkdir(root+"/good", 0o700))
	must(t, os.Symlink(root+"/good", root+"/link"))
	for _, name := range []string{"open", "link"} {
		var odd *Untrusted
		if _, err := OpenDir(root + "/" + name); !errors.As(err, &odd) {
			t.Errorf("OpenDir(%s) = %v, want *Untrusted", name, err)
		}
	}
}

// S5, C060: whichever way the path comes to name another file, the lock on the
// old one is seen to be worthless.
func TestCheckSeesEveryReplacement(t *testing.T) {
	ways := map[string]func(dir string) error{
		"removed": func(dir string) error { return os.Remove(dir + "/0.lock") },
		"removed and made again": func(dir string) error {
			return errors.Join(os.Remove(dir+"/0.lock"), os.WriteFile(dir+"/0.lock", nil, 0o600))
		},
		"renamed over": func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/new", nil, 0o600), os.Rename(dir+"/new", dir+"/0.lock"))
		},
		"directory removed": os.RemoveAll,
		"directory removed and made again": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.WriteFile(dir+"/0.lock", nil, 0o600))
		},
		"directory moved away": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-old"), os.Mkdir(dir, 0o700), os.WriteFile(dir+"/0.lock", nil, 0o600))
		},
	}
	for what, replace := range ways {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pool")
			must(t, os.Mkdir(path, 0o700))
			d := openDir(t, path)
			f, err := d.Open("0.lock", Own)
			must(t, err)
			defer f.Close()
			must(t, f.Check())
			must(t, replace(path))
			must(t, f.TryLock()) // the old file's lock can be had
			if err := f.Check(); !errors.Is(err, ErrReplaced) {
				t.Errorf("Check = %v, want ErrReplaced", err)
			}
			if strings.HasPrefix(what, "directory") == d.Current() {
				t.Errorf("Current() = %v", d.Current())
			}
		})
	}
}

// S5, C060: with a cleaner that removes the file whenever it is free, two takes
// never both win.
func TestTwoTakesNeverBothWin(t *testing.T) {
	path := t.TempDir()
	var inside, wins atomic.Int32
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			d, err := OpenDir(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer d.Close()
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				f, err := Take(d, "0.lock", Own)
				if errors.Is(err, ErrHeld) || errors.Is(err, ErrReplaced) {
					runtime.Gosched()
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d owners at once", n)
				}
				wins.Add(1)
				inside.Add(-1)
				if i%2 == 0 {
					_ = f.Unlink() // the cleaner: under the lock, when nobody uses it
				}
				f.Close()
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // how long it storms
	close(stop)
	all.Wait()
	t.Logf("%d takes", wins.Load())
}

// S8: a lock is not given up by closing one copy of its descriptor, and no
// collection frees it.
func TestLockLastsAsLongAsAnyCopy(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	f, err := Take(d, "0.lock", Own)
	must(t, err)
	again, err := dup(f.Fd())
	must(t, err)
	f.Close()
	f.Close() // and a second time
	f = nil
	for range 3 {
		runtime.GC()
		if _, held, err := d.Probe("0.lock", nil); err != nil || !held {
			t.Fatalf("Probe = %v, %v; the copy holds the lock", held, err)
		}
	}
	closeFd(again)
	if _, held, _ := d.Probe("0.lock", nil); held {
		t.Error("held after the last copy was closed")
	}
}

// S8: nothing here ever unlocks.
func TestNothingUnlocks(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		must(t, err)
		if strings.Contains(string(text), "LOCK_"+"UN") {
			t.Errorf("%s unlocks", name)
		}
	}
}

// S10: the wait for a lock is bounded, ends with its context, and a lock that
// stays stuck costs one thread however often it is asked for.
func TestStuckLockCostsOneThread(t *testing.T) {
	d := openDir(t, t.TempDir())
	holder, err := d.Pass(t.Context(), ".admission", time.Minute)
	must(t, err)
	before := runtime.NumGoroutine()
	for range 20 {
		f, err := d.Pass(t.Context(), ".admission", 2*time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) || f == nil {
			t.Fatalf("Pass = %v, %v; want the file and a timeout", f, err)
		}
		f.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Pass(ctx, ".admission", time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("Pass under an ended context = %v", err)
	}
	if n := runtime.NumGoroutine() - before; n > 1 {
		t.Errorf("%d goroutines stay at the lock", n)
	}
	holder.Close()
	f, err := d.Pass(t.Context(), ".admission", time.Minute)
	must(t, err)
	f.Close()
	for limit := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatal("a thread stays behind at a lock that came free")
		}
	}
}

// S10: whoever waits for a lock has it as soon as it comes free.
func TestWaitForLockEndsWithTheHolder(t *testing.T) {
	d := openDir(t, t.TempDir())
	holder, err := d.Pass(t.Context(), ".admission", time.Minute)
	must(t, err)
	got := make(chan error)
	go func() {
		f, err := d.Pass(context.Background(), ".admission", time.Minute)
		if f != nil {
			f.Close()
		}
		got <- err
	}()
	holder.Close()
	select {
	case err := <-got:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the waiter was not let in")
	}
}

// A removed lock file lets nobody in beside us.
func TestPassNoticesRemovedFile(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	first, err := d.Pass(t.Context(), ".line", time.Minute)
	must(t, err)
	got := make(chan error)
	go func() {
		_, err := d.Pass(context.Background(), ".line", time.Minute)
		got <- err
	}()
	blocked(t)
	must(t, os.Remove(path+"/.line"))
	first.Close()
	if err := <-got; !errors.Is(err, ErrReplaced) {
		t.Errorf("Pass = %v, want ErrReplaced", err)
	}
}

// blocked waits until a thread of ours blocks at a lock.
func blocked(t *testing.T) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stranded.mu.Lock()
		n := len(stranded.all)
		stranded.mu.Unlock()
		if n > 0 {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("nobody blocks")
		}
	}
}

// L6, S8: a descriptor that was not adopted is still its owner's.
func TestRefusedDescriptorStaysTheCallers(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	must(t, os.WriteFile(path+"/0.lock", nil, 0o600))
	must(t, os.WriteFile(path+"/1.lock", nil, 0o600))
	other, err := d.Open("1.lock", Own)
	must(t, err)
	defer other.Close()
	if _, err := d.Adopt("0.lock", other.Fd()); !errors.Is(err, ErrNotOurs) {
		t.Errorf("Adopt of another file = %v", err)
	}
	taken, err := Take(d, "0.lock", Own)
	must(t, err)
	defer taken.Close()
	second, err := d.Open("0.lock", Own)
	must(t, err)
	defer second.Close()
	if _, err := d.Adopt("0.lock", second.Fd()); !errors.Is(err, ErrNotOurs) {
		t.Errorf("Adopt without the lock = %v", err)
	}
	if _, err := d.Adopt("0.lock", other.Fd()); !errors.Is(err, ErrNotOurs) {
		t.Errorf("Adopt of another file, while somebody has this one = %v", err)
	}
	for _, f := range []*File{other, second} {
		if _, err := unix.FcntlInt(uintptr(f.Fd()), unix.F_GETFD, 0); err != nil {
			t.Errorf("descriptor %d was closed: %v", f.Fd(), err)
		}
	}
	copied, err := dup(taken.Fd())
	must(t, err)
	f, err := d.Adopt("0.lock", copied)
	must(t, err)
	f.Close()
}

// S9: no descriptor is inherited.
func TestDescriptorsCloseOnExec(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	fds := map[string]int{"directory": d.Fd()}
	for name, mode := range map[string]Mode{"own": Own, "pass": Pass} {
		f, err := d.Open(name, mode)
		must(t, err)
		defer f.Close()
		fds[name] = f.Fd()
	}
	copied, err := dup(d.Fd())
	must(t, err)
	defer closeFd(copied)
	fds["copy"] = copied
	for what, fd := range fds {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: flags %x, %v", what, flags, err)
		}
	}
}
