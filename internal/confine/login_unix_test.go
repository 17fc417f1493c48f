//go:build unix

package confine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLoginComesBackAsTheEngineLeftIt: C127, the ways in which engines and agents
// leave it.
func TestLoginComesBackAsTheEngineLeftIt(t *testing.T) {
	const old, renewed = `{"token":"old"}`, `{"token":"new"}`
	for _, tt := range []struct {
		name string
		do   func(link, file string) error
		want string // what the login holds afterwards
		err  error  // of TakeBack; errAny: some
	}{
		{"untouched", func(string, string) error { return nil }, old, nil},
		{"written through the link", func(link, _ string) error { return os.WriteFile(link, []byte(renewed), 0o600) }, renewed, nil},
		{"replaced", func(link, _ string) error { return put(link, renewed) }, renewed, nil},
		{"replaced by an empty file", func(link, _ string) error { return put(link, "") }, old, errAny},
		{"replaced by no JSON", func(link, _ string) error { return put(link, "#!/bin/sh") }, old, errAny},
		{"replaced by an empty object", func(link, _ string) error { return put(link, "{}") }, old, errAny},
		{"replaced by a list", func(link, _ string) error { return put(link, "[1]") }, old, errAny},
		{"replaced by too much", func(link, _ string) error { return put(link, `{"a":"`+string(make([]byte, maxLogin))+`"}`) }, old, errAny},
		{"led elsewhere", func(link, file string) error {
			return errors.Join(os.Remove(link), put(file+".else", renewed), os.Symlink(file+".else", link))
		}, old, nil},
		{"a fifo", func(link, _ string) error { return errors.Join(os.Remove(link), unix.Mkfifo(link, 0o600)) }, old, errAny},
		{"a directory", func(link, _ string) error { return errors.Join(os.Remove(link), os.Mkdir(link, 0o700)) }, old, errAny},
		{"removed", func(link, _ string) error { return os.Remove(link) }, old, nil},
		{"renewed here and elsewhere", func(link, file string) error {
			return errors.Join(put(link, renewed), put(file, `{"token":"theirs"}`))
		}, `{"token":"theirs"}`, ErrRenewedTwice},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, link := filepath.Join(t.TempDir(), "login"), filepath.Join(t.TempDir(), "link")
			must(t, os.WriteFile(file, []byte(old), 0o640))
			l, err := Lend(file, link)
			must(t, err)
			must(t, tt.do(link, file))
			err = l.TakeBack()
			if (err == nil) != (tt.err == nil) || !errors.Is(tt.err, errAny) && !errors.Is(err, tt.err) {
				t.Errorf("TakeBack = %v, want %v", err, tt.err)
			}
			got, err := os.ReadFile(file)
			must(t, err)
			if string(got) != tt.want {
				t.Errorf("the login holds %q, want %q", got, tt.want)
			}
			left, err := filepath.Glob(file + ".tmp.*")
			if must(t, err); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

var errAny = errors.New("some error")

// put is how an engine replaces a file: written beside, and renamed.
func put(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// TestLoggedOutStaysSo: a login that the user has removed meanwhile is not made
// again.
func TestLoggedOutStaysSo(t *testing.T) {
	file, link := filepath.Join(t.TempDir(), "login"), filepath.Join(t.TempDir(), "link")
	must(t, put(file, `{"token":"old"}`))
	l, err := Lend(file, link)
	must(t, err)
	must(t, errors.Join(put(link, `{"token":"new"}`), os.Remove(file)))
	if l.TakeBack() == nil {
		t.Error("nothing was said")
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("logged in again: %v", err)
	}
	if _, err := Lend(file, link+"2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Lend of what is not there = %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
