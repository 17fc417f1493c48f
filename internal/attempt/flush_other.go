//go:build !linux

package attempt

import "os"

// flushData flushes a file that was just made.
func flushData(f *os.File) error { return f.Sync() }
