package handsel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/record"
)

// homeWith is a home that is not there yet, with profiles of the user's.
func homeWith(t *testing.T, profiles map[string]string) *Home {
	t.Helper()
	root := t.TempDir()
	config := filepath.Join(root, "config.toml")
	if err := os.WriteFile(config, []byte("[nesting]\nseats = [\"seat\", \"lead\"]\n[engine.mine]\nnames = [\"mine\"]\nargs = [\"--ask\", \"{prompt}\", \"--model={model}\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "profiles"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range profiles {
		if err := os.WriteFile(filepath.Join(root, "profiles", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := OpenWith(func(name string) string {
		return map[string]string{"HANDSEL_HOME": filepath.Join(root, "home"), "HANDSEL_CONFIG": config}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// heavyProfiles are profiles of every kind that an agent can be started by.
var heavyProfiles = map[string]string{
	"":      "",
	"plain": "You review.",
	"model": "---\nmodel: m-1\nworkload: heavy\n---\nYou review.\n",
	"wrong": "---\nworkload: Light\n---\n",
	"args":  "---\nargs: [--foo, 'a b', '']\npools: [gpu]\ntimeout: 60\n---\n",
}

// TestHeavyCommandLineIsNotTouched is E4: byte for byte what it would be without
// classes, for agents and for commands, whatever the profile and the flags.
func TestHeavyCommandLineIsNotTouched(t *testing.T) {
	files := map[string]string{}
	for name, text := range heavyProfiles {
		if name != "" {
			files[name+".md"] = text
		}
	}
	h := homeWith(t, files)
	for _, name := range append(engine.Names(), "mine") {
		for profile := range heavyProfiles {
			for _, class := range []string{"", Heavy} {
				j := &job{home: h, asked: &Question{Prompt: []byte("x"), Args: []string{"--bar"}}, id: record.NewID()}
				j.o = Options{Engine: name, Profile: profile, Workload: class, Record: true, Env: []string{}}
				if err := j.resolve(); err != nil {
					t.Fatalf("%s, %s: %v", name, profile, err)
				}
				ask := engine.Ask{Prompt: []byte("x"), Dir: j.cwd(), Args: []string{"--bar"}, Files: record.Dir(h.dir, j.id)}
				p, err := j.profile()
				if err != nil {
					t.Fatal(err)
				}
				if p != nil {
					ask.Model, ask.System, ask.Args = p.Model, p.System, slices.Concat(p.Args, ask.Args)
				}
				want, err := j.settings.known().Headless(name, ask)
				if err != nil {
					t.Fatal(err)
				}
				if b := j.begin; !slices.Equal(b.argv, want.Argv) || len(b.env) > 0 || b.scratch != "" || b.confine != "none" || len(b.files) != len(want.Files) || j.o.Workload != Heavy {
					t.Errorf("%s, profile %q: %+v\nwant %q", name, profile, b, want.Argv)
				}
			}
		}
	}
	for _, argv := range [][]string{
		{"codex", "exec", "--yolo", "-c", "sandbox_mode=danger-full-access", "x"},
		{"claude", "-p", "--dangerously-skip-permissions", "--add-dir", "/", "x"},
		{"gemini", "-y", "-p", ""}, {"pi", "@x", "-p"}, {"sh", "-c", "claude -p x"}, {"true"},
	} {
		j := &job{home: h, argv: argv, id: record.NewID(), o: Options{Env: []string{}}}
		if err := j.resolve(); err != nil {
			t.Fatal(err)
		}
		if b := j.begin; !slices.Equal(b.argv, argv) || len(b.env)+len(b.files) > 0 || b.scratch != "" {
			t.Errorf("%q: %+v", argv, b)
		}
	}
}

// TestLightIsRefusedBeforeAnythingIsTaken is E5 and E6a: what is not confined, or
// says that it shall not be, is refused with nothing done, not even the home made.
func TestLightIsRefusedBeforeAnythingIsTaken(t *testing.T) {
	h := homeWith(t, map[string]string{"light.md": "---\nworkload: light\n---\n"})
	lifted, unconfined := new(*Lifted), new(*Unconfined)
	for _, c := range []struct {
		argv    []string
		profile string
		want    any
	}{
		{[]string{"codex", "exec", "--yolo", "x"}, "", lifted},
		{[]string{"claude", "-p", "--allowedTools", "Edit", "x"}, "", lifted},
		{[]string{"npx", "@google/gemini-cli", "--yolo", "-p", "x"}, "", lifted},
		{[]string{"sh", "-c", "codex exec x"}, "", lifted},
		{[]string{"pi", "-p", "x"}, "", unconfined},
		{[]string{"true"}, "", unconfined},
		{[]string{"mine", "--ask", "x"}, "", unconfined},
		{[]string{"true"}, "light", unconfined},
	} {
		o := Options{Workload: Light, Profile: c.profile}
		if c.profile != "" {
			o.Workload = ""
		}
		for what, start := range map[string]func() error{
			"run": func() error { _, err := h.Run(context.Background(), c.argv, o); return err },
			"detached": func() error {
				_, err := h.RunDetached(context.Background(), c.argv, o, func(string) error { t.Error("it was on record"); return nil })
				return err
			},
			"enqueue": func() error {
				_, err := h.Enqueue(context.Background(), "l", c.argv, EnqueueOptions{Workload: o.Workload, Profile: o.Profile})
				return err
			},
		} {
			if err := start(); !errors.As(err, c.want) {
				t.Errorf("%s %q: %v", what, c.argv, err)
			}
		}
		if exists(h.Path()) {
			t.Fatalf("%q: the home was made", c.argv)
		}
	}
}

// TestWhoSaysWhat: a flag goes before the profile, the profile before what is
// configured; pools add up.
func TestWhoSaysWhat(t *testing.T) {
	h := homeWith(t, map[string]string{
		"p.md":    "---\nengine: codex\nworkload: light\nmodel: theirs\ntimeout: 60\nidle: 30\npools: [a, b]\n---\n",
		"lead.md": "---\nengine: claude\n---\n",
	})
	ask := func(q Question, o Options) *job {
		q.Prompt = []byte("x")
		j := &job{home: h, asked: &q, o: o, id: record.NewID()}
		if err := j.resolve(); err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := ask(Question{}, Options{Profile: "p"})
	if j.engine != "codex" || j.o.Workload != Light || j.o.Timeout != time.Minute || j.o.Idle != 30*time.Second || !slices.Equal(j.o.Pools, []string{"a", "b"}) || !slices.Contains(j.argv, "theirs") {
		t.Errorf("%+v %q", j.o, j.argv)
	}
	j = ask(Question{Model: "mine"}, Options{Profile: "p", Engine: "claude", Workload: Heavy, Timeout: time.Second, Idle: time.Second, Pools: []string{"b", "c"}})
	if j.engine != "claude" || j.o.Workload != Heavy || j.o.Timeout != time.Second || j.o.Idle != time.Second || !slices.Equal(j.o.Pools, []string{"b", "c", "a"}) || slices.Contains(j.argv, "theirs") {
		t.Errorf("%+v %q", j.o, j.argv)
	}
	// A seat is a name of the configuration, and needs no file.
	if j := ask(Question{}, Options{Profile: "lead"}); j.engine != "claude" || j.depth() != 0 {
		t.Errorf("%s, depth %d", j.engine, j.depth())
	}
	if j := ask(Question{}, Options{Profile: "seat", Engine: "pi"}); j.depth() != 0 {
		t.Errorf("depth %d", j.depth())
	}
	if err := (&job{home: h, argv: []string{"true"}, o: Options{Profile: "saet"}}).resolve(); !errors.As(err, new(*NoProfile)) {
		t.Errorf("a misspelled profile: %v", err)
	}
}

// TestProjectIsNoSeat is E8: what a project calls by a seat's name is none.
func TestProjectIsNoSeat(t *testing.T) {
	h := homeWith(t, nil)
	project := t.TempDir()
	if err := os.MkdirAll(filepath.Join(project, ".handsel", "profiles"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(project, ".handsel", "profiles", "seat.toml"), []byte("engine = 'pi'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := &job{home: h, asked: &Question{Prompt: []byte("x")}, id: record.NewID(), o: Options{Profile: "seat", Dir: project}}
	if err := j.resolve(); !errors.As(err, new(*BadOption)) {
		t.Errorf("%v", err)
	}
}
