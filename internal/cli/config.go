package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// configShown is the JSON of config show.
type configShown struct {
	V        int               `json:"v"`
	Settings []handsel.Setting `json:"settings"`
	Files    []configFile      `json:"files"`
	Problems []configProblem   `json:"problems"`
}

// configChecked is the JSON of config check.
type configChecked struct {
	V        int             `json:"v"`
	Problems []configProblem `json:"problems"`
}

type configFile struct {
	Path  string `json:"path"`
	Role  string `json:"role"`  // machine, user, extra
	State string `json:"state"` // read, empty, missing, refused
}

type configProblem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "show, check and change the configuration",
		Long: `The configuration is read again at every admission, in this order: flag,
variable, the file HANDSEL_CONFIG names, the user's file, the machine's file,
default. Caps are different: every cap set anywhere joins a minimum.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("config does not know %q; it knows show, check, init and set", args[0])}
			}
			return &usageError{errors.New("config needs show, check, init or set")}
		},
	}
	cmd.AddCommand(a.configShow(), a.configCheck(), a.configInit(), a.configSet())
	return cmd
}

func (a *app) configShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "list every setting in force and where it comes from",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := a.open()
			if err != nil {
				return err
			}
			settings, files, problems := h.Config()
			if asJSON {
				out := configShown{V: 1, Settings: append([]handsel.Setting{}, settings...), Files: []configFile{}, Problems: problemsJSON(problems)}
				for _, f := range files {
					out.Files = append(out.Files, configFile{f.Path, f.Role, f.State})
				}
				return a.printJSON(out)
			}
			for _, p := range problems {
				a.say("warning: %s", oneLine(p.Error()))
			}
			t := a.table("KEY", "VALUE", "FROM")
			for _, s := range settings {
				from := s.From
				if !s.InForce {
					from += " (a smaller one is in force)"
				}
				t.row(s.Key, s.Value, from)
			}
			return t.end()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) configCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "find every mistake, with file, line and a mark under it (status 78)",
		RunE: func(_ *cobra.Command, args []string) error {
			problems, err := a.checkConfig(args)
			if err != nil {
				return err
			}
			if asJSON {
				if err := a.printJSON(configChecked{V: 1, Problems: problemsJSON(problems)}); err != nil {
					return err
				}
			}
			for _, p := range problems {
				a.say("%s", oneLine(p.Error()))
				if bad := (*handsel.BadConfig)(nil); errors.As(p, &bad) && bad.Caret != "" {
					for line := range strings.Lines(bad.Caret) {
						fmt.Fprintf(a.Err, "  %s\n", clean(strings.TrimRight(line, "\n")))
					}
				}
			}
			if len(problems) > 0 {
				return statusError(exitStatus(problems[0]))
			}
			if !asJSON {
				fmt.Fprintln(a.Out, "no mistake found")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) checkConfig(args []string) ([]error, error) {
	switch len(args) {
	case 0:
		h, err := a.open()
		if err != nil {
			return nil, err
		}
		_, _, problems := h.Config()
		return problems, nil
	case 1:
		return handsel.CheckConfig(args[0]), nil
	}
	return nil, &usageError{errors.New("config check takes one file, or none for those in force")}
}

func problemsJSON(problems []error) []configProblem {
	out := []configProblem{}
	for _, p := range problems {
		one := configProblem{Message: p.Error()}
		if bad := (*handsel.BadConfig)(nil); errors.As(p, &bad) {
			one.File, one.Line, one.Column, one.Key = bad.File, bad.Line, bad.Col, bad.Key
		}
		out = append(out, one)
	}
	return out
}

// fileFlags say which file init and set are about.
type fileFlags struct {
	file    string
	machine bool
}

func (f *fileFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "file", "", "this `FILE` instead of the user's")
	cmd.Flags().BoolVar(&f.machine, "machine", false, "the machine's file, "+handsel.MachineConfigFile)
}

func (f *fileFlags) path() (string, error) {
	switch {
	case f.file != "" && f.machine:
		return "", &usageError{errors.New("--file and --machine exclude each other")}
	case f.file != "":
		return f.file, nil
	case f.machine:
		return handsel.MachineConfigFile, nil
	}
	return handsel.UserConfigFile()
}

func (a *app) configInit() *cobra.Command {
	f := &fileFlags{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "write a commented example in which nothing is set; never replaces a file",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			path, err := f.path()
			if err != nil {
				return err
			}
			err = handsel.InitConfig(path)
			if errors.Is(err, handsel.ErrConfigExists) {
				a.say("%s exists already and was left as it is", clean(path))
				return statusError(statusFinal)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "wrote %s\n", clean(path))
			return nil
		},
	}
	f.register(cmd)
	return cmd
}

func (a *app) configSet() *cobra.Command {
	f := &fileFlags{}
	cmd := &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "set one key in the user's file; an empty value takes it out",
		Example: `  handsel config set pools.heavy 6
  handsel config set admission.wait 20m`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return &usageError{errors.New(`config set needs a key and a value: handsel config set pools.heavy 6 ("" takes it out)`)}
			}
			path, err := f.path()
			if err != nil {
				return err
			}
			if err := handsel.SetConfig(path, args[0], args[1]); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "%s = %s in %s\n", clean(args[0]), clean(args[1]), clean(path))
			return nil
		},
	}
	f.register(cmd)
	return cmd
}
