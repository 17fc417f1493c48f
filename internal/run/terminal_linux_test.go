package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/proc"
)

// console is a person at a terminal: a pseudo-terminal with a program on it.
type console struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	seen bytes.Buffer
	from int // what has been matched already
	done chan struct{}
}

// sit starts argv on a new terminal. $AGENT is this binary as a supervisor.
func sit(t *testing.T, env []string, argv ...string) *console {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A wrapper, so that the shell's own start is no stub.
	agent := filepath.Join(t.TempDir(), "agent")
	text := fmt.Sprintf("#!/bin/sh\nHANDSEL_TEST_STUB=agent exec '%s' \"$@\"\n", exe)
	if err := os.WriteFile(agent, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "$AGENT", agent)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), append([]string{"AGENT=" + agent, "PS1=> ", "STUB_GRACE=400ms", "TERM=dumb", "HISTFILE="}, env...)...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	// Its reads must end when it is closed, as a terminal window's do.
	if tty, err = pollable(tty); err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, tty: tty, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			c.mu.Lock()
			c.seen.Write(buf[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		c.hangUp()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("terminal showed:\n%s", c.seen.String())
		}
	})
	return c
}

func (c *console) hangUp() {
	c.tty.Close()
	<-c.done
}

func (c *console) resize(rows, cols uint16) error {
	return unix.IoctlSetWinsize(int(rawNumber(c.tty)), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}

func (c *console) key(s string) {
	c.t.Helper()
	if _, err := c.tty.WriteString(s); err != nil {
		c.t.Fatal(err)
	}
}

// sees waits until what has not been matched before matches pattern, and
// returns the submatches.
func (c *console) sees(pattern string) []string {
	c.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	until(c.t, "terminal shows "+pattern, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		text := c.seen.Bytes()[c.from:]
		at := re.FindSubmatchIndex(text)
		if at == nil {
			return false
		}
		for i := 0; i < len(at); i += 2 {
			found = append(found, string(text[at[i]:at[i+1]]))
		}
		c.from += at[1]
		return true
	})
	return found
}

func outcomeAt(t *testing.T, path string) (o Outcome) {
	t.Helper()
	until(t, "an outcome", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, &o) == nil
	})
	return o
}

const bash = "bash --norc --noprofile --noediting -i"

func shellOn(t *testing.T, env ...string) *console {
	c := sit(t, env, strings.Fields(bash)...)
	c.sees(`> `)
	return c
}

// TestTerminalIsHandedOverAndTakenBack: S20. The agent's group is the
// foreground group and not ours; afterwards the shell reads on.
func TestTerminalIsHandedOverAndTakenBack(t *testing.T) {
	c := shellOn(t)
	c.key("$AGENT sh -c 'cat /proc/$$/stat; read x </dev/tty; echo got $x'\n")
	st := c.sees(`(\d+) \(sh\) \S (\d+) (\d+) (\d+) \d+ (\d+) `)
	if st[1] != st[3] || st[3] != st[5] || st[2] == st[3] || st[4] == st[1] {
		t.Errorf("pid %s ppid %s pgrp %s session %s foreground %s", st[1], st[2], st[3], st[4], st[5])
	}
	c.key("hello\n")
	c.sees(`got hello`)
	c.key("echo again $?\n")
	c.sees(`again 0`)
}

// TestTerminalStaysWithAPipeline: S20, as with env(1).
func TestTerminalStaysWithAPipeline(t *testing.T) {
	c := shellOn(t)
	c.key("$AGENT sh -c 'cat /proc/$$/stat; cat /proc/$PPID/stat' | cat\n")
	child := c.sees(`(\d+) \(sh\) \S (\d+) (\d+) `)
	ours := c.sees(`(\d+) \(\S+\) \S (\d+) (\d+) `)
	if child[3] != ours[3] {
		t.Errorf("child's group %s, ours %s", child[3], ours[3])
	}
}

