//go:build engines

package enginetest

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// child is a background child as it described itself, and as we found it from
// outside while the shell command that had started it was still running.
type child struct {
	how   string // plain, setsid, scrubbed
	pid   int    // may be a number of a process namespace the engine made
	ticks uint64 // the machine's, in every process namespace
	run   string // HANDSEL_RUN it saw, or -
	depth string // HANDSEL_AGENT_DEPTH it saw, or -

	host process
}

// leave is the scripted shell command. It starts three children that would
// sleep for five minutes: one as any `&` leaves it, one in a session of its
// own, one in a session of its own and without environment. Then it waits
// until we have looked at them. It has no command substitution because gemini
// refuses one.
const leave = `sh ./child plain >/dev/null 2>&1 </dev/null & ` +
	`setsid sh ./child setsid >/dev/null 2>&1 </dev/null & ` +
	`env -i PATH="$PATH" setsid sh ./child scrubbed >/dev/null 2>&1 </dev/null & ` +
	`read -r answer <go; echo "$answer"`

// childScript says who it is and stays the same process as it becomes the sleep.
const childScript = `set -- "$1" $(cut -d' ' -f22 /proc/$$/stat)
echo "$1 $$ $2 ${HANDSEL_RUN:--} ${HANDSEL_AGENT_DEPTH:--}" >>told
exec sleep 300
`

// leftMark is what the shell command prints once we have seen the children;
// it has to come back to the stub as the tool's result.
const leftMark = "three children are left behind"

// ways are the children leave starts.
var ways = []string{"plain", "setsid", "scrubbed"}

// watcher meets the children while the shell command waits for its answer.
type watcher struct {
	c      *cell
	told   *os.File
	answer *os.File
	during func([]child)
	found  chan []child
}

// watch begins to wait for the children. When all have been found from outside
// during is called, if not nil, and the shell command let go. Call seen when
// the engine has ended.
func (c *cell) watch(during func([]child)) *watcher {
	c.t.Helper()
	c.write("child", childScript)
	w := &watcher{c: c, told: c.pipe("told"), answer: c.pipe("go"), during: during, found: make(chan []child, 1)}
	go func() {
		var children []child
		// Deferred, so that a check that ends this goroutine leaves neither the
		// engine nor the test waiting.
		defer func() {
			fmt.Fprintln(w.answer, leftMark)
			w.found <- children
		}()
		children = w.listen()
		if during != nil && len(children) == len(ways) {
			during(children)
		}
	}()
	return w
}

// seen ends the watch and returns the children that were found alive while
// their command ran. Fewer than all of them is an error.
func (w *watcher) seen() []child {
	w.c.t.Helper()
	_ = w.told.SetDeadline(time.Now())
	children := <-w.found
	if len(children) < len(ways) {
		w.c.t.Errorf("%d of %d children were seen alive during the turn: nothing is proven about the rest", len(children), len(ways))
	}
	return children
}

// pipe makes a named pipe in the working directory. Open in both directions it
// blocks no opener and has no end; it stays open until the cell is over, since
// what has been written is lost with the last descriptor.
func (c *cell) pipe(name string) *os.File {
	c.t.Helper()
	path := filepath.Join(c.work, name)
	c.must(unix.Mkfifo(path, 0o600))
	c.give(path)
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	c.must(err)
	c.t.Cleanup(func() { _ = file.Close() })
	c.must(file.SetDeadline(time.Now().Add(patience)))
	return file
}

// listen reads one line of each child and looks it up from outside.
func (w *watcher) listen() []child {
	var children []child
	lines := bufio.NewScanner(w.told)
	for len(children) < len(ways) && lines.Scan() {
		var one child
		if _, err := fmt.Sscan(lines.Text(), &one.how, &one.pid, &one.ticks, &one.run, &one.depth); err != nil {
			w.c.t.Errorf("child's line %q: %v", lines.Text(), err)
			continue
		}
		host, ok := find(w.c.t, one.pid, one.ticks)
		if !ok {
			w.c.t.Errorf("child %+v is not seen from outside while its command runs", one)
			continue
		}
		one.host = host
		w.c.t.Cleanup(host.end) // by identity: harmless when it is gone
		children = append(children, one)
	}
	return children
}

// find looks a process up from outside: same start tick, and the number it
// knows itself by in the innermost process namespace.
func find(t *testing.T, pid int, ticks uint64) (process, bool) {
	t.Helper()
	for _, one := range all(t) {
		if one.ticks == ticks && innermost(one.pid) == pid {
			return one, true
		}
	}
	return process{}, false
}

func innermost(pid int) int {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(body)) {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			numbers := strings.Fields(list)
			last, _ := strconv.Atoi(numbers[len(numbers)-1])
			return last
		}
	}
	return 0
}

// alive names the children that still run, by pid and start tick.
func alive(children []child) []string {
	var names []string
	for _, one := range children {
		if one.host.alive() {
			names = append(names, one.how)
		}
	}
	return names
}
