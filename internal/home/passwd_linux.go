package home

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// passwdFile and getents are where a user's entry is looked for; tests change them.
var (
	passwdFile = "/etc/passwd"
	// getent(1) by its path, because the search path is the caller's.
	getents = []string{"/usr/bin/getent", "/bin/getent"}
)

const (
	maxPasswd     = 16 << 20
	getentTimeout = 10 * time.Second
)

// ErrNoEntry reports that the user has no passwd entry. It is certain; a user
// directory that does not answer is another error.
var ErrNoEntry = errors.New("the user has no passwd entry")

// UserHome is the home directory in the passwd entry of the user we run as,
// never $HOME. Users that are not in /etc/passwd are asked for with getent(1).
// Errors: *BadPath (with ErrNoEntry inside where that is the reason), *Unusable.
func UserHome() (string, error) {
	uid := self()
	if dir, ok := knownHomes.Load(uid); ok {
		return dir.(string), nil
	}
	entry, err := passwdEntry(uid)
	if err != nil {
		return "", err
	}
	dir := string(field(entry, 5))
	if !filepath.IsAbs(dir) {
		return "", &BadPath{Var: "the passwd entry of uid " + strconv.Itoa(uid), Value: dir,
			Why: "its home directory must be an absolute path; set " + Variable}
	}
	dir = filepath.Clean(dir)
	knownHomes.Store(uid, dir)
	return dir, nil
}

// knownHomes keeps answers, never failures, for the life of the process.
var knownHomes sync.Map

func passwdEntry(uid int) ([]byte, error) {
	file, err := readBounded(passwdFile)
	if err == nil {
		if entry := findUID(file, uid); entry != nil {
			return entry, nil
		}
	}
	entry, err := askGetent(uid)
	switch {
	case err != nil:
		return nil, &Unusable{Path: "passwd entry of uid " + strconv.Itoa(uid), Err: err}
	case entry == nil:
		return nil, &noEntry{BadPath{Var: Variable, Why: "uid " + strconv.Itoa(uid) +
			" has no passwd entry, hence no home directory: set it to an absolute path"}}
	}
	return entry, nil
}

// noEntry is a *BadPath that callers can tell from the others by ErrNoEntry.
type noEntry struct{ BadPath }

func (e *noEntry) Unwrap() []error { return []error{&e.BadPath, ErrNoEntry} }

// askGetent is nil, nil when the user directories know no such user.
func askGetent(uid int) ([]byte, error) {
	for _, program := range getents {
		ctx, cancel := context.WithTimeout(context.Background(), getentTimeout)
		cmd := exec.CommandContext(ctx, program, "passwd", strconv.Itoa(uid))
		cmd.Env = []string{"LC_ALL=C"}
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		cancel()
		exit, exited := errors.AsType[*exec.ExitError](err)
		switch {
		case err == nil:
			return findUID(out, uid), nil
		case exited && exit.ExitCode() == 2: // "one or more supplied key could not be found"
			return nil, nil
		case errors.Is(err, os.ErrNotExist):
			continue
		default:
			return nil, err
		}
	}
	return nil, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPasswd))
}

// findUID is the first line of a passwd file for uid, nil if there is none.
func findUID(file []byte, uid int) []byte {
	want := strconv.Itoa(uid)
	for line := range bytes.Lines(file) {
		line = bytes.TrimRight(line, "\n")
		if len(line) > 0 && line[0] != '#' && string(field(line, 2)) == want && bytes.Count(line, []byte(":")) >= 5 {
			return line
		}
	}
	return nil
}

// field is the n-th field of a line, counted from 0.
func field(line []byte, n int) []byte {
	for ; n > 0; n-- {
		_, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return nil
		}
		line = rest
	}
	first, _, _ := bytes.Cut(line, []byte(":"))
	return first
}

// userName is the name of a uid for messages, empty when /etc/passwd has none.
func userName(uid int) string {
	file, err := readBounded(passwdFile)
	if err != nil {
		return ""
	}
	return string(field(findUID(file, uid), 0))
}
