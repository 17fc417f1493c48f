package handoff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPassedLaneHasNoGap(t *testing.T) {
	a, b := pair(t)
	fd, path := locked(t)
	if err := a.Send(t.Context(), Ask{Attempt: "x"}, fd); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd) // the sender's copy; on the way it is held as well
	if !held(t, path) {
		t.Fatal("free on the way")
	}
	f, err := b.Receive(t.Context())
	if err != nil || f.Came != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	if !held(t, path) {
		t.Fatal("free with the receiver")
	}
	f.CloseFds()
	if !freed(t, path) {
		t.Fatal("still held after the receiver closed it")
	}
}

func TestConnectionThatEndsDropsWhatIsOnTheWay(t *testing.T) {
	a, b := pair(t)
	fd, path := locked(t)
	if err := a.Send(t.Context(), Ask{Attempt: "x"}, fd); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	b.Close()
	a.Close()
	if !freed(t, path) {
		t.Error("held by nobody")
	}
}

// sendRaw writes bytes and descriptors as it is told, in as many control
// messages as there are lists.
func sendRaw(t *testing.T, c *net.UnixConn, text string, rights ...[]int) {
	t.Helper()
	var control []byte
	for _, fds := range rights {
		control = append(control, unix.UnixRights(fds...)...)
	}
	if n, _, err := c.WriteMsgUnix([]byte(text), control, nil); err != nil || n != len(text) {
		t.Fatalf("wrote %d: %v", n, err)
	}
}

// C066, C068: descriptors in every number and at every place.
func TestEveryDescriptorIsKeptOrClosed(t *testing.T) {
	enqueue, err := encode(Enqueue{})
	if err != nil {
		t.Fatal(err)
	}
	text := string(enqueue)
	times := func(n int, fd int) []int {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = fd
		}
		return fds
	}
	for _, tt := range []struct {
		name string
		send func(c *net.UnixConn, fd int)
		came int    // in a frame that is received,
		code string // or why it is not
	}{
		{"none", func(c *net.UnixConn, fd int) { sendRaw(t, c, text) }, 0, ""},
		{"one", func(c *net.UnixConn, fd int) { sendRaw(t, c, text, []int{fd}) }, 1, ""},
		{"the same twice", func(c *net.UnixConn, fd int) { sendRaw(t, c, text, []int{fd, fd}) }, 2, ""},
		{"in two control messages", func(c *net.UnixConn, fd int) { sendRaw(t, c, text, []int{fd}, []int{fd}) }, 2, ""},
		{"64", func(c *net.UnixConn, fd int) { sendRaw(t, c, text, times(64, fd)) }, 64, ""},
		{"253", func(c *net.UnixConn, fd int) { sendRaw(t, c, text, times(253, fd)) }, 253, ""},
		{"one, byte by byte", func(c *net.UnixConn, fd int) {
			sendRaw(t, c, text[:1], []int{fd})
			for i := 1; i < len(text); i++ {
				sendRaw(t, c, text[i:i+1])
			}
		}, 1, ""},
		{"one on the second byte", func(c *net.UnixConn, fd int) {
			sendRaw(t, c, text[:1])
			sendRaw(t, c, text[1:], []int{fd})
		}, 0, CodeMisplaced},
		{"one on the first byte of the object", func(c *net.UnixConn, fd int) {
			sendRaw(t, c, text[:4])
			sendRaw(t, c, text[4:], []int{fd})
		}, 0, CodeMisplaced},
		{"one on the last byte", func(c *net.UnixConn, fd int) {
			sendRaw(t, c, text[:len(text)-1])
			sendRaw(t, c, text[len(text)-1:], []int{fd})
		}, 0, CodeMisplaced},
		{"one on the first byte and one on the last", func(c *net.UnixConn, fd int) {
			sendRaw(t, c, text[:len(text)-1], []int{fd})
			sendRaw(t, c, text[len(text)-1:], []int{fd})
		}, 0, CodeMisplaced},
		{"one with a frame that is none", func(c *net.UnixConn, fd int) { sendRaw(t, c, frameOf("no"), []int{fd}) }, 0, CodeFrame},
		{"one with a gigabyte", func(c *net.UnixConn, fd int) { sendRaw(t, c, "\x40\x00\x00\x00", []int{fd}) }, 0, CodeFrame},
		{"one with half a frame", func(c *net.UnixConn, fd int) { sendRaw(t, c, text[:9], []int{fd}); c.CloseWrite() }, 0, CodeFrame},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := openFDs(t)
			ends := sockets(t)
			c := bare(t, ends[1])
			c.Allow(1)
			fd, path := locked(t)
			tt.send(ends[0], fd)
			unix.Close(fd)
			f, err := c.Receive(t.Context())
			switch {
			case tt.code == "" && err != nil:
				t.Fatal(err)
			case tt.code == "" && (f.Came != tt.came || len(f.Fds) > 1):
				t.Errorf("%d came, %d kept", f.Came, len(f.Fds))
			case tt.code != "" && Complaint(err).Code != tt.code:
				t.Errorf("%v, want code %s", err, tt.code)
			}
			if f != nil && f.Came == 1 {
				if !held(t, path) {
					t.Error("what was received holds nothing")
				}
				f.CloseFds()
			}
			if !freed(t, path) {
				t.Error("still held")
			}
			if tt.code != "" { // there is no next frame after one that was none
				ends[0].Write(enqueue)
				if f, again := c.Receive(t.Context()); !errors.Is(again, err) {
					t.Errorf("read on: %v, %v", f, again)
				}
			}
			c.Close()
			ends[0].Close()
			sameFDs(t, before)
		})
	}
}

