package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// verdict is what became of a fault.
type verdict int

const (
	caught           verdict = iota
	hung                     // the tests did not end, which is noticed as well
	survived                 // no test noticed
	unbuilt                  // the compiler noticed
	explained                // not run: no test can notice
	wronglyExplained         // explained, and yet a test noticed
	broken                   // it could not be found out
)

func (v verdict) String() string {
	return [...]string{"caught", "hung", "SURVIVED", "did not build", "explained", "EXPLAINED BUT CAUGHT", "BROKEN"}[v]
}

// result is a fault and its verdict.
type result struct {
	*fault
	verdict verdict
	by      string // the test that noticed
	output  string
	took    time.Duration
}

// skipped are directories that no test needs.
var skipped = []string{".git", ".cache", "bin", "dist", "node_modules"}

// copyTree copies what a build and its tests need.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != from {
			return nil // somebody is at work there
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, rel); {
		case d.IsDir() && slices.Contains(skipped, d.Name()) && path != from:
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case d.Type().IsRegular():
			return copyFile(path, target)
		}
		return nil
	})
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

// hunter runs tests in one copy of the tree.
type hunter struct {
	o       options
	root    string // the copy
	scratch string // beside it
	self    string
	env     []string
}

// newHunter prepares what all runs share: an environment that leads nowhere
// but into the scratch directory, and the stand-in agent, built once.
func newHunter(ctx context.Context, o options, root string) (*hunter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &hunter{o: o, root: root, scratch: filepath.Dir(root), self: self}
	text, err := exec.CommandContext(ctx, "go", "env", "-json", "GOCACHE", "GOMODCACHE", "GOPATH", "GOTOOLCHAIN", "GOPROXY", "GOSUMDB").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	var env map[string]string
	if err := json.Unmarshal(text, &env); err != nil {
		return nil, err
	}
	for key, value := range env {
		h.env = append(h.env, key+"="+value)
	}
	h.env = append(h.env, "PATH="+os.Getenv("PATH"), "CGO_ENABLED=0", "LANG=C.UTF-8", "TERM=xterm")
	const standIn = "internal/fakeagent/cmd/fakeagent"
	if _, err := os.Stat(filepath.Join(root, standIn)); err == nil {
		out := filepath.Join(h.scratch, "fakeagent")
		c := h.command(ctx, h.scratch, "", "go", "build", "-ldflags=-s -w", "-o", out, "./"+standIn)
		if text, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the stand-in agent: %w\n%s", err, text)
		}
		h.env = append(h.env, "FAKEAGENT_BIN="+out)
	}
	return h, nil
}

// command is a command at the root of the copy, with home below dir. With an
// overlay, all that it or its children build has the fault in it.
func (h *hunter) command(ctx context.Context, dir, overlay, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = h.root
	c.Env = append(slices.Clone(h.env), "HOME="+dir, "TMPDIR="+dir)
	if overlay != "" {
		c.Env = append(c.Env, "GOFLAGS=-overlay="+overlay)
	}
	c.WaitDelay = 10 * time.Second
	return c
}

// control runs all checks without a fault.
func (h *hunter) control(ctx context.Context, checks []check) error {
	dir, err := openTemp(h.scratch, "c")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, c := range checks {
		start := time.Now()
		v, by, output := h.try(ctx, dir, "", c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if v != survived {
			return fmt.Errorf("%s: %v, %s\n%s", c, v, by, output)
		}
		if strings.Contains(output, "no tests to run") {
			return fmt.Errorf("%s matches no test", c)
		}
		fmt.Printf("control passed  %s  %.1fs\n", c, time.Since(start).Seconds())
	}
	return nil
}

// all runs the faults, so many at a time, and prints each as it is done.
func (h *hunter) all(ctx context.Context, faults []*fault) []result {
	results := make([]result, len(faults))
	next := make(chan int)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range max(h.o.jobs, 1) {
		workers.Go(func() {
			for i := range next {
				r := h.one(ctx, faults[i])
				if ctx.Err() != nil {
					r.verdict = broken
				}
				mu.Lock()
				results[i] = r
				h.show(r)
				mu.Unlock()
			}
		})
	}
	for i := range faults {
		next <- i
	}
	close(next)
	workers.Wait()
	return results
}

func (h *hunter) show(r result) {
	if r.verdict == explained {
		return
	}
	by := ""
	if r.by != "" {
		by = "  by " + r.by
	}
	fmt.Printf("%-14s %s (%s)%s  %.1fs\n", r.verdict, r.id, r.place, by, r.took.Seconds())
	if r.verdict == broken || h.o.verbose && (r.verdict == survived || r.verdict == unbuilt) {
		fmt.Println(r.output)
	}
}

// one plants a fault and asks its checks in turn.
func (h *hunter) one(ctx context.Context, f *fault) result {
	r := result{fault: f, verdict: survived}
	if f.explained != "" && !h.o.all || ctx.Err() != nil {
		r.verdict = explained
		return r
	}
	start := time.Now()
	defer func() { r.took = time.Since(start) }()
	dir, err := openTemp(h.scratch, "m")
	if err == nil {
		defer os.RemoveAll(dir)
		var overlay string
		if overlay, err = h.overlay(dir, f); err == nil {
			for _, c := range f.checks {
				if r.verdict, r.by, r.output = h.try(ctx, dir, overlay, c); r.verdict != survived {
					break
				}
			}
		}
	}
	switch {
	case err != nil:
		r.verdict, r.output = broken, err.Error()
	case f.explained == "":
	case r.verdict == caught, r.verdict == hung:
		r.verdict = wronglyExplained
	case r.verdict == survived:
		r.verdict = explained
	}
	r.took = time.Since(start)
	return r
}

// openTemp makes a directory that other users get through, as tests play them.
func openTemp(dir, name string) (string, error) {
	path, err := os.MkdirTemp(dir, name)
	if err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o755)
}

