// Package nest tells whether a process runs inside an agent that we started
// (S24–S27), so that agents do not start agents without end.
//
// It is judged two ways. The depth a process inherited is read first; only
// when that says nothing, its ancestors are asked: the environment each
// started with, and whether it is one of our supervisors. Names and paths of
// programs play no part, so another link to or copy of the same executable is
// judged alike.
//
// It guards against accident. A process that clears its environment and also
// leaves our process tree, or one behind a wall such as another pid namespace,
// is not seen; the caps still bind it. An ancestor that cannot be read is
// passed over. On macOS the environment of platform binaries such as /bin/sh
// cannot be read and supervisors carry no mark; on Windows only the own
// environment is read.
package nest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/handsel/handsel/internal/proc"
)

// Var is the variable that every agent we start carries (S24).
const Var = "HANDSEL_AGENT_DEPTH"

// inherited is the depth this process was started with. It is read before
// anything can change the environment, in particular before the depth of a
// child is set.
var inherited = os.Getenv(Var)

// How an agent around a process was found.
const (
	ByEnvironment         = "environment"          // the asking process itself carries the depth
	ByAncestorEnvironment = "ancestor environment" // only a process above it does
	BySupervisor          = "supervisor"           // a process above it supervises an agent
)

// Code is the reason code of a nested start.
const Code = "nested"

// Inside reports that the asking process runs inside an agent. It is final
// from where the request was made: waiting changes nothing.
type Inside struct {
	Pid   int    // the nearest process above that carries the depth, or the asking one
	Name  string // its name as the kernel has it, up to 15 bytes of any value; Error escapes it
	How   string // one of ByEnvironment, ByAncestorEnvironment, BySupervisor
	Depth string // the value carried, as it was found; "" for a supervisor; Error escapes it
}

func (e *Inside) Error() string {
	if e.How == BySupervisor {
		return fmt.Sprintf("inside an agent: an agent cannot start another; it runs under process %d (%s), which supervises one", e.Pid, plain(e.Name))
	}
	return fmt.Sprintf("inside an agent: an agent cannot start another; process %d (%s) carries %s=%s", e.Pid, plain(e.Name), Var, plain(e.Depth))
}

// Code is the reason code of the refusal.
func (e *Inside) Code() string { return Code }

// plain escapes what others chose, so that a message stays one line without
// control bytes, and clips it.
func plain(text string) string {
	const most = 32
	more := ""
	if len(text) > most {
		text, more = text[:most], "…"
	}
	for _, r := range text {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) {
			return strconv.QuoteToGraphic(text) + more
		}
	}
	return text + more
}

// carries tells whether a value of Var means inside: any but empty or 0.
func carries(value string) bool { return value != "" && value != "0" }

// Depth is the depth this process inherited: 0 outside an agent and in a
// seat, else 1 or more. A value that is no number counts as 1.
func Depth() int {
	if !carries(inherited) {
		return 0
	}
	if n, err := strconv.Atoi(inherited); err == nil && n > 0 {
		return n
	}
	return 1
}

// ChildDepth is what an agent we start is to carry, whatever our own
// environment holds: 0 for a seat, which may start agents, else 1.
func ChildDepth(seat bool) int {
	if seat {
		return 0
	}
	return 1
}

// Check judges this process by the depth it inherited and by its ancestors.
// The error is nil outside an agent and *Inside within one.
func Check() error {
	return judge(os.Getpid(), inherited)
}

// CheckPeer judges another process in the same way, for a server that starts
// things on its behalf (S27). Unlike an ancestor, the peer itself must be
// readable: an error that is not *Inside says why it could not be judged, and
// is proc.ErrGone when the process ended or gave its pid away meanwhile.
func CheckPeer(pid int) error {
	before, err := proc.Identify(pid)
	if err != nil {
		return fmt.Errorf("judge process %d: %w", pid, err)
	}
	value, _, err := proc.Env(pid, Var)
	if err != nil {
		return fmt.Errorf("judge process %d: %w", pid, err)
	}
	verdict := judge(pid, value)
	if after, err := proc.Identify(pid); err != nil || after != before {
		return fmt.Errorf("judge process %d: %w", pid, errors.Join(proc.ErrGone, err))
	}
	return verdict
}

// judge judges pid, which carries own.
func judge(pid int, own string) error {
	if carries(own) {
		return carrier(pid, own)
	}
	for _, above := range ancestors(pid) {
		if found := around(above); found != nil {
			return found
		}
	}
	return nil
}

// carrier names who is to be named for a process that carries the depth: the
// nearest ancestor that does, too, since that is who started it.
func carrier(pid int, own string) *Inside {
	for _, above := range proc.Ancestors(pid) {
		if value, ok := carried(above); ok {
			return &Inside{Pid: above.Pid, Name: above.Comm, How: ByEnvironment, Depth: value}
		}
	}
	self := &Inside{Pid: pid, How: ByEnvironment, Depth: own}
	if st, err := proc.ReadStat(pid); err == nil {
		self.Name = st.Comm
	}
	return self
}

// around judges one ancestor.
func around(above proc.Stat) *Inside {
	if supervises(above.Comm) {
		return &Inside{Pid: above.Pid, Name: above.Comm, How: BySupervisor}
	}
	if value, ok := carried(above); ok {
		return &Inside{Pid: above.Pid, Name: above.Comm, How: ByAncestorEnvironment, Depth: value}
	}
	return nil
}

// carried reads the depth an ancestor started with. Its pid may have been
// given away since the walk; then it says nothing.
func carried(above proc.Stat) (string, bool) {
	value, _, err := proc.Env(above.Pid, Var)
	if err != nil || !carries(value) {
		return "", false
	}
	now, err := proc.ReadStat(above.Pid)
	return value, err == nil && now.Ticks == above.Ticks
}

// ancestors walks up from pid. A parent that ends between two looks breaks
// the walk; its children have another parent then, so a new walk finds them.
func ancestors(pid int) []proc.Stat {
	var line []proc.Stat
	for range 3 {
		line = proc.Ancestors(pid)
		if n := len(line); n > 0 && line[n-1].PPid == 0 {
			break
		}
	}
	return line
}

// markPrefix is followed by the depth of the agent that is supervised. A
// name of a process holds 15 bytes.
const markPrefix = "handsel:d"

// supervises reads the mark. The supervisor of a seat carries 0, which says
// nothing.
func supervises(comm string) bool {
	depth, ok := strings.CutPrefix(comm, markPrefix)
	return ok && carries(depth)
}
