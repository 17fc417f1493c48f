package engine

import (
	"slices"
	"strings"
)

// packages leads from the npm packages to the engines in them. pi has moved
// between scopes, so any scope counts for it.
var packages = map[string]string{
	"@anthropic-ai/claude-code": "claude",
	"@openai/codex":             "codex",
	"@google/gemini-cli":        "gemini",
}

// sources are repositories that runners such as npx accept in place of a
// package's name.
var sources = map[string]string{
	"openai/codex":             "codex",
	"google-gemini/gemini-cli": "gemini",
	"anthropics/claude-code":   "claude",
}

// packageEngine judges scope and name of a package, each without a version.
func packageEngine(scope, name string) (string, bool) {
	if engine, ok := packages[scope+"/"+name]; ok {
		return engine, true
	}
	if name == "pi-coding-agent" && strings.HasPrefix(scope, "@") {
		return "pi", true
	}
	// The executables for each platform come in packages of their own.
	if strings.HasPrefix(scope+"/"+name, "@anthropic-ai/claude-code-") {
		return "claude", true
	}
	if strings.HasPrefix(scope+"/"+name, "@openai/codex-") {
		return "codex", true
	}
	return "", false
}

// inPackage judges a path by the package it lies in: the last one on the way,
// and only its entry file, since packages carry other programs as well
// (@anthropic-ai/claude-code/vendor/ripgrep/…/rg is not an agent).
func inPackage(segments []string) (string, bool) {
	last := len(segments) - 1
	if !entryFile(segments[last]) {
		return inVersions(segments)
	}
	for i := last - 2; i >= 0; i-- {
		if engine, ok := packageEngine(segments[i], segments[i+1]); ok {
			inside := segments[i+2 : last]
			if slices.Contains(inside, "node_modules") || slices.Contains(inside, "vendor") {
				return "", false
			}
			return engine, true
		}
	}
	return "", false
}

// entryFile tells whether a package of an engine starts with a file of this
// name: cli.js, cli-wrapper.cjs, index.js, codex.js, gemini.js, claude.exe.
func entryFile(name string) bool {
	stem, ext, _ := strings.Cut(name, ".")
	switch ext {
	case "", "js", "mjs", "cjs", "ts", "mts", "exe":
	default:
		return false
	}
	_, engine := Canonical(stem)
	return engine || stem == "cli" || stem == "index" || strings.HasPrefix(stem, "cli-")
}

// inVersions knows the native installation of claude, whose executable is
// named by its version: …/claude/versions/2.1.197.
func inVersions(segments []string) (string, bool) {
	n := len(segments)
	if n < 3 || segments[n-2] != "versions" || segments[n-3] != "claude" {
		return "", false
	}
	if version := segments[n-1]; version == "" || version[0] < '0' || version[0] > '9' {
		return "", false
	}
	return "claude", true
}

// spec judges what npx and its like are told to run: a package, with or
// without a version, a repository, or the name of an executable.
func (s *search) spec(word string) (string, bool) {
	word = strings.TrimPrefix(word, "npm:")
	if repo, ok := repository(word); ok {
		engine, ok := sources[repo]
		return engine, ok
	}
	if !strings.HasPrefix(word, "@") {
		word, _, _ = strings.Cut(word, "@")
		return s.byName(word)
	}
	scope, name, _ := strings.Cut(word, "/")
	name, _, _ = strings.Cut(name, "@")
	return packageEngine(scope, name)
}

// repository finds owner/name in the ways of naming a repository on GitHub.
func repository(word string) (string, bool) {
	for _, prefix := range []string{"github:", "git+https://github.com/", "git+ssh://git@github.com/", "https://github.com/"} {
		if rest, ok := strings.CutPrefix(word, prefix); ok {
			rest, _, _ = strings.Cut(rest, "#")
			return strings.TrimSuffix(rest, ".git"), true
		}
	}
	return "", false
}
