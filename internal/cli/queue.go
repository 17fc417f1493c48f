package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) queueCommand() *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "show the waiting lanes in their order, and why each waits",
		Long: `Queue lists the lanes that wait, in the order in which they would start. The
dispatcher is asked; when it does not answer, what it last wrote is shown, and
how old that is. It changes nothing and answers within two seconds.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if limit < 0 {
				return &handsel.BadOption{Option: "limit", Value: fmt.Sprint(limit), Why: "it must not be negative"}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			q := h.Queue(context.Background())
			if asJSON {
				return a.printJSON(q)
			}
			return a.showQueue(q, limit)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object, with every row")
	cmd.Flags().IntVar(&limit, "limit", 50, "list at most `N`; 0 lists all")
	return cmd
}

func (a *app) showQueue(q *handsel.QueueView, limit int) error {
	a.warnAll(q.Problems)
	if q.Dispatcher.Message != "" && (len(q.Rows) > 0 || q.Dispatcher.State == handsel.DispatcherSilent) {
		a.say("%s", oneLine(q.Dispatcher.Message))
	}
	rows := q.Rows
	if limit > 0 && len(rows) > limit {
		rows = rows[:limit]
	}
	var cells [][]string
	for i := range rows {
		cells = append(cells, a.queueRow(&rows[i], q.At.Time))
	}
	if err := a.showRows([]string{"PLACE", "LANE", "STATE", "WAITS FOR", "POOLS", "ENGINE", "PRIORITY", "FOR", "ATTEMPT"}, cells); err != nil {
		return err
	}
	if q.Draining {
		fmt.Fprintf(a.Out, "draining, %d running\n", q.Running)
	}
	fmt.Fprintf(a.Out, "%s; %s\n", countText(len(q.Rows), len(rows)), sourceText(q))
	return nil
}

func (a *app) queueRow(r *handsel.QueueRow, now time.Time) []string {
	why := ""
	if r.Reason != nil {
		why = r.Reason.Code
		var pools []string
		for _, h := range r.Reason.Holders {
			if h.Pool != "" && (len(pools) == 0 || pools[len(pools)-1] != h.Pool) {
				pools = append(pools, h.Pool)
			}
		}
		if len(pools) > 0 {
			why += " " + strings.Join(pools, ",")
		}
		if !r.Reason.Until.IsZero() {
			why += " until " + r.Reason.Until.UTC().Format("15:04:05Z")
		}
	}
	if r.Behind > 0 {
		why = strings.TrimSpace(fmt.Sprintf("%s (behind %d of higher priority)", why, r.Behind))
	}
	return []string{
		fmt.Sprint(r.Place), fit(clean(r.Lane), 40), r.State, why, strings.Join(r.Pools, ","), account(r.Placement.Engine, r.Placement.Account),
		fmt.Sprint(r.Priority), ago(now, r.QueueStart.Time), short(r.ID),
	}
}

func countText(all, shown int) string {
	switch {
	case all == 0:
		return "nothing waits"
	case shown < all:
		return fmt.Sprintf("%d lanes wait, the first %d are shown", all, shown)
	case all == 1:
		return "1 lane waits"
	}
	return fmt.Sprintf("%d lanes wait", all)
}

// sourceText says where this comes from and how old it is.
func sourceText(q *handsel.QueueView) string {
	if q.Source == handsel.FromDispatcher {
		return fmt.Sprintf("by the dispatcher (pid %d), now", q.Dispatcher.Pid)
	}
	if q.Dispatcher.Heartbeat.IsZero() {
		return "by the entries on disk; no dispatcher has run here"
	}
	return fmt.Sprintf("by the entries on disk, as of %s ago", span(time.Duration(q.AgeS*float64(time.Second))))
}
