package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/handsel/handsel/internal/cli"
	"github.com/handsel/handsel/internal/fakeagent"
	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/house/schema"
	"github.com/handsel/handsel/internal/proc"
)

// The scripts in testdata are what a user could type. `handsel` in them is this
// test binary started again under that name, or the executable that HANDSEL_BIN
// names; under the race detector it is either of two (see chooser). Each script
// has a home of its own, and these commands besides testscript's:
//
//	exits N CMD…         run CMD; its status must be exactly N, or 128+N by signal N
//	shows REGEXP CMD…    run CMD again and again until its stdout matches
//	held PATH            wait until a lock file is locked
//	freed PATH           wait until it is not
//	signal SIG FILE      signal the process that `fakeagent pid FILE` noted, by its identity
//	gone FILE            wait until that process has ended
//	settled              wait until nothing that this script started is left
//	schema NAME FILE     FILE (or stdout, stderr) has the shape of docs/reference/schemas/NAME.json
//	json FILE PATH WANT  the value at PATH (a.b.0.c; len counts) is WANT; ! json FILE PATH: there is none
//	grab VAR FILE PATH   put that value into $VAR
//	page N CMD…          run CMD: it is the next command of docs/story.md, and says what stands there (see page_test.go)
//
// and a terminal: screen, resize, keys, sees, colours and looks (see screen_test.go).
//
// Conditions: [failpoint] the executable has the seams of C16; [root] we are root.

// runner runs the tests with one stand-in agent for all of them.
type runner struct{ m *testing.M }

func (r runner) Run() int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && atOnce != "" {
		_ = flag.Set("test.parallel", atOnce)
	}
	return fakeagent.Main(r.m)
}

func TestMain(m *testing.M) {
	testscript.Main(runner{m}, map[string]func(){
		"handsel": func() {
			os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
		},
	})
}

// patience bounds every wait of a script for something that must happen.
const patience = 60 * time.Second

// mark is the variable by which what a script started is found again.
const mark = "HANDSEL_SCRIPT"

func TestScripts(t *testing.T) {
	agent, handsel := fakeagent.Build(t), os.Getenv("HANDSEL_BIN")
	if handsel == "" {
		handsel = theHandsel(t)
	}
	scripts, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts: ", err)
	}
	if seams { // the others have run in the build without the seams
		scripts = slices.DeleteFunc(scripts, func(path string) bool {
			text, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(text, []byte("[!failpoint] skip"))
		})
	}
	testscript.Run(t, testscript.Params{
		Files:     scripts,
		Deadline:  time.Now().Add(9 * time.Minute), // before the package's own, so that it says which script
		Setup:     func(env *testscript.Env) error { return setUp(env, agent, handsel) },
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "shows": shows, "held": held, "freed": freed, "signal": signalNoted, "gone": gone, "settled": settled,
			"schema": checkSchema, "json": checkJSON, "grab": grab, "page": storyPage,
			"screen": screen, "resize": resize, "keys": keys, "sees": sees, "colours": colours, "looks": looks,
		},
	})
}

func condition(name string) (bool, error) {
	switch name {
	case "failpoint":
		return seams && os.Getenv("HANDSEL_BIN") == "", nil
	case "root":
		return os.Geteuid() == 0, nil
	}
	return false, fmt.Errorf("no condition is called %q", name)
}

