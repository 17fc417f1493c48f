package config

import (
	"os"
	"time"
)

// Mark is how one configuration file looked from outside, so that a waiter can
// tell without opening it whether it may have changed.
type Mark struct {
	path  string
	info  os.FileInfo // nil: it was not there
	mtime time.Time
}

// Marks notes how the files of s look now.
func (s *Settings) Marks() []Mark {
	var marks []Mark
	for _, f := range s.Files {
		marks = append(marks, markOf(f.Path))
	}
	return marks
}

func markOf(path string) Mark {
	info, err := os.Lstat(path)
	if err != nil {
		return Mark{path: path}
	}
	return Mark{path: path, info: info, mtime: info.ModTime()}
}

// Changed tells whether the file looks different by now.
func (m Mark) Changed() bool {
	now := markOf(m.path)
	if m.info == nil || now.info == nil {
		return (m.info == nil) != (now.info == nil)
	}
	return !os.SameFile(m.info, now.info) || !m.mtime.Equal(now.mtime) || m.info.Size() != now.info.Size()
}
