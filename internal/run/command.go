package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Command is a command of the configuration: it is no agent, counts nowhere, and
// keeps no record. When its time is over, or the context is, all of its tree is
// ended.
type Command struct {
	Argv, Env []string
	Dir       string        // empty: the current directory
	Stdin     []byte        // nil: nothing to read
	Limit     time.Duration // more than 0
	Grace     time.Duration // between TERM and KILL, and after that
	ID        string        // marks its processes, so that strays are found; empty: only those that stay below us are
	Daemons   bool          // what leaves its tree on purpose may stay
	Signals   <-chan os.Signal

	// Out and Err are how many bytes of its outputs are kept, in memory; 0: none.
	Out, Err int
}

// Said is how a command ended and what it printed.
type Said struct {
	*Outcome
	Stdout, Stderr []byte
	More           bool // it printed more on its stdout than was kept

	command *Command
}

// Run runs the command to its end. The error says that it did not run, or that its
// tree could not be looked after; how it ended is for Failure to tell. The outcome
// is never nil.
func (c Command) Run(ctx context.Context) (*Said, error) {
	keep := &kept{most: map[string]int{"stdout": c.Out, "stderr": c.Err}, text: map[string]*bytes.Buffer{"stdout": {}, "stderr": {}}}
	out, err := Agent(ctx, Spec{
		Argv: c.Argv, Dir: c.Dir, Env: c.Env, Payload: c.Stdin, Record: true, NoPTY: true, Gate: true, RunID: c.ID,
		Timeout: c.Limit, Grace: c.Grace, Kill: c.Grace, LeaveDaemons: c.Daemons, Signals: c.Signals,
	}, Deps{Recorder: keep})
	keep.mu.Lock()
	defer keep.mu.Unlock()
	return &Said{out, keep.text["stdout"].Bytes(), keep.text["stderr"].Bytes(), keep.more, &c}, err
}

// How is how the command ended, in words for people; empty when it exited with 0. It
// repeats nothing of what was printed.
func (s *Said) How() string {
	switch {
	case s.Outcome.Outcome == TimedOut:
		return fmt.Sprintf("it has not ended in %v", s.command.Limit)
	case s.Outcome.Outcome == Exited && s.ExitCode == 0:
		return ""
	case s.Outcome.Outcome == Exited:
		return fmt.Sprintf("exit status %d", s.ExitCode)
	case s.Signal != 0:
		return fmt.Sprintf("ended by signal %d", s.Signal)
	}
	return strings.ReplaceAll(s.Outcome.Outcome, "_", " ")
}

// Failure is that with the command's name, as an error; nil when it exited with 0.
func (s *Said) Failure() error {
	if how := s.How(); how != "" {
		return fmt.Errorf("%s: %s", strconv.QuoteToASCII(s.command.Argv[0]), how)
	}
	return nil
}

// kept keeps the beginnings of a command's outputs.
type kept struct {
	most map[string]int // bytes, by output

	mu   sync.Mutex
	text map[string]*bytes.Buffer
	more bool
}

func (k *kept) Running(Running) error { return nil }

func (k *kept) Output(name string) io.Writer { return keptOf{k, name} }

type keptOf struct {
	all  *kept
	name string
}

func (k keptOf) Write(p []byte) (int, error) {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	text := k.all.text[k.name]
	n := min(len(p), max(k.all.most[k.name]-text.Len(), 0))
	text.Write(p[:n])
	k.all.more = k.all.more || n < len(p) && k.name == "stdout"
	return len(p), nil
}
