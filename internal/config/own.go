package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// How an engine of the user's own is asked, and what of that can be told to be
// wrong before it is (E1). What the words mean is the engine room's.

// ownKeys are the keys of [engine.NAME] that say how an engine is asked and read.
// Of the built-in ones that is known.
var ownKeys = []string{"args", "stdin", "stream", "confines", "light_args"}

// badEngineKey says why a key cannot stand in this engine's table.
func badEngineKey(path []string) string {
	if len(path) == 3 && path[0] == "engine" && slices.Contains(builtins, path[1]) && slices.Contains(ownKeys, path[2]) {
		return fmt.Sprintf("%s is built in: how it is asked and read is known", path[1])
	}
	return ""
}

// placeholderNames are what may stand in args.
var placeholderNames = []string{"{prompt}", "{prompt_file}", "{model}", "{resume}", "{dir}", "{system}"}

// placeholder is compiled only where an engine of the user's own is defined.
var placeholder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{[A-Za-z_]+\}`) })

func placeholders(v any) string {
	if why := plainWords(v); why != "" {
		return why
	}
	for _, word := range v.([]string) {
		for _, found := range placeholder().FindAllString(word, -1) {
			if !slices.Contains(placeholderNames, found) {
				return escape(found) + " is no placeholder; there are " + strings.Join(placeholderNames, " ")
			}
		}
	}
	return ""
}

func plainWords(v any) string {
	if strings.Contains(strings.Join(v.([]string), ""), "\x00") {
		return "no word may contain a NUL"
	}
	return ""
}

// executable asks for what means the same wherever it is used.
func executable(v any) string {
	path := v.(string)
	switch {
	case path == "":
		return "it is empty"
	case strings.ContainsRune(path, 0):
		return "it must not contain a NUL"
	case strings.Contains(path, "/") && !strings.HasPrefix(path, "~/") && !filepath.IsAbs(path):
		return "it must be a name that is looked for in PATH, or an absolute path"
	case strings.HasPrefix(path, "~/"):
		return absolute(v)
	}
	return ""
}

// expandHome leaves a name that is looked for in PATH as it is.
func expandHome(path string) string {
	if strings.Contains(path, "/") {
		return expand(path)
	}
	return path
}

// maxConfines bounds, in bytes, what says how an engine confines itself: it is
// shown on a line.
const maxConfines = 200

func oneLine(v any) string {
	words := v.(string)
	switch {
	case strings.TrimSpace(words) == "":
		return "it is empty; it says in plain words how the engine confines itself"
	case len(words) > maxConfines || strings.ContainsFunc(words, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return fmt.Sprintf("it must be one line of at most %d bytes", maxConfines)
	}
	return ""
}

func eachOf(allowed ...string) func(any) string {
	return func(v any) string {
		for _, word := range v.([]string) {
			if !slices.Contains(allowed, word) {
				return `it is a list of "` + strings.Join(allowed, `", "`) + `"`
			}
		}
		return ""
	}
}

// ownProblems finds what no single key shows, once all files are read.
func (s *Settings) ownProblems() (problems []error) {
	for _, name := range slices.Sorted(maps.Keys(s.EngineOf)) {
		e := s.EngineOf[name]
		bad := func(key, why string) {
			key = "engine." + name + "." + key
			problems = append(problems, &Bad{File: s.from[key], Key: key, Why: why})
		}
		prompted := slices.ContainsFunc(e.Args, func(word string) bool {
			return strings.Contains(word, "{prompt}") || strings.Contains(word, "{prompt_file}")
		})
		if e.Stdin == "none" && !prompted {
			bad("stdin", `the prompt reaches it in no way: args has neither {prompt} nor {prompt_file}`)
		}
		if len(e.LightArgs) > 0 && e.Confines == "" {
			bad("light_args", "confines is missing: it says in plain words how these confine it")
		}
	}
	return problems
}
