package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// trustJSON is the JSON of trust (docs/reference/schemas/trust.schema.json).
type trustJSON struct {
	V       int      `json:"v"`
	Trusted []string `json:"trusted"`
}

func (a *app) trustCommand() *cobra.Command {
	var remove, asJSON bool
	cmd := &cobra.Command{
		Use:   "trust [DIR]",
		Short: "let a project's profiles set confinement, arguments and pools",
		Long: `Trust says that the profiles a project brings, in .handsel/profiles, may set all
that your own may. Before that they may only choose engine, model, class, limits
and instructions. It is the directory that is trusted, whatever its files become.

Without DIR, list the directories that are trusted.`,
		Example: `  handsel trust .
  handsel trust --remove ~/src/old`,
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := a.open()
			switch {
			case err != nil:
				return err
			case len(args) > 1:
				return &usageError{fmt.Errorf("trust takes one directory, and got %d", len(args))}
			case len(args) == 0 && remove:
				return &usageError{errors.New("trust --remove needs a directory")}
			case len(args) == 0:
				return a.trusted(h, asJSON)
			case remove:
				return a.distrust(h, args[0])
			}
			return a.trust(h, args[0])
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "trust DIR no more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "list as one JSON object")
	return cmd
}

func (a *app) trusted(h *handsel.Home, asJSON bool) error {
	all, err := h.TrustedProjects()
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(trustJSON{V: 1, Trusted: append([]string{}, all...)})
	}
	for _, dir := range all {
		fmt.Fprintln(a.Out, clean(dir))
	}
	return nil
}

// trust shows what it is that is trusted: nobody knows a project's files by heart.
func (a *app) trust(h *handsel.Home, dir string) error {
	path, err := h.TrustProject(dir)
	if err != nil {
		return badDir(dir, err)
	}
	fmt.Fprintf(a.Out, "trusted: %s\n", clean(path))
	names, files := h.ProjectProfiles(path)
	for i, name := range names {
		fmt.Fprintf(a.Out, "profile %s: %s\n", clean(name), clean(files[i]))
	}
	return nil
}

func (a *app) distrust(h *handsel.Home, dir string) error {
	path, err := h.DistrustProject(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &handsel.NotFound{Name: path}
	}
	if err != nil {
		return badDir(dir, err)
	}
	fmt.Fprintf(a.Out, "trusted no more: %s\n", clean(path))
	return nil
}

// badDir is a directory that cannot be trusted because there is none.
func badDir(dir string, err error) error {
	if errors.As(err, new(*handsel.Untrusted)) || errors.As(err, new(*handsel.Unusable)) {
		return err
	}
	return &handsel.BadOption{Option: "directory", Value: dir, Why: err.Error()}
}
