package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel"
)

// tellEvery is how often a client that wants to know is told that a wait goes on.
const tellEvery = 5 * time.Second

// waited is the data of wait's answer.
type waited struct {
	V            int      `json:"v"`
	Runs         []brief  `json:"runs"` // in the order in which they were named
	Waiting      int      `json:"waiting"`
	StillRunning []string `json:"still_running"` // their ids
	Notes        []string `json:"notes,omitempty"`
}

// brief is a run, as far as a model has use for it.
type brief struct {
	Run      string            `json:"run"`
	Lane     string            `json:"lane,omitempty"`
	Engine   string            `json:"engine,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	State    string            `json:"state"`
	Outcome  string            `json:"outcome,omitempty"`
	Success  bool              `json:"success"`
	Result   string            `json:"result,omitempty"`
	Kind     string            `json:"kind,omitempty"`
	Message  string            `json:"message,omitempty"`
	ExitCode *int              `json:"exit_code,omitempty"`
	Signal   int               `json:"signal,omitempty"`
	Reason   *handsel.Reason   `json:"reason,omitempty"`
	Review   string            `json:"review,omitempty"`
	Place    int               `json:"place,omitempty"` // in line
	Orphaned bool              `json:"orphaned,omitempty"`
}

func briefOf(k *handsel.KnownRun) brief {
	return brief{
		Run: k.ID, Lane: k.Lane, Engine: k.Engine, Labels: k.Labels, State: k.State, Outcome: k.Outcome, Success: k.Succeeded(), Result: k.Result, Kind: k.Kind, Message: k.Message,
		ExitCode: k.ExitCode, Signal: k.Signal, Reason: k.Reason, Review: k.Review, Place: k.Place, Orphaned: k.Orphaned,
	}
}

func briefs(runs []handsel.KnownRun) []brief {
	all := make([]brief, len(runs))
	for i := range runs {
		all[i] = briefOf(&runs[i])
	}
	return all
}

// wait waits for runs.
func (s *server) wait(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	v, err := s.await(ctx, c, c.args.list("runs"), c.args.flag("any"))
	if missing, ok := errors.AsType[*handsel.NotFound](err); ok && isGroup(missing.Name) {
		return nil, fmt.Errorf("%w that has not ended yet; list tells what has ended", err)
	}
	if err != nil {
		return nil, err
	}
	going := v.going()
	var text []string
	for i := range v.runs {
		text = append(text, runLine(&v.runs[i]))
	}
	if len(going) > 0 {
		text = append(text, fmt.Sprintf("%d of %d still_running: call wait again, or why to learn what holds it up", len(going), len(v.runs)))
	}
	for _, n := range v.notes {
		text = append(text, "note: "+plain(n))
	}
	return told(waited{V: 1, Runs: briefs(v.runs), Waiting: len(going), StillRunning: going, Notes: v.notes}, "%s", strings.Join(text, "\n")), nil
}

// isGroup tells of a name that means all that has not ended of some kind.
func isGroup(name string) bool {
	kind, _, _ := strings.Cut(name, ":")
	return slices.Contains([]string{"label", "engine", "pool"}, kind)
}

// vigil is a wait and what it has seen.
type vigil struct {
	runs  []handsel.KnownRun
	notes []string
}

// going are the ids of those that have not ended.
func (v *vigil) going() []string {
	ids := []string{}
	for i := range v.runs {
		if !v.runs[i].Ended() {
			ids = append(ids, v.runs[i].ID)
		}
	}
	return ids
}

// await waits until all that the names mean has ended, or the first of it, or the
// time is over, or the client is gone. Giving up touches nothing.
func (s *server) await(ctx context.Context, c *call1, names []string, first bool) (*vigil, error) {
	found, err := s.home.FindAllWork(ctx, names)
	if err != nil {
		return nil, err
	}
	v := &vigil{runs: found}
	at := make(map[string]int, len(found))
	for i := range found {
		at[found[i].ID] = i
	}
	limit := seconds(c.args.number("wait_s", patience))
	bound, stop := context.WithTimeout(ctx, limit)
	defer stop()
	go func() { // until the wait is over
		select {
		case <-s.gone:
			stop()
		case <-bound.Done():
		}
	}()
	tell := s.teller(bound, c, limit)
	defer tell.close()
	err = s.home.WaitWork(bound, found, handsel.WaitOptions{
		Any:  first,
		Note: func(text string) { v.notes = append(v.notes, text); tell.say(text) },
		Told: func(k handsel.KnownRun) {
			v.runs[at[k.ID]] = k
			tell.say(runLine(&k))
		},
	})
	switch {
	case err == nil, ctx.Err() == nil && bound.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		s.again(ctx, v)
		return v, nil
	}
	return nil, err
}

// again looks once more at what goes on, for the answer to say how it stands now.
func (s *server) again(ctx context.Context, v *vigil) {
	for i := range v.runs {
		if v.runs[i].Ended() || i >= fewListed {
			continue
		}
		if now, err := s.home.FindWork(ctx, "run:"+v.runs[i].ID, true); err == nil && len(now) == 1 {
			v.runs[i] = now[0]
		}
	}
}

// teller tells the client of a wait's progress, if the client wants to know.
type teller struct {
	says chan string
	done chan struct{}
}

func (s *server) teller(ctx context.Context, c *call1, limit time.Duration) *teller {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	t := &teller{says: make(chan string, 16), done: make(chan struct{})}
	began, last := time.Now(), 0.0
	tell := func(text string) {
		gone := time.Since(began).Seconds()
		last = max(gone, last+0.001) // it has to grow
		_ = c.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: last, Total: limit.Seconds(), Message: text})
	}
	go func() {
		defer close(t.done)
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		tell("waiting")
		for {
			select {
			case text, more := <-t.says:
				if !more {
					return
				}
				tell(text)
			case <-tick.C:
				tell("waiting")
			}
		}
	}()
	return t
}

// say tells one thing; when too much is to be told at once, some of it is not.
func (t *teller) say(text string) {
	if t == nil {
		return
	}
	select {
	case t.says <- plain(text):
	default:
	}
}

// close returns when the last was told.
func (t *teller) close() {
	if t != nil {
		close(t.says)
		<-t.done
	}
}

// runLine is a run in one line.
func runLine(k *handsel.KnownRun) string {
	text := "run " + k.ID
	if k.Lane != "" {
		text += " lane " + k.Lane
	}
	text += ": " + k.Word()
	var more []string
	switch {
	case k.Succeeded():
		more = append(more, "succeeded")
	case k.Ended() && k.ExitCode != nil && k.Signal == 0:
		more = append(more, fmt.Sprintf("exit status %d", *k.ExitCode))
	case k.Signal != 0:
		more = append(more, fmt.Sprintf("signal %d", k.Signal))
	}
	if k.Kind != "" {
		more = append(more, "failed: "+k.Kind)
	}
	if k.Message != "" {
		more = append(more, k.Message)
	}
	if k.Reason != nil {
		more = append(more, k.Reason.Code+": "+k.Reason.Message)
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, "; ") + ")"
	}
	return plain(text)
}
