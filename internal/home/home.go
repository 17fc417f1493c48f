// Package home knows where every file of handsel lives, and whether that place
// is ours to use.
//
// It guarantees that what it opens was not followed through a symbolic link in
// its last component, is a regular file or directory of ours (files may be
// root's) that nobody else can write and, for files, has one name; that a FIFO
// or device planted in its place never makes us wait; that what it creates has
// mode 0700 or 0600 whatever the umask; and that a replaced file is seen whole,
// old or new, by every reader.
//
// It does not lock anything, does not guard against another process of the
// same user, and does not make files survive a power loss unless asked to. The
// components above a path's last one are trusted as the kernel resolves them.
package home

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
)

// Variable is the environment variable that moves the home (C9).
const Variable = "HANDSEL_HOME"

// Dir is a home: the directory below which everything is kept. Counting is per
// home (C6). The zero Dir is not usable.
type Dir struct {
	Path string // absolute and cleaned
	From string // "HANDSEL_HOME" or "passwd"
}

// Locate tells where the home is: $HANDSEL_HOME, else .local/state/handsel
// below the home of the user's passwd entry, never below $HOME, so that a
// process with a scrubbed environment counts in the same place (C6, C9, C111).
//
// It reads nothing but the passwd entry: whether the place exists and is ours
// is told by Ensure and Check. A value that cannot name a home is a *BadPath.
func Locate(getenv func(string) string) (Dir, error) {
	if value := getenv(Variable); value != "" {
		return named(value)
	}
	user, err := UserHome()
	if err != nil {
		return Dir{}, err
	}
	return Dir{Path: filepath.Join(user, ".local", "state", "handsel"), From: "passwd"}, nil
}

func named(value string) (Dir, error) {
	bad := func(why string) (Dir, error) {
		return Dir{}, &BadPath{Var: Variable, Value: value, Why: why}
	}
	if !filepath.IsAbs(value) {
		return bad("it must be an absolute path, so that every process means the same place")
	}
	clean := filepath.Clean(value)
	if filepath.Dir(clean) == clean {
		return bad("it must not be the root directory")
	}
	return Dir{Path: clean, From: Variable}, nil
}

// The places below a home (C10).

// Leases holds the slots, one directory per pool.
func (d Dir) Leases() string { return filepath.Join(d.Path, "leases") }

// Waiting holds the tickets of waiting processes.
func (d Dir) Waiting() string { return filepath.Join(d.Path, "waiting") }

// Runs holds the run directories, one directory per UTC day.
func (d Dir) Runs() string { return filepath.Join(d.Path, "runs") }

// Holds has one small file per hold, drain, park or pause.
func (d Dir) Holds() string { return filepath.Join(d.Path, "holds") }

// Lanes holds the lane locks with their records.
func (d Dir) Lanes() string { return filepath.Join(d.Path, "lanes") }

// Queue holds the entries of waiting lanes.
func (d Dir) Queue() string { return filepath.Join(d.Path, "queue") }

// Log holds the dispatcher's log.
func (d Dir) Log() string { return filepath.Join(d.Path, "log") }

// Shims holds what stands before the engines on PATH.
func (d Dir) Shims() string { return filepath.Join(d.Path, "shims") }

// BadPath reports a value that cannot name a place. Nothing was started; the
// value has to be changed (78).
type BadPath struct {
	Var   string // the variable, or what else the value came from
	Value string
	Why   string
}

func (e *BadPath) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Var, e.Why)
	}
	return fmt.Sprintf("%s=%s: %s", e.Var, strconv.QuoteToASCII(e.Value), e.Why)
}

// Untrusted reports a place that is not ours to trust: a symbolic link, another
// owner, writable by others, more than one name, or not the kind of file that
// belongs there (77). Why names owner and mode where they matter.
type Untrusted struct {
	Path string
	Why  string
}

func (e *Untrusted) Error() string {
	return fmt.Sprintf("%s is not ours to trust: %s", strconv.QuoteToASCII(e.Path), e.Why)
}

// NetworkFS reports a home on a network file system, where locks do not bind
// every process that sees the files (78, C087). Nothing was created.
type NetworkFS struct {
	Path string
	Kind string // the file system's name, such as nfs
}

func (e *NetworkFS) Error() string {
	return fmt.Sprintf("%s is on a network file system (%s), whose locks do not bind the machine: set %s to a directory on a local disk",
		strconv.QuoteToASCII(e.Path), e.Kind, Variable)
}

// Unusable reports a place that is ours but cannot be used as it is: a
// read-only file system, a full disk, a missing parent, an unreadable file (125).
type Unusable struct {
	Path string
	Err  error
}

func (e *Unusable) Error() string {
	return fmt.Sprintf("%s cannot be used: %v", strconv.QuoteToASCII(e.Path), e.Err)
}

func (e *Unusable) Unwrap() error { return e.Err }

var (
	// ErrTooLarge reports a file larger than what its reader accepts.
	ErrTooLarge = errors.New("the file is larger than it may be")

	// ErrFull reports an Append that would grow the file beyond its bound.
	// Nothing was written.
	ErrFull = errors.New("the file has reached its largest size")
)

// notExist is fs.ErrNotExist with the path that is missing; it passes through
// every function of this package unchanged, because absence is an answer.
func notExist(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}
