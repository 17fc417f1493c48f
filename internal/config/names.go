package config

import (
	"fmt"
	"strings"
)

// VarPrefix is the variable that caps the pool of all agents; with _ and a name
// it caps another pool (S2).
const VarPrefix = "HANDSEL_MAX_AGENTS"

// builtins are the pools that exist without being declared. A file caps them
// like any other; it cannot give their names to something else (C8).
var builtins = []string{"all", "heavy", "claude", "codex", "gemini", "pi"}

// spellings are other names of the built-in engines. As a pool's name they would
// count nothing, which is why they are refused and not taken: the engine's
// agents count in the pool of its own name.
var spellings = map[string]string{
	"claude-code": "claude", "claude_code": "claude",
	"openai-codex": "codex", "openai_codex": "codex",
	"gemini-cli": "gemini", "gemini_cli": "gemini", "agy": "gemini",
}

// ValidName tells whether a word can name a pool or an engine: 1 to 63 of
// a-z 0-9 _ -, the first not _ or - (C8).
func ValidName(name string) bool {
	if len(name) == 0 || len(name) > 63 || name[0] == '_' || name[0] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// VarOf is the variable that caps a pool.
func VarOf(pool string) string {
	if pool == "all" {
		return VarPrefix
	}
	return VarPrefix + "_" + strings.ReplaceAll(strings.ToUpper(pool), "-", "_")
}

// poolOf is the pool a variable caps when no file knows a name for it.
func poolOf(variable string) string {
	if variable == VarPrefix {
		return "all"
	}
	return strings.ToLower(strings.TrimPrefix(variable, VarPrefix+"_"))
}

// badCapVariable says why a variable that begins like a cap names no pool, or
// is empty when it does.
func badCapVariable(variable string) string {
	if variable == VarPrefix {
		return ""
	}
	suffix, ok := strings.CutPrefix(variable, VarPrefix+"_")
	pool := strings.ToLower(suffix)
	switch {
	case !ok || !ValidName(pool):
		return "it looks like a cap but names no pool; a pool's variable is " + VarPrefix + "_ and its name in capitals"
	case suffix != strings.ToUpper(suffix) || strings.Contains(suffix, "-"):
		return "it looks like a cap but is not spelled as one; the variable is " + VarOf(pool)
	}
	return spelledOtherwise(pool)
}

// spelledOtherwise says that a name is another spelling of a built-in engine.
func spelledOtherwise(name string) string {
	if engine, ok := spellings[name]; ok {
		return fmt.Sprintf("the pool of this engine is called %q (%s)", engine, VarOf(engine))
	}
	return ""
}

// badPoolName says why a name cannot be capped in [pools].
func badPoolName(name string) string {
	if !ValidName(name) {
		return "a pool's name is 1 to 63 of a-z 0-9 _ -, the first a letter or digit"
	}
	return spelledOtherwise(name)
}

// badEngineName says why [engine.NAME] cannot be. Settings of a built-in engine
// are fine; an engine whose own pool would be all or heavy is not.
func badEngineName(name string) string {
	switch {
	case !ValidName(name):
		return "an engine's name is 1 to 63 of a-z 0-9 _ -, the first a letter or digit"
	case name == "all" || name == "heavy":
		return "an engine cannot have the name of a built-in pool"
	}
	if engine, ok := spellings[name]; ok {
		return fmt.Sprintf("this engine is called %q", engine)
	}
	return ""
}

// nameTable has the pools and engines of all files by their variable, so that no
// two of them share one (C8).
type nameTable map[string]usedName

type usedName struct{ name, where string }

func (t nameTable) add(p *parsed) (problems []error) {
	for _, used := range p.names {
		variable := VarOf(used.name)
		known, ok := t[variable]
		switch {
		case !ok:
			t[variable] = usedName{used.name, p.path}
		case known.name != used.name:
			problems = append(problems, p.bad(used.at, strings.Join(used.key, "."), used.name, fmt.Sprintf(
				"%q and %q (%s) would share the variable %s", used.name, known.name, escape(known.where), variable)))
		}
	}
	return problems
}

// CheckPools judges pool names that were asked for: each must be a name, and no
// two of them, or of the configuration's, may share a variable (C8).
func (s *Settings) CheckPools(asked []string) error {
	used := map[string]string{}
	for pool := range s.Caps {
		used[VarOf(pool)] = pool
	}
	for _, pool := range asked {
		why := badPoolName(pool)
		variable := VarOf(pool)
		// A variable alone says nothing of how its pool's name is spelled.
		if other, ok := used[variable]; ok && other != pool && why == "" && !s.onlyVariable(other) {
			why = fmt.Sprintf("it would share the variable %s with %q", variable, other)
		}
		if why != "" {
			return &Bad{Key: "pool", Text: quote(pool), Why: why}
		}
		used[variable] = pool
	}
	return nil
}

func (s *Settings) onlyVariable(pool string) bool {
	caps := s.Caps[pool]
	for _, c := range caps {
		if !strings.HasPrefix(c.From, VarPrefix) {
			return false
		}
	}
	return len(caps) > 0
}
