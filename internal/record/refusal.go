package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/home"
)

const (
	refusedFile = "refused.ndjson"
	// MaxRefused bounds a day's refusals in bytes (E16).
	MaxRefused = 1 << 20
)

// Refusal is an admission that was refused. It makes no run directory (E16).
type Refusal struct {
	V        int               `json:"v"`
	ID       string            `json:"id"`
	At       Time              `json:"at"`
	Outcome  string            `json:"outcome"` // always "refused"
	Verb     string            `json:"verb"`
	Reason   Reason            `json:"reason"`
	WaitedS  float64           `json:"waited_s"`
	Argv0    string            `json:"argv0"`
	Argc     int               `json:"argc"`
	Command  string            `json:"command_sha256,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`
	Engine   string            `json:"engine,omitempty"`
	Workload string            `json:"workload,omitempty"`
	Pools    []string          `json:"pools,omitempty"`
	Lane     string            `json:"lane,omitempty"`
	UID      int               `json:"uid"`
	Pid      int               `json:"pid"`
	Author   string            `json:"author,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// Refuse adds one line to the day's refusals. It is home.ErrFull, and nothing is
// written, when the day has its share.
func Refuse(d home.Dir, r *Refusal) error {
	if r.ID == "" {
		r.ID = NewID()
	}
	date, ok := dateOf(r.ID)
	if !ok {
		return fmt.Errorf("record refusal %q: not the id of a run", r.ID)
	}
	r.V, r.Outcome, r.WaitedS = Version, Refused, max(0, r.WaitedS)
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record refusal: %w", err)
	}
	day, err := d.Make(runsDir, date)
	if err != nil {
		return fmt.Errorf("record refusal: %w", err)
	}
	defer day.Close()
	if err := day.Append(refusedFile, append(line, '\n'), MaxRefused); err != nil {
		return fmt.Errorf("record refusal: %w", err)
	}
	return nil
}

// Refusals lists what was refused since a moment, newest first, at most limit of
// them (0: all). Lines that are not refusals are passed over and counted as one
// problem a day.
func Refusals(d home.Dir, since time.Time, limit int) (all []*Refusal, problems []Problem, err error) {
	err = eachDay(d, &problems, func(day *home.Folder, date string) bool {
		if !since.IsZero() && date < since.UTC().Format(time.DateOnly) {
			return false
		}
		data, err := day.ReadFile(refusedFile, 2*MaxRefused)
		path := filepath.Join(day.Path(), refusedFile)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				problems = append(problems, Problem{path, err})
			}
			return true
		}
		lines, bad := refusalsIn(data)
		if bad > 0 {
			problems = append(problems, Problem{path, fmt.Errorf("%d lines are not refusals", bad)})
		}
		for _, r := range slices.Backward(lines) {
			if r.At.Before(since) {
				continue
			}
			all = append(all, r)
			if limit > 0 && len(all) >= limit {
				return false
			}
		}
		return true
	})
	return all, problems, err
}

func refusalsIn(data []byte) (all []*Refusal, bad int) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 2*MaxRefused)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		r := new(Refusal)
		if json.Unmarshal(lines.Bytes(), r) != nil || r.V < 1 || r.Outcome != Refused {
			bad++
			continue
		}
		all = append(all, r)
	}
	return all, bad
}
