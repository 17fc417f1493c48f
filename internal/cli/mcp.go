package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/mcp"
)

func (a *app) mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "serve agents the tools of handsel, as a server of the Model Context Protocol on stdin and stdout",
		Long: `Mcp is started by a client such as claude, codex or gemini, and offers it tools:
submit, wait, status, why, result, cancel, list, quota, gate. What is submitted
goes on by itself, also when the server and its client are gone. Inside an agent
that handsel started, submit is refused; looking, gate and cancelling one's own
are not. Install registers it with a client. The mcp page of the reference
describes the tools, and how to register the server by hand.

It ends with status 0 when its input does. stdout carries the protocol only.`,
		Example: `  handsel mcp install claude
  claude mcp add handsel -- handsel mcp`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.mcp() },
	}
	cmd.AddCommand(a.mcpInstallCommand(), a.mcpUninstallCommand())
	return cmd
}

// mcp serves one client.
func (a *app) mcp() error {
	h, err := a.open()
	if err == nil {
		err = handsel.CloseInherited()
	}
	if err != nil {
		return err
	}
	// A client that does not read any more is an error of a write, and not the end of
	// us by a signal. It is not ignored, which our children would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return mcp.Serve(context.Background(), a.In, a.Out, mcp.Options{
		Version: Version, Home: h, Detach: a.detachSubmission, Note: func(text string) { a.say("%s", oneLine(text)) },
	})
}

// onRecord is how long a submission may take to be on record.
const onRecord = 30 * time.Second

// supervised is what the process that does a submission says of it.
type supervised struct {
	Run     string          `json:"run,omitempty"`
	Refused *handsel.Reason `json:"refused,omitempty"`

	Option *handsel.BadOption `json:"option,omitempty"` // that is refused
}

// detachSubmission starts a process of its own for a submission. It is no child of
// ours but by name: it has a session of its own, and none of our descriptors but
// stderr, until it is on record. A gate inside an agent stays that agent's, with
// which it ends (S21a).
func (a *app) detachSubmission(_ context.Context, s handsel.Submission) error {
	request, err := json.Marshal(s)
	if err != nil {
		return err
	}
	line, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer line.Close()
	reads, writes, err := os.Pipe()
	if err != nil {
		theirs.Close()
		return err
	}
	defer writes.Close()
	env, _ := asideEnv()
	if handsel.MayStart() != nil {
		env = os.Environ()
	}
	p, err := startBeside(env, []string{os.Args[0], "supervise", "--" + detachedFlag, "3", "--request", "4"}, a.Err, theirs, reads)
	theirs.Close()
	reads.Close()
	if err != nil {
		return err
	}
	go func() { _, _ = p.Wait() }() // for the time of the run: nobody else would take in its end
	late := time.Now().Add(onRecord)
	if err := errors.Join(line.SetReadDeadline(late), writes.SetWriteDeadline(late)); err != nil {
		return err
	}
	_, werr := writes.Write(request)
	werr = errors.Join(werr, writes.Close())
	var said supervised
	switch err := json.NewDecoder(io.LimitReader(line, 1<<20)).Decode(&said); {
	case err != nil:
		return &handsel.Unheard{Run: s.ID, Err: errors.Join(werr, err)}
	case said.Refused != nil:
		return &handsel.NotSupervised{Because: *said.Refused, Option: said.Option}
	}
	return nil
}

// superviseCommand does a submission. It is for no person to call.
func (a *app) superviseCommand() *cobra.Command {
	var on, from int
	cmd := &cobra.Command{
		Use:    "supervise",
		Short:  "do a submission, for the process that took it in",
		Hidden: true,
		Args:   noArgs,
		RunE:   func(*cobra.Command, []string) error { return a.supervised(on, from) },
	}
	cmd.Flags().IntVar(&on, detachedFlag, 0, "descriptor of who waits for it to be on record")
	cmd.Flags().IntVar(&from, "request", 0, "descriptor with the submission, as JSON")
	return cmd
}

func (a *app) supervised(on, from int) error {
	line, err := lineOf(on)
	if err != nil {
		return &usageError{fmt.Errorf("supervise is started by handsel itself: --%s %d is no pipe it was given", detachedFlag, on)}
	}
	defer line.Close()
	request, err := lineOf(from)
	if err != nil {
		return &usageError{fmt.Errorf("supervise is started by handsel itself: --request %d is no pipe it was given", from)}
	}
	var s handsel.Submission
	if err = errors.Join(json.NewDecoder(request).Decode(&s), request.Close()); err != nil {
		err = fmt.Errorf("process %d was handed no whole submission: %w", os.Getpid(), err)
	} else {
		err = handsel.CheckSubmission(&s)
	}
	told := false
	if err == nil {
		err = a.superviseOne(s, func(id string) error {
			told = true
			return errors.Join(silence(a.Err), tellLine(line, supervised{Run: id}))
		})
	}
	if err != nil && !told {
		return tellLine(line, supervised{Refused: handsel.ReasonOf(err), Option: handsel.OptionOf(err)})
	}
	return nil // what came of it is on record
}

// tellLine says one thing to who waits.
func tellLine(line *os.File, what supervised) error {
	return errors.Join(json.NewEncoder(line).Encode(what), line.Close())
}

func (a *app) superviseOne(s handsel.Submission, queued func(id string) error) error {
	h, err := a.open()
	if err == nil {
		err = handsel.CloseInherited()
	}
	if err != nil {
		return err
	}
	keepLittle()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handsel.RunSignals()...)
	_, err = h.Supervise(context.Background(), s, handsel.Options{
		Signals: signals, Subreaper: true, OnNote: func(text string) { a.say("%s", oneLine(text)) },
	}, queued)
	return err
}
