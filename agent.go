package handsel

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/profile"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/run"
	"github.com/handsel/handsel/internal/stream"
)

type (
	// Event is something an agent did or said, in no engine's own words (E10).
	Event = stream.Event

	// Usage is what an agent's turn took.
	Usage = stream.Usage

	// Lifted refuses a setting that does not go with the class light (78, E5).
	Lifted = engine.Lifted

	// TooLong refuses a text that an engine takes only as an argument (78, C108).
	TooLong = engine.TooLong

	// BadEngine reports that what the configuration says of an engine does not do
	// for what is asked of it (78).
	BadEngine = engine.BadOwn

	// BadProfile reports a profile that cannot be used as it is (78).
	BadProfile = profile.Bad

	// NoProfile reports a profile that is nowhere (78).
	NoProfile = profile.NotFound

	// UntrustedProject refuses what a project's profile may set only once its
	// directory is trusted (78, E8).
	UntrustedProject = profile.Untrusted
)

// Question is what an agent is asked. Its command line is built from it (E2).
type Question struct {
	Prompt []byte   // what it is to do
	Model  string   // in the engine's own words; empty: the profile's, else the engine's default
	Resume string   // the conversation to go on with; empty: a new one
	Args   []string // further arguments to the engine
}

// Agent builds the command line by which o.Engine, or the profile's engine, is
// asked q without a terminal, and runs it as Run does (E2). What it says is read
// as it comes: the outcome has its answer, and a result that need not agree with
// the engine's exit status (E11).
func (h *Home) Agent(ctx context.Context, q Question, o Options) (*Outcome, error) {
	j := &job{home: h, o: o, asked: &q, id: record.NewID(), passing: &passing{}}
	j.o.Record = true
	refused := &Outcome{Run: j.id, Outcome: run.Outcome{Outcome: run.Refused}}
	if err := nest.Check(); err != nil {
		return refused, err
	}
	if err := j.resolve(); err != nil {
		return refused, err
	}
	return j.do(ctx)
}

// MaxPrompt is how long a prompt may be, in bytes: what is stored of an input.
const MaxPrompt = MaxStoredStdin

// build makes the command line of a question.
func (j *job) build(p *profile.Profile) error {
	q := j.asked
	if len(strings.TrimSpace(string(q.Prompt))) == 0 {
		return &BadOption{"prompt", "", "it is empty"}
	}
	if len(q.Prompt) > MaxPrompt {
		return &BadOption{"prompt", "", fmt.Sprintf("it has %d bytes, and %d is the most", len(q.Prompt), MaxPrompt)}
	}
	if strings.ContainsRune(string(q.Prompt), 0) {
		return &BadOption{"prompt", "", "it has a NUL byte"}
	}
	if strings.HasPrefix(q.Resume, "-") {
		return &BadOption{"resume", q.Resume, "it is no conversation's id"}
	}
	if j.engine == "" {
		return &BadOption{"engine", "", "an engine is needed, of --engine or of a profile: one of " + strings.Join(j.settings.engines(), ", ")}
	}
	ask := engine.Ask{Prompt: q.Prompt, Model: q.Model, Resume: q.Resume, Dir: j.cwd(), Args: q.Args, Files: record.Dir(j.home.dir, j.id)}
	if p != nil {
		ask.System = p.System
		ask.Args = slices.Concat(p.Args, q.Args)
		if ask.Model == "" {
			ask.Model = p.Model
		}
	}
	for _, text := range slices.Concat([]string{ask.Model, ask.Resume}, ask.Args) {
		if strings.ContainsRune(text, 0) {
			return &BadOption{"arguments", "", "a NUL byte is in one of them"}
		}
	}
	name := j.engine
	if j.o.Engine != "" {
		name = j.o.Engine // agy is another program than gemini, though one engine
	}
	cmd, err := j.settings.known().Headless(name, ask)
	if err != nil {
		return err
	}
	j.argv, j.payload, j.files = cmd.Argv, cmd.Stdin, cmd.Files
	if j.payload == nil {
		j.payload = []byte{} // an end of file at once: no agent waits for more (C054)
	}
	return nil
}

// profile reads the profile that was named. A seat need not have a file.
func (j *job) profile() (*profile.Profile, error) {
	name := j.o.Profile
	if name == "" {
		return nil, nil
	}
	seat := slices.Contains(j.settings.Seats, name)
	p, err := j.home.profiles(j.cwd()).Load(name)
	switch {
	case errors.As(err, new(*NoProfile)) && seat:
		return nil, nil
	case err != nil:
		return nil, err
	case seat && p.Project != "":
		return nil, fmt.Errorf("%w: a seat is a profile of the user, and this one is a project's: %s", errSeat, strconv.QuoteToASCII(p.Path))
	}
	if set := p.Bold(); set != "" {
		return nil, &UntrustedProject{Path: p.Path, Project: p.Project, Setting: set}
	}
	if note := j.o.OnNote; note != nil {
		if p.Project != "" && !p.Trusted {
			note(fmt.Sprintf("profile %s is the project's: %s", name, strconv.QuoteToASCII(p.Path)))
		}
		for _, w := range p.Warnings {
			note(w)
		}
	}
	return p, nil
}

var errSeat = &BadOption{"profile", "", "a project's profile is never a seat"}

// adopt takes from the profile what nobody said otherwise.
func (j *job) adopt(p *profile.Profile) {
	if p == nil {
		return
	}
	o := &j.o
	if o.Engine == "" && j.asked != nil {
		o.Engine = p.Engine
	}
	if o.Workload == "" {
		o.Workload = p.Workload
	}
	if o.Confine == "" {
		o.Confine = p.Confine
	}
	if o.Timeout == 0 {
		o.Timeout = p.Timeout
	}
	if o.Idle == 0 {
		o.Idle = p.Idle
	}
	o.Review = o.Review || p.Review
	for _, pool := range p.Pools {
		if !slices.Contains(o.Pools, pool) {
			o.Pools = append(slices.Clone(o.Pools), pool)
		}
	}
}

// profiles are where the profiles of whoever works in dir are.
func (h *Home) profiles(dir string) profile.Places {
	at := profile.Places{Dir: dir, Trusted: func(project string) bool { return profile.Trusts(h.dir, project) }}
	if extra := h.getenv("HANDSEL_CONFIG"); extra != "" {
		at.User = append(at.User, filepath.Join(filepath.Dir(extra), "profiles"))
	}
	if file, err := config.UserFile(); err == nil {
		if dir := filepath.Join(filepath.Dir(file), "profiles"); !slices.Contains(at.User, dir) {
			at.User = append(at.User, dir)
		}
	}
	return at
}

// TrustProject lets the profiles of a project set what only the user's may
// (E8), and returns the directory it is known by.
func (h *Home) TrustProject(dir string) (string, error) { return profile.Trust(h.dir, dir) }

// DistrustProject takes that back. fs.ErrNotExist when it was not trusted.
func (h *Home) DistrustProject(dir string) (string, error) { return profile.Distrust(h.dir, dir) }

// TrustedProjects lists the directories that are trusted.
func (h *Home) TrustedProjects() ([]string, error) { return profile.Trusted(h.dir) }

// ProjectProfiles lists the profiles that a project brings, by name and file.
func (h *Home) ProjectProfiles(dir string) (names, paths []string) {
	for _, k := range (profile.Places{Dir: dir}).List() {
		names, paths = append(names, k.Name), append(paths, k.Path)
	}
	return names, paths
}
