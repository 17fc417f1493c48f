package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
)

//go:embed stamp/stamp.c
var stampSource []byte

// compile makes a program of a C source.
func compile(ctx context.Context, dir, name string, text []byte) (string, error) {
	if err := missing([]string{"gcc"}); err != nil {
		return "", err
	}
	source, program := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return "", err
	}
	said, err := exec.CommandContext(ctx, "gcc", "-O2", "-static", "-o", program, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile %s.c: %w\n%s", name, err, said)
	}
	return program, nil
}

// buildGo makes a program of a Go source that needs nothing else.
func buildGo(ctx context.Context, dir, name, text string) (string, error) {
	program := filepath.Join(dir, name)
	files := map[string]string{"main.go": text, "go.mod": "module " + name + "\n"}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, text)
	}
	return program, nil
}

// dir hands out a directory that nothing was in before: on some file systems
// one from which thousands of files were removed stays slow for minutes.
func (b *bench) dir() string {
	b.made++
	path := filepath.Join(b.scratch, strconv.Itoa(b.made))
	if err := os.Mkdir(path, 0o700); err != nil {
		panic(err) // the scratch directory is ours alone
	}
	return path
}

// home hands out a home that does not exist yet.
func (b *bench) home() string { return filepath.Join(b.dir(), "home") }

// settings are the variables of a home and a cap of all agents; 0 = no cap.
func settings(home string, limit int) map[string]string {
	vars := map[string]string{"HANDSEL_HOME": home}
	if limit > 0 {
		vars["HANDSEL_MAX_AGENTS"] = strconv.Itoa(limit)
	}
	return vars
}

// environ is our environment with these settings and no other of handsel's.
func environ(vars map[string]string) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "HANDSEL_") })
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// run is `handsel run -- argv` in a home.
func (b *bench) run(ctx context.Context, home string, limit int, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.handsel, append([]string{"run", "--"}, argv...)...)
	cmd.Env = environ(settings(home, limit))
	return cmd
}

// python is the program with the polling scheme, counting in dir.
func (b *bench) python(ctx context.Context, dir string, limit int, argv ...string) *exec.Cmd {
	words := append([]string{b.peer, dir, "hold", "all,heavy", strconv.Itoa(limit), "--"}, argv...)
	return exec.CommandContext(ctx, b.interpreter, words...)
}

// findInterpreter asks for the interpreter itself: what is first on PATH may be
// a script that chooses one, and takes longer than all the rest.
func findInterpreter(ctx context.Context) (string, error) {
	if err := missing([]string{"python3"}); err != nil {
		return "", err
	}
	path, err := exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return "", fmt.Errorf("python3: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
}

// open opens a home as a Go program does.
func open(home string, limit int) (*handsel.Home, error) {
	vars := settings(home, limit)
	return handsel.OpenWith(func(name string) string { return vars[name] })
}

// monotonic is the clock that the stand-in reads.
func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}

// event is a line of a stand-in: kind S its start, E its end. K is a line of
// ours: we are about to kill it.
type event struct {
	kind, id string
	at       int64
	pid      int
}

// readLog reads what stand-ins noted, in the order of their clock. A log that
// is not there is empty; a line under way is left out.
func readLog(path string) ([]event, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var events []event
	for line := range strings.Lines(string(text)) {
		var e event
		if !strings.HasSuffix(line, "\n") {
			break
		}
		if _, err := fmt.Sscan(line, &e.kind, &e.id, &e.at, &e.pid); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		events = append(events, e)
	}
	slices.SortStableFunc(events, func(x, y event) int { return int(x.at - y.at) })
	return events, nil
}

// find is the first event of a kind and id.
func find(events []event, kind, id string) (event, bool) {
	i := slices.IndexFunc(events, func(e event) bool { return e.kind == kind && e.id == id })
	if i < 0 {
		return event{}, false
	}
	return events[i], true
}

// most is how many stand-ins of a log were alive at once.
func most(events []event) (peak int) {
	alive := map[int]bool{}
	for _, e := range events {
		if e.kind == "S" {
			alive[e.pid] = true
		} else {
			delete(alive, e.pid)
		}
		peak = max(peak, len(alive))
	}
	return peak
}

// gaps are the times from each end to the start after it, in a log of one
// stand-in at a time.
func gaps(events []event) (list []time.Duration) {
	ended := int64(0)
	for _, e := range events {
		switch {
		case e.kind == "E":
			ended = e.at
		case ended != 0:
			list = append(list, time.Duration(e.at-ended))
		}
	}
	return list
}

// logged waits until a stand-in has noted an event.
func logged(ctx context.Context, path, kind, id string) (e event, err error) {
	err = until(ctx, time.Minute, func() (bool, error) {
		events, err := readLog(path)
		found := false
		e, found = find(events, kind, id)
		return found, err
	})
	return e, err
}

// queue waits until n starts stand in a home's line.
func queue(ctx context.Context, home string, n int) error {
	return until(ctx, time.Minute, func() (bool, error) {
		standing, err := inLine(home)
		return standing >= n, err
	})
}

// inLine counts the tickets in a home's line.
func inLine(home string) (n int, err error) {
	entries, err := os.ReadDir(filepath.Join(home, "waiting"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".ticket") && !strings.HasPrefix(e.Name(), ".") {
			n++
		}
	}
	return n, err
}

var errTooLong = errors.New("it does not come about")

// until looks every 0.3 ms whether something has come about.
func until(ctx context.Context, patience time.Duration, come func() (bool, error)) error {
	for end := time.Now().Add(patience); ; time.Sleep(300 * time.Microsecond) {
		ok, err := come()
		if err == nil {
			err = ctx.Err()
		}
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return errTooLong
		}
	}
}

// startAll starts commands one after the other. When one cannot be started,
// those before it are killed.
func startAll(cmds []*exec.Cmd) error {
	for i, cmd := range cmds {
		if err := cmd.Start(); err != nil {
			killAll(cmds[:i])
			return err
		}
	}
	return nil
}

// waitAll waits for all, and returns what went wrong.
func waitAll(cmds []*exec.Cmd) error {
	var errs []error
	for _, cmd := range cmds {
		errs = append(errs, cmd.Wait())
	}
	return errors.Join(errs...)
}

// killAll ends commands that are of no more use. Those that were waited for
// are left alone.
func killAll(cmds []*exec.Cmd) {
	for _, cmd := range cmds {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
		}
	}
	for _, cmd := range cmds {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Wait()
		}
	}
}
