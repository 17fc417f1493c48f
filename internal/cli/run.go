package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/handsel/handsel"
)

// startFlags are what run and gate share (C3).
type startFlags struct {
	opts     handsel.Options
	wait     string
	timeout  string
	idle     string
	priority string
	labels   []string
	keep     []string
	pools    []string
	outcome  string
	failed   bool // its turn failed, and that was said
	set      *pflag.FlagSet
}

func (f *startFlags) register(fs *pflag.FlagSet) {
	f.set = fs
	fs.SortFlags = false
	fs.StringVarP(&f.opts.Dir, "chdir", "C", "", "run the command in `DIR`")
	fs.StringVar(&f.wait, "wait", "", "wait at most `D` for admission (90s, 10m, seconds; 0 refuses at once; unset: as configured, else 10m)")
	fs.StringVar(&f.timeout, "timeout", "", "end the run after `D` in total, waiting included (status 124)")
	fs.StringVar(&f.idle, "idle", "", "end the run after `D` without output (status 124; implies --record)")
	fs.StringVar(&f.priority, "priority", "0", "`N` from -1000 to 1000, higher first; one step is worth a minute of waiting")
	fs.BoolVar(&f.opts.Record, "record", false, "keep the output in the run's directory")
	fs.BoolVar(&f.opts.LeaveDaemons, "leave-daemons", f.opts.LeaveDaemons, "leave processes alive that made a session of their own")
	fs.StringArrayVar(&f.keep, "keep-fd", nil, "pass descriptor `N` on to the command")
	fs.StringVar(&f.opts.Author, "author", "", "`NAME` of who asked for this run")
	fs.StringArrayVar(&f.labels, "label", nil, "`K=V` to find the run by")
	fs.StringVar(&f.outcome, "outcome", "", "write how it ended to `FILE` as one JSON object")
}

// parse reads the values that need a second look.
func (f *startFlags) parse() error {
	if f.wait != "" {
		d, err := handsel.ParseDuration(f.wait)
		if err != nil {
			return &handsel.BadOption{Option: "wait", Value: f.wait, Why: err.Error()}
		}
		f.opts.Wait = &d
	}
	for _, limit := range []struct {
		name, text string
		into       *time.Duration
	}{{"timeout", f.timeout, &f.opts.Timeout}, {"idle", f.idle, &f.opts.Idle}} {
		if limit.text == "" {
			continue
		}
		d, err := handsel.ParseDuration(limit.text)
		if err == nil && d == 0 {
			err = errors.New("it must be more than 0")
		}
		if err != nil {
			return &handsel.BadOption{Option: limit.name, Value: limit.text, Why: err.Error()}
		}
		*limit.into = d
	}
	if lane := f.set.Lookup("lane"); lane != nil && lane.Changed && f.opts.Lane == "" {
		return &handsel.BadOption{Option: "lane", Value: "", Why: "the name is empty"} // as of a variable that is not set
	}
	n, err := strconv.Atoi(f.priority)
	if err != nil || n < -1000 || n > 1000 {
		return &handsel.BadOption{Option: "priority", Value: f.priority, Why: "it must be a whole number from -1000 to 1000"}
	}
	f.opts.Priority = n
	if f.opts.Idle > 0 {
		f.opts.Record = true
	}
	return errors.Join(f.parseLabels(), f.parseKeep())
}

func (f *startFlags) parseLabels() error {
	for _, l := range f.labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return &handsel.BadOption{Option: "label", Value: l, Why: "it must be KEY=VALUE"}
		}
		if f.opts.Labels == nil {
			f.opts.Labels = map[string]string{}
		}
		f.opts.Labels[k] = v
	}
	return nil
}

func (f *startFlags) parseKeep() error {
	for _, text := range f.keep {
		n, err := strconv.Atoi(text)
		if err != nil || n < 3 || n > 1<<20 {
			return &handsel.BadOption{Option: "keep-fd", Value: text, Why: "it must be a descriptor from 3 up"}
		}
		if !handsel.InheritedFD(n) {
			return &handsel.BadOption{Option: "keep-fd", Value: text, Why: "no such descriptor was handed to handsel"}
		}
		f.opts.KeepFD = append(f.opts.KeepFD, n)
	}
	return nil
}

