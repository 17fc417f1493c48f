package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// maxGeminiStdin is what gemini reads of its stdin: the rest of a longer prompt
// it drops with a warning (readStdin in its sources, 0.61.0).
const maxGeminiStdin = 8 << 20

// geminiBuild asks gemini with the prompt on its stdin. A -p would only be joined
// to it at its end, and headless it is without one where neither stdin nor stdout
// is a terminal. It has no flag for standing instructions; they come first.
func geminiBuild(a Ask) (Command, error) {
	prompt := withSystem(a)
	if len(prompt) > maxGeminiStdin {
		return Command{}, &TooLong{What: "the prompt", Size: len(prompt), Limit: maxGeminiStdin, Way: "on its stdin"}
	}
	argv := []string{or(a.Binary, "gemini"), "--output-format", "stream-json"}
	if a.Model != "" {
		argv = append(argv, "-m", a.Model)
	}
	if a.Resume != "" {
		argv = append(argv, "--resume", a.Resume)
	}
	return Command{Argv: append(argv, a.Args...), Stdin: prompt}, nil
}

// agyWait is the time agy gives one turn: its own limit is five minutes, after
// which it answers with what it has and status 0. Ours end a run instead (E12).
const agyWait = "24h"

// agyBuild asks agy, from its documentation only (docs/engines.md). The prompt is
// an argument: its documented way by stdin is another protocol.
func agyBuild(a Ask) (Command, error) {
	prompt := withSystem(a)
	if len(prompt) > maxArg {
		return Command{}, &TooLong{What: "the prompt", Size: len(prompt), Limit: maxArg}
	}
	argv := []string{a.Binary, "--output-format", "json", "--print-timeout", agyWait}
	if a.Model != "" {
		argv = append(argv, "--model", a.Model)
	}
	if a.Resume != "" {
		argv = append(argv, "--conversation", a.Resume)
	}
	argv = append(argv, a.Args...)
	return Command{Argv: append(argv, "-p", string(prompt))}, nil
}

// isAgy tells the other binary of this engine by its name.
func isAgy(binary string) bool {
	base := strings.TrimSuffix(filepath.Base(binary), ".exe")
	return base == "agy" || base == "antigravity"
}

// withSystem is the prompt after the standing instructions, for engines that take
// those in no other way.
func withSystem(a Ask) []byte {
	if a.System == "" {
		return a.Prompt
	}
	return slices.Concat([]byte(a.System), []byte("\n\n"), a.Prompt)
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// geminiStreams knows gemini's events and not its one JSON object, which it
// spreads over many lines.
func geminiStreams(args []string) bool { return formatOf(args) == "stream-json" }

// agyStreams knows agy's one JSON object, on one line since 1.2.
func agyStreams(args []string) bool { return formatOf(args) == "json" }

// formatOf is the last output format that args name.
func formatOf(args []string) (format string) {
	for i, word := range args {
		if word == "--" {
			break
		}
		flag, value, attached := strings.Cut(word, "=")
		switch flag {
		case "-o", "--output-format", "-output-format", "--outputFormat":
		default:
			continue
		}
		if !attached && i+1 < len(args) {
			value = args[i+1]
		}
		format = value
	}
	return format
}

// geminiPolicy takes away what writes files: an administrator's rule outranks
// those of the user, of every approval mode and of extensions. A tool that is
// denied whatever its arguments is not offered to the model at all.
const geminiPolicy = `[[rule]]
toolName = ["write_file", "replace", "save_memory"]
decision = "deny"
priority = 999
denyMessage = "This agent runs as light: it does not write files with its own tools."
`

// policyFile is the name of the file with geminiPolicy.
const policyFile = "gemini-light.toml"

// geminiMachine is where a machine's owner keeps what binds gemini.
type geminiMachine struct{ policies, settings string }

func geminiHere() geminiMachine {
	at := geminiMachine{"/etc/gemini-cli/policies", "/etc/gemini-cli/settings.json"}
	if runtime.GOOS == "darwin" {
		at = geminiMachine{"/Library/Application Support/GeminiCli/policies", "/Library/Application Support/GeminiCli/settings.json"}
	}
	if path := os.Getenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH"); path != "" {
		at.settings = path
	}
	return at
}

// geminiLight takes gemini's file-writing tools away (E5). It bounds the tool
// list: a shell that the user's own rules allow writes where it likes.
func geminiLight(args []string, _ string) (Confinement, error) {
	if len(args) > 0 && slices.Contains(geminiManages, args[0]) {
		return Confinement{}, &Lifted{"gemini", args[0], "it manages gemini itself and starts no agent"}
	}
	if err := lifts(args, geminiLifts, true); err != nil {
		return Confinement{}, err
	}
	if err := geminiHere().outranks(); err != nil {
		return Confinement{}, err
	}
	add := []string{"--admin-policy", fileWord(policyFile)}
	if runtime.GOOS == "darwin" && !slices.ContainsFunc(args, isSandbox) {
		add = append(add, "--sandbox") // sandbox-exec is part of macOS; elsewhere it takes containers
	}
	return Confinement{Args: append(add, args...), Files: map[string][]byte{policyFile: []byte(geminiPolicy)}, cutsAt: ","}, nil
}

func isSandbox(word string) bool { return word == "-s" || word == "--sandbox" }

// geminiManages are gemini's subcommands.
var geminiManages = []string{"mcp", "extensions", "extension", "skills", "skill", "hooks", "hook", "gemma"}