// Where the kernel was told to add who sent it, that comes as control data too.
// It is nothing we asked for, and hides no descriptor from being closed.
func TestOtherControlDataIsRefused(t *testing.T) {
	before := openFDs(t)
	ends := sockets(t)
	c := bare(t, ends[1])
	c.raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
			t.Error(err)
		}
	})
	fd, path := locked(t)
	sendRaw(t, ends[0], frameOf(ping), []int{fd})
	unix.Close(fd)
	if f, err := c.Receive(t.Context()); Complaint(err).Code != CodeMisplaced {
		t.Errorf("%+v, %v", f, err)
	}
	if !freed(t, path) {
		t.Error("still held")
	}
	c.Close()
	ends[0].Close()
	sameFDs(t, before)
}

// C068: two requests written back to back, without a reader in between.
func TestRequestsBackToBackKeepTheirDescriptors(t *testing.T) {
	a, b := pair(t)
	one, onePath := locked(t)
	two, twoPath := locked(t)
	for i, fds := range [][]int{{}, {one}, {}, {two}} {
		if err := a.Send(t.Context(), Ask{Attempt: fmt.Sprint(i)}, fds...); err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(one)
	unix.Close(two)
	for i, path := range []string{"", onePath, "", twoPath} {
		f, err := b.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ask Ask
		if err := f.Decode(&ask); err != nil || ask.Attempt != fmt.Sprint(i) {
			t.Fatalf("request %d: %+v, %v", i, ask, err)
		}
		if path == "" && f.Came != 0 || path != "" && f.Came != 1 {
			t.Fatalf("request %d: %d came", i, f.Came)
		}
		f.CloseFds()
		if path != "" && !freed(t, path) {
			t.Errorf("request %d had the descriptor of another", i)
		}
	}
}

func TestLargeMessagesGoBothWays(t *testing.T) {
	a, b := pair(t)
	fd, path := locked(t)
	big := strings.Repeat("a", 300_000)
	go func() {
		if f, err := b.Receive(context.Background()); err == nil {
			var ask Ask
			_ = f.Decode(&ask)
			_ = b.Send(context.Background(), Answer{OK: true, Attempt: ask.Attempt}, f.Fds...)
			f.CloseFds()
		}
	}()
	f, err := a.Exchange(t.Context(), Ask{Attempt: big}, fd)
	if err != nil || f.Came != 1 {
		t.Fatalf("%v", err)
	}
	unix.Close(fd)
	var answer Answer
	if err := f.Decode(&answer); err != nil || answer.Attempt != big {
		t.Errorf("%d bytes came back: %v", len(answer.Attempt), err)
	}
	if !held(t, path) {
		t.Error("what came back holds nothing")
	}
	f.CloseFds()
}

// L23: the time runs from a frame's first byte to its last, however many come
// in between.
func TestFrameThatTakesTooLongIsCutOff(t *testing.T) {
	for _, tt := range []struct {
		name string
		send func(c *net.UnixConn)
	}{
		{"one byte and silence", func(c *net.UnixConn) { c.Write([]byte{0}) }},
		{"a byte now and then", func(c *net.UnixConn) {
			io.WriteString(c, "\x00\x10\x00\x00{")
			for {
				if _, err := c.Write([]byte{' '}); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}},
	} {
		ends := sockets(t)
		c := bare(t, ends[1])
		c.frame = 50 * time.Millisecond
		done := make(chan struct{})
		go func() { defer close(done); tt.send(ends[0]) }()
		if _, err := c.Receive(t.Context()); Complaint(err).Code != CodeSlow || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", tt.name, err)
		} else if !strings.Contains(err.Error(), "was not finished within 50ms") {
			t.Errorf("%s: %q", tt.name, err)
		}
		c.Close()
		<-done
	}
}

func TestSilenceIsNotWaitedForOnAnAcceptedConnection(t *testing.T) {
	l, d := listen(t)
	l.FrameTime = 20 * time.Millisecond
	dial(t, d)
	c := accept(t, l)
	if _, err := c.Receive(t.Context()); Complaint(err).Code != CodeSlow || !strings.Contains(err.Error(), "nothing came within 20ms") {
		t.Errorf("%v", err)
	}
}

// Whoever waits for a message with a deadline of its own is not cut short.
func TestDeadlineOfTheContextReplacesTheSilence(t *testing.T) {
	l, d := listen(t)
	l.FrameTime = time.Nanosecond
	a := dial(t, d)
	c := accept(t, l)
	c.frame = FrameTime
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	came := make(chan error, 1)
	go func() { _, err := c.Receive(ctx); came <- err }()
	if err := a.Send(t.Context(), Ask{}); err != nil {
		t.Fatal(err)
	}
	if err := <-came; err != nil {
		t.Error(err)
	}
}

// C136: who never reads an answer does not hold up who sends it.
func TestPeerThatReadsNothingIsGivenUp(t *testing.T) {
	a, b := pair(t)
	a.send = 50 * time.Millisecond
	big := Ask{Attempt: strings.Repeat("a", 1_000_000)}
	var err error
	for i := 0; err == nil && i < 50; i++ { // until the kernel takes no more
		err = a.Send(t.Context(), big)
	}
	if Complaint(errors.Unwrap(err)).Code != CodeSlow {
		t.Fatalf("%v", err)
	}
	// A frame was left unfinished: nothing may follow it.
	if again := a.Send(t.Context(), Ask{}); !errors.Is(again, os.ErrDeadlineExceeded) {
		t.Errorf("sent after half a frame: %v", again)
	}
	b.Close()
}

func TestContextEndsACall(t *testing.T) {
	a, b := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() { _, err := a.Receive(ctx); got <- err }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Fatalf("Receive: %v", err)
	}
	if err := a.Send(ctx, Ask{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Send: %v", err)
	}
	// Nothing had come, so it can be waited for again.
	if err := b.Send(t.Context(), Ask{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Receive(t.Context()); err != nil {
		t.Errorf("after a context that ended: %v", err)
	}
	l, _ := listen(t)
	ctx, cancel = context.WithCancel(t.Context())
	go func() { _, err := l.Accept(ctx); got <- err }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("Accept: %v", err)
	}
}

// The end of a context that belongs to an earlier call touches no later one.
func TestLateEndOfAContextTouchesNothing(t *testing.T) {
	var set []time.Time
	k := clock{set: func(by time.Time) error { set = append(set, by); return nil }}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end := k.begin(ctx, 0)
	turn := k.turn
	end()
	k.expire(turn)
	k.begin(ctx, 0)
	k.expire(turn)
	if len(set) != 0 || k.over {
		t.Errorf("deadlines set: %v", set)
	}
	k.expire(k.turn)
	k.allow(time.Hour) // a frame that just began does not revive the call
	k.wait()
	if len(set) != 1 || !set[0].Equal(past) || !k.expired(os.ErrDeadlineExceeded) {
		t.Errorf("deadlines set: %v", set)
	}
	k.begin(ctx, 0)
	if k.expired(os.ErrDeadlineExceeded) || len(set) != 2 || !set[1].IsZero() {
		t.Errorf("a later call has the deadline of one that ended: %v", set)
	}
}

// C064: fifty children are started while descriptors arrive, and none has one.
func TestNoChildInheritsWhatArrives(t *testing.T) {
	a, b := pair(t)
	fd, path := locked(t)
	defer unix.Close(fd)
	ctx, cancel := context.WithCancel(context.Background())
	var moving sync.WaitGroup
	moving.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			fds := []int{fd, fd, fd, fd, fd}[:[]int{1, 2, 5}[n%3]]
			if a.Send(ctx, Ask{}, fds...) != nil {
				return
			}
		}
	})
	moving.Go(func() {
		for {
			f, err := b.Receive(ctx)
			if err != nil {
				return
			}
			f.CloseFds()
		}
	})
	var children sync.WaitGroup
	for range 50 {
		children.Go(func() {
			// What it reads of itself: the descriptors it was given.
			out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("->")) {
				t.Errorf("ls: %v: %s", err, out)
			}
			if bytes.Contains(out, []byte(path)) {
				t.Errorf("a child has it:\n%s", out)
			}
		})
	}
	children.Wait()
	cancel()
	moving.Wait()
	b.Close()
	a.Close()
}

