package handsel

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	made    bool // scratch is there, by us
}

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
	case j.o.Workload == Light && !j.gate && !j.lightly:
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
		b.scratch = filepath.Join(j.cwd(), record.ScratchName(j.id))
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
		if err := b.makeScratch(); err != nil {
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

// makeScratch makes a directory that version control passes over. Other agents
// may be at work around it: no link that one puts in its place is followed.
func (b *beginning) makeScratch() error {
	root, err := os.OpenRoot(filepath.Dir(b.scratch))
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Base(b.scratch)
	if err := root.Mkdir(name, 0o700); err != nil {
		return fmt.Errorf("a light agent needs a directory for what is temporary inside its working directory: %w", err)
	}
	b.made = true
	ignore, err := root.OpenFile(filepath.Join(name, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = ignore.WriteString("*\n")
	return errors.Join(err, ignore.Close())
}

// temps are the directories outside of the run's own that are there because of it.
func (j *job) temps() (dirs []string) {
	if j.begin.made {
		dirs = append(dirs, j.begin.scratch)
	}
	if j.jail != nil && slices.Contains(j.jail.made, j.jail.dirs[0]) {
		dirs = append(dirs, j.jail.dirs[0])
	}
	return dirs
}

// clear removes what furnish made. What cannot be removed is a warning.
func (j *job) clear() (warnings []error) {
	warnings = j.jail.release()
	b := &j.begin
	if b.made {
		if err := record.RemoveScratch(b.scratch); err != nil {
			warnings = append(warnings, fmt.Errorf("the agent's temporary directory stays: %w", err))
		} else {
			b.made = false
		}
	}
	for path := range b.files {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			warnings = append(warnings, err)
		}
		_ = os.Remove(filepath.Dir(path)) // it stays while anything is in it, as of a run that is kept
	}
	return warnings
}
