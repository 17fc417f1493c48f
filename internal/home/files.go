package home

import (
	"math/rand/v2"
	"path/filepath"
	"strconv"
)

// tempPrefix begins the name of every file that is not finished yet. Readers of
// a directory pass over names that begin with a dot.
const tempPrefix = ".tmp-"

// tempName is a name nobody can have prepared (C134): 64 random bits, and the
// file is created exclusively all the same.
func tempName() string { return tempPrefix + strconv.FormatUint(rand.Uint64(), 16) }

// ReadFile reads a whole file of at most max bytes. It follows no link and
// waits for nothing; the file must be regular, ours or root's, with one name and
// not writable by others. A missing file is fs.ErrNotExist; otherwise
// *Untrusted, *Unusable, or ErrTooLarge inside *Unusable.
func ReadFile(path string, max int64) ([]byte, error) {
	return readAt(cwd, path, path, max, ownOrRoot)
}

// ReadRootFile is ReadFile for a file that must be root's, such as the machine's
// configuration (C6).
func ReadRootFile(path string, max int64) ([]byte, error) {
	return readAt(cwd, path, path, max, rootOnly)
}

// WriteFile replaces path, or creates it, with mode 0600: every reader sees the
// old content or the new, never a part. What was at the path, a link or a FIFO
// included, is replaced and not followed. A crash of the machine may lose it.
func WriteFile(path string, data []byte) error {
	return writeAt(cwd, filepath.Dir(path), filepath.Base(path), path, data, 0o600, false)
}

// WriteFileSync is WriteFile for what must survive a power loss: file and
// directory are flushed before it returns.
func WriteFileSync(path string, data []byte) error {
	return writeAt(cwd, filepath.Dir(path), filepath.Base(path), path, data, 0o600, true)
}

// WriteFileMode is WriteFileSync with another mode, for files that people write
// and others must be able to read.
func WriteFileMode(path string, data []byte, mode uint32) error {
	return writeAt(cwd, filepath.Dir(path), filepath.Base(path), path, data, mode, true)
}

// Path is where the folder was opened.
func (f *Folder) Path() string { return f.path }

// ReadFile is the function of that name, for a file in the folder.
func (f *Folder) ReadFile(name string, max int64) ([]byte, error) {
	return readAt(f.at, f.rel(name), filepath.Join(f.path, name), max, ownOrRoot)
}

// WriteFile is the function of that name, for a file in the folder.
func (f *Folder) WriteFile(name string, data []byte) error {
	return writeAt(f.at, f.rel("."), name, filepath.Join(f.path, name), data, 0o600, false)
}

// WriteFileSync is the function of that name, for a file in the folder.
func (f *Folder) WriteFileSync(name string, data []byte) error {
	return writeAt(f.at, f.rel("."), name, filepath.Join(f.path, name), data, 0o600, true)
}

// Make opens the directory rel below the home, creating what is missing of it
// and of the home.
func (d Dir) Make(rel ...string) (*Folder, error) {
	f, err := OpenFolder(d.Path)
	if err != nil {
		if err := d.Ensure(); err != nil {
			return nil, err
		}
		if f, err = OpenFolder(d.Path); err != nil {
			return nil, err
		}
	}
	return f.walk(rel, (*Folder).MakeSub)
}

// Open opens the directory rel below the home, component by component, none of
// them through a link. A missing one is fs.ErrNotExist.
func (d Dir) Open(rel ...string) (*Folder, error) {
	f, err := OpenFolder(d.Path)
	if err != nil {
		return nil, err
	}
	return f.walk(rel, (*Folder).Sub)
}

// walk steps down from f, which it closes.
func (f *Folder) walk(rel []string, step func(*Folder, string) (*Folder, error)) (*Folder, error) {
	for _, name := range rel {
		next, err := step(f, name)
		f.Close()
		if err != nil {
			return nil, err
		}
		f = next
	}
	return f, nil
}
