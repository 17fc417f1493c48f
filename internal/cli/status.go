package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show pools, who holds their slots, who waits in line, and who has which lane",
		Long: `Status looks at locks and records on disk and changes nothing. Caps shown are the
configuration files' and this process's own. It answers in under two seconds,
whatever is dead or stopped, and says what it could not read.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := a.open()
			if err != nil {
				return err
			}
			if watch {
				return a.watch(h, asJSON)
			}
			return a.showStatus(h.Status(context.Background()), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object (with --watch, one per line)")
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every second until interrupted")
	return cmd
}

// watch repeats the look. Each is a short read: nothing stays open in between.
func (a *app) watch(h *handsel.Home, asJSON bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if !asJSON && isTerminal(a.Out) {
			fmt.Fprint(a.Out, "\x1b[H\x1b[2J")
		}
		snap := h.Status(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := a.showOnce(snap, asJSON); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *app) showOnce(s *handsel.Snapshot, asJSON bool) error {
	if asJSON {
		return a.printJSONLine(s)
	}
	return a.showStatus(s, false)
}

func (a *app) showStatus(s *handsel.Snapshot, asJSON bool) error {
	if asJSON {
		return a.printJSON(s)
	}
	for _, p := range s.Problems {
		a.say("warning: %s", oneLine(p))
	}
	if line := poolLine(s); line != "" {
		fmt.Fprintln(a.Out, line)
	} else if len(s.Waiting) == 0 && len(s.Strays) == 0 && len(s.Lanes) == 0 {
		fmt.Fprintf(a.Out, "nothing is counted in %s: no cap is set and no slot is held\n", clean(s.Root))
	}
	if s.QueuedAll > 0 {
		fmt.Fprintf(a.Out, "pool \"all\" has no cap: queued work runs under one of %d, one for each processor (handsel config set pools.all N)\n", s.QueuedAll)
	}
	if err := a.showHolders(s); err != nil {
		return err
	}
	if err := a.showAgents(s); err != nil {
		return err
	}
	if err := a.showWaiting(s); err != nil {
		return err
	}
	if err := a.showLanes(s); err != nil {
		return err
	}
	if err := a.showStrays(s); err != nil {
		return err
	}
	if err := a.showHolds(s); err != nil {
		return err
	}
	a.showDrain(s)
	if (poolLine(s) != "" || len(s.Lanes) > 0) && len(s.Sources) > 0 {
		fmt.Fprintf(a.Out, "home %s, by %s\n", clean(s.Root), strings.Join(s.Sources, ", "))
	}
	return nil
}

func (a *app) showHolds(s *handsel.Snapshot) error {
	var rows [][]string
	for _, h := range s.Holds {
		until := "removed"
		if !h.Until.IsZero() {
			until = h.Until.UTC().Format("2006-01-02 15:04 UTC")
		}
		rows = append(rows, []string{h.Kind, h.Scope, quotaReason(h.Kind, h.Reason), h.By, until})
	}
	return a.showRows([]string{"STARTS HELD BY", "SCOPE", "REASON", "BY", "UNTIL"}, rows)
}

// poolLine is "agents: all 3/30, heavy 1/6": every pool that has a cap or a
// slot held.
func poolLine(s *handsel.Snapshot) string {
	var parts []string
	for _, name := range s.Order() {
		p := s.Pools[name]
		if p.Cap == 0 && p.Held == 0 {
			continue
		}
		text := fmt.Sprintf("%s %d", clean(name), p.Held)
		if p.Effective != 0 {
			text += fmt.Sprintf("/%d", p.Effective)
		}
		if p.Effective != p.Cap && p.Cap != 0 {
			text += fmt.Sprintf(" (cap %d once holders that read %d are gone)", p.Cap, p.Effective)
		}
		if p.Draining() {
			text += " (draining to its cap)"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return "agents: " + strings.Join(parts, ", ")
}

func (a *app) showHolders(s *handsel.Snapshot) error {
	var rows [][]string
	for _, name := range s.Order() {
		for _, h := range s.Pools[name].Holders {
			rows = append(rows, []string{
				name, fmt.Sprint(h.Slot), h.State, h.Engine, attended(h.Workload, h.Interactive), h.Argv0,
				number(h.Holder), number(h.Child), ago(s.At.Time, h.Since.Time), short(h.Run),
			})
		}
	}
	return a.showRows([]string{"POOL", "SLOT", "STATE", "ENGINE", "WORKLOAD", "COMMAND", "HOLDER", "CHILD", "FOR", "RUN"}, rows)
}

// attended adds to a word that a person sits in what it is about.
func attended(word string, interactive bool) string {
	if interactive {
		return word + ", interactive"
	}
	return word
}

// showAgents lists what is known of the agents themselves.
func (a *app) showAgents(s *handsel.Snapshot) error {
	var rows [][]string
	for _, agent := range s.Agents {
		state, since := "", ago(s.At.Time, agent.LastEvent.Time)
		if t := agent.Trouble; t != nil {
			state = t.Text + ", for " + ago(s.At.Time, t.Since.Time)
		}
		rows = append(rows, []string{short(agent.Run), agent.Engine, confinementText(agent.Confinement), limitsText(agent.Limits), since, state})
	}
	return a.showRows([]string{"AGENT OF RUN", "ENGINE", "CONFINED", "LIMITS", "LAST EVENT", "STATE"}, rows)
}

// confinementText is how an agent is confined, in words.
func confinementText(how string) string {
	if how == "none" {
		return "no"
	}
	return "by " + how
}

func (a *app) showWaiting(s *handsel.Snapshot) error {
	var rows [][]string
	for _, w := range s.Waiting {
		var pools []string
		for _, p := range w.Pools {
			pools = append(pools, p.Name)
		}
		why := w.Reason
		if w.Pool != "" {
			why += " " + w.Pool
		}
		if w.Lane != "" {
			why += " " + w.Lane
		}
		rows = append(rows, []string{
			fmt.Sprint(w.Place), why, strings.Join(pools, ","), w.Engine, w.Workload, fmt.Sprint(w.Pid),
			fmt.Sprint(w.Priority), ago(s.At.Time, w.Since.Time), short(w.Run),
		})
	}
	return a.showRows([]string{"PLACE", "WAITS FOR", "POOLS", "ENGINE", "WORKLOAD", "PID", "PRIORITY", "FOR", "RUN"}, rows)
}

// showLanes lists the lanes at work. Those that are kept for waiting work may be
// thousands, and have a view of their own.
func (a *app) showLanes(s *handsel.Snapshot) error {
	var rows [][]string
	waiting := 0
	for _, l := range s.Lanes {
		if l.Waits() {
			waiting++
			continue
		}
		name, work := l.Name, l.Run
		if name == "" {
			name = l.File
		}
		if work == "" {
			work = l.Attempt
		}
		rows = append(rows, []string{
			name, l.State, l.Role, number(l.Owner), number(l.Child), l.Argv0, ago(s.At.Time, l.Since.Time), short(work),
		})
	}
	if err := a.showRows([]string{"LANE", "STATE", "ROLE", "OWNER", "CHILD", "COMMAND", "FOR", "RUN"}, rows); err != nil {
		return err
	}
	if waiting > 0 {
		fmt.Fprintf(a.Out, "lanes kept for waiting work: %d (handsel queue shows it)\n", waiting)
	}
	return nil
}

func (a *app) showStrays(s *handsel.Snapshot) error {
	var rows [][]string
	for _, st := range s.Strays {
		rows = append(rows, []string{fmt.Sprint(st.Pid), st.Comm, short(st.Run)})
	}
	return a.showRows([]string{"NOT COUNTED: PID", "NAME", "RUN"}, rows)
}

func (a *app) showRows(head []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	t := a.table(head...)
	for _, r := range rows {
		t.row(r...)
	}
	return t.end()
}

// short is the suffix by which a run is usually named.
func short(id string) string {
	const n = 8
	if len(id) <= n {
		return id
	}
	return id[len(id)-n:]
}
