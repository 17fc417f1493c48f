package handsel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/record"
)

type (
	// QueueRow is a waiting lane, where it stands and why it waits.
	QueueRow = api.Waiting

	// NoDispatcher reports that no dispatcher runs.
	NoDispatcher = api.NotRunning

	// SilentDispatcher reports a dispatcher that runs and does not answer.
	SilentDispatcher = api.NotAnswering

	// Declined is the dispatcher's no, with its reason.
	Declined = api.Refused
)

// Where a look at the queue comes from.
const (
	FromDispatcher = "dispatcher" // as it has the rows at this moment
	FromEntries    = "entries"    // the files it last wrote
)

// What a look found of the dispatcher.
const (
	DispatcherAnswers = "answers"
	DispatcherSilent  = "silent" // it has the home and does not answer: stopped, starting or busy
	DispatcherNone    = "none"
)

// SeenDispatcher is the dispatcher as a look found it.
type SeenDispatcher struct {
	State     string      `json:"state"`
	Pid       int         `json:"pid,omitempty"`
	Version   string      `json:"version,omitempty"`
	Heartbeat record.Time `json:"heartbeat,omitzero"` // when it last said that it is there
	Message   string      `json:"message,omitempty"`
}

// QueueView is the waiting lanes in the order in which they would start.
type QueueView struct {
	V          int            `json:"v"`
	Root       string         `json:"root"`
	At         record.Time    `json:"at"`
	Source     string         `json:"source"`
	AgeS       float64        `json:"age_s"` // how old what the source says may be; 0: of this moment
	Dispatcher SeenDispatcher `json:"dispatcher"`
	Draining   bool           `json:"draining"`
	Running    int            `json:"running"` // agents that hold a slot, or attempts that go on
	Rows       []QueueRow     `json:"rows"`
	Problems   []string       `json:"problems"`
}

// Queue looks at the waiting lanes. It asks the dispatcher, and reads what it
// left on disk when it does not answer. It changes nothing and answers within
// two seconds (C146).
func (h *Home) Queue(ctx context.Context) *QueueView {
	q := &QueueView{V: 1, Root: h.dir.Path, At: record.At(machine.Now()), Rows: []QueueRow{}, Problems: []string{}}
	client, err := api.Dial(h.dir)
	if err == nil {
		defer client.Close()
		err = q.ask(ctx, client)
	}
	if err != nil {
		q.read(h, err)
	}
	q.seeOrders(h)
	return q
}

// ask takes the dispatcher's word.
func (q *QueueView) ask(ctx context.Context, c *api.Client) error {
	ctx, stop := context.WithTimeout(ctx, api.Patience)
	defer stop()
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	rows, err := c.Queue(ctx, "")
	if err != nil {
		return err
	}
	q.Source, q.Rows, q.Running = FromDispatcher, append(q.Rows, rows.Rows...), st.Attempts
	q.Dispatcher = SeenDispatcher{State: DispatcherAnswers, Pid: st.Pid, Version: st.Version, Heartbeat: q.At}
	return nil
}

// read takes what the entries say, and the kernel's word on the lanes.
func (q *QueueView) read(h *Home, err error) {
	q.Source, q.Dispatcher = FromEntries, h.absent(err)
	if beat := q.Dispatcher.Heartbeat; !beat.IsZero() {
		q.AgeS = record.Seconds(q.At.Sub(beat.Time))
	}
	entries, problems, err := attempt.Entries(h.dir)
	for _, p := range problems {
		q.Problems = append(q.Problems, p.Error())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		q.Problems = append(q.Problems, err.Error())
	}
	rows := make([]*attempt.Row, 0, len(entries))
	said := map[string]*attempt.Entry{}
	for _, e := range waitingEntries(entries) {
		rows, said[e.Attempt] = append(rows, rowOf(e)), e
	}
	q.Rows = append(q.Rows, api.Order(rows)...)
	owners := h.owners(q)
	for i := range q.Rows {
		r := &q.Rows[i]
		r.Reason = q.Dispatcher.reason(said[r.ID], owners[r.Lane])
	}
}

