//go:build engines

package enginetest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/handsel/handsel/internal/modelstub"
)

func init() { scenarios = append(scenarios, scenario{"light, confined by the kernel", confined}) }

// plant is what a light agent tries: its directory, the user's home, the
// directories in which the engines keep hooks and settings, from itself and from
// an orphan. It ends well whatever comes of it.
const plant = `echo in >inside
for file in outside .claude/settings.json .claude.json .gemini/settings.json .gemini/GEMINI.md .pi/agent/settings.json .bashrc; do
  (mkdir -p "$HOME/$(dirname $file)"; echo planted >>"$HOME/$file"; chmod 600 "$HOME/$file") 2>/dev/null
done
mkfifo over
(setsid sh -c 'echo planted >"$HOME/orphan"; echo over >over' 2>/dev/null &)
cat over; rm over
echo x >/dev/null && echo ` + plantMark

const plantMark = "all-was-tried"

// confined: a light agent under the kernel's confinement does its work, writes in
// its directory and nowhere else, and the user's login and settings are what they
// were (E6). codex, whose own sandbox cannot work there, is refused.
func confined(t *testing.T, e engine) string {
	if strings.HasPrefix(e.name, "codex") {
		return confinedRefused(t, e)
	}
	users := []*syscall.Credential{nil}
	if os.Getuid() == 0 {
		users = append(users, &syscall.Credential{Uid: ordinary, Gid: ordinary})
	}
	for _, user := range users {
		confinedAs(t, e, user)
	}
	return fmt.Sprintf("status 0; wrote inside only, login and settings as before (%d users)", len(users))
}

var underKernel = []string{"run", "--workload", "light", "--confine", "os", "--"}

func confinedAs(t *testing.T, e engine, user *syscall.Credential) {
	t.Helper()
	c := newCell(t, e, user, modelstub.Step{Text: "I will run it.", Shell: "sh plant.sh"}, modelstub.Step{Text: "Done."})
	c.write("plant.sh", plant) // gemini refuses a command with $( in it
	if login, ok := logins[e.name]; ok {
		path := filepath.Join(c.home, login)
		c.must(os.MkdirAll(filepath.Dir(path), 0o700))
		c.must(os.WriteFile(path, []byte(`{"login":"still there"}`), 0o600))
		c.give(filepath.Dir(path))
		c.give(path)
	}
	before := tree(t, c.home)
	end := c.run(append([]string{os.Getenv("HANDSEL_BIN")}, underKernel...), e.turn...)
	if !slices.ContainsFunc(c.stub.Results(), func(r modelstub.Result) bool { return strings.Contains(r.Text, plantMark) }) {
		t.Errorf("the command did not run to its end%s", c.describe(end))
	}
	if end.code != 0 || end.signal != 0 {
		t.Errorf("status %d (signal %d)%s", end.code, end.signal, c.describe(end))
	}
	if text, err := os.ReadFile(filepath.Join(c.work, "inside")); err != nil || string(text) != "in\n" {
		t.Errorf("inside: %q, %v", text, err)
	}
	if after := tree(t, c.home); after != before {
		t.Errorf("the home was\n%s and is\n%s", before, after)
	}
	for _, left := range []string{filepath.Join(c.state, "runs/*/*/state"), filepath.Join(c.tmp, "handsel-*")} {
		if names, err := filepath.Glob(left); err != nil || len(names) > 0 {
			t.Errorf("left behind: %v, %v", names, err)
		}
	}
	c.expectConfinement("kernel")
	c.expectGone(nil)
}

// logins are where the engines keep what a subscription is proven with.
var logins = map[string]string{
	"claude": ".claude/.credentials.json",
	"gemini": ".gemini/google_accounts.json",
	"pi":     ".pi/agent/auth.json",
}

func confinedRefused(t *testing.T, e engine) string {
	t.Helper()
	c := newCell(t, e, nil, modelstub.Step{Text: "Never asked."})
	end := c.run(append([]string{os.Getenv("HANDSEL_BIN")}, underKernel...), e.turn...)
	if end.code != 78 || !strings.Contains(end.stderr, "its own sandbox mounts") {
		t.Errorf("status %d, want 78%s", end.code, c.describe(end))
	}
	if len(c.stub.Log()) > 0 {
		t.Error("it was started all the same")
	}
	if _, err := os.Stat(c.state); err == nil {
		t.Error("the refusal left a home")
	}
	return "refused, status 78"
}

// expectConfinement: the record of the cell's only run says how it was confined.
func (c *cell) expectConfinement(want string) {
	c.t.Helper()
	ask := exec.Command(os.Getenv("HANDSEL_BIN"), "runs", "--json")
	ask.Env = c.environment()
	ask.SysProcAttr = &syscall.SysProcAttr{Credential: c.user}
	ask.Dir = c.work
	text, err := ask.Output()
	c.must(err)
	var list struct {
		Runs []struct{ Confinement, Workload string }
	}
	c.must(json.Unmarshal(text, &list))
	if len(list.Runs) != 1 || list.Runs[0].Confinement != want || list.Runs[0].Workload != "light" {
		c.t.Errorf("runs: %+v, want one, light, confined by %s", list.Runs, want)
	}
}

// tree lists what lies below dir: names, modes and contents.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s", path, st.Mode())
		if e.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", text)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
