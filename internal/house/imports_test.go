package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/handsel/handsel"

// floors says on which floor each room lives. An import may only go down: a
// room imports rooms of lower floors, never one of its own floor and never one
// above. A new room gets its line here, in review.
var floors = map[string]int{
	"internal/failpoint": 0,
	"internal/machine":   0,

	"internal/flock":   1,
	"internal/home":    1,
	"internal/metrics": 1,
	"internal/proc":    1,
	"internal/stream":  1,

	"internal/attempt": 2,
	"internal/config":  2,
	"internal/confine": 2,
	"internal/engine":  2,
	"internal/hold":    2,
	"internal/hook":    2,
	"internal/journal": 2,
	"internal/key":     2,
	"internal/lane":    2,
	"internal/line":    2,
	"internal/nest":    2,
	"internal/profile": 2,
	"internal/record":  2,
	"internal/slot":    2,

	"internal/pressure": 2,

	"internal/api":     3,
	"internal/handoff": 3,
	"internal/lease":   3,
	"internal/notify":  3,
	"internal/queue":   3,
	"internal/quota":   3,
	"internal/review":  3,

	"internal/dispatch": 4,
	"internal/doctor":   4,
	"internal/run":      4,
	"internal/runs":     4,
	"internal/shim":     4,
	"internal/status":   4,

	".":    5, // the public library
	"host": 6, // the public library of programs that run the dispatcher

	"internal/mcp": 6, // a window: the root only
	"internal/tui": 6,
	"internal/web": 6, // a window

	"internal/cli": 7,
	"cmd/handsel":  8,

	"bench":         9,
	"examples/demo": 9,
}

// windows render what the public library says and hold no logic of their own: it
// is all of the module that they import.
var windows = []string{"internal/mcp", "internal/tui", "internal/web"}

// forTests are the rooms only tests import. They stand beside the house and may
// import any of it.
var forTests = map[string]bool{
	"internal/acceptance":                  true,
	"internal/browsertest":                 true,
	"internal/browsertest/cmd/screenshots": true,
	"internal/enginetest":                  true,
	"internal/fakeagent":                   true,
	"internal/fakeagent/cmd/fakeagent":     true,
	"internal/house":                       true,
	"internal/house/schema":                true,
	"internal/modelstub":                   true,
}

// outside says which modules may be imported, and by whom: by every room (nil),
// by the rooms named, or by tests only (an empty list). Each was chosen
// for a reason, kept in docs/decisions; a new one gets a reason there first.
var outside = map[string][]string{
	"golang.org/x/sys":                         nil,
	"github.com/google/uuid":                   nil,
	"github.com/pelletier/go-toml/v2":          {"internal/config", "internal/hook", "internal/profile"},
	"github.com/goccy/go-yaml":                 {"internal/profile"},
	"github.com/spf13/cobra":                   {"internal/cli"},
	"github.com/spf13/pflag":                   {"internal/cli"},
	"github.com/creack/pty":                    {"internal/cli", "internal/run"},
	"charm.land/bubbletea/v2":                  {"internal/tui"},
	"github.com/charmbracelet/colorprofile":    {"internal/tui"},
	"github.com/charmbracelet/x/ansi":          {"internal/tui"},
	"github.com/ncruces/go-sqlite3":            {"internal/queue"},
	"github.com/coreos/go-systemd/v22":         {"internal/handoff"},
	"github.com/landlock-lsm/go-landlock":      {"internal/confine"},
	"github.com/modelcontextprotocol/go-sdk":   {"internal/mcp"},
	"github.com/google/go-cmp":                 {},
	"github.com/rogpeppe/go-internal":          {},
	"github.com/santhosh-tekuri/jsonschema/v6": {},
	"go.uber.org/goleak":                       {},
	"pgregory.net/rapid":                       {},
}

// source is one Go file of the main module.
type source struct {
	name    string // slash-separated, below the root
	room    string // its directory, "." for the root
	test    bool
	imports []string
}