// absent is what is known of a dispatcher that could not be asked.
func (h *Home) absent(err error) SeenDispatcher {
	d := SeenDispatcher{State: DispatcherNone, Message: err.Error()}
	if silent, ok := errors.AsType[*api.NotAnswering](err); ok {
		d.State, d.Pid = DispatcherSilent, silent.Pid
	} else if !errors.As(err, new(*api.NotRunning)) {
		d.State = DispatcherSilent
	}
	if info, err := os.Lstat(filepath.Join(h.dir.Path, api.SelfFile)); err == nil {
		d.Heartbeat = record.At(info.ModTime())
	}
	return d
}

// waitingEntries are those of lanes that wait; an entry stays while its attempt
// goes on.
func waitingEntries(all []*attempt.Entry) []*attempt.Entry {
	return slices.DeleteFunc(all, func(e *attempt.Entry) bool { return e.State != attempt.Queued && e.State != attempt.Starting })
}

// rowOf is as much of a row as its entry says.
func rowOf(e *attempt.Entry) *attempt.Row {
	return &attempt.Row{
		V: e.V, Lane: e.Lane, ID: e.Attempt, QueueStart: e.QueueStart, Priority: e.Priority,
		State: e.State, StateSince: e.StateSince, Placement: e.Placement,
	}
}

// owners are the lanes that somebody has, other than for their row.
func (h *Home) owners(q *QueueView) map[string]lane.Seen {
	lanes, problems, err := lane.List(h.dir)
	if err != nil {
		q.Problems = append(q.Problems, err.Error())
	}
	for _, p := range problems {
		q.Problems = append(q.Problems, p.Error())
	}
	owners := map[string]lane.Seen{}
	for _, s := range lanes {
		if s.State != lane.Free && !(s.Record.Owned() && (s.Record.Role == lane.RoleDispatcher || s.Record.Role == lane.RoleLauncher)) {
			owners[s.Name] = s
		}
	}
	return owners
}

// reason says why a row waits while its dispatcher cannot say so.
func (d *SeenDispatcher) reason(e *attempt.Entry, owner lane.Seen) *Reason {
	switch {
	case owner.State != lane.Free:
		return &Reason{Class: "ownership", Code: CodeLaneOwned, Message: ownedText(owner), Holders: ownerOf(owner), Retryable: true}
	case e != nil && e.State == record.Starting && d.State == DispatcherSilent:
		return nil
	case d.State == DispatcherSilent:
		return &Reason{Class: "ownership", Code: api.CodeNoAnswer, Message: d.Message, Retryable: true}
	}
	return &Reason{Class: "ownership", Code: api.CodeNotThere, Message: d.Message, Retryable: true}
}

func ownedText(s lane.Seen) string {
	return fmt.Sprintf("lane %s is owned by %s", strconv.QuoteToASCII(s.Name), s.Owner())
}

// seeOrders notes a drain, and counts what goes on under it.
func (q *QueueView) seeOrders(h *Home) {
	orders, err := hold.List(h.dir.Holds())
	if err != nil {
		q.Problems = append(q.Problems, "no start is admitted: "+err.Error())
	}
	for _, o := range orders.All {
		q.Draining = q.Draining || o.Kind == hold.Drain
	}
	if q.Draining {
		q.Running = max(q.Running, h.Going())
	} else if taken, err := h.agents(); err == nil {
		q.Running = max(q.Running, taken)
	}
}

// entry reads a lane's entry.
func (h *Home) entry(name string) (*attempt.Entry, error) { return attempt.ReadEntry(h.dir, name) }

// reasonFrom puts into the words of C13 what can say its reason itself, and what
// keeps a dispatcher from being asked; nil for everything else.
func reasonFrom(err error) *Reason {
	if own, ok := errors.AsType[interface {
		error
		Reason() *Reason
	}](err); ok {
		return own.Reason()
	}
	if no, ok := errors.AsType[*Declined](err); ok {
		return &no.Reason
	}
	if none, ok := errors.AsType[*NoDispatcher](err); ok {
		return &Reason{Class: "ownership", Code: none.Code(), Message: err.Error(), Retryable: true}
	}
	if silent, ok := errors.AsType[*SilentDispatcher](err); ok {
		return &Reason{Class: "ownership", Code: silent.Code(), Message: err.Error(), Holders: []record.Holder{{Pid: silent.Pid}}, Retryable: true}
	}
	return nil
}
