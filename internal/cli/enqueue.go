package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/handsel/handsel"
)

// enqueueFlags are those of enqueue: what it shares with run, and its own.
type enqueueFlags struct {
	startFlags
	enqueue handsel.EnqueueOptions

	notBefore, stdin, retryLost string
	start, asJSON               bool
	prompt                      promptFlags

	text []byte // the input to be stored, nil for none
}

// enqueuedJSON is the JSON of enqueue (docs/reference/schemas/enqueue.schema.json).
type enqueuedJSON struct {
	V       int      `json:"v"`
	Lane    string   `json:"lane"`
	Attempt string   `json:"attempt"`
	State   string   `json:"state"`
	Outcome string   `json:"outcome,omitempty"`
	Dropped []string `json:"env_dropped"`
	WaitedS float64  `json:"waited_s"` // for the lane
}

func (a *app) enqueueCommand() *cobra.Command {
	f := &enqueueFlags{}
	cmd := &cobra.Command{
		Use:   "enqueue LANE [flags] {-- COMMAND [ARG…] | PROMPT}",
		Short: "take a lane, hand it to the dispatcher with its work, and return",
		Long: `Enqueue owns the lane until the dispatcher has it: nobody can take it in between.
The dispatcher keeps the work, also over a restart, and starts it when it is its
turn; status, queue and why tell when that is. One line on stdout names the lane
and the attempt, which is the run's id too.

With --engine or --profile, and no -- COMMAND, the work is a question to an agent,
as that of handsel agent; arguments for the engine come from the profile.

Of the environment only what docs/reference/env.md lists is kept, by name and
length; what is not is said on stderr.

Refused, nothing is kept: 75 (the lane is owned or queued, or there is no room),
69 (no dispatcher answers), 78 (something must be changed), 2 (--after names
nothing, or comes round to the lane itself), 1 (inside an agent). Also 69, but
not known whether it was accepted: handsel reconcile, which the line names.`,
		Example: `  handsel enqueue api/review -- claude -p "review the last commit"
  handsel enqueue api/docs --engine codex "bring the docs up to date"
  git diff | handsel enqueue fix --stdin - --after api/review -- codex exec -`,
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.enqueue(f, args)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *enqueueFlags) register(fs *pflag.FlagSet) {
	f.set, f.priority = fs, "0"
	fs.SortFlags = false
	fs.SetInterspersed(false)
	o := &f.enqueue
	fs.StringVarP(&o.Dir, "chdir", "C", "", "run the command in `DIR`")
	fs.StringVar(&f.wait, "wait", "", "wait at most `D` for a lane that somebody has (90s, 10m, seconds; unset or 0 refuses at once)")
	fs.StringVar(&f.timeout, "timeout", "", "end the run `D` after its claim")
	fs.StringVar(&f.idle, "idle", "", "end the run after `D` without output")
	fs.StringVar(&f.priority, "priority", "0", "`N` from -1000 to 1000, higher first; one step is worth a minute of waiting")
	fs.StringVar(&o.Engine, "engine", "", "`E` is the agent's engine (claude, codex, gemini, pi), where the command does not tell")
	fs.StringVar(&o.Account, "account", "", accountHelp)
	fs.StringVar(&o.Workload, "workload", "", "`CLASS`: heavy (the default) or light")
	fs.StringVar(&o.Confine, "confine", "", "`HOW`: os (the kernel keeps it, and all it starts, from writing outside its directory) or none; unset: as configured")
	fs.StringArrayVar(&o.Pools, "pool", nil, "count against `POOL` too")
	fs.StringVar(&o.Profile, "profile", "", "`NAME` of the agent's profile; one that is a seat may start agents itself")
	fs.StringArrayVar(&o.After, "after", nil, "not before `X`, a lane or an attempt, has succeeded; X:any: has ended")
	fs.StringVar(&f.notBefore, "not-before", "", "not before `T`: 2006-01-02T15:04:05Z, or a time from now (90s, 10m)")
	f.prompt.register(fs)
	fs.StringVar(&f.stdin, "stdin", "", "keep `FILE` as the command's input (- is ours)")
	fs.StringVar(&f.retryLost, "retry-lost", "0", "start it again at most `N` times when it is lost")
	fs.StringArrayVar(&o.Driver, "driver", nil, "`CMD` claims it instead of handsel's own driver; repeated for its arguments")
	fs.BoolVar(&o.LeaveDaemons, "leave-daemons", false, "leave processes alive that made a session of their own")
	fs.StringVar(&o.Author, "author", "", "`NAME` of who asked for it")
	fs.StringArrayVar(&f.labels, "label", nil, "`K=V` to find it by")
	registerReview(fs, &o.Review)
	fs.BoolVar(&f.start, "start", false, "start a dispatcher where none runs")
	fs.BoolVar(&f.asJSON, "json", false, "one JSON object")
}

// parse reads the values that need a second look. now is when T is from.
func (f *enqueueFlags) parse(now time.Time) error {
	if err := f.startFlags.parse(); err != nil {
		return err
	}
	o := &f.enqueue
	o.Timeout, o.Idle, o.Priority, o.Labels = f.opts.Timeout, f.opts.Idle, f.opts.Priority, f.opts.Labels
	if f.opts.Wait != nil {
		o.Wait = *f.opts.Wait
	}
	n, err := strconv.Atoi(f.retryLost)
	if err != nil || n < 0 || n > handsel.MaxRetryLost {
		return &handsel.BadOption{Option: "retry-lost", Value: f.retryLost, Why: fmt.Sprintf("it must be a whole number from 0 to %d", handsel.MaxRetryLost)}
	}
	o.RetryLost = n
	if o.NotBefore, err = notBefore(f.notBefore, now); err != nil {
		return &handsel.BadOption{Option: "not-before", Value: f.notBefore, Why: err.Error()}
	}
	return nil
}

// notBefore reads a moment, or a time from now; empty is none.
func notBefore(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := handsel.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, errors.New("it must be a moment such as 2006-01-02T15:04:05Z, or a time from now such as 90s")
	}
	return t, nil
}

