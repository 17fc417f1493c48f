package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// accountHelp is that of --account wherever an engine can be named.
const accountHelp = "use the account `NAME` of the engine, as [accounts] of the configuration has it"

// account is an engine account as people read it: ENGINE, or ENGINE/NAME.
func account(engine, name string) string {
	if name == "" {
		return engine
	}
	return engine + "/" + name
}

// quotaReason says of an order what it means, where it is one of an engine
// account's quota.
func quotaReason(kind, reason string) string {
	word := map[string]string{"park": "engine limited", "pause": "login failed", "pace": "starts are spaced"}[kind]
	return strings.Trim(word+": "+reason, ": ")
}

// quotaJSON is the JSON of quota show.
type quotaJSON struct {
	V        int                    `json:"v"`
	Accounts []handsel.QuotaAccount `json:"accounts"`
	Problems []string               `json:"problems"`
}

// quotaDoneJSON is the JSON of quota set and clear.
type quotaDoneJSON struct {
	V       int                `json:"v"`
	Did     string             `json:"did"` // set, cleared
	Changed []quotaChangedJSON `json:"changed"`
}

type quotaChangedJSON struct {
	Account string        `json:"account"` // ENGINE or ENGINE/NAME
	Order   handsel.Order `json:"order"`
}

func (a *app) quotaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota [show|set|clear]",
		Short: "show and change what is known of the limits and logins of engine accounts",
		Long: `A limit that an engine meets keeps further starts of its account back until the
reset that it names; a login that fails, until one start finds out that it works
again. Other engines and accounts go on, and what waits keeps its place. See the
quota page of the reference.`,
		Example: `  handsel quota
  handsel quota clear claude`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.showQuota("", false) },
	}
	cmd.AddCommand(a.quotaShowCommand(), a.quotaSetCommand(), a.quotaClearCommand())
	return cmd
}

func (a *app) quotaShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show [ENGINE[/ACCOUNT]]",
		Short:   "show what is known of the engine accounts",
		Example: `  handsel quota show claude --json`,
		RunE: func(_ *cobra.Command, args []string) error {
			x, err := oneOrNone("quota show", args, "")
			if err != nil {
				return err
			}
			return a.showQuota(x, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) showQuota(x string, asJSON bool) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	list, problems, err := h.Quota(x)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(quotaJSON{V: 1, Accounts: list, Problems: problems})
	}
	a.warnAll(problems)
	if len(list) == 0 {
		fmt.Fprintln(a.Out, "nothing is known of any engine account, and nothing is configured")
		return nil
	}
	var rows [][]string
	for _, q := range list {
		until, count := "", ""
		switch {
		case !q.Until.IsZero():
			until = moment(q.Until.Time)
		case q.Answer != handsel.AnswerGo:
			until = "cleared"
		}
		if q.Count > 0 {
			count = fmt.Sprint(q.Count)
		}
		rows = append(rows, []string{account(q.Engine, q.Account), q.Answer, q.Code, until, count, q.Message})
	}
	return a.showRows([]string{"ACCOUNT", "STARTS", "CODE", "UNTIL", "COUNT", "WHY"}, rows)
}

func (a *app) quotaSetCommand() *cobra.Command {
	f := &orderFlags{}
	cmd := &cobra.Command{
		Use:     "set ENGINE[/ACCOUNT]",
		Short:   "keep starts of an engine account back, as its limit would",
		Example: `  handsel quota set claude --until 14:05 --reason "weekly limit"`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("quota set needs one account: handsel quota set ENGINE[/ACCOUNT]")}
			}
			until, err := f.end(time.Now())
			if err != nil {
				return err
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			c, silent, err := h.SetQuota(context.Background(), args[0], f.reason, until)
			if err != nil {
				return err
			}
			a.unheard(silent)
			if f.json {
				return a.printJSON(quotaDoneJSON{V: 1, Did: "set", Changed: []quotaChangedJSON{{c.Account, c.Order}}})
			}
			fmt.Fprintf(a.Out, "%s is limited %s\n", clean(c.Account), strings.ReplaceAll(untilText(c.Order), "handsel resume", "handsel quota clear"))
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.reason, "reason", "", "`TEXT` that everybody sees who is held back")
	fs.StringVar(&f.span, "for", "", "clear by itself after `D` (90s, 10m, seconds)")
	fs.StringVar(&f.until, "until", "", "clear by itself at `TIME`: 2006-01-02T15:04:05Z, or 15:04, the next there is here")
	fs.BoolVar(&f.json, "json", false, "one JSON object")
	return cmd
}

func (a *app) quotaClearCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clear [ENGINE[/ACCOUNT]]",
		Short: "let starts of an engine account go again, and forget its failures; without a name, of all",
		Example: `  handsel quota clear claude/work
  handsel quota clear`,
		RunE: func(_ *cobra.Command, args []string) error {
			x, err := oneOrNone("quota clear", args, "")
			if err != nil {
				return err
			}
			h, err := a.open()
			if err != nil {
				return err
			}
			gone, silent, err := h.ClearQuota(context.Background(), x)
			if err != nil {
				return err
			}
			a.unheard(silent)
			done := quotaDoneJSON{V: 1, Did: "cleared", Changed: []quotaChangedJSON{}}
			for _, c := range gone {
				done.Changed = append(done.Changed, quotaChangedJSON{c.Account, c.Order})
			}
			if asJSON {
				return a.printJSON(done)
			}
			for _, c := range gone {
				fmt.Fprintf(a.Out, "%s of %s is over\n", clean(string(c.Order.Kind)), clean(c.Account))
			}
			if len(gone) == 0 {
				fmt.Fprintf(a.Out, "nothing held %s back\n", clean(cmp.Or(x, "any account")))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}
