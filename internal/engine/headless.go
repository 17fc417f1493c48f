package engine

import (
	"fmt"
	"path/filepath"
	"strings"

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
	// Files is an absolute directory, readable by nobody else, for texts that the
	// engine takes from files; empty: there is none, and they become arguments,
	// which everybody on the machine can read.
	Files string
}

// Command is how an engine is started without a terminal.
type Command struct {
	Argv  []string
	Stdin []byte // what it reads before end of file; nil: the null device
	// Files are what has to be there before it starts, for the user alone: what
	// each holds, by its absolute path.
	Files map[string][]byte
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

// agy is gemini's other binary: another program that answers to the same account.
var agy = dialect{build: agyBuild, light: agyLight, decoder: newGeminiDecoder, streams: agyStreams}

// Confinement is how a command line is to be started so that it is light (E5).
type Confinement struct {
	// Args are the words after the engine's own, with those that confine it.
	Args []string
	// Env are the variables, as NAME=value, that the agent gets instead of those
	// of the same name.
	Env []string
	// Files are what has to be there before it starts, for the user alone: what
	// each holds, by its absolute path. A dialect gives them names only and lets the
	// same names stand in Args; place makes paths of both.
	Files map[string][]byte
	// Scratch tells that the agent reaches no temporary directory of the system:
	// whoever starts it makes one inside its working directory, sets TMPDIR to
	// it, and removes it after the end.
	Scratch bool

	cutsAt string // bytes at which the engine cuts what is to be the path of a file
}

// fileWord stands in Args for a file of the Confinement. No argument can hold a
// NUL byte, so it is nobody's own word.
func fileWord(name string) string { return "\x00" + name }

// place gives the files of a confinement their place in a directory.
func (c *Confinement) place(dir string) error {
	files := map[string][]byte{}
	for name, data := range c.Files {
		if dir == "" {
			return fmt.Errorf("no directory for %s", name)
		}
		path := filepath.Join(dir, name)
		if strings.ContainsAny(path, c.cutsAt) {
			return fmt.Errorf("the engine would cut the path of its rules, %q, at each of %q", path, c.cutsAt)
		}
		files[path] = data
		for i, word := range c.Args {
			if word == fileWord(name) {
				c.Args[i] = path
			}
		}
	}
	c.Files = files
	return nil
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

// TooLong reports a text that the engine would not get whole (C108).
type TooLong struct {
	What  string // such as "the prompt"
	Size  int    // in units
	Limit int
	Unit  string // "bytes" if empty
	Way   string // how the engine takes it, such as "on its stdin"; empty: as an argument
}

func (e *TooLong) Error() string {
	way := e.Way
	if way == "" {
		way = "only as an argument"
	}
	unit := e.Unit
	if unit == "" {
		unit = "bytes"
	}
	return fmt.Sprintf("%s has %d %s; this engine takes it %s, and no more than %d", e.What, e.Size, unit, way, e.Limit)
}

// maxArg is the longest single argument of a command, in bytes: MAX_ARG_STRLEN
// of execve(2), less its NUL.
const maxArg = 128<<10 - 1
