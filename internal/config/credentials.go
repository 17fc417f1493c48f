package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Credentials say where an engine's secrets come from when an attempt starts
// (L12): a file of NAME=value lines, or a command that prints such lines. At
// most one of them is set. What they yield is handed to the agent and kept
// nowhere.
type Credentials struct {
	EnvFile string   // absolute
	Command []string // run without a shell
	From    string   // the file that says so
}

// MaxEnv bounds, in bytes, what a file or a command may say.
const MaxEnv = 1 << 20

// Credentials reads [credentials.*], by the names that the file uses. The error
// is *Bad and repeats no value.
func (s *Settings) Credentials() (map[string]Credentials, error) {
	tables, _ := s.Later["credentials"].(map[string]any)
	all := map[string]Credentials{}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		c, why := credentialsOf(tables[name])
		if why != "" {
			return nil, &Bad{File: s.from["credentials"], Key: "credentials." + name, Why: why}
		}
		c.From = s.from["credentials"]
		all[name] = c
	}
	return all, nil
}

func credentialsOf(table any) (c Credentials, why string) {
	keys, ok := table.(map[string]any)
	if !ok {
		return c, "it is a table with env_file or command"
	}
	for key, v := range keys {
		switch key {
		case "env_file":
			path, ok := v.(string)
			if !ok {
				return c, "env_file must be a text in quotes"
			}
			if why := absolute(path); why != "" {
				return c, "env_file: " + why
			}
			c.EnvFile = expand(path)
		case "command":
			c.Command, why = commandOf(v)
			if why != "" {
				return c, why
			}
		default:
			return c, "unknown key " + quote(key) + "; it has env_file or command"
		}
	}
	if (c.EnvFile == "") == (len(c.Command) == 0) {
		return c, "it needs either env_file or command"
	}
	return c, ""
}

// commandOf reads a command: a list of words, which no shell sees.
func commandOf(v any) (words []string, why string) {
	const not = `command must be a list of words such as ["pass", "show", "claude-env"]`
	list, why := wordsValue(v)
	if why != "" {
		return nil, not
	}
	words, _ = list.([]string)
	if len(words) == 0 || words[0] == "" || strings.Contains(strings.Join(words, ""), "\x00") {
		return nil, not
	}
	return words, ""
}

// ParseEnv reads NAME=value lines. Blank lines and those that begin with # say
// nothing, "export " may stand before a name, and blanks around a value and one
// pair of quotes around it are taken off; nothing is expanded. A name may be
// given again: the last value counts. Names of our own are refused, since they
// would say something false of the agent. The error names a line and never
// repeats what stands in it.
func ParseEnv(text []byte) ([]string, error) {
	if len(text) > MaxEnv {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxEnv)
	}
	var env []string
	at := map[string]int{}
	for i, line := range strings.Split(string(text), "\n") {
		name, value, err := envLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if name == "" {
			continue
		}
		if have, ok := at[name]; ok {
			env[have] = name + "=" + value
			continue
		}
		at[name] = len(env)
		env = append(env, name+"="+value)
	}
	return env, nil
}

// envLine reads one line; without a name, it says nothing.
func envLine(line string) (name, value string, err error) {
	line = strings.Trim(line, blanks)
	if line == "" || line[0] == '#' {
		return "", "", nil
	}
	if rest, ok := strings.CutPrefix(line, "export "); ok {
		line = strings.TrimLeft(rest, blanks)
	}
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok || !isName(name):
		return "", "", errors.New("it is not NAME=value")
	case strings.HasPrefix(name, "HANDSEL_"):
		return "", "", errors.New("a name that begins with HANDSEL_ is ours to set")
	case strings.ContainsRune(value, 0):
		return "", "", errors.New("it contains a NUL")
	}
	value = strings.Trim(value, blanks)
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	return name, value, nil
}

// isName tells whether a variable can be called so.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
