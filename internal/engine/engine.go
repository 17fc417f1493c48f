// Package engine knows the agents' command-line programs: what they are called
// and how to find one in a command line (E1), how each is asked something
// without a terminal (E2), confined when it is light (E5), and read (E10).
//
// It starts nothing. A light command line holds what docs/engines.md says of its
// engine, as far as the engine keeps its word: what would lift it is refused, and
// so is every word of which nobody knows what it does.
//
// Recognise says which engine a command starts, through the wrappers people
// put in front of it. It reads only the words it is given and, for a program
// whose name says nothing, where that name leads on disk; it starts nothing
// and reads no file. Recognition chooses the pool an agent counts against and
// what a person is shown. It is no guard: a renamed copy or a script that
// starts an engine is not recognised, and the caller can say --engine.
//
// Not recognised, because the answer would be a guess or the agent would run
// outside our process tree: a command behind a pipe, ||, &, a subshell, an if
// or a loop, a here-document, eval or "$@" in the text of sh -c; a script of
// the user's own that starts an engine; su, ssh, docker, tmux, screen, xargs,
// parallel, watch, cmd /c, and an abbreviated long option of a wrapper that
// takes its value as the next word. A PATH set by env(1) on the same command
// line is not used for looking.
package engine

import (
	"maps"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// builtin lists the engines and, for each, the other names it goes by: in
// settings, on the command line, and as an executable.
var builtin = map[string][]string{
	"claude": {"claude_code", "claude-code"},
	"codex":  {"openai-codex", "openai_codex", "codex-cli", "codex_cli"},
	"gemini": {"gemini-cli", "gemini_cli", "agy", "antigravity"},
	"pi":     {"pi-coding-agent", "pi_coding_agent"},
}

// spellings leads from every name to the engine's own.
var spellings = func() map[string]string {
	all := map[string]string{}
	for name, others := range builtin {
		all[name] = name
		for _, other := range others {
			all[other] = name
		}
	}
	return all
}()

// Names lists the built-in engines in order.
func Names() []string { return slices.Sorted(maps.Keys(builtin)) }

// Canonical leads from a spelling of a built-in engine to its name. It is
// exact: another case is another word.
func Canonical(name string) (string, bool) {
	name, ok := spellings[name]
	return name, ok
}

// Valid tells whether name can be that of an engine or a pool (C8):
// [a-z0-9][a-z0-9_-]{0,62}.
func Valid(name string) bool {
	if name == "" || len(name) > 63 || name[0] == '-' || name[0] == '_' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// Canonical leads from a spelling to the name of an engine, the user's own
// included.
func (k Known) Canonical(name string) (string, bool) {
	if own, ok := Canonical(name); ok {
		return own, true
	}
	_, named := k.Binaries[name]
	_, own := k.Own[name]
	return name, (named || own) && Valid(name)
}

// Known is the set of engines to look for. The zero value knows the built-in
// ones.
type Known struct {
	// Binaries adds engines of the user's own: the engine's name leads to the
	// base names of its executables or paths to them. They are tried before the
	// built-in ones; a built-in's name here adds one more executable to it.
	Binaries map[string][]string

	// Own says how engines are started and read, by name: those of the user's own,
	// and the executables of built-in ones.
	Own map[string]Own

	// Resolve follows a command, as a shell would find it, to the file it ends
	// at, all symbolic links followed; "" when there is none. It is called only
	// for names that say nothing by themselves. nil looks at the disk, with
	// this process's PATH and working directory.
	Resolve func(command string) string
}

// Recognise names the engine that argv starts, among the built-in ones.
func Recognise(argv []string) (name string, ok bool) { return Known{}.Recognise(argv) }

// Recognise names the engine that argv starts.
func (k Known) Recognise(argv []string) (name string, ok bool) {
	return k.search().command(argv)
}

// search is a new look.
func (k Known) search() *search {
	s := &search{known: k, windows: runtime.GOOS == "windows", depth: maxDepth, looks: maxLooks}
	if s.known.Resolve == nil {
		s.known.Resolve = onDisk
	}
	return s
}

// Bounds of one search, far above what anyone types: wrappers inside each
// other, and questions to the disk.
const (
	maxDepth = 12
	maxLooks = 8
)

// search is one look at one command line.
type search struct {
	known   Known
	windows bool // backslashes separate, case does not count
	depth   int  // wrappers that may still be opened
	looks   int  // questions to the disk that may still be asked

	found []string // from the engine's own word to the end of the command
	takes bool     // a runner would take words after the engine's for its own
}

// command judges argv as something that would be executed.
func (s *search) command(argv []string) (string, bool) {
	if len(argv) == 0 || argv[0] == "" {
		return "", false
	}
	s.found = argv
	word, args := argv[0], argv[1:]
	if name, ok := s.byName(word); ok {
		return name, true
	}
	if open, ok := wrapperOf(s.base(word)); ok {
		return s.enter(open, args)
	}
	target := s.resolve(word)
	if target == "" {
		return "", false
	}
	if name, ok := s.byTarget(target); ok {
		return name, true
	}
	if open, ok := wrapperOf(s.base(target)); ok {
		return s.enter(open, args)
	}
	return "", false
}

// enter opens one wrapper, unless too many are open already.
func (s *search) enter(open wrapper, args []string) (string, bool) {
	if s.depth == 0 {
		return "", false
	}
	s.depth--
	defer func() { s.depth++ }()
	return open(s, args)
}

// script judges a file given to an interpreter, and the words after it. With an
// extension the name alone says too little (pi.js is anything), so then the
// package it lies in must say it.
func (s *search) script(argv []string) (string, bool) {
	s.found = argv
	path := argv[0]
	if name, ok := s.byName(path); ok {
		return name, true
	}
	if len(s.segments(path)) == 1 {
		path = "./" + path // interpreters look in the working directory, not in PATH
	}
	if target := s.resolve(path); target != "" {
		return s.byTarget(target)
	}
	return "", false
}

// byTarget judges a file that a command was followed to.
func (s *search) byTarget(target string) (string, bool) {
	if name, ok := s.byName(target); ok {
		return name, true
	}
	for _, name := range s.own() {
		for _, binary := range s.known.Binaries[name] {
			if s.isPath(binary) && s.resolve(binary) == target {
				return canonical(name), true
			}
		}
	}
	return "", false
}

// byName judges a command or path by its words alone.
func (s *search) byName(path string) (string, bool) {
	base := s.base(path)
	for _, name := range s.own() {
		for _, binary := range s.known.Binaries[name] {
			if binary != "" && s.isBinary(path, base, binary) {
				return canonical(name), true
			}
		}
	}
	if name, ok := Canonical(base); ok {
		return name, true
	}
	// The archives codex is released in hold an executable named after the target.
	if strings.HasPrefix(base, "codex-x86_64-") || strings.HasPrefix(base, "codex-aarch64-") {
		return "codex", true
	}
	return inPackage(s.segments(path))
}

// own lists the user's engines, in order so that every search finds the same.
func (s *search) own() []string {
	if len(s.known.Binaries) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.known.Binaries))
	return slices.DeleteFunc(names, func(name string) bool {
		return !Valid(canonical(name)) || len(s.known.Binaries[name]) == 0
	})
}

