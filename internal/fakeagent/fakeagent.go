// Package fakeagent is a stand-in for an agent, imported by tests only.
//
// Build compiles one static executable that behaves as its words say. Steps
// follow each other, joined by the word then:
//
//	fakeagent pid F then tree T then sleep 60s
//
// A step that fails ends it with status 99 and one line on stderr; otherwise
// it exits 0. Files are created as needed and appended to in single writes.
//
//	sleep D                  sleeps; D is Go's or whole seconds
//	touch F…                 creates files
//	exit N                   ends with N
//	kill SIG                 ends by that signal, default action
//	print W…   warn W…       one line on stdout, on stderr
//	log F [id ID] [hold D]   "S id ns pid engine", holds, "E …" (see ReadLog); ID is
//	                         HANDSEL_RUN, else the pid
//	pid F [NAME]             "name pid ticks" (see ReadPids)
//	until F [N]              waits until F has N lines
//	stdin                    reads to the end, prints bytes and SHA-256
//	yes N [stderr]           writes exactly N bytes
//	args W…                  prints each quoted, one a line; takes all words (C109)
//	env [NAME…]              prints the environment, or those variables, values quoted
//	cwd   ids                working directory; pid, parent, group and session
//	fds                      inherited descriptors with their targets
//	tty                      group, foreground or not, session and size, or "no tty: why"
//	tree F [NAME…]           leaves processes behind, each noted in F as by pid:
//	                           shell            background child of a shell that has ended
//	                           daemon           own session
//	                           scrubbed         double fork, own session, no environment
//	                           stubborn         ignores HUP INT QUIT TERM, our group
//	                           stubborn-daemon  the same, own session
//	                           stdout           own session, holds stdout and stderr open
//	                           stopped          own session, stopped
//	                           nested-shell     a shell's child in the shell's own session
//	daemon F                 leaves one process behind: double fork, environment kept
//	orphan-run O CMD…        double fork, own session, no environment, then becomes
//	                         CMD; its output goes to O
//	orphan-status O CMD…     the same with CMD as a child; O ends with "status N"
//	become CMD…              execs CMD
//	signals F [N]            notes "ready pid ns", then each signal "SIGX ns"; ends after N
//	stubborn [F]             ignores HUP INT QUIT TERM; notes itself in F
//
// Called by the name of an engine (claude, codex, gemini, agy, pi; see As) it
// takes any command line: --version answers, otherwise the steps are the words
// of FAKEAGENT, and without them it says one line. Whatever stays behind ends
// by itself after FAKEAGENT_LIFE (2m), except that a cleared environment
// clears that, too.
//
// The package imports no other room, so that every room's tests can use it.
package fakeagent

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Prebuilt names the executable to use instead of building one, for tests
// that run as a user who has no compiler.
const Prebuilt = "FAKEAGENT_BIN"

// shared is where a whole test binary keeps its executable, if its TestMain
// calls Main.
var shared struct {
	sync.Mutex
	dir, path string
}

// Main runs the tests of a package with one executable for all of them, and
// removes it afterwards: os.Exit(fakeagent.Main(m)) in TestMain. Without it
// each call of Build compiles anew.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fakeagent")
	if err == nil {
		err = os.Chmod(dir, 0o755) // other users run it as well
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "directory for fakeagent:", err)
		return 1
	}
	shared.Lock()
	shared.dir = dir
	shared.Unlock()
	status := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "remove fakeagent:", err)
	}
	return status
}

// Build returns the path of the executable, readable by everybody.
func Build(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(Prebuilt); path != "" {
		return path
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.path != "" {
		return shared.path
	}
	dir := shared.dir
	if dir == "" {
		dir = t.TempDir()
	}
	path, err := compile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if shared.dir != "" {
		shared.path = path
	}
	return path
}

func compile(dir string) (string, error) {
	_, here, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(here) {
		return "", fmt.Errorf("this test binary does not know its source: set %s", Prebuilt)
	}
	path := filepath.Join(dir, "fakeagent")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/fakeagent")
	build.Dir = filepath.Dir(here)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fakeagent: %w\n%s", err, text)
	}
	return path, os.Chmod(path, 0o755)
}

// As links the executable under another name, such as an engine's, in a
// directory of this test, and returns the link.
func As(t testing.TB, name string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(Build(t), link); err != nil {
		t.Fatal(err)
	}
	return link
}

// Process is a process of a stand-in as it noted itself.
type Process struct {
	Name  string
	Pid   int
	Ticks uint64 // its start, in the kernel's own unit
}

// ReadPids reads what the steps pid, tree, daemon and stubborn noted. A file
// that is not there has nobody in it.
func ReadPids(path string) ([]Process, error) {
	var list []Process
	err := eachLine(path, 3, func(f []string) (err error) {
		p := Process{Name: f[0]}
		if p.Pid, err = strconv.Atoi(f[1]); err != nil {
			return err
		}
		p.Ticks, err = strconv.ParseUint(f[2], 10, 64)
		list = append(list, p)
		return err
	})
	return list, err
}

// Event is one line of a log that stand-ins write themselves.
type Event struct {
	Kind   string // S start, E end, K: somebody else is about to end it
	ID     string
	At     int64 // CLOCK_MONOTONIC in nanoseconds
	Pid    int
	Engine string
}

// ReadLog reads the log of the step log, in the order in which it was written.
func ReadLog(path string) ([]Event, error) {
	var list []Event
	err := eachLine(path, 5, func(f []string) (err error) {
		e := Event{Kind: f[0], ID: f[1], Engine: f[4]}
		if e.At, err = strconv.ParseInt(f[2], 10, 64); err != nil {
			return err
		}
		e.Pid, err = strconv.Atoi(f[3])
		list = append(list, e)
		return err
	})
	return list, err
}

// Append writes one event to a log. Whoever is about to kill a stand-in, or
// its holder together with it, notes K first: from then on its life proves
// nothing.
func Append(path string, e Event) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %d %d %s\n", e.Kind, e.ID, e.At, e.Pid, e.Engine)
	return errors.Join(err, f.Close())
}

// eachLine takes a file to which others may be appending. Its last line is not
// there before its newline: a look can meet a write of which a part is in place.
func eachLine(path string, fields int, use func([]string) error) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	for number, line := range strings.Split(strings.TrimSuffix(string(whole), "\n"), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != fields {
			return fmt.Errorf("%s:%d: %q has %d fields, not %d", path, number+1, line, len(f), fields)
		}
		if err := use(f); err != nil {
			return fmt.Errorf("%s:%d: %w", path, number+1, err)
		}
	}
	return nil
}

// Peak is the largest number of stand-ins of a log that were certainly alive
// at one moment, and that moment. A life lasts from S to E or K; what has
// neither is still alive.
func Peak(events []Event) (most int, at int64) {
	alive := map[int]bool{}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	for _, e := range events {
		if e.Kind != "S" {
			delete(alive, e.Pid)
			continue
		}
		alive[e.Pid] = true
		if len(alive) > most {
			most, at = len(alive), e.At
		}
	}
	return most, at
}
