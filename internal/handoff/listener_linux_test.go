package handoff

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
	"golang.org/x/sys/unix"
)

func TestPeerIsWhoTheKernelSays(t *testing.T) {
	l, d := listen(t)
	a := dial(t, d)
	c := accept(t, l)
	p := c.Peer()
	if p.Pid != os.Getpid() || p.UID != os.Geteuid() || p.Gone {
		t.Errorf("%+v", p)
	}
	if back := a.Peer(); back.UID != os.Geteuid() {
		t.Errorf("of the listener: %+v", back)
	}
	if !hasPeerPidfd(c) {
		if p.Pidfd != -1 {
			t.Errorf("%+v on a kernel without", p)
		}
		return
	}
	if err := unix.PidfdSendSignal(p.Pidfd, 0, nil, 0); err != nil {
		t.Errorf("its pidfd: %v", err)
	}
	if flags, err := unix.FcntlInt(uintptr(p.Pidfd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("its pidfd: flags %#x, %v", flags, err)
	}
}

// hasPeerPidfd tells whether this kernel knows the option at all.
func hasPeerPidfd(c *Conn) bool {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		var pidfd int
		if pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			unix.Close(pidfd)
		}
	})
	return err != unix.ENOPROTOOPT
}

func TestPeerThatIsGoneIsKnownToBe(t *testing.T) {
	l, d := listen(t)
	pid := visit(t, d)
	c := accept(t, l)
	p := c.Peer()
	if p.Gone != hasPeerPidfd(c) || p.Pid != pid {
		t.Errorf("%+v, want pid %d, gone", p, pid)
	}
}

func TestPidfdIsClosedUnlessTaken(t *testing.T) {
	l, d := listen(t)
	before := openFDs(t)
	for _, take := range []bool{false, true} {
		a, c := dial(t, d), accept(t, l)
		fd := -1
		if take {
			fd = c.TakePidfd()
		}
		c.Close()
		c.Close()
		a.Close()
		if take {
			if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
				t.Errorf("the taken pidfd: %v", err)
			}
			unix.Close(fd)
		}
		sameFDs(t, before)
	}
}

// as lets the rest of the test run as another user, as far as this room sees.
func as(t *testing.T, uid int) {
	t.Helper()
	old := self
	self = uid
	t.Cleanup(func() { self = old })
}

// refusals collects what a listener says of those it sent away.
func refusals(l *Listener) chan error {
	said := make(chan error, 10_000)
	l.Refused = func(_ Peer, err error) { said <- err }
	return said
}

// accepting runs Accept until the test ends; what it returns is an error.
func accepting(t *testing.T, l *Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(ctx); err == nil {
			t.Errorf("accepted %+v", c.Peer())
			c.Close()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// C131: a peer of another user gets a refusal, and what it sent is closed.
func TestForeignUserIsRefused(t *testing.T) {
	l, d := listen(t)
	before := openFDs(t)
	c := raw(t, d)
	fd, path := locked(t)
	frame, _ := encode(Enqueue{})
	sendRaw(t, c, string(frame), []int{fd})
	unix.Close(fd)
	as(t, os.Geteuid()+1)
	said := refusals(l)
	accepting(t, l)
	foreign, ok := errors.AsType[*Foreign](<-said)
	if !ok || foreign.UID != os.Geteuid() || foreign.Ours != os.Geteuid()+1 {
		t.Errorf("%v", foreign)
	}
	f, err := bare(t, c).Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var a Answer
	if err := f.Decode(&a); err != nil || a.OK || a.Code != CodeForeign || a.Message != foreign.Error() {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%v", err)
	}
	if !freed(t, path) {
		t.Error("what it sent is held")
	}
	c.Close()
	sameFDs(t, before)
}

// The same with a real one, where we can be one. Root's own uid is no
// exception: it is not ours.
func TestForeignUserCannotConnectEvenIfTheModeLetsIt(t *testing.T) {
	l, d := listen(t)
	said := refusals(l)
	path := filepath.Join(d.Path, home.HandoffSocket)
	if os.Geteuid() != 0 { // nobody else can be had: the mode is the guard
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		return
	}
	for dir := d.Path; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := connectAs(path, 65534); !errors.Is(err, unix.EACCES) {
		t.Errorf("with mode 0600: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := connectAs(path, 65534); err != nil {
		t.Fatalf("with mode 0666: %v", err)
	}
	accepting(t, l)
	if foreign, ok := errors.AsType[*Foreign](<-said); !ok || foreign.UID != 65534 {
		t.Errorf("%v", foreign)
	}
}

// connectAs connects as another user, on a thread that ends with it. The thread
// goes to the socket's directory, whose path may be too long for an address.
func connectAs(path string, uid int) error {
	said := make(chan error)
	go func() {
		runtime.LockOSThread() // never undone: the thread is not to be used again
		said <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Chdir(filepath.Dir(path)); err != nil {
				return err
			}
			u := uintptr(uid)
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, u, u, u); errno != 0 {
				return errno
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Base(path)})
		}()
	}()
	return <-said
}

