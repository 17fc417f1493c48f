package pressure

import (
	"fmt"
	"slices"
	"strings"
)

// Tree is an agent with all that it started.
type Tree struct {
	Pid  int    // its first process
	Name string // as people know it
}

// Use is what a tree has of memory.
type Use struct {
	Tree
	Bytes int64 // resident, shared pages counted in each process
}

// Largest are the n trees with the most resident memory, largest first, as far
// as that can be read. It names a cause, and proves nothing.
func Largest(trees []Tree, n int) []Use {
	uses := sum(trees)
	slices.SortStableFunc(uses, func(a, b Use) int {
		switch {
		case a.Bytes > b.Bytes:
			return -1
		case a.Bytes < b.Bytes:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return uses[:min(n, len(uses))]
}

// Cause says in words which agents have most of the memory; empty for none.
func Cause(trees []Tree) string {
	const named = 3
	var parts []string
	for _, u := range Largest(trees, named) {
		parts = append(parts, fmt.Sprintf("%s has %s", u.Name, Size(u.Bytes)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "the largest agents: " + strings.Join(parts, ", ")
}
