package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/handsel/handsel/internal/home"
)

// Client is an agent CLI whose tool hooks are known.
type Client string

// The clients. Both call the shell's tool Bash, hand over the same JSON and take
// the same answer, but for one word.
const (
	Claude Client = "claude"
	Codex  Client = "codex"
)

const (
	event = "PreToolUse"
	tool  = "Bash"
)

// Clients lists them in order.
func Clients() []Client { return []Client{Claude, Codex} }

// ClientOf is the client of a name.
func ClientOf(name string) (Client, bool) {
	c := Client(name)
	return c, slices.Contains(Clients(), c)
}

// decision is what has to be said beside a changed input. Claude asks its own rules
// about the changed line if nothing is said, and would ask nobody if we allowed it.
// Codex takes no changed input without that word, and asks for approval all the same.
func (c Client) decision() string {
	if c == Codex {
		return "allow"
	}
	return ""
}

// Place is a settings file that a hook may stand in.
type Place struct {
	Client Client
	Scope  string // "user" or "project"
	Path   string // as the client names it

	config string // of Codex: where it notes which hooks are trusted
}

// PlaceOf is the settings file of a client: the user's, or that of the project in a
// directory. It goes by the variables that the client goes by.
func PlaceOf(c Client, project string, getenv func(string) string) (Place, error) {
	variable, below := "CLAUDE_CONFIG_DIR", ".claude"
	if c == Codex {
		variable, below = "CODEX_HOME", ".codex"
	}
	dir := getenv(variable)
	if dir == "" {
		user := getenv("HOME")
		if user == "" {
			return Place{}, &home.BadPath{Var: "HOME", Why: fmt.Sprintf("neither it nor %s is set, so nobody knows where the settings of %s are", variable, c)}
		}
		dir = filepath.Join(user, below)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Place{}, err
	}
	p := Place{Client: c, Scope: "user", config: filepath.Join(dir, "config.toml")}
	file := "settings.json"
	if project != "" {
		if project, err = filepath.Abs(project); err != nil {
			return Place{}, err
		}
		p.Scope, dir = "project", filepath.Join(project, below)
		// The other file is shared with people whose handsel lies elsewhere.
		file = "settings.local.json"
	}
	if c == Codex {
		file = "hooks.json"
	}
	p.Path = filepath.Join(dir, file)
	return p, nil
}

// target is the file that is read and replaced: what the path leads to.
func (p Place) target() (string, error) {
	target, err := filepath.EvalSymlinks(p.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(p.Path); err == nil {
			return "", &BadSettings{Path: p.Path, Why: "it is a symbolic link that leads nowhere"}
		}
		return p.Path, nil
	}
	if err != nil {
		return "", &BadSettings{Path: p.Path, Why: err.Error()}
	}
	return target, nil
}

// Command is the hook as it stands in the settings: a line for the shell.
func Command(exe string, c Client) string { return quoteWord(exe) + " hook run " + string(c) }

// ours tells whether a line of the settings is a hook of handsel's for that client,
// wherever handsel lies.
func ours(line string, c Client) bool {
	list, ok := commands(line)
	if !ok || len(list) != 1 || len(list[0].words) != 4 {
		return false
	}
	argv := texts(list[0].words)
	return strings.HasPrefix(filepath.Base(argv[0]), "handsel") && slices.Equal(argv[1:], []string{"hook", "run", string(c)})
}

// BadSettings reports a settings file that is not changed because of what stands in it
// or at its place. Nothing was written.
type BadSettings struct {
	Path      string
	Line, Col int // 0 where it is not about a place in the file
	Why       string
}

func (e *BadSettings) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%q:%d:%d: %s", e.Path, e.Line, e.Col, e.Why)
	}
	return fmt.Sprintf("%q: %s", e.Path, e.Why)
}

// trustKey is the name under which Codex notes that a hook is trusted.
func trustKey(path string, one found) string {
	return fmt.Sprintf("%s:pre_tool_use:%d:%d", path, one.group, one.hook)
}
