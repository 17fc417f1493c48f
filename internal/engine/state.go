package engine

import (
	"encoding/json"
	"path/filepath"
	"strings"
)

// State is where an engine keeps what outlives a run: settings, hooks,
// conversations, and among them the login.
type State struct {
	// Env is the variable that leads the engine elsewhere, Usual the directory
	// below the user's home where it goes without, Below what it appends to the
	// variable's value (gemini takes it for a home).
	Env, Usual, Below string
	// Beside are files outside of that directory that belong to it, below the home.
	Beside []string
	// Logins are the files in it that the engine writes when a login is renewed,
	// Reads those that tell how to reach its models and that it only reads.
	Logins, Reads []string
	// Choice is the file of settings in which Of is the one that belongs to the
	// login: which of several it is. Empty: there are none.
	Choice string
	Of     []string
	// Temp is a variable that takes the place of TMPDIR for it; empty: none.
	Temp string
	// Mounts tells that its own sandbox mounts, which a confined process may not.
	Mounts bool
}

// states has one entry for each built-in engine. Seen at the versions that the
// engine tests pin; agy has the directory of gemini.
var states = map[string]State{
	"claude": {
		Env: "CLAUDE_CONFIG_DIR", Usual: ".claude", Beside: []string{".claude.json"},
		Logins: []string{".credentials.json"}, Temp: "CLAUDE_CODE_TMPDIR",
	},
	"codex": {Env: "CODEX_HOME", Usual: ".codex", Logins: []string{"auth.json"}, Mounts: true},
	"gemini": {
		Env: "GEMINI_CLI_HOME", Usual: ".gemini", Below: ".gemini",
		Logins: []string{"oauth_creds.json", "google_accounts.json", "gemini-credentials.json"},
		Choice: "settings.json", Of: []string{"security", "auth", "selectedType"},
	},
	"pi": {
		Env: "PI_CODING_AGENT_DIR", Usual: ".pi/agent",
		Logins: []string{"auth.json"}, Reads: []string{"models.json"},
	},
}

// StateOf is what is known of where an engine keeps its state; false for the
// user's own engines.
func StateOf(name string) (State, bool) {
	s, ok := states[canonical(name)]
	return s, ok
}

// Dir is the directory that the engine would use in an environment: getenv reads
// it, home is the user's home in it.
func (s State) Dir(getenv func(string) string, home string) string {
	dir := getenv(s.Env)
	if dir == "" {
		return filepath.Join(home, s.Usual)
	}
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		dir = filepath.Join(home, rest)
	}
	return filepath.Join(dir, s.Below)
}

// Chosen is what of the settings in data belongs to the login, as a file of its
// own; nil when there is nothing of it.
func (s State) Chosen(data []byte) []byte {
	var value any
	if len(s.Of) == 0 || json.Unmarshal(data, &value) != nil {
		return nil
	}
	for _, key := range s.Of {
		table, ok := value.(map[string]any)
		if value = table[key]; !ok || value == nil {
			return nil
		}
	}
	for i := len(s.Of) - 1; i >= 0; i-- {
		value = map[string]any{s.Of[i]: value}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return append(text, '\n')
}
