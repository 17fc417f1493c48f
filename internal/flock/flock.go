// Package flock takes whole-file advisory locks and keeps them.
//
// A lock belongs to the open file description, not to a process: every copy of
// the descriptor holds it, here or in the process it was passed to, and it
// ends when the last copy closes. So nothing here unlocks. Unlocking one copy
// would unlock them all, the next owner's included (S8).
//
// Descriptors are kept as plain numbers, so no finalizer can close one and
// free its lock (S8); whoever opens a File closes it. Every file is opened
// close-on-exec, without following a link and without waiting, and must be a
// regular file of ours with one link (S5). The package does not protect
// against another process of the same user that ignores the locks.
package flock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/failpoint"
)

var (
	// ErrHeld reports that somebody else holds the lock now. One look is never
	// proof that it stays so: a lock just closed can read held for some 20 ms
	// while a process with many descriptors forks (S8).
	ErrHeld = errors.New("lock is held")

	// ErrUnsupported reports a platform without flock(2).
	ErrUnsupported = errors.New("this platform has no flock")

	// ErrReplaced reports that the path no longer names the locked file.
	ErrReplaced = errors.New("the file was replaced while it was being locked")
)

// Untrusted reports a file or directory that is not ours to use: a link, not a
// regular file, another owner, more than one name, or writable by others.
type Untrusted struct {
	Path string
	Why  string
}

func (e *Untrusted) Error() string { return fmt.Sprintf("%q is not ours to trust: %s", e.Path, e.Why) }

// Mode says what a File is opened for.
type Mode int

const (
	// Look opens an existing file to read it and to try its lock. Closing it
	// wakes nobody who watches for writers.
	Look Mode = iota
	// Own opens for writing and creates the file with mode 0600 if need be.
	Own
	// Pass creates the file if need be but opens it only for reading: for locks
	// that carry no record, so that passing through them wakes nobody.
	Pass
	// Mend opens an existing file for writing.
	Mend
)

// File is an open lock file. It is for one goroutine at a time.
type File struct {
	fd       int
	dir      *Dir
	name     string
	id       ID
	writable bool
}

// ID names an inode. Both halves count: inode numbers repeat on other devices,
// and in time.
type ID struct{ dev, ino uint64 }

// Dir is an open directory of lock files.
type Dir struct {
	fd     int
	path   string
	id     ID
	listed bool // a listing has moved the descriptor's position
}

// Path is the directory's path as it was opened.
func (d *Dir) Path() string { return d.path }

// ID names the directory's inode.
func (d *Dir) ID() ID { return d.id }

// Path is where the file was opened.
func (f *File) Path() string { return f.dir.path + "/" + f.name }

// Fd is the descriptor, for passing it to another process. It stays the File's.
func (f *File) Fd() int { return f.fd }

// Writable tells whether records can be written through this descriptor.
func (f *File) Writable() bool { return f.writable }

// Take opens name in d and takes its lock without waiting. When it returns,
// the path still names the locked file (S5): a file removed or replaced between
// opening and locking makes no second owner. ErrHeld when it is somebody's.
func Take(d *Dir, name string, mode Mode) (*File, error) {
	for range takeTries {
		f, err := d.Open(name, mode)
		if err != nil {
			return nil, err
		}
		failpoint.Hit("flock.opened")
		if err := f.TryLock(); err != nil {
			f.Close()
			return nil, err
		}
		switch err := f.Check(); {
		case err == nil:
			return f, nil
		case !errors.Is(err, ErrReplaced):
			f.Close()
			return nil, err
		}
		f.Close()
	}
	return nil, fmt.Errorf("lock %s/%s: %w", d.path, name, ErrReplaced)
}

// takeTries bounds the race against somebody who keeps replacing the file.
const takeTries = 100

// Lock takes the lock, waiting for it until ctx ends or patience is over, which
// is context.DeadlineExceeded. On an error the lock is not held and f should be
// closed.
//
// The wait is the kernel's own, in a thread that stays behind if ctx ends
// first; it owns a copy of the descriptor and closes it as soon as it is let
// go. While one thread is left behind at a file, later calls for it look again
// and again instead, so that a lock that is stuck for long costs one thread,
// however often it is asked for.
func (f *File) Lock(ctx context.Context, patience time.Duration) error {
	if err := f.TryLock(); !errors.Is(err, ErrHeld) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !stranded.enter(f.id) {
		return f.lockByLooking(ctx)
	}
	copied, err := dup(f.fd)
	if err != nil {
		stranded.leave(f.id)
		return fmt.Errorf("lock %s: %w", f.Path(), err)
	}
	id := f.id
	done := make(chan error, 1)
	go func() {
		err := block(copied)
		stranded.leave(id)
		done <- err
		closeFd(copied)
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("lock %s: %w", f.Path(), err)
		}
		return nil
	case <-ctx.Done():
		stranded.strand(id)
		return fmt.Errorf("lock %s: %w", f.Path(), ctx.Err())
	}
}

// lockByLooking tries the lock until it is had or ctx ends.
func (f *File) lockByLooking(ctx context.Context) error {
	const longest = 10 * time.Millisecond
	for nap := 200 * time.Microsecond; ; nap = min(2*nap, longest) {
		t := time.NewTimer(nap)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("lock %s: %w", f.Path(), ctx.Err())
		}
		if err := f.TryLock(); !errors.Is(err, ErrHeld) {
			return err
		}
	}
}

// waits counts, for each file, the threads that block at its lock, and those
// of them that nobody waits for any more.
type waits struct {
	mu  sync.Mutex
	all map[ID]*waiting
}

type waiting struct{ blocked, abandoned int }

var stranded = waits{all: map[ID]*waiting{}}

// enter tells whether one more thread may block at the file.
func (w *waits) enter(id ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.all[id]
	if at == nil {
		at = &waiting{}
		w.all[id] = at
	}
	if at.abandoned > 0 {
		return false
	}
	at.blocked++
	return true
}

func (w *waits) strand(id ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.all[id]; at != nil {
		at.abandoned++
	}
}

// leave counts a thread that came through. With the last one the file is
// forgotten: abandoned threads are among those that block.
func (w *waits) leave(id ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.all[id]; at != nil {
		if at.blocked--; at.blocked == 0 {
			delete(w.all, id)
		}
	}
}

// errNotExist is fs.ErrNotExist with the path that is missing.
func errNotExist(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// ErrNotOurs reports a descriptor that is not the named file, or through which
// the lock is not held.
var ErrNotOurs = errors.New("the descriptor does not hold this file's lock")
