package handsel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/nest"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/run"
)

// forever is the wait of a start that nobody waits for: its supervisor stands
// in line until it is admitted or cancelled.
const forever = time.Duration(math.MaxInt64) / 2

// RunDetached is Run for a supervisor that nobody watches: it keeps the output,
// waits without an end unless o.Wait says otherwise, and is on record before it
// waits, so that it can be found, waited for and cancelled from then on. The run
// has no stdio of ours. queued is told the run's id when it is on record; when
// that fails, nobody knows of the run, and it is not started.
//
// What is refused before anything is waited for is refused before queued is
// told, and is no run.
func (h *Home) RunDetached(ctx context.Context, argv []string, o Options, queued func(id string) error) (*Outcome, error) {
	j := &job{home: h, argv: argv, o: o, id: record.NewID(), passing: &passing{}}
	return j.detached(ctx, queued)
}

// detached is a job that nobody watches.
func (j *job) detached(ctx context.Context, queued func(id string) error) (*Outcome, error) {
	j.o.Record, j.o.Stdin, j.o.Stdout, j.o.Stderr = true, nil, nil, nil
	if j.o.Wait == nil {
		wait := forever
		j.o.Wait = &wait
	}
	refused := &Outcome{Run: j.id, Outcome: run.Outcome{Outcome: run.Refused}}
	var err error
	if !j.gate {
		err = nest.Check()
	}
	if err == nil {
		err = j.resolve()
	}
	if err == nil {
		err = j.ready(ctx)
	}
	if err == nil {
		j.rec, err = enlisted(j)
	}
	if err != nil {
		return refused, errors.Join(append([]error{err}, j.letGo(refused)...)...)
	}
	if err := queued(j.id); err != nil {
		return j.untold(fmt.Errorf("nobody learned of run %s, so it is not started: %w", j.id, err))
	}
	return j.do(ctx)
}

// ready refuses what would be refused first thing by the run itself, so that
// whoever asked still hears of it. Where the lane is not to be waited for, it is
// taken here.
func (j *job) ready(ctx context.Context) error {
	if err := j.home.trusted(); err != nil {
		return err
	}
	if err := proc.CheckDir(j.o.Dir); err != nil {
		return err
	}
	if j.gate {
		if err := j.nested(); err != nil {
			return err
		}
	}
	if j.o.laneNow && j.o.Lane != "" {
		return j.takeLane(ctx, 0)
	}
	return nil
}

// enlisted is a recorder that has written the run down as waiting.
func enlisted(j *job) (*recorder, error) {
	r := newRecorder(j)
	if err := r.open(record.Queued); err != nil {
		return nil, err
	}
	r.run.QueuedAt = record.At(machine.Now())
	told := j.o.OnAdmitted
	j.o.OnAdmitted = func() {
		if err := r.admitted(); err != nil && j.o.OnNote != nil {
			j.o.OnNote(err.Error())
		}
		if told != nil {
			told()
		}
	}
	return r, r.writer.Save(r.run)
}

// admitted writes down what the run was given, once it need not wait any more.
func (r *recorder) admitted() error {
	now := r.describe()
	r.run.State, r.run.AdmittedAt = record.Starting, record.At(machine.Now())
	r.run.Fence = now.Fence
	r.run.Pools, r.run.WaitedS, r.run.Lane, r.run.Temp = now.Pools, now.WaitedS, now.Lane, now.Temp
	return r.writer.Save(r.run)
}

// untold ends a run that is on record and that nobody was told of.
func (j *job) untold(err error) (*Outcome, error) {
	now := machine.Now()
	out := &Outcome{Run: j.id, Engine: j.engine, Workload: j.class(), Outcome: run.Outcome{Outcome: run.NotStarted, Queued: now, Ended: now}}
	out.Warnings = append(j.rec.ended(out, err), j.letGo(out)...)
	return out, err
}
