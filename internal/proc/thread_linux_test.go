package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// marking is a confinement that leaves a mark on threads which the kernel
// shows: no new privileges.
type marking struct {
	sync.Mutex
	tids   []int
	refuse error
}

func (m *marking) Enter() error {
	m.Lock()
	defer m.Unlock()
	m.tids = append(m.tids, unix.Gettid())
	if m.refuse != nil {
		return m.refuse
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

const showMark = `grep NoNewPrivs /proc/self/status; setsid sh -c "(grep NoNewPrivs /proc/self/status) & wait"`

// marked lists our threads that carry the mark.
func marked(t *testing.T) (tids []string) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err == nil && strings.Contains(string(text), "NoNewPrivs:\t1") {
			tids = append(tids, task.Name())
		}
	}
	return tids
}

// awaitThread returns when the thread has ended.
func awaitThread(t *testing.T, tid int) {
	t.Helper()
	const thread = unix.O_EXCL // PIDFD_THREAD
	fd, err := unix.PidfdOpen(tid, thread)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n == 0 {
			t.Fatalf("thread %d is still there after 10 s", tid)
		}
		return
	}
}

// TestConfinementStaysWithTheChild: E6. The child has it and all it starts, in
// whatever session; we have it nowhere, and the thread that had it is gone.
func TestConfinementStaysWithTheChild(t *testing.T) {
	m := &marking{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			got, status := output(t, Spec{Argv: []string{"/bin/sh", "-c", showMark}, Session: Own, Confine: m})
			if want := strings.Repeat("NoNewPrivs:\t1\n", 2); got != want || status.Code != 0 {
				t.Errorf("the child and its grandchild show %q (status %d), want %q", got, status.Code, want)
			}
		})
	}
	all.Wait()
	if len(m.tids) != 20 {
		t.Fatalf("entered %d times, want once for each child", len(m.tids))
	}
	for _, tid := range m.tids {
		if tid == os.Getpid() {
			t.Errorf("the first thread was confined")
		}
		awaitThread(t, tid)
	}
	if got := marked(t); got != nil {
		t.Errorf("our threads %v are confined", got)
	}
	if got, _ := output(t, Spec{Argv: []string{"/bin/grep", "NoNewPrivs", "/proc/self/status"}}); got != "NoNewPrivs:\t0\n" {
		t.Errorf("a child of the unconfined kind shows %q", got)
	}
}

// TestConfinedChildIsLikeAnyOther: what Start promises elsewhere holds for it,
// once its thread is gone too.
func TestConfinedChildIsLikeAnyOther(t *testing.T) {
	m := &marking{}
	c, err := Start(Spec{Argv: []string{"/bin/sleep", "600"}, Session: Own, Confine: m})
	if err != nil {
		t.Fatal(err)
	}
	awaitThread(t, m.tids[0])
	st, err := ReadStat(c.Pid)
	if err != nil || st.PPid != os.Getpid() || st.Session != c.Pid {
		t.Errorf("after its thread's end: %+v, %v", st, err)
	}
	if c.pidfd < 0 {
		t.Error("no pidfd")
	}
	if !onlyChild(c.Pid) {
		t.Error("it is not seen among our threads' children")
	}
	if err := c.SignalGroup(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.Reap()
	if got := c.Status().Signal; got != syscall.SIGTERM {
		t.Errorf("ended by %v, want SIGTERM", got)
	}
}

// TestConfinementThatCannotBePutOnStartsNothing: E6, strict.
func TestConfinementThatCannotBePutOnStartsNothing(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "ran")
	_, err := Start(Spec{Argv: []string{"/bin/touch", trace}, Confine: &marking{refuse: errors.New("not today")}})
	var start *StartError
	if !errors.As(err, &start) || start.Kind != NotConfined || start.Detail != "not today" {
		t.Errorf("Start = %v, want NotConfined with the reason", err)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("it ran all the same")
	}
}

// TestConfinedStartErrorsAreTheSame: a missing program and one that is busy are
// told as ever, and the retries of the latter are made on the one thread.
func TestConfinedStartErrorsAreTheSame(t *testing.T) {
	busy := filepath.Join(t.TempDir(), "busy")
	text, err := os.ReadFile("/bin/true")
	if err == nil {
		err = os.WriteFile(busy, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(busy, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := &marking{}
	var start *StartError
	if _, err := Start(Spec{Argv: []string{busy}, Confine: m}); !errors.As(err, &start) || start.Kind != Busy {
		t.Errorf("open for writing: %v", err)
	}
	if len(m.tids) != 1 {
		t.Errorf("entered %d times for one start", len(m.tids))
	}
	writer.Close()
	if got, status := output(t, Spec{Argv: []string{busy}, Confine: m}); got != "" || status.Code != 0 {
		t.Errorf("closed: %q, status %d", got, status.Code)
	}
	if _, err := Start(Spec{Argv: []string{"/no/such"}, Confine: m}); !errors.As(err, &start) || start.Kind != NotFound {
		t.Errorf("missing: %v", err)
	}
}

func init() { stubs["first-thread"] = startFromTheFirstThread }

// startFromTheFirstThread starts a confined child where there is one processor,
// so that goroutines run on the first thread while the main one waits, and says
// what the kernel shows of that thread.
func startFromTheFirstThread() {
	runtime.GOMAXPROCS(1)
	onFirst := 0
	for range 50 {
		where := make(chan int)
		go func() { where <- unix.Gettid() }()
		if <-where == os.Getpid() {
			onFirst++
		}
		c, err := Start(Spec{Argv: []string{"/bin/true"}, Session: Own, Confine: &marking{}})
		if err != nil {
			fmt.Println(err)
			return
		}
		c.Reap()
	}
	text, _ := os.ReadFile("/proc/self/status")
	fmt.Println(onFirst > 0, strings.Contains(string(text), "NoNewPrivs:\t0"))
}

func TestFirstThreadIsNeverConfined(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HANDSEL_TEST_STUB=first-thread")
	got, err := cmd.CombinedOutput()
	if err != nil || string(got) != "true true\n" {
		t.Errorf("goroutines came to the first thread, and it is as it was: %q, %v", got, err)
	}
}