// setUp gives a script its home, the programs it may call, and an end.
func setUp(env *testscript.Env, agent, handsel string) error {
	bin := filepath.Join(env.WorkDir, ".bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	programs := map[string]string{"fakeagent": agent}
	for _, engine := range []string{"claude", "codex", "gemini", "pi"} {
		programs[engine] = agent
	}
	if handsel != "" {
		programs["handsel"] = handsel
	}
	for name, target := range programs {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	home := filepath.Join(env.WorkDir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	examples, err := filepath.Abs(filepath.Join("..", "..", "docs", "examples"))
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	env.Setenv("HOSTILE", "x\x1b[2J\x1b]0;p0wn\a\u202e\u009b")
	env.Setenv("GORACE", "atexit_sleep_ms=0") // a second at each end, under the race detector
	env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("HANDSEL_HOME", home)
	env.Setenv("FAKEAGENT_LIFE", "60s")
	env.Setenv(mark, env.WorkDir)
	env.Defer(func() { killAll(env.WorkDir) })
	return nil
}

// leftBy lists what a script started and has not ended.
func leftBy(work string) []proc.Marked {
	all, err := proc.FindMarked(mark)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(m proc.Marked) bool { return m.Value != work })
}

func killAll(work string) {
	for _, m := range leftBy(work) {
		if p, err := os.FindProcess(m.Pid); err == nil {
			_ = p.Kill()
		}
	}
}

// eventually waits until claim holds.
func eventually(ts *testscript.TestScript, what string, claim func() bool) {
	deadline := time.Now().Add(patience)
	for !claim() {
		if time.Now().After(deadline) {
			ts.Fatalf("%s: not after %s", what, patience)
		}
		time.Sleep(3 * time.Millisecond)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(first(args))
	if neg || len(args) < 2 || err != nil {
		ts.Fatalf("usage: exits N CMD…")
	}
	err = ts.Exec(args[1], args[2:]...)
	if got := statusOf(ts, err); got != want {
		ts.Fatalf("%s: status %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

func shows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: shows REGEXP CMD…")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	eventually(ts, strings.Join(args[1:], " ")+" shows "+args[0], func() bool {
		err := ts.Exec(args[1], args[2:]...)
		time.Sleep(15 * time.Millisecond) // there is no event for what a command will say
		return err == nil && want.MatchString(ts.ReadFile("stdout"))
	})
}

func statusOf(ts *testscript.TestScript, err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		ts.Fatalf("%v", err)
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return exit.ExitCode()
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// locked tells whether a lock file is locked. It looks as `handsel status` does.
func locked(path string) bool {
	dir, err := flock.OpenDir(filepath.Dir(path))
	if err != nil {
		return false
	}
	defer dir.Close()
	f, err := dir.Open(filepath.Base(path), flock.Look)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(f.TryLock(), flock.ErrHeld)
}

func held(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: held PATH")
	}
	eventually(ts, args[0]+" is locked", func() bool { return locked(ts.MkAbs(args[0])) })
}

func freed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freed PATH")
	}
	eventually(ts, args[0]+" is free", func() bool { return !locked(ts.MkAbs(args[0])) })
}

// noted is the first process that a stand-in noted in a file.
func noted(ts *testscript.TestScript, file string) proc.Claim {
	list, err := fakeagent.ReadPids(ts.MkAbs(file))
	ts.Check(err)
	if len(list) == 0 {
		ts.Fatalf("%s names no process", file)
	}
	id, err := proc.Identify(os.Getpid())
	ts.Check(err)
	return proc.Claim{Pid: list[0].Pid, Ticks: list[0].Ticks, Boot: id.Boot, NS: id.NS}
}

var signals = map[string]syscall.Signal{
	"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
}

func signalNoted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal TERM|KILL|INT|HUP FILE")
	}
	ts.Check(proc.Tell(noted(ts, args[1]), signals[args[0]]))
}

func gone(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: gone FILE")
	}
	claim := noted(ts, args[0])
	if neg {
		if proc.Judge(claim) == proc.Gone {
			ts.Fatalf("process %d is gone", claim.Pid)
		}
		return
	}
	eventually(ts, fmt.Sprintf("process %d is gone", claim.Pid), func() bool { return proc.Judge(claim) == proc.Gone })
}

func settled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: settled")
	}
	work := ts.Getenv("WORK")
	eventually(ts, "nothing is left", func() bool { return len(leftBy(work)) == 0 })
}

func checkSchema(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: schema NAME FILE")
	}
	ts.Check(schema.Validate(args[0], []byte(ts.ReadFile(args[1]))))
}

func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || len(args) == 2 != neg {
		ts.Fatalf("usage: json FILE PATH WANT, or ! json FILE PATH")
	}
	got, ok := valueAt(ts, args[0], args[1])
	switch {
	case neg && ok:
		ts.Fatalf("%s is %s", args[1], got)
	case neg:
	case !ok:
		ts.Fatalf("there is no %s in %s", args[1], args[0])
	case got != strings.Join(args[2:], " "):
		ts.Fatalf("%s is %s, want %s", args[1], got, strings.Join(args[2:], " "))
	}
}

func grab(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: grab VAR FILE PATH")
	}
	got, ok := valueAt(ts, args[1], args[2])
	if !ok {
		ts.Fatalf("there is no %s in %s", args[2], args[1])
	}
	ts.Setenv(args[0], got)
}

// valueAt finds a value in a JSON text. Text is given bare, the rest as JSON.
func valueAt(ts *testscript.TestScript, file, path string) (string, bool) {
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile(file)), &v); err != nil {
		ts.Fatalf("%s is not one JSON value: %v", file, err)
	}
	for key := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			if key == "len" {
				v = len(in)
				continue
			}
			next, ok := in[key]
			if !ok {
				return "", false
			}
			v = next
		case []any:
			if key == "len" {
				v = len(in)
				continue
			}
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(in) {
				return "", false
			}
			v = in[i]
		default:
			return "", false
		}
	}
	if text, ok := v.(string); ok {
		return text, true
	}
	text, err := json.Marshal(v)
	ts.Check(err)
	return string(text), true
}