// closeInherited keeps descriptors from 3 up from the command, but for those that
// --keep-fd or one of its words names: a shell writes /dev/fd/63 for <(…).
func (f *startFlags) closeInherited(argv []string) error {
	for _, word := range argv {
		_, name, ok := strings.Cut(word, "/dev/fd/")
		end := strings.IndexFunc(name, func(c rune) bool { return c < '0' || c > '9' })
		if ok && end >= 0 {
			name = name[:end]
		}
		n, err := strconv.Atoi(name)
		if ok && err == nil && n >= 3 && !slices.Contains(f.opts.KeepFD, n) && handsel.InheritedFD(n) {
			f.opts.KeepFD = append(f.opts.KeepFD, n)
		}
	}
	return handsel.CloseInherited()
}

func (a *app) runCommand() *cobra.Command {
	f, d := &startFlags{}, &detachFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "run an agent when the machine has room for it",
		Long: `Run waits until every pool the agent counts against has a free slot, starts the
command, supervises it, and ends all of its process tree when it ends. The
command's stdin, stdout, stderr and exit status are its own.

Refused, nothing ran: 75 (the same command later may work), 1 (final), 77 or 78
(something must be changed). Ended by a limit: 124. See the exit-statuses page.`,
		Example: `  handsel run -- claude -p "fix the failing test"
  handsel run --wait 0 --engine codex -- ./my-codex-wrapper`,
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, argv []string) error {
			return a.startOrDetach(f, d, argv)
		},
	}
	fs := cmd.Flags()
	f.register(fs)
	d.register(fs)
	fs.SetInterspersed(false)
	fs.StringVar(&f.opts.Engine, "engine", "", "`E` is the agent's engine (claude, codex, gemini, pi), where the command does not tell")
	fs.StringVar(&f.opts.Account, "account", "", accountHelp)
	fs.StringVar(&f.opts.Workload, "workload", "", "`CLASS`: heavy (the default) or light")
	fs.StringVar(&f.opts.Confine, "confine", "", "`HOW`: os (the kernel keeps it, and all it starts, from writing outside its directory) or none; unset: as configured")
	fs.StringArrayVar(&f.pools, "pool", nil, "count against `POOL` too")
	fs.StringVar(&f.opts.Lane, "lane", "", "own the lane `NAME` while it runs: two runs of one lane never overlap")
	fs.StringVar(&f.opts.Profile, "profile", "", "`NAME` of the agent's profile; one that is a seat may start agents itself")
	registerReview(fs, &f.opts.Review)
	return cmd
}

// registerReview is the flag of the verbs that start an agent (P7).
func registerReview(fs *pflag.FlagSet, into *bool) {
	fs.BoolVar(into, "review", false, "once it has succeeded it waits for accept or reject, also where its lane and profile do not ask for that")
}

func (a *app) gateCommand() *cobra.Command {
	f := &startFlags{opts: handsel.Options{LeaveDaemons: true}}
	cmd := &cobra.Command{
		Use:   "gate POOL[,POOL…] [flags] -- COMMAND [ARG…]",
		Short: "run a heavy command (a build, a test suite) against named pools only",
		Long: `Gate counts the command against the pools it names and no other, also inside an
agent. Processes that made a session of their own (build daemons) live on,
unless the gate is inside an agent, with which they end.`,
		Example:               `  handsel gate gradle -- ./gradlew test`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     a.complete(1, bare),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{errors.New("gate needs a pool and a command: handsel gate POOL -- COMMAND")}
			}
			f.pools = strings.Split(args[0], ",")
			return a.start(f, args[1:], true)
		},
	}
	fs := cmd.Flags()
	f.register(fs)
	fs.SetInterspersed(false)
	return cmd
}

// start runs argv and turns its outcome into ours. Whatever comes of it, the
// outcome's file says it: one left by an earlier run would be believed.
func (a *app) start(f *startFlags, argv []string, gate bool) error {
	if f.outcome == "" {
		f.outcome = os.Getenv("HANDSEL_OUTCOME")
	}
	wait := newWaitLine(a)
	out, err := a.launch(f, argv, gate, wait)
	wait.done()
	return a.finish(f, out, err)
}

// launch reads what is left to read and starts. The outcome is never nil.
func (a *app) launch(f *startFlags, argv []string, gate bool, wait *waitLine) (*handsel.Outcome, error) {
	argv, err := a.ready(f, argv, gate)
	if err != nil {
		return handsel.NothingRan(), err
	}
	h, err := a.open()
	if err == nil {
		err = f.closeInherited(argv)
	}
	if err != nil {
		return handsel.NothingRan(), err
	}
	a.supervise(f, wait)
	f.opts.Stdin, f.opts.Stdout, f.opts.Stderr = a.In, a.Out, a.Err
	if gate {
		return h.Gate(context.Background(), f.pools, argv, f.opts)
	}
	return h.Run(context.Background(), argv, f.opts)
}

