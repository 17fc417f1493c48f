// Package confine keeps an agent, and everything it starts, from writing
// outside a few places, by the kernel's own means (E6).
//
// Rules say where writing is allowed; Ruleset makes a kernel object of them;
// Enter puts it on the calling thread, from where every process forked on that
// thread inherits it and none can take it off. What this kernel cannot enforce
// in full is refused, never left out.
//
// Stopped: to create, open for writing, truncate, rename, link and remove
// files, to make directories, device files, sockets and pipes by name, outside
// the places of the rules; to mount; to trace, or write into the memory of,
// processes outside. Where the kernel can (Scoped): signals to processes
// outside, abstract sockets, and device ioctls.
//
// Not stopped: reading and executing; what was open before; mode, owner, times
// and extended attributes of files; sockets that have a path, and with them
// whatever a service behind one does on request; network addresses and UDP.
package confine

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Rules are the places where a confined process may write. Everything else can
// be read and executed as before.
type Rules struct {
	Dirs  []string // directories, with everything below them
	Files []string // single files that exist: to be written and truncated, not replaced
	// Ports are the TCP ports that may be connected to; nil narrows nothing.
	// Addresses and UDP are not narrowed either way.
	Ports []uint16
}

// Unsupported reports that this machine cannot do what the rules ask for.
// Nothing was restricted.
type Unsupported struct{ Why string }

func (e *Unsupported) Error() string {
	return "the kernel of this machine cannot confine it: " + e.Why
}

// Oldest is the least version of the kernel's interface that can keep the
// promise: truncation is in it since 3 (Linux 6.2). PortsFrom is the least that
// narrows connections, ScopedFrom the least that also stops signals and abstract
// sockets (6.7, 6.12).
const (
	Oldest     = 3
	PortsFrom  = 4
	ioctlFrom  = 5
	ScopedFrom = 6
)

// errTooWide is what every directory is that would make the promise empty.
var errTooWide = errors.New("nothing would be confined")

// Boundless refuses a working directory in which a confined agent could undo
// its own confinement or prepare the next agent's.
type Boundless struct {
	Dir string // as it was resolved
	Why string
}

func (e *Boundless) Error() string {
	return fmt.Sprintf("the working directory %q cannot be confined to: %s", e.Dir, e.Why)
}

func (e *Boundless) Unwrap() error { return errTooWide }

// Place is something a confined agent must not write to, and what it is called.
type Place struct {
	Path string
	Name string // such as "your home directory"
	// Around refuses only directories that hold it; otherwise those inside it are
	// refused as well.
	Around bool
}

// Resolve follows dir to the directory that is meant and refuses one that holds
// any of the places, or lies in one. The answer is absolute and free of links.
func Resolve(dir string, places []Place) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	if real == filepath.Dir(real) {
		return "", &Boundless{real, "it is everything there is"}
	}
	for _, p := range places {
		at := meant(p.Path)
		switch {
		case at == "":
		case holds(real, at):
			return "", &Boundless{real, "it holds " + p.Name + "; start it in the project's own directory"}
		case !p.Around && holds(at, real):
			return "", &Boundless{real, "it is part of " + p.Name}
		}
	}
	return real, nil
}

// meant follows path as far as it exists: what is not there yet could be made.
func meant(path string) string {
	if path == "" {
		return ""
	}
	rest := ""
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return filepath.Clean(path)
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// holds tells whether path is dir or below it.
func holds(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
