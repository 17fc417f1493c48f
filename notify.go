package handsel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/notify"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/run"
)

// Change is one change of state, as the commands of [[notify]] get it on their
// stdin (P13).
type Change = notify.Change

// Telling is one command of [[notify]] and the change that it is told of.
type Telling = notify.Telling

// TellAside says how another process is started that goes on when this one has
// ended, for the commands of [[notify]]: f gets a change as JSON, has such a process
// call Tell with it, and waits for nothing. Without it they run in this process,
// and only as long as it does. It is called before anything is started.
func (h *Home) TellAside(f func(change []byte) error) { h.aside = f }

// changed tells the commands of [[notify]] of a change, and waits for none of
// them.
func (h *Home) changed(rules []config.Notify, c Change) error {
	c.V, c.At, c.Home = 1, record.At(machine.Now()), h.dir.Path
	if len(notify.Chosen(rules, c)) == 0 {
		return nil
	}
	if h.aside == nil {
		go func() { _ = h.tell(context.Background(), rules, c) }() // it is bounded by the commands' own times
		return nil
	}
	text, err := json.Marshal(c)
	if err == nil {
		err = h.aside(text)
	}
	if err != nil {
		return fmt.Errorf("nobody is told of this change: %w", err)
	}
	return nil
}

// Tell runs the commands that a change, as JSON, concerns, and returns when all
// of them are over. What fails is written to log/notify.log in the home.
func (h *Home) Tell(ctx context.Context, text []byte) error {
	var c Change
	if err := json.Unmarshal(text, &c); err != nil || len(c.Kinds) == 0 {
		return &BadOption{"stdin", string(bytes.ToValidUTF8(text[:min(len(text), 64)], nil)), "it must be a change of state, as JSON"}
	}
	s, err := h.settings()
	if err != nil {
		return err
	}
	return h.tell(ctx, s.Notify, c)
}

func (h *Home) tell(ctx context.Context, rules []config.Notify, c Change) error {
	var failed error
	t := &notify.Teller{
		Rules: func() []config.Notify { return rules },
		Run:   h.TellCommand,
		Said: func(text string) {
			failed = errors.Join(failed, h.noteNotify(text))
		},
	}
	t.Tell(c)
	longest := time.Duration(0)
	for _, r := range rules {
		longest += r.Timeout + 5*time.Second // each has its time, and some for its end
	}
	t.Close(longest)
	return failed
}

// TellCommand runs one command with one change on its stdin, within its time.
func (h *Home) TellCommand(ctx context.Context, t Telling) error {
	env := append(plainEnv(os.Environ()), home.Variable+"="+h.dir.Path)
	said, err := run.Command{
		Argv: t.Rule.Command, Dir: "/", Env: env, Stdin: t.Text(), Limit: t.Rule.Timeout, Grace: time.Second, ID: record.NewID(),
	}.Run(ctx)
	if err != nil {
		return err
	}
	return said.Failure()
}

const (
	notifyLog     = "notify.log"
	notifyLogSize = 1 << 20
)

// noteNotify writes down that a command fails, unless that is what is written
// there last.
func (h *Home) noteNotify(text string) error {
	folder, err := h.dir.Make("log")
	if err != nil {
		return err
	}
	defer folder.Close()
	line := fmt.Sprintf("  %s\n", shown(text, record.MaxMessage))
	if f, err := folder.OpenRead(notifyLog); err == nil {
		last := make([]byte, 4<<10)
		end, _ := f.Seek(0, io.SeekEnd)
		n, _ := f.ReadAt(last, max(0, end-int64(len(last))))
		f.Close()
		if bytes.HasSuffix(last[:n], []byte(line)) {
			return nil
		}
	}
	line = machine.Now().UTC().Format("2006-01-02T15:04:05.000Z") + line
	err = folder.Append(notifyLog, []byte(line), notifyLogSize)
	if errors.Is(err, home.ErrFull) {
		if err = folder.Rename(notifyLog, notifyLog+".1"); err == nil {
			err = folder.Append(notifyLog, []byte(line), notifyLogSize)
		}
	}
	return err
}

// tellEnd tells how a direct run ended, when it has given everything back. Of an
// attempt the dispatcher tells; a gate is part of what asked for it.
func (j *job) tellEnd(out *Outcome, err error) error {
	if j.passing == nil || !j.passing.began || j.gate || len(j.settings.Notify) == 0 {
		return nil
	}
	end := notify.End{Outcome: out.Outcome.Outcome, Result: out.Result, Kind: out.Kind, Reason: j.rec.reason(out, err), Review: j.forReview(out, err)}
	if out.Child.Pid != 0 && out.Signal == 0 && end.Outcome != record.Lost {
		end.ExitCode = &out.ExitCode
	}
	return j.home.changed(j.settings.Notify, Change{
		Kinds: end.Kinds(), Lane: j.laneName(), Attempt: j.id, Verb: j.verb(), Engine: j.engine, State: record.Ended, Outcome: end.Outcome, Result: end.Result,
		Failure: end.Kind, Exit: end.ExitCode, Signal: int(out.Signal), Until: at(out.Until), Reason: end.Reason, Author: j.o.Author,
	})
}
