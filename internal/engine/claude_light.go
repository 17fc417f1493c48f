package engine

import (
	"slices"
	"strings"
	"sync"
)

// claudeRemoved are the tools a light claude does not have. The first four write
// files. EnterWorktree makes another working directory and moves there.
// CronCreate may leave a task on disk that a later session, which may be a heavy
// one, takes up. Workflow starts agents in numbers, while a light run counts as
// one. The agents that Task starts stay: they lack the same tools, whatever
// their definition asks for (seen in 2.1.197). That version has no MultiEdit any
// more and says so on stderr; versions that have it must not keep it.
var claudeRemoved = []string{"Edit", "Write", "NotebookEdit", "MultiEdit", "EnterWorktree", "CronCreate", "Workflow"}

// claudeSettings are those a light claude gets on its command line, where they
// beat the user's files: bypassing permissions is not to be had, also not by
// defaultMode in a settings file.
const claudeSettings = `{"permissions":{"disableBypassPermissionsMode":"disable"}}`

// claudeLight takes the writing tools away. What is denied stays denied,
// whatever is allowed elsewhere, and further lists add to it. Each of our words
// carries its value itself: none can swallow a word or be swallowed. MCP servers
// bring tools of their own, so there are none (C138).
func claudeLight(args []string, _ string) (Confinement, error) {
	said, operands, err := claudeRead(args)
	if err != nil {
		return Confinement{}, err
	}
	if len(operands) > 0 && among(claudeCommands, operands[0]) {
		return Confinement{}, claudeLifted(operands[0], "only an agent's turn can be light, and this is another command of claude's")
	}
	for _, one := range said {
		if err := claudeJudge(one); err != nil {
			return Confinement{}, err
		}
	}
	ours := []string{
		"--disallowedTools=" + strings.Join(claudeRemoved, ","),
		"--settings=" + claudeSettings,
	}
	if !slices.ContainsFunc(said, func(one spoken) bool { return one.flag == "--strict-mcp-config" }) {
		ours = append(ours, "--strict-mcp-config")
	}
	return Confinement{Args: append(ours, args...)}, nil
}

func claudeLifted(setting, why string) error {
	return &Lifted{Engine: "claude", Setting: setting, Why: why}
}

// claudeModes are the permission modes that bypass nothing and let no file be
// changed unasked.
var claudeModes = []string{"default", "plan", "dontAsk", "auto"}

// claudeJudge refuses an option that lifts the confinement.
func claudeJudge(one spoken) error {
	if why := claudeOptions()[one.flag].lifts; why != "" {
		return claudeLifted(one.flag, why)
	}
	switch one.flag {
	case "--permission-mode":
		for _, mode := range one.values {
			if !slices.Contains(claudeModes, mode) {
				return claudeLifted(one.flag+" "+mode, "light knows the modes "+strings.Join(claudeModes, ", "))
			}
		}
	case "--allowedTools", "--allowed-tools", "--tools":
		for _, tool := range claudeTools(one.values) {
			if slices.ContainsFunc(claudeRemoved, func(removed string) bool { return strings.EqualFold(removed, tool) }) {
				return claudeLifted(one.flag+" "+tool, "a light claude does not have this tool")
			}
		}
	}
	return nil
}

// claudeTools are the names in a list of rules such as "Bash(git *) Edit,Read".
func claudeTools(lists []string) []string {
	var names []string
	for _, list := range lists {
		depth := 0
		names = append(names, strings.FieldsFunc(list, func(r rune) bool {
			switch r {
			case '(':
				depth++
			case ')':
				depth--
				return true
			}
			return depth > 0 || r == ' ' || r == ',' || r == '\t' || r == '\n'
		})...)
	}
	return names
}

// spoken is one option as it was given.
type spoken struct {
	flag   string
	values []string
}

// claudeRead takes a command line apart as claude's own parser (commander) does:
// no abbreviations; an option with a value takes the next word whatever it is;
// one with many goes on until a word begins with a dash; one whose value may be
// left out takes no word that begins with a dash; a short one may have its value
// or further short ones attached. An option it does not know is *Lifted.
func claudeRead(args []string) (said []spoken, operands []string, err error) {
	dashed := func(word string) bool { return len(word) > 1 && word[0] == '-' }
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch {
		case word == "--":
			return said, append(operands, args...), nil
		case !dashed(word):
			operands = append(operands, word)
			continue
		}
		given, attached, err := claudeWord(word)
		if err != nil {
			return nil, nil, err
		}
		last := &given[len(given)-1]
		switch takes := claudeOptions()[last.flag].takes; {
		case last.flag == "--":
			return append(said, given[:len(given)-1]...), append(operands, args...), nil
		case attached, takes == takesNothing, len(args) == 0, takes == takesMaybe && dashed(args[0]):
		default:
			last.values, args = args[:1:1], args[1:]
			for takes == takesMany && len(args) > 0 && !dashed(args[0]) {
				last.values, args = append(last.values, args[0]), args[1:]
			}
		}
		said = append(said, given...)
	}
	return said, operands, nil
}

