package handsel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/runs"
)

type (
	// KnownRun is one run as it is judged now: its record, overruled by the
	// kernel where they disagree.
	KnownRun = runs.Run

	// RunList is what Runs found.
	RunList = runs.List

	// RunTotals count runs.
	RunTotals = runs.Totals

	// RunFilter says which runs are wanted; the zero value wants all.
	RunFilter = runs.Filter

	// RunLimits are the time limits of a run, in seconds.
	RunLimits = record.Limits

	// Refusal is an admission that was refused (E16).
	Refusal = record.Refusal

	// BadName reports a text that cannot name anything.
	BadName = runs.BadName

	// NotYours refuses to cancel, from inside an agent, what it did not start.
	NotYours = runs.NotYours
)

// RunStates are the words that RunFilter.State may have.
func RunStates() []string { return append([]string{}, runs.States...) }

// Runs lists runs, newest first, with their totals. It changes nothing.
func (h *Home) Runs(f RunFilter) (*RunList, error) {
	at, problems := h.runsPlace()
	list, err := at.List(f)
	if err != nil {
		return nil, err
	}
	list.Problems = append(list.Problems, problems...)
	return list, nil
}

// Refusals lists what was refused since a moment, newest first, at most limit
// of them (0: all), and what could not be read.
func (h *Home) Refusals(since time.Time, limit int) (all []*Refusal, problems []string, err error) {
	all, bad, err := record.Refusals(h.dir, since, limit)
	for _, p := range bad {
		problems = append(problems, p.Error())
	}
	return all, problems, err
}

// FindRuns resolves a name (C4): a run's id or a unique end of it, or an
// engine, a pool or a label, which mean those of their runs that have not
// ended; with all, every one. The error is *NotFound, *Ambiguous or *BadName.
func (h *Home) FindRuns(name string, all bool) ([]KnownRun, error) {
	at, _ := h.runsPlace()
	found, err := at.Find(name, all)
	if none, ok := errors.AsType[*runs.NotFound](err); ok {
		return nil, notFound(none)
	}
	if several, ok := errors.AsType[*runs.Ambiguous](err); ok {
		return nil, &Ambiguous{Name: several.Name, Fits: several.Fits}
	}
	return found, err
}

func notFound(e *runs.NotFound) error {
	if e.Why == "" {
		return &NotFound{Name: e.Name}
	}
	return fmt.Errorf("%w (%s)", &NotFound{Name: e.Name}, e.Why)
}

// runsPlace is where runs are looked for. A configuration that does not parse
// does not keep anybody from looking.
func (h *Home) runsPlace() (runs.Place, []string) {
	s, bad := config.LoadLenient(h.configEnv())
	var problems []string
	for _, err := range bad {
		problems = append(problems, err.Error())
	}
	at := h.places(s)
	return runs.Place{Home: h.dir, Leases: at.Leases, Waiting: at.Waiting}, problems
}

// WaitRuns returns when all of the runs have ended; each is told as it is
// noticed. The error is that of ctx, or *Refused when the wait would never end
// because a run waits for slots of this process's own ancestors (S13).
func (h *Home) WaitRuns(ctx context.Context, list []KnownRun, told func(KnownRun)) error {
	at, _ := h.runsPlace()
	return at.Wait(ctx, list, told)
}
