package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel"
)

// durationHeads are the columns, in the order of handsel.DurationNames.
var durationHeads = []string{"QUEUED", "CLAIM", "RAN", "REVIEW", "ACCEPT", "RELEASE"}

// listDurations is runs --durations.
func (a *app) listDurations(h *handsel.Home, f *runsFlags) error {
	if f.refused {
		return &usageError{errors.New("--durations and --refused exclude each other")}
	}
	filter, err := f.filter(h)
	if err != nil {
		return err
	}
	list, err := h.Durations(filter)
	if err != nil {
		return err
	}
	if f.json {
		return a.printJSON(list)
	}
	a.warnAll(list.Problems)
	var rows [][]string
	for i := range list.Runs {
		r := &list.Runs[i]
		row := []string{short(r.Run), fit(r.Lane, 20), fit(cmp.Or(r.Outcome, r.State), 11)}
		for _, name := range handsel.DurationNames() {
			row = append(row, durationText(r.Seconds, name))
		}
		rows = append(rows, append(row, fit(waitedForText(r.WaitedFor, 2), 48)))
	}
	if err := a.showRows(append(append([]string{"RUN", "LANE", "STATE"}, durationHeads...), "WAITED FOR"), rows); err != nil {
		return err
	}
	return a.showDurationSums(list)
}

func (a *app) showDurationSums(list *handsel.DurationList) error {
	var rows [][]string
	for i, name := range handsel.DurationNames() {
		d := list.Durations[name]
		row := []string{strings.ToLower(durationHeads[i]), fmt.Sprint(d.Count)}
		for _, s := range []float64{d.MedianS, d.P90S, d.MaxS, d.SumS} {
			if d.Count == 0 {
				row = append(row, "")
				continue
			}
			row = append(row, seconds(s))
		}
		rows = append(rows, row)
	}
	fmt.Fprintln(a.Out)
	if err := a.showRows([]string{"OF ALL", "RUNS", "MEDIAN", "90%", "LONGEST", "SUM"}, rows); err != nil {
		return err
	}
	if text := waitedForText(list.WaitedFor, 0); text != "" {
		fmt.Fprintf(a.Out, "waited for: %s\n", clean(text))
	}
	return nil
}

// durationText is a duration that is known.
func durationText(all map[string]float64, name string) string {
	s, ok := all[name]
	if !ok {
		return ""
	}
	return seconds(s)
}

// seconds is a duration for people: short ones are worth their milliseconds here.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return span(d)
}

// waitedForText lists what was waited for, the longest first, at most so many; 0
// lists all.
func waitedForText(all map[string]float64, most int) string {
	reasons := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	var parts []string
	for i, why := range reasons {
		if most > 0 && i == most {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, why+" "+seconds(all[why]))
	}
	return strings.Join(parts, ", ")
}
