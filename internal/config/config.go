// Package config reads what the machine's owner and the user allow: caps and
// settings, from variables and files, at every admission (C6 to C8, S2 to S4, S14).
//
// It guarantees that a cap that is set anywhere is either counted or refused,
// never overlooked: a value that does not parse, an unknown key, a name that
// could mean two things and a file that others can write are errors that stop a
// start. It prints nothing and decides nothing about admission.
//
// A file is read each time and parsed once: the parsed form is kept for the life
// of the process, keyed by path and the exact bytes. The strict mode of the TOML
// library is not used, because it takes keys in any case and stops at the first
// wrong type; looking verbs need what can be read besides the mistakes.
package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// MachineFile is the file of the machine's owner. It must be root's and not
// writable by others (C6).
const MachineFile = "/etc/handsel/config.toml"

// The variables read here (C9).
const (
	varConfig = "HANDSEL_CONFIG"
	varWait   = "HANDSEL_ADMIT_WAIT"
	varSeats  = "HANDSEL_SEAT_PROFILES"
)

// The defaults of what is not a cap. A pool has no cap by default.
const (
	DefaultWait      = 600 * time.Second
	DefaultPoll      = 2 * time.Second
	DefaultPatience  = 250 * time.Millisecond
	DefaultOutputCap = 64 << 20
	DefaultKeepDays  = 30
	DefaultKeepBytes = 2 << 30

	DefaultCheckTimeout = time.Hour
)

// Env is the world a configuration is read from. Empty fields mean the usual
// places: the process's environment, the user's file, the machine's file.
type Env struct {
	// Getenv answers for one variable; nil is os.Getenv.
	Getenv func(string) string
	// Environ lists all variables as NAME=value, so that a cap of a pool nobody
	// knows yet is found. Nil is os.Environ, with the values Getenv gives.
	Environ func() []string

	UserFile    string // empty: .config/handsel/config.toml below the passwd home
	MachineFile string // empty: MachineFile
	ExtraFile   string // empty: $HANDSEL_CONFIG

	// LeasesExist tells that something is, or was, counted on this machine, so
	// that a missing or empty file is looked at twice (S4).
	LeasesExist bool
	// Home is where it is noted which files were there.
	Home home.Dir

	onlyGetenv bool // variables are known by Getenv alone
}

// Cap is one cap of one pool, as one place sets it.
type Cap struct {
	Pool string
	N    int    // at least 1
	From string // the variable's name or the file's path
}

// Source is one configuration file and what became of it.
type Source struct {
	Path  string
	Role  string // "machine", "user", "extra"
	State string // "read", "empty", "missing", "refused"
}

// EngineConf is what a file says of one engine.
type EngineConf struct {
	Names   []string // base names of the executables that are this engine
	Confine string   // "os" or "none"; empty is unset

	// ConfinePorts are the TCP ports that a confined agent may connect to; nil is
	// any, and an empty list none.
	ConfinePorts []uint16

	EndOn       []string      // kinds of trouble that end a run early
	MinGap      time.Duration // least time between two starts
	ResultGrace time.Duration // how long a process may stay after its result

	Binary string // the executable of a command line that is built: a name, or absolute

	// Of an engine of the user's own only: how it is asked and read.
	Args      []string // with placeholders
	Stdin     string   // "prompt" or "none"; empty is unset
	Stream    string   // the engine whose stream it prints, or "none"; empty is unset
	Confines  string   // how it confines itself, in the user's words; empty: not at all
	LightArgs []string // what makes it do so
}

// ReviewConf is what must be reviewed, and how (P7, P8).
type ReviewConf struct {
	Lanes   []string      // patterns of lanes whose runs are reviewed
	Checks  [][]string    // run in the working directory before a verdict
	Lenient bool          // checks that failed do not keep from accepting
	Pools   []string      // what the checks count against, as a gate does
	Timeout time.Duration // of each check
	Verify  []string      // vouches for who gave a verdict; empty: nothing does
}

