// Screenshots makes the pictures of the page of `handsel web` for the docs: a home
// with stand-in agents, of which some run, wait, are to be judged and to be
// released, seen by Chromium.
//
//	screenshots -handsel bin/handsel -fakeagent PATH -out docs/images
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/handsel/handsel/internal/browsertest"
)

func main() {
	handsel := flag.String("handsel", "bin/handsel", "the `EXECUTABLE`")
	agent := flag.String("fakeagent", "", "the stand-in agent, an `EXECUTABLE`")
	out := flag.String("out", "docs/images", "where the pictures go, a `DIRECTORY`")
	flag.Parse()
	if err := pictures(*handsel, *agent, *out); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

const config = `[admission]
mode = "dispatcher"
[pools]
all = 6
heavy = 3
claude = 2
codex = 2
[review]
lanes = ["api/*", "docs/*", "web/*"]
[quota.gemini]
[nesting]
`

func pictures(handsel, agent, out string) (err error) {
	dir, err := os.MkdirTemp("", "handsel-web-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if handsel, err = filepath.Abs(handsel); err != nil {
		return err
	}
	if agent, err = filepath.Abs(agent); err != nil {
		return err
	}
	s, err := browsertest.NewStage(dir, handsel, agent, config)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := play(s); err != nil {
		return err
	}
	_, link, err := s.Web()
	if err != nil {
		return err
	}
	b, err := browsertest.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return shoot(b, s, link, out)
}

// play brings the stage to where a morning's work may stand.
func play(s *browsertest.Stage) error {
	if _, err := s.Dispatcher(); err != nil {
		return err
	}
	for _, lane := range []string{"api/login", "api/limits", "docs/install", "api/export", "web/forms"} {
		if err := through(s, lane, "claude"); err != nil {
			return err
		}
	}
	for _, words := range [][]string{
		{"run", "--lane", "infra/backup", "--engine", "pi", "--", "fakeagent", "print", "ok"},
		{"accept", "api/login", "--evidence", "https://ci.example.org/runs/71", "--note", "reads well"},
		{"release", "api/login", "--", "fakeagent", "print", "pushed"},
		{"accept", "docs/install", "--evidence", "https://ci.example.org/runs/74"},
		{"reject", "web/forms", "--note", "the empty state is missing"},
		{"quota", "set", "gemini", "--for", "2h", "--reason", "limit of the day is reached"},
	} {
		if _, err := s.Run(words...); err != nil {
			return err
		}
	}
	if _, err := s.Run("run", "--engine", "codex", "--lane", "infra/mirror", "--", "fakeagent", "exit", "3"); err == nil {
		return errors.New("a stand-in that was to fail did not")
	}
	for _, l := range [][]string{
		{"api/search", "claude"}, {"infra/cache", "codex"}, {"api/paging", "claude"}, {"api/errors", "claude"}, {"web/table", "codex"}, {"infra/logs", "codex"},
		{"docs/tour", "gemini"}, {"api/audit", "claude"}, {"web/themes", "gemini"},
	} {
		if _, err := s.Run("enqueue", l[0], "--engine", l[1], "--author", "mona", "--", "fakeagent", "until", "never"); err != nil {
			return err
		}
	}
	if _, err := s.Run("hold", "lane:api/audit", "--reason", "schema freeze until Monday"); err != nil {
		return err
	}
	if _, err := s.Run("prio", "api/errors", "5"); err != nil {
		return err
	}
	return browsertest.Wait("three agents to run", func() bool {
		out, err := s.Run("runs", "--state", "running")
		return err == nil && lines(out) >= 4
	})
}

func lines(text string) (n int) {
	for _, c := range text {
		if c == '\n' {
			n++
		}
	}
	return n
}

// through has one lane done.
func through(s *browsertest.Stage, lane, engine string) error {
	if _, err := s.Run("enqueue", lane, "--engine", engine, "--author", "mona", "--", "fakeagent", "sleep", "300ms"); err != nil {
		return err
	}
	_, err := s.Run("wait", "lane:"+lane)
	return err
}

// shoot takes the pictures.
func shoot(b *browsertest.Browser, s *browsertest.Stage, link, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return b.Size(1280, 800) },
		func() error { return b.Prefers("prefers-color-scheme", "light") },
		func() error { return b.Open(link) },
		func() error {
			return b.Until("the map", `return document.querySelectorAll(".card").length > 8 && document.querySelectorAll("#spans figure").length > 0`)
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	// Something must happen for the gauges to show something: one more slot taken.
	if _, err := s.Start("run", "--engine", "pi", "--", "fakeagent", "until", "never"); err != nil {
		return err
	}
	time.Sleep(12 * time.Second) // two samples of the pools
	for _, p := range []struct {
		name, scheme string
		w, h         int
		before       string
	}{
		{"web.png", "light", 1280, 800, ""},
		{"web-dark.png", "dark", 1280, 800, `document.querySelector(".box-acceptance .card").click()`},
		{"web-narrow.png", "light", 360, 740, `document.querySelector(".close").click(); scrollTo(0, 0)`},
	} {
		if err := errors.Join(b.Size(p.w, p.h), b.Prefers("prefers-color-scheme", p.scheme, "prefers-reduced-motion", "reduce"), b.Eval(nil, p.before)); err != nil {
			return err
		}
		if p.scheme == "dark" {
			if err := b.Until("the panel", `return document.querySelectorAll("#side .event").length > 3`); err != nil {
				return err
			}
		}
		if err := b.Eval(nil, "document.activeElement?.blur()"); err != nil {
			return err
		}
		text, err := b.Picture()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, p.name), text, 0o644); err != nil { //nolint:gosec // a picture for everybody
			return err
		}
	}
	return b.Logs()
}
