package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// doctorReport is the JSON of doctor.
type doctorReport struct {
	V        int               `json:"v"`
	Root     string            `json:"root"`
	RootFrom string            `json:"root_from"`
	Wrong    int               `json:"wrong"` // findings that are warn or bad, and not fixed
	Findings []handsel.Finding `json:"findings"`
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON, fix, dry, census bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "say what is wrong with this installation",
		Long: `Doctor looks at the home, the limits, the caps in force and where each comes
from, the kernel, and what is left over. It changes nothing without --fix, which
does only what is proven safe: it closes records of runs that are gone and
removes tickets, files and directories that nobody owns. It ends no process.

With --census it looks for agents instead that were started around handsel and hold
no slot: processes that are proven to be an engine's, by what they execute and not
by a name.

Status 1 when something is wrong (warn or bad), and --fix did not mend it; with
--census, when there is such an agent.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if dry && !fix {
				return &usageError{errors.New("--dry-run goes with --fix")}
			}
			if census && fix {
				return &usageError{errors.New("--census looks only, so --fix does not go with it")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			if census {
				return a.takeCensus(h, asJSON)
			}
			found := h.Examine()
			if fix && !dry {
				h.Repair(found)
			}
			return a.report(h, found, asJSON, fix && dry)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&asJSON, "json", false, "one JSON object")
	fs.BoolVar(&fix, "fix", false, "do what is proven safe")
	fs.BoolVar(&census, "census", false, "look for agents that hold no slot instead")
	fs.BoolVar(&dry, "dry-run", false, "with --fix: say what it would do, and do nothing")
	return cmd
}

func (a *app) report(h *handsel.Home, found []handsel.Finding, asJSON, dry bool) error {
	wrong := 0
	for _, f := range found {
		if f.Wrong() {
			wrong++
		}
	}
	if asJSON {
		if err := a.printJSON(doctorReport{V: 1, Root: h.Path(), RootFrom: h.From(), Wrong: wrong, Findings: found}); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			a.showFinding(f, dry)
		}
	}
	if wrong > 0 {
		a.say("%d of %d findings need looking after", wrong, len(found))
		return statusError(statusFinal)
	}
	return nil
}

func (a *app) showFinding(f handsel.Finding, dry bool) {
	word := string(f.Level)
	if f.Fixed {
		word = "fixed"
	}
	fmt.Fprintf(a.Out, "%-5s %s\n", word, oneLine(f.Text))
	switch {
	case f.Fixed:
	case dry && f.Can:
		fmt.Fprintln(a.Out, "      --fix would do it")
	case f.Fix != "" && f.Level != handsel.FindingOK:
		fmt.Fprintf(a.Out, "      %s\n", oneLine(f.Fix))
	}
}
