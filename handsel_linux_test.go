package handsel_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/flock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open is a home of the test's own under the given variables.
func open(t *testing.T, vars map[string]string) *handsel.Home {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	h, err := handsel.OpenWith(func(name string) string {
		if name == "HANDSEL_HOME" {
			return dir
		}
		return vars[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func openFDs(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// The library runs an agent without the command line, and leaves neither a
// descriptor nor a goroutine of its own behind (goleak, TestMain).
func TestRunLeavesNothingInTheHostProgram(t *testing.T) {
	h := open(t, map[string]string{"HANDSEL_MAX_AGENTS": "1"})
	run := func(argv ...string) *handsel.Outcome {
		t.Helper()
		out, err := h.Run(t.Context(), argv, handsel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run("true")
	before := openFDs(t)
	if out := run("sh", "-c", "exit 7"); out.ExitCode != 7 || out.Outcome.Outcome != "exited" {
		t.Errorf("outcome %+v", out.Outcome)
	}
	if out := run("sh", "-c", "kill -9 $$"); out.Signal != 9 {
		t.Errorf("signal %v, want 9", out.Signal)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	if held := h.Status(context.Background()).Pools["all"].Held; held != 0 {
		t.Errorf("%d slots held after the runs", held)
	}
}

// A program that starts its agents itself takes only the right to run, of
// either class (S1).
func TestAcquireCountsBothClasses(t *testing.T) {
	h := open(t, map[string]string{"HANDSEL_MAX_AGENTS": "3", "HANDSEL_MAX_AGENTS_HEAVY": "1"})
	take := func(s handsel.Start) (*handsel.Lease, error) { return h.Acquire(t.Context(), s) }
	heavy, err := take(handsel.Start{Engine: "codex"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = take(handsel.Start{})
	var refused *handsel.Refused
	if !errors.As(err, &refused) || refused.Pool != "heavy" || refused.Code != handsel.CodePoolFull || !refused.Retryable() {
		t.Fatalf("a second heavy start got %v", err)
	}
	light, err := take(handsel.Start{Workload: handsel.Light})
	if err != nil {
		t.Fatal("a light start was held back by the heavy pool:", err)
	}
	for _, l := range []*handsel.Lease{heavy, light} {
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
}

// S4: without a cap nothing is made and nothing waits.
func TestUncappedAcquireTouchesNothing(t *testing.T) {
	h := open(t, nil)
	l, err := h.Acquire(t.Context(), handsel.Start{})
	if err != nil || !l.Empty() {
		t.Fatalf("Acquire = %v, %v; want an empty lease", l, err)
	}
	if _, err := os.Lstat(h.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the home was made (%v)", err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// S3: a cap that does not parse refuses every start and names the variable.
func TestMistypedCapRefuses(t *testing.T) {
	h := open(t, map[string]string{"HANDSEL_MAX_AGENTS": "thirty"})
	_, err := h.Run(t.Context(), []string{"true"}, handsel.Options{})
	var bad *handsel.BadConfig
	if !errors.As(err, &bad) || bad.Key != "HANDSEL_MAX_AGENTS" {
		t.Errorf("Run = %v, want *BadConfig naming the variable", err)
	}
}

// S28: a look changes nothing and answers in time although a lock is stuck,
// and says that it counted without it.
func TestStatusAnswersWithoutAStuckLock(t *testing.T) {
	h := open(t, map[string]string{"HANDSEL_MAX_AGENTS": "2"})
	l, err := h.Acquire(t.Context(), handsel.Start{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() })
	d, err := flock.OpenDir(filepath.Join(h.Path(), "leases", "all"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	stuck, err := flock.Take(d, ".admission", flock.Pass)
	if err != nil {
		t.Fatal(err)
	}
	before := tree(t, h.Path())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	snap := h.Status(ctx)
	if snap.Pools["all"].Held != 1 || len(snap.Problems) != 1 {
		t.Errorf("held %d, problems %q; want one slot, and one problem that names the lock", snap.Pools["all"].Held, snap.Problems)
	}
	if after := tree(t, h.Path()); after != before {
		t.Errorf("the look changed the home:\n%s\nbefore:\n%s", after, before)
	}
	stuck.Close()
}

// tree is every path below dir with its size and time of change.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		all += path + " " + info.Mode().String() + " " + info.ModTime().String() + "\n"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A misspelled or hostile value in a library call counts in no pool of its own
// and leaves the home alone.
func TestAcquireRefusesWhatHasNoMeaning(t *testing.T) {
	h := open(t, map[string]string{"HANDSEL_MAX_AGENTS_CODEX": "1"})
	first, err := h.Acquire(t.Context(), handsel.Start{Engine: "codex"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Release() })
	var refused *handsel.Refused
	if _, err := h.Acquire(t.Context(), handsel.Start{Engine: "openai-codex"}); !errors.As(err, &refused) {
		t.Errorf("another spelling of a full engine got %v, want a refusal", err)
	}
	for _, s := range []handsel.Start{
		{Engine: "../../escape"}, {Workload: "gate"}, {Priority: 1001}, {Pools: []string{"../x"}}, {Engine: "nobody"},
	} {
		var bad *handsel.BadOption
		if l, err := h.Acquire(t.Context(), s); !errors.As(err, &bad) {
			t.Errorf("Acquire(%+v) = %v, %v; want *BadOption", s, l, err)
		}
	}
	if names, _ := filepath.Glob(filepath.Dir(h.Path()) + "/*"); len(names) != 1 {
		t.Errorf("beside the home there is %v", names)
	}
}

// WriteOutcome never replaces what is no file: a device or a FIFO stays one.
func TestOutcomeLeavesSpecialFilesAlone(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := handsel.WriteOutcome(fifo, handsel.NothingRan(), nil); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(fifo); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("the FIFO became %v (%v)", info.Mode(), err)
	}
	text := make([]byte, 4096)
	if n, err := reader.Read(text); err != nil || !strings.Contains(string(text[:n]), `"refused"`) {
		t.Errorf("the reader got %q, %v", text[:n], err)
	}
	if err := handsel.WriteOutcome(os.DevNull, handsel.NothingRan(), nil); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(os.DevNull); err != nil || info.Mode()&fs.ModeDevice == 0 {
		t.Fatalf("the null device is gone: %v", info.Mode())
	}
}
