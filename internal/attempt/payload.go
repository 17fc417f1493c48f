package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/home"
)

const (
	runsDir     = "runs"
	payloadFile = "payload.json"
	// maxPayload bounds a payload that is read, in bytes: MaxStdin in base64 and
	// as many arguments and variables as an execve(2) takes.
	maxPayload = 64 << 20
)

// MaxStdin is how long a stored input may be, in bytes.
const MaxStdin = 16 << 20

// payloadVersion is that of a payload with files; one without is of Version.
const payloadVersion = 2

// maxWords bounds arguments and environment together, in bytes; the kernel takes
// 6 MiB at most.
const maxWords = 8 << 20

// Payload is what an attempt is started with: bytes that need not be text.
type Payload struct {
	V    int      `json:"v"`
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"` // NAME=value
	// Cwd is the working directory, absolute. It is the one to use: the row's is
	// for people.
	Cwd      []byte `json:"cwd"`
	Stdin    []byte `json:"stdin,omitempty"`
	HasStdin bool   `json:"has_stdin,omitempty"` // Stdin is the child's input; otherwise the null device is
	Files    []File `json:"files,omitempty"`
}

// File is a small file that is put beside the command before it starts: what an
// engine takes from files only.
type File struct {
	// Path is absolute, in the directory of the attempt that was enqueued first: it
	// stands among the arguments, also of one that tries the same again.
	Path []byte `json:"path"`
	Data []byte `json:"data"`
}

// ErrNewer reports a file that a later version wrote. It must not be rewritten
// (C12), and a payload cannot be understood in part.
var ErrNewer = errors.New("it was written by a newer version")

// check tells whether something can be started with it.
func (p *Payload) check() error {
	size := len(p.Cwd)
	for _, words := range [][][]byte{p.Argv, p.Env} {
		for _, word := range words {
			size += len(word) + 1
		}
	}
	for _, f := range p.Files {
		if size += len(f.Path) + len(f.Data); !filepath.IsAbs(string(f.Path)) {
			return fmt.Errorf("%q is no place for a file of it", f.Path)
		}
	}
	switch {
	case len(p.Argv) == 0:
		return errors.New("no command")
	case len(p.Stdin) > MaxStdin:
		return fmt.Errorf("its input has %d bytes, and %d is the most", len(p.Stdin), MaxStdin)
	case size > maxWords:
		return fmt.Errorf("its arguments and environment have %d bytes, and %d is the most", size, maxWords)
	}
	return nil
}

// Strings is one of a payload's lists as the os package wants it.
func Strings(words [][]byte) []string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = string(word)
	}
	return out
}

// Bytes is a list as a payload has it.
func Bytes(words []string) [][]byte {
	out := make([][]byte, len(words))
	for i, word := range words {
		out[i] = []byte(word)
	}
	return out
}

// Write makes the attempt's directory and its payload, and returns when both
// would survive a power loss.
func Write(d home.Dir, id string, p *Payload) error {
	flush, err := Put(d, id, p)
	if err != nil {
		return err
	}
	return flush.Wait()
}

// Flush is the way of a payload to the disk.
type Flush struct {
	id   string
	done sync.WaitGroup
	errs []error
}

// Wait returns when the payload would survive a power loss. It may be called
// again.
func (f *Flush) Wait() error {
	f.done.Wait()
	if err := errors.Join(f.errs...); err != nil {
		return fmt.Errorf("payload %s: %w", f.id, err)
	}
	return nil
}

// Put is Write without the waiting: everybody can read the payload when it
// returns, and it is on its way to the disk, so that something else can be done
// meanwhile. Until Wait returns nobody may be told that the attempt is kept.
func Put(d home.Dir, id string, p *Payload) (*Flush, error) {
	date, ok := dateOf(id)
	if !ok {
		return nil, fmt.Errorf("payload %q: not the id of an attempt", id)
	}
	data, err := encodePayload(p)
	if err != nil {
		return nil, fmt.Errorf("payload %s: %w", id, err)
	}
	day, above, err := makeDay(d, date)
	if err != nil {
		return nil, fmt.Errorf("payload %s: %w", id, err)
	}
	defer day.Close()
	file, err := createPayload(day, id, data)
	if err != nil {
		return nil, fmt.Errorf("payload %s: %w", id, err)
	}
	return flush(d, date, id, file, above), nil
}

