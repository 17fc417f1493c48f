package review

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Digest names what is in a working directory (P8). Two of the same value mean
// the same, as far as the kind goes.
type Digest struct {
	// Kind is "git" in a repository: its HEAD, and everything in its working tree
	// that it tracks or does not ignore, as it is, submodules included; else "files": path,
	// mode and content of everything below the directory.
	Kind  string `json:"kind"`
	Value string `json:"value"` // "sha256:" and 64 hex digits
	Dir   string `json:"dir"`   // what it is of

	Head  string `json:"head,omitempty"` // of git; empty before the first commit
	Tree  string `json:"tree,omitempty"`
	Files int    `json:"files,omitempty"` // of files, and
	Bytes int64  `json:"bytes,omitempty"` // what they come to
}

// The kinds of digest.
const (
	Git   = "git"
	Files = "files"
)

// What a manifest may have at most (P8).
const (
	MaxFiles = 100_000
	MaxBytes = 1 << 30
)

// TooMuch refuses to judge a directory that has more than a manifest may.
type TooMuch struct {
	Dir string
	Why string
}

func (e *TooMuch) Error() string {
	return fmt.Sprintf("%s has more than %s: put it into a git repository, which has no such bound", strconv.QuoteToASCII(e.Dir), e.Why)
}

// DigestOf names what is in a directory now. In a git repository all of the repository is
// meant, wherever in it the directory is; one that the repository ignores is
// judged by itself.
func DigestOf(ctx context.Context, dir string) (*Digest, error) {
	d, err := digest(ctx, dir, MaxFiles, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("digest of %s: %w", strconv.QuoteToASCII(dir), err)
	}
	return d, nil
}

func digest(ctx context.Context, dir string, files int, bytes int64) (*Digest, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if underGit(dir) {
		repo, err := findRepo(ctx, dir)
		if err != nil {
			return nil, err
		}
		if repo != nil {
			return repo.digest(ctx)
		}
	}
	return manifest(ctx, dir, files, bytes)
}

// underGit tells whether there may be a repository around a directory, without
// which git is not asked for.
func underGit(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		above := filepath.Dir(dir)
		if above == dir {
			return false
		}
		dir = above
	}
}

// manifest is the digest of all that is below a directory, read without following
// a link. What is neither file, directory nor link counts by its kind alone.
func manifest(ctx context.Context, dir string, mostFiles int, mostBytes int64) (*Digest, error) {
	m := &listing{root: dir, mostFiles: mostFiles, mostBytes: mostBytes}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		return m.visit(path, entry)
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(m.lines) // whatever order the file system has
	sum := sha256.New()
	fmt.Fprintln(sum, "handsel digest 1 files")
	for _, line := range m.lines {
		fmt.Fprintln(sum, line)
	}
	return &Digest{Kind: Files, Value: value(sum.Sum(nil)), Dir: dir, Files: m.files, Bytes: m.bytes}, nil
}

func value(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// listing is a manifest in the making.
type listing struct {
	root      string
	mostFiles int
	mostBytes int64
	lines     []string
	files     int
	dirs      int
	bytes     int64
}

func (m *listing) visit(path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(m.root, path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		m.dirs++
	} else {
		m.files++
	}
	if m.files > m.mostFiles || m.dirs > m.mostFiles {
		return &TooMuch{m.root, fmt.Sprintf("%d files", m.mostFiles)}
	}
	what, err := m.content(path, info)
	if err != nil {
		return err
	}
	m.lines = append(m.lines, strconv.Quote(filepath.ToSlash(name))+" "+info.Mode().String()+" "+what)
	return nil
}

// content names what a file holds.
func (m *listing) content(path string, info fs.FileInfo) (string, error) {
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return strconv.Quote(target), err
	case !info.Mode().IsRegular():
		return "-", nil
	case m.bytes+info.Size() > m.mostBytes:
		return "", m.tooLarge()
	}
	file, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if now, err := file.Stat(); err != nil || !now.Mode().IsRegular() {
		return "", errors.Join(err, fmt.Errorf("%s is changed while it is read", strconv.QuoteToASCII(path)))
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(file, m.mostBytes-m.bytes+1))
	if m.bytes += n; err == nil && m.bytes > m.mostBytes {
		err = m.tooLarge()
	}
	return strconv.FormatInt(n, 10) + " " + hex.EncodeToString(sum.Sum(nil)), err
}

func (m *listing) tooLarge() error {
	return &TooMuch{m.root, strconv.FormatInt(m.mostBytes, 10) + " bytes"}
}
