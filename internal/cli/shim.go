package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// shimChanged is the JSON of shim install and shim remove.
type shimChanged struct {
	V      int                `json:"v"`
	Dir    string             `json:"dir"`
	OnPath bool               `json:"on_path"`
	Shims  []handsel.ShimDone `json:"shims"`
	Line   string             `json:"line,omitempty"` // what the shell's file needs
}

// shimStatus is the JSON of shim status.
type shimStatus struct {
	V      int            `json:"v"`
	Dir    string         `json:"dir"`
	OnPath bool           `json:"on_path"`
	Wrong  int            `json:"wrong"` // shims that are there and do not do their work
	Shims  []handsel.Shim `json:"shims"`
}

func (a *app) shimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shim",
		Short: "put admission before the engines on PATH, for tools that know nothing of it",
		Long: `A shim is an executable called like an engine that stands before it on PATH.
Whoever calls the engine by its name, a script, cron or a person, then gets it as
by handsel run: when there is room. Arguments, input, output, terminal, signals
and exit status pass through. --version, --help, login and other calls that are no
agent's work are not counted.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("shim does not know %q; it knows install, status and remove", args[0])}
			}
			return &usageError{errors.New("shim needs install, status or remove")}
		},
	}
	cmd.AddCommand(a.shimInstall(), a.shimStatus(), a.shimRemove())
	return cmd
}

var shimShells = []string{"bash", "zsh", "fish", "sh"}

func (a *app) shimInstall() *cobra.Command {
	var asJSON bool
	var shell string
	cmd := &cobra.Command{
		Use:   "install NAME…",
		Short: "put shims before the engines whose executables are called so",
		Long: `Install makes the shims in a directory of the home. The one line that puts this
directory first on PATH is printed, alone on stdout, and no file of a shell is
changed. What stands there and is no shim of ours is never overwritten (1).`,
		Example: `  handsel shim install claude codex
  handsel shim install claude >>~/.bashrc`,
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				return &usageError{errors.New("shim install needs the names of engines: handsel shim install claude codex")}
			}
			if shell == "" {
				shell = filepath.Base(os.Getenv("SHELL"))
			} else if !slices.Contains(shimShells, shell) {
				return &handsel.BadOption{Option: "shell", Value: shell, Why: "it must be one of " + strings.Join(shimShells, ", ")}
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			done, err := h.InstallShims(a.typedPath(), once(names))
			if err != nil {
				return err
			}
			return a.installed(h, done, shell, asJSON)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&shell, "shell", "", "print the line for `SHELL`: bash, zsh, fish, sh; unset: that of $SHELL")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) installed(h *handsel.Home, done []handsel.ShimDone, shell string, asJSON bool) error {
	line := h.ShimLine(shell)
	if asJSON {
		return a.printJSON(shimChanged{V: 1, Dir: h.ShimDir(), OnPath: h.ShimsOnPath(), Shims: done, Line: line})
	}
	for _, one := range done {
		a.say("%s: %s", one.Did, clean(one.Path))
	}
	if h.ShimsOnPath() {
		a.say("PATH has %s already; handsel shim status says what it finds first", clean(h.ShimDir()))
		return nil
	}
	a.say("nothing of your shell was changed; this line at the end of its file (%s) puts the shims first:", shellFile(shell))
	_, err := fmt.Fprintln(a.Out, line)
	return err
}

// shellFile is where a shell's PATH is usually set.
func shellFile(shell string) string {
	switch shell {
	case "bash":
		return "~/.bashrc"
	case "zsh":
		return "~/.zshrc"
	case "fish":
		return "~/.config/fish/config.fish"
	}
	return "~/.profile"
}

func (a *app) shimStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [NAME…]",
		Short: "say which shims there are, whether PATH finds them first, and what stands behind them",
		Long: `Status looks at the engines named, or at all of them. It changes nothing.

Status 1 when a shim is there and does not do its work.`,
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, names []string) error {
			h, err := a.open()
			if err != nil {
				return err
			}
			all, err := h.Shims(a.typedPath(), once(names))
			if err != nil {
				return err
			}
			return a.showShims(h, all, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) showShims(h *handsel.Home, all []handsel.Shim, asJSON bool) error {
	wrong := 0
	var rows [][]string
	for _, s := range all {
		if s.Wrong() {
			wrong++
		}
		rows = append(rows, []string{s.Name, s.Engine, strings.ReplaceAll(s.State, "_", " "), s.First, s.Real})
	}
	var err error
	if asJSON {
		err = a.printJSON(shimStatus{V: 1, Dir: h.ShimDir(), OnPath: h.ShimsOnPath(), Wrong: wrong, Shims: all})
	} else {
		err = a.showRows([]string{"NAME", "ENGINE", "SHIM", "PATH FINDS", "BEHIND IT"}, rows)
	}
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Wrong() {
			a.say("%s: %s", clean(s.Name), oneLine(s.Problem))
		}
	}
	if wrong > 0 {
		return statusError(statusFinal)
	}
	return nil
}

func (a *app) shimRemove() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove [NAME…]",
		Short: "take shims away: those named, or all",
		Long: `Remove takes away what shim install made, and nothing else: a file that is no shim
of ours is refused (1), and then none is removed. It works with a broken
configuration.`,
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, names []string) error {
			h, err := a.open()
			if err != nil {
				return err
			}
			done, err := h.RemoveShims(once(names))
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(shimChanged{V: 1, Dir: h.ShimDir(), OnPath: h.ShimsOnPath(), Shims: append([]handsel.ShimDone{}, done...)})
			}
			for _, one := range done {
				a.say("%s: %s", one.Did, clean(one.Path))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// once leaves out what is named again.
func once(names []string) (out []string) {
	for _, name := range names {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// typedPath is this executable as it was called, where that leads here: a package
// manager's link stays, while what it points to changes with every version.
func (a *app) typedPath() string {
	own := ownPath()
	typed, err := exec.LookPath(os.Args[0])
	if err == nil {
		typed, err = filepath.Abs(typed)
	}
	if err != nil {
		return own
	}
	is, err := os.Stat(typed)
	if err != nil {
		return own
	}
	if us, err := os.Stat(own); err != nil || !os.SameFile(is, us) {
		return own
	}
	return typed
}