// What the kernel gives is close-on-exec as it arrives, every one of several.
func TestReceivedDescriptorsCloseOnExec(t *testing.T) {
	a, b := pair(t)
	fd, _ := locked(t)
	defer unix.Close(fd)
	if err := a.Send(t.Context(), Ask{}, fd, fd, fd, fd, fd); err != nil {
		t.Fatal(err)
	}
	f, err := b.Receive(t.Context())
	if err != nil || len(f.Fds) != 5 {
		t.Fatalf("%+v, %v", f, err)
	}
	defer f.CloseFds()
	for _, fd := range f.Fds {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %#x, %v", fd, flags, err)
		}
	}
}

// atLimit leaves room for so many descriptors and no more.
func atLimit(t *testing.T, room int) (lift func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	var plugs []int
	high := 0
	for _, name := range fdNames() {
		var fd int
		fmt.Sscanf(name, "%d=", &fd)
		high = max(high, fd)
	}
	for { // the gaps below
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if plugs = append(plugs, fd); fd > high {
			high = fd
			break
		}
	}
	low := limit
	low.Cur = uint64(high + 1 + room)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	lifted := false
	lift = func() {
		if lifted {
			return
		}
		lifted = true
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		for _, fd := range plugs {
			unix.Close(fd)
		}
	}
	t.Cleanup(lift)
	return lift
}

