package handsel

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"

	"github.com/handsel/handsel/internal/record"
)

// NoOutput reports a run of which no output is kept (3).
type NoOutput struct{ Run KnownRun }

func (e *NoOutput) Error() string {
	text := "run " + e.Run.ID + ": no output of it is kept"
	if e.Run.Lane == "" {
		text += " (run --record keeps it)"
	}
	return text
}

// Reason is the error in the words of C13.
func (e *NoOutput) Reason() *Reason {
	return &Reason{Class: "config", Code: "no_output", Message: e.Error()}
}

// outputs are what is captured of a run. That there are events is known as soon
// as there is an output.
var outputs = []string{eventsFile, "stdout", "stderr"}

// LogTo says where Logs copies to; nil: nowhere.
type LogTo struct {
	Stdout, Stderr io.Writer
	// Events gets the events of a run whose output was read, one JSON object on
	// each line, and then Stdout gets nothing: they say the same.
	Events io.Writer
}

// Logs copies what is kept of a run's output. With follow it goes on as the
// output grows, and returns when the run has ended. *NoOutput when nothing was
// kept. It changes nothing.
func (h *Home) Logs(ctx context.Context, k KnownRun, log LogTo, follow bool) error {
	to := map[string]io.Writer{}
	for i, w := range []io.Writer{log.Events, log.Stdout, log.Stderr} {
		if w != nil {
			to[outputs[i]] = w
		}
	}
	if follow {
		return h.follow(ctx, k, to)
	}
	kept := false
	for _, name := range outputs {
		if to[name] == nil || name == "stdout" && kept {
			continue
		}
		from, err := record.OpenOutput(h.dir, k.ID, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		kept = true
		_, err = io.Copy(to[name], from)
		if err = errors.Join(err, from.Close()); err != nil {
			return err
		}
	}
	if !kept {
		return &NoOutput{k}
	}
	return nil
}

// follow copies what comes until the run has ended.
func (h *Home) follow(ctx context.Context, k KnownRun, to map[string]io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	f := &follower{h: h, run: k, to: to, tails: map[string]*record.Tail{}}
	defer f.close()
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	ended := make(chan error, 1)
	grown := record.Growth(ctx, h.dir, k.ID)
	defer func() {
		stop()
		for range grown { // it is closed when its goroutine ends
		}
	}()
	if !k.Ended() {
		work.Go(func() {
			err := h.WaitWork(ctx, []KnownRun{k}, WaitOptions{Told: func(end KnownRun) { f.end = end }})
			ended <- err // f.end is written before this
		})
	}
	for !f.run.Ended() {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			f.run = f.end
		case <-grown:
		}
		if err := f.copy(); err != nil {
			return err
		}
		if f.run.State == record.Running && len(f.tails) == 0 {
			return &NoOutput{f.run} // what is kept is kept from the start
		}
	}
	return f.finish()
}

// follower is one run's outputs as they grow. Its fields belong to the goroutine
// in Logs, end to the one that waits until it has told of the end.
type follower struct {
	h     *Home
	run   KnownRun
	end   KnownRun
	to    map[string]io.Writer
	tails map[string]*record.Tail
}

func (f *follower) close() {
	for _, t := range f.tails {
		t.Close()
	}
}

// copy tells what came since.
func (f *follower) copy() error {
	for _, name := range outputs {
		if f.to[name] == nil || name == "stdout" && f.tails[eventsFile] != nil {
			continue
		}
		if f.tails[name] == nil {
			t, err := record.OpenTail(f.h.dir, f.run.ID, name)
			if errors.Is(err, fs.ErrNotExist) {
				continue // not yet
			}
			if err != nil {
				return err
			}
			f.tails[name] = t
		}
		if err := f.tails[name].Copy(f.to[name]); err != nil {
			return err
		}
	}
	return nil
}

// finish tells the rest of a run that has ended.
func (f *follower) finish() error {
	if err := f.copy(); err != nil {
		return err
	}
	if len(f.tails) == 0 {
		return &NoOutput{f.run}
	}
	seen := map[string]int64{}
	if o := f.run.Output; o != nil {
		seen["stdout"], seen["stderr"], seen[eventsFile] = o.StdoutBytes, o.StderrBytes, o.EventsBytes
	}
	for name, t := range f.tails {
		if err := t.Finish(f.to[name], seen[name]); err != nil {
			return err
		}
	}
	return nil
}
