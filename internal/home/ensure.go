package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/handsel/handsel/internal/machine"
)

// kindOf asks which file system holds a path; tests put another world here.
var kindOf = machine.Kind

// Ensure makes the home usable: it exists, is a directory of ours with mode
// 0700 when we made it, not writable by others, not a symbolic link, and not on
// a network file system. Everything is judged before anything is created, and
// called on a home that is fine it costs two system calls.
//
// Errors: *Untrusted, *NetworkFS, *Unusable. An unknown file system is not an
// error; see Unknown.
func (d Dir) Ensure() error {
	err := d.Check()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if d.From == "passwd" {
		if err := d.userHomeExists(); err != nil {
			return err
		}
	}
	missing, above := missingBelow(d.Path)
	if err := refuseNetwork(d.Path, above); err != nil {
		return err
	}
	for _, path := range missing {
		if err := makeDir(path); err != nil {
			return err
		}
	}
	return Trust(d.Path, true)
}

// Check judges an existing home as Ensure does and changes nothing. A missing
// home is fs.ErrNotExist, which for a looking verb means "nothing there yet".
func (d Dir) Check() error {
	if err := Trust(d.Path, true); err != nil {
		return err
	}
	return refuseNetwork(d.Path, d.Path)
}

// Unknown says that the file system that holds, or would hold, the home is not
// one we know: a warning to show, not a reason to stop (C087). It is empty
// when the kind is known or cannot be asked for.
func (d Dir) Unknown() string {
	_, above := missingBelow(d.Path)
	kind, err := kindOf(above)
	if err != nil || kind.Known || kind.Name == "" {
		return ""
	}
	return fmt.Sprintf("%q is on a file system of unknown type %s; whether its locks bind the machine is not known", d.Path, kind.Name)
}

// Local refuses, as *NetworkFS, a path on a network file system, asking for its
// nearest existing ancestor. For a place outside the home, such as leases_dir.
func Local(path string) error {
	_, above := missingBelow(path)
	return refuseNetwork(path, above)
}

// userHomeExists refuses to create a user's home itself: where the passwd entry
// names a directory that is not there, what we would create as root is a trap.
func (d Dir) userHomeExists() error {
	user := strings.TrimSuffix(d.Path, filepath.Join(string(filepath.Separator), ".local", "state", "handsel"))
	info, err := os.Stat(user)
	switch {
	case err != nil:
		return &Unusable{Path: user, Err: fmt.Errorf("the home directory of the passwd entry: %w", bare(err))}
	case !info.IsDir():
		return &Unusable{Path: user, Err: errors.New("the home directory of the passwd entry is not a directory")}
	}
	return nil
}

// missingBelow splits path into the directories that do not exist, outermost
// first, and the nearest ancestor that does.
func missingBelow(path string) (missing []string, above string) {
	for {
		if _, err := os.Lstat(path); err == nil || filepath.Dir(path) == path {
			return missing, path
		}
		missing = append([]string{path}, missing...)
		path = filepath.Dir(path)
	}
}

func refuseNetwork(path, asked string) error {
	kind, err := kindOf(asked)
	if err != nil {
		return &Unusable{Path: path, Err: bare(err)}
	}
	if kind.Network {
		return &NetworkFS{Path: path, Kind: kind.Name}
	}
	return nil
}

// EnsureDir makes sure that path is a directory of ours with mode 0700, creating
// its last component only. For the directories below a home.
func EnsureDir(path string) error {
	err := Trust(path, true)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDir(path); err != nil {
		return err
	}
	return Trust(path, true)
}

// makeDir creates one directory with mode 0700 whatever the umask. One that
// appeared meanwhile is left as it is.
func makeDir(path string) error {
	switch err := os.Mkdir(path, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return &Unusable{Path: path, Err: bare(err)}
	}
	return repairMode(path)
}

// bare strips the operation and path the os package puts around an error, since
// our own errors name the path already.
func bare(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
