package home

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sockHome makes a home whose path is exactly size bytes long, or of the given
// name if size is 0.
func sockHome(t *testing.T, size int, name string) Dir {
	t.Helper()
	dir := t.TempDir()
	if size > 0 && size < len(dir)+2 {
		dir = shallow(t)
	}
	for size > 0 && size-len(dir)-1 > 255 {
		dir = filepath.Join(dir, strings.Repeat("d", 200))
	}
	if size > 0 {
		name = strings.Repeat("x", size-len(dir)-1)
	}
	d := Dir{Path: filepath.Join(dir, name)}
	if err := os.MkdirAll(filepath.Dir(d.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Ensure(); err != nil {
		t.Fatal(err)
	}
	return d
}

// shallow is a directory in which sockets can be bound by their paths, however
// deep TMPDIR is.
func shallow(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func sockListen(t *testing.T, d Dir) *net.UnixListener {
	t.Helper()
	l, err := d.ListenUnix(APISocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// says answers every connection with a word until it is closed.
func says(l *net.UnixListener, word string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, word)
		c.Close()
	}
}

func hear(t *testing.T, d Dir) string {
	t.Helper()
	c, err := d.DialUnix(t.Context(), APISocket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	word, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(word)
}

// C110: the kernel takes 107 bytes and a NUL.
func TestSocketOfAnyHome(t *testing.T) {
	socket := len("/" + APISocket)
	for _, tt := range []struct {
		name string
		home Dir
	}{
		{"103 bytes", sockHome(t, 103-socket, "")},
		{"104 bytes", sockHome(t, 104-socket, "")},
		{"107 bytes", sockHome(t, 107-socket, "")},
		{"108 bytes", sockHome(t, 108-socket, "")},
		{"200 bytes", sockHome(t, 200-socket, "")},
		{"2,000 bytes", sockHome(t, 2000-socket, "")},
		{"a blank and a newline", sockHome(t, 0, "a b\nc")},
		{"many-byte letters", sockHome(t, 0, strings.Repeat("家😀", 30))},
		{"a leading @", sockHome(t, 0, "@home")},
	} {
		l := sockListen(t, tt.home)
		go says(l, tt.name)
		if got := hear(t, tt.home); got != tt.name {
			t.Errorf("%s: heard %q", tt.name, got)
		}
	}
}

func TestSocketThroughALinkIsTheSame(t *testing.T) {
	d := sockHome(t, 0, "home")
	go says(sockListen(t, d), "here")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(d.Path), link); err != nil {
		t.Fatal(err)
	}
	if got := hear(t, Dir{Path: filepath.Join(link, "home")}); got != "here" {
		t.Errorf("heard %q", got)
	}
}

func TestHomesDoNotShareASocket(t *testing.T) {
	long := strings.Repeat("h", 150)
	a, b := sockHome(t, 0, long+"a"), sockHome(t, 0, long+"b")
	go says(sockListen(t, a), "a")
	go says(sockListen(t, b), "b")
	if got := hear(t, a) + hear(t, b); got != "ab" {
		t.Errorf("heard %q", got)
	}
}

func umask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

// C131: between its name and its mode there is no moment.
func TestSocketIsPrivateFromItsFirstInstant(t *testing.T) {
	d := sockHome(t, 0, "home")
	umask(t, 0)
	p, err := d.place(APISocket)
	if err != nil {
		t.Fatal(err)
	}
	defer p.dir.Close()
	fd, err := p.bind("fresh")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if mode := modeOf(t, filepath.Join(d.Path, "fresh")); mode != os.ModeSocket|0o600 {
		t.Errorf("just bound it has mode %v", mode)
	}
}

func TestSocketModeWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o777} {
		d := sockHome(t, 0, "home")
		umask(t, mask)
		go says(sockListen(t, d), "here")
		if mode := modeOf(t, filepath.Join(d.Path, APISocket)); mode != os.ModeSocket|0o600 {
			t.Errorf("umask %04o: mode %v", mask, mode)
		}
		if got := hear(t, d); got != "here" {
			t.Errorf("umask %04o: heard %q", mask, got)
		}
		syscall.Umask(0o022)
	}
}

func TestListenReplacesWhatIsThere(t *testing.T) {
	d := sockHome(t, 0, "home")
	path := filepath.Join(d.Path, APISocket)
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		put  func() error
	}{
		{"nothing", func() error { return nil }},
		{"a socket whose listener is gone", func() error { l, err := d.ListenUnix(APISocket); l.Close(); return err }},
		{"a socket somebody listens at", func() error { sockListen(t, d); return nil }},
		{"a file", func() error { os.Remove(path); return os.WriteFile(path, nil, 0o600) }},
		{"a link", func() error { os.Remove(path); return os.Symlink(target, path) }},
	} {
		if err := tt.put(); err != nil {
			t.Fatal(err)
		}
		l := sockListen(t, d)
		go says(l, tt.name)
		if got := hear(t, d); got != tt.name {
			t.Errorf("over %s: heard %q", tt.name, got)
		}
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "theirs" {
		t.Errorf("the target of the link: %q, %v", text, err)
	}
	if names := listed(t, d); len(names) != 1 {
		t.Errorf("left in the home: %q", names)
	}
}

func listed(t *testing.T, d Dir) []string {
	t.Helper()
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestListenThatCannotLeavesNothing(t *testing.T) {
	d := sockHome(t, 0, "home")
	if err := os.MkdirAll(filepath.Join(d.Path, APISocket, "in it"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := openFDs(t)
	if _, err := d.ListenUnix(APISocket); !isUnusable(err) {
		t.Errorf("over a directory: %v", err)
	}
	if _, err := (Dir{Path: filepath.Join(d.Path, "none")}).ListenUnix(APISocket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a home: %v", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	if names := listed(t, d); len(names) != 1 {
		t.Errorf("left in the home: %q", names)
	}
}

func isUnusable(err error) bool { _, ok := errors.AsType[*Unusable](err); return ok }

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestNobodyListens(t *testing.T) {
	for _, tt := range []struct {
		name string
		put  func(d Dir) error
	}{
		{"no socket", func(Dir) error { return nil }},
		{"no home", func(d Dir) error { return os.Remove(d.Path) }},
		{"a socket whose listener is gone", func(d Dir) error { l, err := d.ListenUnix(APISocket); l.Close(); return err }},
		{"a file", func(d Dir) error { return os.WriteFile(filepath.Join(d.Path, APISocket), nil, 0o600) }},
	} {
		d := sockHome(t, 0, "home")
		if err := tt.put(d); err != nil {
			t.Fatal(err)
		}
		before := openFDs(t)
		_, err := d.DialUnix(t.Context(), APISocket)
		nobody, ok := errors.AsType[*Nobody](err)
		if !ok || nobody.Path != filepath.Join(d.Path, APISocket) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if after := openFDs(t); after != before {
			t.Errorf("%s: %d descriptors open, had %d", tt.name, after, before)
		}
	}
}

func TestNameStaysWhenTheListenerIsClosed(t *testing.T) {
	d := sockHome(t, 0, "home")
	l := sockListen(t, d)
	l.Close()
	if names := listed(t, d); len(names) != 1 || names[0] != APISocket {
		t.Errorf("in the home: %q", names)
	}
}

// A crowd that connects at once is not told that it may not (the kernel says
// EAGAIN), it waits for its turn.
func TestFullBacklogIsWaitedFor(t *testing.T) {
	d := sockHome(t, 0, "home")
	p, err := d.place(APISocket)
	if err != nil {
		t.Fatal(err)
	}
	defer p.dir.Close()
	fd, err := p.bind(APISocket)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Listen(fd, 0); err != nil { // room for one
		t.Fatal(err)
	}
	first, err := d.DialUnix(t.Context(), APISocket)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*dialStep)
	defer cancel()
	if _, err := d.DialUnix(ctx, APISocket); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("with a full backlog: %v", err)
	}
	second := make(chan error, 1)
	go func() {
		c, err := d.DialUnix(t.Context(), APISocket)
		if err == nil {
			c.Close()
		}
		second <- err
	}()
	for range 2 {
		unix.SetNonblock(fd, false)
		c, _, err := unix.Accept(fd)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(c)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestOnlyAListenerBecomesOne(t *testing.T) {
	d := sockHome(t, 0, "home")
	socket := func(domain, kind int) int {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	file, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unbound := socket(unix.AF_UNIX, unix.SOCK_STREAM)
	tcp := socket(unix.AF_INET, unix.SOCK_STREAM)
	if err := unix.Listen(tcp, 1); err != nil {
		t.Fatal(err)
	}
	seq := socket(unix.AF_UNIX, unix.SOCK_SEQPACKET)
	if err := unix.Bind(seq, &unix.SockaddrUnix{Name: filepath.Join(shallow(t), "seq")}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(seq, 1); err != nil {
		t.Fatal(err)
	}
	go says(sockListen(t, d), "here")
	c, err := d.DialUnix(t.Context(), APISocket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for name, fd := range map[string]int{"a file": file, "not listening": unbound, "TCP": tcp, "packets": seq, "connected": int(raw.Fd()), "nothing": 99999} {
		if _, err := UnixListenerFrom(fd); err == nil {
			t.Errorf("%s became a listener", name)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil && fd != 99999 {
			t.Errorf("%s: the refused descriptor was closed", name)
		}
	}
	for _, fd := range []int{file, unbound, tcp, seq} {
		unix.Close(fd)
	}
}

// L21: the new dispatcher listens at the same socket, and no client notices.
func TestListenerGoesOnElsewhere(t *testing.T) {
	d := sockHome(t, 0, "home")
	before := openFDs(t)
	old, err := d.ListenUnix(APISocket)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := UnixListenerFd(old)
	if err != nil {
		t.Fatal(err)
	}
	next, err := UnixListenerFrom(fd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat("/proc/self/fd/" + strconv.Itoa(fd)); err == nil {
		t.Error("the descriptor that became a listener is still open")
	}
	old.Close()
	go says(next, "next")
	if got := hear(t, d); got != "next" {
		t.Errorf("heard %q", got)
	}
	next.Close()
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
}

func TestIsSocketKnowsItsHome(t *testing.T) {
	a, b := Dir{Path: shallow(t)}, Dir{Path: shallow(t)}
	for _, d := range []Dir{a, b} {
		sockListen(t, d)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(a.Path, HandoffSocket)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !a.IsSocket(HandoffSocket, l) {
		t.Error("not the socket of its own home")
	}
	if a.IsSocket(APISocket, l) || b.IsSocket(HandoffSocket, l) || b.IsSocket(APISocket, l) {
		t.Error("the socket of another")
	}
	// Somebody listened under that name since, and is gone.
	since, err := a.ListenUnix(HandoffSocket)
	if err != nil {
		t.Fatal(err)
	}
	since.Close()
	if a.IsSocket(HandoffSocket, l) {
		t.Error("nobody finds it any more")
	}
}
