package flock

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests here notice faults that the others let live (L27).

// S5: inode numbers repeat on other devices, so the device is compared too.
func TestCheckComparesTheDevice(t *testing.T) {
	d := openDir(t, t.TempDir())
	f, err := Take(d, "0.lock", Own)
	must(t, err)
	defer f.Close()
	f.id.dev++ // what the path names has our number, elsewhere
	if err := f.Check(); !errors.Is(err, ErrReplaced) {
		t.Errorf("Check = %v, want ErrReplaced", err)
	}
}

// What cannot be opened for another reason is no reason to mistrust it.
func TestOtherErrorsAreNotMistrust(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	long := strings.Repeat("n", 300)
	_, asDir := OpenDir(path + "/" + long)
	_, asFile := d.Open(long, Own)
	for what, err := range map[string]error{"OpenDir": asDir, "Open": asFile} {
		if odd := new(Untrusted); !errors.Is(err, unix.ENAMETOOLONG) || errors.As(err, &odd) {
			t.Errorf("%s of a name that is too long = %v", what, err)
		}
	}
}

// S5: who meets a replacement takes again; somebody who keeps replacing the
// file makes no take fail.
func TestReplacedFileIsTakenAgain(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.WriteFile(path+"/new", nil, 0o600)
			_ = os.Rename(path+"/new", path+"/0.lock")
			runtime.Gosched()
		}
	})
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		f, err := Take(d, "0.lock", Own)
		if err != nil {
			t.Errorf("Take = %v", err)
			break
		}
		f.Close()
	}
	close(stop)
	all.Wait()
}

// S6: what was written in part was not written.
func TestPartialWriteIsAnError(t *testing.T) {
	d := openDir(t, t.TempDir())
	f, err := Take(d, "0.lock", Own)
	must(t, err)
	defer f.Close()
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 100, Max: was.Max}))
	err = f.WriteAt(make([]byte, 512), 0)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	if err == nil {
		t.Error("512 bytes were said to be written where 100 fit")
	}
	if text, err := os.ReadFile(f.Path()); err != nil || len(text) != 100 {
		t.Fatalf("the file has %d bytes, %v; the test wants a partial write", len(text), err)
	}
}

// S8: a number that was closed is somebody else's by now.
func TestSecondCloseLeavesTheNextOwnerAlone(t *testing.T) {
	d := openDir(t, t.TempDir())
	f, err := Take(d, "0.lock", Own)
	must(t, err)
	number := f.Fd()
	f.Close()
	next, err := Take(d, "1.lock", Own)
	must(t, err)
	defer next.Close()
	if next.Fd() != number {
		t.Fatalf("the kernel gave %d, not the number %d that was just closed", next.Fd(), number)
	}
	f.Close()
	if _, held, err := d.Probe("1.lock", nil); err != nil || !held {
		t.Errorf("Probe = %v, %v; closing the first again must leave the second locked", held, err)
	}
	again, err := OpenDir(d.Path())
	must(t, err)
	again.Close()
	last, err := Take(d, "2.lock", Own)
	must(t, err)
	defer last.Close()
	again.Close()
	if _, held, err := d.Probe("2.lock", nil); err != nil || !held {
		t.Errorf("Probe = %v, %v; closing a directory again must close nothing", held, err)
	}
}

// L6, S8, S9: a descriptor that was received goes on holding its lock, alone
// too, is writable if it was opened so, and is inherited by nobody.
func TestAdoptedDescriptorHoldsOnAlone(t *testing.T) {
	d := openDir(t, t.TempDir())
	for _, mode := range []Mode{Own, Pass} {
		taken, err := Take(d, "0.lock", mode)
		must(t, err)
		passed, err := unix.FcntlInt(uintptr(taken.Fd()), unix.F_DUPFD, 3)
		must(t, err)
		f, err := d.Adopt("0.lock", passed)
		must(t, err)
		taken.Close()
		if _, held, err := d.Probe("0.lock", nil); err != nil || !held {
			t.Errorf("Probe = %v, %v; the copy holds the lock", held, err)
		}
		if f.Writable() != (mode == Own) || f.Fd() != passed {
			t.Errorf("mode %v: writable %v, descriptor %d of %d", mode, f.Writable(), f.Fd(), passed)
		}
		if flags, err := unix.FcntlInt(uintptr(passed), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %x, %v; the descriptor would be inherited", flags, err)
		}
		f.Close()
		if _, held, _ := d.Probe("0.lock", nil); held {
			t.Error("held after the last copy was closed")
		}
	}
}

