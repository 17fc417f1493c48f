package engine

import (
	"fmt"

	"github.com/handsel/handsel/internal/stream"
)

// Ask is what an agent is asked, in no engine's own words (E2).
type Ask struct {
	Prompt []byte   // what it is to do; never empty
	System string   // standing instructions, of a profile
	Model  string   // in the engine's own words; empty: its default
	Resume string   // the conversation to go on with; empty: a new one
	Dir    string   // absolute: where it works
	Binary string   // the executable; empty: the engine's usual one
	Args   []string // the user's further arguments to the engine
}

// Command is how an engine is started without a terminal.
type Command struct {
	Argv  []string
	Stdin []byte // what it reads before end of file; nil: the null device
}

// dialect is what is known of an engine beyond its names: how to put a question
// to it and how to read its answer (E1).
type dialect struct {
	// build makes the command line of one question (E2).
	build func(Ask) (Command, error)
	// light confines a command line: args are the words after the engine's own,
	// dir the directory it works in. What cannot be true together with light is
	// a *Lifted (E5). nil: the engine has nothing to confine itself with.
	light func(args []string, dir string) (Confinement, error)
	// decoder reads the stream of one run (E10); nil: it has none.
	decoder func() stream.Decoder
	// streams tells whether args make the engine print the stream that decoder
	// reads, as those of build do.
	streams func(args []string) bool
}

// dialects has one entry for each built-in engine.
var dialects = map[string]dialect{
	"claude": {build: claudeBuild, light: claudeLight, decoder: newClaudeDecoder, streams: claudeStreams},
	"codex":  {build: codexBuild, light: codexLight, decoder: newCodexDecoder, streams: codexStreams},
	"gemini": {build: geminiBuild, light: geminiLight, decoder: newGeminiDecoder, streams: geminiStreams},
	"pi":     {build: piBuild, decoder: newPiDecoder, streams: piStreams},
}

// Confinement is how a command line is to be started so that it is light (E5).
type Confinement struct {
	// Args are the words after the engine's own, with those that confine it.
	Args []string
	// Env are the variables, as NAME=value, that the agent gets instead of those
	// of the same name.
	Env []string
	// Scratch tells that the agent reaches no temporary directory of the system:
	// whoever starts it makes one inside its working directory, sets TMPDIR to
	// it, and removes it after the end.
	Scratch bool
}

// Lifted reports a setting that would lift the confinement of a light agent.
type Lifted struct {
	Engine  string
	Setting string // as it stands on the command line
	Why     string
}

func (e *Lifted) Error() string {
	return fmt.Sprintf("workload light does not go with %s: %s", e.Setting, e.Why)
}

// TooLong reports a text that the system cannot pass as one argument (C108).
type TooLong struct {
	What  string // such as "the prompt"
	Size  int    // in bytes
	Limit int
}

func (e *TooLong) Error() string {
	return fmt.Sprintf("%s has %d bytes and this engine takes it only as an argument, which may have %d", e.What, e.Size, e.Limit)
}

// maxArg is the longest single argument of a command, in bytes: MAX_ARG_STRLEN
// of execve(2), less its NUL.
const maxArg = 128<<10 - 1
