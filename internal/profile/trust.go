package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/machine"
)

// trustDir holds one small file for each directory that is trusted, so that two
// who trust at once do not undo each other.
const trustDir = "trust"

const (
	trustVersion = 1
	// maxTrust bounds one file, in bytes.
	maxTrust = 16 << 10
	// trustTime is RFC 3339 in UTC with milliseconds (C12).
	trustTime = "2006-01-02T15:04:05.000Z"
)

// trustNote is one file.
type trustNote struct {
	V     int    `json:"v"`
	Path  []byte `json:"path"` // bytes that need not be text
	Since string `json:"since"`
}

// Trust notes that the user trusts the profiles of a project, and returns the
// directory it is known by: absolute, with no link in it.
func Trust(d home.Dir, dir string) (string, error) {
	path, err := resolved(dir)
	if err != nil {
		return "", err
	}
	if err := d.Ensure(); err != nil {
		return "", err
	}
	folder, err := d.Make(trustDir)
	if err != nil {
		return "", err
	}
	defer folder.Close()
	data, err := json.Marshal(trustNote{trustVersion, []byte(path), machine.Now().UTC().Format(trustTime)})
	if err != nil {
		return "", err
	}
	return path, folder.WriteFile(noteName(path), append(data, '\n'))
}

// Distrust takes that back. fs.ErrNotExist when it was not trusted.
func Distrust(d home.Dir, dir string) (string, error) {
	path, err := resolved(dir)
	if errors.Is(err, fs.ErrNotExist) { // one that is gone can still be named
		path, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", err
	}
	folder, err := d.Open(trustDir)
	if err == nil {
		defer folder.Close()
		err = folder.Remove(noteName(path))
	}
	if err != nil {
		return path, fmt.Errorf("%s is not trusted: %w", strconv.QuoteToASCII(path), err)
	}
	return path, nil
}

// Trusts tells whether the user trusts a directory. What cannot be read is not.
func Trusts(d home.Dir, dir string) bool {
	path, err := resolved(dir)
	if err != nil {
		return false
	}
	folder, err := d.Open(trustDir)
	if err != nil {
		return false
	}
	defer folder.Close()
	note, err := readNote(folder, noteName(path))
	return err == nil && string(note.Path) == path
}

// Trusted lists the directories that are trusted, in order.
func Trusted(d home.Dir) ([]string, error) {
	folder, err := d.Open(trustDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	names, err := folder.Names()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		if note, err := readNote(folder, name); err == nil && noteName(string(note.Path)) == name {
			all = append(all, string(note.Path))
		}
	}
	slices.Sort(all)
	return all, nil
}

func readNote(folder *home.Folder, name string) (*trustNote, error) {
	data, err := folder.ReadFile(name, maxTrust)
	if err != nil {
		return nil, err
	}
	note := new(trustNote)
	if err := json.Unmarshal(data, note); err != nil {
		return nil, err
	}
	return note, nil
}

// noteName is the file of a directory.
func noteName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// resolved is a directory without links in its path.
func resolved(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", missing(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", missing(err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory", strconv.QuoteToASCII(path))
	}
	return path, nil
}

// missing says what is missing in a form that repeats no system call.
func missing(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", strconv.QuoteToASCII(at.Path), at.Err)
	}
	return err
}
