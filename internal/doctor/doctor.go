// Package doctor looks after an installation: it says what is wrong with it,
// and clears away what is provably left over.
//
// Examine is a list of small looks, each of which says what it found and what
// would help. It changes nothing. What is left over is found by Leftovers,
// with a reason for each piece, and removed piece by piece, each proven once
// more under the lock that protects it. Nothing here ends a process, touches
// what a living process holds, or judges anything by a name (C148): what lives
// is named, and left to `handsel cancel`.
package doctor

import (
	"fmt"
	"runtime"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/home"
)

// World is what is examined.
type World struct {
	Home     home.Dir
	Getenv   func(string) string
	Settings *config.Settings
	Problems []error // of the configuration
	Leases   string
	Waiting  string
	Now      time.Time

	// Lost lists runs whose record never was closed and of which nothing is
	// left. Strays lists agents that no slot stands for. Either may be nil.
	Lost   func() ([]Left, error)
	Strays func() []Left

	// Dispatching tells whether a dispatcher answers: it then has the lane of every
	// row it keeps. It may be nil.
	Dispatching func() bool

	// Pressure finds what of the machine is measured before a start. It may be nil.
	Pressure func() []Finding
}

// Left is something that another room found left.
type Left struct {
	ID    string
	Text  string
	Close func() error // makes it right; nil = nothing safe can be done here
}

// Level is how bad a finding is.
type Level string

// The levels. From Warn on, something is wrong.
const (
	OK   Level = "ok"
	Note Level = "note" // worth knowing; nothing to do
	Warn Level = "warn" // something should be done
	Bad  Level = "bad"  // something does not work, or is not safe
)

// Finding is what one look found.
type Finding struct {
	Level Level  `json:"level"`
	Code  string `json:"code"`
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"` // what would help, in words
	Can   bool   `json:"fixable"`       // --fix does it
	Fixed bool   `json:"fixed"`

	do func() error
}

// Wrong tells whether the finding is something wrong that is still so.
func (f Finding) Wrong() bool { return (f.Level == Warn || f.Level == Bad) && !f.Fixed }

func finding(level Level, code, format string, args ...any) Finding {
	return Finding{Level: level, Code: code, Text: fmt.Sprintf(format, args...)}
}

func (f Finding) help(format string, args ...any) Finding {
	f.Fix = fmt.Sprintf(format, args...)
	return f
}

// Examine takes every look. It changes nothing.
func (w World) Examine() []Finding {
	var all []Finding
	for _, look := range []func(World) []Finding{
		World.platform, World.home, World.otherHome, World.configuration, World.caps, World.pressure,
		limits, kernel, World.slots, World.strays, World.leftovers,
	} {
		all = append(all, look(w)...)
	}
	return all
}

// Repair does what of the findings is proven safe, and marks it. A finding that
// could not be repaired says why.
func Repair(all []Finding) {
	for i := range all {
		f := &all[i]
		if f.do == nil {
			continue
		}
		if err := f.do(); err != nil {
			f.Text += fmt.Sprintf("; not done: %v", err)
			continue
		}
		f.Fixed = true
	}
}

func (w World) pressure() []Finding {
	if w.Pressure == nil {
		return nil
	}
	return w.Pressure()
}

// platform says what this system cannot do.
func (World) platform() []Finding {
	switch runtime.GOOS {
	case "linux":
		return []Finding{finding(OK, "platform", "linux/%s, the reference platform", runtime.GOARCH)}
	case "darwin":
		return []Finding{finding(Note, "platform", "macOS: built and vetted, not tried; there is no subreaper, so what leaves its process group and session is found by HANDSEL_RUN in its environment only; the environment of platform binaries cannot be read; the terminal is not handed over")}
	case "windows":
		return []Finding{finding(Note, "platform", "Windows: an uncapped run works; a cap refuses every start, as no lock there could hold it; descendants of an agent are not followed")}
	}
	return []Finding{finding(Warn, "platform", "%s is no platform we name: nothing is promised", runtime.GOOS)}
}
