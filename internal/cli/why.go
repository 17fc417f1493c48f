package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
place in line), ownership; and of what has ended acceptance and release. X is a
lane, a run or an attempt, an engine, an account or a pool. It changes nothing. The codes are in docs/reference/reasons.md.`,
		Example: `  handsel why api/review
  handsel why pool:heavy --json`,
		ValidArgsFunction: a.complete(1, lanes|runs|over|engines|accounts|pools),
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
	for _, line := range whyLines(y) {
		fmt.Fprintln(a.Out, line)
	}
	return nil
}

// whyLines is what each permission answers, in words.
func whyLines(y *handsel.Explained) []string {
	lines := []string{clean(headText(y))}
	for _, p := range toldOnce(y.Permissions) {
		lines = append(lines, fmt.Sprintf("%-10s  %-5s  %s: %s", p.Class, p.Answer, clean(p.Code), oneLine(p.Message)+whyMore(&p, y.At.Time)))
		if p.Ends != "" {
			lines = append(lines, fmt.Sprintf("%-10s  %-5s  ends: %s", "", "", clean(p.Ends)))
		}
	}
	return lines
}

// toldOnce joins what is asked besides the five permissions, and lets start, into
// one line, and leaves out a check that is off where another line tells of its
// class. The JSON has all of them.
func toldOnce(all []handsel.Permission) (lines []handsel.Permission) {
	besides := map[string]bool{"hold": true, "time": true, "dependency": true}
	free := func(p *handsel.Permission) bool {
		return besides[p.Class] && p.Answer == handsel.AnswerGo && p.Code == handsel.CodeFree
	}
	for i, p := range all {
		last := len(lines) - 1
		switch {
		case p.Code == pressureOff && slices.ContainsFunc(all[i+1:], func(q handsel.Permission) bool { return q.Class == p.Class }):
		case last >= 0 && free(&p) && free(&lines[last]):
			lines[last].Message += "; " + p.Message
		default:
			lines = append(lines, p)
		}
	}
	return lines
}

// pressureOff is the code of a machine that is not measured.
const pressureOff = "not_configured"

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
	var slots, holders []string
	for i, h := range p.Holders {
		if i == 8 {
			holders = append(holders, fmt.Sprintf("and %d more", len(p.Holders)-i))
			break
		}
		if h.Pool == "" {
			continue // an owner's text names it
		}
		slots = append(slots, fmt.Sprintf("%s/%d", h.Pool, h.Slot))
		who := fmt.Sprintf("%s pid %d", slots[len(slots)-1], h.Pid)
		if h.Child != 0 {
			who += fmt.Sprintf(" (child %d)", h.Child)
		}
		holders = append(holders, who)
	}
	switch {
	case len(slots) > 0 && p.Code == handsel.CodeHoldsIt: // its own: who that is, is told as the owner
		text = ": " + clean(strings.Join(slots, ", ")) + text
	case len(holders) > 0:
		text += ", held by " + clean(strings.Join(holders, ", "))
	}
	return text
}
