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

// geminiPolicy takes away what writes files, and the tools of others, of which
// nobody knows what they write: an administrator's rule outranks those of the
// user, of every approval mode and of extensions. A tool that is denied whatever
// its arguments is not offered to the model at all.
const geminiPolicy = `[[rule]]
toolName = ["write_file", "replace", "save_memory"]
decision = "deny"
priority = 999
denyMessage = "This agent runs as light: it does not write files with its own tools."

[[rule]]
mcpName = "*"
toolName = "*"
decision = "deny"
priority = 999
denyMessage = "This agent runs as light: it uses no MCP server."
`

// noServer is the one MCP server that may be started: none has this name, and an
// empty one is an error to gemini.
const noServer = "none-of-a-light-agent"

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
	if err := geminiFlags.check(args); err != nil {
		return Confinement{}, err
	}
	if err := geminiHere().outranks(); err != nil {
		return Confinement{}, err
	}
	add := []string{"--admin-policy", fileWord(policyFile), "--allowed-mcp-server-names", noServer}
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
	if err := agyFlags.check(args); err != nil {
		return Confinement{}, err
	}
	return Confinement{Args: append([]string{"--sandbox"}, args...)}, nil
}

// dialectFlags are the flags of gemini or agy, for light: those that may stay, and
// those of which only some values may, or none, and why.
type dialectFlags struct {
	yargs bool   // gemini's parser: -dy are two flags, approvalMode is approval-mode
	fine  string // names without dashes, separated by blanks
	texts string // of these, those whose next word is a text whatever it begins with
	lifts []lift
}

// lift is a flag that goes with light at most with some values.
type lift struct {
	flag string
	why  string
	fine func(value string) bool // nil: none
}

const (
	allowsAll   = "it allows every tool"
	moreRoom    = "it lets the agent write in further directories"
	elsewhere   = "the agent would work in another directory"
	equalRules  = "rules of the same rank could allow what light takes away"
	noSandbox   = "it may switch the sandbox off"
	editsItself = "only a mode that allows no edits goes with it"
	noServers   = "a light agent uses no MCP server"
	writers     = "it allows a tool that writes files, which light takes away"
	unknownFlag = "nobody here knows what it does"
)

var geminiFlags = dialectFlags{
	yargs: true,
	fine: "debug d model m prompt p prompt-interactive i skip-trust policy acp experimental-acp extensions e list-extensions l resume r " +
		"session-file session-id list-sessions delete-session screen-reader output-format o raw-output accept-raw-output-risk version v help h",
	lifts: []lift{
		{"yolo", allowsAll, nil}, {"y", allowsAll, nil},
		{"approval-mode", editsItself, exactly("default", "plan")},
		{"include-directories", moreRoom, nil},
		{"worktree", elsewhere, nil}, {"w", elsewhere, nil},
		{"admin-policy", equalRules, nil},
		{"allowed-mcp-server-names", noServers, nil},
		{"allowed-tools", writers, func(list string) bool { return !slices.ContainsFunc(strings.Split(list, ","), writes) }},
		{"sandbox", noSandbox, isNoBool}, {"s", noSandbox, isNoBool},
	},
}

// isNoBool: what yargs does not take for the value of a flag that is on by itself.
func isNoBool(value string) bool { return value != "true" && value != "false" }

var agyFlags = dialectFlags{
	fine: "p print prompt model output-format input-format json-schema conversation continue c print-timeout log-file effort " +
		"disable-slash-commands version help h",
	texts: "p print prompt",
	lifts: []lift{
		{"dangerously-skip-permissions", allowsAll, nil},
		{"mode", editsItself, exactly("plan")},
		{"add-dir", moreRoom, nil},
		{"sandbox", noSandbox, func(string) bool { return true }},
	},
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
	return strings.HasPrefix(name, "mcp")
}

// check refuses what among args would lift the confinement of a light agent, and
// what is not known not to: another spelling, another case, a beginning of a name
// and --no-x are not guessed (E3). Every word before "--" that begins with a dash
// is taken for a flag, as yargs takes none of them for a value.
func (f dialectFlags) check(args []string) error {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		word := args[i]
		if len(word) < 2 || word[0] != '-' {
			continue
		}
		name, value, attached := strings.Cut(strings.TrimLeft(word, "-"), "=")
		setting := word
		if !attached && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
			setting += " " + value
		}
		names := []string{name}
		if f.yargs && word[1] != '-' && name != "" {
			names = strings.Split(name, "") // the value is the last one's
		}
		for _, name := range names[:len(names)-1] {
			if why := f.judge(name, "", false); why != "" {
				return &Lifted{"gemini", word, why}
			}
		}
		if why := f.judge(names[len(names)-1], value, attached); why != "" {
			return &Lifted{"gemini", setting, why}
		}
		if !attached && slices.Contains(strings.Fields(f.texts), name) {
			i++
		}
	}
	return nil
}

// judge says why a flag does not go with light; "" when it does.
func (f dialectFlags) judge(name, value string, attached bool) string {
	for _, l := range f.lifts {
		switch exact := name == l.flag || f.yargs && name == camel(l.flag); {
		case exact && l.why == noSandbox && attached, exact && (l.fine == nil || !l.fine(value)):
			return l.why
		case exact:
			return ""
		case alike(name, l.flag):
			return "it may stand for --" + l.flag + ": " + l.why
		}
	}
	for _, flag := range strings.Fields(f.fine) {
		if name == flag || f.yargs && name == camel(flag) {
			return ""
		}
	}
	return unknownFlag
}

// alike tells whether somebody may have meant a flag by another name.
func alike(name, flag string) bool {
	plain := strings.NewReplacer("-", "", "_", "")
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	name, flag = plain.Replace(name), plain.Replace(flag)
	return len(name) > 1 && (strings.HasPrefix(flag, name) || strings.TrimPrefix(name, "no") == flag)
}

// camel is a flag's name as yargs takes it, too: approvalMode.
func camel(flag string) string {
	words := strings.Split(flag, "-")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}