func (a *app) enqueue(f *enqueueFlags, args []string) error {
	if len(args) == 0 {
		return &usageError{errors.New("enqueue needs a lane and a command: handsel enqueue LANE -- COMMAND [ARG…]")}
	}
	lane := args[0]
	argv, asks, err := a.work(f, args[1:])
	if err != nil {
		return err
	}
	if err := f.parse(time.Now()); err != nil {
		return err
	}
	if asks {
		if f.stdin != "" {
			return &usageError{errors.New("an agent's input is its prompt: --stdin goes with -- COMMAND only")}
		}
		if err := f.prompt.read(a, "enqueue LANE", argv); err != nil {
			return err
		}
		argv = nil
	}
	h, err := a.open()
	if err == nil {
		err = handsel.CloseInherited()
	}
	if err == nil {
		f.text, err = a.input(f.stdin)
	}
	if err != nil {
		return err
	}
	out, err := a.handOver(h, f, lane, argv)
	if err != nil {
		return err
	}
	return a.enqueued(f, out)
}

// work reads what is to be done, a command or a prompt. Flags may stand on
// either side of the lane's name.
func (a *app) work(f *enqueueFlags, args []string) (words []string, asks bool, err error) {
	command := len(args) > 0 && args[0] == "--" || f.set.ArgsLenAtDash() >= 0
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if err := f.set.Parse(args); err != nil {
			return nil, false, &usageError{err}
		}
		args, command = f.set.Args(), f.set.ArgsLenAtDash() >= 0
	}
	if prompt := args; !command && len(args) > 1 && strings.HasPrefix(args[1], "-") { // flags may stand behind a prompt, too
		if err := f.set.Parse(args[1:]); err != nil {
			return nil, false, &usageError{err}
		}
		args = append(prompt[:1:1], f.set.Args()...)
	}
	asks = !command && (f.enqueue.Engine != "" || f.enqueue.Profile != "" || f.prompt.file != "")
	switch {
	case !asks && (f.prompt.file != "" || f.prompt.question.Model != "" || f.prompt.question.Resume != ""):
		return nil, false, &usageError{errors.New("--prompt-file, --model and --resume go with a question to an agent, not with a command")}
	case !asks && len(args) == 0:
		return nil, false, &usageError{errors.New("a command is needed: handsel enqueue LANE -- COMMAND [ARG…]; or a prompt, with --engine or --profile")}
	}
	return args, asks, nil
}

