package handsel

import (
	"errors"
	"io/fs"
	"os"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lease"
)

// Home is where one user's starts are counted: every process that shares it
// shares its caps (C6).
type Home struct {
	dir    home.Dir
	getenv func(string) string
	told   told
	aside  func([]byte) error // see TellAside

	outside bool // this process was just found to be outside of any agent
}

// Open finds the home of this process: $HANDSEL_HOME, else the usual place
// below the user's passwd entry. It touches nothing.
func Open() (*Home, error) { return OpenWith(os.Getenv) }

// OpenWith is Open with another environment for variables that begin with
// HANDSEL_. Settings read from it can lower a cap, never lift one (S2).
func OpenWith(getenv func(string) string) (*Home, error) {
	dir, err := home.Locate(getenv)
	if err != nil {
		return nil, err
	}
	return &Home{dir: dir, getenv: getenv}, nil
}

// Path is the home's directory. It may not exist yet.
func (h *Home) Path() string { return h.dir.Path }

// From says what named the home: "HANDSEL_HOME" or "passwd".
func (h *Home) From() string { return h.dir.From }

func (h *Home) configEnv() config.Env {
	return config.Env{Getenv: h.getenv, LeasesExist: exists(h.dir.Leases()), Home: h.dir}
}

// inForce is the configuration as a start finds it.
type inForce struct {
	*config.Settings
	counted bool // a cap is set here, pressure must know what runs, or slots are there: something is, or was, counted (S4)
}

// settings reads the configuration for a start: the first mistake is an error.
func (h *Home) settings() (*inForce, error) {
	env := h.configEnv()
	s, err := config.Load(env)
	if err != nil {
		return nil, err
	}
	return &inForce{s, s.AnyCap() || countedForPressure(s.Pressure) || s.LeasesDir == "" && env.LeasesExist}, nil
}

// Usable is why every start is refused here: a configuration that does not parse, a
// home that is not ours to trust. It creates nothing.
func (h *Home) Usable() error {
	if _, err := h.settings(); err != nil {
		return err
	}
	if err := home.Trust(h.dir.Path, true); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lenient reads the configuration for a look.
func (h *Home) lenient() (*inForce, []error) {
	s, problems := config.LoadLenient(h.configEnv())
	return &inForce{Settings: s}, problems
}

// places are the directories of admission under the settings s.
func (h *Home) places(s *config.Settings) lease.Places {
	p := lease.Places{Leases: h.dir.Leases(), Waiting: h.dir.Waiting(), Holds: h.dir.Holds()}
	if s.LeasesDir != "" {
		p.Leases = s.LeasesDir
	}
	return p
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
