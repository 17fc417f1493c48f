package nest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// TestMain lets the test binary take the parts of a story:
//
//	as check            judges itself and prints the verdict
//	as wrap CMD…        runs CMD as a child
//	as supervise D CMD… adopts orphans, is marked D (- for no mark), runs CMD, waits for all
//	as orphan CMD…      leaves CMD behind: double fork, own session, no environment
//	as late CMD…        sets the depth of a child, then does CMD in this very process
//	as stay             prints its pid and waits for its input to end
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "as" {
		if err := play(os.Args[2], os.Args[3:]); err != nil {
			fmt.Println("error:", err)
			syscall.Exit(1)
		}
		// os.Exit would linger for a second where races are looked for, and
		// what tells it not to is scrubbed away in these stories. There is only
		// this goroutine.
		syscall.Exit(0)
	}
	os.Exit(m.Run())
}

func play(part string, args []string) error {
	switch part {
	case "check":
		fmt.Println(told(Check()))
		return nil
	case "wrap":
		return command(args).Run()
	case "supervise":
		return supervise(args[0], args[1:])
	case "orphan":
		self, err := os.Executable()
		if err != nil {
			return err
		}
		c := command(append([]string{self, "as", "last", strconv.Itoa(os.Getpid())}, args...))
		c.Env, c.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
		return c.Start()
	case "last":
		for strconv.Itoa(os.Getppid()) == args[0] {
			time.Sleep(time.Millisecond) // nothing tells a process that it was adopted
		}
		return syscall.Exec(args[1], args[1:], []string{})
	case "late":
		if err := os.Setenv(Var, "1"); err != nil {
			return err
		}
		return play(args[0], args[1:])
	case "stay":
		fmt.Println(os.Getpid())
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	return errors.New("no such part: " + part)
}

func command(argv []string) *exec.Cmd {
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c
}

func supervise(depth string, argv []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if depth != "-" {
		n, err := strconv.Atoi(depth)
		if err != nil {
			return err
		}
		if err := Mark(n); err != nil {
			return err
		}
	}
	if err := command(argv).Start(); err != nil {
		return err
	}
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			return nil
		}
	}
}

func told(err error) string {
	if in := (*Inside)(nil); errors.As(err, &in) {
		return fmt.Sprintf("inside by %s: %s, depth %q", in.How, in.Name, in.Depth)
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return "outside"
}

// outside stops a test that would judge the shell it was started from.
func outside(t *testing.T) {
	t.Helper()
	if err := Check(); err != nil {
		t.Fatalf("these tests judge their own ancestors, so they cannot run inside an agent: %v", err)
	}
}

// tell runs a story and returns what it printed. The word self stands for
// this test binary under that name, and ~ for a blank within one argument.
func tell(t *testing.T, self, story string) string {
	t.Helper()
	argv := cast(self, story)
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", story, err, out)
	}
	return strings.TrimSpace(string(out))
}

func cast(self, story string) []string {
	argv := strings.Fields(story)
	for i, word := range argv {
		switch word = strings.ReplaceAll(word, "~", " "); word {
		case "self":
			word = self
		case "env":
			word = "/usr/bin/env" // a scrubbed process has no PATH
		default:
			word = strings.NewReplacer("self as", self+" as", "env -i", "/usr/bin/env -i").Replace(word)
		}
		argv[i] = word
	}
	return argv
}

