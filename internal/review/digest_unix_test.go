//go:build unix

package review

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestManifestWaitsForNoFIFO(t *testing.T) {
	dir := t.TempDir()
	before := of(t, dir).Value
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if of(t, dir).Value == before {
		t.Error("it is not seen")
	}
}

// A repository is the agent's to configure: nothing it names may run while a
// person looks at what it did.
func TestDigestRunsNothingOfTheRepository(t *testing.T) {
	dir, other := worktree(t), worktree(t)
	git(t, dir, "submodule", "--quiet", "add", other, "sub")
	ran := filepath.Join(t.TempDir(), "ran")
	evil := "touch " + ran + "; cat"
	for _, at := range []string{dir, filepath.Join(dir, "sub")} {
		put1(t, at, ".gitattributes", "* filter=evil\n")
		git(t, at, "config", "filter.evil.clean", evil)
		git(t, at, "config", "filter.evil.required", "true")
		git(t, at, "config", "core.fsmonitor", evil)
		own := git(t, at, "rev-parse", "--absolute-git-dir")
		for _, hook := range []string{"post-index-change", "pre-commit", "post-checkout"} {
			put1(t, own, "hooks/"+hook, "#!/bin/sh\n"+evil+"\n")
			if err := os.Chmod(filepath.Join(own, "hooks", hook), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		put1(t, at, "a", "through the filter\n")
	}
	t.Setenv("GIT_DIR", other) // steers git, and is not ours to be steered by
	of(t, dir)
	if _, err := os.Lstat(ran); err == nil {
		t.Fatal("the repository's own command ran")
	}
}

// What the agent may configure hides nothing of what it changes later: git is told
// how to look, and looks at bytes.
func TestConfigurationHidesNoChange(t *testing.T) {
	for name, tt := range map[string]struct {
		config [2]string
		attrs  string
		info   bool
		before string
		change func(dir string)
	}{
		"mode":     {config: [2]string{"core.fileMode", "false"}, change: func(dir string) { _ = os.Chmod(filepath.Join(dir, "a"), 0o755) }},
		"case":     {config: [2]string{"core.ignoreCase", "true"}, change: func(dir string) { put1(t, dir, "A", "another\n") }},
		"eol":      {attrs: "* text\n", change: func(dir string) { put1(t, dir, "a", "one\r\n") }},
		"ident":    {attrs: "* ident\n", before: "$Id: one $\n", change: func(dir string) { put1(t, dir, "a", "$Id: another $\n") }},
		"encoding": {attrs: "a working-tree-encoding=UTF-16\n", before: "\xfe\xff\x00a", change: func(dir string) { put1(t, dir, "a", "\xff\xfea\x00") }},
		"info":     {attrs: "* ident\n", info: true, before: "$Id: one $\n", change: func(dir string) { put1(t, dir, "a", "$Id: another $\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := worktree(t)
			if tt.config[0] != "" {
				git(t, dir, "config", tt.config[0], tt.config[1])
			}
			switch {
			case tt.info:
				put1(t, dir, ".git/info/attributes", tt.attrs)
			case tt.attrs != "":
				put1(t, dir, ".gitattributes", tt.attrs)
			}
			if tt.before != "" {
				put1(t, dir, "a", tt.before)
			}
			was := of(t, dir)
			tt.change(dir)
			if of(t, dir).Value == was.Value {
				t.Error("the change is not seen")
			}
		})
	}
}
