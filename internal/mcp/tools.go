package mcp

import (
	"context"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel"
)

const (
	// patience is how long wait and gate wait unless they are told otherwise: less
	// than the minute after which clients give a call up.
	patience = 50
	// mostPatience is how long they wait at most, in seconds.
	mostPatience = 600
	// mostSpan is how long a run may be allowed to last, in seconds.
	mostSpan = 30 * 24 * 3600
	// mostNames is how many names one call may have.
	mostNames = 1000
	// mostListed is how many runs list tells of at most, and fewListed unless it is
	// told otherwise.
	mostListed = 200
	fewListed  = 20
	// longestName is how long a name of something may be, in bytes.
	longestName = 400
	// longestWord is how long an argument of a command may be: the kernel takes no
	// longer one.
	longestWord = 128<<10 - 1
	// mostLabels and longestLabel bound labels, as the dispatcher does.
	mostLabels   = 64
	longestLabel = 1024
	// longestPath is how long a path may be.
	longestPath = 4096
)

// tool is one of the tools: what it is called, what it takes, and what it does.
type tool struct {
	name   string
	about  string
	looks  bool // it changes nothing
	ends   bool // it may end what runs
	args   []argument
	handle func(context.Context, *call1) (*sdk.CallToolResult, error)
}

func fixed(words ...string) func() []string { return func() []string { return words } }

// tools is the table of all tools.
func (s *server) tools() []tool {
	return []tool{s.submitTool(), s.waitTool(), s.statusTool(), s.whyTool(), s.resultTool(), s.cancelTool(), s.listTool(), s.quotaTool(), s.gateTool()}
}

// whatX says what names a run.
const whatX = "the id of a run as submit gave it (or its end, at least 6 characters), or lane:NAME, which means the lane's present run"

var (
	argCwd    = argument{name: "cwd", kind: aText, most: longestPath, about: "directory to run in; absolute, or relative to the server's; without it the server's own"}
	argKey    = argument{name: "key", kind: aText, most: handsel.MaxKey, about: "idempotency key of your own: the same key with the same arguments gives the same run, and never starts a second"}
	argLabels = argument{name: "labels", kind: aMap, most: mostLabels, each: longestLabel, about: "words of your own to find the run by"}
	argPools  = argument{name: "pools", kind: aList, most: 64, each: longestName, filled: true, about: "named pools to be counted against, besides those of an agent"}
	argLimit  = argument{name: "timeout_s", kind: aNumber, least: 1, most: mostSpan, about: "end the run after so many seconds in all, its wait for admission included"}
	argOrder  = argument{name: "priority", kind: aNumber, least: -1000, most: 1000, about: "place in line: higher comes first, one step is worth a minute of waiting; 0 without it"}
	argWait   = argument{name: "wait_s", kind: aNumber, least: 0, most: mostPatience, about: "answer after so many seconds at the latest, with still_running; 50 without it"}
)

func (s *server) submitTool() tool {
	return tool{
		name: "submit",
		about: "Hand in work for an agent and return at once with the id of its run. Give either prompt, a question that the engine is asked without a terminal, or command, an agent's command line. " +
			"The run waits in line until the machine has room for it and goes on whatever becomes of this server; wait, why and result take its id. A lane that somebody has refuses (conflict).",
		args: []argument{
			{name: "prompt", kind: aText, most: handsel.MaxPrompt, about: "what the agent is to do; needs engine or profile"},
			{name: "command", kind: aList, most: 4096, each: longestWord, filled: true, about: "the agent's command line instead of a prompt, one element for each argument; no shell reads it"},
			{name: "engine", kind: someOf, words: s.home.Engines, about: "which agent is asked; with command, which one it is"},
			{name: "profile", kind: aText, most: 200, about: "name of a profile that says engine, model and instructions"},
			{name: "account", kind: aText, most: 200, about: "account of the engine, as the configuration names it"},
			{name: "model", kind: aText, most: 200, about: "model in the engine's own words; with prompt only"},
			{name: "resume", kind: aText, most: 200, about: "the engine's id of a conversation to go on with; with prompt only"},
			{name: "workload", kind: someOf, words: fixed(handsel.Heavy, handsel.Light), about: "heavy, which is what it is without it, or light: confined, with more room"},
			{name: "confine", kind: someOf, words: fixed(handsel.ConfineOS, handsel.ConfineNone), about: "whether the kernel confines it (os) or nothing does (none); as configured without it"},
			{name: "lane", kind: aText, about: "name of the seat of work that the run owns while it goes on, such as a branch or a ticket: at most one run at a time has it"},
			argPools, argCwd, argOrder, argLimit,
			{name: "idle_s", kind: aNumber, least: 1, most: mostSpan, about: "end the run after so many seconds without output"},
			{name: "author", kind: aText, most: 200, about: "who asked for it"},
			argLabels, argKey,
			{name: "review", kind: aFlag, about: "once it has succeeded it waits for a person's verdict"},
		},
		handle: s.submit,
	}
}

