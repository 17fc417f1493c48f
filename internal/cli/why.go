package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) whyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why X",
		Short: "say why something waits: what each permission answers, who holds it, what would end it",
		Long: `Why asks every permission that a start needs for its present answer, one line
each: holds, time, dependencies, the engine account's quota, resources (pools,
place in line), ownership. X is a lane, a run or an attempt, an engine, an account
or a pool. It changes nothing. The codes are in docs/reference/reasons.md.`,
		Example: `  handsel why api/review
  handsel why pool:heavy --json`,
		ValidArgsFunction: a.completeRuns(1, false),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("why needs one name: handsel why LANE")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			y, err := h.Why(context.Background(), args[0])
			if errors.As(err, new(*handsel.BadName)) {
				return &usageError{err}
			}
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(y)
			}
			return a.showWhy(y)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) showWhy(y *handsel.Explained) error {
	a.warnAll(y.Problems)
	fmt.Fprintln(a.Out, clean(headText(y)))
	for _, p := range y.Permissions {
		fmt.Fprintf(a.Out, "%-10s  %-5s  %s: %s\n", p.Class, p.Answer, clean(p.Code), oneLine(p.Message)+whyMore(&p, y.At.Time))
		if p.Ends != "" {
			fmt.Fprintf(a.Out, "%-10s  %-5s  ends: %s\n", "", "", clean(p.Ends))
		}
	}
	return nil
}

func headText(y *handsel.Explained) string {
	text := y.Kind + " " + y.Name
	if y.Attempt != "" && y.Attempt != y.Name {
		text += ", attempt " + y.Attempt
	}
	if y.State != "" {
		text += ": " + y.State
	}
	if y.Outcome != "" {
		text += ", " + y.Outcome
	}
	if y.Place > 0 {
		text += fmt.Sprintf(", place %d", y.Place)
	}
	return text
}

// whyMore is since when, until when, and who holds it.
func whyMore(p *handsel.Permission, now time.Time) string {
	text := ""
	if !p.Since.IsZero() {
		text += fmt.Sprintf(", for %s", span(now.Sub(p.Since.Time)))
	}
	if !p.Until.IsZero() {
		text += ", until " + moment(p.Until.Time)
	}
	var holders []string
	for i, h := range p.Holders {
		if i == 8 {
			holders = append(holders, fmt.Sprintf("and %d more", len(p.Holders)-i))
			break
		}
		if h.Pool == "" {
			continue // an owner's text names it
		}
		who := fmt.Sprintf("%s/%d pid %d", h.Pool, h.Slot, h.Pid)
		if h.Child != 0 {
			who += fmt.Sprintf(" (child %d)", h.Child)
		}
		holders = append(holders, who)
	}
	if len(holders) > 0 {
		text += ", held by " + clean(strings.Join(holders, ", "))
	}
	return text
}