// TestCtrlCEndsTheAgentAndTheLoop: C037, S22.
func TestCtrlCEndsTheAgentAndTheLoop(t *testing.T) {
	tok := token(t)
	c := shellOn(t)
	c.key("for i in 1 2 3; do echo round $i; $AGENT sleep " + tok + "; done; echo status $?\n")
	c.sees(`round 1\s`)
	until(t, "the agent runs", func() bool { return foreground(t, tok) })
	c.key("\x03")
	c.sees(`> `)
	c.key("echo status $?\n")
	c.sees(`status 130`)
	if left := alive(t, tok); len(left) > 0 || strings.Contains(c.seen.String(), "round 2\r") {
		t.Errorf("alive %v", left)
	}
}

// foreground tells whether a process with tok in its command line has its
// terminal.
func foreground(t *testing.T, tok string) bool {
	for _, pid := range alive(t, tok) {
		if st, err := proc.ReadStat(pid); err == nil && st.Comm == "sleep" && st.Tpgid == st.Pgrp {
			return true
		}
	}
	return false
}

// TestCtrlZStopsUsToo and fg goes on where it was: S20.
func TestCtrlZStopsUsToo(t *testing.T) {
	c := shellOn(t)
	c.key("$AGENT cat\n")
	for range 3 {
		until(t, "cat has the terminal", func() bool { return comm(t, c, "cat", 'S') })
		c.key("one\n")
		c.sees(`one\r\none\r\n`)
		c.key("\x1a")
		c.sees(`Stopped`)
		c.sees(`> `)
		if !comm(t, c, "cat", 'T') {
			t.Error("cat is not stopped")
		}
		c.key("echo shell $((1+1))\n")
		c.sees(`shell 2`)
		c.sees(`> `)
		c.key("fg\n")
		c.sees(`fg\r\n`)
	}
	until(t, "cat has the terminal", func() bool { return comm(t, c, "cat", 'S') })
	c.key("two\n")
	c.sees(`two\r\ntwo\r\n`)
	c.key("\x04")
	c.sees(`> `)
	c.key("echo status $?\n")
	c.sees(`status 0`)
}

// comm tells whether a process of that name is in the console's session, in
// that state, and, unless stopped, in the foreground.
func comm(t *testing.T, c *console, name string, state byte) bool {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range all {
		pid, _ := strconv.Atoi(filepath.Base(path))
		st, err := proc.ReadStat(pid)
		if err == nil && st.Comm == name && st.Session == c.cmd.Process.Pid && st.State == state {
			return state == 'T' || st.Tpgid == st.Pgrp
		}
	}
	return false
}

// TestBackgroundJobComesForward: bg leaves the terminal with the shell; fg of
// a running job reaches the agent when it asks for input.
func TestBackgroundJobComesForward(t *testing.T) {
	c := shellOn(t)
	flag := filepath.Join(t.TempDir(), "flag")
	c.key("$AGENT sh -c 'while ! [ -e " + flag + " ]; do sleep 0.01; done; read x; echo got $x'\n")
	until(t, "the loop runs", func() bool { return comm(t, c, "sh", 'S') })
	c.key("\x1a")
	c.sees(`Stopped`)
	c.key("bg\n")
	c.sees(`bg\r\n`)
	c.sees(`> `)
	c.key("echo shell $((1+1))\n") // the shell still has it
	c.sees(`shell 2`)
	c.key("fg\n")
	c.sees(`fg\r\n`)
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.key("input\n")
	c.sees(`got input`)
	c.key("echo status $?\n")
	c.sees(`status 0`)
}

// TestJobControlShellInside: an interactive shell works as without us.
func TestJobControlShellInside(t *testing.T) {
	tok := token(t)
	c := shellOn(t)
	c.key("PS1='in> ' $AGENT " + bash + "\n")
	c.sees(`in> `)
	c.key("sleep " + tok + "\n")
	until(t, "sleep runs", func() bool { return foreground(t, tok) })
	c.key("\x1a")
	c.sees(`Stopped`)
	c.sees(`in> `)
	c.key("fg\n")
	until(t, "sleep runs", func() bool { return foreground(t, tok) })
	c.key("\x03")
	c.sees(`in> `)
	c.key("exit 6\n")
	c.sees(`> `)
	c.key("echo status $?\n")
	c.sees(`status 6`)
}

