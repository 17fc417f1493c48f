//go:build engines

package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/handsel/handsel/internal/modelstub"
)

// shimmed puts shims before the engines and returns the PATH of those who call them
// by name.
func (c *cell) shimmed() string {
	c.t.Helper()
	bin := filepath.Dir(c.engine.path(c.t))
	path := filepath.Join(c.state, "shims") + ":" + bin + ":" + os.Getenv("PATH")
	cmd := exec.Command(os.Getenv("HANDSEL_BIN"), "shim", "install", "claude", "codex", "gemini", "pi")
	cmd.Env = append(c.environment(), "PATH="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("shim install: %v: %s", err, out)
	}
	return path
}

// insideScript is what the engine is told to run: it looks around, calls itself by its
// name, and asks for its own version, which is no agent's work.
const insideScript = `. ./path
"$HANDSEL_BIN" status --json >status.json
"$HANDSEL_BIN" doctor --census --json >census.json
"$1" --version >version.txt 2>&1
echo "version: $?" >told
name=$1
shift
"$name" "$@" </dev/null >nested.txt 2>&1
echo "nested: $?" >>told
`

// census is what doctor --census said of the cell's directory.
type census struct {
	Counted int
	Agents  []struct{ Engine, How, Cwd string }
}

func (c *cell) census() (got census, here int) {
	c.t.Helper()
	c.must(json.Unmarshal(c.bytes(filepath.Join(c.work, "census.json")), &got))
	for _, one := range got.Agents {
		if one.Cwd == c.work {
			here++
		}
	}
	return got, here
}

// whole are the engines that are no variant of another.
func whole() (all []engine) {
	for _, e := range engines {
		if e.name == e.bin {
			all = append(all, e)
		}
	}
	return all
}

// TestRealEnginesCalledByName is W6, W7 and W9: a script that knows nothing of
// handsel calls each CLI by its name. It is counted, what it starts itself is
// refused, its own version is not counted, and the census does not list it.
func TestRealEnginesCalledByName(t *testing.T) {
	for _, e := range whole() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, e, nil, modelstub.Step{Text: "I will run it.", Shell: `sh ./inside ` + e.bin + ` ` + shellWords(e.turn)}, modelstub.Step{Text: "Done."})
			c.write("inside", insideScript)
			// codex runs commands in a login shell, whose PATH is /etc/profile's
			c.write("path", "PATH="+c.shimmed()+"; HANDSEL_BIN="+os.Getenv("HANDSEL_BIN")+"; export PATH HANDSEL_BIN\n")
			script := ". ./path\nexec " + e.bin + ` "$@"` + "\n"
			end := c.launch(append([]string{"sh", "-c", script, "sh"}, e.turn...)).wait()
			c.expectAnswered(end)
			if got, want := string(c.bytes(filepath.Join(c.work, "told"))), "version: 0\nnested: 1\n"; got != want {
				t.Errorf("inside: %q, want %q", got, want)
			}
			if said := c.bytes(filepath.Join(c.work, "nested.txt")); !bytes.Contains(said, []byte("inside an agent")) {
				t.Errorf("nested said %q", said)
			}
			if got, here := c.census(); here != 0 || got.Counted == 0 {
				t.Errorf("the census lists %+v", got)
			}
			if status := c.bytes(filepath.Join(c.work, "status.json")); !bytes.Contains(status, []byte(`"engine": "`+e.pool+`"`)) {
				t.Errorf("status shows no slot: %s", status)
			}
			c.expectGone(nil)
		})
	}
}

// expectAnswered: the engine ran what it was told to, told the model, and ended well.
func (c *cell) expectAnswered(end ended) {
	c.t.Helper()
	if len(c.stub.Results()) == 0 || end.code != 0 {
		c.t.Errorf("status %d%s", end.code, c.describe(end))
	}
}

func shellWords(words []string) string {
	var out []string
	for _, word := range words {
		out = append(out, "'"+word+"'")
	}
	return strings.Join(out, " ")
}

