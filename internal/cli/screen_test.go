package cli_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A script has a real terminal besides: a pane of tmux with a shell in it.
//
//	screen COLUMNS ROWS   begin it
//	resize COLUMNS ROWS   give it another size
//	keys KEY…             type, in the words of tmux send-keys; words of several letters are typed as they are
//	sees REGEXP           wait until the screen matches; ! sees: it does not match now
//	colours REGEXP        the same of the screen with its escape sequences
//	looks FILE            wait until the screen, without what differs each time, is that file

// tmux runs a command of the script's own tmux.
func tmux(ts *testscript.TestScript, args ...string) (string, error) {
	c := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-S", ts.MkAbs(".tmux")}, args...)...)
	for _, name := range []string{"PATH", "HANDSEL_HOME", "HANDSEL_CONFIG", "HANDSEL_MAX_AGENTS", "HANDSEL_MAX_AGENTS_CODEX", "FAKEAGENT_LIFE", "GORACE", "WORK", "HOME"} {
		c.Env = append(c.Env, name+"="+ts.Getenv(name))
	}
	// tmux starts its command by a shell, and that of a user like nobody starts none.
	c.Env = append(c.Env, "LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/sh")
	for _, name := range []string{"NO_COLOR", "HANDSEL_AGENT_DEPTH", "TESTSCRIPT_COMMAND", "GOCOVERDIR"} {
		if value := ts.Getenv(name); value != "" {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	c.Dir = ts.MkAbs(".")
	out, err := c.CombinedOutput()
	return string(out), err
}

func mustTmux(ts *testscript.TestScript, args ...string) string {
	out, err := tmux(ts, args...)
	if err != nil {
		ts.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func screen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: screen COLUMNS ROWS")
	}
	mustTmux(ts, "new-session", "-d", "-x", args[0], "-y", args[1], "exec env 'PS1=ready> ' bash --norc --noprofile -i",
		";", "set-option", "-g", "status", "off", ";", "set-option", "-g", "window-size", "manual")
	ts.Defer(func() { _, _ = tmux(ts, "kill-server") })
	mustTmux(ts, "resize-window", "-x", args[0], "-y", args[1])
}

func resize(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: resize COLUMNS ROWS")
	}
	mustTmux(ts, "resize-window", "-x", args[0], "-y", args[1])
}

func keys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: keys KEY…")
	}
	mustTmux(ts, append([]string{"send-keys"}, args...)...)
}

// pane is what is on the screen.
func pane(ts *testscript.TestScript, how ...string) string {
	return mustTmux(ts, append([]string{"capture-pane", "-p"}, how...)...)
}

func sees(ts *testscript.TestScript, neg bool, args []string) { looksLike(ts, neg, args) }

func colours(ts *testscript.TestScript, neg bool, args []string) { looksLike(ts, neg, args, "-e") }

func looksLike(ts *testscript.TestScript, neg bool, args []string, how ...string) {
	if len(args) != 1 {
		ts.Fatalf("usage: sees REGEXP, colours REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	if neg {
		if text := pane(ts, how...); want.MatchString(text) {
			ts.Fatalf("the screen shows %s:\n%s", args[0], text)
		}
		return
	}
	var text string
	ts.Defer(func() {
		if !want.MatchString(text) {
			ts.Logf("the screen was:\n%s", text)
		}
	})
	eventually(ts, "the screen shows "+args[0], func() bool {
		text = pane(ts, how...)
		return want.MatchString(text)
	})
}

func looks(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: looks FILE")
	}
	want := strings.TrimRight(ts.ReadFile(args[0]), "\n")
	text := ""
	deadline := time.Now().Add(patience)
	for text = steady(pane(ts)); text != want; text = steady(pane(ts)) {
		if time.Now().After(deadline) {
			ts.Fatalf("%s is not what is on the screen:\n%s", filepath.Base(args[0]), text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// volatile is what differs from one time to the next, and what stands for it. The
// spaces after it are part of it, so that columns stay columns.
var volatile = []struct {
	what *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`handsel top  /\S+ +\d\d:\d\d:\d\dZ`), "handsel top  HOME  TIME"},
	{regexp.MustCompile(`, held by .*`), ", held by …"},
	{regexp.MustCompile(`\b[0-9a-f]{8}\b *`), "RUN"},
	{regexp.MustCompile(`\b(\d+m)?\d+s\b *`), "AGE"},
	{regexp.MustCompile(`\b\d{3,7}\b *`), "PID"},
}

func steady(text string) string {
	for _, v := range volatile {
		text = v.what.ReplaceAllStringFunc(text, func(found string) string {
			bare := strings.TrimRight(found, " ")
			if len(bare) == len(found) {
				return v.word
			}
			return fmt.Sprintf("%-*s", len(found), v.word)
		})
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
