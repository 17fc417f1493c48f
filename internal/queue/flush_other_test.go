//go:build !linux

package queue

import (
	"os"
	"time"
)

func flush(f *os.File) error { return f.Sync() }

func processor() time.Duration { return 0 }
