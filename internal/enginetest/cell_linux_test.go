//go:build engines

package enginetest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/modelstub"
)

const prompt = "Run the scripted command, then say done."

// patience is how long one engine may take for one turn. The slowest measured
// needs some 5 s; the rest is room for a loaded machine.
const patience = 60 * time.Second

// cell is one engine in one scenario: its own home, working directory,
// temporary directory, handsel home and stub.
type cell struct {
	t      *testing.T
	engine engine
	user   *syscall.Credential // nil: as we are
	stub   *modelstub.Stub

	home, work, tmp, state string
	config                 string // HANDSEL_CONFIG; empty: none
	patience               time.Duration
	mark                   string // stands in the environment of all this cell starts
}

// ended is how a command of a cell ended.
type ended struct {
	code           int // as a shell shows it: 128+n for a signal
	signal         syscall.Signal
	stdout, stderr string
	took           time.Duration
}

// newCell makes the directories below the repository's ignored cache: claude
// and codex refuse helper files below the system's temporary directory.
func newCell(t *testing.T, e engine, user *syscall.Credential, script ...modelstub.Step) *cell {
	t.Helper()
	stub, err := modelstub.Start(script...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stub.Close() })
	dir := scratch(t)
	c := &cell{
		t: t, engine: e, user: user, stub: stub, patience: patience,
		home: filepath.Join(dir, "home"), work: filepath.Join(dir, "work"),
		tmp: filepath.Join(dir, "tmp"), state: filepath.Join(dir, "state"),
		mark: "ENGINETEST_CELL=" + rand.Text(),
	}
	t.Cleanup(c.sweep)
	for _, one := range []string{c.home, c.work, c.tmp} {
		c.must(os.Mkdir(one, 0o700))
	}
	if e.files != nil {
		for name, content := range e.files(stub.URL) {
			path := filepath.Join(c.home, name)
			c.must(os.MkdirAll(filepath.Dir(path), 0o700))
			c.must(os.WriteFile(path, []byte(content), 0o600))
		}
	}
	c.must(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		c.give(path)
		return err
	}))
	return c
}

// give makes a path the cell's user's.
func (c *cell) give(path string) {
	c.t.Helper()
	if c.user != nil {
		c.must(os.Lchown(path, int(c.user.Uid), int(c.user.Gid)))
	}
}

// write puts a file into the working directory.
func (c *cell) write(name, content string) {
	c.t.Helper()
	path := filepath.Join(c.work, name)
	c.must(os.WriteFile(path, []byte(content), 0o600))
	c.give(path)
}

// scratch is a directory of this test below the repository's .cache.
func scratch(t *testing.T) string {
	t.Helper()
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(cache, "cell-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (c *cell) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// environment is everything the command sees; nothing is inherited but PATH.
func (c *cell) environment() []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb", "SHELL=/bin/sh",
		"HOME=" + c.home, "TMPDIR=" + c.tmp, "NO_COLOR=1", c.mark,
		"HANDSEL_HOME=" + c.state,
		"HANDSEL_MAX_AGENTS=2", "HANDSEL_MAX_AGENTS_HEAVY=2",
		"HANDSEL_MAX_AGENTS_" + strings.ToUpper(c.engine.pool) + "=1",
	}
	if c.config != "" {
		env = append(env, "HANDSEL_CONFIG="+c.config)
	}
	if c.engine.env != nil {
		env = append(env, c.engine.env(c.stub.URL)...)
	}
	return env
}

// start starts prefix and the engine with args. Output goes to files, so that
// a survivor that holds one cannot delay the verdict.
func (c *cell) start(prefix []string, args ...string) *running {
	c.t.Helper()
	argv := append(append([]string{}, prefix...), c.engine.path(c.t))
	return c.launch(append(argv, args...))
}

// running is a command that has been started.
type running struct {
	c     *cell
	cmd   *exec.Cmd
	out   *os.File
	err   *os.File
	since time.Time
	stop  context.CancelFunc
}

func (c *cell) launch(argv []string) *running {
	c.t.Helper()
	in := c.stdin()
	defer in.Close()
	ctx, stop := context.WithTimeout(context.Background(), c.patience)
	r := &running{c: c, out: c.file("stdout"), err: c.file("stderr"), stop: stop, since: time.Now()}
	r.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	r.cmd.Dir, r.cmd.Env = c.work, c.environment()
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = in, r.out, r.err
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: c.user}
	c.must(r.cmd.Start())
	return r
}

// stdin is the prompt for engines that read it there, else nothing.
func (c *cell) stdin() *os.File {
	c.t.Helper()
	if !c.engine.stdin {
		null, err := os.Open(os.DevNull)
		c.must(err)
		return null
	}
	in := c.file("stdin")
	_, err := in.WriteString(prompt + "\n")
	c.must(err)
	_, err = in.Seek(0, 0)
	c.must(err)
	return in
}

// wait returns when the command itself has ended.
func (r *running) wait() ended {
	r.c.t.Helper()
	err := r.cmd.Wait()
	r.stop()
	took := time.Since(r.since)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		r.c.t.Fatal(err)
	}
	end := ended{stdout: r.c.read(r.out), stderr: r.c.read(r.err), took: took}
	status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	end.code = status.ExitStatus()
	if status.Signaled() {
		end.signal = status.Signal()
		end.code = 128 + int(end.signal)
	}
	if took >= r.c.patience {
		r.c.t.Errorf("%s ended by us after %s", strings.Join(r.cmd.Args, " "), took)
	}
	return end
}

// file is a fresh file beside the cell's directories, open for both.
func (c *cell) file(name string) *os.File {
	c.t.Helper()
	file, err := os.CreateTemp(filepath.Dir(c.home), name+"-")
	c.must(err)
	return file
}

func (c *cell) read(file *os.File) string {
	c.t.Helper()
	defer file.Close()
	body, err := os.ReadFile(file.Name())
	c.must(err)
	return string(body)
}

// run is start and wait.
func (c *cell) run(prefix []string, args ...string) ended {
	c.t.Helper()
	return c.start(prefix, args...).wait()
}

// sweep ends what is left, by identity: the children's own cleanup does it for
// those without this cell's mark.
func (c *cell) sweep() {
	for _, one := range withEnv(c.t, c.mark) {
		one.end()
	}
}

// describe is what to print when a cell has failed.
func (c *cell) describe(end ended) string {
	var b strings.Builder
	b.WriteString("\nstdout: " + clip(end.stdout) + "\nstderr: " + clip(end.stderr) + "\nrequests:")
	for _, one := range c.stub.Log() {
		b.WriteString("\n  " + string(one.API) + " " + one.Method + " " + one.Path)
		b.WriteString(" tools=" + clip(strings.Join(one.Tools, ",")))
		for _, result := range one.Results {
			b.WriteString(" result=" + clip(result.Text))
		}
	}
	return b.String()
}

func clip(s string) string {
	const most = 3000
	if len(s) > most {
		return s[:most/2] + " … " + s[len(s)-most/2:]
	}
	return s
}