// handOver enqueues, and starts a dispatcher where none runs and one is asked
// for. A signal before the lane is the dispatcher's leaves nothing; one that
// comes later changes nothing.
func (a *app) handOver(h *handsel.Home, f *enqueueFlags, lane string, argv []string) (*handsel.Enqueued, error) {
	wait := newWaitLine(a)
	f.enqueue.OnWait = wait.show
	f.enqueue.OnNote = func(text string) { a.say("%s", oneLine(text)) }
	ctx, caught := untilSignal()
	try := func() (*handsel.Enqueued, error) {
		if f.text != nil {
			f.enqueue.Stdin = bytes.NewReader(f.text)
		}
		if argv == nil {
			return h.EnqueueAgent(ctx, lane, f.prompt.question, f.enqueue)
		}
		return h.Enqueue(ctx, lane, argv, f.enqueue)
	}
	out, err := try()
	none := errors.As(err, new(*handsel.NoDispatcher))
	switch {
	case f.start && (none || errors.As(err, new(*handsel.SilentDispatcher))): // which another may just be starting (C027)
		if err = a.bringUp(h); err == nil {
			f.enqueue.OnNote = nil // said the first time
			out, err = try()
		}
	case none:
		err = fmt.Errorf("%w; enqueue --start does so first", err)
	}
	wait.done()
	if sig := caught(); sig != 0 && err != nil {
		a.say("%s", oneLine(err.Error()))
		handsel.DieBy(sig)
	}
	return out, err
}

// untilSignal is a context that the first signal ends, and which one it was.
func untilSignal() (ctx context.Context, caught func() syscall.Signal) {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, handsel.RunSignals()...)
	var first atomic.Int64
	go func() { // for the life of the process, which is short
		sig, _ := (<-signals).(syscall.Signal)
		first.Store(int64(sig))
		stop()
	}()
	return ctx, func() syscall.Signal { return syscall.Signal(first.Load()) }
}

// input is what is to be stored as the command's input, nil for none.
func (a *app) input(from string) (text []byte, err error) {
	switch from {
	case "":
		return nil, nil
	case "-":
		text, err = io.ReadAll(io.LimitReader(a.In, handsel.MaxStoredStdin+1))
	default:
		text, err = readSome(from, handsel.MaxStoredStdin+1)
	}
	if err != nil {
		return nil, &handsel.BadOption{Option: "stdin", Value: from, Why: err.Error()}
	}
	return append([]byte{}, text...), nil // empty is not none
}

func readSome(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

// bringUp starts a dispatcher in the background and returns when it listens, or
// another one does.
func (a *app) bringUp(h *handsel.Home) error {
	if err := h.MayDispatch(); err != nil {
		return err
	}
	_, err := a.startDispatcher(h)
	return err
}

// enqueued says what the dispatcher has now, and what of the environment it has
// not. What cannot be said is accepted all the same.
func (a *app) enqueued(f *enqueueFlags, out *handsel.Enqueued) error {
	if len(out.Dropped) > 0 {
		names := make([]string, len(out.Dropped))
		for i, name := range out.Dropped {
			names[i] = clean(name)
		}
		a.say("not kept of the environment: %s", strings.Join(names, ", "))
	}
	var err error
	if f.asJSON {
		err = a.printJSON(enqueuedJSON{
			V: 1, Lane: out.Lane, Attempt: out.Attempt, State: out.State, Outcome: out.Outcome,
			Dropped: append([]string{}, out.Dropped...), WaitedS: out.Waited.Seconds(),
		})
	} else {
		_, err = fmt.Fprintf(a.Out, "%s %s\n", clean(out.Lane), out.Attempt)
	}
	if err != nil {
		return fmt.Errorf("accepted as attempt %s, which cannot be said on stdout: %w", out.Attempt, err)
	}
	return nil
}

// enqueueStatus is the status of an error of enqueue's own.
func enqueueStatus(err error) (int, bool) {
	switch {
	case errors.As(err, new(*handsel.WrongMode)):
		return statusConfig, true
	case errors.As(err, new(*handsel.BadAfter)):
		return statusUsage, true
	case errors.As(err, new(*handsel.Unknown)), errors.As(err, new(*handsel.WrongVersion)):
		return statusUnavailable, true
	}
	return 0, false
}
