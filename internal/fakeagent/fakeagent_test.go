//go:build linux || darwin

package fakeagent

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// agent prepares one stand-in. It gets an end of its own, so that a test that
// fails leaves nothing for long.
func agent(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), Build(t), words...)
	c.Env = append(os.Environ(), "FAKEAGENT_LIFE=30s")
	return c
}

func output(t *testing.T, words ...string) string {
	t.Helper()
	out, err := agent(t, words...).Output()
	if err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	return string(out)
}

// ended waits for the end of processes that were killed, which shows nowhere
// but in the process table.
func ended(t *testing.T, list []Process) {
	t.Helper()
	for end := time.Now().Add(time.Minute); slices.ContainsFunc(list, Process.Alive); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still alive: %v", list)
		}
	}
}

func TestItIsReadableByEverybody(t *testing.T) {
	info, err := os.Stat(Build(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o055 != 0o055 {
		t.Errorf("mode is %v", info.Mode())
	}
}

func TestItEndsAsTold(t *testing.T) {
	for _, tt := range []struct {
		words  []string
		code   int
		signal syscall.Signal
	}{
		{[]string{"exit", "0"}, 0, 0},
		{[]string{"exit", "7"}, 7, 0},
		{[]string{"print", "a", "then", "exit", "3", "then", "kill", "KILL"}, 3, 0},
		{[]string{"no-such-step"}, 99, 0},
		{[]string{"kill", "TERM"}, -1, syscall.SIGTERM},
		{[]string{"kill", "SIGKILL"}, -1, syscall.SIGKILL},
		{[]string{"kill", "QUIT"}, -1, syscall.SIGQUIT},
		{[]string{"kill", "INT"}, -1, syscall.SIGINT},
		{nil, 0, 0},
	} {
		c := agent(t, tt.words...)
		c.Dir = t.TempDir() // a core file would lie here
		_ = c.Run()
		state := c.ProcessState.Sys().(syscall.WaitStatus)
		if got := c.ProcessState.ExitCode(); got != tt.code || tt.signal != 0 && state.Signal() != tt.signal {
			t.Errorf("%q ended with %v, want %d %v", tt.words, c.ProcessState, tt.code, tt.signal)
		}
	}
}

// TestArgumentsArriveUnchanged is C109's table through the stand-in alone.
func TestArgumentsArriveUnchanged(t *testing.T) {
	words := []string{"a b", "it's", "", "$(touch X)", "--", "-n", "*", "line1\nline2", "ä☃", "\xff", "then"}
	var want strings.Builder
	for _, w := range words {
		fmt.Fprintf(&want, "%q\n", w)
	}
	if got := output(t, append([]string{"args"}, words...)...); got != want.String() {
		t.Errorf("args printed\n%s, want\n%s", got, want.String())
	}
}

func TestStreamsAreExact(t *testing.T) {
	in := bytes.Repeat([]byte("0123456789"), 100_000)
	c := agent(t, "stdin")
	c.Stdin = bytes.NewReader(in)
	out, err := c.Output()
	if want := fmt.Sprintf("%d %x\n", len(in), sha256.Sum256(in)); err != nil || string(out) != want {
		t.Errorf("stdin printed %q, %v, want %q", out, err, want)
	}
	if out := output(t, "yes", "100001"); len(out) != 100_001 {
		t.Errorf("yes wrote %d bytes", len(out))
	}
	c = agent(t, "yes", "65537", "stderr")
	var text bytes.Buffer
	c.Stderr = &text
	if err := c.Run(); err != nil || text.Len() != 65537 {
		t.Errorf("yes wrote %d bytes to stderr, %v", text.Len(), err)
	}
}

func TestOnlyInheritedDescriptorsAreListed(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Whatever starts the tests may have left descriptors open for all below it.
	before := output(t, "fds")
	if !strings.Contains(before, "0 ") || strings.Contains(before, "\n3 ") {
		t.Fatalf("without an extra one: %q", before)
	}
	c := agent(t, "fds")
	c.ExtraFiles = []*os.File{f}
	out, err := c.Output()
	if err != nil || !strings.Contains(string(out), "\n3 ") || strings.Count(string(out), "\n") != strings.Count(before, "\n")+1 {
		t.Errorf("with descriptor 3: %q, %v, without it %q", out, err, before)
	}
}

func TestItPlaysEnginesByName(t *testing.T) {
	for _, name := range []string{"claude", "codex", "gemini", "pi"} {
		path := As(t, name)
		out, err := exec.CommandContext(t.Context(), path, "--version").Output()
		if err != nil || !strings.HasPrefix(string(out), name+" ") {
			t.Errorf("%s --version: %q, %v", name, out, err)
		}
		c := exec.CommandContext(t.Context(), path, "exec", "-p", "fix it")
		c.Env = append(os.Environ(), "FAKEAGENT=print done then exit 4")
		if out, _ := c.Output(); string(out) != "done\n" || c.ProcessState.ExitCode() != 4 {
			t.Errorf("%s with FAKEAGENT: %q, %v", name, out, c.ProcessState)
		}
	}
	out, err := exec.CommandContext(t.Context(), As(t, "claude"), "print", "hi").Output()
	if err != nil || string(out) != "hi\n" {
		t.Errorf("a step under an engine's name: %q, %v", out, err)
	}
}

func TestLogTellsWhoRanWhen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	first := agent(t, "log", path, "id", "a", "hold", "5s") // until the other has begun
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	output(t, "until", path, "1", "then", "log", path, "id", "b")
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	events, err := ReadLog(path)
	if err != nil || len(events) != 4 {
		t.Fatalf("%v, %v", events, err)
	}
	if events[0].Kind != "S" || events[0].ID != "a" || events[0].Pid != first.Process.Pid || events[0].Engine != "fakeagent" {
		t.Errorf("first event is %+v", events[0])
	}
	if most, _ := Peak(events); most != 2 {
		t.Errorf("Peak = %d, want 2: %v", most, events)
	}
}

// TestLineOnItsWayIsNotRead: a look can meet a write of which a part is in place,
// and there is no more to it than that: a line that stays so is a fault.
func TestLineOnItsWayIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const whole, last = "S l00053 1080851 7 claude\n", "S l00054 1080852 8 claude\n"
	for n := range len(last) {
		if err := os.WriteFile(path, []byte(whole+last[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		if events, err := ReadLog(path); err != nil || len(events) != 1 || events[0].ID != "l00053" {
			t.Errorf("with %q on its way: %+v, %v", last[:n], events, err)
		}
	}
	if err := os.WriteFile(path, []byte("S l00054 1080852\n"+whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLog(path); err == nil {
		t.Error("a line that stays half is read")
	}
}

func TestPeakCountsCertainLivesOnly(t *testing.T) {
	s, e := func(at int64, pid int) Event { return Event{Kind: "S", At: at, Pid: pid} }, func(kind string, at int64, pid int) Event {
		return Event{Kind: kind, At: at, Pid: pid}
	}
	for _, tt := range []struct {
		claim  string
		events []Event
		most   int
	}{
		{"nobody", nil, 0},
		{"one after the other", []Event{s(1, 1), e("E", 2, 1), s(3, 2), e("E", 4, 2)}, 1},
		{"lines out of order", []Event{s(1, 1), s(3, 2), e("E", 2, 1)}, 1},
		{"a killed one counts until it was to be killed", []Event{s(1, 1), e("K", 2, 1), s(3, 2)}, 1},
		{"overlap", []Event{s(1, 1), s(2, 2), e("E", 3, 1), s(4, 3)}, 2},
	} {
		if most, _ := Peak(tt.events); most != tt.most {
			t.Errorf("%s: Peak = %d, want %d", tt.claim, most, tt.most)
		}
	}
}

func TestSignalsAreNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signals")
	c := agent(t, "signals", path, "2")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	output(t, "until", path, "1")
	for i, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGWINCH} {
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		output(t, "until", path, fmt.Sprint(i+2))
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "\nSIGTERM ") || !strings.Contains(string(text), "\nSIGWINCH ") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestTreeStaysUntilKilled: every member is there when tree is done, outlives
// its starter and TERM to those that ignore it, and ends by KILL.
func TestTreeStaysUntilKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pids")
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := agent(t, "pid", path, "then", "tree", path, "then", "daemon", path)
	c.Stdout = out // a file: Run would wait for whoever holds a pipe
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	list, err := ReadPids(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list[1:] {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	want := []string{"daemon", "daemon", "nested-shell", "scrubbed", "shell", "stdout", "stopped", "stubborn", "stubborn-daemon"}
	if !slices.Equal(names, want) {
		t.Fatalf("members are %q, want %q", names, want)
	}
	if list[0].Alive() {
		t.Error("the starter is still alive")
	}
	for _, p := range list[1:] {
		if !p.Alive() {
			t.Errorf("%s is not alive", p.Name)
		}
		if strings.HasPrefix(p.Name, "stubborn") {
			if err := syscall.Kill(p.Pid, syscall.SIGTERM); err != nil || !p.Alive() {
				t.Errorf("%s after TERM: alive %v, %v", p.Name, p.Alive(), err)
			}
		}
	}
	for _, p := range list[1:] {
		if err := syscall.Kill(p.Pid, syscall.SIGKILL); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	ended(t, list)
}

func TestOrphanRunsWithoutParentAndEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	self := Build(t)
	output(t, "orphan-run", path, self, "env", "then", "ids", "then", "print", "end")
	output(t, "until", path, "2")
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "pid ") || strings.Contains(string(text), "=") {
		t.Errorf("%q, %v, want ids and no environment", text, err)
	}
	if strings.Contains(string(text), fmt.Sprintf(" ppid %d ", os.Getpid())) {
		t.Errorf("%q: still ours", text)
	}
	status := filepath.Join(t.TempDir(), "status")
	output(t, "orphan-status", status, self, "print", "hi", "then", "exit", "5")
	output(t, "until", status, "2")
	if text, err := os.ReadFile(status); err != nil || string(text) != "hi\nstatus 5\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestSmallStepsSayWhatTheyShould(t *testing.T) {
	dir := t.TempDir()
	if output(t, "touch", filepath.Join(dir, "f"), "then", "sleep", "1ms"); !exists(filepath.Join(dir, "f")) {
		t.Error("touch made no file")
	}
	c := agent(t, "cwd", "then", "env", "A", "B")
	c.Dir, c.Env = dir, []string{"A=x y"}
	out, err := c.Output()
	real, _ := filepath.EvalSymlinks(dir)
	if err != nil || string(out) != real+"\nA=\"x y\"\nB is not set\n" {
		t.Errorf("%q, %v", out, err)
	}
	c = agent(t, "tty")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if out, err := c.Output(); err != nil || !strings.HasPrefix(string(out), "no tty: ") {
		t.Errorf("without a terminal: %q, %v", out, err)
	}
	if got := output(t, "become", Build(t), "print", "other"); got != "other\n" {
		t.Errorf("become: %q", got)
	}
}

func TestStubbornIgnoresWhatIsPolite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	c := agent(t, "stubborn", path)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	output(t, "until", path, "1")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := ReadPids(path); err != nil || len(list) != 1 || !list[0].Alive() {
		t.Errorf("%v, %v: not alive", list, err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("it ended by itself")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}