// canonical leaves a name that is not a built-in's as it is.
func canonical(name string) string {
	if own, ok := Canonical(name); ok {
		return own
	}
	return name
}

func (s *search) isPath(binary string) bool {
	return strings.Contains(binary, "/") || s.windows && strings.Contains(binary, `\`)
}

func (s *search) isBinary(path, base, binary string) bool {
	if s.isPath(binary) {
		return filepath.Clean(path) == filepath.Clean(binary)
	}
	return base == s.base(binary)
}

// resolve asks where a command leads. A word with an unknown part (see
// unknown) leads nowhere.
func (s *search) resolve(word string) string {
	if s.looks == 0 || strings.Contains(word, unknown) {
		return ""
	}
	s.looks--
	return s.known.Resolve(word)
}

// onDisk finds a command as execvp(3) would and follows its links. A script
// for an interpreter need not be executable.
func onDisk(command string) string {
	path, err := exec.LookPath(command)
	if err != nil {
		if !strings.ContainsAny(command, `/\`) {
			return ""
		}
		path = command
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return ""
	}
	return path
}

// base is the last part of a path without an executable's extension.
func (s *search) base(path string) string {
	segments := s.segments(path)
	base := segments[len(segments)-1]
	for _, ext := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		if len(base) > len(ext) && strings.EqualFold(base[len(base)-len(ext):], ext) {
			return base[:len(base)-len(ext)]
		}
	}
	return base
}

func (s *search) segments(path string) []string {
	if s.windows {
		path = strings.ToLower(strings.ReplaceAll(path, `\`, "/"))
	}
	return strings.Split(path, "/")
}
