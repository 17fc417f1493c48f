package handsel

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/handsel/handsel/internal/key"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

type (
	// BadKey reports a text that can be no key.
	BadKey = key.Bad

	// OtherRequest refuses a key that stands for another request.
	OtherRequest = key.Other
)

// MaxKey is how long the key of a submission may be, in bytes.
const MaxKey = key.Most

// Submission is work that is handed in and not waited for: a question to an agent,
// an agent's command, or, with Gate, a command that is counted against its pools
// only. It can be written as JSON, to be read by the process that does it.
type Submission struct {
	ID   string   `json:"id"` // of the run; Submit gives it
	Gate bool     `json:"gate,omitempty"`
	Argv []string `json:"argv,omitempty"` // empty: Prompt is what is asked

	Prompt string `json:"prompt,omitempty"`
	Model  string `json:"model,omitempty"`
	Resume string `json:"resume,omitempty"`

	Engine   string            `json:"engine,omitempty"`
	Account  string            `json:"account,omitempty"`
	Profile  string            `json:"profile,omitempty"`
	Workload string            `json:"workload,omitempty"`
	Confine  string            `json:"confine,omitempty"`
	Lane     string            `json:"lane,omitempty"`
	Pools    []string          `json:"pools,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Timeout  time.Duration     `json:"timeout,omitempty"`
	Idle     time.Duration     `json:"idle,omitempty"`
	Dir      string            `json:"dir"` // Submit makes it absolute
	Author   string            `json:"author,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Review   bool              `json:"review,omitempty"`

	// Key names the request among all that were ever made in the home: the same
	// again starts nothing. It may be empty.
	Key string `json:"-"`
}

// Submitted is what Submit did.
type Submitted struct {
	Run   string // its id
	Known bool   // the key was used before: nothing was started now
}

// Detach starts a process of its own in which Supervise does the work, and returns
// when the run is on record.
type Detach func(context.Context, Submission) error

// Engines are the names of the engines there are, the configuration's own
// included.
func (h *Home) Engines() []string {
	in, _ := h.lenient()
	return in.engines()
}

// MayStart refuses a process inside an agent, as a start would (S26). Whoever
// lives for long asks when it begins: ancestors become fewer.
func MayStart() error { return outside() }

// Submit starts work and returns when it is on record, without waiting for its
// turn. What has a lane goes to the dispatcher where the configuration wants one
// and one runs; all else is for detach. A lane that somebody has refuses:
// *LaneOwned. A key that was used for the same request answers with the run that it
// got, whoever asked, also at the same time; for another one it refuses with
// *OtherRequest. What is refused leaves nothing, the key included.
func (h *Home) Submit(ctx context.Context, s Submission, detach Detach) (*Submitted, error) {
	if !s.Gate {
		if err := outside(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(s.Dir)
	if err == nil {
		err = proc.CheckDir(dir)
	}
	if err != nil {
		return nil, err
	}
	s.Dir, s.ID = dir, ""
	if s.Key == "" {
		s.ID = record.NewID()
		return &Submitted{Run: s.ID}, h.place(ctx, s, detach)
	}
	request, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if err := h.dir.Ensure(); err != nil {
		return nil, err
	}
	taken, err := key.Take(ctx, h.dir, s.Key, sha256.Sum256(request), record.NewID)
	if err != nil {
		return nil, err
	}
	if taken.Known && h.has(ctx, taken.ID) {
		taken.Done()
		return &Submitted{Run: taken.ID, Known: true}, nil
	}
	err = taken.Begin(record.NewID)
	s.ID = taken.ID
	if err == nil {
		err = h.place(ctx, s, detach)
	}
	switch {
	case err == nil, errors.As(err, new(*Unknown)):
		taken.Done()
		return &Submitted{Run: s.ID}, err
	case taken.Known && h.has(ctx, s.ID): // whoever took the key first died, and what he had begun has come about
		taken.Done()
		return &Submitted{Run: s.ID, Known: true}, nil
	}
	return nil, errors.Join(err, taken.Drop())
}

// has tells whether there is a run of that id, or an attempt that waits.
func (h *Home) has(ctx context.Context, id string) bool {
	found, err := h.FindWork(ctx, "run:"+id, true)
	return err == nil && len(found) > 0
}

// place starts it, in the one way or the other.
func (h *Home) place(ctx context.Context, s Submission, detach Detach) error {
	set, err := h.settings()
	if err != nil {
		return err
	}
	if s.Lane == "" || s.Gate || set.Mode != ModeDispatcher {
		return detach(ctx, s)
	}
	o := EnqueueOptions{
		Engine: s.Engine, Account: s.Account, Workload: s.Workload, Confine: s.Confine, Pools: s.Pools, Profile: s.Profile, Priority: s.Priority,
		Timeout: s.Timeout, Idle: s.Idle, Dir: s.Dir, Author: s.Author, Labels: s.Labels, Review: s.Review, id: s.ID,
	}
	if len(s.Argv) > 0 {
		_, err = h.Enqueue(ctx, s.Lane, s.Argv, o)
	} else {
		_, err = h.EnqueueAgent(ctx, s.Lane, s.question(), o)
	}
	if errors.As(err, new(*NoDispatcher)) {
		return detach(ctx, s)
	}
	return err
}

func (s *Submission) question() Question {
	return Question{Prompt: []byte(s.Prompt), Model: s.Model, Resume: s.Resume}
}

// Supervise does what Submit hands to a process of its own: it is RunDetached for
// submissions. Of o only Signals, Subreaper and OnNote count.
func (h *Home) Supervise(ctx context.Context, s Submission, o Options, queued func(id string) error) (*Outcome, error) {
	j := &job{home: h, argv: s.Argv, gate: s.Gate, id: cmp.Or(s.ID, record.NewID()), passing: &passing{}}
	if len(s.Argv) == 0 {
		q := s.question()
		j.asked = &q
	}
	j.o = Options{
		Engine: s.Engine, Account: s.Account, Workload: s.Workload, Confine: s.Confine, Pools: s.Pools, Profile: s.Profile, Lane: s.Lane, Priority: s.Priority,
		Timeout: s.Timeout, Idle: s.Idle, Dir: s.Dir, Author: s.Author, Labels: s.Labels, Review: s.Review, LeaveDaemons: s.Gate, laneNow: true,
		Signals: o.Signals, Subreaper: o.Subreaper, OnNote: o.OnNote,
	}
	return j.detached(ctx, queued)
}

// NotSupervised reports that the process that was to do a submission refused it,
// for that reason.
type NotSupervised struct{ Because Reason }

func (e *NotSupervised) Error() string { return e.Because.Message }

// Reason is the refusal in the words of C13.
func (e *NotSupervised) Reason() *Reason { return &e.Because }

// CheckSubmission refuses what is no submission, for a process that was handed one.
func CheckSubmission(s *Submission) error {
	switch {
	case s.ID == "" || !filepath.IsAbs(s.Dir):
		return fmt.Errorf("process %d was handed no whole submission", os.Getpid())
	case len(s.Argv) == 0 && s.Prompt == "":
		return fmt.Errorf("process %d was handed a submission of nothing", os.Getpid())
	}
	return nil
}