// TestClaudePassesInsideClaude: with shim = "pass" what an agent calls by name runs
// inside it, uncounted.
func TestClaudePassesInsideClaude(t *testing.T) {
	e := whole()[0]
	c := newCell(t, e, nil,
		modelstub.Step{Text: "I will run it.", Shell: `echo nested prompt | claude -p >nested.txt 2>&1; echo "nested: $?" >told`},
		modelstub.Step{Text: "This is the nested one."}, modelstub.Step{Text: "Done."})
	c.write("config.toml", "[nesting]\nshim = \"pass\"\n")
	c.config = filepath.Join(c.work, "config.toml")
	script := "PATH=" + c.shimmed() + "; export PATH\nexec claude \"$@\"\n"
	end := c.launch(append([]string{"sh", "-c", script, "sh"}, e.turn...)).wait()
	c.expectAnswered(end)
	if got := string(c.bytes(filepath.Join(c.work, "told"))); got != "nested: 0\n" {
		t.Errorf("inside: %q: %s", got, c.bytes(filepath.Join(c.work, "nested.txt")))
	}
	if said := c.bytes(filepath.Join(c.work, "nested.txt")); !bytes.Contains(said, []byte("nested one")) {
		t.Errorf("the nested one said %q", said)
	}
	c.expectGone(nil)
}

// TestNpxGoesAroundShims: npx starts what lies in node_modules by its path. No slot
// is taken, and the census sees it.
func TestNpxGoesAroundShims(t *testing.T) {
	e := whole()[0]
	c := newCell(t, e, nil, modelstub.Step{Text: "I will run it.", Shell: `"$HANDSEL_BIN" doctor --census --json >census.json; true`}, modelstub.Step{Text: "Done."})
	c.must(os.Symlink(filepath.Dir(filepath.Dir(e.path(t))), filepath.Join(c.work, "node_modules")))
	script := "PATH=" + c.shimmed() + "; HANDSEL_BIN=" + os.Getenv("HANDSEL_BIN") + "; export PATH HANDSEL_BIN\nexec npx --offline claude \"$@\"\n"
	end := c.launch(append([]string{"sh", "-c", script, "sh"}, e.turn...)).wait()
	c.expectAnswered(end)
	got, here := c.census()
	if here != 1 {
		t.Errorf("the census lists %d of %s: %+v", here, c.work, got)
	}
	if len(c.slots()) != 0 {
		t.Errorf("slots: %+v", c.slots())
	}
}

// TestRealEnginesAtATerminalBehindShims: each CLI shows its screen, is shown as
// interactive, and gives its slot back when it is left.
func TestRealEnginesAtATerminalBehindShims(t *testing.T) {
	for _, e := range whole() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, e, nil)
			cmd := exec.Command(filepath.Join(c.state, "shims", e.bin))
			cmd.Env, cmd.Dir = append(c.environment(), "PATH="+c.shimmed(), "TERM=xterm-256color"), c.work
			tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
			c.must(err)
			defer tty.Close()
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			screen := make(chan []byte, 64)
			go func() {
				defer close(screen)
				buf := make([]byte, 32<<10)
				for {
					n, err := tty.Read(buf)
					if n > 0 {
						screen <- bytes.Clone(buf[:n])
					}
					if err != nil {
						return
					}
				}
			}()
			shown, sat := c.sit(tty, screen, done)
			if len(shown) < 100 {
				t.Errorf("it showed %q", shown)
			}
			if !sat {
				t.Errorf("status never showed it as interactive; it showed %q", clip(string(shown)))
			}
			c.expectFree()
			c.expectGone(nil)
		})
	}
}

// sit answers what a terminal is asked, looks at status until the session is shown,
// and then asks it to end until it does.
func (c *cell) sit(tty *os.File, screen <-chan []byte, done <-chan error) (shown []byte, sat bool) {
	c.t.Helper()
	look := time.NewTicker(300 * time.Millisecond)
	defer look.Stop()
	over := time.After(c.patience)
	for {
		select {
		case <-done:
			return shown, sat
		case <-over:
			c.t.Fatalf("it does not end; it showed %q", clip(string(shown)))
		case text, ok := <-screen:
			if !ok {
				screen = nil
				continue
			}
			shown = append(shown, text...)
			for asked, answer := range map[string]string{"\x1b[6n": "\x1b[1;1R", "\x1b[c": "\x1b[?62;c"} {
				for range bytes.Count(text, []byte(asked)) {
					_, _ = tty.WriteString(answer)
				}
			}
		case <-look.C:
			if !sat {
				cmd := exec.Command(os.Getenv("HANDSEL_BIN"), "status", "--json")
				cmd.Env = c.environment()
				out, _ := cmd.Output()
				sat = bytes.Contains(out, []byte(`"interactive": true`)) && len(shown) > 100
				continue
			}
			_, _ = fmt.Fprint(tty, "\x03")
		}
	}
}
