package run

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Command runs a command of the configuration, which is no agent and counts
// nowhere: text is its stdin, what it prints goes nowhere, and when its time is
// over, or ctx is, all of its tree is ended. id marks its processes, so that they
// are found. The error says how it went wrong, nil that it exited with 0.
func Command(ctx context.Context, argv, env []string, text []byte, limit time.Duration, id string) error {
	out, err := Agent(ctx, Spec{
		Argv: argv, Dir: "/", Env: env, Payload: text, Record: true, NoPTY: true, Gate: true, RunID: id,
		Timeout: limit, Grace: time.Second, Kill: time.Second,
	}, Deps{Recorder: unheard{}})
	name := strconv.QuoteToASCII(argv[0])
	switch {
	case err != nil:
		return err
	case out.Outcome == TimedOut:
		return fmt.Errorf("%s has not ended in %v", name, limit)
	case out.Outcome == Exited && out.ExitCode == 0:
		return nil
	case out.Outcome == Exited:
		return fmt.Errorf("%s: exit status %d", name, out.ExitCode)
	case out.Signal != 0:
		return fmt.Errorf("%s: ended by signal %d", name, int(out.Signal))
	}
	return fmt.Errorf("%s: %s", name, out.Outcome)
}

// unheard keeps nothing of what a command prints.
type unheard struct{}

func (unheard) Running(Running) error   { return nil }
func (unheard) Output(string) io.Writer { return io.Discard }
