package home

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// On Windows a cap refuses before any file is touched, so these keep only what
// looking and recording need: no link followed, bounded reads, whole writes.
// Owners are not judged: an access list has no single owner and mode to compare.

const cwd = 0

// owner says whose a file may be; on Windows it is not judged.
type owner int

const (
	ownOnly owner = iota
	ownOrRoot
	rootOnly
)

// Folder is a directory of ours, named by its path.
type Folder struct {
	at   int
	path string
}

func (f *Folder) rel(name string) string { return filepath.Join(f.path, name) }

// OpenFolder names a directory that must not be a link.
func OpenFolder(path string) (*Folder, error) {
	if err := Trust(path, true); err != nil {
		return nil, err
	}
	return &Folder{path: path}, nil
}

// Sub opens a directory in the folder.
func (f *Folder) Sub(name string) (*Folder, error) { return OpenFolder(f.rel(name)) }

// MakeSub opens a directory in the folder, creating it if it is not there.
func (f *Folder) MakeSub(name string) (*Folder, error) {
	if err := f.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return f.Sub(name)
}

// Mkdir creates a directory. One that is there already is fs.ErrExist.
func (f *Folder) Mkdir(name string) error { return unusable(f.rel(name), os.Mkdir(f.rel(name), 0o700)) }

// Close does nothing here.
func (f *Folder) Close() error { return nil }

// Names lists what is in the folder, in no order.
func (f *Folder) Names() ([]string, error) {
	dir, err := os.Open(f.path)
	if err != nil {
		return nil, unusable(f.path, err)
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// Create makes a new file, open for writing. One that is there already is fs.ErrExist.
func (f *Folder) Create(name string) (*os.File, error) {
	file, err := os.OpenFile(f.rel(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return file, unusable(f.rel(name), err)
}

// OpenRead opens a file of the folder.
func (f *Folder) OpenRead(name string) (*os.File, error) {
	if err := Trust(f.rel(name), false); err != nil {
		return nil, err
	}
	file, err := os.Open(f.rel(name))
	return file, unusable(f.rel(name), err)
}

// Append adds line to a file in one write, creating it if need be; ErrFull when
// it would grow beyond max bytes.
func (f *Folder) Append(name string, line []byte, max int64) error {
	path := f.rel(name)
	if err := Trust(path, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return unusable(path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return unusable(path, err)
	}
	if info.Size()+int64(len(line)) > max {
		return ErrFull
	}
	_, err = file.Write(line)
	return unusable(path, err)
}

// Rename moves a file within the folder.
func (f *Folder) Rename(from, to string) error {
	return unusable(f.rel(from), os.Rename(f.rel(from), f.rel(to)))
}

// Remove deletes a file, or an empty directory.
func (f *Folder) Remove(name string) error { return unusable(f.rel(name), os.Remove(f.rel(name))) }

func readAt(_ int, name, path string, max int64, _ owner) ([]byte, error) {
	if err := Trust(name, false); err != nil {
		return nil, err
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, unusable(path, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, max+1))
	switch {
	case err != nil:
		return nil, unusable(path, err)
	case int64(len(data)) > max:
		return nil, &Unusable{Path: path, Err: fmt.Errorf("%w (at most %d bytes)", ErrTooLarge, max)}
	}
	return data, nil
}

func writeAt(_ int, dir, name, path string, data []byte, mode uint32, sync bool) error {
	temp := filepath.Join(dir, tempName())
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(mode))
	if err != nil {
		return unusable(path, err)
	}
	_, err = file.Write(data)
	if err == nil && sync {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(temp)
		return &Unusable{Path: path, Err: bare(err)}
	}
	return nil
}

// Trust judges a path: a directory or a regular file, not a link.
func Trust(path string, wantDir bool) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return unusable(path, err)
	case info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0:
		return &Untrusted{Path: path, Why: "it is a link"}
	case wantDir && !info.IsDir():
		return &Untrusted{Path: path, Why: "it is not a directory"}
	case !wantDir && !info.Mode().IsRegular():
		return &Untrusted{Path: path, Why: "it is not a regular file"}
	}
	return nil
}

// TrustParent judges nothing on Windows.
func TrustParent(string) error { return nil }

func repairMode(string) error { return nil }

func unusable(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return notExist(path)
	case errors.Is(err, fs.ErrExist):
		return err
	}
	return &Unusable{Path: path, Err: bare(err)}
}
