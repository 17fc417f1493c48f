package engine

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// codexOverrides are the settings that confine a light codex, whatever the user's
// configuration says (E5). Further:
//
//   - approval_policy: where somebody, or an automatic reviewer, may be asked, a
//     command can be let out of the sandbox.
//   - multi_agent: agents that codex starts inside itself have been seen outside
//     its sandbox (C138), so there are none. A version that knows one of the two
//     names no more says so in an event and goes on.
var codexOverrides = []string{
	`sandbox_workspace_write.network_access=false`,
	`sandbox_workspace_write.writable_roots=[]`,
	`sandbox_workspace_write.exclude_slash_tmp=true`,
	`sandbox_workspace_write.exclude_tmpdir_env_var=true`,
	`approval_policy="never"`,
	`features.multi_agent=false`,
	`features.multi_agent_v2=false`,
}

// codexLight has codex's own sandbox confine its commands to dir. Only exec can
// be told to ignore the rules files, and a rule that allows a command lets it out
// of the sandbox (seen in 0.171.0); so nothing but exec can be light.
//
// Our words stand right behind the last subcommand, before all else that is its
// own. What would undo them is refused, wherever it stands.
func codexLight(args []string, dir string) (Confinement, error) {
	if len(args) == 1 && slices.Contains([]string{"-h", "--help", "-V", "--version", "help"}, args[0]) {
		return Confinement{Args: args}, nil // it only prints
	}
	line, err := codexRead(args)
	if err != nil {
		return Confinement{}, err
	}
	if line.command != "exec" {
		return Confinement{}, codexLifted(line.called(), "only codex exec can be told to ignore the rules that let commands out of its sandbox")
	}
	for _, one := range line.said {
		if err := codexJudge(one, dir); err != nil {
			return Confinement{}, err
		}
	}
	ours := codexConfined(line)
	return Confinement{Args: slices.Insert(slices.Clone(args), line.at, ours...), Scratch: true}, nil
}

// codexConfined are our words. codex takes none of its flags twice, so those the
// user has given are left out. What stands below exec knows no --sandbox.
func codexConfined(line codexLine) []string {
	var ours []string
	switch {
	case line.sub != "":
		ours = append(ours, "-c", `sandbox_mode="workspace-write"`)
	case !line.has("-s", "--sandbox"):
		ours = append(ours, "--sandbox", "workspace-write")
	}
	for _, override := range codexOverrides {
		ours = append(ours, "-c", override)
	}
	if !line.has("--ignore-rules") {
		ours = append(ours, "--ignore-rules")
	}
	return ours
}

func codexLifted(setting, why string) error {
	return &Lifted{Engine: "codex", Setting: setting, Why: why}
}

// codexJudge refuses an option that lifts the confinement, or might.
func codexJudge(given spoken, dir string) error {
	if why := codexOptions()[given.flag].lifts; why != "" {
		return codexLifted(given.flag, why)
	}
	value := strings.Join(given.values, " ")
	switch given.flag {
	case "-s", "--sandbox":
		if value != "workspace-write" && value != "read-only" {
			return codexLifted(given.flag+" "+value, "light is workspace-write or read-only")
		}
	case "-a", "--ask-for-approval":
		if value != "never" {
			return codexLifted(given.flag+" "+value, "what is approved runs outside the sandbox")
		}
	case "-C", "--cd":
		at := value
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		if filepath.Clean(at) != filepath.Clean(dir) {
			return codexLifted(given.flag+" "+value, "the one writable directory is the run's own, "+dir)
		}
	case "-c", "--config":
		key, _, _ := strings.Cut(value, "=")
		if root, _, _ := strings.Cut(key, "."); !among(codexSettings, root) {
			return codexLifted(given.flag+" "+key, "this setting is none of those known to leave the sandbox, approvals and writable directories alone")
		}
	}
	return nil
}

// codexLine is a codex command line taken apart.
type codexLine struct {
	command string // "exec", another subcommand, or "" for the terminal program
	sub     string // of exec: "resume", "fork", "review", or ""
	at      int    // where the words of the last subcommand begin
	said    []spoken
}

func (l codexLine) has(flags ...string) bool {
	return slices.ContainsFunc(l.said, func(one spoken) bool { return slices.Contains(flags, one.flag) })
}

// called is the command as a person would name it.
func (l codexLine) called() string {
	if l.command == "" {
		return "codex without exec"
	}
	return "codex " + l.command
}

// codexRead takes a command line apart as codex's own parser (clap) does: no
// abbreviations of options or subcommands; a value is attached or is the next
// word, which then does not begin with a dash; short options may be attached to
// each other. Options count wherever they stand. An option it does not know is
// *Lifted, and so is what could be read in two ways.
func codexRead(args []string) (codexLine, error) {
	var line codexLine
	words := 0 // of those at the present level, the operands
	for i := 0; i < len(args); i++ {
		word := args[i]
		if word == "--" {
			break
		}
		if len(word) < 2 || word[0] != '-' {
			if words++; words == 1 && line.enter(word, i) {
				words = 0
			} else if words > 1 && line.command == "exec" && line.sub == "" && slices.Contains(codexSubs, word) {
				return line, codexLifted(word, "it is a prompt or a subcommand; give a prompt on stdin")
			}
			continue
		}
		given, more, err := codexWord(word)
		if err != nil {
			return line, err
		}
		if more { // the last of them has its value in the next words
			n := codexValues(given[len(given)-1], args[i+1:], line)
			if n < 0 {
				return line, codexLifted(given[len(given)-1].flag, "it may take the subcommand behind it for a value; write it behind that")
			}
			given[len(given)-1].values = args[i+1 : i+1+n]
			i += n
		}
		line.said = append(line.said, given...)
	}
	return line, nil
}

