package config

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/handsel/handsel/internal/home"
)

// note remembers, in <home>/config.seen, which files had content and which were
// found empty and believed. Without it, everybody who never had a file would
// wait for one at every start. It is written when that changes, and only where
// slots exist; two writers at once lose at most one another's news.
type note struct {
	path   string // empty: there is no home to keep it in
	known  seen
	exists bool
	write  bool
	err    error
}

type seen struct {
	V       int      `json:"v"`
	Present []string `json:"present,omitempty"`
	Empty   []string `json:"empty,omitempty"`
}

const (
	maxNote = 64 << 10
	// maxSeen bounds the note when many files are named by HANDSEL_CONFIG.
	maxSeen = 64
)

// notes keeps what a note said for as long as the file is the same one.
var notes struct {
	sync.Mutex
	path string
	info fs.FileInfo
	seen seen
}

func openNote(env Env) *note {
	if env.Home.Path == "" {
		return &note{}
	}
	n := &note{path: filepath.Join(env.Home.Path, "config.seen"), write: env.LeasesExist}
	info, err := os.Lstat(n.path)
	if err != nil {
		return n
	}
	notes.Lock()
	defer notes.Unlock()
	n.exists = true
	if old := notes.info; old != nil && notes.path == n.path && os.SameFile(old, info) &&
		old.Size() == info.Size() && old.ModTime().Equal(info.ModTime()) && old.Mode() == info.Mode() {
		n.known = notes.seen
		return n
	}
	data, err := home.ReadFile(n.path, maxNote)
	switch {
	case isMissing(err):
		n.exists = false
		return n
	case err != nil:
		n.err = err
		return n
	}
	// A note that cannot be understood says nothing.
	if json.Unmarshal(data, &n.known) != nil {
		n.known = seen{}
	}
	notes.path, notes.info, notes.seen = n.path, info, n.known
	return n
}

// doubted are the files that may only be away for a moment: what had content
// once and has none now, what is empty for the first time, and what was named.
func (n *note) doubted(files []*file) (doubted []*file) {
	for _, f := range files {
		missing := isMissing(f.err)
		switch {
		case !missing && !f.blank():
		case missing && f.source.Role == "extra":
			doubted = append(doubted, f)
		case slices.Contains(n.known.Present, f.source.Path):
			doubted = append(doubted, f)
		case !missing && n.write && !slices.Contains(n.known.Empty, f.source.Path):
			doubted = append(doubted, f)
		}
	}
	return doubted
}

// update writes down what the files turned out to be. The note is a help, so an
// error writing it is not one of the start's: a home that cannot be written is
// reported by who needs it.
func (n *note) update(files []*file) {
	// A cap in a file means that slots are about to exist.
	counted := n.write || n.exists || slices.ContainsFunc(files, func(f *file) bool { return f.parsed != nil && len(f.parsed.caps) > 0 })
	if n.path == "" || n.known.V > 1 || !counted {
		return
	}
	next := seen{V: 1, Present: slices.Clone(n.known.Present), Empty: slices.Clone(n.known.Empty)}
	for _, f := range files {
		next.Present = keep(next.Present, f.source.Path, f.source.State == "read")
		next.Empty = keep(next.Empty, f.source.Path, f.source.State == "empty")
	}
	if slices.Equal(next.Present, n.known.Present) && slices.Equal(next.Empty, n.known.Empty) {
		return
	}
	data, err := json.Marshal(next)
	if err == nil {
		_ = home.WriteFile(n.path, append(data, '\n'))
	}
}

// keep puts path into the list or takes it out.
func keep(list []string, path string, in bool) []string {
	switch at := slices.Index(list, path); {
	case in && at < 0:
		list = append(list, path)
		return list[max(0, len(list)-maxSeen):]
	case !in && at >= 0:
		return slices.Delete(list, at, at+1)
	}
	return list
}