// supervise makes this process the supervisor of what f starts: it is told why
// it waits, gets the signals, and adopts what the agent leaves behind.
func (a *app) supervise(f *startFlags, wait *waitLine) {
	keepLittle()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handsel.RunSignals()...)
	f.opts.OnWait, f.opts.OnAdmitted = wait.show, wait.done
	f.opts.OnNote = func(text string) { a.say("%s", oneLine(text)) }
	f.opts.Pools, f.opts.Subreaper, f.opts.Signals = f.pools, true, signals
	f.opts.AtTerminal = isTerminal(a.In) && isTerminal(a.Out)
}

// keepLittle collects what was needed to start, once that is over, and from then
// on lets the heap grow by a quarter, and not to twice its size, before it is
// collected again. There are many supervisors, each with next to nothing that
// lasts: as it comes, each would keep 4 MB of what it has read and is done with
// (G15). A collection before the agent runs would delay its start by a sixth (G16).
func keepLittle() {
	time.AfterFunc(started, func() {
		debug.SetGCPercent(25)
		debug.FreeOSMemory()
	})
}

// started is when an agent that gets a slot at once has long been started.
const started = 500 * time.Millisecond

// ready reads the flags' values and what to run.
func (a *app) ready(f *startFlags, argv []string, gate bool) ([]string, error) {
	if gate && len(argv) > 0 {
		// Flags may stand on either side of the pool's name.
		rest, err := a.gateFlags(f, argv)
		if err != nil {
			return nil, err
		}
		argv = rest
	}
	if len(argv) == 0 {
		if gate {
			return nil, &usageError{errors.New("a command is needed: handsel gate POOL -- COMMAND [ARG…]")}
		}
		return nil, &usageError{errors.New("a command is needed: handsel run -- COMMAND [ARG…]")}
	}
	return argv, f.parse()
}

// gateFlags reads the flags behind a gate's pool; those before it keep their
// values.
func (a *app) gateFlags(f *startFlags, args []string) ([]string, error) {
	if !strings.HasPrefix(args[0], "-") {
		return args, nil
	}
	if err := f.set.Parse(args); err != nil {
		return nil, &usageError{err}
	}
	return f.set.Args(), nil
}

// finish reports the end of a run: warnings, survivors, the outcome's file, and
// at last the status or the signal.
func (a *app) finish(f *startFlags, out *handsel.Outcome, err error) error {
	for _, w := range out.Warnings {
		a.say("warning: %s", oneLine(w.Error()))
	}
	for _, s := range out.Survivors {
		a.say("still running: pid %d (%s): %s", s.Pid, quoteWord(s.Comm), s.Why)
	}
	status, raise := a.status(f, out, err)
	if f.outcome != "" {
		if werr := handsel.WriteOutcome(f.outcome, out, err); werr != nil {
			a.say("outcome: %s", oneLine(werr.Error()))
			if status == 0 && raise == 0 {
				status = statusOurs
			}
		}
	}
	if raise != 0 {
		handsel.DieBy(raise)
	}
	if status == 0 {
		return nil
	}
	return statusError(status)
}

// status is what we exit with, or the signal we end by.
func (a *app) status(f *startFlags, out *handsel.Outcome, err error) (int, syscall.Signal) {
	if sig := out.Raise(); sig != 0 {
		return 128 + int(sig), sig
	}
	switch {
	case out.Outcome.Outcome == "timed_out":
		a.say("%s", limitText(out))
		return statusTimeout, 0
	case err != nil:
		return a.end(nil, err), 0
	case f.failed && out.ExitCode == 0:
		return statusFinal, 0 // it is no success, whatever the engine thinks (C114)
	case out.Outcome.Outcome == "cancelled" && out.ExitCode == 0: // by the configuration (end_on), which is no success
		a.say("ended by end_on of the configuration: %s", oneLine(failure(out)))
		return statusFinal, 0
	}
	return out.ExitCode, 0
}

func limitText(out *handsel.Outcome) string {
	if out.Limit == "idle" {
		return "ended by --idle: no output for too long"
	}
	return "ended by --timeout"
}
