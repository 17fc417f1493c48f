package attempt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/home"
)

// HeartbeatFile is what entries of waiting rows name as their heartbeat: its
// pid and start name the dispatcher, its modification time is the beat.
const HeartbeatFile = "dispatch.json"

// Owner is who keeps an entry up to date. A waiting row's is the dispatcher,
// whose pid is in the heartbeat's file, so that it need not be in every entry.
type Owner struct {
	Role    string `json:"role"`
	Pid     int    `json:"pid,omitempty"`
	Started uint64 `json:"start_ticks,omitempty"`
}

// Reason says why a row waits (C13).
type Reason struct {
	Class     string `json:"class"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Until     Time   `json:"until,omitzero"`
	Retryable bool   `json:"retryable"`
}

// Entry is the view of one waiting lane that boards and probes read (L16).
type Entry struct {
	V          int       `json:"v"`
	Lane       string    `json:"lane"`
	Attempt    string    `json:"attempt"`
	State      string    `json:"state"`
	StateSince Time      `json:"state_since"`
	QueueStart Time      `json:"queue_start"`
	Priority   int       `json:"priority"`
	Placement  Placement `json:"placement"`
	Owner      Owner     `json:"owner"`
	Heartbeat  string    `json:"heartbeat,omitempty"` // a file in the home
	Reason     *Reason   `json:"reason,omitempty"`
}

// EntryOf is the entry of a row.
func EntryOf(r *Row, owner Owner, heartbeat string) *Entry {
	e := &Entry{
		V: Version, Lane: r.Lane, Attempt: r.ID, State: r.State, StateSince: r.StateSince, QueueStart: r.QueueStart,
		Priority: r.Priority, Placement: r.Placement, Owner: owner, Heartbeat: heartbeat,
	}
	e.Placement.Caps = nil // nobody who looks needs them
	return e
}

const (
	queueDir = "queue"
	suffix   = ".json"
	// entrySpace is what an entry takes on disk, in bytes. As long as it fits, it
	// is replaced in place by one write of all of the space: making a second file
	// and renaming it costs a hundred times as much (G10, G11). A reader that
	// catches the write in the middle reads again.
	entrySpace = 2048
	// maxEntry bounds an entry that is read, in bytes.
	maxEntry = 64 << 10
)

// View is the directory of entries, open. It is for one goroutine at a time.
type View struct{ folder *home.Folder }

// OpenView opens the directory of entries, making it if need be.
func OpenView(d home.Dir) (*View, error) {
	folder, err := d.Make(queueDir)
	if err != nil {
		return nil, fmt.Errorf("entries: %w", err)
	}
	return &View{folder}, nil
}

// Close lets go of the directory.
func (v *View) Close() { v.folder.Close() }

// Write writes the entry of its lane; whoever owns the lane may. It is ErrNewer,
// and nothing is written, where a later version wrote the one that is there.
func (v *View) Write(e *Entry) error {
	data, err := encodeEntry(e)
	if err == nil {
		err = v.write(home.LaneFile(e.Lane)+suffix, data)
	}
	if err != nil {
		return fmt.Errorf("entry of lane %s: %w", strconv.QuoteToASCII(e.Lane), err)
	}
	return nil
}

func (v *View) write(name string, data []byte) error {
	switch err := overwrite(filepath.Join(v.folder.Path(), name), data); {
	case err == nil:
		return nil
	case errors.Is(err, errOther):
		return v.folder.WriteFile(name, data)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	file, err := v.folder.Create(name)
	if errors.Is(err, fs.ErrExist) {
		return v.folder.WriteFile(name, data)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	if err = errors.Join(err, file.Close()); err != nil {
		_ = v.folder.Remove(name)
	}
	return err
}

// errOther reports a file that is not one to overwrite, but to replace.
var errOther = errors.New("it cannot be written in place")

// head begins every entry of this version.
var head = []byte(`{"v":` + strconv.Itoa(Version) + `,`)

// mayReplace tells whether the text that is there is an entry that this version
// may write over (C12).
func mayReplace(text []byte) error {
	var there struct {
		V int `json:"v"`
	}
	if json.Unmarshal(text, &there) == nil && there.V > Version {
		return ErrNewer
	}
	return nil
}

// encodeEntry is the entry as it stands on disk, padded to entrySpace where it
// fits.
func encodeEntry(e *Entry) ([]byte, error) {
	e.V = Version
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if len(data) >= entrySpace {
		return append(data, '\n'), nil
	}
	padded := make([]byte, entrySpace)
	copy(padded[copy(padded, data):], padding)
	padded[entrySpace-1] = '\n'
	return padded, nil
}

var padding = bytes.Repeat([]byte{' '}, entrySpace)

// Same tells whether the entry on disk is e to the byte, without understanding
// it.
func (v *View) Same(e *Entry) bool {
	want, err := encodeEntry(e)
	if err != nil {
		return false
	}
	got, err := v.folder.ReadFile(home.LaneFile(e.Lane)+suffix, maxEntry)
	return err == nil && bytes.Equal(got, want)
}

// Read reads a lane's entry. A missing one is fs.ErrNotExist.
func (v *View) Read(lane string) (*Entry, error) {
	e, err := v.read(home.LaneFile(lane) + suffix)
	if err == nil && e.Lane != lane {
		err = errors.New("it is another one's")
	}
	if err != nil {
		return nil, fmt.Errorf("entry of lane %s: %w", strconv.QuoteToASCII(lane), err)
	}
	return e, nil
}

func (v *View) read(name string) (*Entry, error) {
	return again(func() (*Entry, error) {
		data, err := v.folder.ReadFile(name, maxEntry)
		if err != nil {
			return nil, err
		}
		return decodeEntry(data, name)
	})
}

// decodeEntry reads an entry as far as its fields are known here.
func decodeEntry(data []byte, name string) (*Entry, error) {
	e := new(Entry)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("not an entry: %w", err)
	}
	switch {
	case e.V < 1:
		return nil, errors.New("not an entry: no version")
	case home.ValidLane(e.Lane) != nil || home.LaneFile(e.Lane)+suffix != name:
		return nil, errors.New("the file is another lane's")
	}
	return e, nil
}

// All reads all entries, in no order, and names what was passed over.
func (v *View) All() (all []*Entry, problems []Problem, err error) {
	names, err := v.folder.Names()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, suffix) {
			continue // not finished, or none of ours
		}
		switch e, err := v.read(name); {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			problems = append(problems, Problem{filepath.Join(v.folder.Path(), name), err})
		default:
			all = append(all, e)
		}
	}
	return all, problems, nil
}

// Remove removes a lane's entry. A missing one is fs.ErrNotExist.
func (v *View) Remove(lane string) error {
	if err := v.folder.Remove(home.LaneFile(lane) + suffix); err != nil {
		return fmt.Errorf("entry of lane %s: %w", strconv.QuoteToASCII(lane), err)
	}
	return nil
}

// WriteEntry is View.Write.
func WriteEntry(d home.Dir, e *Entry) error {
	v, err := OpenView(d)
	if err != nil {
		return err
	}
	defer v.Close()
	return v.Write(e)
}

// ReadEntry is View.Read.
func ReadEntry(d home.Dir, lane string) (*Entry, error) {
	v, err := lookView(d)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Read(lane)
}

// Entries is View.All. A home without the directory has none.
func Entries(d home.Dir) ([]*Entry, []Problem, error) {
	v, err := lookView(d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer v.Close()
	return v.All()
}

// RemoveEntry is View.Remove.
func RemoveEntry(d home.Dir, lane string) error {
	v, err := lookView(d)
	if err != nil {
		return err
	}
	defer v.Close()
	return v.Remove(lane)
}

// lookView opens the directory for a reader, which makes nothing.
func lookView(d home.Dir) (*View, error) {
	folder, err := d.Open(queueDir)
	if err != nil {
		return nil, fmt.Errorf("entries: %w", err)
	}
	return &View{folder}, nil
}