// overlay writes the files of a fault, and what tells the compiler of them.
func (h *hunter) overlay(dir string, f *fault) (string, error) {
	replace := map[string]string{}
	for file, text := range f.content {
		path := fmt.Sprintf("%s/%d-%s", dir, len(replace), filepath.Base(file))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(h.root, file)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return dir + "/overlay.json", os.WriteFile(dir+"/overlay.json", text, 0o644)
}

// try builds one package's tests and runs them.
func (h *hunter) try(ctx context.Context, dir, overlay string, c check) (v verdict, by, output string) {
	binary := filepath.Join(dir, "t")
	args := []string{"test", "-c", "-vet=off", "-o", binary}
	if c.tags != "" {
		args = append(args, "-tags", c.tags)
	}
	build := h.command(ctx, dir, overlay, "go", append(args, "./"+c.dir)...)
	if text, err := build.CombinedOutput(); err != nil {
		if bytes.Contains(text, []byte(".go:")) {
			return unbuilt, "", string(text)
		}
		return broken, "", fmt.Sprintf("%v\n%s", err, text)
	}
	defer os.Remove(binary)
	v, by, output = h.runTests(ctx, dir, overlay, binary, c.args(), c)
	if v != caught || overlay == "" || strings.HasPrefix(by, panicked) {
		return v, by, output
	}
	// A test that fails now and then on a busy machine has noticed nothing: it
	// must fail again, by itself or, as it may need the others, among them.
	top, _, _ := strings.Cut(by, "/")
	alone := c
	alone.run = "^" + top + "$"
	if again, _, _ := h.runTests(ctx, dir, overlay, binary, alone.args(), c); top != "" && (again == caught || again == hung) {
		return v, by, output
	}
	return h.runTests(ctx, dir, overlay, binary, c.args(), c)
}

// grace is what a test binary gets to report its own time limit.
const grace = 15 * time.Second

func (h *hunter) runTests(ctx context.Context, dir, overlay, binary string, args []string, c check) (v verdict, by, output string) {
	temp, err := openTemp(dir, "h")
	if err != nil {
		return broken, "", err.Error()
	}
	defer os.RemoveAll(temp)
	ctx, cancel := context.WithTimeout(ctx, c.timeout+grace)
	defer cancel()
	argv := append([]string{initWord, h.root, binary}, args...)
	run := h.command(ctx, temp, overlay, h.self, argv...)
	run.Dir = filepath.Join(h.root, c.dir)
	run.SysProcAttr = apart(h.o.bare)
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	out := &tail{}
	run.Stdout, run.Stderr = out, out
	err = run.Run()
	output = out.String()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil || strings.Contains(output, "panic: test timed out after"):
		return hung, "", output
	case err == nil:
		return survived, "", output
	case !errors.As(err, &exit), exit.ExitCode() == initTrouble:
		return broken, "", fmt.Sprintf("%v\n%s", err, output)
	}
	return caught, firstFailure(output), output
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: (.*)`)

// panicked stands before what a test binary said that ended without naming a
// test that failed.
const panicked = "a panic: "

// firstFailure names the innermost test that failed first.
func firstFailure(output string) string {
	best := ""
	for _, m := range failure.FindAllStringSubmatch(output, -1) {
		name := m[1]
		if name == "" {
			if best == "" {
				return panicked + m[2]
			}
			break
		}
		if best != "" && !strings.HasPrefix(name, best+"/") {
			break
		}
		best = name
	}
	return best
}

// tail keeps the last part of what is written to it: a broken program may write
// without end.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailSize = 128 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*tailSize {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-tailSize:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
