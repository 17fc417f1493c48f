package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The verb man needs all verbs, which in the table itself would be a cycle.
func init() { verbs["man"] = (*app).manCommand }

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man [DIR]",
		Short: "print the manual page, or write one for each verb into DIR",
		Example: `  handsel man | man -l -
  handsel man /usr/local/share/man/man1`,
		RunE: func(_ *cobra.Command, args []string) error {
			root := a.root(nil) // with every verb
			switch len(args) {
			case 0:
				_, err := fmt.Fprint(a.Out, manPage(root))
				return err
			case 1:
				return writeManPages(root, args[0])
			}
			return &usageError{errors.New("man takes one directory, or none to print the page of handsel itself")}
		},
	}
}

// writeManPages writes a page for each command that can be run.
func writeManPages(cmd *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(manPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, sub := range shownVerbs(cmd) {
		if err := writeManPages(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// shownVerbs are the commands below cmd that people may call, by name.
func shownVerbs(cmd *cobra.Command) []*cobra.Command {
	verbs := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
	slices.SortFunc(verbs, func(x, y *cobra.Command) int { return strings.Compare(x.Name(), y.Name()) })
	return verbs
}

// manPage writes a command's page in the man macros.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	name := pageName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"handsel %s\" \"handsel\"\n", roffWord(strings.ToUpper(name)), roffWord(thisVersion().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roffWord(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", roffWord(cmd.CommandPath()), roff(synopsis(cmd)))
	if text := cmd.Long; text != "" {
		b.WriteString(".SH DESCRIPTION\n")
		paragraphs(&b, text)
	}
	if verbs := shownVerbs(cmd); len(verbs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, v := range verbs {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roffWord(v.Name()), roff(v.Short))
		}
	}
	options(&b, cmd.NonInheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	if up := cmd.Parent(); up != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roffWord(pageName(up)))
	}
	return b.String()
}

// synopsis is what follows the command's name.
func synopsis(cmd *cobra.Command) string {
	_, rest, _ := strings.Cut(cmd.Use, " ")
	if cmd.HasAvailableSubCommands() {
		return "COMMAND [FLAG]... [ARGUMENT]..."
	}
	if cmd.HasAvailableFlags() && !strings.Contains(rest, "[flags]") {
		rest = "[flags] " + rest
	}
	return rest
}

func options(b *strings.Builder, flags *pflag.FlagSet) {
	head := ".SH OPTIONS\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		b.WriteString(head)
		head = ""
		value, usage := pflag.UnquoteUsage(f)
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(names+" "+value)), roff(usage))
	})
}

// paragraphs keeps what is indented as it stands.
func paragraphs(b *strings.Builder, text string) {
	for p := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(p, " ") {
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(p))
			continue
		}
		fmt.Fprintf(b, ".PP\n%s\n", roff(p))
	}
}

// roff escapes text: no line of it is a request, and a hyphen stays one that
// can be copied.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// roffWord escapes text for the middle of a line.
func roffWord(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
}
