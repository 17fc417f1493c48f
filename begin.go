package handsel

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/record"
)

// beginning is how a job's command is started: what was asked for, with what its
// class and its engine need besides.
type beginning struct {
	argv    []string
	env     []string          // NAME=value, over what the agent would get
	files   map[string][]byte // what has to be there first, by its absolute path
	confine string            // how it is confined; "none"
	// scratch is the directory that takes the place of the system's temporary one,
	// inside the working directory; empty: none.
	scratch string
}

// scratchPrefix begins the name of the directory a confined agent has for what it
// would put below /tmp. The rest is the end of the run's id.
const scratchPrefix = ".handsel-tmp-"

// begins works out how the job's command is started. What its class does not go
// with is refused here, before anything is taken (E5, E6a).
func (j *job) begins() error {
	b := beginning{argv: j.argv, files: maps.Clone(j.files), confine: confinedByNothing}
	confined, err := j.isConfined()
	switch {
	case err != nil:
		return err
	case confined && j.asked != nil && j.asked.Resume != "":
		return &BadOption{"resume", j.asked.Resume, "an agent that the kernel confines has its engine's state to itself, and knows no earlier conversation"}
	case confined: // then nothing of the engine's own is needed, and nothing can lift it
		if err := j.jailed(&b); err != nil {
			return err
		}
	case j.o.Workload == Light && !j.gate:
		if err := j.light(&b); err != nil {
			return err
		}
	}
	j.begin = b
	j.listen()
	return nil
}

// light confines the command by its engine's own means.
func (j *job) light(b *beginning) error {
	argv, c, err := j.settings.known().Light(j.engine, b.argv, j.cwd(), record.Dir(j.home.dir, j.id))
	if none, ok := errors.AsType[*engine.Unconfined](err); ok {
		return &Unconfined{Argv0: filepath.Base(first(j.argv)), Engine: none.Engine}
	}
	if err != nil {
		return err
	}
	b.argv = argv
	b.env = append(b.env, c.Env...)
	for path, data := range c.Files {
		if b.files == nil {
			b.files = map[string][]byte{}
		}
		b.files[path] = data
	}
	b.confine = confinedByEngine
	if c.Scratch {
		b.scratch = filepath.Join(j.cwd(), scratchPrefix+j.id[len(j.id)-8:])
		b.env = append(b.env, "TMPDIR="+b.scratch)
	}
	return nil
}

// listen finds out whether the output can be read while the agent works: it is
// kept, and the engine prints the stream that is known of it (E10).
func (j *job) listen() {
	known := j.settings.known()
	if j.o.Record && !j.gate && known.Streams(j.engine, j.argv) {
		j.decoder = known.Decoder(j.engine)
	}
}

// furnish makes what the command needs besides itself. It is called once it is
// admitted, so that a refusal leaves nothing.
func (j *job) furnish() error {
	b := &j.begin
	if b.scratch != "" {
		if err := makeScratch(b.scratch); err != nil {
			return err
		}
	}
	for path, data := range b.files {
		if err := j.put(path, data); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file into the directory of a run: this one, or one that this one
// is tried again for.
func (j *job) put(path string, data []byte) error {
	rel, err := filepath.Rel(j.home.Path(), filepath.Dir(path))
	if err == nil {
		err = j.home.dir.Ensure()
	}
	if err != nil {
		return err
	}
	dir, err := j.home.dir.Make(strings.Split(rel, string(filepath.Separator))...)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.WriteFile(filepath.Base(path), data)
}

// makeScratch makes a directory that version control passes over.
func makeScratch(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("a light agent needs a directory for what is temporary inside its working directory: %w", err)
	}
	return os.WriteFile(filepath.Join(path, ".gitignore"), []byte("*\n"), 0o600)
}

// clear removes what furnish made. What cannot be removed is a warning.
func (j *job) clear() (warnings []error) {
	warnings = j.jail.release()
	b := &j.begin
	if b.scratch != "" {
		if err := os.RemoveAll(b.scratch); err != nil {
			warnings = append(warnings, fmt.Errorf("the agent's temporary directory stays: %w", err))
		}
	}
	for path := range b.files {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			warnings = append(warnings, err)
		}
	}
	return warnings
}
