package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/handsel/handsel/internal/home"
)

// maxSettings bounds a settings file, in bytes.
const maxSettings = 8 << 20

// Change is what an install or an uninstall does to a settings file. Nothing has
// happened before Apply.
type Change struct {
	Place  Place
	Before []byte
	After  []byte
	New    bool // there is no file before
	Gone   bool // there is none after

	dir  home.Dir
	note *note // what Apply leaves for a later uninstall; nil takes that away
}

// note says how a file is made again what it was: it is cut, or it goes.
type note struct {
	V      int    `json:"v"`
	Path   []byte `json:"path"` // bytes that need not be text
	After  string `json:"after"`
	Offset int    `json:"offset"`
	Length int    `json:"length"`
	New    bool   `json:"new"` // there was no file
}

const noteDir = "hooks"

// ErrChanged reports a settings file that somebody has changed since it was looked
// at. Nothing was done.
var ErrChanged = errors.New("somebody has changed it meanwhile; nothing was done")

// Install plans to put the hook into a settings file. A nil change is one that
// is not needed: the very same hook stands there.
func Install(d home.Dir, p Place, exe string) (*Change, error) {
	c, err := read(d, p)
	if err != nil {
		return nil, err
	}
	// An older hook of ours is taken out first as an uninstall would, so that the
	// note tells of the file without any.
	base := c.Before
	was, known := c.known()
	if known {
		base = was
	}
	change, ok, err := add(c.Before, p.Client, Command(exe, p.Client))
	if err != nil {
		return nil, at(p.Path, c.Before, err)
	}
	if !ok {
		return nil, nil
	}
	if known {
		if change, _, err = add(base, p.Client, Command(exe, p.Client)); err != nil {
			return nil, at(p.Path, base, err)
		}
	}
	c.After = change.apply(base)
	if _, err := tree(c.After); err != nil {
		return nil, at(p.Path, c.Before, fmt.Errorf("put the hook in: %w", err))
	}
	if change.old == 0 {
		fresh := c.New || known && c.note.New
		c.note = &note{1, []byte(p.Path), sum(c.After), change.off, len(change.text), fresh}
		return c, nil
	}
	c.note = nil
	return c, nil
}

// Uninstall plans to take the hook out. Where the file is as Install left it, it
// becomes what it was, byte for byte; else only our entry goes, and what would be
// empty without it. A nil change: no hook of ours stands there.
func Uninstall(d home.Dir, p Place) (*Change, error) {
	c, err := read(d, p)
	if err != nil {
		return nil, err
	}
	if was, ok := c.known(); ok {
		c.After, c.Gone, c.note = was, c.note.New, nil
		return c, nil
	}
	c.note = nil
	c.After = c.Before
	for {
		change, ok, err := take(c.After, p.Client)
		if err != nil {
			return nil, at(p.Path, c.Before, err)
		}
		if !ok {
			break
		}
		c.After = change.apply(c.After)
	}
	if bytes.Equal(c.After, c.Before) {
		return nil, nil
	}
	return c, nil
}

// read is a change of nothing yet.
func read(d home.Dir, p Place) (*Change, error) {
	c := &Change{Place: p, dir: d}
	target, err := p.target()
	if err != nil {
		return nil, err
	}
	c.Before, err = home.ReadFile(target, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		c.New, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	c.note = readNote(d, p.Path)
	return c, nil
}

// known is what the file was before an install, if it is as that left it.
func (c *Change) known() ([]byte, bool) {
	n := c.note
	if n == nil || c.New || n.After != sum(c.Before) || n.Offset < 0 || n.Length < 0 || n.Offset+n.Length > len(c.Before) {
		return nil, false
	}
	return splice{off: n.Offset, old: n.Length}.apply(c.Before), true
}

// Apply does it. A file that has been changed since it was looked at is left alone.
func (c *Change) Apply() error {
	target, err := c.Place.target()
	if err != nil {
		return err
	}
	now, err := home.ReadFile(target, maxSettings)
	if missing := errors.Is(err, fs.ErrNotExist); missing != c.New || !missing && err != nil || !bytes.Equal(now, c.Before) {
		if err == nil || missing {
			err = fmt.Errorf("%q: %w", c.Place.Path, ErrChanged)
		}
		return err
	}
	// The note comes first: one about a file that does not look so tells nothing.
	if c.note != nil {
		if err := writeNote(c.dir, c.note); err != nil {
			return err
		}
	}
	if err := c.write(target); err != nil {
		return err
	}
	if c.note == nil {
		dropNote(c.dir, c.Place.Path)
	}
	return nil
}

func (c *Change) write(target string) error {
	if c.Gone {
		if err := os.Remove(target); err != nil {
			return &home.Unusable{Path: target, Err: err}
		}
		return nil
	}
	mode := uint32(0o600)
	if c.New {
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return &home.Unusable{Path: filepath.Dir(target), Err: err}
		}
	} else if info, err := os.Stat(target); err == nil {
		mode = uint32(info.Mode().Perm())
	}
	return home.WriteFileMode(target, c.After, mode)
}

func sum(data []byte) string {
	all := sha256.Sum256(data)
	return hex.EncodeToString(all[:])
}

// noteName is the note of a settings file.
func noteName(path string) string { return sum([]byte(path))[:32] + ".json" }

// readNote is nil where there is none that can be read: then nothing is known.
func readNote(d home.Dir, path string) *note {
	folder, err := d.Open(noteDir)
	if err != nil {
		return nil
	}
	defer folder.Close()
	data, err := folder.ReadFile(noteName(path), 64<<10)
	n := new(note)
	if err != nil || json.Unmarshal(data, n) != nil || n.V != 1 || string(n.Path) != path {
		return nil
	}
	return n
}

func writeNote(d home.Dir, n *note) error {
	folder, err := d.Make(noteDir)
	if err != nil {
		return err
	}
	defer folder.Close()
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return folder.WriteFileSync(noteName(string(n.Path)), append(data, '\n'))
}

func dropNote(d home.Dir, path string) {
	folder, err := d.Open(noteDir)
	if err != nil {
		return
	}
	defer folder.Close()
	_ = folder.Remove(noteName(path)) // one that stays tells nothing of another file
}
