package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/host"
)

func (a *app) dispatchCommand() *cobra.Command {
	var background, asJSON bool
	var readyFD int
	cmd := &cobra.Command{
		Use:   "dispatch",
		Short: "keep waiting lanes as rows and start them when there is room",
		Long: `Dispatch keeps what was enqueued, in the foreground, until it is stopped. It adds
order, never permission: caps are the same without it. Rows survive it, and what
runs goes on.

Refused with 75 when another dispatcher has the home, 78 in waiter mode, 1 inside
an agent.`,
		Example: `  handsel config set admission.mode dispatcher
  handsel dispatch --background`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if background {
				return a.dispatchAside()
			}
			return a.dispatch(false, readyFD)
		},
	}
	cmd.Flags().BoolVar(&background, "background", false, "return as soon as it listens, and leave it running")
	cmd.Flags().IntVar(&readyFD, "ready-fd", 0, "descriptor of who waits for it to listen")
	_ = cmd.Flags().MarkHidden("ready-fd") // it is registered one line above
	status := &cobra.Command{
		Use: "status", Short: "tell how the dispatcher is; 69 when none answers", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.dispatchStatus(asJSON) },
	}
	status.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	cmd.AddCommand(status, a.dispatchStop(), a.dispatchTakeover())
	return cmd
}

// dispatch runs the dispatcher here. Its log is in the home; on a terminal it
// is shown as well.
func (a *app) dispatch(takeover bool, readyFD int) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	var line *os.File
	if readyFD != 0 {
		if line, err = lineOf(readyFD); err != nil {
			return &usageError{fmt.Errorf("--ready-fd %d: %w", readyFD, err)}
		}
		defer line.Close()
	}
	if err := h.MayDispatch(); err != nil {
		return err
	}
	if err := aside(); err != nil && line != nil {
		return err
	}
	if err := handsel.CloseInherited(); err != nil {
		return err
	}
	log, err := host.OpenLog(h)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return host.Serve(ctx, h, host.Options{
		Driver: []string{ownPath(), "drive"}, Version: Version, Log: a.logger(log, line == nil), Takeover: takeover,
		Ready: func() { a.listening(line) },
	})
}

// logger writes the log, for people too where somebody may be looking.
func (a *app) logger(log io.Writer, watched bool) *slog.Logger {
	kept := slog.NewJSONHandler(log, nil)
	if !watched {
		return slog.New(kept)
	}
	return slog.New(both{kept, slog.NewTextHandler(a.Err, nil)})
}

// listening tells whoever started us in the background that we listen.
func (a *app) listening(line *os.File) {
	if line == nil {
		return
	}
	if silence(a.Err) == nil {
		fmt.Fprintln(line, "listening")
	}
	line.Close()
}

// both gives each line to two handlers.
type both [2]slog.Handler

func (b both) Enabled(ctx context.Context, l slog.Level) bool { return b[0].Enabled(ctx, l) }

func (b both) Handle(ctx context.Context, r slog.Record) error {
	return errors.Join(b[0].Handle(ctx, r.Clone()), b[1].Handle(ctx, r))
}

func (b both) WithAttrs(as []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(as), b[1].WithAttrs(as)}
}

func (b both) WithGroup(name string) slog.Handler {
	return both{b[0].WithGroup(name), b[1].WithGroup(name)}
}

// startPatience bounds the wait for a dispatcher that starts beside us.
const startPatience = 20 * time.Second

// dispatchAside starts a dispatcher in the background and returns when one
// listens: ours, or another that came first (C027).
func (a *app) dispatchAside() error {
	h, err := a.open()
	if err != nil {
		return err
	}
	if err := h.MayDispatch(); err != nil {
		return err
	}
	pid, err := a.startDispatcher(h)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "dispatching (pid %d)\n", pid)
	return nil
}

func (a *app) startDispatcher(h *handsel.Home) (pid int, err error) {
	line, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer line.Close()
	p, err := startAside([]string{os.Args[0], "dispatch", "--ready-fd", "3"}, a.Err, theirs)
	theirs.Close()
	if err != nil {
		return 0, err
	}
	_ = line.SetReadDeadline(time.Now().Add(startPatience))
	said, err := io.ReadAll(io.LimitReader(line, 64))
	if strings.HasSuffix(string(said), "\n") {
		pid := p.Pid
		return pid, p.Release() // it is nobody's child from here on
	}
	if err != nil {
		return 0, &handsel.SilentDispatcher{Pid: p.Pid, State: "it is starting", Err: err}
	}
	end, err := p.Wait()
	if err != nil {
		return 0, err
	}
	switch code := end.ExitCode(); {
	case code == statusRetry:
		return a.otherDispatcher(h)
	case code > 0:
		return 0, statusError(code) // it has said why, on the stderr that is ours too
	}
	return 0, &handsel.SilentDispatcher{Pid: p.Pid, State: "it ended before it listened: " + end.String()}
}

// otherDispatcher waits until the one that came first listens.
func (a *app) otherDispatcher(h *handsel.Home) (pid int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		s, err := h.DispatcherStatus(ctx)
		if err == nil {
			return s.Pid, nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return 0, err
		}
	}
}

func (a *app) dispatchStatus(asJSON bool) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	s, err := h.DispatcherStatus(context.Background())
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(s)
	}
	fmt.Fprintf(a.Out, "dispatcher: pid %d since %s, version %s\n", s.Pid, s.Started.UTC().Format(time.RFC3339), oneLine(s.Version))
	fmt.Fprintf(a.Out, "rows: %d queued, %d starting; %d attempts are driven\n", s.Rows["queued"], s.Rows["starting"], s.Attempts)
	if s.Draining {
		fmt.Fprintf(a.Out, "draining: nothing new is admitted (handsel resume ends it)\n")
	}
	if s.DefaultAll > 0 {
		fmt.Fprintf(a.Out, "pool \"all\" has no cap: rows run under one of %d, one for each processor (handsel config set pools.all N)\n", s.DefaultAll)
	}
	fmt.Fprintf(a.Out, "descriptors: %d of %d, %d kept back\n", s.Descriptors.Used, s.Descriptors.Limit, s.Descriptors.Reserve)
	return nil
}

func (a *app) dispatchStop() *cobra.Command {
	var running bool
	cmd := &cobra.Command{
		Use: "stop", Short: "end the dispatcher; rows wait for the next one, and what runs goes on", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := a.open()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			left, err := h.StopDispatcher(ctx, running)
			if err != nil {
				return err
			}
			goes := oneOr(left.Running, "goes on without it", "go on without it")
			if running {
				goes = oneOr(left.Running, "was ended", "were ended")
			}
			fmt.Fprintf(a.Out, "stopped; %s %s, %s %s for the next dispatcher\n", counted(left.Running, "attempt"), goes, counted(left.Queued, "row"), oneOr(left.Queued, "waits", "wait"))
			return nil
		},
	}
	cmd.Flags().BoolVar(&running, "cancel-running", false, "end what runs as well")
	return cmd
}

func (a *app) dispatchTakeover() *cobra.Command {
	var readyFD int
	cmd := &cobra.Command{
		Use: "takeover", Short: "relieve the dispatcher that runs, without a gap: for an update", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.dispatch(true, readyFD) },
	}
	cmd.Flags().IntVar(&readyFD, "ready-fd", 0, "descriptor of who waits for it to listen")
	_ = cmd.Flags().MarkHidden("ready-fd") // it is registered one line above
	return cmd
}

// oneOr is the word for one of something, or for any other number.
func oneOr(n int, one, other string) string {
	if n == 1 {
		return one
	}
	return other
}
