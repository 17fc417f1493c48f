package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/host"
)

// journalFlags are those of the verb journal.
type journalFlags struct {
	json                                bool
	limit                               int
	since, until, permission, what, eng string
}

func (a *app) journalCommand() *cobra.Command {
	f := &journalFlags{}
	cmd := &cobra.Command{
		Use:   "journal [X]",
		Short: "list what passed from whom to whom: every transfer of a permission, on what evidence",
		Long: `Journal lists the transfers of the five permissions (resource, quota, ownership,
acceptance, release) in the order of time: what the dispatcher wrote into its
database, and what direct runs, orders and verdicts wrote into journal.ndjson. X is
a lane, a run or an attempt, or an engine. It needs no dispatcher and changes
nothing. The last ones are listed; --limit 0 lists all.

It is a record, and no proof against whoever has the same user: what that user can
write, that user can also write falsely.`,
		Example: `  handsel journal api/review --since 24h
  handsel journal --permission acceptance --json
  handsel journal export >journal.ndjson`,
		ValidArgsFunction: a.complete(1, lanes|runs|over),
		RunE: func(_ *cobra.Command, args []string) error {
			x, err := oneOrNone("journal", args, "")
			if err != nil {
				return err
			}
			return a.journal(f, x)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.json, "json", false, "one JSON object")
	fs.IntVar(&f.limit, "limit", 50, "list the last `N`; 0 lists all")
	fs.StringVar(&f.since, "since", "", "only of the last `D` (90s, 24h), or from this moment on (2026-01-31T12:00:00Z)")
	fs.StringVar(&f.until, "until", "", "only before this `T`, a moment or so long ago")
	fs.StringVar(&f.permission, "permission", "", "only of this `P`: "+strings.Join(handsel.JournalPermissions(), ", "))
	fs.StringVar(&f.what, "what", "", "only this `WORD`, such as granted or accepted")
	fs.StringVar(&f.eng, "engine", "", "only of this engine")
	cmd.AddCommand(a.journalExport())
	return cmd
}

func (a *app) journalExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "write the whole journal, one JSON object on each line, in the order of time",
		Long: `Export writes every transfer that is on record, of both sources, one JSON object on
each line. The same journal gives the same lines in the same order. What could not
be read is said on stderr, and the status is 1 then.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.exportJournal() },
	}
	return cmd
}

// filter reads the flags.
func (f *journalFlags) filter(h *handsel.Home, now time.Time, out *handsel.JournalFilter) (err error) {
	if f.limit < 0 {
		return &handsel.BadOption{Option: "limit", Value: fmt.Sprint(f.limit), Why: "it must not be negative"}
	}
	if f.permission != "" && !slices.Contains(handsel.JournalPermissions(), f.permission) {
		return &handsel.BadOption{Option: "permission", Value: f.permission, Why: "it must be one of " + strings.Join(handsel.JournalPermissions(), ", ")}
	}
	out.Permission, out.What = f.permission, f.what
	if f.eng != "" {
		if out.Engine, err = h.EngineName(f.eng); err != nil {
			return err
		}
	}
	if out.Since, err = pastMoment("since", f.since, now); err != nil {
		return err
	}
	out.Until, err = pastMoment("until", f.until, now)
	return err
}

// pastMoment reads a moment, or how long ago it was.
func pastMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := handsel.ParseDuration(text)
	if err != nil {
		return time.Time{}, &handsel.BadOption{Option: flag, Value: text, Why: "it must be a moment such as 2026-01-31T12:00:00Z, or how long ago it was, such as 90s or 24h"}
	}
	return now.Add(-d), nil
}

// journalJSON is the JSON of journal.
type journalJSON struct {
	V        int                    `json:"v"`
	Chosen   int                    `json:"chosen"` // by the flags, those beyond --limit included
	Events   []handsel.JournalEvent `json:"events"`
	Problems []string               `json:"problems"`
}

func (a *app) journal(f *journalFlags, x string) error {
	readFast()
	h, err := a.open()
	if err != nil {
		return err
	}
	var filter handsel.JournalFilter
	if x != "" {
		s, err := a.subject(h, x)
		if err != nil {
			return err
		}
		filter = s.Filter
	}
	if err := f.filter(h, time.Now(), &filter); err != nil {
		return err
	}
	out := journalJSON{V: 1, Events: []handsel.JournalEvent{}, Problems: []string{}}
	for e := range host.Journal(h, filter, func(p error) { out.Problems = append(out.Problems, p.Error()) }) {
		out.Chosen++
		if out.Events = append(out.Events, e); f.limit > 0 && len(out.Events) >= 2*f.limit {
			out.Events = append(out.Events[:0], out.Events[len(out.Events)-f.limit:]...)
		}
	}
	if f.limit > 0 && len(out.Events) > f.limit {
		out.Events = out.Events[len(out.Events)-f.limit:]
	}
	if f.json {
		return a.printJSON(out)
	}
	a.warnAll(out.Problems)
	return a.showJournal(&out)
}

// subject is what X means; what can name nothing is a wrong command line.
func (a *app) subject(h *handsel.Home, x string) (*host.Subject, error) {
	s, err := host.JournalSubject(context.Background(), h, x)
	if errors.As(err, new(*handsel.BadName)) {
		return nil, &usageError{err}
	}
	return s, err
}

func (a *app) showJournal(out *journalJSON) error {
	var rows [][]string
	for i := range out.Events {
		e := &out.Events[i]
		rows = append(rows, []string{
			stamp(e.At), e.Permission, fit(e.What, 12), fit(cmp.Or(e.Lane, e.Engine, e.Identity), 24), short(e.Attempt),
			fit(cmp.Or(e.From, e.By), 24), fit(e.To, 24), fit(cmp.Or(e.Text, e.Code, strings.Join(e.Evidence, ", ")), 48),
		})
	}
	if err := a.showRows([]string{"TIME", "PERMISSION", "WHAT", "LANE", "RUN", "FROM", "TO", "DETAIL"}, rows); err != nil {
		return err
	}
	switch more := out.Chosen - len(out.Events); {
	case out.Chosen == 0:
		fmt.Fprintln(a.Out, "nothing is on record")
	case more > 0:
		fmt.Fprintf(a.Out, "%s, and %d before them (--limit 0 lists all)\n", counted(len(out.Events), "transfer"), more)
	default:
		fmt.Fprintln(a.Out, counted(out.Chosen, "transfer"))
	}
	return nil
}

func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// stamp is a moment of the journal.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

func (a *app) exportJournal() error {
	h, err := a.open()
	if err != nil {
		return err
	}
	readFast()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bad := 0
	to := bufio.NewWriterSize(a.Out, 64<<10)
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	problem := func(p error) {
		a.say("warning: %s", oneLine(p.Error()))
		if !errors.As(p, new(*host.NotKept)) {
			bad++
		}
	}
	for e := range host.Journal(h, handsel.JournalFilter{}, problem) {
		if err := enc.Encode(e); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(to.Flush(), ctx.Err())
		}
	}
	if err := to.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return statusError(1)
	}
	return nil
}
