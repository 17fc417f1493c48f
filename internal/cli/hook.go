package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// hookReport is the JSON of hook status (docs/reference/schemas/hook-status.schema.json).
type hookReport struct {
	V       int                `json:"v"`
	Rules   bool               `json:"rules"`             // whether [gate.rules] has any
	Problem string             `json:"problem,omitempty"` // why none is gated all the same
	Hooks   []handsel.HookSeen `json:"hooks"`
}

// hookFlags are those of install and uninstall.
type hookFlags struct {
	yes, dry bool
	project  string
}

func (a *app) hookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hook",
		Short: "send the heavy commands of a client's shell tool through a gate",
		Long: `A hook of an agent's CLI reads each command before its shell tool runs it. Those
that [gate.rules] of the configuration names go through handsel gate, all others
as they are. It is put into the client's settings once, and taken out as it came.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("hook does not know %q; it knows install, uninstall, status and run", args[0])}
			}
			return &usageError{errors.New("hook needs install, uninstall, status or run")}
		},
	}
	cmd.AddCommand(a.hookInstall(), a.hookUninstall(), a.hookStatus(), a.hookRun())
	return cmd
}

func (a *app) hookInstall() *cobra.Command {
	f := &hookFlags{}
	cmd := &cobra.Command{
		Use:   "install claude|codex",
		Short: "put the hook into the client's settings; without --yes only show how",
		Example: `  handsel hook install claude
  handsel hook install claude --yes
  handsel hook install codex --project --yes`,
		RunE: func(_ *cobra.Command, args []string) error {
			h, place, err := a.hookPlace("install", f, args)
			if err != nil {
				return err
			}
			change, err := h.InstallHook(place, stablePath())
			if err != nil {
				return err
			}
			if change == nil {
				fmt.Fprintf(a.Out, "nothing to do: %s has the hook\n", clean(place.Path))
				return nil
			}
			if err := h.Usable(); err != nil {
				a.sayUngated(err.Error())
			}
			if err := a.change(change, f, "hook install "+string(place.Client)); err != nil || !f.yes {
				return err
			}
			fmt.Fprintf(a.Out, "%s has the hook\n", clean(place.Path))
			a.afterInstall(h, place)
			return nil
		},
	}
	f.register(cmd)
	return cmd
}

// sayUngated says that the hook finds nothing to go by.
func (a *app) sayUngated(why string) {
	a.say("warning: as things are no command is gated: %s", oneLine(why))
}

// afterInstall says what is still missing before the hook does anything.
func (a *app) afterInstall(h *handsel.Home, place handsel.HookPlace) {
	if place.Client == "codex" {
		a.say("codex runs no hook before you have trusted it: start codex, type /hooks and trust this one")
		a.say("in its sandbox a gate can write no slot unless handsel has started codex, or sandbox_workspace_write.writable_roots has %s", clean(h.Path()))
	}
	if h.Usable() == nil && !h.GateRules() {
		a.say("[gate.rules] names no command yet, so none is gated: handsel config set gate.rules.POOL \"COMMAND, COMMAND\"")
	}
}

func (a *app) hookUninstall() *cobra.Command {
	f := &hookFlags{}
	cmd := &cobra.Command{
		Use:   "uninstall claude|codex",
		Short: "take the hook out of the client's settings; without --yes only show how",
		Example: `  handsel hook uninstall claude
  handsel hook uninstall claude --yes`,
		RunE: func(_ *cobra.Command, args []string) error {
			h, place, err := a.hookPlace("uninstall", f, args)
			if err != nil {
				return err
			}
			change, err := h.UninstallHook(place)
			if err != nil {
				return err
			}
			if change == nil {
				fmt.Fprintf(a.Out, "nothing to do: %s has no hook of handsel\n", clean(place.Path))
				return nil
			}
			if err := a.change(change, f, "hook uninstall "+string(place.Client)); err != nil || !f.yes {
				return err
			}
			did := "has no hook of handsel any more"
			if change.Gone {
				did = "is gone, as before the hook"
			}
			fmt.Fprintf(a.Out, "%s %s\n", clean(place.Path), did)
			return nil
		},
	}
	f.register(cmd)
	return cmd
}

func (f *hookFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.yes, "yes", false, "do it")
	fs.BoolVar(&f.dry, "dry-run", false, "only show what would be done (the default)")
	projectFlag(cmd, &f.project)
}

func projectFlag(cmd *cobra.Command, project *string) {
	cmd.Flags().StringVar(project, "project", "", "the settings of the project in `DIR` (without a value, this directory) instead of yours")
	cmd.Flags().Lookup("project").NoOptDefVal = "."
}

// hookPlace reads the command line of install and uninstall.
func (a *app) hookPlace(verb string, f *hookFlags, args []string) (*handsel.Home, handsel.HookPlace, error) {
	var none handsel.HookPlace
	if f.yes && f.dry {
		return nil, none, &usageError{errors.New("--yes and --dry-run exclude each other")}
	}
	client, err := hookClient(verb, args)
	if err != nil {
		return nil, none, err
	}
	place, err := handsel.HookPlaceOf(client, f.project)
	if err != nil {
		return nil, none, err
	}
	h, err := a.open()
	return h, place, err
}

func hookClient(verb string, args []string) (handsel.HookClient, error) {
	if len(args) != 1 {
		return "", &usageError{fmt.Errorf("hook %s takes one client, claude or codex, and got %d arguments", verb, len(args))}
	}
	client, ok := handsel.HookClientOf(args[0])
	switch {
	case !ok && args[0] == "gemini":
		return "", &usageError{errors.New("there is no hook for gemini: put handsel gate in front of its commands in your instructions, or a shim in front of gemini")}
	case !ok:
		return "", &usageError{fmt.Errorf("there is no hook for %q; claude and codex have one", args[0])}
	}
	return client, nil
}

// change shows a change, or makes it.
func (a *app) change(change *handsel.HookChange, f *hookFlags, verb string) error {
	if f.yes {
		return change.Apply()
	}
	for _, line := range change.Diff() {
		fmt.Fprintln(a.Out, clean(strings.TrimSuffix(line, "\r")))
	}
	project := ""
	if f.project != "" {
		project = " --project=" + handsel.ShellLine([]string{f.project})
	}
	fmt.Fprintf(a.Out, "nothing was done: handsel %s%s --yes does it\n", verb, clean(project))
	return nil
}

func (a *app) hookStatus() *cobra.Command {
	var asJSON bool
	var project string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "say which settings have the hook",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := a.open()
			if err != nil {
				return err
			}
			out := hookReport{V: 1, Rules: h.GateRules(), Hooks: []handsel.HookSeen{}}
			if err := h.Usable(); err != nil {
				out.Problem = err.Error()
			}
			dirs := []string{""}
			if project != "" {
				dirs = append(dirs, project)
			}
			for _, client := range handsel.HookClients() {
				for _, dir := range dirs {
					place, err := handsel.HookPlaceOf(client, dir)
					if err != nil {
						return err
					}
					out.Hooks = append(out.Hooks, handsel.LookHook(place, stablePath()))
				}
			}
			if asJSON {
				return a.printJSON(out)
			}
			return a.showHooks(&out)
		},
	}
	projectFlag(cmd, &project)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) showHooks(out *hookReport) error {
	t := a.table("CLIENT", "SCOPE", "HOOK", "SETTINGS")
	for _, s := range out.Hooks {
		state := s.State
		if s.Trusted != nil && !*s.Trusted {
			state += ", not trusted yet (codex, /hooks)"
		}
		t.row(string(s.Client), s.Scope, state, clean(s.Path))
	}
	if err := t.end(); err != nil {
		return err
	}
	for _, s := range out.Hooks {
		switch s.State {
		case "elsewhere":
			a.say("warning: %s calls another executable: %s", clean(s.Path), clean(s.Command))
		case "unreadable":
			a.say("warning: %s", oneLine(s.Problem))
		}
	}
	switch {
	case out.Problem != "":
		a.sayUngated(out.Problem)
	case !out.Rules:
		a.say("[gate.rules] names no command, so none is gated")
	}
	return nil
}

func (a *app) hookRun() *cobra.Command {
	return &cobra.Command{
		Use:   "run claude|codex",
		Short: "be the hook: read a tool call on stdin and answer it",
		Long: `Run is what the client's settings call. It reads one tool call on stdin. A command
that [gate.rules] names is answered with the same command behind handsel gate, and
the client runs that instead; of all else it says nothing. It never stops a call:
what it does not understand it leaves alone, with a line on stderr and status 0.`,
		RunE: func(_ *cobra.Command, args []string) error {
			client, err := hookClient("run", args)
			if err != nil {
				return err
			}
			h, err := a.open()
			if err == nil {
				var answer []byte
				answer, err = h.AnswerHook(client, a.In, stablePath())
				if len(answer) > 0 {
					fmt.Fprintf(a.Out, "%s\n", answer)
				}
			}
			if err != nil {
				a.say("hook: %s", oneLine(err.Error()))
				// A client that cannot get rid of its call may count that as an error.
				_, _ = io.Copy(io.Discard, a.In)
			}
			return nil
		},
	}
}

// stablePath is this executable as others should write it down: the name under
// which PATH leads to it, which an upgrade keeps, else its file.
func stablePath() string {
	own := ownPath()
	if found, err := exec.LookPath("handsel"); err == nil && filepath.IsAbs(found) {
		a, err1 := os.Stat(found)
		b, err2 := os.Stat(own)
		if err1 == nil && err2 == nil && os.SameFile(a, b) {
			return found
		}
	}
	return own
}
