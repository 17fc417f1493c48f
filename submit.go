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

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/key"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

type (
	// BadKey reports a text that can be no key.
	BadKey = key.Bad

	// OtherRequest refuses a key that stands for another request.
	OtherRequest = key.Other

	// KeyBusy reports that somebody who starts something under such a key does not
	// come to an end.
	KeyBusy = key.Stuck
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

	// Keyed says that there is a key: whoever has it learns of the run, also when
	// the process that took the work in is gone. Submit sets it.
	Keyed bool `json:"keyed,omitempty"`
}

// Submitted is what Submit did.
type Submitted struct {
	Run     string   // its id
	Known   bool     // the key was used before: nothing was started now
	Dropped []string // variables that the dispatcher does not keep for it (C052)
}

// Detach starts a process of its own in which Supervise does the work, and returns
// when the run is on record. *Unheard when nobody knows whether it is; any other
// error means that it is not, and will not be.
type Detach func(context.Context, Submission) error

// Unheard reports that the process that does a submission said nothing: the run may
// come about, or not.
type Unheard struct {
	Run string
	Err error
}

func (e *Unheard) Error() string {
	return fmt.Sprintf("unknown whether run %s was accepted: the process that was to do it ended, or said nothing, before it was on record: %v", e.Run, e.Err)
}

func (e *Unheard) Unwrap() error { return e.Err }

// Reason is that of *Unknown.
func (e *Unheard) Reason() *Reason {
	return &Reason{Class: "ownership", Code: "unknown", Message: e.Error()}
}

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
// *OtherRequest. What is refused leaves nothing, the key included; but a key that
// somebody else had taken before stays, as what he had begun may yet come about.
// Of *Unknown and *Unheard the answer names the run.
func (h *Home) Submit(ctx context.Context, s Submission, detach Detach) (*Submitted, error) {
	if !s.Gate {
		if err := outside(); err != nil {
			return nil, err
		}
	}
	if s.Lane != "" {
		if err := home.ValidLane(s.Lane); err != nil {
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
	s.Dir, s.ID, s.Keyed = dir, "", false
	if s.Key == "" {
		s.ID = record.NewID()
		dropped, err := h.place(ctx, s, detach)
		return &Submitted{Run: s.ID, Dropped: dropped}, err
	}
	return h.submitKeyed(ctx, s, detach)
}

func (h *Home) submitKeyed(ctx context.Context, s Submission, detach Detach) (*Submitted, error) {
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
	if taken.Known {
		there, err := h.has(ctx, taken.ID)
		if there || err != nil { // what cannot be told is not started again
			taken.Done()
			return &Submitted{Run: taken.ID, Known: there}, err
		}
	}
	err = taken.Begin(record.NewID)
	s.ID, s.Keyed = taken.ID, true
	var dropped []string
	if err == nil {
		dropped, err = h.place(ctx, s, detach)
	}
	switch {
	case err == nil, errors.As(err, new(*Unknown)), errors.As(err, new(*Unheard)):
		taken.Done()
		return &Submitted{Run: s.ID, Dropped: dropped}, err
	case taken.Known: // whoever took it first died, and what he had begun has come about, or may
		defer taken.Done()
		if there, _ := h.has(ctx, s.ID); there {
			return &Submitted{Run: s.ID, Known: true}, nil
		}
		return nil, err
	}
	return nil, errors.Join(err, taken.Drop())
}

// has tells whether there is a run of that id, or an attempt that waits.
func (h *Home) has(ctx context.Context, id string) (bool, error) {
	found, err := h.FindWork(ctx, "run:"+id, true)
	if errors.As(err, new(*NotFound)) {
		err = nil
	}
	if err != nil {
		return false, fmt.Errorf("look for run %s, which the key stands for: %w", id, err)
	}
	return len(found) > 0, nil
}

// place starts it, in the one way or the other.
func (h *Home) place(ctx context.Context, s Submission, detach Detach) (dropped []string, err error) {
	set, err := h.settings()
	if err != nil {
		return nil, err
	}
	if s.Lane == "" || s.Gate || set.Mode != ModeDispatcher {
		return nil, detach(ctx, s)
	}
	o := EnqueueOptions{
		Engine: s.Engine, Account: s.Account, Workload: s.Workload, Confine: s.Confine, Pools: s.Pools, Profile: s.Profile, Priority: s.Priority,
		Timeout: s.Timeout, Idle: s.Idle, Dir: s.Dir, Author: s.Author, Labels: s.Labels, Review: s.Review, id: s.ID,
	}
	var out *Enqueued
	if len(s.Argv) > 0 {
		out, err = h.Enqueue(ctx, s.Lane, s.Argv, o)
	} else {
		out, err = h.EnqueueAgent(ctx, s.Lane, s.question(), o)
	}
	switch {
	case errors.As(err, new(*NoDispatcher)):
		return nil, detach(ctx, s)
	case out != nil:
		dropped = out.Dropped
	}
	return dropped, err
}

func (s *Submission) question() Question {
	return Question{Prompt: []byte(s.Prompt), Model: s.Model, Resume: s.Resume}
}

// Supervise does what Submit hands to a process of its own: it is RunDetached for
// submissions. Of o only Signals, Subreaper and OnNote count. What has a key is
// started also when queued fails: the key leads to it, and would lead to a run that
// never started.
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
	if s.Keyed {
		return j.detached(ctx, func(id string) error {
			_ = queued(id)
			return nil
		})
	}
	return j.detached(ctx, queued)
}

// NotSupervised reports that the process that was to do a submission refused it,
// for that reason. Option is what it did not take, where it is an option.
type NotSupervised struct {
	Because Reason
	Option  *BadOption
}

func (e *NotSupervised) Error() string { return e.Because.Message }

// Unwrap is the option, for who names it in his own words.
func (e *NotSupervised) Unwrap() error {
	if e.Option == nil {
		return nil
	}
	return e.Option
}

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
