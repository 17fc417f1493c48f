package handsel_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handsel/handsel"
)

// The kernel confines the agent and not the program around it, which keeps
// neither a descriptor nor a directory of it (E6).
func TestConfinedRunLeavesNothingInTheHostProgram(t *testing.T) {
	h := open(t, map[string]string{"HANDSEL_MAX_AGENTS": "1"})
	dir, outside, temp := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	run := func() {
		t.Helper()
		out, err := h.Run(t.Context(), []string{"sh", "-c",
			`echo x >in; mkdir -p "$TMPDIR/a/b"; touch "$TMPDIR/a/b/c"; chmod 500 "$TMPDIR/a/b" "$TMPDIR/a"; echo x >"$1/out"`, "sh", outside},
			handsel.Options{Dir: dir, Confine: handsel.ConfineOS, Workload: handsel.Light})
		if err != nil || out.ExitCode == 0 || len(out.Warnings) > 0 {
			t.Fatalf("Run = %+v, %v", out, err)
		}
	}
	run()
	before := openFDs(t)
	run()
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	if _, err := os.Stat(filepath.Join(dir, "in")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "ours"), nil, 0o600); err != nil {
		t.Errorf("we are confined: %v", err)
	}
	for place, want := range map[string]string{outside: "ours", temp: ""} {
		if got := namesIn(t, place); got != want {
			t.Errorf("%s holds %q, want %q", place, got, want)
		}
	}
}

func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// What cannot be confined is refused before anything is taken or made, and also
// of work that is to wait.
func TestRefusedConfinementLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("HOME", t.TempDir())
	h := open(t, map[string]string{"HANDSEL_MAX_AGENTS": "1"})
	project := t.TempDir()
	for _, tt := range []struct {
		name string
		argv []string
		o    handsel.Options
		is   func(error) bool
	}{
		{"everything", []string{"true"}, handsel.Options{Dir: "/"}, isA[*handsel.Boundless]},
		{"the home", []string{"true"}, handsel.Options{Dir: os.Getenv("HOME")}, isA[*handsel.Boundless]},
		{"above handsel's directory", []string{"true"}, handsel.Options{Dir: filepath.Dir(h.Path())}, isA[*handsel.Boundless]},
		{"codex", []string{"codex", "exec"}, handsel.Options{Dir: project}, isA[*handsel.Unconfinable]},
		{"a directory that is not there", []string{"true"}, handsel.Options{Dir: filepath.Join(project, "gone")}, isA[*handsel.StartError]},
	} {
		tt.o.Confine = handsel.ConfineOS
		if out, err := h.Run(t.Context(), tt.argv, tt.o); !tt.is(err) || out.Child.Pid != 0 {
			t.Errorf("%s: %+v, %v", tt.name, out, err)
		}
		_, err := h.Enqueue(t.Context(), "lane", tt.argv, handsel.EnqueueOptions{Dir: tt.o.Dir, Confine: tt.o.Confine})
		if !tt.is(err) {
			t.Errorf("%s, enqueued: %v", tt.name, err)
		}
	}
	if _, err := h.Gate(t.Context(), []string{"p"}, []string{"true"}, handsel.Options{Confine: handsel.ConfineOS}); !isA[*handsel.BadOption](err) {
		t.Errorf("a gate: %v", err)
	}
	if _, err := os.Stat(h.Path()); err == nil {
		t.Errorf("the home was made, and holds %q", namesIn(t, h.Path()))
	}
	if got := namesIn(t, temp); got != "" {
		t.Errorf("left behind: %q", got)
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
