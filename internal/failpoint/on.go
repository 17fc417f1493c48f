//go:build failpoint

// Package failpoint marks the named steps at which a test may stop, crash or
// delay a process (design/style.md 12).
//
// HANDSEL_FAILPOINT="step=kill,other=sleep:50ms" arms steps for a process:
// kill (SIGKILL to itself), stop (SIGSTOP), exit (status 199), sleep:D. A step
// may be armed for its n-th hit only: step#3=kill. HANDSEL_FAILPOINT_LOG names
// a file that gets a line "pid step" for each armed step that fired, so that a
// test can prove that its point was reached.
package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	mu   sync.Mutex
	hits = map[string]int{}
)

// Hit marks the step called name and does what the environment asks there.
func Hit(name string) {
	armed := os.Getenv("HANDSEL_FAILPOINT")
	if armed == "" {
		return
	}
	mu.Lock()
	hits[name]++
	n := hits[name]
	mu.Unlock()
	for rule := range strings.SplitSeq(armed, ",") {
		step, act, ok := strings.Cut(rule, "=")
		step, nth, counted := strings.Cut(step, "#")
		if !ok || step != name || counted && nth != strconv.Itoa(n) {
			continue
		}
		note(name)
		do(act)
	}
}

func note(name string) {
	path := os.Getenv("HANDSEL_FAILPOINT_LOG")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%d %s\n", os.Getpid(), name)
}

func do(act string) {
	verb, arg, _ := strings.Cut(act, ":")
	switch verb {
	case "sleep":
		if d, err := time.ParseDuration(arg); err == nil {
			time.Sleep(d)
		}
	case "exit":
		os.Exit(199)
	default:
		signalSelf(verb)
	}
}
