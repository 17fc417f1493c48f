package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"

	"github.com/handsel/handsel/internal/home"
)

// What became of an offer.
const (
	Began     = "begun"     // the driver owns it and may spawn
	Withdrawn = "withdrawn" // the dispatcher took it back; nothing may be spawned for it
)

// Begun is the file begun.N of an attempt's N-th start. It is created once, by
// the driver right before it acknowledges or by the dispatcher: whoever creates
// it first decides, so that withdrawing an offer needs neither a gap in the
// ownership of the lane nor a race to end the driver (L14, L15). It appears
// whole. It is not flushed: after a power loss nothing runs any more.
type Begun struct {
	V      int    `json:"v"`
	What   string `json:"what"`
	Pid    int    `json:"pid"` // of who wrote it
	Ticks  uint64 `json:"start_ticks,omitempty"`
	BootID string `json:"boot_id,omitempty"`
	At     Time   `json:"at"`
}

// ErrTaken reports that the start was decided before; *Taken says by whom.
var ErrTaken = errors.New("the start was decided before")

// Taken is ErrTaken with what is there.
type Taken struct {
	Start int
	By    Begun
}

func (e *Taken) Error() string {
	return fmt.Sprintf("start %d was %s by process %d", e.Start, e.By.What, e.By.Pid)
}

func (e *Taken) Unwrap() error { return ErrTaken }

// maxBegun bounds a file that is read, in bytes.
const maxBegun = 4096

func begunFile(n int) string { return "begun." + strconv.Itoa(n) }

// Begin decides the attempt's n-th start, n counted from 1. It is *Taken when it
// was decided before; after any other error it may be either, which ReadBegun
// tells.
func Begin(d home.Dir, id string, n int, who Begun) error {
	who.V = Version
	if who.What != Began && who.What != Withdrawn || n < 1 {
		return fmt.Errorf("begin %s: %q of start %d", id, who.What, n)
	}
	err := begin(d, id, n, &who)
	if errors.Is(err, fs.ErrExist) {
		var by *Begun
		if by, err = ReadBegun(d, id, n); err == nil {
			return &Taken{Start: n, By: *by}
		}
	}
	if err != nil {
		return fmt.Errorf("begin %s, start %d: %w", id, n, err)
	}
	return nil
}

// begin makes the file under another name and gives it its own where none has
// it, in one step: a file that is there is whole.
func begin(d home.Dir, id string, n int, who *Begun) error {
	dir, err := open(d, id)
	if err != nil {
		return err
	}
	defer dir.Close()
	data, err := json.Marshal(who)
	if err != nil {
		return err
	}
	temp := "." + begunFile(n) + "-" + strconv.FormatUint(rand.Uint64(), 16)
	file, err := dir.Create(temp)
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	if err = errors.Join(err, file.Close()); err == nil {
		err = home.RenameNew(filepath.Join(dir.Path(), temp), filepath.Join(dir.Path(), begunFile(n)))
	}
	if err != nil {
		_ = dir.Remove(temp)
	}
	return err
}

// ReadBegun tells how the n-th start was decided. It is fs.ErrNotExist while it
// is open.
func ReadBegun(d home.Dir, id string, n int) (*Begun, error) {
	b, err := again(func() (*Begun, error) {
		data, err := readFile(d, id, begunFile(n), maxBegun)
		if err != nil {
			return nil, err
		}
		return decodeBegun(data)
	})
	if err != nil {
		return nil, fmt.Errorf("start %d of %s: %w", n, id, err)
	}
	return b, nil
}

func decodeBegun(data []byte) (*Begun, error) {
	b := new(Begun)
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("not a decision: %w", err)
	}
	if b.V < 1 || b.What != Began && b.What != Withdrawn {
		return nil, errors.New("not a decision")
	}
	return b, nil
}
