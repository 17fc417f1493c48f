// Package key keeps the keys of requests: whoever asks for something under a key
// of his own may ask again, and gets what the first of those requests got.
//
// A key names at most one run of a home, among all processes that share it. Its
// file is written before anything is started, with the id that the run is going to
// have, and survives a power loss. Of two that come at once, the second waits until
// the first has started what it wants, or has given the key back. Whether there is
// a run of that id is for the caller to find out: this room starts nothing.
//
// A file goes once its run's record is gone, and a day has passed. The key itself
// is not kept, nor what was asked: a digest stands for each.
package key

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
)

// Dir is the directory of the keys, below the home.
const Dir = "keys"

// Most is how long a key may be, in bytes.
const Most = 200

// keptFor is how long a key without a run is kept at least: somebody may just be
// starting it.
const keptFor = 24 * time.Hour

const (
	version = 1
	suffix  = ".json"
	maxFile = 4 << 10
)

// patience bounds the wait for somebody who is starting something under a key that
// begins alike. A start takes some tenths of a second.
const patience = 10 * time.Second

// Taken is a key, and what it stands for.
type Taken struct {
	ID    string // of the run
	Known bool   // it was taken before

	file   file
	old    bool // it was written down long ago
	folder *home.Folder
	name   string
	unlock func()
}

// file is what is kept of a key.
type file struct {
	V       int    `json:"v"`
	ID      string `json:"id"`
	Request string `json:"request"` // a digest of what was asked
}

// Other reports a key that stands for another request.
type Other struct{ ID string }

func (e *Other) Error() string {
	return fmt.Sprintf("the key stands for another request, that of run %s; give this one a key of its own", e.ID)
}

// Bad reports a text that can be no key.
type Bad struct{ Why string }

func (e *Bad) Error() string { return e.Why }

// Stuck reports that whoever starts something under such a key does not come to
// an end.
type Stuck struct{ Pid int }

func (e *Stuck) Error() string {
	if e.Pid == 0 {
		return "somebody who is starting something under such a key does not come to an end"
	}
	return fmt.Sprintf("process %d, which is starting something under such a key, does not come to an end", e.Pid)
}

// Take takes a key for a request. A new one gets the id that fresh gives, and is
// written down by Begin. Until Done or Drop nobody else gets it. *Other, *Bad, *Stuck.
func Take(ctx context.Context, d home.Dir, text string, request [sha256.Size]byte, fresh func() string) (*Taken, error) {
	if text == "" || len(text) > Most {
		return nil, &Bad{fmt.Sprintf("a key has 1 to %d bytes, and this one %d", Most, len(text))}
	}
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:])
	folder, err := d.Make(Dir)
	if err != nil {
		return nil, err
	}
	t := &Taken{folder: folder, name: digest + suffix}
	if t.unlock, err = lock(ctx, folder, digest[:1]); err != nil {
		folder.Close()
		return nil, err
	}
	if err := t.read(hex.EncodeToString(request[:]), fresh); err != nil {
		t.Done()
		return nil, err
	}
	return t, nil
}

// lock keeps others away from keys whose digests begin alike: there are sixteen
// locks, however many keys there were.
func lock(ctx context.Context, folder *home.Folder, first string) (unlock func(), err error) {
	dir, err := flock.OpenDir(folder.Path())
	if err != nil {
		return nil, err
	}
	f, err := dir.Pass(ctx, "."+first+".lock", patience)
	if err == nil {
		return func() { f.Close(); dir.Close() }, nil
	}
	stuck := &Stuck{}
	if f != nil {
		if pids := f.Owners(); len(pids) > 0 {
			stuck.Pid = pids[0]
		}
		f.Close()
	}
	dir.Close()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, stuck
	}
	return nil, fmt.Errorf("lock the keys: %w", err)
}

func (t *Taken) read(request string, fresh func() string) error {
	data, err := t.folder.ReadFile(t.name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		t.ID = fresh()
		t.file = file{V: version, ID: t.ID, Request: request}
		return nil
	}
	var f file
	if err == nil {
		if err = json.Unmarshal(data, &f); err == nil && f.ID == "" {
			err = errors.New("no id is in it")
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the key's file %q: %w", filepath.Join(t.folder.Path(), t.name), err)
	case f.Request != request:
		return &Other{ID: f.ID}
	}
	t.ID, t.Known, t.file = f.ID, true, f
	if info, err := os.Lstat(filepath.Join(t.folder.Path(), t.name)); err == nil {
		t.old = time.Since(info.ModTime()) > keptFor
	}
	return nil
}

// Begin writes the key down, before something is started under it: nobody clears
// it away meanwhile. A key whose run is long gone stands for a new one.
func (t *Taken) Begin(fresh func() string) error {
	if t.old {
		t.ID = fresh()
	}
	t.file.ID = t.ID
	text, err := json.Marshal(t.file)
	if err != nil {
		return err
	}
	return t.folder.WriteFileSync(t.name, append(text, '\n'))
}

// Done lets others have the key, which goes on to stand for its run.
func (t *Taken) Done() {
	t.unlock()
	t.folder.Close()
}

// Drop gives the key back: nothing was started under it.
func (t *Taken) Drop() error {
	err := t.folder.Remove(t.name)
	t.Done()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Stale is a key that stands for nothing any more.
type Stale struct {
	Path  string
	ID    string
	Bytes int64

	name string
	gone func(id string) bool
}

// Idle lists the keys whose runs are gone, as gone tells, and that nobody is about
// to use. Nothing is removed.
func Idle(d home.Dir, now time.Time, gone func(id string) bool) (all []Stale, err error) {
	folder, err := d.Open(Dir)
	if err != nil {
		return nil, unlessGone(err)
	}
	defer folder.Close()
	names, err := folder.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if s, ok := idle(folder, name, now, gone); ok {
			all = append(all, s)
		}
	}
	return all, nil
}

func idle(folder *home.Folder, name string, now time.Time, gone func(id string) bool) (Stale, bool) {
	s := Stale{Path: filepath.Join(folder.Path(), name), name: name, gone: gone}
	info, err := os.Lstat(s.Path)
	if err != nil || !strings.HasSuffix(name, suffix) || now.Sub(info.ModTime()) < keptFor {
		return s, false
	}
	data, err := folder.ReadFile(name, maxFile)
	if err != nil {
		return s, false
	}
	var f file
	whole := json.Unmarshal(data, &f) == nil && f.ID != ""
	s.ID, s.Bytes = f.ID, info.Size()
	return s, !whole || gone(f.ID)
}

// Remove removes what Idle listed, unless somebody has come to use it.
func Remove(ctx context.Context, d home.Dir, s Stale, now time.Time) error {
	folder, err := d.Open(Dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	unlock, err := lock(ctx, folder, s.name[:1])
	if err != nil {
		return err
	}
	defer unlock()
	if _, still := idle(folder, s.name, now, s.gone); !still {
		return fs.ErrNotExist
	}
	return folder.Remove(s.name)
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