// sources parses every Go file of the main module, whatever its platform and
// build tags: an import behind a tag is an import.
func sources(t *testing.T) []source {
	t.Helper()
	nested := map[string]bool{}
	root, names := files(t, func(name string) bool {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			nested[path.Dir(name)] = true
		}
		return path.Ext(name) == ".go"
	})
	var out []source
	for _, name := range names {
		if inNested(nested, name) || slices.Contains(strings.Split(name, "/"), "testdata") {
			continue
		}
		f := parse(t, filepath.Join(root, filepath.FromSlash(name)), parser.ImportsOnly)
		s := source{name: name, room: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s.imports = append(s.imports, p)
		}
		out = append(out, s)
	}
	return out
}

func inNested(nested map[string]bool, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if nested[dir] {
			return true
		}
	}
	return false
}

func parse(t *testing.T, file string, mode parser.Mode) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, mode)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestImportsPointDown(t *testing.T) {
	homeless := map[string]bool{}
	for _, s := range sources(t) {
		if err := known(s.room); err != nil {
			if !homeless[s.room] {
				t.Error(err)
			}
			homeless[s.room] = true
			continue
		}
		for _, imp := range s.imports {
			if err := judge(s, imp); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
	}
}

// judge says what is wrong with a file's import, if anything is.
func judge(s source, imp string) error {
	if err := known(s.room); err != nil {
		return err
	}
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return nil // the standard library; what is linked is judged below
	}
	if imp != module && !strings.HasPrefix(imp, module+"/") {
		return judgeOutside(s, imp)
	}
	to := "."
	if imp != module {
		to = strings.TrimPrefix(imp, module+"/")
	}
	if err := known(to); err != nil {
		return err
	}
	switch {
	case to == s.room: // an external test importing what it tests
		return nil
	case forTests[to] && (s.test || forTests[s.room]):
		return nil
	case forTests[to]:
		return fmt.Errorf("imports %s, which is for tests only", to)
	case slices.Contains(windows, s.room) && !s.test && to != ".":
		return fmt.Errorf("imports %s: a window shows what the public library says", to)
	case strings.HasPrefix(s.room, "examples/") && !s.test && to != "." && to != "host":
		return fmt.Errorf("imports %s: an example uses the public library only", to)
	case forTests[s.room]:
		return nil
	case floors[to] >= floors[s.room]:
		return fmt.Errorf("imports %s (floor %d) from floor %d: imports point down", to, floors[to], floors[s.room])
	}
	return nil
}

func known(room string) error {
	if _, ok := floors[room]; ok || forTests[room] {
		return nil
	}
	return fmt.Errorf("the room %s has no floor: add it to floors (or forTests) in internal/house/imports_test.go and to ARCHITECTURE.md", room)
}

func judgeOutside(s source, imp string) error {
	for mod, rooms := range outside {
		if imp != mod && !strings.HasPrefix(imp, mod+"/") {
			continue
		}
		if s.test || forTests[s.room] || rooms == nil || slices.Contains(rooms, s.room) {
			return nil
		}
		if len(rooms) == 0 {
			return fmt.Errorf("imports %s, which is for tests only", imp)
		}
		return fmt.Errorf("imports %s, which only %s may", imp, strings.Join(rooms, ", "))
	}
	return fmt.Errorf("imports %s: no module we have chosen; give the reason in docs/decisions and add it to outside in internal/house/imports_test.go", imp)
}