// Settings is the configuration in force at one moment. It is a plain value;
// reading it again gives another one.
type Settings struct {
	LeasesDir string // empty: below the home

	// Caps has every cap that is set anywhere, by pool. Cap gives the minimum.
	Caps map[string][]Cap

	Mode     string        // "waiter" or "dispatcher"
	Wait     time.Duration // how long an admission waits; 0 refuses at once
	WaitSet  bool          // whether Wait comes from a variable or file
	Poll     time.Duration // the fallback interval of a waiter, more than 0
	Patience time.Duration // how long an admissible ticket may stay idle ahead of others

	Record    bool
	OutputCap int64 // bytes kept of each output of a recorded run, more than 0
	KeepDays  int   // 0: no bound
	KeepBytes int64 // 0: no bound

	EnvAllow    []string          // prefixes of variables that may be stored
	Seats       []string          // profiles whose agents may start others
	Shim        map[string]string // engine, or "*" for all, to "refuse" or "pass"
	Interactive string            // "heavy" or "light-count"

	EngineOf map[string]EngineConf
	Review   ReviewConf

	// GateRules has the commands that a tool hook sends through a gate, by pool:
	// the first words of each, apart by blanks (W8).
	GateRules map[string][]string

	Pressure   PressureConf
	Dispatch   DispatchConf
	Notify     []Notify                          // of all files
	QuotaOf    map[string]QuotaConf              // by engine
	AccountsOf map[string]map[string]AccountConf // by engine and name

	// Later holds the tables that other parts of the program read, as decoded.
	Later map[string]any

	Files    []Source
	Warnings []string

	from    map[string]string // where each key that is not a cap was set
	varCaps map[string][]Cap  // caps set by variables, by variable name
}

// Load reads the configuration for a verb that starts something: the first
// mistake anywhere is an error. *Bad is a value that does not parse (78),
// *home.Untrusted a file that others can write (77).
func Load(env Env) (*Settings, error) {
	s, problems := load(env, true)
	if len(problems) > 0 {
		return nil, problems[0]
	}
	return s, nil
}

// LoadLenient reads what can be read, for verbs that only look, and returns the
// mistakes beside it. It writes nothing. The settings are never nil.
func LoadLenient(env Env) (*Settings, []error) { return load(env, false) }

// Cap is the cap in force for a pool: the smallest one set anywhere, and where
// it is set. 0 is none (S2).
func (s *Settings) Cap(pool string) (n int, from string) {
	for _, caps := range [][]Cap{s.Caps[pool], s.varCaps[VarOf(pool)]} {
		for _, c := range caps {
			if c.N > 0 && (n == 0 || c.N < n) {
				n, from = c.N, c.From
			}
		}
	}
	return n, from
}

// AnyCap tells whether any pool has a cap.
func (s *Settings) AnyCap() bool { return len(s.Caps) > 0 || len(s.varCaps) > 0 }

// From tells which variable or file set a key such as admission.wait, empty for
// the default.
func (s *Settings) From(key string) string { return s.from[key] }

func load(env Env, strict bool) (*Settings, []error) {
	env, problems := env.complete()
	s := defaults()
	files, trouble := readFiles(env, strict)
	problems = append(problems, trouble...)
	names := nameTable{}
	for _, f := range files {
		s.Files = append(s.Files, f.source)
		if f.parsed == nil {
			continue
		}
		problems = append(problems, f.parsed.problems()...)
		problems = append(problems, names.add(f.parsed)...)
		f.parsed.apply(s)
	}
	problems = append(problems, s.ownProblems()...)
	problems = append(problems, s.quotaProblems()...)
	problems = append(problems, s.readVariables(env)...)
	s.joinVariableCaps(names)
	return s, problems
}

func defaults() *Settings {
	return &Settings{
		Caps: map[string][]Cap{}, Mode: "waiter", Wait: DefaultWait, Poll: DefaultPoll, Patience: DefaultPatience,
		OutputCap: DefaultOutputCap, KeepDays: DefaultKeepDays, KeepBytes: DefaultKeepBytes,
		Shim: map[string]string{}, Interactive: "heavy", EngineOf: map[string]EngineConf{}, Pressure: PressureConf{MaxHold: DefaultMaxHold, Fail: "open", Margin: DefaultMargin},
		QuotaOf: map[string]QuotaConf{}, AccountsOf: map[string]map[string]AccountConf{}, Later: map[string]any{}, GateRules: map[string][]string{},
		Review: ReviewConf{Pools: []string{"review"}, Timeout: DefaultCheckTimeout},
		from:   map[string]string{}, varCaps: map[string][]Cap{},
	}
}

