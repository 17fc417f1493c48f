package acceptance

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/fakeagent"
)

// sideBySide does the same twice: without us, to know that the test is right,
// and under us.
func sideBySide(t *testing.T, do func(t *testing.T, p *place, under string)) {
	t.Parallel()
	t.Run("without us", func(t *testing.T) {
		t.Parallel()
		do(t, ordinary(t), "")
	})
	t.Run("under us", func(t *testing.T) {
		t.Parallel()
		do(t, ordinary(t).with("HANDSEL_MAX_AGENTS=1"), "$HANDSEL run -- ")
	})
}

// TestEditorWorksAsWithoutUs is S20 and C055: vi on a terminal takes keys,
// hears of a new size, stops and goes on under the shell's job control, and
// leaves its file.
func TestEditorWorksAsWithoutUs(t *testing.T) {
	sideBySide(t, func(t *testing.T, p *place, under string) {
		file := p.write("text", "first\n")
		s := p.shell()
		s.key(under + "vi -u NONE -n " + file + "\r")
		s.sees(`first`)
		s.key(":set lines? columns?\r")
		s.sees(`lines=24\s+columns=80`)
		s.key("\r")
		s.resize(40, 100)
		// The editor fills the new rows as soon as it hears of them. It may hear
		// a moment before it waits for a key, and then look only at the next one.
		s.key("\x0c")
		s.sees(`\x1b\[1;40r|\x1b\[39;1H`)
		s.key(":set lines? columns?\r")
		s.sees(`lines=40\s+columns=100`)
		s.key("\rohello\x1b\x1a") // a line, and Ctrl-Z
		s.sees(`Stopped`)
		s.sees(`ready> `)
		if state := p.status().states("all"); under != "" && state != "running" {
			t.Errorf("stopped by its user, its slot is %q", state) // a stopped agent is alive (S7)
		}
		s.key("jobs\r")
		s.sees(`\[1\]\+\s+Stopped`)
		s.key("fg\r")
		s.sees(`hello`)
		s.key(":wq\r")
		s.sees(`ready> `)
		s.key("echo status=$?\r")
		s.sees(`status=0\r`)
		if text, err := os.ReadFile(file); err != nil || string(text) != "first\nhello\n" {
			t.Errorf("the file holds %q, %v", text, err)
		}
		s.key("exit 0\r")
		if end := s.wait(); end != "exit 0" {
			t.Errorf("the shell ended with %s", end)
		}
		p.settled()
	})
}

// TestBackgroundJobComesBack: Ctrl-Z, bg, fg, Ctrl-Z again, fg, Ctrl-C.
func TestBackgroundJobComesBack(t *testing.T) {
	sideBySide(t, func(t *testing.T, p *place, under string) {
		s := p.shell()
		note := p.file("note")
		s.key(fmt.Sprintf("%s%s pid %s then sleep 600\r", under, fakeagent.Build(t), note))
		agent := p.noted(note)
		s.key("\x1a")
		s.sees(`Stopped`)
		eventually(t, "the agent is stopped", agent.stopped)
		s.key("bg\r")
		eventually(t, "the agent goes on", func() bool { return !agent.stopped() })
		s.key("echo the shell reads on\r")
		s.sees(`\nthe shell reads on`)
		s.sees(`ready> `)
		s.key("fg\r")
		eventually(t, "the shell gave the terminal away", func() bool { return s.foreground() != s.id.pid })
		s.key("\x1a")
		s.sees(`Stopped`)
		eventually(t, "the agent is stopped again", agent.stopped)
		s.key("fg\r")
		eventually(t, "the agent goes on again", func() bool { return !agent.stopped() })
		s.key("\x03")
		s.sees(`ready> `)
		s.key("echo status=$?\r")
		s.sees(`status=130\r`)
		if agent.alive() {
			t.Error("the agent outlives Ctrl-C")
		}
		s.key("exit\r")
		s.wait()
		p.settled()
	})
}

// TestPagerReadsKeys: less by itself, and at the end of a pipe that we feed.
func TestPagerReadsKeys(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, "line %d.\n", i)
	}
	file := p.write("lines", lines.String())
	s := p.shell()
	for _, line := range []string{"$HANDSEL run -- less " + file, "$HANDSEL run -- cat " + file + " | less"} {
		s.key(line + "\r")
		s.sees(`line 10\.`)
		s.key(" ")
		s.sees(`line 30\.`)
		s.key("G")
		s.sees(`line 499\.`)
		s.key("q")
		s.sees(`ready> `)
		s.key("echo status=${PIPESTATUS[*]}\r")
		s.sees(`status=0( 0)?\r`)
	}
	// Left early, the pipe breaks: ours ends by the signal, as cat does.
	s.key("$HANDSEL run -- yes | less\r")
	s.sees(`y\r?\ny`)
	s.key("q")
	s.sees(`ready> `)
	s.key("echo status=${PIPESTATUS[*]}\r")
	s.sees(`status=141 0\r`)
	s.key("exit\r")
	s.wait()
	p.settled()
}

