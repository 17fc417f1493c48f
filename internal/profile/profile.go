// Package profile reads profiles: named ways to start an agent (E8).
//
// A profile is NAME.md, with its settings in front of the text that becomes the
// agent's instructions, or NAME.toml. It comes from the user, or from a project
// that the agent works in. A user's wins over a project's of the same name.
//
// It guarantees that a file which others can write is not read, and that a
// project's profile sets nothing that could loosen what binds its agents (Bold)
// before its directory is trusted. It starts nothing, and what a setting means
// to an engine is not known here.
package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The workload classes a profile may name (E3).
const (
	heavy = "heavy"
	light = "light"
)

// Profile is one profile. Empty fields are not set.
type Profile struct {
	Name string
	Path string // of its file
	// Project is the directory whose profile it is; empty for a user's own.
	Project string
	Trusted bool // of a project's: whether the user trusts the directory

	Engine   string
	Account  string // of the engine, as the configuration names it
	Model    string // in the engine's own words
	Workload string // "heavy" or "light"
	Confine  string // "os" or "none"
	System   string // standing instructions
	Pools    []string
	Args     []string // for the engine
	Timeout  time.Duration
	Idle     time.Duration
	Review   bool // what it did is to be reviewed

	// Warnings are what was passed over, a line each.
	Warnings []string
}

// Bold names the first setting of a project's profile that it may not have
// before its directory is trusted; empty: it has none.
func (p *Profile) Bold() string {
	switch {
	case p.Project == "" || p.Trusted:
		return ""
	case p.Confine != "":
		return "confine"
	case len(p.Args) > 0:
		return "args"
	case len(p.Pools) > 0:
		return "pools"
	case p.Account != "":
		return "account"
	}
	return ""
}

// Untrusted refuses a setting of a project's profile (78).
type Untrusted struct {
	Path, Project, Setting string
}

func (e *Untrusted) Error() string {
	return fmt.Sprintf("%s sets %s, which a project may only do when it is trusted: handsel trust %s",
		strconv.QuoteToASCII(e.Path), e.Setting, quoted(e.Project))
}

// quoted is a path as it can be typed.
func quoted(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return r != '/' && r != '.' && r != '_' && r != '-' && (r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z')
	}) {
		return strconv.QuoteToASCII(path)
	}
	return path
}

// NotFound reports a profile that is nowhere (78).
type NotFound struct {
	Name   string
	Looked []string // the directories
	Near   []string // the names there are
}

func (e *NotFound) Error() string {
	text := fmt.Sprintf("no profile %s in %s", strconv.QuoteToASCII(e.Name), strings.Join(e.Looked, ", "))
	if len(e.Near) > 0 {
		text += "; there are " + strings.Join(e.Near, ", ")
	}
	return text
}

// Bad reports a profile that cannot be used as it is (78).
type Bad struct {
	Path string
	Line int // from 1; 0: the whole file
	Why  string
}

func (e *Bad) Error() string {
	if e.Line == 0 {
		return strconv.QuoteToASCII(e.Path) + ": " + e.Why
	}
	return fmt.Sprintf("%s:%d: %s", strconv.QuoteToASCII(e.Path), e.Line, e.Why)
}

// Places are where profiles are looked for.
type Places struct {
	User []string // the user's directories of profiles, the first wins
	// Dir is where the agent works: the nearest directory from there up that has
	// profiles is its project. Empty: projects have none.
	Dir string
	// Trusted tells whether the user trusts a project's directory; nil: none.
	Trusted func(dir string) bool
}

// ProjectDir is where a project keeps its profiles.
const ProjectDir = ".handsel/profiles"

// kinds are the files a profile can be; of two with one name the first is it.
var kinds = []string{".md", ".toml"}

// maxFile bounds a profile, in bytes.
const maxFile = 1 << 20

// Valid tells whether a profile can have this name: letters, digits and ._-, a
// letter or digit in front, at most 64 of them.
func Valid(name string) bool {
	if name == "" || len(name) > 64 || strings.ContainsRune("._-", rune(name[0])) {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("._-", r)
	})
}

// Load reads the profile of that name. The error is *NotFound, *Bad, or one of
// the file itself, which others may be able to write.
func (at Places) Load(name string) (*Profile, error) {
	if !Valid(name) {
		return nil, &Bad{Path: name, Why: "a profile's name has letters, digits and ._- and begins with a letter or digit"}
	}
	for _, d := range at.dirs() {
		for _, kind := range kinds {
			p, err := d.load(name, kind)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil && p.Project != "" {
				p.Trusted = at.Trusted != nil && at.Trusted(p.Project)
			}
			return p, err
		}
	}
	missing := &NotFound{Name: name}
	for _, d := range at.dirs() {
		missing.Looked = append(missing.Looked, d.path)
	}
	for _, known := range at.List() {
		missing.Near = append(missing.Near, known.Name)
	}
	return nil, missing
}

// Known is a profile by its name and place, unread.
type Known struct {
	Name, Path, Project string
}

// List lists every profile that Load would find, by name.
func (at Places) List() []Known {
	var all []Known
	for _, d := range at.dirs() {
		entries, err := os.ReadDir(d.path)
		if err != nil {
			continue
		}
		for _, e := range entries {
			kind := filepath.Ext(e.Name())
			name := strings.TrimSuffix(e.Name(), kind)
			if !slices.Contains(kinds, kind) || !Valid(name) || slices.ContainsFunc(all, func(k Known) bool { return k.Name == name }) {
				continue
			}
			all = append(all, Known{name, filepath.Join(d.path, e.Name()), d.project})
		}
	}
	slices.SortFunc(all, func(a, b Known) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// dir is one directory of profiles.
type dir struct {
	path    string
	project string // whose it is; empty: the user's
}

func (at Places) dirs() []dir {
	var all []dir
	for _, path := range at.User {
		all = append(all, dir{path: path})
	}
	if project := at.Project(); project != "" {
		all = append(all, dir{filepath.Join(project, ProjectDir), project})
	}
	return all
}

// Project is the nearest directory from Dir up that has profiles; empty: there
// is none.
func (at Places) Project() string {
	if at.Dir == "" {
		return ""
	}
	for d := filepath.Clean(at.Dir); ; d = filepath.Dir(d) {
		if info, err := os.Stat(filepath.Join(d, ProjectDir)); err == nil && info.IsDir() {
			return d
		}
		if d == filepath.Dir(d) {
			return ""
		}
	}
}