// complete fills in the usual places.
func (env Env) complete() (Env, []error) {
	env.onlyGetenv = env.Getenv != nil && env.Environ == nil
	switch {
	case env.Getenv == nil && env.Environ == nil:
		env.Getenv = os.Getenv
	case env.Getenv == nil:
		env.Getenv = lookup(env.Environ())
	}
	if env.Environ == nil {
		env.Environ = os.Environ
	}
	if env.MachineFile == "" {
		env.MachineFile = MachineFile
	}
	var problems []error
	if env.UserFile == "" {
		path, err := UserFile()
		// A user who certainly has no home has no file. When it is not certain,
		// the file's caps may be lost, so that stops a start.
		if err != nil && !errors.Is(err, home.ErrNoEntry) {
			problems = append(problems, err)
		}
		env.UserFile = path
	}
	if env.ExtraFile == "" {
		env.ExtraFile = env.Getenv(varConfig)
	}
	if env.ExtraFile != "" && !filepath.IsAbs(env.ExtraFile) {
		problems = append(problems, badVariable(varConfig, env.ExtraFile,
			"it must be an absolute path, so that it does not depend on the working directory"))
		env.ExtraFile = ""
	}
	return env, problems
}

func lookup(environ []string) func(string) string {
	return func(name string) string {
		for _, pair := range environ {
			if key, value, ok := strings.Cut(pair, "="); ok && key == name {
				return value
			}
		}
		return ""
	}
}

// UserFile is the path of the user's file: below the home of the passwd entry,
// never $HOME (C6).
func UserFile() (string, error) {
	dir, err := home.UserHome()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, ".config", "handsel", "config.toml"), nil
}

// readVariables takes the settings that variables override.
func (s *Settings) readVariables(env Env) (problems []error) {
	if text := env.Getenv(varWait); strings.Trim(text, blanks) != "" {
		wait, why := parseSpan(text)
		if why != "" {
			problems = append(problems, badVariable(varWait, text, why))
		} else {
			s.Wait, s.WaitSet = wait, true
			s.from["admission.wait"] = varWait
		}
	}
	if seats := splitList(env.Getenv(varSeats)); len(seats) > 0 {
		s.Seats = seats
		s.from["nesting.seats"] = varSeats
	}
	return append(problems, s.readCapVariables(env)...)
}

// readCapVariables takes every variable that begins like a cap. One that names
// no pool or holds no number stops every start, whoever asks for that pool:
// somebody meant a cap by it (S3).
func (s *Settings) readCapVariables(env Env) (problems []error) {
	for _, v := range capVariables(env) {
		n, why := parseCap(v.text)
		if strings.Trim(v.text, blanks) != "" && why == "" {
			why = badCapVariable(v.name)
		}
		if why != "" {
			problems = append(problems, badVariable(v.name, v.text, why))
		} else if n > 0 {
			key := v.name
			if key == VarPrefix+"_ALL" {
				key = VarPrefix
			}
			s.varCaps[key] = append(s.varCaps[key], Cap{N: n, From: v.name})
		}
	}
	return problems
}

type variable struct{ name, text string }

// capVariables are those of the environment that begin like a cap, by name. One
// that is there twice counts twice. A Getenv without an Environ is asked for the
// built-in pools besides.
func capVariables(env Env) (found []variable) {
	for _, pair := range env.Environ() {
		if !strings.HasPrefix(pair, VarPrefix) {
			continue
		}
		name, text, _ := strings.Cut(pair, "=")
		if env.onlyGetenv {
			text = env.Getenv(name)
		}
		found = append(found, variable{name, text})
	}
	if env.onlyGetenv {
		for _, name := range builtinVars() {
			if !slices.ContainsFunc(found, func(v variable) bool { return v.name == name }) {
				found = append(found, variable{name, env.Getenv(name)})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b variable) int { return strings.Compare(a.name, b.name) })
	return found
}

// builtinVars are the variables of the built-in pools.
var builtinVars = sync.OnceValue(func() (names []string) {
	for _, pool := range builtins {
		names = append(names, VarOf(pool))
	}
	return names
})

// joinVariableCaps lists the variables' caps beside those of the files, under
// the name the files use for the pool where they have one.
func (s *Settings) joinVariableCaps(names nameTable) {
	for variable, caps := range s.varCaps {
		pool := poolOf(variable)
		if known, ok := names[variable]; ok {
			pool = known.name
		}
		for i := range caps {
			caps[i].Pool = pool
			s.Caps[pool] = append(s.Caps[pool], caps[i])
		}
	}
}

func splitList(text string) (words []string) {
	for _, word := range strings.Split(text, ",") {
		if word = strings.Trim(word, blanks); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// isMissing also covers a path below something that is not a directory.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
