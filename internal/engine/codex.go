package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// codexText is how many characters codex takes as a prompt; beyond, it ends with
// an error on stderr (seen in 0.171.0).
const codexText = 1 << 20

// codexBuild: the prompt comes on stdin, and the standing instructions before it
// there: codex takes such only as an argument, which everybody on the machine
// could read, or from files of the user's own (C137). The "-" that says so stands
// before the user's arguments, where --image, which takes many values, cannot
// swallow it.
func codexBuild(a Ask) (Command, error) {
	if strings.HasPrefix(a.Resume, "-") {
		return Command{}, fmt.Errorf("codex: %q is no conversation's id", a.Resume)
	}
	c := Command{Argv: []string{or(a.Binary, "codex"), "exec"}, Stdin: withSystem(a)}
	if n := utf8.RuneCount(c.Stdin); n > codexText {
		return Command{}, &TooLong{What: "the prompt", Size: n, Limit: codexText, Unit: "characters", Way: "on its stdin"}
	}
	add := func(words ...string) { c.Argv = append(c.Argv, words...) }
	if a.Resume != "" {
		add("resume", "--json", "--skip-git-repo-check") // it knows no -C: it works where it is started
	} else {
		add("--json", "--skip-git-repo-check", "-C", a.Dir)
	}
	if a.Model != "" {
		add("-m", a.Model)
	}
	if a.Resume != "" {
		add(a.Resume)
	}
	add("-")
	add(a.Args...)
	return c, nil
}

// codexStreams: exec prints events with --json.
func codexStreams(args []string) bool {
	line, err := codexRead(args)
	return err == nil && line.command == "exec" && line.has("--json")
}
