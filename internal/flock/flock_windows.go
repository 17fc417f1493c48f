package flock

import (
	"context"
	"time"
)

// Windows has no flock, so nothing here can be held: an uncapped run touches
// no lock, and a cap refuses (product.md "Platforms").

// OpenDir always fails.
func OpenDir(string) (*Dir, error) { return nil, ErrUnsupported }

// Close does nothing.
func (d *Dir) Close() {}

// Fd is no descriptor.
func (d *Dir) Fd() int { return -1 }

// Current is true of nothing.
func (d *Dir) Current() bool { return false }

// Probe always fails.
func (d *Dir) Probe(string, []byte) (int, bool, error) { return 0, false, ErrUnsupported }

// Changed knows nothing.
func (d *Dir) Changed() (sec, nsec int64) { return 0, 0 }

// Names always fails.
func (d *Dir) Names(func([]byte)) error { return ErrUnsupported }

// Open always fails.
func (d *Dir) Open(string, Mode) (*File, error) { return nil, ErrUnsupported }

// Pass always fails.
func (d *Dir) Pass(context.Context, string, time.Duration) (*File, error) { return nil, ErrUnsupported }

// Unlink always fails.
func (d *Dir) Unlink(string) error { return ErrUnsupported }

// TryLock always fails.
func (f *File) TryLock() error { return ErrUnsupported }

// Check always fails.
func (f *File) Check() error { return ErrUnsupported }

// Close does nothing.
func (f *File) Close() {}

// Read always fails.
func (f *File) Read([]byte) (int, error) { return 0, ErrUnsupported }

// ReadAt always fails.
func (f *File) ReadAt([]byte, int64) (int, error) { return 0, ErrUnsupported }

// WriteAt always fails.
func (f *File) WriteAt([]byte, int64) error { return ErrUnsupported }

// Truncate always fails.
func (f *File) Truncate(int64) error { return ErrUnsupported }

// Unlink always fails.
func (f *File) Unlink() error { return ErrUnsupported }

// Rename always fails.
func (f *File) Rename(string) error { return ErrUnsupported }

// Owners is empty.
func (f *File) Owners() []int { return nil }

func dup(int) (int, error) { return -1, ErrUnsupported }
func block(int) error      { return ErrUnsupported }
func closeFd(int)          {}

// Adopt always fails.
func (d *Dir) Adopt(string, int) (*File, error) { return nil, ErrUnsupported }
