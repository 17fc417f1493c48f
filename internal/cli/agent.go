package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/handsel/handsel"
)

// promptFlags are what an agent is asked, for the verbs that build its command
// line.
type promptFlags struct {
	question handsel.Question
	file     string
}

func (p *promptFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&p.file, "prompt-file", "", "read the prompt from `FILE` (- is ours)")
	fs.StringVar(&p.question.Model, "model", "", "`M` in the engine's own words; unset: the profile's, else the engine's default")
	fs.StringVar(&p.question.Resume, "resume", "", "go on with the conversation `ID`, as show tells it")
}

// read takes the prompt from an argument or a file, not from both.
func (p *promptFlags) read(a *app, verb string, words []string) error {
	switch {
	case len(words) > 1:
		return &usageError{fmt.Errorf("%s takes one prompt, and got %d arguments; quote it, and put arguments for the engine after --", verb, len(words))}
	case len(words) == 1 && p.file != "":
		return &usageError{errors.New("a prompt and --prompt-file exclude each other")}
	case len(words) == 1:
		p.question.Prompt = []byte(words[0])
		return nil
	case p.file == "":
		return &usageError{fmt.Errorf("a prompt is needed: handsel %s PROMPT, or --prompt-file FILE", verb)}
	}
	text, err := a.prompt(p.file)
	if err != nil {
		return &handsel.BadOption{Option: "prompt-file", Value: p.file, Why: err.Error()}
	}
	p.question.Prompt = text
	return nil
}

func (a *app) prompt(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(a.In, handsel.MaxPrompt+1))
	}
	return readSome(file, handsel.MaxPrompt+1)
}

func (a *app) agentCommand() *cobra.Command {
	f, p, show := &startFlags{}, &promptFlags{}, &showing{}
	cmd := &cobra.Command{
		Use:   "agent [flags] PROMPT [-- ENGINE-ARG…]",
		Short: "ask an agent something, headless, and print its answer",
		Long: `Agent builds the engine's command line, runs it as run does, reads what it says
while it works, and prints its answer on stdout. Everything else is on stderr and
in the run's record: handsel logs, handsel show.

The status is 0 only when the turn succeeded, whatever the engine's own status
was; otherwise the engine's, or 1 where that was 0.`,
		Example: `  handsel agent --engine claude "fix the failing test"
  git diff | handsel agent --profile reviewer --workload light --prompt-file -`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				args, p.question.Args = args[:at], args[at:]
			}
			return a.agent(f, p, show, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.opts.Engine, "engine", "", "ask `E` (claude, codex, gemini, pi, or one of the configuration)")
	fs.StringVar(&f.opts.Account, "account", "", accountHelp)
	fs.StringVar(&f.opts.Profile, "profile", "", "start it as the profile `NAME` says")
	fs.StringVar(&f.opts.Workload, "workload", "", "`CLASS`: heavy (the default) or light, which is confined")
	fs.StringVar(&f.opts.Confine, "confine", "", "`HOW`: os (the kernel keeps it, and all it starts, from writing outside its directory) or none; unset: as configured")
	p.register(fs)
	f.register(fs)
	_ = fs.MarkHidden("record") // it always is
	fs.StringArrayVar(&f.pools, "pool", nil, "count against `POOL` too")
	fs.StringVar(&f.opts.Lane, "lane", "", "own the lane `NAME` while it runs: two runs of one lane never overlap")
	registerReview(fs, &f.opts.Review)
	show.register(fs)
	return cmd
}

// showing is what of a run is printed while it lasts.
type showing struct{ asJSON, raw, quiet bool }

func (s *showing) register(fs *pflag.FlagSet) {
	fs.BoolVar(&s.asJSON, "json", false, "print events instead of the answer, one JSON object on each line")
	fs.BoolVar(&s.raw, "raw", false, "print what the engine prints, byte for byte")
	fs.BoolVarP(&s.quiet, "quiet", "q", false, "say nothing of what it does meanwhile")
}

