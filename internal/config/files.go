package config

import (
	"errors"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// maxFile bounds a configuration file in bytes.
const maxFile = 1 << 20

// secondLook is how long a file that went missing or empty may take to come back
// before it is believed (S4). Editors write in between.
const secondLook = 100 * time.Millisecond

// pause waits; tests look at how often.
var pause = time.Sleep

// file is one configuration file at one moment.
type file struct {
	source Source
	parsed *parsed // nil when it is missing or could not be read
	data   []byte
	err    error
}

// readFiles reads machine, user and extra file, in the order of growing weight.
// Those that are not there, or are there without content, are looked at twice
// where something is or was counted.
func readFiles(env Env, strict bool) (files []*file, problems []error) {
	for _, source := range []Source{
		{Path: env.MachineFile, Role: "machine"},
		{Path: env.UserFile, Role: "user"},
		{Path: env.ExtraFile, Role: "extra"},
	} {
		if source.Path != "" {
			files = append(files, &file{source: source})
		}
	}
	for _, f := range files {
		f.read()
	}
	note := openNote(env)
	if doubted := note.doubted(files); len(doubted) > 0 {
		pause(secondLook)
		for _, f := range doubted {
			f.read()
		}
	}
	for _, f := range files {
		f.settle()
		if f.err != nil {
			problems = append(problems, f.err)
		}
	}
	if note.err != nil {
		problems = append(problems, note.err)
	}
	if strict && len(problems) == 0 {
		note.update(files)
	}
	return files, problems
}

func (f *file) read() {
	read := home.ReadFile
	if f.source.Role == "machine" {
		read = home.ReadRootFile
	}
	f.data, f.err = read(f.source.Path, maxFile)
	if f.err == nil {
		f.err = home.TrustParent(f.source.Path)
	}
}

func (f *file) blank() bool { return f.err == nil && strings.Trim(string(f.data), blanks) == "" }

// settle decides what the file is, after the last look at it.
func (f *file) settle() {
	switch {
	case isMissing(f.err) && f.source.Role == "extra":
		// Somebody named it; without it its caps would be lost unseen.
		f.source.State = "missing"
		f.err = badVariable(varConfig, f.source.Path, "there is no such file")
	case isMissing(f.err):
		f.source.State, f.err = "missing", nil
	case f.err != nil:
		f.source.State = "refused"
		if unusable, ok := errors.AsType[*home.Unusable](f.err); ok {
			f.err = &Bad{File: f.source.Path, Why: "it cannot be read: " + escape(unusable.Err.Error())}
		}
	case f.blank():
		f.source.State = "empty"
	default:
		f.source.State = "read"
		f.parsed = parseCached(f.source.Path, f.data)
	}
}