func TestOwnTellsForeigners(t *testing.T) {
	before := openFDs(t)
	ends := sockets(t)
	if p, err := Own(ends[0]); err != nil || p.UID != os.Geteuid() || p.Pid != os.Getpid() || p.Pidfd != -1 {
		t.Errorf("%+v, %v", p, err)
	}
	as(t, os.Geteuid()+1)
	if _, err := Own(ends[0]); !isForeign(err) {
		t.Errorf("a foreigner: %v", err)
	}
	for _, end := range ends {
		end.Close()
	}
	sameFDs(t, before)
}

// A client speaks to its own user's dispatcher, or to root's systemd that
// listens for it, and to nobody else.
func TestDialRefusesAForeignListener(t *testing.T) {
	_, d := listen(t)
	before := openFDs(t)
	as(t, os.Geteuid()+1)
	c, err := Dial(t.Context(), d)
	if root := os.Geteuid() == 0; root && err != nil || !root && !isForeign(err) {
		t.Errorf("%v", err)
	}
	if err == nil {
		c.Close()
	}
	sameFDs(t, before)
}

func isForeign(err error) bool { _, ok := errors.AsType[*Foreign](err); return ok }

func TestNobodyListensIsSaid(t *testing.T) {
	d := newHome(t)
	_, err := Dial(t.Context(), d)
	if nobody, ok := errors.AsType[*home.Nobody](err); !ok || nobody.Path != filepath.Join(d.Path, home.HandoffSocket) {
		t.Errorf("%v", err)
	}
}

// C096: another version is told so in one line, in both directions, and a crowd
// of such clients gets nothing else.
func TestOtherVersionIsAnsweredInOneLine(t *testing.T) {
	l, d := listen(t)
	defer serve(l)()
	before := openFDs(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			c := raw(t, d)
			frame, _ := encodeAs(Protocol+1, Ask{Attempt: "x"})
			c.Write(frame)
			f, err := bare(t, c).Receive(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			var a Answer
			if err := f.Decode(&a); err != nil || a.Code != CodeVersion || strings.Contains(a.Message, "\n") ||
				!strings.Contains(a.Message, "version 2") || !strings.Contains(a.Message, "version 1") {
				t.Errorf("%+v, %v", a, err)
			}
			c.Close()
		})
	}
	all.Wait()
	mustAnswer(t, d)
	settled(t, l)
	sameFDs(t, before)
}

func TestAnswerOfAnotherVersionIsSaidInOneLine(t *testing.T) {
	l, d := listen(t)
	go func() {
		c, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		defer c.Close()
		frame, _ := encodeAs(Protocol+1, Answer{Code: CodeVersion})
		c.sock.Write(frame)
	}()
	_, err := dial(t, d).Exchange(t.Context(), Ask{Attempt: strings.Repeat("x", 500_000)})
	version, ok := errors.AsType[*VersionError](err)
	if !ok || version.Theirs != Protocol+1 || version.Serving {
		t.Errorf("%v", err)
	}
}

// settled waits until no connection is open at the listener.
func settled(t *testing.T, l *Listener) {
	t.Helper()
	for {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		if open == 0 {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("connections stay open")
		}
		runtime.Gosched()
	}
}

// C066: many refused requests that bring descriptors leave none.
func TestRefusedRequestsLeaveNoDescriptor(t *testing.T) {
	l, d := listen(t)
	defer serve(l)()
	mustAnswer(t, d)
	settled(t, l)
	before := openFDs(t)
	fd, path := locked(t)
	rnd := rand.New(rand.NewPCG(1, 66))
	counts := []int{0, 2, 2, 2, 3, 5, 64, MaxFds}
	fds := make([]int, MaxFds)
	for i := range fds {
		fds[i] = fd
	}
	var all sync.WaitGroup
	const workers = 4
	for range workers {
		sizes := make([]int, soak(10_000, 100_000)/workers)
		for i := range sizes {
			sizes[i] = counts[rnd.IntN(len(counts))]
			if rnd.IntN(10) > 0 {
				sizes[i] = min(sizes[i], 2)
			}
		}
		all.Go(func() {
			for _, n := range sizes {
				c, err := Dial(t.Context(), d)
				if err != nil {
					t.Error(err)
					return
				}
				f, err := c.Exchange(t.Context(), Enqueue{}, fds[:n]...)
				c.Close()
				var a Answer
				if err == nil {
					err = f.Decode(&a)
				}
				if err != nil || a.OK || a.Code != "count" {
					t.Errorf("%d descriptors: %+v, %v", n, a, err)
					return
				}
			}
		})
	}
	all.Wait()
	unix.Close(fd)
	settled(t, l)
	sameFDs(t, before)
	if !freed(t, path) {
		t.Error("still held")
	}
	mustAnswer(t, d)
}