// TestShellInsideHasItsJobControl: bash -i as the agent.
func TestShellInsideHasItsJobControl(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	s := p.shell()
	s.key("PS1='inner> ' $HANDSEL run -- bash --norc --noprofile --noediting -i\r")
	s.sees(`inner> `)
	s.key("echo depth=$HANDSEL_AGENT_DEPTH\r")
	s.sees(`depth=1\r`)
	s.key("sleep 60 &\r")
	s.sees(`\[1\] \d+`)
	s.key("sleep 61\r")
	s.sees(`sleep 61\r`)
	eventually(t, "the inner job has the terminal", func() bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.foreground()))
		return strings.HasPrefix(string(line), "sleep\x0061")
	})
	s.key("\x1a")
	s.sees(`\[2\]\+\s+Stopped\s+sleep 61`)
	s.key("fg 2\r")
	s.sees(`sleep 61\r`)
	eventually(t, "the inner job has the terminal again", func() bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.foreground()))
		return strings.HasPrefix(string(line), "sleep\x0061")
	})
	s.key("\x03")
	s.sees(`inner> `)
	s.resize(33, 99)
	eventually(t, "the inner shell knows the size", func() bool {
		s.key("stty size\r")
		return s.sees(`(\d+ \d+)\r`)[1] == "33 99"
	})
	s.key("exit 3\r")
	s.sees(`ready> `)
	s.key("echo status=$?\r")
	s.sees(`status=3\r`)
	s.key("exit\r")
	s.wait()
	p.settled()
}

// TestResizeReachesTheAgent: SIGWINCH, exactly as the terminal sends it.
func TestResizeReachesTheAgent(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	note := p.file("signals")
	s := sit(t, p.agent("--", "signals", note, "1"))
	eventually(t, "the agent listens", func() bool {
		return strings.HasPrefix(lines(note), "ready")
	})
	s.resize(50, 132)
	if end := s.wait(); end != "exit 0" {
		t.Errorf("it ended with %s", end)
	}
	if text, _ := os.ReadFile(note); !strings.Contains(string(text), "SIGWINCH") {
		t.Errorf("it saw %q", text)
	}
	p.settled()
}

// TestCtrlCEndsALoop is S22: a shell that loops over us stops looping.
func TestCtrlCEndsALoop(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	s := p.shell()
	s.key(fmt.Sprintf("for i in 1 2 3; do $HANDSEL run -- %s touch %s.$i then sleep 600; done\r", fakeagent.Build(t), p.file("started")))
	eventually(t, "the first runs", func() bool { return exists(p.file("started.1")) })
	eventually(t, "the agent has the terminal", func() bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.foreground()))
		return strings.Contains(string(line), "fakeagent\x00touch")
	})
	s.key("\x03")
	s.sees(`ready> `)
	s.key("echo status=$?\r")
	s.sees(`status=130\r`)
	if exists(p.file("started.2")) {
		t.Error("the loop went on")
	}
	// While it waits in line, too.
	holder, _ := p.holding("holder")
	s.key(fmt.Sprintf("for i in 4 5; do $HANDSEL run -- %s touch %s.$i; done\r", fakeagent.Build(t), p.file("started")))
	p.awaits(1)
	s.sees(`waiting \d+s: pool "all" is at its cap of 1`)
	s.key("\x03")
	s.sees(`ready> `)
	s.key("echo status=$?\r")
	s.sees(`status=130\r`)
	if exists(p.file("started.4")) || exists(p.file("started.5")) {
		t.Error("the loop went on")
	}
	holder.closeIn()
	holder.wait()
	s.key("exit\r")
	s.wait()
	p.settled()
}

// TestTerminalLooksTheSame: what an agent sees of a terminal with us and without.
func TestTerminalLooksTheSame(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	agent := fakeagent.Build(t)
	s := p.shell()
	s.key(agent + " tty\r")
	plain := s.sees(`tty pgid \d+ (foreground true) sid (\d+) (size 24x80)\r`)
	s.key("$HANDSEL run -- " + agent + " tty\r")
	under := s.sees(`tty pgid \d+ (foreground true) sid (\d+) (size 24x80)\r`)
	if plain[2] != under[2] {
		t.Errorf("another session: %s, without us %s", under[2], plain[2])
	}
	s.sees(`ready> `)
	s.key("exit\r")
	s.wait()
	// Without a terminal there is none, and nobody stops for asking (C055).
	out, _ := must(t, "exit 0", p.agent("--", "tty"))
	if !strings.HasPrefix(out, "no tty") {
		t.Errorf("without a terminal: %q", out)
	}
	p.settled()
}
