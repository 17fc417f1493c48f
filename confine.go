package handsel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/confine"
	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// What Options.Confine may be.
const (
	ConfineOS   = "os"
	ConfineNone = "none"
)

type (
	// CannotConfine refuses a start that is to be confined by a kernel that cannot.
	CannotConfine = confine.Unsupported

	// Boundless refuses to confine an agent to a directory in which it could undo
	// that, or prepare the next agent's start.
	Boundless = confine.Boundless
)

// Unconfinable refuses to confine an engine that does not run so.
type Unconfinable struct{ Engine, Why string }

func (e *Unconfinable) Error() string {
	return fmt.Sprintf("--confine os does not go with %s: %s", e.Engine, e.Why)
}

// jail is what a confined job has of its own, from its admission to its end.
type jail struct {
	set    *confine.Ruleset
	dirs   []string // of its own; the first takes the place of the system's temporary one
	made   []string // those that are there
	logins []*confine.Login
}

// isConfined decides whether the kernel confines the job's command, and refuses
// what cannot be (E6). The working directory becomes the one that was meant: it
// is what the agent is confined to.
func (j *job) isConfined() (bool, error) {
	how := j.o.Confine
	if how == "" && !j.gate {
		how = j.settings.EngineOf[j.engine].Confine
	}
	switch {
	case how == "" || how == ConfineNone:
		return false, nil
	case how != ConfineOS:
		return false, &BadOption{"confine", how, `it must be "os" or "none"`}
	case j.gate:
		return false, &BadOption{"confine", how, "a gate is for commands, and only agents are confined"}
	}
	if s, ok := engine.StateOf(j.engine); ok && s.Mounts {
		return false, &Unconfinable{j.engine, "its own sandbox mounts, which no confined process may; --workload light confines it by that sandbox"}
	}
	if err := confine.CanKeep(j.ports()); err != nil {
		return false, err
	}
	if err := proc.CheckDir(j.cwd()); err != nil {
		return false, err
	}
	dir, err := confine.Resolve(j.cwd(), j.outOfBounds())
	if err != nil {
		return false, err
	}
	j.o.Dir = dir
	return true, nil
}

// ports are those that the configuration leaves a confined agent; nil is all.
func (j *job) ports() []uint16 { return j.settings.EngineOf[j.engine].ConfinePorts }

// outOfBounds are the places in which an agent could change how agents start.
func (j *job) outOfBounds() []confine.Place {
	var places []confine.Place
	getenv := envOf(j.env())
	for _, dir := range j.userHomes() {
		places = append(places, confine.Place{Path: dir, Name: "your home directory", Around: true})
		for _, name := range engine.Names() {
			s, _ := engine.StateOf(name)
			places = append(places,
				confine.Place{Path: s.Dir(getenv, dir), Name: "what " + name + " keeps"},
				confine.Place{Path: s.Dir(noEnv, dir), Name: "what " + name + " keeps"})
		}
	}
	places = append(places,
		confine.Place{Path: j.home.Path(), Name: "handsel's own directory"},
		confine.Place{Path: j.home.places(j.settings.Settings).Leases, Name: "the directory of handsel's locks"},
		confine.Place{Path: "/etc/handsel", Name: "handsel's configuration"},
		confine.Place{Path: j.home.getenv("HANDSEL_CONFIG"), Name: "handsel's configuration", Around: true},
	)
	if file, err := config.UserFile(); err == nil {
		places = append(places, confine.Place{Path: filepath.Dir(file), Name: "handsel's configuration"})
	}
	return places
}

// userHomes are the user's home directories: the agent's, and the one that is
// written in the passwd file.
func (j *job) userHomes() []string {
	var homes []string
	if dir := envOf(j.env())("HOME"); filepath.IsAbs(dir) {
		homes = append(homes, dir)
	}
	if dir, err := home.UserHome(); err == nil && dir != first(homes) {
		homes = append(homes, dir)
	}
	return homes
}

func noEnv(string) string { return "" }

// envOf reads a list of NAME=value, as getenv(3) does.
func envOf(env []string) func(string) string {
	return func(name string) string {
		for _, entry := range env {
			if key, value, ok := strings.Cut(entry, "="); ok && key == name {
				return value
			}
		}
		return ""
	}
}

// jailed adds to the job's start what a confined agent needs: a directory for
// what is temporary, whose name is short, since sockets are made there, and one
// for its engine's state.
func (j *job) jailed(b *beginning) error {
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return err
	}
	temp = filepath.Join(temp, record.ShortScratchName(j.id))
	j.jail = &jail{dirs: []string{temp}}
	b.confine = confinedByKernel
	b.env = append(b.env, "TMPDIR="+temp)
	s, ok := engine.StateOf(j.engine)
	if !ok {
		return nil
	}
	j.jail.dirs = append(j.jail.dirs, j.stateDir())
	b.env = append(b.env, s.Env+"="+j.engineDir())
	if s.Temp != "" {
		b.env = append(b.env, s.Temp+"="+temp)
	}
	return nil
}