func encodePayload(p *Payload) ([]byte, error) {
	p.V = Version
	if len(p.Files) > 0 {
		p.V = payloadVersion // who does not know files would start the command without them
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(p)
	return append(data, '\n'), err
}

// makeDay opens the day's directory and tells which directories above it may
// still have to be flushed: those that this process has not flushed yet.
func makeDay(d home.Dir, date string) (day *home.Folder, above []string, err error) {
	if day, err = d.Open(runsDir, date); errors.Is(err, fs.ErrNotExist) {
		flushed.Delete(filepath.Join(d.Runs(), date))
		day, err = d.Make(runsDir, date)
	}
	if err != nil {
		return nil, nil, err
	}
	if _, ok := flushed.Load(day.Path()); !ok {
		above = []string{d.Path, d.Runs()}
	}
	return day, above, nil
}

// flushed are the days' directories whose names this process has flushed.
var flushed sync.Map

// createPayload makes the attempt's directory and the payload in it. The file
// is written under its own name: nobody looks for it before the row is there.
func createPayload(day *home.Folder, id string, data []byte) (file *os.File, err error) {
	if err := day.Mkdir(id); err != nil {
		return nil, err
	}
	failpoint.Hit("attempt.directory")
	dir, err := day.Sub(id)
	if err == nil {
		defer dir.Close()
		file, err = dir.Create(payloadFile)
	}
	if err == nil {
		if _, err = file.Write(data); err != nil {
			file.Close()
			_ = dir.Remove(payloadFile)
		}
	}
	if err != nil {
		_ = day.Remove(id)
		return nil, err
	}
	return file, nil
}

// flush sends the payload, and every directory on the way to it, to the disk.
// All at once, since a file system's journal takes them in one commit.
func flush(d home.Dir, date, id string, file *os.File, above []string) *Flush {
	day := filepath.Join(d.Runs(), date)
	dirs := append(above, day, filepath.Join(day, id))
	f := &Flush{id: id, errs: make([]error, len(dirs)+1)}
	f.done.Go(func() { f.errs[len(dirs)] = errors.Join(flushData(file), file.Close()) })
	var tops sync.WaitGroup
	for i, dir := range dirs {
		tops.Add(1)
		f.done.Go(func() {
			defer tops.Done()
			f.errs[i] = flushDir(dir)
		})
	}
	if len(above) > 0 {
		f.done.Go(func() {
			tops.Wait()
			if errors.Join(f.errs[:len(dirs)]...) == nil {
				flushed.Store(day, true)
			}
		})
	}
	return f
}

// Read reads a payload. A missing one is fs.ErrNotExist.
func Read(d home.Dir, id string) (*Payload, error) {
	data, err := readFile(d, id, payloadFile, maxPayload)
	var p *Payload
	if err == nil {
		p, err = decodePayload(data)
	}
	if err != nil {
		return nil, fmt.Errorf("payload %s: %w", id, err)
	}
	return p, nil
}

func decodePayload(data []byte) (*Payload, error) {
	p := new(Payload)
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("not a payload: %w", err)
	}
	switch {
	case p.V < 1:
		return nil, errors.New("not a payload: no version")
	case p.V > payloadVersion:
		return nil, ErrNewer
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("not a payload: %w", err)
	}
	return p, nil
}

// readFile reads one file of an attempt.
func readFile(d home.Dir, id, name string, most int64) ([]byte, error) {
	dir, err := open(d, id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadFile(name, most)
}

// again reads what others may be writing at this moment: what is not whole is
// read once more a moment later. Damage does not mend itself, so it stays.
func again[T any](read func() (T, error)) (T, error) {
	for tries := 1; ; tries++ {
		got, err := read()
		if err == nil || errors.Is(err, fs.ErrNotExist) || tries == readTries {
			return got, err
		}
		time.Sleep(time.Millisecond)
	}
}

// readTries is how often a file that is not whole is read.
const readTries = 4

func open(d home.Dir, id string) (*home.Folder, error) {
	date, ok := dateOf(id)
	if !ok {
		return nil, fmt.Errorf("%q is not the id of an attempt: %w", id, fs.ErrNotExist)
	}
	return d.Open(runsDir, date, id)
}

// Discard removes what Put made, for an attempt that was not accepted. What
// has become a run stays. One that is not there is no error.
func Discard(d home.Dir, id string) error {
	date, ok := dateOf(id)
	if !ok {
		return fmt.Errorf("discard %q: not the id of an attempt", id)
	}
	day, err := d.Open(runsDir, date)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("discard %s: %w", id, err)
	}
	defer day.Close()
	if err := discard(day, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("discard %s: %w", id, err)
	}
	return nil
}

func discard(day *home.Folder, id string) error {
	dir, err := day.Sub(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != payloadFile {
			return fmt.Errorf("it has %q: it is more than a payload", name)
		}
	}
	if err := dir.Remove(payloadFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return day.Remove(id)
}
