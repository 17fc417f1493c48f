package review

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// repo is a git repository, or a submodule of one.
type repo struct {
	top  string // of the working tree
	dir  string // the repository's own directory
	conf []string
}

// still is what keeps a repository from making git run something, or from hiding
// anything from it. Filters are switched off besides, by their names.
var still = []string{
	"core.fsmonitor", "false", "core.hooksPath", os.DevNull, "core.untrackedCache", "false", "core.splitIndex", "false", "core.sparseCheckout", "false",
	"core.fileMode", "true", "core.symlinks", "true", "core.ignoreCase", "false",
	"core.autocrlf", "false", "core.safecrlf", "false", "advice.addEmbeddedRepo", "false", "core.pager", "cat", "maintenance.auto", "false", "gc.auto", "0",
}

// findRepo is the repository that a directory belongs to; nil when it belongs to
// none, or is ignored by the one it is in.
func findRepo(ctx context.Context, dir string) (*repo, error) {
	inside := &repo{top: dir}
	top, err := inside.line(ctx, nil, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	own, err := inside.line(ctx, nil, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return nil, err
	}
	r := &repo{top: top, dir: own}
	if err := r.quiet(ctx); err != nil {
		return nil, err
	}
	if rel, err := filepath.Rel(top, dir); err == nil && rel != "." {
		if _, err := r.git(ctx, nil, nil, "check-ignore", "-q", "--", rel); err == nil {
			return nil, nil //nolint:nilnil // no repository has it
		} else if exit, ok := errors.AsType[*gitError](err); !ok || exit.status != 1 {
			return nil, err
		}
	}
	return r, nil
}

// quiet finds the filters that the configuration names, to be switched off: they
// are commands.
func (r *repo) quiet(ctx context.Context) error {
	out, err := r.git(ctx, nil, nil, "config", "-z", "--includes", "--name-only", "--get-regexp", `^filter\..*\.(clean|smudge|process|required)$`)
	if exit, ok := errors.AsType[*gitError](err); ok && exit.status == 1 {
		return nil // there are none
	}
	if err != nil {
		return err
	}
	for _, name := range fields(out) {
		set := ""
		if strings.HasSuffix(name, ".required") {
			set = "false"
		}
		r.conf = append(r.conf, name, set)
	}
	return nil
}

// digest is HEAD, and the tree that `git add -A` would make of what is there, by
// an index and a store of objects of our own. Submodules count by what is in
// them.
func (r *repo) digest(ctx context.Context) (*Digest, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, "handsel digest 1 git")
	d := &Digest{Kind: Git, Dir: r.top}
	var err error
	d.Head, d.Tree, err = r.state(ctx, func(line string) { fmt.Fprintln(sum, line) }, "", 0)
	if err != nil {
		return nil, err
	}
	d.Value = value(sum.Sum(nil))
	return d, nil
}

// maxDepth bounds how deep submodules are followed.
const maxDepth = 32

