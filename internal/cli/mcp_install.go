package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// mcpInstallCommand registers our MCP server with a client (W5).
func (a *app) mcpInstallCommand() *cobra.Command {
	return a.mcpRegister("install", "make handsel one of the client's MCP servers; without --yes only show how", false)
}

// mcpUninstallCommand takes that back.
func (a *app) mcpUninstallCommand() *cobra.Command {
	return a.mcpRegister("uninstall", "take handsel from the client's MCP servers; without --yes only show how", true)
}

func (a *app) mcpRegister(verb, short string, remove bool) *cobra.Command {
	var yes, dry bool
	cmd := &cobra.Command{
		Use:   verb + " claude|codex|gemini",
		Short: short,
		Long: `The client's own command changes the client's settings, for all of your projects.
What that command prints is passed on.`,
		Example: `  handsel mcp ` + verb + ` claude
  handsel mcp ` + verb + ` claude --yes`,
		RunE: func(_ *cobra.Command, args []string) error {
			if yes && dry {
				return &usageError{errors.New("--yes and --dry-run exclude each other")}
			}
			clients := strings.Join(handsel.MCPClients(), ", ")
			if len(args) != 1 {
				return &usageError{fmt.Errorf("mcp %s takes one client of %s, and got %d arguments", verb, clients, len(args))}
			}
			argv := handsel.MCPRegistration(args[0], stablePath(), remove)
			if argv == nil {
				return &usageError{fmt.Errorf("mcp %s does not know %q; it knows %s", verb, args[0], clients)}
			}
			if !remove {
				a.sayUnwritten()
			}
			if !yes {
				fmt.Fprintf(a.Out, "%s\n", clean(handsel.ShellLine(argv)))
				fmt.Fprintf(a.Out, "nothing was done: handsel mcp %s %s --yes runs it\n", verb, args[0])
				return nil
			}
			return a.clientRuns(argv)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show the command (the default)")
	return cmd
}

// sayUnwritten names the variables that lead handsel elsewhere here. Each client has
// its own way to give them to a server, and not every one passes on its environment.
func (a *app) sayUnwritten() {
	for _, name := range []string{"HANDSEL_HOME", "HANDSEL_CONFIG"} {
		if value := os.Getenv(name); value != "" {
			a.say("%s=%s is set here and not in what the client is told: give it to the server there, or it may use another home than you", name, clean(value))
		}
	}
}

// clientRuns runs a client's own command and passes its words on.
func (a *app) clientRuns(argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		a.say("%s is not found in PATH; nothing was done", clean(argv[0]))
		return statusError(statusNoCommand)
	}
	cmd := exec.Command(path, argv[1:]...)
	cmd.Stdout, cmd.Stderr = a.Out, a.Err
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		a.say("%s did not do it: %s", clean(handsel.ShellLine(argv)), exit)
		return statusError(statusFinal)
	}
	a.say("%s cannot be run: %s", clean(path), oneLine(err.Error()))
	return statusError(statusNotRun)
}
