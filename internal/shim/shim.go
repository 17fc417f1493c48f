// Package shim puts executables called like the engines before the engines
// themselves on PATH, and takes them away again (W6).
//
// A shim is a file of two lines: the first has the kernel start handsel with the
// name it stands for, the second says what the file is. It is known by what it
// says of itself (proc.ShimOf), so nothing is overwritten or removed but what was
// made here, and a copy of it in another place is known, too.
//
// It changes no PATH and no file of a shell: it says the line. What a shim does
// when it is called is not in here.
package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
)

// Flag begins the first word that handsel gets when a shim was called; the name
// follows. The next word is the path of the shim.
const Flag = "--shim="

// What was done to a shim.
const (
	Installed = "installed"
	Renewed   = "renewed" // it was there and started another handsel
	Kept      = "kept"    // it was there already
	Removed   = "removed"
	Absent    = "absent" // there was none
)

// Done is what was done to one shim.
type Done struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Did  string `json:"did"`
}

// Foreign reports a file that is in the way and was not made here.
type Foreign struct{ Path string }

func (e *Foreign) Error() string {
	return fmt.Sprintf("%s is no shim of ours, and is left alone: move it away", strconv.QuoteToASCII(e.Path))
}

// Unsupported reports a platform that has no shims.
type Unsupported struct{ Platform string }

func (e *Unsupported) Error() string {
	return "there are no shims on " + e.Platform + ": start agents with handsel run"
}

// supported tells where a file can begin with the name of its interpreter.
func supported() error {
	if runtime.GOOS == "windows" {
		return &Unsupported{"Windows"}
	}
	return nil
}

// longestLine is what every kernel reads of an interpreter's line.
const longestLine = 127

// text is what a shim consists of. Where the kernel could not read the line that
// names our executable, because it is long or has a blank in it, a shell does.
func text(handsel, name string) string {
	line := "#!" + handsel + " " + Flag + name
	if len(line) <= longestLine && !strings.ContainsAny(handsel, " \t\n") {
		return line + "\n" + proc.ShimMark + name + "\n"
	}
	return "#!/bin/sh\n" + proc.ShimMark + name + "\nexec " + quote(handsel) + " " + Flag + name + ` "$0" "$@"` + "\n"
}

// quote makes one word of a text for sh.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// starts is the executable that the text of a shim starts.
func starts(text, name string) string {
	line, rest, _ := strings.Cut(text, "\n")
	if path, ok := strings.CutSuffix(line, " "+Flag+name); ok {
		return strings.TrimPrefix(path, "#!")
	}
	_, rest, _ = strings.Cut(rest, "\nexec '")
	path, _, _ := strings.Cut(rest, "' "+Flag)
	return strings.ReplaceAll(path, `'\''`, "'")
}

// file is what lies where a shim of this name would.
type file struct {
	path string
	text string // of a shim
	ours bool
	none bool // nothing is there
}

func look(d home.Dir, name string) (file, error) {
	f := file{path: filepath.Join(d.Shims(), name)}
	info, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.none = true
		return f, nil
	case err != nil:
		return f, fmt.Errorf("shim: %w", err)
	case !info.Mode().IsRegular():
		return f, nil
	}
	data, err := home.ReadFile(f.path, 1<<16)
	if err != nil {
		return f, nil // whatever it is: what we make can be read by us
	}
	stands, ok := proc.ShimIn(string(data))
	f.ours, f.text = ok && stands == name, string(data)
	return f, nil
}

// Install puts shims before the engines called names, which start the executable
// handsel, an absolute path. Nothing is written unless all can be: *Foreign names
// what is in the way.
func Install(d home.Dir, handsel string, names []string) ([]Done, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	var all []Done
	for _, name := range names {
		f, err := look(d, name)
		if err != nil {
			return nil, err
		}
		did := Renewed
		switch {
		case f.none:
			did = Installed
		case !f.ours:
			return nil, &Foreign{f.path}
		case f.text == text(handsel, name) && runnable(f.path):
			did = Kept
		}
		all = append(all, Done{Name: name, Path: f.path, Did: did})
	}
	if err := d.Ensure(); err != nil {
		return nil, err
	}
	if err := home.EnsureDir(d.Shims()); err != nil {
		return nil, err
	}
	for _, one := range all {
		if one.Did == Kept {
			continue
		}
		if err := home.WriteFileMode(one.Path, []byte(text(handsel, one.Name)), 0o700); err != nil {
			return nil, err
		}
		if !runnable(one.Path) {
			return nil, &home.Unusable{Path: one.Path, Err: errors.New("what lies there is not executed: the file system is mounted noexec")}
		}
	}
	return all, nil
}

// runnable tells whether the file would be found on PATH.
func runnable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// Remove takes away the shims called names, or all without names. What was not
// made here is refused by *Foreign before anything is removed.
func Remove(d home.Dir, names []string) ([]Done, error) {
	if len(names) == 0 {
		var err error
		if names, err = installed(d); err != nil {
			return nil, err
		}
	}
	var all []Done
	for _, name := range names {
		f, err := look(d, name)
		switch {
		case err != nil:
			return nil, err
		case f.none:
			all = append(all, Done{Name: name, Path: f.path, Did: Absent})
		case !f.ours:
			return nil, &Foreign{f.path}
		default:
			all = append(all, Done{Name: name, Path: f.path, Did: Removed})
		}
	}
	for _, one := range all {
		if one.Did != Removed {
			continue
		}
		if err := os.Remove(one.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("shim: %w", err)
		}
	}
	_ = os.Remove(d.Shims()) // it stays while anything is in it
	return all, nil
}