func (r *repo) state(ctx context.Context, say func(string), at string, depth int) (head, tree string, err error) {
	if depth > maxDepth {
		return "", "", fmt.Errorf("%s: submodules are nested too deep", strconv.QuoteToASCII(r.top))
	}
	if head, err = r.line(ctx, nil, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		if exit, ok := errors.AsType[*gitError](err); !ok || exit.status != 1 {
			return "", "", err
		}
		head = ""
	}
	temp, err := os.MkdirTemp("", "handsel-digest-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(temp)
	env, err := r.apart(ctx, temp)
	if err != nil {
		return "", "", err
	}
	if _, err := r.git(ctx, env, nil, "add", "-A", "--", ":/"); err != nil {
		return "", "", err
	}
	if err := r.besides(ctx, env); err != nil {
		return "", "", err
	}
	if tree, err = r.line(ctx, env, "write-tree"); err != nil {
		return "", "", err
	}
	say(fmt.Sprintf("in %s head %s tree %s", strconv.Quote(at), head, tree))
	if err := r.converted(ctx, env, say); err != nil {
		return "", "", err
	}
	return head, tree, r.submodules(ctx, env, say, at, depth)
}

// apart is an environment in which git writes nothing but into temp.
func (r *repo) apart(ctx context.Context, temp string) ([]string, error) {
	store, err := r.line(ctx, nil, "rev-parse", "--git-path", "objects")
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(store) {
		store = filepath.Join(r.top, store)
	}
	own := filepath.Join(temp, "objects")
	if err := os.Mkdir(own, 0o700); err != nil {
		return nil, err
	}
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(store) + `"`
	return []string{
		"GIT_INDEX_FILE=" + filepath.Join(temp, "index"), "GIT_OBJECT_DIRECTORY=" + own, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + quoted,
	}, nil
}

// besides adds what `git add -A` leaves out of an index that begins empty: files
// that are tracked although they are ignored, and submodules that are not there.
func (r *repo) besides(ctx context.Context, env []string) error {
	out, err := r.git(ctx, nil, nil, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard")
	if err != nil {
		return err
	}
	var add bytes.Buffer
	for _, name := range fields(out) {
		if r.isFile(name) {
			add.WriteString(name + "\x00")
		}
	}
	if add.Len() > 0 {
		if _, err := r.git(ctx, env, &add, "update-index", "-z", "--add", "--stdin"); err != nil {
			return err
		}
	}
	links, err := r.links(ctx, nil)
	if err != nil {
		return err
	}
	var absent bytes.Buffer
	for _, l := range links {
		if info, err := os.Lstat(filepath.Join(r.top, l.path)); err == nil && info.IsDir() && !l.present(r.top) {
			fmt.Fprintf(&absent, "160000 %s 0\t%s\x00", l.commit, l.path)
		}
	}
	if absent.Len() == 0 {
		return nil
	}
	_, err = r.git(ctx, env, &absent, "update-index", "-z", "--index-info")
	return err
}

// converted says what is in the files that git takes in as something else than they
// are, by their attributes: of two contents that become one the tree cannot tell
// which is there.
func (r *repo) converted(ctx context.Context, env []string, say func(string)) error {
	names, err := r.git(ctx, env, nil, "ls-files", "-z")
	if err != nil {
		return err
	}
	out, err := r.git(ctx, env, bytes.NewBuffer(names), "check-attr", "-z", "--stdin", "text", "crlf", "eol", "ident", "working-tree-encoding")
	if err != nil {
		return err
	}
	all, last := fields(out), ""
	m := &listing{root: r.top, mostBytes: math.MaxInt64 - 1}
	for ; len(all) >= 3; all = all[3:] {
		name, value := all[0], all[2]
		if value == "unspecified" || value == "unset" || name == last {
			continue
		}
		last = name
		path := filepath.Join(r.top, name)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // a submodule or a link, or gone meanwhile; the tree has what it was
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		what, err := m.content(path, info)
		if err != nil {
			return err
		}
		say("as it is " + strconv.Quote(name) + " " + what)
	}
	return nil
}

// isFile tells whether a path is a file or a link, reached by directories alone.
func (r *repo) isFile(name string) bool {
	parts := strings.Split(name, "/")
	for i := range parts {
		info, err := os.Lstat(filepath.Join(r.top, filepath.Join(parts[:i+1]...)))
		if err != nil || i < len(parts)-1 && !info.IsDir() {
			return false
		}
		if i == len(parts)-1 {
			return info.Mode().IsRegular() || info.Mode()&os.ModeSymlink != 0
		}
	}
	return false
}

// link is a submodule as an index has it.
type link struct{ path, commit string }

func (l link) present(top string) bool {
	_, err := os.Lstat(filepath.Join(top, l.path, ".git"))
	return err == nil
}

// links lists the submodules of an index.
func (r *repo) links(ctx context.Context, env []string) (all []link, err error) {
	out, err := r.git(ctx, env, nil, "ls-files", "-z", "--stage")
	if err != nil {
		return nil, err
	}
	for _, entry := range fields(out) {
		head, path, _ := strings.Cut(entry, "\t")
		if words := strings.Fields(head); len(words) == 3 && words[0] == "160000" {
			all = append(all, link{path, words[1]})
		}
	}
	slices.SortFunc(all, func(a, b link) int { return strings.Compare(a.path, b.path) })
	return slices.CompactFunc(all, func(a, b link) bool { return a.path == b.path }), nil
}

// submodules says what is in those that are there: of them the tree has no more
// than a commit.
func (r *repo) submodules(ctx context.Context, env []string, say func(string), at string, depth int) error {
	links, err := r.links(ctx, env)
	if err != nil {
		return err
	}
	for _, l := range links {
		if !l.present(r.top) {
			continue
		}
		top := filepath.Join(r.top, l.path)
		sub := &repo{top: top}
		if sub.dir, err = sub.line(ctx, nil, "rev-parse", "--absolute-git-dir"); err != nil {
			return err
		}
		if err := sub.quiet(ctx); err != nil {
			return err
		}
		if _, _, err := sub.state(ctx, say, at+"/"+l.path, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func fields(out []byte) []string {
	text := strings.TrimSuffix(string(out), "\x00")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// gitError is git's no.
type gitError struct {
	verb   string
	status int // -1: it could not be run
	text   string
	err    error
}

func (e *gitError) Error() string {
	if e.text != "" {
		return "git " + e.verb + ": " + e.text
	}
	return fmt.Sprintf("git %s: %v", e.verb, e.err)
}

func (e *gitError) Unwrap() error { return e.err }

// line is git's answer of one line.
func (r *repo) line(ctx context.Context, env []string, args ...string) (string, error) {
	out, err := r.git(ctx, env, nil, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// git runs git on the repository.
func (r *repo) git(ctx context.Context, env []string, stdin *bytes.Buffer, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = r.top
	cmd.Env = append(r.env(), env...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	failed := &gitError{verb: args[0], status: -1, err: err}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		failed.status = exit.ExitCode()
	}
	text := strings.ToValidUTF8(said.String(), "\uFFFD")
	if len(text) > MaxText {
		text = text[:MaxText]
	}
	failed.text = strings.Join(strings.Fields(text), " ")
	return nil, failed
}

// env is ours without what steers git, and with what keeps it still.
func (r *repo) env() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "GIT_") })
	env = append(env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_LITERAL_PATHSPECS=0")
	if r.dir != "" {
		env = append(env, "GIT_DIR="+r.dir, "GIT_WORK_TREE="+r.top)
	}
	conf := append(slices.Clone(still), r.conf...)
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(conf)/2))
	for i := 0; i < len(conf); i += 2 {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i/2, conf[i]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i/2, conf[i+1]))
	}
	return env
}
