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

// slotReport is the JSON of gc --slot and gc --lane.
type slotReport struct {
	V     int    `json:"v"`
	Slot  string `json:"slot,omitempty"`
	Lane  string `json:"lane,omitempty"`
	State string `json:"state"` // before
	Freed bool   `json:"freed"`
	Run   string `json:"run,omitempty"`
	Child int    `json:"child_pid,omitempty"`
}

// gcFlags are those of the verb gc.
type gcFlags struct {
	json, yes, dry bool
	slot, older    string
	lane           string
}

func (a *app) gcCommand() *cobra.Command {
	f := &gcFlags{}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "clear away old records and what is left over",
		Long: `Gc says what could go, and why, and removes nothing until it is told --yes:
records of runs that ended longer ago than runs.keep_days, or the oldest beyond
runs.keep_bytes; tickets and files that no living process owns; the files of
lanes that nobody has, unless they count the lane's grants; keys of submissions
whose runs have no record any more. Records of runs that
are gone are closed as lost. It ends nothing that lives.

--slot frees a slot, --lane a lane, whose agent cannot be looked at from here,
which keeps it taken. They ask first: only you can know that the agent is gone.`,
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
			switch {
			case f.slot != "" && f.lane != "":
				return &usageError{errors.New("--slot and --lane exclude each other")}
			case f.slot != "":
				return a.gcSlot(h, f)
			case f.lane != "":
				return a.gcLane(h, f)
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
	fs.StringVar(&f.lane, "lane", "", "free the lane `NAME` whose agent cannot be looked at")
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
		switch {
		case item.Error != "":
			failed++
		case item.Done || !f.yes:
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
		case !out.DryRun:
			did = "left alone"
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

// kept is a slot or a lane that may be kept for an agent nobody can look at.
type kept struct {
	slotReport
	what string // as a sentence begins, such as: slot heavy/3
	flag string
	free func() error
}

// gcSlot frees one slot after a question.
func (a *app) gcSlot(h *handsel.Home, f *gcFlags) error {
	s, err := h.LookSlot(f.slot)
	if err != nil {
		return slotUsage(err)
	}
	return a.gcKept(f, &kept{
		slotReport: slotReport{V: 1, Slot: s.Slot, State: s.State, Run: s.Run, Child: s.Child},
		what:       "slot " + clean(s.Slot), flag: "--slot", free: func() error { return h.FreeSlot(f.slot) },
	})
}

// gcLane frees one lane after a question.
func (a *app) gcLane(h *handsel.Home, f *gcFlags) error {
	s, err := h.LookLane(f.lane)
	if err != nil {
		return err
	}
	return a.gcKept(f, &kept{
		slotReport: slotReport{V: 1, Lane: s.Lane, State: s.State, Run: s.Run, Child: s.Child},
		what:       "lane " + clean(s.Lane), flag: "--lane", free: func() error { return h.FreeLane(f.lane) },
	})
}

func (a *app) gcKept(f *gcFlags, k *kept) error {
	unsure := k.State == "unverifiable"
	if unsure && !f.dry && !f.yes {
		if err := a.ask(k); err != nil {
			return err
		}
	}
	if !f.dry || !unsure {
		err := k.free()
		if errors.As(err, new(*handsel.NotFreed)) || errors.As(err, new(*handsel.LaneInUse)) {
			return a.notFreed(&k.slotReport, f, err)
		}
		if err != nil {
			return slotUsage(err)
		}
		k.Freed = unsure
	}
	if f.json {
		return a.printJSON(k.slotReport)
	}
	switch {
	case k.Freed:
		fmt.Fprintf(a.Out, "%s is free\n", k.what)
	case unsure:
		fmt.Fprintf(a.Out, "%s would be freed: its agent, process %d, cannot be looked at from here\n", k.what, k.Child)
	default:
		fmt.Fprintf(a.Out, "%s is free already\n", k.what)
	}
	return nil
}

// notFreed is a final refusal: somebody alive has it.
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
func (a *app) ask(k *kept) error {
	if !isTerminal(a.In) || !isTerminal(a.Err) {
		return &usageError{fmt.Errorf("gc %s asks first, and there is no terminal to ask on; --yes answers", k.flag)}
	}
	harm := "there will be one agent more than the cap allows"
	if k.Lane != "" {
		harm = "there may be two agents in it"
	}
	fmt.Fprintf(a.Err, "The %s is kept for process %d of another pid namespace. If it is gone, it can be freed;\nif it lives, %s. Free it? [y/N] ", k.what, k.Child, harm)
	line, err := bufio.NewReader(a.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		a.say("nothing was done")
		return statusError(statusFinal)
	}
	return nil
}