// codexSubs are exec's subcommands.
var codexSubs = []string{"resume", "fork", "review", "help"}

// enter takes the first operand of a level as a subcommand, where it is one.
func (l *codexLine) enter(word string, i int) bool {
	switch {
	case l.command == "" && (word == "exec" || word == "e"):
		l.command = "exec"
	case l.command == "":
		l.command = word // another subcommand, or a prompt: not exec, either way
		return false
	case l.command == "exec" && l.sub == "" && slices.Contains(codexSubs, word):
		l.sub = word
	default:
		return false
	}
	l.at = i + 1
	return true
}

// codexWord reads one word that begins with a dash: its options, the last of
// which may want its value from the next words.
func codexWord(word string) (given []spoken, more bool, err error) {
	if strings.HasPrefix(word, "--") {
		name, value, attached := strings.Cut(word, "=")
		option, ok := codexOptions()[name]
		if !ok {
			return nil, false, codexLifted(name, "what this option does is not known")
		}
		if attached {
			return []spoken{{name, []string{value}}}, false, nil
		}
		return []spoken{{flag: name}}, option.takes != takesNothing, nil
	}
	for rest := word[1:]; rest != ""; {
		name := "-" + rest[:1]
		rest = rest[1:]
		option, ok := codexOptions()[name]
		switch {
		case !ok:
			return nil, false, codexLifted(name, "what this option does is not known")
		case option.takes == takesNothing:
			given = append(given, spoken{flag: name})
		case rest != "":
			return append(given, spoken{name, []string{strings.TrimPrefix(rest, "=")}}), false, nil
		default:
			return append(given, spoken{flag: name}), true, nil
		}
	}
	return given, false, nil
}

// codexValues counts the words that belong to an option; -1 where a subcommand
// might be one of them.
func codexValues(given spoken, args []string, line codexLine) int {
	most := 1
	if codexOptions()[given.flag].takes == takesMany && line.sub == "" {
		most = len(args)
	}
	n := 0
	for n < min(most, len(args)) && (len(args[n]) < 2 || args[n][0] != '-') {
		if n++; most > 1 && (args[n-1] == "exec" || args[n-1] == "e" || slices.Contains(codexSubs, args[n-1])) {
			return -1
		}
	}
	return n
}

// codexOptions are the options of codex, codex exec and its subcommands, the
// hidden ones included, as of 0.171.0. One that is not here is refused with light.
var codexOptions = sync.OnceValue(func() map[string]flag {
	all := map[string]flag{}
	put := func(takes takes, lifts, names string) {
		for _, name := range strings.Fields(names) {
			all[name] = flag{takes, lifts}
		}
	}
	put(takesNothing, "", `-h --help -V --version --json --skip-git-repo-check --ephemeral --ignore-user-config --ignore-rules
		--strict-config --oss --search --no-alt-screen --no-daemon --last --all --uncommitted`)
	put(takesOne, "", `-c --config -m --model -s --sandbox -a --ask-for-approval -C --cd --local-provider --color
		--output-schema -o --output-last-message --thread-source --cyber-access-program --base --commit --title`)
	put(takesMany, "", "-i --image")

	put(takesNothing, "it takes the sandbox away", "--dangerously-bypass-approvals-and-sandbox --yolo")
	put(takesNothing, "what is approved runs outside the sandbox", "--approve-for-me --not-so-yolo --full-auto")
	put(takesNothing, "hooks and MCP servers run outside the sandbox", "--dangerously-bypass-hook-trust --trust")
	put(takesOne, "it opens a further directory", "--add-dir")
	put(takesNothing, "the agent would work in another directory", "--worktree")
	put(takesOne, "a profile may lift anything, and what is in it is not looked at", "-p --profile")
	put(takesOne, "a feature may change how commands are confined", "--enable --disable")
	put(takesOne, "the agent would work somewhere else", "--remote --remote-auth-token-env")
	return all
})

// codexSettings are the first words of the settings that -c may give a light
// codex: what they say changes neither sandbox, approvals nor writable
// directories, and starts no program beside it.
const codexSettings = `model model_provider model_providers model_reasoning_effort model_reasoning_summary
	model_verbosity model_context_window model_auto_compact_token_limit model_supports_reasoning_summaries
	plan_mode_reasoning_effort oss_provider personality service_tier instructions developer_instructions
	model_instructions_file compact_prompt hide_agent_reasoning show_raw_agent_reasoning tool_output_token_limit
	project_doc_max_bytes project_doc_fallback_filenames history analytics feedback check_for_update_on_startup
	web_search file_opener shell_environment_policy suppress_unstable_features_warning`