// claudeWord reads one word that begins with a dash: its options, and whether the
// last of them has its value attached. Behind a short option without a value the
// rest counts as a word of its own, also as "--".
func claudeWord(word string) (given []spoken, attached bool, err error) {
	for rest := word[1:]; ; rest = rest[1:] {
		const longest = len("d2e") // of the options with one dash
		if rest == "-" {
			return append(given, spoken{flag: "--"}), false, nil
		}
		if _, ok := claudeOptions()["-"+rest[:min(len(rest), longest)]]; ok && len(rest) <= longest {
			return append(given, spoken{flag: "-" + rest}), false, nil
		}
		if rest[0] == '-' {
			one, attached, err := claudeLong("-" + rest)
			return append(given, one), attached, err
		}
		name := "-" + rest[:1]
		option, ok := claudeOptions()[name]
		switch {
		case !ok:
			return nil, false, claudeLifted(name, "what this option does is not known")
		case option.takes != takesNothing:
			return append(given, spoken{name, []string{rest[1:]}}), true, nil
		}
		given = append(given, spoken{flag: name})
	}
}

// claudeLong reads an option with two dashes, and the value attached to it.
func claudeLong(word string) (given spoken, attached bool, err error) {
	if _, ok := claudeOptions()[word]; ok {
		return spoken{flag: word}, false, nil
	}
	name, value, found := strings.Cut(word, "=")
	if option, ok := claudeOptions()[name]; found && ok && option.takes != takesNothing {
		return spoken{name, []string{value}}, true, nil
	}
	return spoken{}, false, claudeLifted(word, "what this option does is not known")
}

// takes is how many values an option takes.
type takes int

const (
	takesNothing takes = iota
	takesOne
	takesMaybe // one that may be left out
	takesMany
)

// flag is what is known of an option: its values, and why light refuses it;
// "" where it does not.
type flag struct {
	takes takes
	lifts string
}

// claudeOptions are claude's options, the hidden ones included, as of 2.1.197.
// One that is not here is refused with light: a new one is looked at first.
var claudeOptions = sync.OnceValue(func() map[string]flag {
	all := map[string]flag{}
	put := func(takes takes, lifts, names string) {
		for _, name := range strings.Fields(names) {
			all[name] = flag{takes, lifts}
		}
	}
	put(takesNothing, "", `-p --print -c --continue -v --version -h --help --verbose --bare --safe-mode -d2e --debug-to-stderr
		--include-hook-events --include-partial-messages --replay-user-messages --exclude-dynamic-system-prompt-sections
		--fork-session --no-session-persistence --strict-mcp-config --disable-slash-commands --no-chrome --ax-screen-reader
		--brief --session-mirror --enable-auth-status`)
	put(takesOne, "", `--model --fallback-model --effort --output-format --input-format --json-schema --max-turns --max-budget-usd
		--task-budget --max-thinking-tokens --thinking --thinking-display --system-prompt --system-prompt-file
		--append-system-prompt --append-system-prompt-file --plan-mode-instructions --permission-mode --session-id
		--resume-session-at -n --name --debug-file --setting-sources --workload --advisor`)
	put(takesMaybe, "", `-r --resume --from-pr -d --debug --prompt-suggestions`)
	put(takesMany, "", `--tools --allowedTools --allowed-tools --disallowedTools --disallowed-tools --betas`)

	put(takesNothing, "it bypasses permissions", "--dangerously-skip-permissions --allow-dangerously-skip-permissions")
	put(takesMany, "it opens further directories", "--add-dir")
	put(takesOne, "settings may lift anything, and what is in them is not looked at", "--settings --managed-settings")
	put(takesMany, "an MCP server brings tools of its own", "--mcp-config --channels --dangerously-load-development-channels")
	put(takesOne, "an MCP server brings tools of its own", "--permission-prompt-tool")
	put(takesNothing, "it brings tools of its own", "--chrome --ide")
	put(takesOne, "a plugin brings tools, hooks and agents of its own", "--plugin-dir --plugin-dir-no-mcp --plugin-url")
	put(takesOne, "an agent's definition brings a permission mode, hooks and MCP servers of its own", "--agent --agents")
	put(takesMaybe, "the agent would work in another directory", "-w --worktree")
	put(takesNothing, "the agent would work in another directory", "--tmux")
	put(takesNothing, "the agent would go on where nothing watches it", "--bg --background")
	put(takesMaybe, "the agent would be somewhere else, or be led from there", "--remote-control --rc --remote --cloud --teleport")
	put(takesOne, "the agent would be led from elsewhere", "--sdk-url --remote-control-session-name-prefix")
	put(takesOne, "it writes files", "--rewind-files")
	put(takesMany, "it writes files", "--file")
	put(takesOne, "it makes the agent one of a team's", `--team-name --teammate-mode --agent-id --agent-name --agent-color
		--agent-type --parent-session-id`)
	put(takesNothing, "it makes the agent one of a team's", "--plan-mode-required")
	put(takesNothing, "it runs hooks", "--init --init-only --maintenance")
	return all
})

// claudeCommands are the words that are commands of claude's own, also behind --.
const claudeCommands = `agents assistant attach auth auto-mode bridge completion config critique daemon defaults
	doctor environment-runner export gateway import-conversations install kill login logout logs mcp new open plugin plugins
	project ps purge rc remote remote-control reply respawn rm rollback self-hosted-runner server setup-token ssh status stop
	sync task ultrareview up update upgrade`