func (s *server) waitTool() tool {
	return tool{
		name: "wait", looks: true,
		about: "Wait until runs have ended, whoever submitted them, and say how. Answers after wait_s at the latest; what goes on then is named as still_running, and is waited for by calling wait again. Waiting, and giving it up, changes nothing.",
		args: []argument{
			{name: "runs", kind: oneOrMore, most: mostNames, each: longestName, required: true, about: whatX + "; or label:K=V, engine:NAME or pool:NAME, all of it that has not ended"},
			argWait,
			{name: "any", kind: aFlag, about: "return at the first end"},
		},
		handle: s.wait,
	}
}

func (s *server) statusTool() tool {
	return tool{
		name: "status", looks: true,
		about:  "What the machine does now: pools with their caps and holders, lanes, who waits in line, orders that hold starts back.",
		handle: s.status,
	}
}

func (s *server) whyTool() tool {
	return tool{
		name: "why", looks: true,
		about: "Why something waits or was refused: what each permission answers (resource, quota, ownership, acceptance, release, and holds, time, dependencies), who holds it, what would end it.",
		args: []argument{
			{name: "about", kind: aText, most: longestName, required: true, about: whatX + "; or engine:NAME, pool:NAME"},
		},
		handle: s.why,
	}
}

func (s *server) resultTool() tool {
	return tool{
		name: "result", looks: true,
		about: "What came of a run: its outcome, and the agent's answer (of a command the end of its output). A long text is cut, and the answer says by how much.",
		args: []argument{
			{name: "run", kind: aText, most: longestName, required: true, about: whatX},
			{name: "max_bytes", kind: aNumber, least: 1, most: mostAnswer, about: "of the answer at most; 32768 without it"},
		},
		handle: s.result,
	}
}

func (s *server) cancelTool() tool {
	return tool{
		name: "cancel", ends: true,
		about: "End a run with all of its processes, or take it out of the line. What has ended already is no error. Inside an agent only what that agent started can be cancelled.",
		args: []argument{
			{name: "run", kind: aText, most: longestName, required: true, about: whatX},
		},
		handle: s.cancel,
	}
}

func (s *server) listTool() tool {
	return tool{
		name: "list", looks: true,
		about: "Runs, the newest first, with how many there are of each kind. What waits in the dispatcher's queue stands before them. Of a lane, ask why or wait by lane:NAME.",
		args: []argument{
			{name: "state", kind: someOf, words: handsel.RunStates, about: "only those of this state or outcome"},
			{name: "engine", kind: someOf, words: s.home.Engines, about: "only those of this engine"},
			argLabels,
			{name: "since_s", kind: aNumber, least: 1, most: 10 * 366 * 24 * 3600, about: "only those that began within so many seconds"},
			{name: "limit", kind: aNumber, least: 1, most: mostListed, about: "how many are told; 20 without it"},
		},
		handle: s.list,
	}
}

func (s *server) quotaTool() tool {
	return tool{
		name: "quota", looks: true,
		about: "What is known of the limits and logins of engine accounts: whether one may start now, and until when not. It asks no service.",
		args: []argument{
			{name: "account", kind: aText, most: 200, about: "ENGINE, or ENGINE/NAME; all without it"},
		},
		handle: s.quota,
	}
}

func (s *server) gateTool() tool {
	pools := argPools
	pools.required, pools.about = true, "named pools that the command is counted against, and no other"
	return tool{
		name: "gate", ends: true,
		about: "Run a heavy command (a build, a test suite), not an agent, when its pools have room; allowed inside an agent. Answers when it has ended, with the end of its output, " +
			"or after wait_s with still_running and the id of its run: it goes on, and wait and result take that id. The same command again without a key would run twice.",
		args: []argument{
			pools,
			{name: "command", kind: aList, most: 4096, each: longestWord, filled: true, required: true, about: "the command line, one element for each argument; no shell reads it"},
			argCwd, argOrder, argLimit, argWait, argLabels, argKey,
		},
		handle: s.gate,
	}
}

// annotations tell a client what a tool may do.
func (t *tool) annotations() *sdk.ToolAnnotations {
	closed := false
	return &sdk.ToolAnnotations{ReadOnlyHint: t.looks, DestructiveHint: &t.ends, OpenWorldHint: &closed}
}

// seconds is a number of seconds as a duration.
func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