// C033: clients that leave at any byte of request and answer, descriptors on
// the way or not, harm nobody.
func TestClientsThatLeaveHarmNobody(t *testing.T) {
	l, d := listen(t)
	defer serve(l)()
	mustAnswer(t, d)
	settled(t, l)
	before := openFDs(t)
	fd, path := locked(t)
	rnd := rand.New(rand.NewPCG(2, 33))
	frame, _ := encode(Ask{Attempt: strings.Repeat("x", 2000)})
	for n := range soak(5_000, 50_000) {
		c, err := d.DialUnix(t.Context(), home.HandoffSocket)
		if err != nil {
			t.Fatal(err)
		}
		at := rnd.IntN(len(frame) + 1)
		var rights []byte
		if n%2 == 0 && at > 0 {
			rights = unix.UnixRights([]int{fd, fd}[:1+rnd.IntN(2)]...)
		}
		if _, _, err := c.WriteMsgUnix(frame[:at], rights, nil); err != nil && !errors.Is(err, unix.EPIPE) {
			t.Fatal(err)
		}
		switch n % 4 {
		case 0: // with the rest unread: the server's end is reset
		case 1:
			c.CloseWrite()
			io.CopyN(io.Discard, c, int64(rnd.IntN(50)))
		case 2:
			c.CloseRead()
		case 3:
			if at == len(frame) {
				io.CopyN(io.Discard, c, int64(rnd.IntN(1000)))
			}
		}
		c.Close()
	}
	unix.Close(fd)
	mustAnswer(t, d)
	settled(t, l)
	sameFDs(t, before)
	if !freed(t, path) {
		t.Error("still held")
	}
}

func TestGarbageHarmsNobody(t *testing.T) {
	l, d := listen(t)
	defer serve(l)()
	mustAnswer(t, d)
	settled(t, l)
	before := openFDs(t)
	rnd := rand.NewChaCha8([32]byte{96})
	for range soak(500, 10_000) {
		c := raw(t, d)
		noise := make([]byte, 64)
		rnd.Read(noise)
		c.Write(noise)
		c.Close()
	}
	mustAnswer(t, d)
	settled(t, l)
	sameFDs(t, before)
}

// C136: sleepers, with nothing or a byte or half a frame, are no obstacle. Time
// is out of the game: here they would be let sleep for an hour.
func TestSleepersKeepNobodyWaiting(t *testing.T) {
	l, d := listen(t)
	l.FrameTime = time.Hour
	end := serve(l)
	before := openFDs(t)
	var sleepers []*net.UnixConn
	for i := range 2*Connections - 12 {
		c := raw(t, d)
		c.Write([]byte("\x00\x10\x00\x00{")[:i%6])
		sleepers = append(sleepers, c)
		if i%50 == 0 {
			mustAnswer(t, d)
		}
	}
	mustAnswer(t, d)
	l.mu.Lock()
	if l.open > Connections {
		t.Errorf("%d connections are open", l.open)
	}
	l.mu.Unlock()
	// The first ones made room, and were told.
	f, err := bare(t, sleepers[0]).Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var a Answer
	if err := f.Decode(&a); err != nil || a.Code != CodeBusy || !a.Retryable || a.Class != "resource" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, c := range sleepers {
		c.Close()
	}
	settled(t, l)
	sameFDs(t, before)
	end()
}

