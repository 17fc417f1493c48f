package confine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Login is a file that a confined engine reads through a link in its private
// directory, and may fill in its place: what it is renewed with would otherwise
// be lost, and with it the login itself, since a renewal works once (C127).
type Login struct {
	// File is the file itself, links followed; its content is never read or
	// written by us while the engine runs.
	File string

	link string
	lent fs.FileInfo
}

// maxLogin is the longest file that is taken for a login, in bytes; they have a
// few thousand.
const maxLogin = 1 << 20

// Lend makes link a symbolic link to file. fs.ErrNotExist when there is no such
// file: the engine then has no login of that kind.
func Lend(file, link string) (*Login, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(real)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("login %q: not a regular file", file)
	}
	if err := os.Symlink(real, link); err != nil {
		return nil, err
	}
	return &Login{File: real, link: link, lent: st}, nil
}

// ErrRenewedTwice reports that a login was renewed in two places. Which of the
// two is still good only its service knows, so nothing was moved.
var ErrRenewedTwice = errors.New("it was renewed here and elsewhere at the same time; the one elsewhere stays")

// TakeBack ends what Lend began, once the engine and all it started have ended.
// Where the engine has put a new file in the link's place, as those do that
// write beside and rename, that file takes the place of the login, whole, if it
// can be one. Otherwise nothing is touched: what was written through the link is
// where it belongs.
func (l *Login) TakeBack() error {
	data, err := l.renewed()
	if err != nil || data == nil {
		return l.wrap(err)
	}
	now, err := os.Lstat(l.File)
	switch {
	case err == nil && same(now, l.lent):
	case err == nil:
		return l.wrap(ErrRenewedTwice)
	case errors.Is(err, fs.ErrNotExist):
		return l.wrap(errors.New("it was removed meanwhile; the user has logged out"))
	default:
		return l.wrap(err)
	}
	if err := replace(l.File, data, l.lent.Mode().Perm()); err != nil {
		return l.wrap(err)
	}
	return l.wrap(os.Remove(l.link))
}

func (l *Login) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the login %q: %w", l.File, err)
}

// same tells whether a file is the one that was lent, as it was.
func same(now, lent fs.FileInfo) bool {
	return os.SameFile(now, lent) && now.ModTime().Equal(lent.ModTime()) && now.Size() == lent.Size()
}

// renewed is what stands in the link's place; nil when that is a link still, or
// nothing. It is read from the descriptor that was judged: the directory was the
// agent's.
func (l *Login) renewed() ([]byte, error) {
	f, err := openPlain(l.link)
	if f == nil || err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() == 0 || st.Size() > maxLogin {
		return nil, errors.New("what the agent has left in its place is none, so the old one stays")
	}
	data := make([]byte, st.Size())
	if _, err := f.ReadAt(data, 0); err != nil {
		return nil, err
	}
	var object map[string]any
	if json.NewDecoder(bytes.NewReader(data)).Decode(&object) != nil || len(object) == 0 {
		return nil, errors.New("what the agent has left in its place is none, so the old one stays")
	}
	return data, nil
}

// replace puts data in the place of path, all at once.
func replace(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp.")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
