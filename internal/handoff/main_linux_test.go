package handoff

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
	"golang.org/x/sys/unix"
)

// stubs are what this test binary can be started as, by HANDSEL_TEST_STUB.
var stubs = map[string]func(){
	// visit connects to the home named in the environment, says so, and is gone.
	"visit": func() {
		_, err := Dial(context.Background(), home.Dir{Path: os.Getenv("HANDSEL_TEST_HOME")})
		fmt.Println(os.Getpid(), err)
	},
}

func TestMain(m *testing.M) {
	if stub := stubs[os.Getenv("HANDSEL_TEST_STUB")]; stub != nil {
		stub()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// visit runs the stub of that name and returns what it said.
func visit(t *testing.T, d home.Dir) (pid int) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "HANDSEL_TEST_STUB=visit", "HANDSEL_TEST_HOME="+d.Path)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var said string
	if _, err := fmt.Sscan(string(out), &pid, &said); err != nil || said != "<nil>" {
		t.Fatalf("the visitor said %q", out)
	}
	return pid
}

func soak(n, full int) int {
	if os.Getenv("HANDSEL_SOAK") != "" {
		return full
	}
	return n
}

// pair is two connected ends without a listener.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	var ends [2]*Conn
	for i, sock := range sockets(t) {
		ends[i] = bare(t, sock)
		t.Cleanup(ends[i].Close)
	}
	return ends[0], ends[1]
}

// bare is a connection that has no listener and knows no peer.
func bare(t *testing.T, sock *net.UnixConn) *Conn {
	t.Helper()
	c, err := newConn(sock, Peer{Pidfd: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sockets(t *testing.T) [2]*net.UnixConn {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		sock, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = sock.(*net.UnixConn)
		t.Cleanup(func() { sock.Close() })
	}
	return ends
}

func newHome(t testing.TB) home.Dir {
	t.Helper()
	d := home.Dir{Path: filepath.Join(t.TempDir(), "home")}
	if err := d.Ensure(); err != nil {
		t.Fatal(err)
	}
	return d
}

func listen(t testing.TB) (*Listener, home.Dir) {
	t.Helper()
	d := newHome(t)
	l, err := Listen(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, d
}

func dial(t testing.TB, d home.Dir) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// raw is a client that does not keep to the rules.
func raw(t *testing.T, d home.Dir) *net.UnixConn {
	t.Helper()
	c, err := d.DialUnix(t.Context(), home.HandoffSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func accept(t *testing.T, l *Listener) *Conn {
	t.Helper()
	c, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve answers every request with its attempt, until it is ended, which waits
// for those it has begun. It refuses enqueues that do not bring one descriptor.
func serve(l *Listener) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var under sync.WaitGroup
	under.Go(func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			under.Go(func() { answer(ctx, c) })
		}
	})
	return func() { cancel(); under.Wait() }
}

func answer(ctx context.Context, c *Conn) {
	defer c.Close()
	f, err := c.Receive(ctx)
	if err != nil {
		c.Refuse(ctx, err)
		return
	}
	defer f.CloseFds()
	var ask Ask
	switch {
	case f.Type == "enqueue" && f.Came != 1:
		_ = c.Send(ctx, Answer{Code: "count", Message: fmt.Sprintf("%d descriptors came", f.Came)})
	case f.Decode(&ask) == nil:
		_ = c.Send(ctx, Answer{OK: true, Attempt: ask.Attempt}, f.Fds...)
	}
}

// mustAnswer makes a request that has nothing wrong with it.
func mustAnswer(t testing.TB, d home.Dir) {
	t.Helper()
	c := dial(t, d)
	defer c.Close()
	f, err := c.Exchange(t.Context(), Ask{Attempt: "me"})
	if err != nil {
		t.Fatal(err)
	}
	var a Answer
	if err := f.Decode(&a); err != nil || !a.OK || a.Attempt != "me" {
		t.Fatalf("%+v, %v", a, err)
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// sameFDs tells whether no more descriptors are open than before. What leaked
// stays open; what another goroutine is about to close does not.
func sameFDs(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if openFDs(t) <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d descriptors open, had %d: %s", openFDs(t), before, strings.Join(fdNames(), " "))
}

func fdNames() (names []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		to, _ := os.Readlink("/proc/self/fd/" + e.Name())
		names = append(names, e.Name()+"="+to)
	}
	return names
}

// locked makes a file and takes its lock.
func locked(t testing.TB) (fd int, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "lane.lock")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	return fd, path
}

// held and freed ask the kernel, as somebody who has nothing to do with it.
// The kernel lets go of what was on its way in a socket some time after those
// at its ends know that it is closed, so freed waits.
func held(t *testing.T, path string) bool { return !lockable(t, path, "--nonblock") }

func freed(t *testing.T, path string) bool { return lockable(t, path, "--timeout=60") }

func lockable(t *testing.T, path, how string) bool {
	t.Helper()
	err := exec.Command("flock", how, path, "true").Run()
	if _, refused := errors.AsType[*exec.ExitError](err); err != nil && !refused {
		t.Fatal(err)
	}
	return err == nil
}