// L6: nothing but the path's own file, of ours and with one name, can be
// adopted, and whether its lock is had by another open of the path is asked.
func TestAdoptRefusesWhatIsNotTheLanes(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	adopt := func(what string, fd int) {
		t.Helper()
		if f, err := d.Adopt("0.lock", fd); err == nil {
			t.Errorf("%s was adopted", what)
			f.Close()
			return
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("%s was closed", what)
		}
	}
	if _, err := d.Adopt("0.lock", 1<<20); err == nil {
		t.Error("a number without a file was adopted")
	}
	f, err := Take(d, "0.lock", Own)
	must(t, err)
	defer f.Close()
	must(t, os.Link(path+"/0.lock", path+"/1.lock"))
	adopt("a file with two names", f.Fd())
	must(t, os.Remove(path+"/1.lock"))
	adopt("a directory", d.Fd())
	must(t, os.Remove(path+"/0.lock"))
	adopt("a file without a name", f.Fd())
	must(t, unix.Mkfifo(path+"/0.lock", 0o600))
	fifo, err := unix.Open(path+"/0.lock", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fifo)
	adopt("a FIFO", fifo)
}

// L3, S10: of all locks the one that is asked for is named, and its holder.
func TestOwnersAreThisFilesAlone(t *testing.T) {
	d := openDir(t, t.TempDir())
	held, err := Take(d, "held", Own)
	must(t, err)
	defer held.Close()
	free, err := d.Open("free", Own)
	must(t, err)
	defer free.Close()
	if got := held.Owners(); !slices.Equal(got, []int{os.Getpid()}) {
		t.Errorf("owners of the held file: %v, want us alone", got)
	}
	if got := free.Owners(); len(got) != 0 {
		t.Errorf("owners of the free file: %v", got)
	}
	done := make(chan error, 1)
	copied, err := unix.Open(held.Path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	go func() { done <- block(copied) }()
	for { // a waiter's line stands under the holder's and is not an owner's
		text, err := os.ReadFile("/proc/locks")
		must(t, err)
		if bytes.Contains(text, []byte("-> FLOCK")) {
			break
		}
		runtime.Gosched()
	}
	if got := held.Owners(); !slices.Equal(got, []int{os.Getpid()}) {
		t.Errorf("owners beside a waiter: %v, want us once", got)
	}
	held.Close()
	must(t, <-done)
	closeFd(copied)
}

// Names of any length are opened as they are, and one with a NUL is nobody's.
func TestLongNamesAreOpenedWhole(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	for _, n := range []int{1, 62, 63, 64, 65, 200} {
		name := strings.Repeat("n", n)
		f, err := Take(d, name, Own)
		must(t, err)
		f.Close()
		if _, err := os.Stat(path + "/" + name); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, name := range []string{"\x00", "a\x00b", "\x00" + strings.Repeat("n", 100)} {
		if _, err := d.Open(name, Own); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%q) = %v", name, err)
		}
	}
	var names []string
	must(t, d.Names(func(name []byte) { names = append(names, string(name)) }))
	if len(names) != 6 {
		t.Errorf("%d names: %q", len(names), names)
	}
}

// What a person reads names what is wrong, and nothing that is not.
func TestRefusalsSayWhatIsWrong(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	must(t, os.WriteFile(path+"/plain", nil, 0o600))
	must(t, os.WriteFile(path+"/unreadable", nil, 0o200))
	must(t, os.WriteFile(path+"/linked", nil, 0o600))
	must(t, os.Link(path+"/linked", path+"/second"))
	for name, c := range map[string]struct {
		links, sandbox bool
		what           string
	}{
		"plain":      {false, true, "owner uid"},
		"unreadable": {false, false, "mode 0200"},
		"linked":     {true, true, "a file with 2 hard links"},
		"missing":    {false, false, "permission denied"},
	} {
		why := describe(d.Fd(), name)
		if strings.Contains(why, "hard links") != c.links || strings.Contains(why, "sandbox") != c.sandbox || !strings.Contains(why, c.what) {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// Removing what is gone is no error, and neither is removing what is there;
// what cannot be removed is named.
func TestUnlinkSaysWhatItCouldNotRemove(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	must(t, os.WriteFile(path+"/file", nil, 0o600))
	must(t, os.Mkdir(path+"/dir", 0o700))
	for range 2 {
		if err := d.Unlink("file"); err != nil {
			t.Errorf("Unlink = %v", err)
		}
	}
	var odd *fs.PathError
	if err := d.Unlink("dir"); !errors.As(err, &odd) || odd.Path != path+"/dir" {
		t.Errorf("Unlink of a directory = %v", err)
	}
}