// stateDir is the private directory of the job's engine, engineDir what its
// variable leads to. The second lies in the first: claude makes its lock beside.
func (j *job) stateDir() string  { return filepath.Join(record.Dir(j.home.dir, j.id), "state") }
func (j *job) engineDir() string { return filepath.Join(j.stateDir(), j.engine) }

// imprison makes the directories, lends the logins and gives the rules to the
// kernel, once the job is admitted. pools are those whose lock files a gate
// inside the agent takes (S1).
func (j *job) imprison(pools []lease.Pool) error {
	if j.jail == nil {
		return nil
	}
	rules := confine.Rules{Dirs: []string{j.o.Dir}, Ports: j.ports()}
	for _, dir := range j.jail.dirs {
		if err := j.makePrivate(dir); err != nil {
			return err
		}
		j.jail.made = append(j.jail.made, dir)
		rules.Dirs = append(rules.Dirs, dir)
	}
	if err := j.seed(); err != nil {
		return err
	}
	for _, l := range j.jail.logins {
		rules.Files = append(rules.Files, l.File)
	}
	locks, err := lockFiles(j.home.places(j.settings.Settings).Leases, pools)
	if err != nil {
		return err
	}
	rules.Files = append(rules.Files, locks...)
	j.jail.set, err = rules.Ruleset()
	return err
}

// makePrivate makes a directory that must not be there yet.
func (j *job) makePrivate(dir string) error {
	if rel, err := filepath.Rel(j.home.Path(), filepath.Dir(dir)); err == nil && filepath.IsLocal(rel) {
		if err := j.home.dir.Ensure(); err != nil {
			return err
		}
		above, err := j.home.dir.Make(strings.Split(rel, string(filepath.Separator))...)
		if err != nil {
			return err
		}
		defer above.Close()
		return above.Mkdir(filepath.Base(dir))
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("a confined agent needs a directory of its own for what is temporary: %w", err)
	}
	return nil
}

// seed puts the login into the engine's private directory, and nothing else: no
// setting and no hook of the user's counts there, and none that the agent makes
// counts outside.
func (j *job) seed() error {
	s, ok := engine.StateOf(j.engine)
	if !ok {
		return nil
	}
	mine := filepath.Join(j.engineDir(), s.Below)
	if err := os.MkdirAll(mine, 0o700); err != nil {
		return err
	}
	homes := append(j.userHomes(), "/")
	users := s.Dir(envOf(j.env()), homes[0])
	for _, name := range s.Logins {
		l, err := confine.Lend(filepath.Join(users, name), filepath.Join(mine, name))
		switch {
		case err == nil:
			j.jail.logins = append(j.jail.logins, l)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	for _, name := range s.Reads {
		if file, err := filepath.EvalSymlinks(filepath.Join(users, name)); err == nil {
			if err := os.Symlink(file, filepath.Join(mine, name)); err != nil {
				return err
			}
		}
	}
	if s.Choice == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(users, s.Choice))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if chosen := s.Chosen(text); err == nil && chosen != nil {
		err = os.WriteFile(filepath.Join(mine, s.Choice), chosen, 0o600)
	}
	return err
}

// lockFiles are the slots of the pools, as lease.Prepare has made them.
func lockFiles(leases string, pools []lease.Pool) (files []string, err error) {
	for _, p := range pools {
		names, err := os.ReadDir(filepath.Join(leases, p.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range names {
			if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".lock") {
				files = append(files, filepath.Join(leases, p.Name, e.Name()))
			}
		}
	}
	return files, nil
}

// confinement is what the agent is put under once it is admitted; nil is nothing.
func (j *job) confinement() proc.Confinement {
	if j.jail == nil || j.jail.set == nil {
		return nil
	}
	return j.jail.set
}

// release ends the job's confinement once its tree has ended: renewed logins go
// back to where they belong, and what was the agent's own is removed. What goes
// wrong are warnings. It may be called again.
func (k *jail) release() (warnings []error) {
	if k == nil {
		return nil
	}
	for _, l := range k.logins {
		warnings = append(warnings, asWarnings(l.TakeBack())...)
	}
	k.logins = nil
	warnings = append(warnings, asWarnings(k.set.Close())...)
	k.set = nil
	var stay []string
	for _, dir := range k.made {
		if err := record.RemoveScratch(dir); err != nil {
			stay = append(stay, dir)
			warnings = append(warnings, fmt.Errorf("what the confined agent had of its own stays: %w", err))
		}
	}
	k.made = stay
	return warnings
}

// confineOf is what an attempt asks for by what was decided when it was
// enqueued: a configuration that has changed since neither lifts it nor adds it.
func confineOf(word string) string {
	if word == confinedByKernel {
		return ConfineOS
	}
	return ConfineNone
}