// installed lists the names that have a shim of ours, in order.
func installed(d home.Dir) (names []string, err error) {
	list, err := os.ReadDir(d.Shims())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("shim: %w", err)
	}
	for _, entry := range list {
		if f, err := look(d, entry.Name()); err == nil && f.ours {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// The states of a shim.
const (
	OK           = "ok"
	NotInstalled = "not_installed"
	NoEngine     = "no_engine"   // nothing stands behind it
	NotOnPath    = "not_on_path" // PATH does not have our directory
	Shadowed     = "shadowed"    // PATH finds something else first
	Stale        = "stale"       // it starts another handsel than this one
	Broken       = "broken"      // the handsel it starts is not there
	ForeignFile  = "foreign"     // the file is not ours
	Refuses      = "refuses"     // it is called, and whatever it would start is refused
)

// Shim is how one name stands.
type Shim struct {
	Name    string `json:"name"`
	Engine  string `json:"engine,omitempty"`
	Path    string `json:"path"` // where the shim is, or would be
	State   string `json:"state"`
	First   string `json:"first,omitempty"`   // what PATH finds first under the name
	Real    string `json:"real,omitempty"`    // what stands behind the shim on PATH
	Target  string `json:"target,omitempty"`  // where that leads, where it is a link
	Handsel string `json:"handsel,omitempty"` // what the shim starts
	Problem string `json:"problem,omitempty"` // what is wrong, and what would help
}

// Wrong tells whether the shim is there and does not do its work.
func (s Shim) Wrong() bool { return s.Problem != "" }

// Refuse says of a shim that does all that it can that every start is refused, and why.
func (s *Shim) Refuse(why error) {
	if s.State == OK {
		s.State, s.Problem = Refuses, "every agent it would start is refused: "+why.Error()
	}
}

// Look says how the names stand, and what else has a shim. handsel is this
// executable. It changes nothing.
func Look(d home.Dir, handsel string, names []string) ([]Shim, error) {
	more, err := installed(d)
	if err != nil {
		return nil, err
	}
	names = append(slices.Clone(names), more...)
	slices.Sort(names)
	all := []Shim{}
	for _, name := range slices.Compact(names) {
		s, err := lookAt(d, handsel, name)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func lookAt(d home.Dir, handsel, name string) (Shim, error) {
	f, err := look(d, name)
	if err != nil {
		return Shim{}, err
	}
	s := Shim{Name: name, Path: f.path, State: OK}
	if s.First, err = exec.LookPath(name); err != nil {
		s.First = ""
	}
	if s.Real, err = proc.LookPath(name, os.Environ(), ""); err != nil {
		s.Real = ""
	}
	if to, err := filepath.EvalSymlinks(s.Real); s.Real != "" && err == nil && to != s.Real {
		s.Target = to
	}
	if f.ours {
		s.Handsel = starts(f.text, name)
	}
	s.State, s.Problem = s.judge(f, handsel)
	return s, nil
}

// judge names the first thing that keeps the shim from its work.
func (s Shim) judge(f file, handsel string) (state, problem string) {
	again := "handsel shim install " + s.Name
	switch {
	case f.none:
		return NotInstalled, ""
	case !f.ours:
		return ForeignFile, "the file was not made by handsel; move it away"
	case !runnable(s.Handsel):
		return Broken, fmt.Sprintf("the handsel it starts, %q, is not there: %s", s.Handsel, again)
	case !same(s.Handsel, handsel):
		return Stale, fmt.Sprintf("it starts another handsel, %q: %s", s.Handsel, again)
	case !runnable(f.path):
		return Broken, "it cannot be executed: " + again
	case s.Real == "":
		return NoEngine, fmt.Sprintf("PATH has no %s but the shim; handsel shim remove %s", s.Name, s.Name)
	case same(s.Real, handsel):
		return NoEngine, fmt.Sprintf("what PATH has behind it, %q, is handsel itself", s.Real)
	case same(s.First, f.path):
		return OK, ""
	case !onPath(filepath.Dir(f.path)):
		return NotOnPath, fmt.Sprintf("PATH does not have %q: the line of handsel shim install", filepath.Dir(f.path))
	}
	return Shadowed, fmt.Sprintf("PATH finds %q first: %q must stand before it", s.First, filepath.Dir(f.path))
}

// same tells whether two paths lead to one file.
func same(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func onPath(dir string) bool {
	return slices.ContainsFunc(filepath.SplitList(os.Getenv("PATH")), func(one string) bool { return one != "" && same(one, dir) })
}

// OnPath tells whether PATH has the shims of this home.
func OnPath(d home.Dir) bool { return onPath(d.Shims()) }

// Line is what a shell's file needs so that PATH has the shims first. The shells
// known are bash, zsh, fish and sh; any other gets what sh takes.
func Line(d home.Dir, shell string) string {
	if shell == "fish" {
		return "set -gx PATH " + fishWord(d.Shims()) + " $PATH"
	}
	return "export PATH=" + quote(d.Shims()) + `:"$PATH"`
}

// fishWord makes one word of a text for fish.
func fishWord(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
