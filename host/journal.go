package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/queue"
)

// database is the dispatcher's file in the home.
const database = "handsel.db"

// Journal tells what the filter chooses of every transfer that is on record, in
// the order of time: what the dispatcher wrote into its database, and what all
// others wrote into journal.ndjson (P11). It needs no dispatcher and changes
// nothing. What could not be read is told to problem, and what is kept no longer
// is said there too, as *NotKept, before the last event was told.
func Journal(h *handsel.Home, f handsel.JournalFilter, problem func(error)) iter.Seq[handsel.JournalEvent] {
	at := home.Dir{Path: h.Path(), From: h.From()}
	file := journal.Read(at, f, func(p *journal.Problem) { problem(p) })
	return journal.Merge(events(filepath.Join(at.Path, database), f, problem), file)
}

// NotKept says that a journal does not begin at the beginning, which is no fault
// of it.
type NotKept struct {
	Attempts int64 // whose events are gone with them
}

func (e *NotKept) Error() string {
	return fmt.Sprintf("the dispatcher's events of %d attempts that ended long ago are kept no longer (runs.keep_days)", e.Attempts)
}

// events tells those of the database, a short read at a time.
func events(path string, f journal.Filter, problem func(error)) iter.Seq[journal.Event] {
	return func(yield func(journal.Event) bool) {
		db, err := queue.Look(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			problem(fmt.Errorf("the dispatcher's events: %w", err))
			return
		}
		defer db.Close()
		if n, err := db.Pruned(); err == nil && n > 0 && f.Lane == "" && f.Attempt == "" {
			problem(&NotKept{n})
		}
		ask := queue.Filter{Lane: f.Lane, Attempt: f.Attempt}
		for {
			list, err := db.Events(ask)
			if err != nil {
				problem(fmt.Errorf("the dispatcher's events: %w", err))
				return
			}
			for i := range list {
				e := transfer(&list[i])
				if f.Wants(&e) && !yield(e) {
					return
				}
				ask.After = list[i].Seq
			}
			if len(list) == 0 {
				return
			}
		}
	}
}

// The parties to what the dispatcher does.
const (
	launcher   = "launcher"
	dispatcher = "dispatcher"
	driver     = "driver"
	nobody     = "nobody"
)

// transfer is one change of the database as a transfer: which permission passed
// with it, and by what it is proven.
func transfer(e *queue.Event) journal.Event {
	out := journal.Event{
		V: 1, At: e.At.Time, Permission: journal.Ownership, What: e.What, Lane: e.Lane, Attempt: e.Attempt, Engine: e.Engine,
		Text: e.Detail, Source: journal.FromDatabase, Seq: e.Seq,
	}
	run := "run.json of " + e.Attempt
	switch e.What {
	case queue.Accepted:
		out.From, out.To, out.Evidence = launcher, dispatcher, []string{"the lane's lock was passed", "the row was committed"}
	case queue.Offered:
		out.Permission, out.From, out.To, out.Evidence = journal.Resource, "pools", dispatcher, []string{"slot locks held", "token"}
	case queue.Withdrawn:
		out.Permission, out.From, out.To, out.Evidence = journal.Resource, dispatcher, "pools", []string{"token burned"}
	case queue.Granted:
		out.From, out.To, out.Evidence = dispatcher, driver, []string{"token shown"}
		if fence, pid, ok := strings.Cut(e.Detail, ", pid "); ok { // as the database says to whom
			out.Identity, out.To = fence, driver+", pid "+pid
		}
	case queue.Begun:
		out.From, out.To, out.Evidence = driver, "agent", []string{"begun.N of " + e.Attempt}
	case queue.Requeued:
		out.From, out.To, out.Evidence = driver, dispatcher, []string{"begun.N of " + e.Attempt}
	case queue.Ended:
		out.From, out.To, out.Outcome = driver, nobody, firstWord(e.Detail)
		if e.From == "queued" {
			out.From = dispatcher
		}
		out.Evidence = []string{run}
	case queue.Moved:
		out.Permission, out.From, out.To = journal.Resource, "its place in line", "another"
	}
	return out
}

func firstWord(text string) string {
	for i, c := range text {
		if c == ' ' || c == ':' {
			return text[:i]
		}
	}
	return text
}

// Subject is what X means in the journal: the filter that chooses its transfers,
// and what stands there now, if anything of it is known besides.
type Subject struct {
	Filter handsel.JournalFilter
	Kind   string // lane, run, engine
	Name   string
	Now    *handsel.KnownRun // the present run or attempt, or the last; nil = an engine, or not known
}

// JournalSubject finds out what X means (C4): a lane and all of its attempts, one
// run or attempt, or an engine. What is known to the journal only is found there.
// The error is *handsel.NotFound, *handsel.Ambiguous or *handsel.BadName.
func JournalSubject(ctx context.Context, h *handsel.Home, x string) (*Subject, error) {
	kind, name, prefixed := strings.Cut(x, ":")
	switch {
	case prefixed && kind == "engine":
		return engineSubject(h, name)
	case prefixed && (kind == "pool" || kind == "label"):
		return nil, &handsel.BadOption{Option: "X", Value: x, Why: "the journal knows lanes, runs, attempts and engines"}
	}
	found, err := h.FindWork(ctx, x, true)
	switch {
	case errors.As(err, new(*handsel.NotFound)):
		if s := written(h, x); s != nil {
			return s, nil
		}
		if s, bad := engineSubject(h, x); bad == nil {
			return s, nil
		}
		return nil, err
	case err != nil:
		return nil, err
	case len(found) == 1 && found[0].Lane != "" && (kind == "lane" || found[0].Lane == x):
		return &Subject{handsel.JournalFilter{Lane: found[0].Lane}, "lane", found[0].Lane, &found[0]}, nil
	case len(found) == 1:
		return &Subject{handsel.JournalFilter{Attempt: found[0].ID}, "run", found[0].ID, &found[0]}, nil
	}
	if s, bad := engineSubject(h, x); bad == nil {
		return s, nil
	}
	return nil, &handsel.Ambiguous{Name: x, Fits: idsOf(found)}
}

func idsOf(found []handsel.KnownRun) (ids []string) {
	for i := range found {
		ids = append(ids, "run:"+found[i].ID)
	}
	return ids
}

func engineSubject(h *handsel.Home, name string) (*Subject, error) {
	canonical, err := h.EngineName(name)
	if err != nil {
		return nil, err
	}
	return &Subject{Filter: handsel.JournalFilter{Engine: canonical}, Kind: "engine", Name: canonical}, nil
}

// written finds what only the journal still knows: a lane by its name, a run by
// its id or a unique end of it. Several make it nothing.
func written(h *handsel.Home, x string) *Subject {
	kind, name, prefixed := strings.Cut(x, ":")
	if !prefixed || kind != "lane" && kind != "run" {
		kind, name = "", x
	}
	ids, lane := map[string]bool{}, false
	for e := range Journal(h, handsel.JournalFilter{}, func(error) {}) {
		lane = lane || kind != "run" && e.Lane == name
		if kind != "lane" && len(name) >= shortestEnd && strings.HasSuffix(e.Attempt, name) {
			ids[e.Attempt] = true
		}
	}
	switch {
	case lane && len(ids) == 0:
		return &Subject{Filter: handsel.JournalFilter{Lane: name}, Kind: "lane", Name: name}
	case !lane && len(ids) == 1:
		for id := range ids {
			return &Subject{Filter: handsel.JournalFilter{Attempt: id}, Kind: "run", Name: id}
		}
	}
	return nil
}

// shortestEnd is how much of an id names it (C4).
const shortestEnd = 6
