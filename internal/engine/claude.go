package engine

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// claudeText is how many UTF-16 units claude reads of a prompt that is plain
// text on stdin; beyond, it ends with an error (seen in 2.1.197).
const claudeText = 10 << 20

// claudeBuild: the prompt comes on stdin and the standing instructions from a
// file, where there may be one, so that neither is seen in the process table
// (C137). The user's arguments come
// last: an option of theirs that takes many values finds nothing of ours to take.
func claudeBuild(a Ask) (Command, error) {
	if strings.HasPrefix(a.Resume, "-") {
		return Command{}, fmt.Errorf("claude: %q is no conversation's id", a.Resume)
	}
	c := Command{Argv: []string{or(a.Binary, "claude"), "-p", "--output-format", "stream-json", "--verbose"}, Stdin: a.Prompt}
	add := func(words ...string) { c.Argv = append(c.Argv, words...) }
	if a.Model != "" {
		add("--model", a.Model)
	}
	if a.Resume != "" {
		add("--resume", a.Resume)
	}
	if err := claudeSystem(a, &c); err != nil {
		return Command{}, err
	}
	if utf16Len(a.Prompt) > claudeText {
		add("--input-format", "stream-json")
		c.Stdin = claudeMessage(a.Prompt)
	}
	add(a.Args...)
	return c, nil
}

// claudeSystem appends the standing instructions.
func claudeSystem(a Ask, c *Command) error {
	switch {
	case a.System == "":
	case a.Files != "":
		path := filepath.Join(a.Files, "instructions")
		c.Files = map[string][]byte{path: []byte(a.System)}
		c.Argv = append(c.Argv, "--append-system-prompt-file", path)
	case len(a.System) > maxArg:
		return &TooLong{What: "the profile's text", Size: len(a.System), Limit: maxArg}
	default:
		c.Argv = append(c.Argv, "--append-system-prompt", a.System)
	}
	return nil
}

// claudeMessage is a prompt as one line of claude's other input format, which it
// reads without a bound. What is not UTF-8 becomes U+FFFD, as in plain text.
func claudeMessage(prompt []byte) []byte {
	var line struct {
		Type    string `json:"type"`
		Message struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"message"`
	}
	line.Type, line.Message.Role, line.Message.Content = "user", "user", string(prompt)
	body, err := json.Marshal(line)
	if err != nil {
		panic(err) // strings alone
	}
	return append(body, '\n')
}

// utf16Len is how long a text is for a program written in JavaScript.
func utf16Len(text []byte) int {
	n := 0
	for _, r := range string(text) {
		if n++; r > 0xFFFF {
			n++
		}
	}
	return n
}

// claudeStreams: stream-json is printed only with -p and --verbose, and the last
// of several formats counts.
func claudeStreams(args []string) bool {
	said, _, err := claudeRead(args)
	if err != nil {
		return false
	}
	format, prints, verbose := "", false, false
	for _, one := range said {
		switch one.flag {
		case "-p", "--print":
			prints = true
		case "--verbose":
			verbose = true
		case "--output-format":
			format = strings.Join(one.values, "")
		}
	}
	return prints && verbose && format == "stream-json"
}
