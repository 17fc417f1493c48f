package profile

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// places has a user's directory and a project with a directory below it.
func places(t *testing.T) (at Places, user, project string) {
	t.Helper()
	root := t.TempDir()
	user, project = filepath.Join(root, "user"), filepath.Join(root, "project")
	deep := filepath.Join(project, "a", "b")
	for _, dir := range []string{user, filepath.Join(project, ProjectDir), deep} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return Places{User: []string{user}, Dir: deep}, user, project
}

func write(t *testing.T, text string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestWhatAProfileSays is E8: both forms say the same.
func TestWhatAProfileSays(t *testing.T) {
	want := Profile{
		Engine: "codex", Account: "work", Model: "m-1", Workload: "light", Confine: "os", System: "You review.\n\nBe short.",
		Pools: []string{"gpu", "net"}, Args: []string{"--x", "a b", ""}, Timeout: 90 * time.Second, Idle: 30 * time.Second,
	}
	for name, text := range map[string]string{
		"r.md": "---\nname: r\ndescription: for people\nengine: codex\naccount: work\nmodel: m-1\nworkload: light\nconfine: os\n" +
			"pools: [gpu, net]\nargs:\n  - --x\n  - a b\n  - ''\ntimeout: 90s\nidle: 30\n---\n\nYou review.\n\nBe short.\n",
		"crlf.md": "\ufeff---\r\nengine: codex\r\naccount: work\r\nmodel: m-1\r\nworkload: light\r\nconfine: os\r\npools: [gpu, net]\r\n" +
			"args: [--x, a b, '']\r\ntimeout: 90s\r\nidle: 30s\r\n---  \r\nYou review.\r\n\r\nBe short.",
		"t.toml": "engine = \"codex\"\naccount = 'work'\nmodel = 'm-1'\nworkload = \"light\"\nconfine = \"os\"\npools = [\"gpu\", \"net\"]\n" +
			"args = [\"--x\", \"a b\", \"\"]\ntimeout = \"90s\"\nidle = 30\nsystem = \"\"\"\nYou review.\n\nBe short.\"\"\"\n",
	} {
		at, user, _ := places(t)
		path := write(t, text, user, name)
		want := want
		want.Name, want.Path = strings.TrimSuffix(name, filepath.Ext(name)), path
		got, err := at.Load(want.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: %+v\nwant %+v", name, got, &want)
		}
	}
}

// TestTextAloneIsInstructions: no settings, no dashes.
func TestTextAloneIsInstructions(t *testing.T) {
	at, user, _ := places(t)
	write(t, "You review.\n---\nengine: pi\n", user, "r.md")
	p, err := at.Load("r")
	if err != nil || p.System != "You review.\n---\nengine: pi" || p.Engine != "" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestWhatIsPassedOver is E3 and E8: a class that does not exist is heavy and an
// unknown key is nothing, each with a warning that has the line.
func TestWhatIsPassedOver(t *testing.T) {
	at, user, _ := places(t)
	for name, text := range map[string]string{
		"m.md":   "---\n# a comment\nworkload: Light\ntools: [Bash]\n---\n",
		"t.toml": "# a comment\n\nworkload = \"Light\"\ntools = [\"Bash\"]\n",
		"n.toml": "# a comment\n\nworkload = 3\n[tools]\nbash = true\n",
	} {
		path := write(t, text, user, name)
		p, err := at.Load(strings.TrimSuffix(name, filepath.Ext(name)))
		if err != nil {
			t.Fatal(err)
		}
		value := map[bool]string{true: `"3"`, false: `"Light"`}[name == "n.toml"]
		want := []string{
			`"` + path + `":3: workload ` + value + ` is neither "heavy" nor "light", so it is heavy`,
			`"` + path + `":4: unknown key "tools" is passed over`,
		}
		if p.Workload != "heavy" || !slices.Equal(p.Warnings, want) {
			t.Errorf("%s: %q, %q\nwant %q", name, p.Workload, p.Warnings, want)
		}
	}
}

// TestWhatIsRefused: each mistake has its line.
func TestWhatIsRefused(t *testing.T) {
	at, user, _ := places(t)
	for _, c := range []struct{ name, text, want string }{
		{"a.md", "---\nengine: [x]\n---\n", ":2: engine: it must be a text"},
		{"a.md", "---\nengine:\n---\n", ":2: engine: it must be a text"},
		{"a.md", "---\nengine: pi\nengine: codex\n---\n", `:3: "engine" is set twice`},
		{"a.md", "---\nengine: pi\n", ":1: the settings that begin here have no end: a line of three dashes"},
		{"a.md", "---\n- engine\n---\n", ":2: the settings are not of the form key: value"},
		{"a.md", "---\nengine: [x\n---\n", ":2: sequence end token ']' not found"},
		{"a.md", "---\nmodel: m\nsystem: x\n---\ny\n", ":3: system: the text below the settings is the instructions already"},
		{"a.md", "---\nconfine: landlock\n---\n", `:2: confine: it must be "os" or "none"`},
		{"a.md", "---\ntimeout: soon\n---\n", ":2: timeout: it must be a time such as 90s, 10m or a number of seconds, more than 0"},
		{"a.md", "---\nidle: 0\n---\n", ":2: idle: it must be a time such as 90s, 10m or a number of seconds, more than 0"},
		{"a.md", "---\naccount: 3\n---\n", ":2: account: it must be a text"},
		{"a.md", "---\nargs: [1]\n---\n", ":2: args: it must be a list of texts"},
		{"a.md", "---\nmodel: \"a\\0b\"\n---\n", ":2: model: it has a NUL byte, which no argument can have"},
		{"a.md", "a\xffb", ": it is not text in UTF-8"},
		{"a.md", "a\x00b", ": it is not text in UTF-8"},
		{"b.toml", "engine = 3\n", ":1: engine: it must be a text"},
		{"b.toml", "model = \"m\"\nengine = \"x\n", ":2: "},
		{"b.toml", "model = \"m\"\nmodel = \"n\"\n", ":2: "},
	} {
		path := write(t, c.text, user, c.name)
		p, err := at.Load(strings.TrimSuffix(c.name, filepath.Ext(c.name)))
		want := `"` + path + `"` + c.want
		if _, ok := errors.AsType[*Bad](err); !ok || p != nil || !strings.HasPrefix(err.Error(), want) || strings.HasSuffix(c.want, ": ") == (err.Error() == want) {
			t.Errorf("%q: %v\nwant %s", c.text, err, want)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhoseProfileWins is E8: the user's own before the project's, whose nearest
// directory counts; what is nowhere is told with what there is.
func TestWhoseProfileWins(t *testing.T) {
	at, user, project := places(t)
	mine := write(t, "mine", user, "both.md")
	write(t, "model = 'theirs'", project, ProjectDir, "both.toml")
	theirs := write(t, "theirs", project, ProjectDir, "only.md")
	write(t, "not one", user, "notes.txt")
	write(t, "not one", user, ".hidden.md")
	if p, err := at.Load("both"); err != nil || p.Path != mine || p.Project != "" {
		t.Errorf("%+v, %v", p, err)
	}
	p, err := at.Load("only")
	if err != nil || p.Path != theirs || p.Project != project || p.Trusted {
		t.Errorf("%+v, %v", p, err)
	}
	want := []Known{{"both", mine, ""}, {"only", theirs, project}}
	if got := at.List(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	_, err = at.Load("none")
	if missing, ok := errors.AsType[*NotFound](err); !ok || !slices.Equal(missing.Near, []string{"both", "only"}) {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"", "../both", ".hidden", "a/b", "a b", strings.Repeat("x", 65)} {
		if p, err := at.Load(name); err == nil {
			t.Errorf("%q: %+v", name, p)
		}
	}
	at.Dir = ""
	if _, err := at.Load("only"); err == nil {
		t.Error("a project's profile without a project")
	}
}

// TestBoldProjects is E8: what an untrusted project may not set.
func TestBoldProjects(t *testing.T) {
	at, _, project := places(t)
	for text, want := range map[string]string{
		"engine = 'pi'\nmodel = 'm'\nworkload = 'light'\nsystem = 's'\ntimeout = 3\nidle = 3": "",
		"args = ['x']":                      "args",
		"pools = ['x']":                     "pools",
		"account = 'x'":                     "account",
		"confine = 'none'":                  "confine",
		"confine = 'os'\nargs = ['--yolo']": "confine",
	} {
		write(t, text, project, ProjectDir, "p.toml")
		for _, trusted := range []bool{false, true} {
			at.Trusted = func(dir string) bool {
				if dir != project {
					t.Errorf("asked for %s", dir)
				}
				return trusted
			}
			p, err := at.Load("p")
			if err != nil {
				t.Fatal(err)
			}
			if trusted {
				want = ""
			}
			if got := p.Bold(); got != want {
				t.Errorf("%q, trusted %v: %q, want %q", text, trusted, got, want)
			}
		}
	}
}

// TestOthersProfiles: what others can write is not read, be it the file, the
// directory, or a link to somewhere else.
func TestOthersProfiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing there")
	}
	at, user, _ := places(t)
	path := write(t, "x", user, "p.md")
	for _, change := range []func() error{
		func() error { return os.Chmod(path, 0o622) },
		func() error { return errors.Join(os.Chmod(path, 0o600), os.Chmod(user, 0o777)) },
		func() error {
			return errors.Join(os.Chmod(user, 0o700), os.Rename(path, path+".else"), os.Symlink(path+".else", path))
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if p, err := at.Load("p"); !errors.As(err, new(*home.Untrusted)) {
			t.Errorf("%+v, %v", p, err)
		}
	}
}

// FuzzProfile: whatever stands in a file, it is a profile or one clear line.
func FuzzProfile(f *testing.F) {
	for _, text := range []string{
		"---\nengine: pi\n---\nx", "---\na: &x [*x]\n---", "---\n? {a: b}\n---", "engine = 'x'", "[engine]\nx = 1", "---\n<<: {engine: a}\n---",
		"---\nengine: !!binary aGk=\n---", "---\n---\n---", "a = {b = [1, {c = 2}]}", "---\nargs: [a, [b]]\n---",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range kinds {
			p := &Profile{Path: "p" + kind}
			read := p.markdown
			if kind == ".toml" {
				read = p.toml
			}
			settings, err := read(text)
			for _, s := range settings {
				if err == nil {
					err = p.set(s)
				}
				if lines := strings.Count(text, "\n") + 1; s.line < 1 || s.line > lines {
					t.Errorf("line %d of %d", s.line, lines)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line: %q", err)
			}
			if err == nil && p.Workload != "" && p.Workload != heavy && p.Workload != light {
				t.Errorf("workload %q", p.Workload)
			}
		}
	})
}
