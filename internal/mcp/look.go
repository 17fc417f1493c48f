package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel"
)

// mostShown is how many of one kind status tells of. Of more it says how many.
const mostShown = 50

// state is the data of status's answer.
type state struct {
	V       int               `json:"v"`
	Status  *handsel.Snapshot `json:"status"`
	Queue   queueState        `json:"queue"`
	LeftOut map[string]int    `json:"left_out,omitempty"` // how many of a kind are not told
}

// queueState is what waits as rows of the dispatcher.
type queueState struct {
	Dispatcher handsel.SeenDispatcher `json:"dispatcher"`
	Source     string                 `json:"source"`
	Draining   bool                   `json:"draining"`
	Waiting    int                    `json:"waiting"`
	Rows       []handsel.QueueRow     `json:"rows"`
}

// status takes one look at everything.
func (s *server) status(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	snap, q := s.home.Status(ctx), s.home.Queue(ctx)
	text := []string{"home " + plain(snap.Root)}
	for _, name := range snap.Order() {
		p := snap.Pools[name]
		limit := "no cap"
		if p.Effective != 0 {
			limit = fmt.Sprintf("cap %d", p.Effective)
		}
		text = append(text, fmt.Sprintf("pool %s: %d held, %s", plain(name), p.Held, limit))
	}
	text = append(text, fmt.Sprintf("%d wait in line, %d lanes taken, dispatcher: %s, %d rows wait", len(snap.Waiting), len(snap.Lanes), q.Dispatcher.State, len(q.Rows)))
	for _, h := range snap.Holds {
		text = append(text, plain(fmt.Sprintf("%s is on %s: %s", h.Kind, h.Scope, h.Reason)))
	}
	for _, p := range append(snap.Problems, q.Problems...) {
		text = append(text, "problem: "+plain(p))
	}
	out := state{V: 1, Status: snap, LeftOut: map[string]int{}}
	out.Queue = queueState{Dispatcher: q.Dispatcher, Source: q.Source, Draining: q.Draining, Waiting: len(q.Rows), Rows: few(out.LeftOut, "rows", q.Rows)}
	snap.Waiting = few(out.LeftOut, "waiting", snap.Waiting)
	snap.Lanes = few(out.LeftOut, "lanes", snap.Lanes)
	snap.Agents = few(out.LeftOut, "agents", snap.Agents)
	snap.Strays = few(out.LeftOut, "strays", snap.Strays)
	return told(out, "%s", strings.Join(text, "\n")), nil
}

// few is the beginning of a list, and notes how much of it is missing.
func few[T any](missing map[string]int, kind string, all []T) []T {
	if len(all) <= mostShown {
		return all
	}
	missing[kind] = len(all) - mostShown
	return all[:mostShown]
}

// why asks every permission.
func (s *server) why(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	y, err := s.home.Why(ctx, c.args.text("about"))
	if err != nil {
		return nil, err
	}
	head := y.Kind + " " + y.Name
	if y.Attempt != "" && y.Attempt != y.Name {
		head += ", run " + y.Attempt
	}
	if y.State != "" {
		head += ": " + cmp.Or(y.Outcome, y.State)
	}
	if y.Place > 0 {
		head += fmt.Sprintf(", place %d", y.Place)
	}
	text := []string{plain(head)}
	for _, p := range y.Permissions {
		line := fmt.Sprintf("%s %s (%s): %s", p.Class, p.Answer, p.Code, p.Message)
		if !p.Until.IsZero() {
			line += ", until " + p.Until.UTC().Format(time.RFC3339)
		}
		if p.Ends != "" {
			line += "; ends: " + p.Ends
		}
		text = append(text, plain(line))
	}
	return told(y, "%s", strings.Join(text, "\n")), nil
}

// list lists runs, and what waits as rows.
func (s *server) list(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	a := c.args
	f := handsel.RunFilter{Limit: a.number("limit", fewListed), State: a.text("state"), Engine: a.text("engine"), Labels: a.words("labels")}
	if since := a.number("since_s", 0); since > 0 {
		f.Since = time.Now().Add(-seconds(since))
	}
	found, err := s.home.Runs(f)
	if err != nil {
		return nil, err
	}
	rows, err := s.rows(ctx, f)
	if err != nil {
		return nil, err
	}
	found.Runs = append(rows, found.Runs...)
	found.Totals.Queued += len(rows)
	if len(found.Runs) > f.Limit {
		found.Runs = found.Runs[:f.Limit]
	}
	t := found.Totals
	text := []string{fmt.Sprintf("%d started: %d succeeded, %d failed, %d lost, %d running; %d queued, %d not started", t.Started, t.Succeeded, t.Failed, t.Lost, t.Running, t.Queued, t.Not)}
	for i := range found.Runs {
		text = append(text, runLine(&found.Runs[i]))
	}
	return told(listed{V: 1, Totals: t, Runs: briefs(found.Runs), Problems: found.Problems}, "%s", strings.Join(text, "\n")), nil
}

