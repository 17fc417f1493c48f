package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// gcReport is the JSON of gc.
type gcReport struct {
	V        int                `json:"v"`
	DryRun   bool               `json:"dry_run"`
	Bytes    int64              `json:"bytes"` // of what goes
	Items    []handsel.Leftover `json:"items"`
	Problems []string           `json:"problems"`
}

// slotReport is the JSON of gc --slot.
type slotReport struct {
	V     int    `json:"v"`
	Slot  string `json:"slot"`
	State string `json:"state"` // before
	Freed bool   `json:"freed"`
	Run   string `json:"run,omitempty"`
	Child int    `json:"child_pid,omitempty"`
}

// gcFlags are those of the verb gc.
type gcFlags struct {
	json, yes, dry bool
	slot, older    string
}

func (a *app) gcCommand() *cobra.Command {
	f := &gcFlags{}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "clear away old records and what is left over",
		Long: `Gc says what could go, and why, and removes nothing until it is told --yes:
records of runs that ended longer ago than runs.keep_days, or the oldest beyond
runs.keep_bytes; tickets and files that no living process owns. Records of runs
that are gone are closed as lost. It ends nothing that lives.

--slot frees a slot whose agent cannot be looked at from here, which keeps it
taken. It asks first: only you can know that the agent is gone.`,
		Example: `  handsel gc
  handsel gc --yes --older 720h
  handsel gc --slot heavy/3`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			older, err := positive("older", f.older)
			if err != nil {
				return err
			}
			if f.yes && f.dry {
				return &usageError{errors.New("--yes and --dry-run exclude each other")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			if f.slot != "" {
				return a.gcSlot(h, f)
			}
			return a.gc(h, f, older)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.yes, "yes", false, "do it")
	fs.BoolVar(&f.dry, "dry-run", false, "only say what would be done (the default)")
	fs.StringVar(&f.older, "older", "", "records older than `D` (720h, seconds) instead of what is configured")
	fs.StringVar(&f.slot, "slot", "", "free the slot `POOL/NUMBER` whose agent cannot be looked at")
	fs.BoolVar(&f.json, "json", false, "one JSON object")
	return cmd
}

func (a *app) gc(h *handsel.Home, f *gcFlags, older time.Duration) error {
	items, problems := h.Leftovers(older)
	out := gcReport{V: 1, DryRun: !f.yes, Items: append([]handsel.Leftover{}, items...), Problems: []string{}}
	for _, p := range problems {
		if len(items) == 0 && errors.As(p, new(*handsel.Untrusted)) {
			return p // the home itself, or all of its runs, are not ours to judge
		}
		out.Problems = append(out.Problems, p.Error())
	}
	failed := 0
	for i := range out.Items {
		item := &out.Items[i]
		if f.yes {
			item.Do()
		}
		if item.Error != "" {
			failed++
		} else {
			out.Bytes += item.Bytes
		}
	}
	if f.json {
		if err := a.printJSON(out); err != nil {
			return err
		}
	} else {
		a.showGC(&out)
	}
	if failed > 0 {
		a.say("%d of %d could not be done", failed, len(out.Items))
		return statusError(statusOurs)
	}
	return nil
}

func (a *app) showGC(out *gcReport) {
	a.warnAll(out.Problems)
	for _, item := range out.Items {
		did := "would go"
		switch {
		case item.Kind == "lost_run" && item.Done:
			did = "closed"
		case item.Kind == "lost_run":
			did = "would be closed"
		case item.Done:
			did = "removed"
		}
		name := item.ID
		if name == "" {
			name = item.Path
		}
		if item.Error != "" {
			fmt.Fprintf(a.Out, "not done  %s: %s\n", clean(name), oneLine(item.Error))
			continue
		}
		fmt.Fprintf(a.Out, "%s  %s: %s\n", did, clean(name), clean(item.Why))
	}
	switch {
	case len(out.Items) == 0:
		fmt.Fprintln(a.Out, "nothing to clear away")
	case out.DryRun:
		fmt.Fprintf(a.Out, "%d pieces, %d bytes; nothing was done: handsel gc --yes does it\n", len(out.Items), out.Bytes)
	}
}

// gcSlot frees one slot after a question.
func (a *app) gcSlot(h *handsel.Home, f *gcFlags) error {
	s, err := h.LookSlot(f.slot)
	if err != nil {
		return slotUsage(err)
	}
	out := slotReport{V: 1, Slot: s.Slot, State: s.State, Run: s.Run, Child: s.Child}
	if s.State == "unverifiable" && !f.dry {
		if !f.yes {
			if err := a.ask(s); err != nil {
				return err
			}
		}
	}
	if !f.dry || s.State != "unverifiable" {
		err := h.FreeSlot(f.slot)
		if errors.As(err, new(*handsel.NotFreed)) {
			return a.notFreed(&out, f, err)
		}
		if err != nil {
			return slotUsage(err)
		}
		out.Freed = s.State == "unverifiable"
	}
	if f.json {
		return a.printJSON(out)
	}
	switch {
	case out.Freed:
		fmt.Fprintf(a.Out, "slot %s is free\n", clean(s.Slot))
	case s.State == "unverifiable":
		fmt.Fprintf(a.Out, "slot %s would be freed: its agent, process %d, cannot be looked at from here\n", clean(s.Slot), s.Child)
	default:
		fmt.Fprintf(a.Out, "slot %s is free already\n", clean(s.Slot))
	}
	return nil
}

// notFreed is a final refusal: somebody alive has the slot.
func (a *app) notFreed(out *slotReport, f *gcFlags, err error) error {
	if f.json {
		if err := a.printJSON(out); err != nil {
			return err
		}
	}
	a.say("refused: %s", oneLine(err.Error()))
	return statusError(statusFinal)
}

// slotUsage makes a wrong command line of what names no slot.
func slotUsage(err error) error {
	if errors.As(err, new(*handsel.BadSlot)) {
		return &usageError{err}
	}
	return err
}

// ask asks the person at the terminal.
func (a *app) ask(s handsel.SlotState) error {
	if !isTerminal(a.In) || !isTerminal(a.Err) {
		return &usageError{fmt.Errorf("gc --slot %s asks first, and there is no terminal to ask on; --yes answers", s.Slot)}
	}
	fmt.Fprintf(a.Err, "Slot %s is kept for process %d of another pid namespace. If it is gone, the slot can be freed;\nif it lives, there will be one agent more than the cap allows. Free it? [y/N] ", clean(s.Slot), s.Child)
	line, err := bufio.NewReader(a.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		a.say("nothing was done")
		return statusError(statusFinal)
	}
	return nil
}
