//go:build unix

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/home"
)

// The dispatcher's log is kept in three files of 10 MiB at most (C10).
const (
	logName  = "dispatch.log"
	logSize  = 10 << 20
	logFiles = 3
)

// Log is the dispatcher's log in its home. It is safe for several goroutines.
type Log struct {
	mu   sync.Mutex
	path string
	file *os.File
	size int64
}

// OpenLog opens the log of a home for appending.
func OpenLog(h *handsel.Home) (*Log, error) {
	d := home.Dir{Path: h.Path(), From: h.From()}
	if err := d.Ensure(); err != nil {
		return nil, err
	}
	if err := home.EnsureDir(d.Log()); err != nil {
		return nil, err
	}
	l := &Log{path: filepath.Join(d.Log(), logName)}
	return l, l.open()
}

func (l *Log) open() (err error) {
	if err := home.Trust(l.path, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	l.size = info.Size()
	return nil
}

// Write appends one line, beginning a new file first when this one is full.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > logSize {
		l.turn()
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// turn begins a new file. One that cannot be begun goes on in the old one.
func (l *Log) turn() {
	for i := logFiles - 1; i > 0; i-- {
		from := l.path
		if i > 1 {
			from = numbered(l.path, i-1)
		}
		_ = os.Rename(from, numbered(l.path, i))
	}
	old := l.file
	if l.open() != nil {
		l.file, l.size = old, 0
		return
	}
	old.Close()
}

func numbered(path string, n int) string { return path + "." + string(rune('0'+n)) }

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }
