package engine

import (
	"path/filepath"
	"strings"
)

// How a process was proven to be an engine's.
const (
	ByExecutable = "executable" // what it executes lies where the engine is installed
	ByScript     = "script"     // an interpreter that runs the engine's own file
	ByPath       = "path"       // it is what PATH or the configuration has under the name it was called by
	ByTitle      = "title"      // an interpreter that has taken the engine's name for its title, which hides the file
)

// Process is what is known of a process from outside.
type Process struct {
	Exe  string   // the file it executes, all links followed
	Argv []string // as it shows them now
	Comm string   // its name, as it shows it
	Dir  string   // its working directory
}

// Proven names the engine that a process is, and how that is known. Unlike
// Recognise it takes no word for it: a script or an editor that has an engine's
// name, in its own or as an argument, is none.
func (k Known) Proven(p Process) (name, how string, ok bool) {
	s := k.search()
	if p.Exe == "" || len(p.Argv) == 0 {
		return "", "", false
	}
	if name, ok := s.installed(p.Exe); ok {
		return name, ByExecutable, true
	}
	switch s.base(p.Exe) {
	case "node", "nodejs", "bun", "tsx":
		return s.interpreted(p)
	}
	if name, ok := s.byName(p.Argv[0]); ok && !s.interprets(p.Exe) && s.resolve(p.Argv[0]) == p.Exe {
		return name, ByPath, true
	}
	return "", "", false
}

// interprets tells a program that is whatever it is given to read.
func (s *search) interprets(exe string) bool {
	base := strings.TrimRight(s.base(exe), "0123456789.")
	return among("sh bash dash zsh ksh ash mksh fish busybox toybox python perl ruby lua deno", base)
}

// interpreted is a process of node and its like.
func (s *search) interpreted(p Process) (name, how string, ok bool) {
	if title := strings.TrimRight(p.Argv[0], " "); len(p.Argv) == 1 && title == p.Comm {
		name, ok = Canonical(title)
		return name, ByTitle, ok
	}
	rest := nodeScript(p.Argv[1:])
	if s.base(p.Exe) == "bun" && len(rest) > 1 && rest[0] == "run" {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return "", "", false
	}
	file := rest[0]
	if !filepath.IsAbs(file) {
		file = filepath.Join(p.Dir, file)
	}
	if to := s.resolve(file); to != "" {
		name, ok = s.installed(to)
	}
	return name, ByScript, ok
}

// installed judges a file by where it lies: in an engine's package, in what its
// own installer makes, or where the configuration says.
func (s *search) installed(path string) (string, bool) {
	segments := s.segments(path)
	if name, ok := inPackage(segments); ok {
		return name, true
	}
	base := s.base(path)
	if strings.HasPrefix(base, "codex-x86_64-") || strings.HasPrefix(base, "codex-aarch64-") {
		return "codex", true
	}
	for i := range len(segments) - 2 { // a package brings its executable in a directory of its own
		if name, ok := packageEngine(segments[i], segments[i+1]); ok && canonical(base) == name {
			return name, true
		}
	}
	for _, name := range s.own() {
		for _, binary := range s.known.Binaries[name] {
			if s.isPath(binary) && (path == filepath.Clean(binary) || s.resolve(binary) == path) {
				return canonical(name), true
			}
		}
	}
	return "", false
}