// agent asks, and turns what came of it into our status.
func (a *app) agent(f *startFlags, p *promptFlags, s *showing, words []string) error {
	if f.outcome == "" {
		f.outcome = os.Getenv("HANDSEL_OUTCOME")
	}
	wait := newWaitLine(a)
	out, err := a.question(f, p, s, words, wait)
	wait.done()
	if err == nil && !s.asJSON && !s.raw {
		err = a.answer(out)
	}
	if err == nil && out.Result == failed && out.Raise() == 0 && out.Limit == "" {
		a.say("the agent failed: %s", oneLine(failure(out)))
		f.failed = true
	}
	return a.finish(f, out, err)
}

const failed = "failed"

// failure says why, and until when that may last.
func failure(out *handsel.Outcome) string {
	text := out.Message
	if out.Kind != "" {
		text = out.Kind + ": " + text
	}
	if !out.Until.IsZero() {
		text += " (until " + moment(out.Until) + ")"
	}
	return text
}

// question reads what is left to read and starts. The outcome is never nil.
func (a *app) question(f *startFlags, p *promptFlags, s *showing, words []string, wait *waitLine) (*handsel.Outcome, error) {
	if s.asJSON && s.raw {
		return handsel.NothingRan(), &usageError{errors.New("--json and --raw exclude each other")}
	}
	err := p.read(a, "agent", words)
	if err == nil {
		err = f.parse()
	}
	if err != nil {
		return handsel.NothingRan(), err
	}
	h, err := a.open()
	if err == nil {
		err = handsel.CloseInherited()
	}
	if err != nil {
		return handsel.NothingRan(), err
	}
	a.supervise(f, wait)
	if s.raw {
		f.opts.Stdout, f.opts.Stderr = a.Out, a.Err
	}
	if s.asJSON {
		f.opts.Events = a.Out
	} else {
		f.opts.OnEvent = a.teller(s)
	}
	return h.Agent(context.Background(), p.question, f.opts)
}

// teller tells a person at a terminal what comes.
func (a *app) teller(s *showing) func(handsel.Event) {
	if s.raw || s.quiet || !isTerminal(a.Err) {
		return nil
	}
	return func(e handsel.Event) {
		if line := eventLine(e); line != "" {
			fmt.Fprintln(a.Err, line)
		}
	}
}

// eventLine is an event on one line, for people; empty for what says nothing.
func eventLine(e handsel.Event) string {
	switch e.Kind {
	case "session":
		return clean(strings.Join(strings.Fields("— conversation "+e.Session+" "+e.Model), " "))
	case "text":
		return clean(firstLine(e.Text, 160))
	case "tool":
		return clean("— uses " + e.Tool)
	case "limit", "error":
		text := "— " + retryText(e) + firstLine(e.Text, 160)
		return clean(text)
	}
	return ""
}

// retryText is the beginning of a line about a failure that the engine tries to
// overcome by itself.
func retryText(e handsel.Event) string {
	switch {
	case e.Retry == nil:
		return string(e.Kind) + ": "
	case e.Retry.Of > 0:
		return fmt.Sprintf("engine retrying, attempt %d of %d: ", e.Retry.Attempt, e.Retry.Of)
	}
	return fmt.Sprintf("engine retrying, attempt %d: ", e.Retry.Attempt)
}

// firstLine is the head of a text, at most most bytes of it.
func firstLine(text string, most int) string {
	line, rest, more := strings.Cut(strings.TrimSpace(text), "\n")
	if more = more && strings.TrimSpace(rest) != ""; len(line) > most {
		line, more = strings.ToValidUTF8(line[:most], ""), true
	}
	if more {
		line += " …"
	}
	return line
}

// answer prints what the agent said at the end.
func (a *app) answer(out *handsel.Outcome) error {
	text := out.Answer
	if text == "" {
		return nil
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(a.Out, text)
	if err != nil {
		return fmt.Errorf("the answer of run %s cannot be written to stdout: %w; handsel logs %s has it", out.Run, err, short(out.Run))
	}
	if out.AnswerCut > 0 {
		a.say("the answer is %d bytes longer: handsel logs --raw %s has all of it", out.AnswerCut, short(out.Run))
	}
	return nil
}
