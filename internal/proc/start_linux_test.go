package proc

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// output starts spec and returns what it printed and how it ended.
func output(t *testing.T, spec Spec) (string, Status) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec.Stdout = w
	if spec.Env == nil {
		spec.Env = os.Environ()
	}
	c, err := Start(spec)
	w.Close()
	if err != nil {
		r.Close()
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r)
	r.Close()
	c.Reap()
	return string(text), c.Status()
}

func script(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestStartErrorsNameWhatIsWrong: C112, C114, C129.
func TestStartErrorsNameWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	plain := script(t, dir, "plain", "#!/bin/sh\n", 0o644)
	noInterp := script(t, dir, "nointerp", "#!/no/such/interp -x\n", 0o755)
	crlf := script(t, dir, "crlf", "#!/bin/sh\r\nexit 0\r\n", 0o755)
	text := script(t, dir, "text", "hello\n", 0o755)
	empty := script(t, dir, "empty", "", 0o755)
	head, _ := os.ReadFile("/bin/sh")
	head = slices.Clone(head[:min(len(head), 4096)])
	head[18], head[19] = 0xf3, 0 // e_machine: RISC-V
	foreign := script(t, dir, "foreign", string(head), 0o755)
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + dir + ":/usr/bin:/bin"
	for _, tt := range []struct {
		name string
		spec Spec
		kind StartKind
		says string
	}{
		{"not on PATH", Spec{Argv: []string{"no-such-engine"}}, NotFound, `"no-such-engine"`},
		{"no such path", Spec{Argv: []string{dir + "/none"}}, NotFound, "no such file"},
		{"below a file", Spec{Argv: []string{plain + "/x"}}, NotFound, "no such file"},
		{"empty name", Spec{Argv: []string{""}}, NotFound, "empty"},
		{"no command", Spec{}, NotFound, "empty"},
		{"directory on PATH", Spec{Argv: []string{"sub"}}, NotExecutable, "directory"},
		{"directory by path", Spec{Argv: []string{sub}}, NotExecutable, "directory"},
		{"no x bit", Spec{Argv: []string{plain}}, NotExecutable, "permission"},
		{"no x bit on PATH", Spec{Argv: []string{"plain"}}, NotExecutable, "permission"},
		{"missing interpreter", Spec{Argv: []string{noInterp}}, NotExecutable, `"/no/such/interp"`},
		{"carriage return", Spec{Argv: []string{crlf}}, NotExecutable, "carriage return"},
		{"text", Spec{Argv: []string{text}}, WrongFormat, "#!"},
		{"empty file", Spec{Argv: []string{empty}}, WrongFormat, "empty"},
		{"another machine", Spec{Argv: []string{foreign}}, WrongFormat, "another kind of machine"},
		{"missing directory", Spec{Argv: []string{"true"}, Dir: dir + "/gone\n\"x\""}, NoDir, `\n\"x\"`},
		{"directory is a file", Spec{Argv: []string{"true"}, Dir: plain}, NoDir, "not a directory"},
		{"too long", Spec{Argv: []string{"true", strings.Repeat("x", 1<<18)}}, TooBig, "longer"},
		{"NUL byte", Spec{Argv: []string{"true", "a\x00b"}}, BadSpec, ""},
		{"closed descriptor", Spec{Argv: []string{"true"}, Keep: []int{987}}, BadSpec, "987"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.spec.Env = []string{path}
			_, err := Start(tt.spec)
			var start *StartError
			if !errors.As(err, &start) {
				t.Fatalf("Start = %v, want a *StartError", err)
			}
			if start.Kind != tt.kind || !strings.Contains(err.Error(), tt.says) || strings.ContainsAny(err.Error(), "\n\r\x00") {
				t.Errorf("kind %d (want %d): %v (want %q in it)", start.Kind, tt.kind, err, tt.says)
			}
		})
	}
	if len(liveChildren()) > 0 {
		t.Error("a start that failed left a child behind")
	}
}