// Who is being served keeps its place; then the newcomer is told that we are
// busy, and may come again.
func TestServedConnectionsKeepTheirPlace(t *testing.T) {
	l, d := listen(t)
	l.Connections = 2
	said := refusals(l)
	var served, clients []*Conn
	for range 2 {
		a := dial(t, d)
		if err := a.Send(t.Context(), Ask{}); err != nil {
			t.Fatal(err)
		}
		c := accept(t, l)
		if _, err := c.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		served, clients = append(served, c), append(clients, a)
	}
	late := dial(t, d)
	got := make(chan *Conn, 1)
	go func() { c, _ := l.Accept(t.Context()); got <- c }()
	if err := <-said; Complaint(err).Code != CodeBusy {
		t.Fatalf("%v", err)
	}
	f, err := late.Exchange(t.Context(), Ask{})
	var a Answer
	if err != nil || f.Decode(&a) != nil || a.Code != CodeBusy || !a.Retryable {
		t.Fatalf("the newcomer: %+v, %v", a, err)
	}
	if err := served[0].Send(t.Context(), Answer{OK: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients[0].Receive(t.Context()); err != nil {
		t.Errorf("who was there first: %v", err)
	}
	served[0].Close()
	next := dial(t, d)
	c := <-got
	if c == nil {
		t.Fatal("nobody was accepted after a place came free")
	}
	defer c.Close()
	if err := next.Send(t.Context(), Ask{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(t.Context()); err != nil {
		t.Error(err)
	}
}

// A connection that was served and is waited for again comes after those that
// never said anything whole, and before a refusal.
func TestIdleConnectionsMakeRoomLast(t *testing.T) {
	l, d := listen(t)
	l.Connections = 2
	l.FrameTime = time.Hour
	spoke := dial(t, d)
	if err := spoke.Send(t.Context(), Ask{}); err != nil {
		t.Fatal(err)
	}
	idleConn := accept(t, l)
	if _, err := idleConn.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	idles := make(chan error, 1)
	go func() { _, err := idleConn.Receive(t.Context()); idles <- err }()
	for waits := false; !waits; runtime.Gosched() {
		l.mu.Lock()
		waits = len(l.idle) == 1
		l.mu.Unlock()
	}
	dial(t, d)
	sleeper := accept(t, l)
	dial(t, d)
	second := accept(t, l) // the sleeper went
	if _, err := sleeper.Receive(t.Context()); Complaint(err).Code != CodeBusy {
		t.Errorf("the sleeper: %v", err)
	}
	l.mu.Lock()
	l.move(second, served)
	l.mu.Unlock()
	dial(t, d)
	accept(t, l) // and now the idle one
	if err := <-idles; Complaint(err).Code != CodeBusy {
		t.Errorf("the idle one: %v", err)
	}
}

// A message that was read whole at the moment its connection was sent away is
// refused, with what it brought: it cannot be both.
func TestOustedConnectionDeliversNothing(t *testing.T) {
	l, d := listen(t)
	l.Connections = 1
	a := dial(t, d)
	fd, path := locked(t)
	if err := a.Send(t.Context(), Ask{}, fd); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	c := accept(t, l)
	if l.longest() != c { // as oust does, without closing the socket yet
		t.Fatal("another was the longest")
	}
	if f, err := c.Receive(t.Context()); Complaint(err).Code != CodeBusy {
		t.Errorf("%+v, %v", f, err)
	}
	if !freed(t, path) {
		t.Error("still held")
	}
	c.Close()
	if l.open != 0 {
		t.Errorf("%d places taken", l.open)
	}
}

// Where no connection can be opened, the one that kept us waiting longest goes;
// if there is none, Accept waits, and the listener lives.
func TestAcceptSurvivesTheDescriptorLimit(t *testing.T) {
	l, d := listen(t)
	l.FrameTime = time.Hour
	a := dial(t, d)
	sleeper := accept(t, l)
	b := dial(t, d)
	lift := atLimit(t, 0)
	c, err := l.Accept(t.Context()) // in the sleeper's place
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sleeper.Receive(t.Context()); Complaint(err).Code != CodeBusy {
		t.Errorf("the sleeper: %v", err)
	}
	lift()
	if err := b.Send(t.Context(), Ask{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(t.Context()); err != nil {
		t.Error(err)
	}
	a.Close()
}

func TestAcceptWaitsAtTheDescriptorLimit(t *testing.T) {
	l, d := listen(t)
	a := dial(t, d)
	lift := atLimit(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 3*retryAccept)
	defer cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	lift()
	c := accept(t, l)
	if err := a.Send(t.Context(), Ask{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestClosedListenerSaysSo(t *testing.T) {
	l, _ := listen(t)
	l.Close()
	if _, err := l.Accept(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// L21: the socket goes to another listener, with those who wait at it.
func TestHandedOverListenerServesWhoWaited(t *testing.T) {
	l, d := listen(t)
	before := openFDs(t)
	waiting := dial(t, d)
	fd, err := l.Fd()
	if err != nil {
		t.Fatal(err)
	}
	next, err := ListenerFrom(fd)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	end := serve(next)
	if _, err := waiting.Exchange(t.Context(), Ask{}); err != nil {
		t.Error(err)
	}
	mustAnswer(t, d)
	end()
	waiting.Close()
	next.Close()
	sameFDs(t, before-1)
	if _, err := ListenerFrom(99_999); err == nil {
		t.Error("a listener of nothing")
	}
}
