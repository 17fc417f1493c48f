package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

// bashWords is what the script needs of the package bash-completion, where that is
// not installed: there, words are what blanks part.
const bashWords = `if ! declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref() {
        local line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<<"$line"
        [[ $line == *[[:blank:]] ]] && words+=('')
        cword=$((${#words[@]} - 1)) cur=${words[cword]} prev=${words[cword - 1]}
    }
fi

`

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "print the completion script of a shell",
		Long: `Completion prints a script that completes verbs, flags and what there is now: lanes,
runs, engines, accounts, pools and orders.

  bash:       source <(handsel completion bash)
  zsh:        handsel completion zsh > "${fpath[1]}/_handsel"
  fish:       handsel completion fish > ~/.config/fish/completions/handsel.fish
  powershell: handsel completion powershell | Out-String | Invoke-Expression`,
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{fmt.Errorf("completion needs one shell: %s", strings.Join(shells, ", "))}
			}
			root := cmd.Root() // the scripts ask for verbs and names when they run
			switch args[0] {
			case "bash":
				if _, err := io.WriteString(a.Out, bashWords); err != nil {
					return err
				}
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.Out)
			}
			return &usageError{fmt.Errorf("completion does not know the shell %q; it knows %s", args[0], strings.Join(shells, ", "))}
		},
	}
}
