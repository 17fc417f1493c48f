package handoff

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/home"
	"golang.org/x/sys/unix"
)

// fromSystemd is a socket as systemd gives it, bound at a path.
func fromSystemd(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 16); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "LISTEN_FD_3")
}

// shortHome is a home that systemd can bind a socket in by its path, however
// deep TMPDIR is.
func shortHome(t *testing.T) home.Dir {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return home.Dir{Path: dir}
}

func TestActivatedSocketsAreServed(t *testing.T) {
	d := shortHome(t)
	before := openFDs(t)
	hand, api, err := activated(d, []*os.File{ // in whatever order
		fromSystemd(t, filepath.Join(d.Path, home.APISocket)),
		fromSystemd(t, filepath.Join(d.Path, home.HandoffSocket)),
	})
	if err != nil {
		t.Fatal(err)
	}
	end := serve(hand)
	mustAnswer(t, d)
	end()
	if api.Addr().String() != filepath.Join(d.Path, home.APISocket) {
		t.Errorf("the other is %s", api.Addr())
	}
	hand.Close()
	api.Close()
	sameFDs(t, before)
	if _, err := os.Lstat(filepath.Join(d.Path, home.APISocket)); err != nil {
		t.Errorf("systemd's socket lost its name: %v", err)
	}
}

func TestActivatedSocketsThatAreNotOursAreClosed(t *testing.T) {
	d, other := shortHome(t), shortHome(t)
	hand, api := filepath.Join(d.Path, home.HandoffSocket), filepath.Join(d.Path, home.APISocket)
	for _, tt := range []struct {
		name  string
		files func() []*os.File
		why   string
	}{
		{"one of two", func() []*os.File { return []*os.File{fromSystemd(t, hand)} }, "both are needed"},
		{"one twice", func() []*os.File {
			one := fromSystemd(t, hand)
			fd, _ := unix.FcntlInt(one.Fd(), unix.F_DUPFD_CLOEXEC, 3)
			return []*os.File{one, os.NewFile(uintptr(fd), "LISTEN_FD_4")}
		}, "came twice"},
		{"one too many", func() []*os.File {
			return []*os.File{fromSystemd(t, hand), fromSystemd(t, api), fromSystemd(t, hand+"2")}
		}, "no socket of the home"},
		{"one that was replaced since", func() []*os.File {
			files := []*os.File{fromSystemd(t, hand), fromSystemd(t, api)}
			os.Remove(api)
			fromSystemd(t, api).Close()
			l, err := d.ListenUnix(home.HandoffSocket)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			return files
		}, "no socket of the home"},
		{"another home", func() []*os.File {
			return []*os.File{
				fromSystemd(t, filepath.Join(other.Path, home.HandoffSocket)),
				fromSystemd(t, filepath.Join(other.Path, home.APISocket)),
			}
		}, "no socket of the home"},
		{"a file", func() []*os.File {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			fd, _ := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
			f.Close()
			return []*os.File{fromSystemd(t, hand), os.NewFile(uintptr(fd), os.DevNull)}
		}, "not a listening"},
	} {
		before := openFDs(t)
		h, a, err := activated(d, tt.files())
		if err == nil || h != nil || a != nil || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: %v, %v, %v", tt.name, h, a, err)
		}
		sameFDs(t, before)
	}
}

func TestNotActivatedIsNoError(t *testing.T) {
	t.Setenv("LISTEN_PID", "1") // another's
	t.Setenv("LISTEN_FDS", "2")
	if h, a, err := Activated(newHome(t)); h != nil || a != nil || err != nil {
		t.Errorf("%v, %v, %v", h, a, err)
	}
	if _, left := os.LookupEnv("LISTEN_FDS"); left {
		t.Error("a child would be told of our sockets")
	}
}

func TestNotifyReachesWhoAsked(t *testing.T) {
	path := filepath.Join(shortHome(t).Path, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	for _, state := range []string{NotifyReady, NotifyStopping} {
		if err := Notify(state); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != state {
			t.Errorf("%q, %v", buf[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(NotifyReady); err != nil {
		t.Errorf("without systemd: %v", err)
	}
}
