package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/tui"
)

func (a *app) topCommand() *cobra.Command {
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "show pools, the line, lanes and runs live, with a key for why, logs, cancel and hold",
		Long: `Top is a screen that shows, about twice a second, which pools are how full, and
each lane and run at the permission it waits for or was given last. Keys: arrows
select, tab changes the section, / filters, enter says why, l shows the logs, c
cancels and h holds what is selected (both ask first), d drains, ? lists them, q
leaves. Without a dispatcher, or with one that does not answer, it says so and goes
on showing locks. The page docs/reference/top.md has it all.

Where stdin or stdout is no terminal, or TERM is dumb, it prints what it saw once,
and ends. --json prints that as one JSON object; with --watch, one a line, every
second, until it is interrupted.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if watch && !asJSON {
				return &usageError{errors.New("--watch is for --json: on a terminal top watches by itself")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			switch {
			case watch:
				return a.watchBoard(h)
			case asJSON:
				return a.printJSON(h.Watch().Look(context.Background()))
			case !isTerminal(a.In), !isTerminal(a.Out), dumbTerminal():
				return a.showBoard(h.Watch().Look(context.Background()))
			}
			return a.top(h)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object (with --watch, one per line)")
	cmd.Flags().BoolVar(&watch, "watch", false, "with --json: again every second until interrupted")
	return cmd
}

// dumbTerminal tells of a terminal that has no lines to go to.
func dumbTerminal() bool {
	term := os.Getenv("TERM")
	return term == "dumb" || term == "" && os.PathSeparator == '/'
}

// top shows the screen. A signal that ends it, ends us once the terminal is as it
// was.
func (a *app) top(h *handsel.Home) error {
	words := tui.Words{Why: whyLines, Event: eventText}
	sig, err := tui.Run(context.Background(), tui.Of(h), words, tui.Terminal{In: a.In, Out: a.Out, Plain: os.Getenv("NO_COLOR") != ""})
	if sig != 0 {
		handsel.DieBy(sig)
	}
	return err
}

// watchBoard prints what it sees, every second.
func (a *app) watchBoard(h *handsel.Home) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for w := h.Watch(); ; {
		b := w.Look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := a.printJSONLine(b); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showBoard prints a board as a text: what status prints, and the cards.
func (a *app) showBoard(b *handsel.Board) error {
	b.Status.Problems = b.Problems
	if err := a.showStatus(b.Status, false); err != nil {
		return err
	}
	if text := seenText(b); text != "" {
		fmt.Fprintln(a.Out, clean(text))
	}
	var rows [][]string
	for i := range b.Cards {
		c := &b.Cards[i]
		what := c.Code
		if c.Message != "" {
			what += ": " + c.Message
		}
		rows = append(rows, []string{c.Box, c.Name(), c.State, c.Answer, number(c.Place), ago(b.At.Time, c.Since.Time), ago(b.At.Time, c.Active.Time), what})
	}
	return a.showRows([]string{"AT", "LANE OR RUN", "STATE", "ANSWER", "PLACE", "FOR", "LAST EVENT", "WHY"}, rows)
}

// seenText says where waiting lanes are known from; empty in waiter mode.
func seenText(b *handsel.Board) string {
	if b.Mode != handsel.ModeDispatcher && b.Dispatcher.State == handsel.DispatcherNone && b.Dispatcher.Heartbeat.IsZero() {
		return ""
	}
	if b.Dispatcher.State == handsel.DispatcherAnswers {
		return fmt.Sprintf("the dispatcher answers (pid %d)", b.Dispatcher.Pid)
	}
	text := strings.TrimSpace(b.Dispatcher.Message) + "; waiting lanes are from its files"
	if b.AgeS > 0 {
		text += ", " + span(time.Duration(b.AgeS*float64(time.Second))) + " old"
	}
	return text
}