// outranks refuses a machine whose owner has rules: beside them gemini takes no
// further administrator's rules, and ours would displace those that its settings
// name.
func (m geminiMachine) outranks() error {
	found, err := filepath.Glob(filepath.Join(m.policies, "*.toml"))
	if err == nil && len(found) > 0 {
		return &Lifted{"gemini", found[0], "gemini ignores the rules that make an agent light where a machine has its own"}
	}
	settings, err := os.ReadFile(m.settings)
	if err == nil && bytes.Contains(settings, []byte("adminPolicyPaths")) {
		return &Lifted{"gemini", "adminPolicyPaths in " + m.settings, "gemini would take the rules that make an agent light in place of these"}
	}
	return nil
}

// agyLight asks agy for its own sandbox, and refuses what skips its questions:
// without an answer, a headless agy does not do what it has to ask for.
func agyLight(args []string, _ string) (Confinement, error) {
	if err := lifts(args, agyLifts, false); err != nil {
		return Confinement{}, err
	}
	return Confinement{Args: append([]string{"--sandbox"}, args...)}, nil
}

// lift is a flag that does not go with light.
type lift struct {
	flag string // as the engine lists it, without its dashes
	why  string
	// fine tells which values may stay; nil: none.
	fine func(value string) bool
}

const (
	allowsAll   = "it allows every tool"
	moreRoom    = "it lets the agent write in further directories"
	equalRules  = "rules of the same rank could allow what light takes away"
	noSandbox   = "it may switch the sandbox off"
	editsItself = "only a mode that allows no edits goes with it"
	writers     = "it allows a tool that writes files, which light takes away"
)

var geminiLifts = []lift{
	{"yolo", allowsAll, nil},
	{"approval-mode", editsItself, exactly("default", "plan")},
	{"include-directories", moreRoom, nil},
	{"admin-policy", equalRules, nil},
	{"allowed-tools", writers, func(list string) bool { return !slices.ContainsFunc(strings.Split(list, ","), writes) }},
	{"sandbox", noSandbox, func(value string) bool { return value != "true" && value != "false" }},
}

var agyLifts = []lift{
	{"dangerously-skip-permissions", allowsAll, nil},
	{"yolo", allowsAll, nil},
	{"approval-mode", editsItself, exactly("default", "plan")},
	{"mode", editsItself, exactly("plan")},
	{"add-dir", moreRoom, nil},
	{"include-directories", moreRoom, nil},
	{"allowed-tools", writers, nil},
	{"sandbox", noSandbox, func(string) bool { return true }},
}

func exactly(values ...string) func(string) bool {
	return func(value string) bool { return slices.Contains(values, value) }
}

// writes tells whether a tool, in the list of those allowed, writes files. The
// names it had in earlier versions count as well, in any spelling.
func writes(tool string) bool {
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(tool)), "(")
	switch strings.NewReplacer("_", "", "-", "", "tool", "").Replace(name) {
	case "writefile", "write", "replace", "edit", "savememory", "memory", "*":
		return true
	}
	return false
}

// lifts finds the flag among args that would lift the confinement of a light
// agent. So that none is overlooked, every word before "--" that begins with a
// dash is taken for a flag: yargs, which reads gemini's, takes no such word for a
// value. Other spellings of a flag are refused, not guessed, whether the engine
// would know them or not (E3). clusters tells that a single dash is followed by
// flags of one letter each, as with yargs; with Go's flags, agy's, it is as good
// as two.
func lifts(args []string, all []lift, clusters bool) error {
	for i, word := range args {
		if word == "--" {
			return nil
		}
		if len(word) < 2 || word[0] != '-' {
			continue
		}
		name, value, attached := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if clusters && word[1] != '-' {
			if strings.Contains(letters(name), "y") {
				return &Lifted{"gemini", word, allowsAll}
			}
			if attached && strings.HasSuffix(name, "s") {
				return &Lifted{"gemini", word, noSandbox}
			}
			continue
		}
		setting := word
		if !attached && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
			setting += " " + value
		}
		for _, l := range all {
			if why := l.judge(name, value, attached); why != "" {
				return &Lifted{"gemini", setting, why}
			}
		}
	}
	return nil
}

// judge says why a flag does not go with light; "" when it is none of l's.
func (l lift) judge(name, value string, attached bool) string {
	plain, whole := plainName(name), plainName(l.flag)
	switch {
	case plain == "no"+whole:
		return l.why
	case plain != whole && strings.HasPrefix(whole, plain) && plain != "":
		return "it may stand for --" + l.flag + ", and " + l.why
	case plain != whole:
		return ""
	case name != l.flag && name != camel(l.flag), l.fine == nil, !l.fine(value), attached && l.why == noSandbox:
		return l.why
	}
	return ""
}

// plainName is a flag's name without what its spellings differ in. What follows
// a dot is a key inside its value to yargs.
func plainName(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	return strings.NewReplacer("-", "", "_", "").Replace(name)
}

// camel is a flag's name as yargs takes it, too: approvalMode.
func camel(flag string) string {
	words := strings.Split(flag, "-")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// letters are those of flags that are written together, up to what is their
// value.
func letters(name string) string {
	end := strings.IndexFunc(name, func(c rune) bool {
		return !(c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
	})
	if end < 0 {
		return name
	}
	return name[:end]
}
