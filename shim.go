package handsel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/shim"
)

type (
	// Shim is how an executable stands that was put before an engine's.
	Shim = shim.Shim

	// ShimDone is what was done to one.
	ShimDone = shim.Done

	// ForeignFile reports a file in the place of a shim that is none.
	ForeignFile = shim.Foreign

	// NoShims reports a platform that has no shims.
	NoShims = shim.Unsupported
)

// BadShim reports a name that no shim can have.
type BadShim struct{ Name, Why string }

func (e *BadShim) Error() string { return strconv.QuoteToASCII(e.Name) + ": " + e.Why }

// ShimFlag begins the first word of a command line by which a shim starts us.
const ShimFlag = shim.Flag

// The states of a Shim that callers branch on.
const (
	ShimNotInstalled = shim.NotInstalled
	ShimKept         = shim.Kept
)

// InstallShims puts shims before the engines whose executables are called names.
// They start the executable handsel, an absolute path (W6). The error is *BadShim
// for a name that is no engine's, *ForeignFile for what is in the way.
func (h *Home) InstallShims(handsel string, names []string) ([]ShimDone, error) {
	if err := mayDecide("shim install"); err != nil {
		return nil, err
	}
	s, err := h.settings()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !s.shimmable(name) {
			return nil, &BadShim{name, "no engine's executable is called so (handsel config: [engine.NAME] names)"}
		}
	}
	return shim.Install(h.dir, handsel, names)
}

// shimmable tells a word by which an engine is started.
func (f *inForce) shimmable(name string) bool {
	known := f.known()
	known.Resolve = func(string) string { return "" } // by the word alone
	_, ok := known.Recognise([]string{name})
	return ok && name == filepath.Base(name) && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, " \t\r\n\x00")
}

// RemoveShims takes them away, all of them without names. It reads no
// configuration: it is the way out of a broken one.
func (h *Home) RemoveShims(names []string) ([]ShimDone, error) {
	if err := mayDecide("shim remove"); err != nil {
		return nil, err
	}
	for _, name := range names {
		if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return nil, &BadShim{name, "it is no name of an executable"}
		}
	}
	return shim.Remove(h.dir, names)
}

// Shims says how the named executables stand, or those of all engines, and what
// has a shim besides. It changes nothing.
func (h *Home) Shims(handsel string, names []string) ([]Shim, error) {
	s, _ := h.lenient()
	asked := slices.Clone(names)
	if len(asked) == 0 {
		asked = engine.Names()
		for _, conf := range s.EngineOf {
			for _, name := range conf.Names {
				if filepath.Base(name) == name {
					asked = append(asked, name)
				}
			}
		}
	}
	all, err := shim.Look(h.dir, handsel, asked)
	for i := range all {
		known := s.known()
		known.Resolve = func(string) string { return "" }
		all[i].Engine, _ = known.Recognise([]string{all[i].Name})
	}
	if len(names) > 0 {
		all = slices.DeleteFunc(all, func(one Shim) bool { return !slices.Contains(names, one.Name) })
	}
	if unusable := h.Usable(); unusable != nil {
		for i := range all {
			all[i].Refuse(unusable)
		}
	}
	return all, err
}

// ShimDir is where the shims are.
func (h *Home) ShimDir() string { return h.dir.Shims() }

// ShimsOnPath tells whether PATH has that directory.
func (h *Home) ShimsOnPath() bool { return shim.OnPath(h.dir) }

// ShimLine is what the file of a shell (bash, zsh, fish, sh) needs for that.
func (h *Home) ShimLine(shell string) string { return shim.Line(h.dir, shell) }

// ShimCall is a call of a shim: what it is called, and the words after that.
type ShimCall struct {
	Name string
	Args []string
}

// passVar counts how often a call was passed on by a shim, so that a PATH that
// leads in a circle comes to an end.
const passVar = "HANDSEL_SHIM"

// mostPasses is how often: agents that start agents through it are not nested
// deeper than that by anybody who means it.
const mostPasses = 8

// ShimLoop refuses a call that would lead back to us.
type ShimLoop struct{ Name, Path, Why string }

func (e *ShimLoop) Error() string {
	return fmt.Sprintf("the shim of %s would start %s, %s", e.Name, strconv.QuoteToASCII(e.Path), e.Why)
}

// ShimRefused is why a call of a shim came to nothing, and the way out.
type ShimRefused struct {
	Name string
	Err  error
	Way  string // empty: none but what Err says
}

func (e *ShimRefused) Error() string {
	if e.Way == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "; " + e.Way
}

func (e *ShimRefused) Unwrap() error { return e.Err }

// Behind finds what stands behind the shim on PATH: never a shim, and never this
// executable under another name.
func (c ShimCall) Behind() (path string, err error) {
	if path, err = proc.LookPath(c.Name, os.Environ(), ""); err != nil {
		return "", err
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		exe, nameErr := os.Executable()
		if self, err = os.Stat(exe); nameErr != nil || err != nil {
			return path, nil // what we are cannot be told; the count of passes bounds a circle
		}
	}
	if real, err := os.Stat(path); err == nil && os.SameFile(self, real) {
		return "", &ShimLoop{c.Name, path, "which is handsel itself"}
	}
	return path, nil
}

// Brief tells whether the call is no agent's work, and so is not counted.
func (c ShimCall) Brief() bool { return engine.Known{}.Brief(c.Name, c.Args) }

// PassOn makes this process what stands behind the shim. It returns only with an
// error.
func (c ShimCall) PassOn(path string) error {
	n, _ := strconv.Atoi(os.Getenv(passVar))
	if n < 0 || n >= mostPasses {
		return &ShimLoop{c.Name, path, fmt.Sprintf("after a shim has passed on %d calls above each other: it leads back to the shim", n)}
	}
	env := append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, passVar+"=") }),
		passVar+"="+strconv.Itoa(n+1))
	return proc.Become(path, append([]string{c.Name}, c.Args...), env)
}

// ShimPasses judges a call of a shim: outside of an agent it is a start like any
// other, and false. Inside it is refused, with *Inside, or true where the
// configuration lets it pass (W7): then it runs uncounted inside the agent that is.
func (h *Home) ShimPasses(c ShimCall) (bool, error) {
	inside := nest.Check()
	if inside == nil {
		h.outside = true
		return false, nil
	}
	s, err := h.settings()
	if err != nil {
		return false, err
	}
	name, err := s.engineOf("", []string{c.Name})
	if err != nil {
		return false, err
	}
	if cmp.Or(s.Shim[name], s.Shim["*"]) == "pass" {
		return true, nil
	}
	return false, &ShimRefused{c.Name, inside, fmt.Sprintf("for one that starts itself, [nesting.shim] %s = \"pass\"", cmp.Or(name, c.Name))}
}

// Refused adds to an error of a shimmed start the way out, where the next call
// would meet the same.
func (c ShimCall) Refused(err error) error {
	var wait *Refused
	var owned *LaneOwned
	var start *StartError
	switch {
	case err == nil, errors.As(err, &wait), errors.As(err, &owned), errors.As(err, &start), errors.As(err, new(*Inside)), errors.As(err, new(*ShimRefused)):
		return err
	}
	return &ShimRefused{c.Name, err, "handsel shim remove " + c.Name + " takes the shim away"}
}