// TestModesAreRestoredAfterDeath and left as they are after an ordinary end.
// dash with job control gives each job a group of its own and sets no modes.
func TestModesAreRestoredAfterDeath(t *testing.T) {
	c := sit(t, nil, "dash", "-m", "-c", `$AGENT sh -c 'stty -echo; kill -9 $$'; stty -a; $AGENT stty -echo; stty -a`)
	if got := c.sees(`[ -]echo `); got[0] != " echo " {
		t.Errorf("after a death: %q", got)
	}
	c.sees(`rows`)
	if got := c.sees(`[ -]echo `); got[0] != "-echo " {
		t.Errorf("after an ordinary end: %q", got)
	}
}

// TestClosedTerminalEndsTheTree: C036, S21. Whoever ignores SIGHUP too.
func TestClosedTerminalEndsTheTree(t *testing.T) {
	for name, argv := range map[string][]string{
		"under bash":          strings.Fields(bash),
		"on the terminal":     nil,
		"under another shell": {"sh", "-i"},
	} {
		t.Run(name, func(t *testing.T) {
			tok := token(t)
			file := filepath.Join(t.TempDir(), "outcome")
			body := "trap '' HUP; (trap '' TERM; sleep " + tok + ") & setsid sleep " + tok + " & echo up; while :; do sleep " + tok + "; done"
			env := []string{"STUB_OUTCOME=" + file}
			var c *console
			if argv == nil {
				c = sit(t, env, "$AGENT", "sh", "-c", body)
			} else {
				c = sit(t, env, argv...)
				c.sees(`> `)
				c.key("$AGENT sh -c \"" + body + "\"\n")
			}
			c.sees(`up\r\n`)
			until(t, "three sleeps", func() bool { return len(alive(t, tok)) >= 4 })
			c.hangUp()
			out := outcomeAt(t, file)
			if out.Outcome != Cancelled || out.By != unix.SIGHUP {
				t.Errorf("%+v", out)
			}
			until(t, "nothing is left", func() bool { return len(alive(t, tok)) == 0 })
		})
	}
}

// TestCtrlCInAPipelineEndsTheTree: C037.
func TestCtrlCInAPipelineEndsTheTree(t *testing.T) {
	tok := token(t)
	c := shellOn(t)
	c.key("$AGENT sh -c 'setsid sleep " + tok + " & echo up; sleep " + tok + "' | cat\n")
	c.sees(`up\r\n`)
	until(t, "both sleeps", func() bool { return len(alive(t, tok)) >= 3 })
	c.key("\x03")
	c.sees(`> `)
	until(t, "nothing is left", func() bool { return len(alive(t, tok)) == 0 })
}

// TestKeysAreOursWhenTheAgentIsGone: what it left is still being ended, and
// two Ctrl-C cut that short (S22).
func TestKeysAreOursWhenTheAgentIsGone(t *testing.T) {
	tok := token(t)
	file := filepath.Join(t.TempDir(), "outcome")
	c := sit(t, []string{"STUB_GRACE=60s", "STUB_OUTCOME=" + file}, strings.Fields(bash)...)
	c.sees(`> `)
	c.key("$AGENT sh -c '(trap \"\" TERM INT; echo up; sleep " + tok + "; sleep " + tok + ") & sleep 0.1; exit 0'\n")
	c.sees(`up\r\n`)
	until(t, "we have the terminal", func() bool {
		for _, pid := range alive(t, tok) {
			if st, err := proc.ReadStat(pid); err == nil && st.Comm == "sleep" && st.Tpgid > 0 && st.Tpgid != st.Pgrp {
				return true
			}
		}
		return false
	})
	until(t, "an outcome", func() bool {
		c.key("\x03") // two in the same instant are one to the kernel
		_, err := os.Stat(file)
		return err == nil
	})
	if out := outcomeAt(t, file); out.Outcome != Exited || out.By != unix.SIGINT {
		t.Errorf("%+v", out)
	}
	until(t, "nothing is left", func() bool { return len(alive(t, tok)) == 0 })
}

