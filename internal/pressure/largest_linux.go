package pressure

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/proc"
)

// sum adds up what the processes of each tree have resident. Whatever left its
// tree meanwhile is not in it.
func sum(trees []Tree) (uses []Use) {
	if len(trees) == 0 {
		return nil
	}
	below, alive := map[int][]int{}, map[int]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := proc.ReadStat(pid); err == nil {
			below[st.PPid] = append(below[st.PPid], pid)
			alive[pid] = true
		}
	}
	for _, t := range trees {
		if !alive[t.Pid] {
			continue
		}
		seen := map[int]bool{}
		u := Use{Tree: t}
		for left := []int{t.Pid}; len(left) > 0; {
			pid := left[0]
			left = left[1:]
			if seen[pid] {
				continue
			}
			seen[pid] = true
			u.Bytes += resident(pid)
			left = append(left, below[pid]...)
		}
		uses = append(uses, u)
	}
	return uses
}

// resident is what one process has in memory, in bytes; 0 if it cannot be read.
func resident(pid int) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := whole(fields[1])
	if err != nil || pages > unlimited/int64(os.Getpagesize()) {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
