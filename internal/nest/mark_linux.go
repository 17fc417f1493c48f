package nest

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

var (
	marking sync.Mutex
	marked  = -1 // the depth this process is marked with
)

// Mark makes this process known as the supervisor of an agent of that depth,
// for as long as it lives: a process that lost its environment and is adopted
// by its supervisor is still found to be inside (S25). The mark is the
// process's name, which everybody may read and which ends with the process.
// A higher depth stays.
//
// The name is the thread-group leader's, whichever thread writes it, and the
// threads keep theirs. So a process must be marked before it adopts anybody,
// and the one that only supervises a gate must not be.
func Mark(depth int) error {
	marking.Lock()
	defer marking.Unlock()
	if depth <= marked {
		return nil
	}
	leader := "/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/comm"
	if err := os.WriteFile(leader, []byte(markPrefix+strconv.Itoa(depth)), 0); err != nil {
		return fmt.Errorf("mark this process as a supervisor: %w", err)
	}
	marked = depth
	return nil
}