// Where we may not open what was sent, the kernel drops some and says so.
func TestDescriptorsLostOnArrivalAreRefused(t *testing.T) {
	for _, room := range []int{0, 2} {
		before := openFDs(t)
		a, b := pair(t)
		fd, path := locked(t)
		if err := a.Send(t.Context(), Ask{}, fd, fd, fd, fd, fd); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		lift := atLimit(t, room)
		f, err := b.Receive(t.Context())
		lift()
		if c := Complaint(err); c.Code != CodeDescriptors || !c.Retryable || c.Class != "resource" {
			t.Errorf("room for %d: %+v, %v", room, f, err)
		}
		if !freed(t, path) {
			t.Errorf("room for %d: still held", room)
		}
		a.Close()
		b.Close()
		sameFDs(t, before)
	}
}

func TestTooManyDescriptorsAreNotSent(t *testing.T) {
	a, _ := pair(t)
	if err := a.Send(t.Context(), Ask{}, make([]int, MaxFds+1)...); err == nil {
		t.Error("sent")
	}
}

func TestBadDescriptorIsNotSent(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(t.Context(), Ask{}, 99_999); !errors.Is(err, unix.EBADF) {
		t.Errorf("%v", err)
	}
	// Nothing left, so the connection is whole.
	if err := a.Send(t.Context(), Ask{Attempt: "x"}); err != nil {
		t.Fatal(err)
	}
	if f, err := b.Receive(t.Context()); err != nil || f.Type != "ask" {
		t.Errorf("%+v, %v", f, err)
	}
}