// TestInsideIsReadFromEnvironmentAndAncestors is S24 and S25 with real
// processes.
func TestInsideIsReadFromEnvironmentAndAncestors(t *testing.T) {
	outside(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(self)[:min(15, len(filepath.Base(self)))]
	for _, tt := range []struct{ claim, story, want string }{
		{"no depth anywhere", "env -u HANDSEL_AGENT_DEPTH self as check", "outside"},
		{"empty", "env HANDSEL_AGENT_DEPTH= self as check", "outside"},
		{"a seat's 0", "env HANDSEL_AGENT_DEPTH=0 self as check", "outside"},
		{"1 of its own", "env HANDSEL_AGENT_DEPTH=1 self as check", `inside by environment: NAME, depth "1"`},
		{"2 of its own", "env HANDSEL_AGENT_DEPTH=2 self as check", `inside by environment: NAME, depth "2"`},
		{"no number", "env HANDSEL_AGENT_DEPTH=x self as check", `inside by environment: NAME, depth "x"`},
		{"its own 1 is traced to who started it", "env HANDSEL_AGENT_DEPTH=3 sh -c self~as~check;:", `inside by environment: sh, depth "3"`},
		{"a scrubbed child of a carrier", "env HANDSEL_AGENT_DEPTH=1 self as wrap env -i self as check", `inside by ancestor environment: NAME, depth "1"`},
		{"scrubbed three times", "env HANDSEL_AGENT_DEPTH=1 self as wrap env -i self as wrap env -i self as wrap self as check", `inside by ancestor environment: NAME, depth "1"`},
		{"a child that says 0", "env HANDSEL_AGENT_DEPTH=1 self as wrap env HANDSEL_AGENT_DEPTH=0 self as check", `inside by ancestor environment: NAME, depth "1"`},
		{"a scrubbed child of a seat", "env HANDSEL_AGENT_DEPTH=0 self as wrap env -i self as check", "outside"},
		{"set later for a child", "env -u HANDSEL_AGENT_DEPTH self as late check", "outside"},
		{"an orphan under a supervisor of an agent", "env -u HANDSEL_AGENT_DEPTH self as supervise 1 env HANDSEL_AGENT_DEPTH=1 self as orphan self as check", `inside by supervisor: handsel:d1, depth ""`},
		{"an orphan under a supervisor of a seat", "env -u HANDSEL_AGENT_DEPTH self as supervise 0 env HANDSEL_AGENT_DEPTH=0 self as orphan self as check", "outside"},
		{"an orphan of a gate, whose supervisor has no mark", "env -u HANDSEL_AGENT_DEPTH self as supervise - self as orphan self as check", "outside"},
		{"a seat's orphan inside an agent", "env -u HANDSEL_AGENT_DEPTH self as supervise 1 self as supervise 0 self as orphan self as check", `inside by supervisor: handsel:d1, depth ""`},
	} {
		want := strings.ReplaceAll(tt.want, "NAME", name)
		if got := tell(t, self, tt.story); got != want {
			t.Errorf("%s: %s, want %s\n\t%s", tt.claim, got, want, tt.story)
		}
	}
}

// TestAnotherNameIsJudgedAlike: links and copies of the executable (C050).
func TestAnotherNameIsJudgedAlike(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link, copied := filepath.Join(dir, "T2"), filepath.Join(dir, "T3")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, text, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, copied, filepath.Join(dir, "..", filepath.Base(dir), "T2")} {
		for _, story := range []string{"env HANDSEL_AGENT_DEPTH=1 self as check", "env HANDSEL_AGENT_DEPTH=1 sh -c env~-i~self~as~check;:"} {
			if got := tell(t, name, story); !strings.HasPrefix(got, "inside by") {
				t.Errorf("%s: %s", story, got)
			}
		}
	}
}

// TestMarkNamesTheLeader: the mark must show in /proc/PID, whichever thread
// sets it, and a lower depth does not take it away.
func TestMarkNamesTheLeader(t *testing.T) {
	before, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		marked = -1
		if err := os.WriteFile("/proc/self/comm", before, 0); err != nil {
			t.Error(err)
		}
	})
	comm := func() string {
		st, err := proc.ReadStat(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return st.Comm
	}
	mark := func(depth int) {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: this thread ends here
			done <- Mark(depth)
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		depth int
		want  string
	}{{0, "handsel:d0"}, {1, "handsel:d1"}, {0, "handsel:d1"}} {
		if mark(tt.depth); comm() != tt.want {
			t.Errorf("after Mark(%d) the name is %q, want %q", tt.depth, comm(), tt.want)
		}
	}
	var in *Inside
	if errors.As(judge(os.Getpid(), ""), &in) && in.Pid == os.Getpid() {
		t.Error("a supervisor is inside by its own mark")
	}
}

// TestPeersAreJudgedAlike is S27 for a server: another process's environment
// and ancestry count, not the server's.
func TestPeersAreJudgedAlike(t *testing.T) {
	outside(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for story, want := range map[string]string{
		"env -u HANDSEL_AGENT_DEPTH self as stay":                                         "outside",
		"env HANDSEL_AGENT_DEPTH=0 self as stay":                                          "outside",
		"env HANDSEL_AGENT_DEPTH=1 self as stay":                                          "inside by environment",
		"env HANDSEL_AGENT_DEPTH=1 self as wrap env -i self as stay":                      "inside by ancestor environment",
		"env -u HANDSEL_AGENT_DEPTH self as supervise 1 self as orphan self as stay":      "inside by supervisor",
		"env -u HANDSEL_AGENT_DEPTH self as supervise 1 self as wrap env -i self as stay": "inside by supervisor",
	} {
		argv := cast(self, story)
		c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		if _, err := fmt.Fscan(out, &pid); err != nil {
			t.Fatal(story, err)
		}
		if got := told(CheckPeer(pid)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", story, got, want)
		}
		in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("%s: %v", story, err)
		}
		if err := CheckPeer(pid); !errors.Is(err, proc.ErrGone) {
			t.Errorf("%s: once it is gone: %v, want ErrGone", story, err)
		}
	}
	for _, pid := range []int{0, -1} {
		if err := CheckPeer(pid); err == nil || errors.As(err, new(*Inside)) {
			t.Errorf("CheckPeer(%d) = %v, want an error that it cannot be judged", pid, err)
		}
	}
}

// TestAZombiePeerIsGone: its environment can no longer be read, and must not
// read as a clean one.
func TestAZombiePeerIsGone(t *testing.T) {
	c := exec.CommandContext(t.Context(), "true")
	c.Env = []string{Var + "=1"}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	if err := unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if err := CheckPeer(c.Process.Pid); !errors.Is(err, proc.ErrGone) {
		t.Errorf("CheckPeer of a zombie = %v, want ErrGone", err)
	}
}

func BenchmarkCheckSixAncestors(b *testing.B) {
	for b.Loop() {
		_ = judge(os.Getpid(), "")
	}
	b.ReportMetric(float64(len(proc.Ancestors(os.Getpid()))), "ancestors")
}
