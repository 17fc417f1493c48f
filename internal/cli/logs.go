package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	show := &logShowing{}
	cmd := &cobra.Command{
		Use:   "logs X",
		Short: "print what is kept of a run's output",
		Long: `Logs prints what is kept of the output of a run, of an attempt, or of a lane's
present attempt (the last one, if it has none). Of an agent whose stream was read
that is what it did and said, a line each, on stdout; of everything else, and with
--raw, its standard output to stdout, byte for byte. Its standard error goes to
stderr. What the record had no room for is marked by a line. With -f it goes on
while the run does, and returns when it has ended; interrupting it touches nothing.

Status 3 when no output is kept: attempts keep theirs, a direct run does with
--record or --idle.`,
		Example: `  handsel logs -f api/review
  handsel logs 4f2a9c --stream stderr | less`,
		ValidArgsFunction: a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("logs needs one name: handsel logs RUN")}
			}
			to, err := a.logTo(show)
			if err != nil {
				return err
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			return a.logs(h, args[0], to, follow)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&follow, "follow", "f", false, "go on as it grows, until the run has ended")
	fs.BoolVar(&show.raw, "raw", false, "what the agent printed, byte for byte, also where its stream was read")
	fs.BoolVar(&show.asJSON, "json", false, "what the agent did and said, one JSON object on each line; 3 where nobody read it")
	fs.StringVar(&show.only, "stream", "", "only this `STREAM`, stdout or stderr, byte for byte and to stdout")
	fs.BoolVar(&show.merged, "merged", false, "both byte for byte to stdout")
	return cmd
}

// logShowing is what of an output is wanted, and how.
type logShowing struct {
	raw, asJSON, merged bool
	only                string
}

// logTo says where each output goes.
func (a *app) logTo(s *logShowing) (to handsel.LogTo, err error) {
	chosen := 0
	for _, one := range []bool{s.raw, s.asJSON, s.merged, s.only != ""} {
		if one {
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return to, &usageError{errors.New("--raw, --json, --stream and --merged exclude each other")}
	case s.merged:
		return handsel.LogTo{Stdout: a.Out, Stderr: a.Out}, nil
	case s.only == "stdout":
		return handsel.LogTo{Stdout: a.Out}, nil
	case s.only == "stderr":
		return handsel.LogTo{Stderr: a.Out}, nil
	case s.only != "":
		return to, &handsel.BadOption{Option: "stream", Value: s.only, Why: "it must be stdout or stderr"}
	case s.raw:
		return handsel.LogTo{Stdout: a.Out, Stderr: a.Err}, nil
	case s.asJSON:
		return handsel.LogTo{Events: a.Out}, nil
	}
	return handsel.LogTo{Events: &eventPrinter{to: a.Out}, Stdout: a.Out, Stderr: a.Err}, nil
}

// eventPrinter prints the events that are written to it, one JSON object on each
// line, for people.
type eventPrinter struct {
	to   io.Writer
	line []byte
}

func (p *eventPrinter) Write(text []byte) (int, error) {
	for rest := text; ; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		p.line = append(p.line, line...)
		if !whole {
			return len(text), nil
		}
		if err := p.print(); err != nil {
			return 0, err
		}
		p.line, rest = p.line[:0], after
	}
}

// print prints one line. What is no event is a line of ours, about events that
// are not kept.
func (p *eventPrinter) print() error {
	text := eventText(p.line)
	if strings.TrimSpace(text) == "" {
		return nil
	}
	_, err := fmt.Fprintln(p.to, text)
	return err
}

// eventText is one line of events as a log has it, empty for what there is
// nothing to say of.
func eventText(line []byte) string {
	var e struct {
		At time.Time `json:"at"`
		handsel.Event
	}
	if json.Unmarshal(line, &e) != nil {
		return string(line)
	}
	if text := loggedEvent(e.Event); text != "" {
		return e.At.UTC().Format("15:04:05 ") + text
	}
	return ""
}

// loggedEvent is an event as a log has it: texts whole, with their lines below
// each other.
func loggedEvent(e handsel.Event) string {
	switch e.Kind {
	case "text":
		return indented(e.Text)
	case "result":
		if !e.Failed {
			return "— answers: " + indented(e.Text)
		}
		return clean("— failed: ") + indented(e.Text)
	}
	return eventLine(e)
}

func indented(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "\n         ")
}

func (a *app) logs(h *handsel.Home, x string, to handsel.LogTo, follow bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := findWork(ctx, h, x, true)
	if err != nil {
		return err
	}
	if len(found) > 1 {
		return &handsel.Ambiguous{Name: x, Fits: names(found)}
	}
	err = h.Logs(ctx, found[0], to, follow)
	if errors.Is(err, context.Canceled) {
		return nil // it was interrupted, which is how a person ends it
	}
	return err
}

// findWork resolves a name; one that can name nothing is a wrong command line.
func findWork(ctx context.Context, h *handsel.Home, name string, all bool) ([]handsel.KnownRun, error) {
	found, err := h.FindWork(ctx, name, all)
	if errors.As(err, new(*handsel.BadName)) {
		return nil, &usageError{err}
	}
	return found, err
}