// TestPathIsTheChilds: the PATH of the child's environment decides, as for
// env(1); what only the working directory offers is refused (exec.ErrDot).
func TestPathIsTheChilds(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	script(t, dir, "tool", "#!/bin/sh\necho first", 0o755)
	script(t, other, "tool", "#!/bin/sh\necho second", 0o755)
	if got, _ := output(t, Spec{Argv: []string{"tool"}, Env: []string{"PATH=" + other + ":" + dir, "PATH=" + dir}}); got != "second\n" {
		t.Errorf("got %q", got)
	}
	if got, _ := output(t, Spec{Argv: []string{"./tool"}, Dir: dir, Env: []string{"PATH="}}); got != "first\n" {
		t.Errorf("by path: got %q", got)
	}
	for _, path := range []string{"PATH=", "PATH=:/bin", "PATH=.", "PATH=sub/.."} {
		_, err := Start(Spec{Argv: []string{"tool"}, Dir: dir, Env: []string{path}})
		if kindOf(err) != NotExecutable && kindOf(err) != NotFound {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Start(Spec{Argv: []string{"tool"}, Dir: dir, Env: []string{"PATH=."}}); err == nil || !strings.Contains(err.Error(), "./tool") {
		t.Errorf("error %v does not say how to ask for it", err)
	}
}

// TestStatusIsExact: C114.
func TestStatusIsExact(t *testing.T) {
	for _, code := range []int{0, 1, 2, 75, 126, 127, 130, 137, 255} {
		if _, got := output(t, Spec{Argv: []string{"sh", "-c", "exit " + strconv.Itoa(code)}}); got != (Status{Code: code}) {
			t.Errorf("exit %d: %+v", code, got)
		}
	}
	for _, sig := range []syscall.Signal{unix.SIGKILL, unix.SIGSEGV, unix.SIGTERM} {
		if _, got := output(t, Spec{Argv: []string{"sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", sig)}}); got.Signal != sig || got.Code != 0 {
			t.Errorf("%v: %+v", sig, got)
		}
	}
}

// TestChildLeadsBeforeItsFirstInstruction: C041.
func TestChildLeadsBeforeItsFirstInstruction(t *testing.T) {
	for range 20 {
		text, _ := output(t, Spec{Argv: []string{"cat", "/proc/self/stat"}, Session: Own})
		st, err := ParseStat([]byte(text))
		if err != nil || st.Pgrp != st.Pid || st.Session != st.Pid || st.TTY != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
	}
}

func init() {
	stubs["close on exec"] = func() {
		if err := CloseOnExecFrom(3); err != nil {
			fmt.Println(err)
		}
		if os.Getenv("LISTED") != "" {
			for _, fd := range []int{9, 11} {
				_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
			}
			if err := closeOnExecListed("/proc/self/fd", 3); err != nil {
				fmt.Println(err)
			}
		}
		keep := []int{}
		if n, err := strconv.Atoi(os.Getenv("KEEP")); err == nil {
			keep = append(keep, n)
		}
		c, err := Start(Spec{
			Argv: []string{"/bin/sh", "-c", "for f in /proc/$$/fd/*; do echo -n ${f##*/}' '; done"}, Env: os.Environ(),
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Keep: keep,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		c.Reap()
	}
}

// TestInheritedDescriptorsGoNoFurther: C062, C071. 9 and 11 come from outside
// without close-on-exec, as from a shell's redirection.
func TestInheritedDescriptorsGoNoFurther(t *testing.T) {
	exe, _ := os.Executable()
	for _, tt := range []struct{ env, want string }{
		{"KEEP=", "0 1 2"}, {"KEEP=9", "0 1 2 9"}, {"KEEP=11", "0 1 2 11"}, {"LISTED=1", "0 1 2"},
	} {
		// dash takes only single digits for redirections.
		cmd := exec.Command("bash", "-c", `exec 9</dev/null 11</dev/null; exec "$0"`, exe)
		cmd.Env = append(os.Environ(), "HANDSEL_TEST_STUB=close on exec", tt.env)
		out, err := cmd.CombinedOutput()
		got := strings.Fields(string(out))
		// The shell may hold its own script or directory open while it lists.
		slices.SortFunc(got, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
		got = slices.DeleteFunc(got, func(s string) bool { n, err := strconv.Atoi(s); return err == nil && n > 2 && n != 9 && n != 11 })
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.env, out, err, tt.want)
		}
	}
}

// TestParallelStartsLeakNoDescriptor: C062. Every start sees exactly its own
// three, whatever other goroutines open and fork in the same moment.
func TestParallelStartsLeakNoDescriptor(t *testing.T) {
	const list = `i=0; while [ $i -lt 64 ]; do [ -e /proc/$$/fd/$i ] && echo -n "$i "; i=$((i+1)); done`
	stop := make(chan struct{})
	var noise sync.WaitGroup
	noise.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if f, err := os.Open("/dev/null"); err == nil {
				f.Close()
			}
			runtime.Gosched()
		}
	})
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for range 100 {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			text, _ := output(t, Spec{Argv: []string{"sh", "-c", list}})
			if text != "0 1 2 " {
				t.Errorf("child has %q", text)
			}
		})
	}
	all.Wait()
	close(stop)
	noise.Wait()
}

