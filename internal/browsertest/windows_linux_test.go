//go:build browser

package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/modelstub"
)

// One story through all windows: claude submits a lane over MCP, which is seen in
// the terminal and in the browser; it waits for a pool and is asked why in all of
// them; it runs, is accepted in the browser and released in a terminal, and the
// journal names every actor (W1, W10, W13, P11).
func TestOneStoryThroughAllWindows(t *testing.T) {
	s := stage(t, "[admission]\nmode = \"dispatcher\"\n[pools]\nall = 1\n[review]\nlanes = [\"api/*\"]\n")
	if _, err := s.Dispatcher(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start("run", "--lane", "other", "--", "fakeagent", "until", "other"); err != nil {
		t.Fatal(err)
	}
	_, link, err := s.Web()
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t, link)
	b.box("ownership", "other", "running")
	screen := s.terminal(t)
	screen.until(`other .*running`)

	// Claude is a session that somebody opened by hand: nothing of handsel's is
	// around it but the server among its tools.
	submitted := make(chan time.Time, 1)
	asked := make(chan struct{})
	server := "mcp__handsel__"
	stub, err := modelstub.Start(
		modelstub.Step{Call: &modelstub.Call{Name: server + "submit", Args: map[string]any{
			"command": []any{"fakeagent", "until", "review"}, "lane": "api/review", "engine": "claude",
		}}},
		modelstub.Step{
			Before: func(modelstub.Request) { // the answer to the submission is there
				select {
				case submitted <- time.Now():
				default:
				}
				<-asked
			},
			Call: &modelstub.Call{Name: server + "why", Args: map[string]any{"about": "lane:api/review"}},
		},
		modelstub.Step{Text: "done"},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stub.Close() })
	ended := s.claude(t, stub.URL)
	var since time.Time
	select {
	case since = <-submitted:
	case err := <-ended:
		t.Fatalf("claude ended before it had submitted: %v", err)
	case <-time.After(2 * Patience):
		t.Fatal("claude never submitted")
	}
	screen.keys("1")
	b.box("resource", "api/review", "waits", "pool", "#1")
	t.Logf("the page had the lane %v after claude had its answer", time.Since(since).Round(time.Millisecond))
	screen.until(`api/review .*pool_full`)
	t.Logf("the terminal had it %v after that answer", time.Since(since).Round(time.Millisecond))
	close(asked)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	results := stub.Results()
	if len(results) != 2 || !strings.Contains(results[0].Text, "submitted") || !strings.Contains(results[1].Text, "pool_full") {
		t.Fatalf("the tools said %+v", results)
	}

	// Why, with one key and with one click.
	screen.keys("w")
	screen.until(`resource +wait.*pool_full`)
	screen.keys("Escape")
	b.click(".box-resource .card")
	b.until("why", `document.querySelector("#side .perms")?.textContent.includes("pool_full")`)
	if err := s.Tell("other"); err != nil {
		t.Fatal(err)
	}
	b.box("ownership", "api/review", "running")
	screen.keys("3")
	screen.until(`api/review .*running`)
	if err := s.Tell("review"); err != nil {
		t.Fatal(err)
	}
	b.box("acceptance", "api/review", "waits", "verdict")

	b.click(".box-acceptance .card")
	b.until("the verdict to give", `document.querySelector("#side .acts .good")`)
	b.click("#side .acts .good")
	b.click("#confirm textarea")
	b.must(b.Keys("https://ci.example.org/71"))
	b.click("#confirm .primary")
	b.box("release", "api/review", "waits", "accepted")
	screen.keys("5")
	screen.until(`api/review .*accepted`)
	if _, err := s.Run("release", "api/review", "--", "fakeagent", "touch", "out"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "out")); err != nil {
		t.Errorf("the release ran nothing: %v", err)
	}
	b.box("release", "api/review", "released")
	screen.until(`api/review .*released`)
	text, err := s.Run("journal", "lane:api/review", "--json")
	if err != nil {
		t.Fatal(err)
	}
	namesEverybody(t, text)
}

// claude starts the real one with handsel's server among its tools, and tells when
// it has ended.
func (s *Stage) claude(t *testing.T, model string) <-chan error {
	t.Helper()
	cli, err := filepath.Abs(filepath.Join("..", "..", "testdata", "engines", "node_modules", ".bin", "claude"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := map[string]string{}
	for _, v := range s.env {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "HANDSEL_") || name == "PATH" || name == "FAKEAGENT_LIFE" {
			env[name] = value
		}
	}
	servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"handsel": map[string]any{"command": s.Handsel, "args": []string{"mcp"}, "env": env}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(file, servers, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cli, "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", "--mcp-config", file, "--strict-mcp-config")
	cmd.Dir = s.Dir
	cmd.Env = append(without(s.env, "HOME=", "HANDSEL_"), "HOME="+dir, "ANTHROPIC_BASE_URL="+model, "ANTHROPIC_API_KEY=x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1")
	cmd.Stdin = strings.NewReader("Submit the review, and say why it waits.\n")
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		err := cmd.Wait()
		if err != nil {
			text, _ := os.ReadFile(said.Name())
			err = fmt.Errorf("claude: %w\n%s", err, text)
		}
		over <- err
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
		_ = said.Close()
	})
	return over
}

// terminal is a tmux in which handsel top runs.
type terminal struct {
	t   *testing.T
	dir string
}

func (s *Stage) terminal(t *testing.T) *terminal {
	t.Helper()
	screen := &terminal{t, t.TempDir()}
	t.Cleanup(func() { _ = screen.tmux("kill-server").Run() })
	start := screen.tmux("new-session", "-d", "-x", "180", "-y", "45", "exec '"+s.Handsel+"' top")
	start.Dir, start.Env = s.Dir, append(without(s.env, "TERM=", "TMUX"), "TERM=xterm", "SHELL=/bin/sh", "TMUX_TMPDIR="+screen.dir)
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v\n%s", err, out)
	}
	return screen
}

func (x *terminal) tmux(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-L", "windows"}, args...)...)
	cmd.Env = append(without(os.Environ(), "TMUX"), "TMUX_TMPDIR="+x.dir)
	return cmd
}

// until waits for a pattern on the screen.
func (x *terminal) until(pattern string) {
	x.t.Helper()
	want := regexp.MustCompile("(?m)" + pattern)
	var shown []byte
	if err := Wait(pattern, func() bool {
		shown, _ = x.tmux("capture-pane", "-p").Output()
		return want.Match(shown)
	}); err != nil {
		x.t.Fatalf("%v on the screen:\n%s", err, shown)
	}
}

func (x *terminal) keys(keys ...string) {
	x.t.Helper()
	for _, key := range keys {
		if out, err := x.tmux("send-keys", key).CombinedOutput(); err != nil {
			x.t.Fatalf("send %s: %v\n%s", key, err, out)
		}
	}
}
