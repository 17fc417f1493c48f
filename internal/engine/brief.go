package engine

import (
	"slices"
	"strings"
)

// Brief tells whether args, the words after an engine's executable called name,
// make it do no agent's work: it prints its version or help, logs in, or looks
// after its own installation and settings. The error on the safe side is to say
// no: what is not known is an agent.
//
// The words are those of the engines' own --help, at the versions of
// testdata/engines. A server that works for others (claude mcp serve, codex
// app-server) is not brief.
func (k Known) Brief(name string, args []string) bool {
	if len(args) == 0 {
		return false
	}
	if len(args) == 1 && (args[0] == "--version" || args[0] == "--help") {
		return true
	}
	own, ok := k.Recognise([]string{name})
	if !ok {
		return false
	}
	switch own {
	case "claude":
		return claudeBrief(args)
	case "codex":
		return codexBrief(args)
	case "gemini":
		return !isAgy(name) && geminiBrief(args)
	case "pi":
		return piBrief(args)
	}
	return false
}

// claudeBriefs are claude's commands that ask no model anything. What earlier
// versions had besides (claude config) is a prompt to this one.
const claudeBriefs = "auth auto-mode doctor install mcp plugin plugins project setup-token update upgrade"

func claudeBrief(args []string) bool {
	if among(claudeBriefs, args[0]) {
		return args[0] != "mcp" || !slices.Contains(args, "serve")
	}
	said, _, err := claudeRead(args)
	return err == nil && slices.ContainsFunc(said, func(one spoken) bool { return among("-v --version -h --help", one.flag) })
}

// codexBriefs are codex's commands that start no agent here.
const codexBriefs = `login logout mcp plugin completion update doctor sandbox apply a queue archive unarchive delete
	migrate-rollouts migrate-nfs-db features help`

// codexBrief: clap ends at --help and --version wherever they stand before a --,
// as no option takes a word with a dash for its value.
func codexBrief(args []string) bool {
	return among(codexBriefs, args[0]) || saysAny(args, "-h --help -V --version")
}

const geminiBriefs = "mcp extensions extension skills skill hooks hook"

func geminiBrief(args []string) bool {
	return among(geminiBriefs, args[0]) || saysAny(args, "-v --version -h --help -l --list-extensions --list-sessions --delete-session")
}

const piBriefs = "install remove uninstall update list config"

func piBrief(args []string) bool {
	if among(piBriefs, args[0]) {
		return true
	}
	for i := 0; i < len(args); i++ {
		switch {
		case among("-h --help -v --version --list-models --export", args[i]):
			return true
		case among(piValued, args[i]):
			i++
		}
	}
	return false
}

// Attended tells whether argv is a session that a person sits in, where its stdin
// and stdout are a terminal: the engine was not told to answer and end, or to
// serve a program. An engine of the user's own is never said to be.
func (k Known) Attended(name string, argv []string) bool {
	found, at, ok := k.Locate(argv)
	if !ok || found != canonical(name) {
		return false
	}
	args := argv[at:]
	switch found {
	case "claude":
		return claudeAttended(args)
	case "codex":
		line, _ := codexRead(args) // as far as it could be read
		return !among("exec review app-server exec-server remote-control", line.command)
	case "gemini":
		return !slices.ContainsFunc(before(args), geminiHeadless)
	case "pi":
		return piAttended(args)
	}
	return false
}

func claudeAttended(args []string) bool {
	said, _, err := claudeRead(args)
	if err != nil { // an option of a later version, perhaps
		return !saysAny(args, "-p --print --bg --background")
	}
	return !slices.ContainsFunc(said, func(one spoken) bool { return among("-p --print --bg --background", one.flag) })
}

// geminiHeadless knows gemini's flags as yargs reads them, and agy's.
func geminiHeadless(word string) bool {
	if len(word) < 2 || word[0] != '-' {
		return false
	}
	name, _, _ := strings.Cut(word, "=")
	return among("--prompt --print --acp --experimental-acp -prompt -print", name) || word[1] != '-' && strings.Contains(name, "p") && len(name) < len("-prompt")
}

func piAttended(args []string) bool {
	for i := 0; i < len(args); i++ {
		switch {
		case among("-p --print", args[i]):
			return false
		case args[i] == "--mode":
			if i++; i < len(args) && (args[i] == "json" || args[i] == "rpc") {
				return false
			}
		case among(piValued, args[i]):
			i++
		}
	}
	return true
}

// among tells whether word is one of those in list, with blanks between.
func among(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// saysAny tells whether one of the words in list stands before a "--".
func saysAny(args []string, list string) bool {
	return slices.ContainsFunc(before(args), func(word string) bool { return among(list, word) })
}

// before is what stands before a "--".
func before(args []string) []string {
	if at := slices.Index(args, "--"); at >= 0 {
		return args[:at]
	}
	return args
}
