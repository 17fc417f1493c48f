//go:build failpoint

// Package failpoint marks the named steps at which a test may stop, crash or
// delay a process (design/style.md 12).
//
// HANDSEL_FAILPOINT="step=kill,other=sleep:50ms" arms steps for a process:
// kill (SIGKILL to itself), stop (SIGSTOP), exit (status 199), sleep:D. A step
// may be armed for its n-th hit only, step#3=kill, or for the first process that
// comes there of all that share a log, step=once:kill. HANDSEL_FAILPOINT_LOG names
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
		if act, once := strings.CutPrefix(act, "once:"); once {
			if first(name) {
				note(name)
				do(act)
			}
			continue
		}
		note(name)
		do(act)
	}
}

// first tells whether no process that shares our log has come to the step.
func first(name string) bool {
	f, err := os.OpenFile(os.Getenv("HANDSEL_FAILPOINT_LOG")+"."+name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
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

// Variables names what a process must be given for its failpoints to work; the
// seam of C16 is a part of the same builds.
func Variables() []string {
	return []string{"HANDSEL_FAILPOINT", "HANDSEL_FAILPOINT_LOG", "HANDSEL_TEST_SYS"}
}