// TestBusyFileIsTriedAgain: C072. Written and started from many goroutines.
func TestBusyFileIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 12 {
				path := script(t, dir, fmt.Sprintf("s%d-%d", g, i), "#!/bin/sh\nexit 7\n", 0o755)
				c, err := Start(Spec{Argv: []string{path}, Env: []string{"PATH=/bin"}})
				if err != nil {
					t.Error(err)
					continue
				}
				if c.Reap(); c.Status().Code != 7 {
					t.Errorf("ended as %+v", c.Status())
				}
			}
		})
	}
	all.Wait()

	// A writer who is done soon is waited for.
	path := script(t, dir, "soon", "#!/bin/sh\nexit 7\n", 0o755)
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { writer.Close() })
	if _, got := output(t, Spec{Argv: []string{path}}); got.Code != 7 {
		t.Errorf("ended as %+v", got)
	}

	f, err := os.OpenFile(script(t, dir, "held", "#!/bin/sh\n", 0o755), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	start := time.Now()
	_, err = Start(Spec{Argv: []string{f.Name()}, Env: []string{}})
	if took := time.Since(start); kindOf(err) != Busy || took > time.Minute { // nobody lets go of it
		t.Errorf("really busy: %v after %v", err, took)
	}
}

func init() {
	stubs["no forks"] = func() {
		// Drop to a user with no processes to spare.
		_ = unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 1, Max: 1})
		if os.Getuid() == 0 {
			// In a user namespace without that user the limit binds as it is.
			_ = syscall.Setuid(61234)
		}
		start := time.Now()
		_, err := Start(Spec{Argv: []string{"/bin/true"}, Env: []string{}})
		fmt.Println(kindOf(err) == NoProcess, time.Since(start) < time.Minute, err)
	}
}

// TestNoMoreProcessesIsOneLine: C050.
func TestNoMoreProcessesIsOneLine(t *testing.T) {
	exe := worldExecutable(t)
	text, _ := output(t, Spec{Argv: []string{exe}, Env: append(os.Environ(), "HANDSEL_TEST_STUB=no forks"), Dir: "/"})
	if !strings.HasPrefix(text, "true true ") || strings.Count(text, "\n") != 1 {
		t.Errorf("got %q", text)
	}
}

// worldExecutable is a copy of this binary that any user may run.
func worldExecutable(t *testing.T) string {
	t.Helper()
	exe, _ := os.Executable()
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "world")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return script(t, dir, "test", string(data), 0o755)
}

func init() {
	stubs["die"] = func() {
		n, _ := strconv.Atoi(os.Getenv("SIGNAL"))
		var core unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
		core.Cur = core.Max // a core would be written if DieBy let it
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &core)
		DieBy(syscall.Signal(n))
		os.Exit(128 + n)
	}
}

// TestDieByShowsTheSignal: S22.
func TestDieByShowsTheSignal(t *testing.T) {
	exe, _ := os.Executable()
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV, unix.SIGPIPE, unix.SIGABRT, unix.SIGUSR1, 40} {
		text, got := output(t, Spec{Argv: []string{exe}, Env: append(os.Environ(), "HANDSEL_TEST_STUB=die", fmt.Sprintf("SIGNAL=%d", sig)), Dir: t.TempDir()})
		if got != (Status{Signal: sig}) || text != "" {
			t.Errorf("%v: %+v, %q", sig, got, text)
		}
	}
	if _, got := output(t, Spec{Argv: []string{exe}, Env: append(os.Environ(), "HANDSEL_TEST_STUB=die", "SIGNAL=17")}); got.Code != 128+17 {
		t.Errorf("a signal that ends nothing: %+v", got)
	}
}

// TestStopsAreSeen: a stop of the child is told, and its end still is.
func TestStopsAreSeen(t *testing.T) {
	c := shell(t, `echo ready; kill -STOP $$; exit 4`, nil)
	select {
	case sig := <-c.Stops():
		if sig != unix.SIGSTOP {
			t.Errorf("stopped by %v", sig)
		}
	case <-time.After(time.Minute):
		t.Fatal("no stop was seen")
	}
	if err := c.SignalGroup(unix.SIGCONT); err != nil {
		t.Error(err)
	}
	if c.Reap(); c.Status().Code != 4 {
		t.Errorf("ended as %+v", c.Status())
	}
}

func init() {
	stubs["tiny pids"] = tinyPids
}