// listed is the data of list's answer.
type listed struct {
	V        int               `json:"v"`
	Totals   handsel.RunTotals `json:"totals"`
	Runs     []brief           `json:"runs"`
	Problems []string          `json:"problems"`
}

// rows are the attempts that wait and have no record yet, as far as the filter
// wants them.
func (s *server) rows(ctx context.Context, f handsel.RunFilter) ([]handsel.KnownRun, error) {
	if f.State != "" && f.State != "queued" {
		return nil, nil
	}
	all, err := s.home.AllWork(ctx)
	if errors.As(err, new(*handsel.NotFound)) {
		return nil, nil
	}
	return slices.DeleteFunc(all, func(k handsel.KnownRun) bool {
		row := slices.Contains(k.Sources, handsel.FromQueue) || slices.Contains(k.Sources, handsel.FromEntry)
		for key, value := range f.Labels {
			row = row && k.Labels[key] == value
		}
		return !row || f.Engine != "" && k.Engine != f.Engine || !f.Since.IsZero() && k.QueuedAt.Before(f.Since)
	}), err
}

// accounts is the data of quota's answer.
type accounts struct {
	V        int                    `json:"v"`
	Accounts []handsel.QuotaAccount `json:"accounts"`
	Problems []string               `json:"problems"`
}

// quota tells what is known of engine accounts.
func (s *server) quota(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	all, problems, err := s.home.Quota(c.args.text("account"))
	if bad, ok := errors.AsType[*handsel.BadOption](err); ok {
		return nil, &badArgument{"account", bad.Why} // whatever part of it
	}
	if err != nil {
		return nil, err
	}
	text := []string{}
	for _, a := range all {
		name := a.Engine
		if a.Account != "" {
			name += "/" + a.Account
		}
		line := fmt.Sprintf("%s: %s (%s): %s", name, a.Answer, a.Code, a.Message)
		if !a.Until.IsZero() {
			line += ", until " + a.Until.UTC().Format(time.RFC3339)
		}
		text = append(text, plain(line))
	}
	if len(all) == 0 {
		text = append(text, "nothing is known that holds any engine account back")
	}
	return told(accounts{V: 1, Accounts: all, Problems: problems}, "%s", strings.Join(text, "\n")), nil
}

// ended is the data of cancel's answer.
type ended struct {
	V         int        `json:"v"`
	Run       string     `json:"run"`
	Did       string     `json:"did"`
	State     string     `json:"state"`
	Outcome   string     `json:"outcome,omitempty"`
	Message   string     `json:"message"`
	Survivors []survivor `json:"survivors,omitempty"`
}

// survivor is a process that could not be ended.
type survivor struct {
	Pid  int    `json:"pid"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

// cancel ends a run.
func (s *server) cancel(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	k, err := s.one(ctx, c.args.text("run"))
	if err != nil {
		return nil, err
	}
	done, err := s.home.Cancel(context.WithoutCancel(ctx), *k) // begun, it is brought to its end
	if err != nil {
		return nil, err
	}
	out := ended{V: 1, Run: done.Run.ID, Did: done.Did, State: done.Run.State, Outcome: done.Run.Outcome, Message: done.Message}
	for _, p := range done.Survivors {
		out.Survivors = append(out.Survivors, survivor{p.Pid, p.Comm, p.Why})
	}
	return told(out, "run %s: %s (%s)", done.Run.ID, plain(done.Message), done.Did), nil
}

// one is the only run that a name means.
func (s *server) one(ctx context.Context, name string) (*handsel.KnownRun, error) {
	found, err := s.home.FindWork(ctx, name, true)
	if err != nil {
		return nil, err
	}
	if len(found) > 1 {
		several := &handsel.Ambiguous{Name: name}
		for _, k := range found[:min(len(found), fewListed)] {
			several.Fits = append(several.Fits, "run:"+k.ID)
		}
		return nil, several
	}
	return &found[0], nil
}
