package review

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// worktree makes a repository with one commit, apart from any configuration of
// the user's.
func worktree(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "-q")
	put1(t, dir, ".gitignore", "ignored\nbuild/\n")
	put1(t, dir, "a", "one\n")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "first")
	return dir
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GIT_") }),
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func put1(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func of(t testing.TB, dir string) *Digest {
	t.Helper()
	d, err := DigestOf(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// contents is every file below a directory with what is in it, and when it was
// written; of git's objects not that, as git notes when one was looked for.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		info, serr := e.Info()
		if all[path] = string(text); serr == nil && !strings.Contains(path, "/.git/objects/") {
			all[path] += info.ModTime().String()
		}
		return errors.Join(err, serr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDigestIsTheTreeOfAddAll(t *testing.T) {
	dir := worktree(t)
	put1(t, dir, "untracked/new", "two\n")
	put1(t, dir, "ignored", "not judged\n")
	put1(t, dir, "build/forced", "tracked although it is ignored\n")
	git(t, dir, "add", "-f", "build/forced")
	put1(t, dir, "build/forced", "and changed since\n")
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	d := of(t, dir)
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Errorf("the working tree or the repository is not as it was:\n%v", changed(before, after))
	}
	if d.Kind != Git || d.Head != git(t, dir, "rev-parse", "HEAD") || d.Dir != dir {
		t.Errorf("digest = %+v", d)
	}
	git(t, dir, "add", "-A")
	if want := git(t, dir, "write-tree"); d.Tree != want {
		t.Errorf("tree %s, and git add -A makes %s", d.Tree, want)
	}
	if again := of(t, filepath.Join(dir, "untracked")); again.Value != d.Value {
		t.Errorf("below the top it is %s, at it %s", again.Value, d.Value)
	}
}

func changed(before, after map[string]string) (names []string) {
	for name, text := range after {
		if before[name] != text {
			names = append(names, name)
		}
	}
	return names
}

func TestDigestTellsWhatChanged(t *testing.T) {
	dir := worktree(t)
	last := of(t, dir).Value
	for _, step := range []struct {
		name string
		do   func()
		same bool
	}{
		{"nothing", func() {}, true},
		{"an ignored file", func() { put1(t, dir, "ignored", "x") }, true},
		{"staging", func() { git(t, dir, "add", "-A") }, true},
		{"content", func() { put1(t, dir, "a", "two\n") }, false},
		{"staging that", func() { git(t, dir, "add", "-A") }, true},
		{"assume-unchanged", func() { git(t, dir, "update-index", "--assume-unchanged", "a") }, true},
		{"content that git was told not to look at", func() { put1(t, dir, "a", "three\n") }, false},
		{"an untracked file", func() { put1(t, dir, "b", "") }, false},
		{"a mode", func() { _ = os.Chmod(filepath.Join(dir, "b"), 0o755) }, runtime.GOOS == "windows"},
		{"a commit of the same", func() { git(t, dir, "commit", "--allow-empty", "-qm", "second") }, false},
		{"a file gone", func() { _ = os.Remove(filepath.Join(dir, "a")) }, false},
	} {
		step.do()
		now := of(t, dir).Value
		if (now == last) != step.same {
			t.Errorf("after %s: same is %v, want %v", step.name, now == last, step.same)
		}
		last = now
	}
}

func TestDigestOfSubmodules(t *testing.T) {
	dir, other := worktree(t), worktree(t)
	git(t, dir, "submodule", "--quiet", "add", other, "sub")
	git(t, dir, "commit", "-qm", "with a submodule")
	clean := of(t, dir)
	git(t, dir, "add", "-A")
	if want := git(t, dir, "write-tree"); clean.Tree != want {
		t.Errorf("tree %s, want %s", clean.Tree, want)
	}
	put1(t, dir, "sub/a", "changed in the submodule, and not committed\n")
	dirty := of(t, dir)
	if dirty.Value == clean.Value || dirty.Tree != clean.Tree {
		t.Errorf("a change inside a submodule is not seen: %+v, was %+v", dirty, clean)
	}
	git(t, filepath.Join(dir, "sub"), "commit", "-qam", "changed")
	if moved := of(t, dir); moved.Tree == clean.Tree {
		t.Error("another commit of a submodule is not seen")
	}
	git(t, dir, "submodule", "--quiet", "deinit", "-f", "sub")
	if gone := of(t, dir); gone.Tree == "" || gone.Value == clean.Value {
		t.Errorf("a submodule that is not there: %+v", gone)
	}
	put1(t, dir, "embedded/x", "y") // a repository that nobody added
	git(t, filepath.Join(dir, "embedded"), "init", "-q")
	git(t, filepath.Join(dir, "embedded"), "add", "-A")
	git(t, filepath.Join(dir, "embedded"), "commit", "-qm", "own")
	with := of(t, dir)
	put1(t, dir, "embedded/x", "z")
	if of(t, dir).Value == with.Value {
		t.Error("a change inside an embedded repository is not seen")
	}
}

func TestIgnoredDirectoryIsJudgedByItself(t *testing.T) {
	dir := worktree(t)
	put1(t, dir, "build/out", "x")
	d := of(t, filepath.Join(dir, "build"))
	if d.Kind != Files || d.Files != 1 {
		t.Fatalf("digest = %+v", d)
	}
	put1(t, dir, "build/out", "y")
	if of(t, filepath.Join(dir, "build")).Value == d.Value {
		t.Error("what changed in it is not seen")
	}
}

func TestUnbornRepository(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	put1(t, dir, "a", "x")
	if d := of(t, dir); d.Kind != Git || d.Head != "" || d.Tree == "" {
		t.Errorf("digest = %+v", d)
	}
}

func TestRepositoryThatGitRefusesIsNoManifest(t *testing.T) {
	dir := t.TempDir()
	put1(t, dir, ".git", "gitdir: nowhere\n")
	if d, err := DigestOf(context.Background(), dir); err == nil {
		t.Errorf("digest = %+v, want git's refusal", d)
	}
}

func TestManifestHasItsLimits(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		put1(t, dir, fmt.Sprintf("d%d/f", i), "1234")
	}
	for _, tt := range []struct {
		files int
		bytes int64
		ok    bool
	}{{5, 20, false}, {6, 20, true}, {100, 19, false}, {100, 20, true}, {4, 100, false}} {
		// Directories are counted by themselves, the top included.
		_, err := digest(context.Background(), dir, tt.files, tt.bytes)
		if tooMuch := errors.As(err, new(*TooMuch)); err == nil != tt.ok || tooMuch == tt.ok {
			t.Errorf("%d files, %d bytes: %v", tt.files, tt.bytes, err)
		}
	}
}

func TestManifestFollowsNoLink(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	put1(t, out, "f", "x")
	if err := os.Symlink(out, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	d := of(t, dir)
	put1(t, out, "f", "something else")
	put1(t, out, "g", "more")
	if of(t, dir).Value != d.Value {
		t.Error("a link was followed")
	}
	if err := os.Remove(filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out+"x", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if of(t, dir).Value == d.Value {
		t.Error("another target is not seen")
	}
}

// isTree tells whether no file is another's directory, or another under a second
// name.
func isTree(files map[string]string) bool {
	names := slices.Sorted(maps.Keys(files))
	for i, a := range names {
		for _, b := range names[i+1:] {
			if strings.HasPrefix(b, a+"/") || filepath.Clean(a) == filepath.Clean(b) {
				return false
			}
		}
	}
	return true
}

// Whatever a tree holds: the same made in another order, elsewhere, has the same
// digest, and a single difference has another.
func TestManifestIsOfContentAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-c "\\\n-]{1,3}(/[a-c]{1,2}){0,2}`)
		files := rapid.MapOfN(name, rapid.StringN(0, 4, 8), 1, 6).Filter(isTree).Draw(t, "files")
		names := slices.Sorted(maps.Keys(files))
		make := func(order []string, but string) string {
			dir, err := os.MkdirTemp("", "manifest")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			for _, n := range order {
				path := filepath.Join(dir, n)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				text := files[n]
				if n == but {
					text += "!"
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			d, err := manifest(context.Background(), dir, MaxFiles, MaxBytes)
			if err != nil {
				t.Fatal(err)
			}
			return d.Value
		}
		one := make(names, "")
		if other := make(rapid.Permutation(names).Draw(t, "order"), ""); other != one {
			t.Fatalf("in another order: %s, want %s", other, one)
		}
		if other := make(names, rapid.SampledFrom(names).Draw(t, "changed")); other == one {
			t.Fatal("a changed file is not seen")
		}
		if len(names) > 1 {
			if other := make(names[1:], ""); other == one {
				t.Fatal("a missing file is not seen")
			}
		}
	})
}
