package hook

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/home"
)

// world is a home of ours and the settings of a client.
type world struct {
	t     *testing.T
	dir   home.Dir
	place Place
}

const exe = "/opt/handsel"

func newWorld(t *testing.T, c Client) *world {
	t.Helper()
	dir := t.TempDir()
	place, err := PlaceOf(c, "", func(name string) string {
		if name == "HOME" {
			return dir
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, home.Dir{Path: filepath.Join(dir, "handsel")}, place}
}

func (w *world) write(text string) *world {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.place.Path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.place.Path, []byte(text), 0o640); err != nil {
		w.t.Fatal(err)
	}
	return w
}

func (w *world) text() string {
	w.t.Helper()
	data, err := os.ReadFile(w.place.Path)
	if errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// install does it and tells whether there was something to do.
func (w *world) install(exe string) bool {
	w.t.Helper()
	return w.apply(Install(w.dir, w.place, exe))
}

func (w *world) uninstall() bool {
	w.t.Helper()
	return w.apply(Uninstall(w.dir, w.place))
}

func (w *world) apply(change *Change, err error) bool {
	w.t.Helper()
	if err == nil && change != nil {
		err = change.Apply()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return change != nil
}

// shapes are settings as people and clients write them.
var shapes = map[string]string{
	"empty":                  "",
	"blank":                  "\n\n",
	"an empty object":        "{}",
	"an empty object, open":  "{\n}\n",
	"on one line":            `{"a":1,"b":[2]}`,
	"by two":                 "{\n  \"model\": \"opus\",\n  \"env\": {\n    \"A\": \"\\u00e4<&\"\n  }\n}\n",
	"by tabs":                "{\n\t\"model\": \"opus\"\n}",
	"with CRLF":              "{\r\n    \"model\": \"opus\"\r\n}\r\n",
	"no hooks in hooks":      "{\n  \"hooks\": {},\n  \"z\": 1\n}\n",
	"no groups":              "{\n  \"hooks\": { \"PreToolUse\": [] }\n}\n",
	"another event":          "{\n  \"hooks\": {\n    \"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]}]\n  }\n}\n",
	"another's hook":         "{\"hooks\": {\"PreToolUse\": [\n  {\"matcher\": \"Bash\", \"hooks\": [ {\"type\": \"command\", \"command\": \"guard\"} ] }\n]}, \"z\": null}\n",
	"strange numbers":        "{\n \"n\": [1e400, -0.0, 12345678901234567890]\n}",
	"bytes that are no text": "{\n  \"x\": \"\xff\xfe\"\n}\n",
}

func TestUninstallRestoresEveryByte(t *testing.T) {
	for name, text := range shapes {
		for _, c := range Clients() {
			t.Run(name+", "+string(c), func(t *testing.T) {
				w := newWorld(t, c).write(text)
				if !w.install(exe) || w.install(exe) {
					t.Error("an install is not needed exactly once")
				}
				after := w.text()
				if !json.Valid([]byte(after)) {
					t.Fatalf("no JSON any more:\n%s", after)
				}
				if s := Look(w.place, exe); s.State != "installed" || s.Others != strings.Count(text, "guard") {
					t.Errorf("%+v\n%s", s, after)
				}
				if info, err := os.Stat(w.place.Path); err != nil || info.Mode().Perm() != 0o640 {
					t.Errorf("%v, %v", info.Mode(), err)
				}
				if !w.uninstall() || w.uninstall() {
					t.Error("an uninstall is not needed exactly once")
				}
				if got := w.text(); got != text {
					t.Errorf("became %q, was %q", got, text)
				}
				if left, _ := filepath.Glob(filepath.Join(w.dir.Path, noteDir, "*")); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		}
	}
}

func TestFileThatWasNotThereGoesAgain(t *testing.T) {
	w := newWorld(t, Codex)
	w.install(exe)
	if info, err := os.Stat(w.place.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	w.uninstall()
	if got := w.text(); got != "none" {
		t.Errorf("left behind: %q", got)
	}
}

// TestUninstallLeavesWhatOthersChanged: without a note that fits, only our entry
// goes, and what would be empty without it.
func TestUninstallLeavesWhatOthersChanged(t *testing.T) {
	for _, tt := range []struct{ name, from, to string }{
		{"a key more", "{\n  \"a\": 1\n}\n", "{\n  \"a\": 2\n}\n"},
		{"a hook more", "{\"hooks\": {\"PreToolUse\": [{\"hooks\": [{\"command\": \"guard\"}]}]}, \"a\": 1}", "{\"hooks\": {\"PreToolUse\": [{\"hooks\": [{\"command\": \"guard\"}]}]}, \"a\": 2}"},
		{"another event", "{\n  \"a\": 1,\n  \"hooks\": {\n    \"Stop\": []\n  }\n}\n", "{\n  \"a\": 2,\n  \"hooks\": {\n    \"Stop\": []\n  }\n}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Claude).write(tt.from)
			w.install(exe)
			w.write(strings.Replace(w.text(), `"a": 1`, `"a": 2`, 1))
			w.uninstall()
			if got := w.text(); got != tt.to {
				t.Errorf("became\n%s\nwant\n%s", got, tt.to)
			}
		})
	}
}

func TestHookAmongOthersInOneGroupIsTakenOutAlone(t *testing.T) {
	for _, list := range []string{"%s, %s", "%[2]s, %[1]s"} {
		mine := `{"type": "command", "command": "/usr/bin/handsel hook run claude"}`
		list = strings.NewReplacer("%[1]s", mine, "%[2]s", `{"command": "guard"}`).Replace(strings.Replace(strings.Replace(list, "%s", mine, 1), "%s", `{"command": "guard"}`, 1))
		w := newWorld(t, Claude).write(`{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [` + list + `]}]}}`)
		w.uninstall()
		if got, want := w.text(), `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"command": "guard"}]}]}}`; got != want {
			t.Errorf("became %s", got)
		}
	}
}

func TestInstallByAnotherExecutableReplacesTheCommand(t *testing.T) {
	for _, known := range []bool{true, false} {
		const text = "{\n  \"hooks\": {}\n}\n"
		w := newWorld(t, Claude).write(text)
		w.install("/old/handsel")
		if s := Look(w.place, exe); s.State != "elsewhere" || s.Command != "/old/handsel hook run claude" {
			t.Errorf("%+v", s)
		}
		old := w.text()
		if !known {
			os.RemoveAll(w.dir.Path)
		}
		w.install("/new dir/handsel")
		if got := w.text(); got != strings.Replace(old, "/old/handsel", "'/new dir/handsel'", 1) {
			t.Errorf("became %s", got)
		}
		w.uninstall()
		if got := w.text(); known && got != text || !known && got != "{}\n" {
			t.Errorf("became %q", got)
		}
	}
}

func TestSettingsThatDoNotParseAreLeftAlone(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		line, col  int
		why        string
	}{
		{"a comment", "{\n  // mine\n}", 2, 3, "no JSON"},
		{"cut short", "{\n  \"a\": 1", 2, 9, "no JSON"},
		{"two values", "{} {}", 1, 4, "no JSON"},
		{"a list", " []", 1, 2, "no object"},
		{"hooks of another kind", "{\"ä\": 1, \"hooks\": []}", 1, 19, "hooks is no object"},
		{"groups of another kind", "{\"hooks\": {\"PreToolUse\": {}}}", 1, 26, "no list"},
		{"hooks twice", "{\"hooks\": {}, \"hooks\": {}}", 1, 15, "two hooks"},
		{"too deep", strings.Repeat("[", 300) + strings.Repeat("]", 300), 1, 201, "too deeply"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Claude).write(tt.text)
			var bad *BadSettings
			if _, err := Install(w.dir, w.place, exe); !errors.As(err, &bad) || bad.Path != w.place.Path || bad.Line != tt.line || bad.Col != tt.col || !strings.Contains(bad.Why, tt.why) {
				t.Errorf("Install: %v", err)
			}
			if _, err := Uninstall(w.dir, w.place); !errors.As(err, &bad) {
				t.Errorf("Uninstall: %v", err)
			}
			if s := Look(w.place, exe); s.State != "unreadable" || !strings.Contains(s.Problem, tt.why) {
				t.Errorf("%+v", s)
			}
			if got := w.text(); got != tt.text {
				t.Errorf("became %q", got)
			}
		})
	}
}

func TestLinkStaysALink(t *testing.T) {
	w := newWorld(t, Claude)
	real := filepath.Join(t.TempDir(), "dotfiles.json")
	if err := errors.Join(os.WriteFile(real, []byte("{}\n"), 0o644), os.MkdirAll(filepath.Dir(w.place.Path), 0o700), os.Symlink(real, w.place.Path)); err != nil {
		t.Fatal(err)
	}
	w.install(exe)
	data, _ := os.ReadFile(real)
	if to, err := os.Readlink(w.place.Path); err != nil || to != real || !strings.Contains(string(data), "hook run claude") {
		t.Errorf("%q, %v, %s", to, err, data)
	}
	w.uninstall()
	if data, _ := os.ReadFile(real); string(data) != "{}\n" {
		t.Errorf("became %q", data)
	}
	os.Remove(real)
	if _, err := Install(w.dir, w.place, exe); !errors.As(err, new(*BadSettings)) {
		t.Errorf("a link that leads nowhere: %v", err)
	}
}

func TestFileThatOthersCanWriteIsNotTouched(t *testing.T) {
	w := newWorld(t, Claude).write("{}")
	os.Chmod(w.place.Path, 0o666)
	if _, err := Install(w.dir, w.place, exe); !errors.As(err, new(*home.Untrusted)) {
		t.Errorf("Install = %v", err)
	}
}

func TestFileThatChangedMeanwhileIsLeftAlone(t *testing.T) {
	for _, before := range []string{"{}", "none"} {
		w := newWorld(t, Claude)
		if before != "none" {
			w.write(before)
		}
		change, err := Install(w.dir, w.place, exe)
		if err != nil {
			t.Fatal(err)
		}
		w.write("{\"new\": 1}")
		if err := change.Apply(); !errors.Is(err, ErrChanged) {
			t.Errorf("Apply = %v", err)
		}
		if got := w.text(); got != "{\"new\": 1}" {
			t.Errorf("became %q", got)
		}
	}
}

func TestCodexIsAskedWhetherItTrustsTheHook(t *testing.T) {
	w := newWorld(t, Codex).write(`{"hooks": {"PreToolUse": [{"hooks": [{"command": "guard"}]}]}}`)
	w.install(exe)
	for _, tt := range []struct {
		key  string
		want bool
	}{{"", false}, {w.place.Path + ":pre_tool_use:0:0", false}, {w.place.Path + ":pre_tool_use:1:0", true}} {
		conf := "[hooks.state.\"" + tt.key + "\"]\ntrusted_hash = \"sha256:00\"\n"
		if err := os.WriteFile(w.place.config, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := Look(w.place, exe); s.Trusted == nil || *s.Trusted != tt.want {
			t.Errorf("%q: %+v", tt.key, s)
		}
	}
}

func TestPlacesGoByTheClientsVariables(t *testing.T) {
	env := map[string]string{"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x"}
	for _, tt := range []struct {
		client        Client
		project, want string
	}{
		{Claude, "", "/c/settings.json"}, {Codex, "", "/x/hooks.json"},
		{Claude, "/p", "/p/.claude/settings.local.json"}, {Codex, "/p", "/p/.codex/hooks.json"},
	} {
		p, err := PlaceOf(tt.client, tt.project, func(name string) string { return env[name] })
		if err != nil || p.Path != tt.want {
			t.Errorf("%v: %+v, %v", tt, p, err)
		}
	}
	if _, err := PlaceOf(Claude, "", func(string) string { return "" }); !errors.As(err, new(*home.BadPath)) {
		t.Errorf("without a home: %v", err)
	}
}

// FuzzSettings: whatever stands there, an install leaves JSON that has all it had, and an
// uninstall what was there.
func FuzzSettings(f *testing.F) {
	for _, text := range shapes {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		change, ok, err := add(data, Claude, Command(exe, Claude))
		if err != nil || !ok {
			return
		}
		next := change.apply(data)
		root, err := tree(next)
		if err != nil {
			t.Fatalf("%q became %q: %v", data, next, err)
		}
		if mine, _, err := hooks(root, Claude); err != nil || len(mine) == 0 {
			t.Fatalf("%q became %q: %v", data, next, err)
		}
		if change.old == 0 && string(splice{change.off, len(change.text), ""}.apply(next)) != string(data) {
			t.Fatalf("%q became %q, and cannot be made again", data, next)
		}
		out, ok, err := take(next, Claude)
		if err != nil || !ok || !json.Valid(out.apply(next)) {
			t.Fatalf("%q: taken out of %q: %v", data, next, err)
		}
	})
}
