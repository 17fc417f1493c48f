package handsel

import (
	"maps"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/metrics"
	"github.com/handsel/handsel/internal/record"
)

// The durations that are kept apart (P12).
const (
	QueueWait   = "queue_wait"   // from being asked for to being admitted
	ClaimWait   = "claim_wait"   // of an attempt: from being admitted to being claimed
	RunTime     = "run"          // from the start of what was asked for to its end
	ReviewWait  = "review_wait"  // from the end to the first act of a reviewer
	Acceptance  = "acceptance"   // from the end to its acceptance
	ReleaseWait = "release_wait" // from acceptance to release
)

// DurationNames are they, in the order in which they come.
func DurationNames() []string {
	return []string{QueueWait, ClaimWait, RunTime, ReviewWait, Acceptance, ReleaseWait}
}

// RunDurations is how long one run or attempt took for what. What is not over, or
// not known, is left out: a run that was never claimed has no claim_wait.
type RunDurations struct {
	Run     string `json:"run"`
	Lane    string `json:"lane,omitempty"`
	Verb    string `json:"verb"`
	Engine  string `json:"engine,omitempty"`
	State   string `json:"state"`
	Outcome string `json:"outcome,omitempty"`

	// Seconds has what is known, by the names above, in seconds.
	Seconds map[string]float64 `json:"durations_s"`
	// WaitedFor is what the queue wait was spent on, in seconds by class/code of
	// the reason, as far as it was counted.
	WaitedFor map[string]float64 `json:"waited_for_s"`
}

// DurationSum is one duration over all runs.
type DurationSum struct {
	Count   int       `json:"count"`
	SumS    float64   `json:"sum_s"`
	MedianS float64   `json:"median_s"`
	P90S    float64   `json:"p90_s"`
	MaxS    float64   `json:"max_s"`
	UpTo    []Counted `json:"up_to"` // the histogram, as /metrics has it
}

// Counted is one bucket of a histogram.
type Counted struct {
	LeS   float64 `json:"le_s"`
	Count uint64  `json:"count"`
}

// DurationList is what Durations found.
type DurationList struct {
	V         int                    `json:"v"`
	Root      string                 `json:"root"`
	At        record.Time            `json:"at"`
	Runs      []RunDurations         `json:"runs"` // newest first
	Durations map[string]DurationSum `json:"durations"`
	WaitedFor map[string]float64     `json:"waited_for_s"`
	Problems  []string               `json:"problems"`
}

// Durations tells how long what took, of each run that the filter chooses, and
// over all of them: those beyond Limit count too. It reads records and the
// journal, and changes nothing.
func (h *Home) Durations(f RunFilter) (*DurationList, error) {
	limit := f.Limit
	f.Limit = 0
	list, err := h.Runs(f)
	if err != nil {
		return nil, err
	}
	out := &DurationList{V: 1, Root: list.Root, At: list.At, Runs: []RunDurations{}, Durations: map[string]DurationSum{}, WaitedFor: map[string]float64{}, Problems: list.Problems}
	judged := map[string]*journal.Judged{}
	for e := range journal.Read(h.dir, journal.Filter{Since: f.Since}, func(p *journal.Problem) { out.Problems = append(out.Problems, p.Error()) }) {
		if e.Permission != journal.Acceptance && e.Permission != journal.Release {
			continue
		}
		if judged[e.Attempt] == nil {
			judged[e.Attempt] = &journal.Judged{}
		}
		judged[e.Attempt].Add(&e)
	}
	all := map[string][]float64{}
	for i := range list.Runs {
		d := durationsOf(&list.Runs[i], judged[list.Runs[i].ID])
		for name, s := range d.Seconds {
			all[name] = append(all[name], s)
		}
		for why, s := range d.WaitedFor {
			out.WaitedFor[why] += s
		}
		if limit == 0 || len(out.Runs) < limit {
			out.Runs = append(out.Runs, d)
		}
	}
	for why, s := range out.WaitedFor {
		out.WaitedFor[why] = record.Seconds(time.Duration(s * float64(time.Second)))
	}
	for _, name := range DurationNames() {
		out.Durations[name] = sumOf(all[name])
	}
	return out, nil
}

// durationsOf puts what is on record about one run into durations.
func durationsOf(r *KnownRun, j *journal.Judged) RunDurations {
	d := RunDurations{
		Run: r.ID, Lane: r.Lane, Verb: r.Verb, Engine: r.Engine, State: r.State, Outcome: r.Outcome,
		Seconds: map[string]float64{}, WaitedFor: map[string]float64{},
	}
	maps.Copy(d.WaitedFor, r.WaitedFor)
	between := func(name string, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() {
			d.Seconds[name] = record.Seconds(to.Sub(from))
		}
	}
	attempt := !r.ClaimedAt.IsZero()
	switch {
	case attempt:
		between(QueueWait, r.QueuedAt.Time, r.AdmittedAt.Time)
		between(ClaimWait, r.AdmittedAt.Time, r.ClaimedAt.Time)
	case !r.AdmittedAt.IsZero():
		d.Seconds[QueueWait] = r.WaitedS // by a clock that nobody sets
	}
	switch {
	case r.RanS > 0:
		d.Seconds[RunTime] = r.RanS
	case r.Ended() && r.Outcome != record.Lost: // when a lost run ended, nobody knows
		between(RunTime, r.StartedAt.Time, r.EndedAt.Time)
	}
	if j != nil {
		between(ReviewWait, r.EndedAt.Time, j.First)
		between(Acceptance, r.EndedAt.Time, j.Accepted)
		between(ReleaseWait, j.Accepted, j.Released)
	}
	return d
}

func sumOf(all []float64) DurationSum {
	out := DurationSum{Count: len(all), UpTo: []Counted{}}
	if len(all) == 0 {
		return out
	}
	slices.Sort(all)
	h := &metrics.Histogram{}
	for _, s := range all {
		h.Observe(s)
	}
	upTo, _, sum := h.Buckets()
	for i, n := range upTo {
		out.UpTo = append(out.UpTo, Counted{metrics.Bounds[i], n})
	}
	rank := func(part float64) float64 { return all[min(len(all)-1, int(part*float64(len(all))))] }
	out.SumS, out.MedianS, out.P90S, out.MaxS = record.Seconds(time.Duration(sum*float64(time.Second))), rank(0.5), rank(0.9), all[len(all)-1]
	return out
}
