package hook

// Registers lists the clients that can be told of our MCP server by a command of
// their own.
func Registers() []string { return []string{"claude", "codex", "gemini"} }

// Registration is the command of a client that makes `handsel mcp` one of its servers,
// for all of the user's projects, under the name handsel; or takes that away. nil for
// a client that has none.
func Registration(client, exe string, remove bool) []string {
	switch {
	case client == "claude" && remove:
		return []string{"claude", "mcp", "remove", "--scope", "user", "handsel"}
	case client == "claude":
		return []string{"claude", "mcp", "add", "--scope", "user", "handsel", "--", exe, "mcp"}
	case client == "codex" && remove:
		return []string{"codex", "mcp", "remove", "handsel"}
	case client == "codex":
		return []string{"codex", "mcp", "add", "handsel", "--", exe, "mcp"}
	case client == "gemini" && remove:
		return []string{"gemini", "mcp", "remove", "--scope", "user", "handsel"}
	case client == "gemini":
		return []string{"gemini", "mcp", "add", "--scope", "user", "handsel", exe, "mcp"}
	}
	return nil
}

// Line writes a command as a person would type it.
func Line(argv []string) string {
	line := ""
	for i, word := range argv {
		if i > 0 {
			line += " "
		}
		line += quoteWord(word)
	}
	return line
}
