package web

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/handsel/handsel"
)

// ask is the body of a call that changes something. A verb passes over what it has
// no use for.
type ask struct {
	X        string   `json:"x"`
	Note     string   `json:"note"`
	Evidence []string `json:"evidence"`
	Digest   string   `json:"digest"`
	Reason   string   `json:"reason"`
	ForS     int      `json:"for_s"`
	Priority int      `json:"priority"`
}

// done is what became of it.
type done struct {
	V        int      `json:"v"`
	Did      string   `json:"did"`
	Message  string   `json:"message"`
	Warnings []string `json:"warnings"`
}

// verb does one thing by the library.
type verb func(s *Server, ctx context.Context, in *ask) (*done, error)

// verbOf finds a verb. Release is none of them: it runs a command, which belongs
// into a terminal, with its directory, its environment and its output.
func verbOf(name string) verb {
	switch name {
	case "accept":
		return func(s *Server, ctx context.Context, in *ask) (*done, error) {
			return s.judge(ctx, in, s.o.Home.Accept)
		}
	case "reject":
		return func(s *Server, ctx context.Context, in *ask) (*done, error) {
			return s.judge(ctx, in, s.o.Home.Reject)
		}
	case "cancel":
		return (*Server).cancel
	case "hold":
		return (*Server).hold
	case "drain":
		return (*Server).drain
	case "resume":
		return (*Server).resume
	case "retry":
		return (*Server).retry
	case "prio":
		return (*Server).prio
	}
	return nil
}

// act does what a person asked for. It goes on when the page is closed: what was
// begun is done, and the board shows it.
func (s *Server) act(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("verb")
	do := verbOf(name)
	switch {
	case name == "release":
		refuse(w, http.StatusNotFound, "terminal_only", "a release runs a command: type it in a terminal")
		return
	case do == nil:
		refuse(w, http.StatusNotFound, "not_found", "there is no such verb here")
		return
	}
	var in ask
	if !readBody(w, r, &in) {
		return
	}
	why := badName(in.X)
	switch {
	case name == "drain" && (in.X == "" || in.X == "all"):
		why = ""
	case name == "drain":
		why = "a drain is of everything: x is all, or left out"
	}
	if why != "" {
		refuse(w, http.StatusBadRequest, "bad_request", why)
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // checks may take an hour
	_ = rc.SetWriteDeadline(time.Time{})
	if ctx.Err() != nil { // the body took its time
		refuse(w, http.StatusServiceUnavailable, "ending", "handsel web is ending, and nothing was done")
		return
	}
	out, err := do(s, ctx, &in)
	if err != nil {
		failed(w, err)
		return
	}
	out.V = 1
	if out.Warnings == nil {
		out.Warnings = []string{}
	}
	answer(w, out)
}

// judge gives a verdict. One at a time: the policy's checks may run for it.
func (s *Server) judge(ctx context.Context, in *ask, give func(context.Context, string, handsel.VerdictOptions) (*handsel.Given, error)) (*done, error) {
	select {
	case s.deciding <- struct{}{}:
		defer func() { <-s.deciding }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	signals := make(chan os.Signal, 1)
	defer context.AfterFunc(ctx, func() { signals <- syscall.SIGTERM })() // a check ends with us
	given, err := give(ctx, in.X, handsel.VerdictOptions{Evidence: in.Evidence, Note: in.Note, Digest: in.Digest, Signals: signals})
	if err != nil {
		return nil, err
	}
	v := given.Verdict
	out := &done{Did: v.Verdict, Message: fmt.Sprintf("%s run %s by %s", v.Verdict, v.Attempt, v.Who())}
	if v.Digest.Value != "" {
		out.Message += ", as " + v.Digest.Value
	}
	for _, warning := range given.Warnings {
		out.Warnings = append(out.Warnings, warning.Error())
	}
	return out, nil
}

func (s *Server) cancel(ctx context.Context, in *ask) (*done, error) {
	found, err := s.o.Home.FindWork(ctx, in.X, false)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 { // many are for a terminal, where they are listed
		return nil, &handsel.Ambiguous{Name: in.X, Fits: idsOf(found)}
	}
	c, err := s.o.Home.Cancel(ctx, found[0])
	if err != nil {
		return nil, err
	}
	out := &done{Did: c.Did, Message: c.Message}
	for _, left := range c.Survivors {
		out.Warnings = append(out.Warnings, fmt.Sprintf("still running: pid %d (%s): %s", left.Pid, left.Comm, left.Why))
	}
	return out, nil
}

func idsOf(all []handsel.KnownRun) (ids []string) {
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	return ids
}

func (s *Server) hold(ctx context.Context, in *ask) (*done, error) {
	var until time.Time
	const most = 366 * 24 * 60 * 60
	switch {
	case in.ForS < 0 || in.ForS > most:
		return nil, &handsel.BadOption{Option: "for", Value: fmt.Sprint(in.ForS), Why: "it must be between nothing and a year, in seconds"}
	case in.ForS > 0:
		until = time.Now().Add(time.Duration(in.ForS) * time.Second)
	}
	o, err := s.o.Home.Hold(ctx, in.X, in.Reason, until)
	if err != nil {
		return nil, err
	}
	return &done{Did: "held", Message: o.Order.Scope + " is held", Warnings: unheard(o.Silent)}, nil
}

func (s *Server) drain(ctx context.Context, in *ask) (*done, error) {
	o, err := s.o.Home.Drain(ctx, in.Reason)
	if err != nil {
		return nil, err
	}
	return &done{Did: "draining", Message: fmt.Sprintf("nothing new starts; %d go on", o.Running), Warnings: unheard(o.Silent)}, nil
}

func (s *Server) resume(ctx context.Context, in *ask) (*done, error) {
	gone, silent, err := s.o.Home.Resume(ctx, in.X)
	if err != nil {
		return nil, err
	}
	out := &done{Did: "resumed", Message: "nothing was held", Warnings: unheard(silent)}
	var said []string
	for i := range gone {
		said = append(said, fmt.Sprintf("%s of %s is over", gone[i].Kind, gone[i].Scope))
	}
	if len(said) > 0 {
		out.Message = strings.Join(said, "; ")
	}
	return out, nil
}

// unheard says that the dispatcher does not know yet.
func unheard(silent string) []string {
	if silent == "" {
		return nil
	}
	return []string{silent + "; it will see the change when it goes on"}
}

func (s *Server) retry(ctx context.Context, in *ask) (*done, error) {
	return acted(s.o.Home.Retry(ctx, in.X))
}

func (s *Server) prio(ctx context.Context, in *ask) (*done, error) {
	return acted(s.o.Home.SetPriority(ctx, in.X, in.Priority))
}

func acted(a *handsel.Acted, err error) (*done, error) {
	if err != nil {
		return nil, err
	}
	return &done{Did: a.Did, Message: fmt.Sprintf("%s: attempt %s", a.Did, a.Attempt)}, nil
}
