package handsel

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/run"
)

// RunOptions say how a claimed attempt runs, as far as its row does not.
type RunOptions struct {
	Argv []string // instead of the command that was enqueued; nil: that one

	Stdout, Stderr *os.File // get what is kept as well; nil: nowhere

	Subreaper bool // as in Options
	Signals   <-chan os.Signal
	OnNote    func(string)

	grace time.Duration
}

// ErrAbandoned is why an attempt ended that was claimed and not run.
var ErrAbandoned error = coded{"abandoned", "its driver gave it up before it started anything"}

// Run runs the claimed attempt as a direct run is run (S19 to S23), records how
// it ended, tells the dispatcher, and closes the lane last (L17). The outcome is
// never nil. The error is nil whenever the agent ran, however it ended.
func (c *Claimed) Run(ctx context.Context, o RunOptions) (*Outcome, error) {
	j := c.job(o)
	if err := errors.Join(j.account(), j.begins()); err != nil { // the configuration may be another than when it was enqueued
		return c.end(j, nil, err)
	}
	secrets, early, err := c.settings.secrets(ctx, j.engine, o.Signals)
	if err != nil {
		return c.end(j, early, err)
	}
	if secrets != nil && j.o.Timeout > 0 { // which counts from the claim (L22)
		j.o.Timeout = max(j.o.Timeout-time.Since(c.at), time.Nanosecond)
	}
	j.o.Env = over(j.o.Env, secrets)
	failpoint.Hit("drive.spawn")
	out, err := j.do(ctx)
	failpoint.Hit("drive.closed")
	return out, err
}

// Abandon ends a claimed attempt of which nothing is to be run: it is recorded
// as not started, and the lane is free.
func (c *Claimed) Abandon() error {
	out, _ := c.end(c.job(RunOptions{}), nil, ErrAbandoned)
	return errors.Join(out.Warnings...)
}

// job is the attempt as the rooms below see it: all that a direct run gets on
// the way was decided when it was enqueued and admitted.
func (c *Claimed) job(o RunOptions) *job {
	p := c.row.Placement
	argv := o.Argv
	if argv == nil {
		argv = attempt.Strings(c.payload.Argv)
	}
	j := &job{
		home: c.home, argv: argv, id: c.row.ID, engine: p.Engine, settings: c.settings,
		hold: c.hold, given: c.lease, retryOf: c.row.RetryOf, retryVerdict: c.row.RetryVerdict, queued: c.row.Asked(), about: sinceBootAt(c.row.AdmittedAt.Time), ending: c.tell,
		admitted: c.row.AdmittedAt.Time, claimed: c.claimed, waitedAs: c.row.WaitedFor,
		o: Options{
			Engine: p.Engine, Account: p.Account, Workload: p.Workload, Confine: confineOf(p.Confinement), Pools: p.Pools, Profile: p.Profile, Priority: c.row.Priority,
			Timeout: seconds(p.TimeoutS), Idle: seconds(p.IdleS), Dir: c.dir(), Env: c.env(), Stdout: o.Stdout, Stderr: o.Stderr,
			Record: true, LeaveDaemons: p.LeaveDaemons, Author: c.row.Author, Labels: c.row.Labels, Review: p.Review,
			Subreaper: o.Subreaper, Signals: o.Signals, OnNote: o.OnNote, grace: o.grace,
		},
	}
	if c.payload.HasStdin {
		j.payload = append([]byte{}, c.payload.Stdin...) // empty is not none
	}
	for _, f := range c.payload.Files {
		if j.files == nil {
			j.files = map[string][]byte{}
		}
		j.files[string(f.Path)] = f.Data
	}
	return j
}

// sinceBootAt is when a moment of a little while ago was, on CLOCK_BOOTTIME.
func sinceBootAt(t time.Time) time.Duration {
	if t.IsZero() {
		return machine.SinceBoot()
	}
	return max(machine.SinceBoot()-machine.Now().Sub(t), 0)
}

// dir is the working directory, whose name need not be text.
func (c *Claimed) dir() string {
	if len(c.payload.Cwd) > 0 {
		return string(c.payload.Cwd)
	}
	return c.row.Placement.Cwd
}

// env is what was stored of the asker's environment, and nothing of ours (C052)
// but where the home is, if it is not the usual one: else what the agent asks of
// us would be counted in another.
func (c *Claimed) env() []string {
	env := attempt.Strings(c.payload.Env)
	usual, err := home.Locate(func(string) string { return "" })
	if err != nil || usual.Path != c.home.Path() {
		env = over(env, []string{home.Variable + "=" + c.home.Path()})
	}
	return env
}

// end ends an attempt of which nothing was started: by err, or by what came of
// a step before the start.
func (c *Claimed) end(j *job, early *run.Outcome, err error) (*Outcome, error) {
	out := run.Outcome{Outcome: run.NotStarted, Queued: c.row.Asked(), Ended: machine.Now()}
	if early != nil && early.By != 0 {
		out.Outcome, out.By, err = run.Cancelled, early.By, nil
	}
	end := &Outcome{Outcome: out, Run: j.id, Engine: j.engine, Workload: j.class(), Lane: j.laneName()}
	j.rec = newRecorder(j)
	end.Warnings = append(end.Warnings, j.rec.ended(end, err)...)
	c.tell(end, err)
	end.Warnings = append(end.Warnings, asWarnings(c.lease.Release())...)
	end.Warnings = append(end.Warnings, j.letGo(end)...)
	failpoint.Hit("drive.closed")
	return end, err
}

// tell tells the dispatcher how the attempt ended, which is on disk by now and
// is found there by the next one if this one does not listen (L17, L18).
func (c *Claimed) tell(out *Outcome, _ error) {
	failpoint.Hit("drive.outcome")
	ctx, stop := context.WithTimeout(context.Background(), ackPatience)
	defer stop()
	conn, err := handoff.Dial(ctx, c.home.dir)
	if err != nil {
		return
	}
	defer conn.Close()
	said := handoff.Ended{Attempt: c.row.ID, Start: c.start, Outcome: out.Outcome.Outcome, Signal: int(out.Signal)}
	if out.Child.Pid != 0 && out.Signal == 0 && said.Outcome != record.Lost {
		said.ExitCode = &out.ExitCode
	}
	if conn.Send(ctx, said) == nil {
		if f, err := conn.Receive(ctx); err == nil {
			f.CloseFds()
		}
	}
	failpoint.Hit("drive.told")
}

// over sets entries over those of env that have their names.
func over(env, entries []string) []string {
	names := map[string]bool{}
	for _, e := range entries {
		name, _, _ := strings.Cut(e, "=")
		names[name] = true
	}
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return names[name]
	})
	return append(env, entries...)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
