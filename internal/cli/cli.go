// Package cli is the command line: flags, verbs, exit statuses.
//
// It is the only room that prints for a user or decides on an exit status, and
// it holds no logic of its own: a verb reads its flags, calls the library, and
// shows the answer. Data goes to stdout, everything else to stderr. What others
// chose (names, command lines) is escaped before a person sees it.
package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// Version is set when the program is linked.
var Version = "devel"

// Stdio is where a verb reads and writes.
type Stdio struct{ In, Out, Err *os.File }

// app is one invocation.
type app struct {
	Stdio
	home *handsel.Home
}

// verbs makes each verb's command. Only the one that is asked for is made:
// start-up is on every agent's path.
var verbs = map[string]func(*app) *cobra.Command{
	"run":   (*app).runCommand,
	"agent": (*app).agentCommand,
	"gate":  (*app).gateCommand,

	"enqueue":  (*app).enqueueCommand,
	"dispatch": (*app).dispatchCommand,
	"claim":    (*app).claimCommand,
	"drive":    (*app).driveCommand,

	"status":  (*app).statusCommand,
	"why":     (*app).whyCommand,
	"queue":   (*app).queueCommand,
	"runs":    (*app).runsCommand,
	"show":    (*app).showCommand,
	"logs":    (*app).logsCommand,
	"journal": (*app).journalCommand,
	"story":   (*app).storyCommand,
	"wait":    (*app).waitCommand,
	"top":     (*app).topCommand,

	"cancel":    (*app).cancelCommand,
	"hold":      (*app).holdCommand,
	"resume":    (*app).resumeCommand,
	"drain":     (*app).drainCommand,
	"quota":     (*app).quotaCommand,
	"prio":      (*app).prioCommand,
	"retry":     (*app).retryCommand,
	"accept":    (*app).acceptCommand,
	"reject":    (*app).rejectCommand,
	"release":   (*app).releaseCommand,
	"reconcile": (*app).reconcileCommand,

	"shim":      (*app).shimCommand,
	"hook":      (*app).hookCommand,
	"mcp":       (*app).mcpCommand,
	"supervise": (*app).superviseCommand,
	"web":       (*app).webCommand,

	"trust":  (*app).trustCommand,
	"doctor": (*app).doctorCommand,
	"gc":     (*app).gcCommand,
	"config": (*app).configCommand,

	"tell":       (*app).tellCommand,
	"version":    (*app).versionCommand,
	"completion": (*app).completionCommand,
}

// Main runs the command line args and returns its exit status.
func Main(args []string, stdio Stdio) int {
	a := &app{Stdio: stdio}
	if call, ok := shimCall(args); ok {
		return a.end(nil, a.shimmed(call))
	}
	root := a.root(args)
	root.SetArgs(args)
	return a.end(root.ExecuteC())
}

func (a *app) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:                        "handsel",
		Short:                      "decide when a command-line agent may start, and end all of it when its time is over",
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:                       cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("unknown verb %q%s; handsel --help lists them", args[0], meant(cmd, args[0]))}
			}
			return cmd.Help()
		},
	}
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.PersistentFlags().SortFlags = false
	if len(args) > 0 {
		if make, ok := verbs[args[0]]; ok {
			root.AddCommand(make(a))
			return root
		}
	}
	for _, make := range verbs {
		root.AddCommand(make(a))
	}
	return root
}

// meant offers the verbs that look like a misspelled one.
func meant(root *cobra.Command, word string) string {
	near := root.SuggestionsFor(word)
	if len(near) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(near, " or ") + "?)"
}

// open finds the home; every verb that needs it calls this first.
func (a *app) open() (*handsel.Home, error) {
	h, err := handsel.Open()
	if err == nil {
		h.TellAside(a.tellAside)
	}
	a.home = h
	return h, err
}

// say writes one line to stderr.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.Err, "handsel: "+format+"\n", args...)
}

// noArgs refuses arguments where a verb takes none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("%s takes no argument, and got %q", cmd.Name(), args[0])}
	}
	return nil
}
