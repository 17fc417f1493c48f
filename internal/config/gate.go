package config

import "strings"

// heavyCommands asks for the beginnings of commands: plain words, at least one
// command, each with at least one word.
func heavyCommands(v any) string {
	list := v.([]string)
	if len(list) == 0 {
		return `it must name at least one command, such as ["cargo build"]`
	}
	for _, one := range list {
		words := strings.Fields(one)
		if len(words) == 0 || strings.ContainsFunc(one, notPlain) || words[0][0] == '-' || strings.Contains(words[0], "=") {
			return `a command is the first words of it, such as "cargo build" or "./gradlew", without anything that a shell acts on`
		}
	}
	return ""
}

// notPlain tells what a shell acts on, or what could not be seen.
func notPlain(r rune) bool {
	return r < ' ' && r != '\t' || r == 0x7f || r == '\ufffd' || strings.ContainsRune("|&;<>()$`\"'\\*?[]{}#!~", r)
}