// tinyPids runs as init of a pid namespace with a hundred numbers (300 to 399
// after the first round), so that they come round at once. Bystanders lead groups
// of their own; none may ever die of a signal.
func tinyPids() {
	if err := os.WriteFile("/proc/sys/kernel/pid_max", []byte("400"), 0); err != nil {
		fmt.Println("skip:", err)
		return
	}
	rounds, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	_ = SetSubreaper()
	before, wraps, reused := 0, 0, 0
	bystander := func() *Child {
		c, err := Start(Spec{Argv: []string{"/bin/sleep", fmt.Sprintf("0.00%d", rand.Intn(10))}, Env: []string{}, Session: Own})
		if err != nil {
			fmt.Println("bystander:", err)
			os.Exit(1)
		}
		if c.Pid < before {
			wraps++
		}
		before = c.Pid
		return c
	}
	for i := range rounds {
		c, err := Start(Spec{Argv: []string{"/bin/sh", "-c", "/bin/sleep 300 & exit 0"}, Env: []string{"HANDSEL_RUN=x"}, Session: Own, Run: "x"})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		others := []*Child{bystander(), bystander()}
		switch i % 3 { // the end races with the natural exit
		case 0:
			<-c.Exited()
		case 1:
			time.Sleep(time.Duration(rand.Intn(1500)) * time.Microsecond)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = Ending{Child: c, Grace: 100 * time.Millisecond, Run: "x"}.End()
		}()
		others = append(others, bystander(), bystander())
		<-ended
		if i%15 == 0 { // until somebody else has the number
			ReapAdopted() // a zombie of the group would keep it from being given away
			for range 150 {
				o := bystander()
				others = append(others, o)
				if o.Pid == c.Pid {
					reused++
					break
				}
				if len(others) > 20 {
					others[0].Reap()
					if others[0].Status() != (Status{}) {
						fmt.Printf("round %d: bystander %d ended as %+v\n", i, others[0].Pid, others[0].Status())
						os.Exit(1)
					}
					others = others[1:]
				}
			}
		}
		_ = c.SignalGroup(unix.SIGKILL) // a late stop
		_ = c.Signal(unix.SIGKILL)
		for _, o := range others {
			if o.Reap(); o.Status() != (Status{}) {
				fmt.Printf("round %d: bystander %d ended as %+v\n", i, o.Pid, o.Status())
				os.Exit(1)
			}
		}
		ReapAdopted()
	}
	fmt.Println("ok, numbers came round", wraps, "times, the child's own", reused, "times")
}

// TestReusedNumberIsNeverSignalled: C039, in a pid namespace of a hundred numbers.
func TestReusedNumberIsNeverSignalled(t *testing.T) {
	exe := worldExecutable(t)
	cmd := exec.Command("unshare", "-Urpf", "--mount-proc", "--kill-child", exe)
	cmd.Env = append(os.Environ(), "HANDSEL_TEST_STUB=tiny pids", "ROUNDS=150")
	cmd.Dir = "/"
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Skipf("no unshare(1): %v", err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	switch {
	case strings.HasPrefix(line, "unshare:"), strings.HasPrefix(line, "skip:"):
		t.Skipf("no pid namespace with few numbers here: %s", line)
	case !strings.HasPrefix(line, "ok, ") || strings.Contains(line, " 0 times") || strings.Contains(line, "own 0 "):
		t.Errorf("%s", line)
	default:
		t.Log(line)
	}
}

func init() {
	const name = "without its first thread"
	if os.Getenv("HANDSEL_TEST_STUB") == name {
		runtime.LockOSThread() // of an init function: main stays on the first thread
	}
	stubs[name] = func() {
		go func() {
			fmt.Println("ready")
			select {}
		}()
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
}

// S7: a process whose first thread has left shows as a zombie and lives on.
func TestProcessWithoutItsFirstThreadLives(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), "HANDSEL_TEST_STUB=without its first thread")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var st Stat
	for end := time.Now().Add(time.Minute); time.Now().Before(end); { // the thread may be on its way
		if st, err = ReadStat(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if st.State == 'Z' {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	if st.State != 'Z' || st.Threads < 2 {
		t.Fatalf("the first thread of %+v has not left", st)
	}
	if got := Judge(st.ID().Claim()); got != Alive {
		t.Errorf("it counts as %v, want alive", got)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if got := Judge(st.ID().Claim()); got != Gone {
		t.Errorf("killed, it counts as %v, want gone", got)
	}
}

// C022: a process that was given no environment is not one that has none yet.
func TestEmptyEnvironmentLeavesNoDoubt(t *testing.T) {
	c := exec.Command("sleep", "1000")
	c.Env = []string{}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	id, err := Identify(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	unsure := true
	for end := time.Now().Add(time.Minute); unsure && time.Now().Before(end); { // others may just be executed
		_, _, unsure = FindRun("01a20000-0000-7000-8000-00000000c025", id.Ticks)
	}
	if unsure {
		t.Error("it is taken for one that is just being executed")
	}
}