// TestRecordingOnATerminal: S20. The agent has a terminal, with our size and
// its changes; keys reach it, Ctrl-C too; everything is kept.
func TestRecordingOnATerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outcome")
	c := sit(t, []string{"STUB_RECORD=1", "STUB_OUTCOME=" + file}, "$AGENT", "sh", "-c",
		`trap 'stty size' WINCH; trap 'echo interrupted; exit 8' INT; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size; cat /proc/$$/stat; read x; echo got $x; while :; do sleep 0.01; done`)
	c.sees(`24 80\r\n`)
	st := c.sees(`(\d+) \(sh\) \S (\d+) (\d+) (\d+) (\d+) (\d+) `)
	if st[1] != st[4] || st[6] != st[1] {
		t.Errorf("pid %s, session %s, foreground %s", st[1], st[4], st[6])
	}
	c.key("hello\n")
	c.sees(`hello\r\ngot hello\r\n`)
	if err := c.resize(30, 100); err != nil {
		t.Fatal(err)
	}
	c.sees(`30 100\r\n`)
	c.key("\x03")
	c.sees(`interrupted\r\n`)
	if out := outcomeAt(t, file); out.Outcome != Exited || out.ExitCode != 8 {
		t.Errorf("%+v", out)
	}
}

// TestResizeReachesTheAgent without a recording, where the kernel does it.
func TestResizeReachesTheAgent(t *testing.T) {
	c := sit(t, nil, "$AGENT", "sh", "-c", `trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.01; done`)
	c.sees(`up\r\n`)
	if err := c.resize(31, 101); err != nil {
		t.Fatal(err)
	}
	c.sees(`31 101\r\n`)
}

// TestNobodyIsLeftStoppedForTheTerminal: C055.
func TestNobodyIsLeftStoppedForTheTerminal(t *testing.T) {
	for _, record := range []string{"", "1"} {
		c := sit(t, []string{"STUB_RECORD=" + record}, "$AGENT", "sh", "-c", `stty tostop; echo out; read x </dev/tty; echo got $x >/dev/tty`)
		c.sees(`out\r\n`)
		c.key("in\n")
		c.sees(`got in\r\n`)
		<-c.done
	}
}

// TestWithoutATerminalTheAgentHasItsOwnSession: S20, C041, C054 (a closed
// stdin becomes the null device).
func TestWithoutATerminalTheAgentHasItsOwnSession(t *testing.T) {
	exe, _ := os.Executable()
	cmd := exec.Command("setsid", "-w", "sh", "-c", `exec "$0" sh -c 'cat /proc/$$/stat; readlink /proc/$$/fd/0; cat' <&-`, exe)
	cmd.Env = append(os.Environ(), "HANDSEL_TEST_STUB=agent")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	line, rest, _ := strings.Cut(string(out), "\n")
	st, err := proc.ParseStat([]byte(line))
	if err != nil || st.Pid != st.Pgrp || st.Pid != st.Session || st.TTY != 0 || rest != "/dev/null\n" {
		t.Errorf("%+v, %v, %q", st, err, rest)
	}
}

// TestSignalsAreRaisedAgain: S22, C114. A caller sees the death, not a number.
func TestSignalsAreRaisedAgain(t *testing.T) {
	exe, _ := os.Executable()
	for name, tt := range map[string]struct {
		body string
		send unix.Signal
		want string
	}{
		"the child's":   {`kill -SEGV $$`, 0, "signal: segmentation fault"},
		"ours":          {`echo up; sleep 60`, unix.SIGTERM, "signal: terminated"},
		"a number":      {`exit 143`, 0, "exit status 143"},
		"SIGKILL":       {`kill -9 $$`, 0, "signal: killed"},
		"SIGQUIT to us": {`echo up; sleep 60`, unix.SIGQUIT, "signal: quit"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(exe, "sh", "-c", tt.body)
			cmd.Env = append(os.Environ(), "HANDSEL_TEST_STUB=agent")
			cmd.Dir = t.TempDir()
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.send != 0 {
				_, _ = out.Read(make([]byte, 8))
				_ = cmd.Process.Signal(tt.send)
			}
			err = cmd.Wait()
			if err == nil || err.Error() != tt.want {
				t.Errorf("ended as %v, want %s", err, tt.want)
			}
			if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