func TestImportGuardRefuses(t *testing.T) {
	lib := func(room string) string { return module + "/" + room }
	for _, tt := range []struct {
		name string
		file source
		imp  string
		want string // part of the complaint; "" = allowed
	}{
		{"down", source{room: "internal/lease"}, lib("internal/slot"), ""},
		{"sideways", source{room: "internal/slot"}, lib("internal/line"), "imports point down"},
		{"up", source{room: "internal/flock"}, lib("internal/slot"), "imports point down"},
		{"up in a test", source{room: "internal/flock", test: true}, lib("internal/slot"), "imports point down"},
		{"a room without a floor", source{room: "internal/util"}, "os", "has no floor"},
		{"into a room without a floor", source{room: "internal/lease"}, lib("internal/util"), "has no floor"},
		{"the library from a room", source{room: "internal/run"}, module, "imports point down"},
		{"the library from the command line", source{room: "internal/cli"}, module, ""},
		{"a room from an example", source{room: "examples/demo"}, lib("internal/slot"), "public library only"},
		{"the library from an example", source{room: "examples/demo"}, module, ""},
		{"a room from a window", source{room: "internal/mcp"}, lib("internal/slot"), "a window shows"},
		{"the library from a window", source{room: "internal/mcp"}, module, ""},
		{"a test's room from code", source{room: "internal/run"}, lib("internal/fakeagent"), "for tests only"},
		{"a test's room from a test", source{room: "internal/run", test: true}, lib("internal/fakeagent"), ""},
		{"cobra from the command line", source{room: "internal/cli"}, "github.com/spf13/cobra", ""},
		{"cobra from a room", source{room: "internal/status"}, "github.com/spf13/cobra", "only internal/cli may"},
		{"a test's module from code", source{room: "internal/run"}, "github.com/google/go-cmp/cmp", "for tests only"},
		{"a test's module from a test", source{room: "internal/run", test: true}, "github.com/google/go-cmp/cmp", ""},
		{"a module nobody chose", source{room: "internal/run"}, "github.com/shirou/gopsutil/v4/process", "no module we have chosen"},
		{"a module with a chosen name in front", source{room: "internal/run"}, "github.com/google/uuidx", "no module we have chosen"},
	} {
		err := judge(tt.file, tt.imp)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: refused: %v", tt.name, err)
		case tt.want != "" && err == nil:
			t.Errorf("%s: allowed", tt.name)
		case tt.want != "" && !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %q, want %q in it", tt.name, err, tt.want)
		}
	}
}

// A program that imports the library must not link a database (C1), and nothing
// may link the template package, which keeps the linker from dropping dead code.
func TestRunLinksNoDatabase(t *testing.T) {
	below := map[string][]string{} // room → what its code imports
	for _, s := range sources(t) {
		if !s.test {
			below[s.room] = append(below[s.room], s.imports...)
		}
	}
	for _, start := range []string{".", "internal/run"} {
		for _, bad := range reach(below, start) {
			t.Errorf("%s", bad)
		}
	}
}

// reach follows imports within the module from start and returns a line for
// every unwanted package found, with the way to it.
func reach(below map[string][]string, start string) (found []string) {
	unwanted := []string{"database/sql", "github.com/ncruces/", "html/template"}
	seen := map[string]bool{}
	var walk func(room, way string)
	walk = func(room, way string) {
		if seen[room] {
			return
		}
		seen[room] = true
		for _, imp := range below[room] {
			for _, u := range unwanted {
				if strings.HasPrefix(imp, u) {
					found = append(found, way+" → "+imp)
				}
			}
			if imp == module {
				walk(".", way+" → .")
			} else if rest, ok := strings.CutPrefix(imp, module+"/"); ok {
				walk(rest, way+" → "+rest)
			}
		}
	}
	walk(start, start)
	return found
}

func TestReachFindsTheDatabase(t *testing.T) {
	below := map[string][]string{
		".":              {module + "/internal/run", "os"},
		"internal/run":   {module + "/internal/queue"},
		"internal/queue": {"database/sql"},
	}
	got := reach(below, ".")
	if want := []string{". → internal/run → internal/queue → database/sql"}; !slices.Equal(got, want) {
		t.Errorf("reach = %q, want %q", got, want)
	}
}

// S8: a lock ends when the last copy of its descriptor closes. Unlocking one
// copy would unlock them all, the next owner's included.
func TestNoLockUn(t *testing.T) {
	root, names := files(t, func(name string) bool { return path.Ext(name) == ".go" })
	for _, name := range names {
		f := parse(t, filepath.Join(root, filepath.FromSlash(name)), parser.SkipObjectResolution)
		for _, bad := range unlocks(f) {
			t.Errorf("%s: uses %s (S8)", name, bad)
		}
	}
}

// unlocks returns the names with which f unlocks, if it does.
func unlocks(f *ast.File) (found []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && (id.Name == "LOCK_UN" || id.Name == "F_UNLCK" || id.Name == "UnlockFileEx") {
			found = append(found, id.Name)
		}
		return true
	})
	return found
}

func TestUnlockIsRecognised(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go",
		"package x\n\n// LOCK_UN in a comment is fine.\nvar _ = \"LOCK_UN\"\n\nfunc f() { unix.Flock(0, unix.LOCK_UN) }\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := unlocks(f); len(got) != 1 {
		t.Errorf("unlocks = %q, want the one call", got)
	}
}
