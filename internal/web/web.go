// Package web is the window for browsers: one page, served to this machine
// alone, that shows who may do what and lets a person decide.
//
// It guarantees: it listens on a loopback address or not at all; what it serves
// without a session holds nothing of the home; a session comes from a token that
// works once; a request whose Host or Origin is not ours is refused; whatever
// changes something is a POST by the session, with its key, and is decided by the
// library, whose refusal is shown as it is. All that shares in looking shares one
// look, and nobody looks while nobody has the page open. A reader that does not
// keep up is dropped and begins again with the whole.
//
// It does not guarantee anything against a process of the same user, which can do
// all that the page can without it, nor against one that reads this process's
// output, where the link stands. It keeps nothing on disk and knows no rules of its
// own: what waits, and why, is the library's word.
package web

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/handsel/handsel"
)

// Looker takes looks at one home. *handsel.Watch is one.
type Looker interface {
	Look(ctx context.Context) *handsel.Board
	Dispatched() bool // may be asked while a look goes on
}

// Home is what the page asks and has done. *handsel.Home is one.
type Home interface {
	Why(ctx context.Context, x string) (*handsel.Explained, error)
	Durations(f handsel.RunFilter) (*handsel.DurationList, error)
	FindWork(ctx context.Context, x string, all bool) ([]handsel.KnownRun, error)

	Accept(ctx context.Context, x string, o handsel.VerdictOptions) (*handsel.Given, error)
	Reject(ctx context.Context, x string, o handsel.VerdictOptions) (*handsel.Given, error)
	Cancel(ctx context.Context, r handsel.KnownRun) (*handsel.Cancelled, error)
	Hold(ctx context.Context, x, reason string, until time.Time) (*handsel.Ordered, error)
	Drain(ctx context.Context, reason string) (*handsel.Ordered, error)
	Resume(ctx context.Context, x string) ([]handsel.Order, string, error)
	Retry(ctx context.Context, x string) (*handsel.Acted, error)
	SetPriority(ctx context.Context, x string, priority int) (*handsel.Acted, error)
}

// Options say what is served, and where.
type Options struct {
	Listen string // a loopback address; port 0 is any that is free
	Home   Home
	Look   Looker // belongs to the server from now on

	// Journal tells the transfers of x, or of everything when x is empty, in the
	// order of time. What cannot be read is told to problem.
	Journal func(ctx context.Context, x string, problem func(error)) (iter.Seq[handsel.JournalEvent], error)

	pace pace // of tests; the zero value is the real one
}

// pace is how often what happens.
type pace struct {
	look   time.Duration // at least between the beginnings of two looks
	beat   time.Duration // at most between two messages to a page
	sample time.Duration // between two samples of the pools
	write  time.Duration // in which a reader must take a message
}

func (p pace) orReal() pace {
	if p == (pace{}) {
		p = pace{look: 500 * time.Millisecond, beat: 2 * time.Second, sample: 5 * time.Second, write: 10 * time.Second}
	}
	return p
}

// Bounds of what a request may take.
const (
	headerPatience = 5 * time.Second
	readPatience   = 10 * time.Second
	answerPatience = 30 * time.Second
	idlePatience   = time.Minute
	maxHeader      = 16 << 10
	maxBody        = 64 << 10
	goodbye        = 3 * time.Second // for answers under way when it ends
)

// Taken reports that another process listens at the address.
type Taken struct{ Addr string }

func (e *Taken) Error() string {
	return fmt.Sprintf("listen at %s: another process has this port; --listen 127.0.0.1:0 takes any that is free", e.Addr)
}

// Server serves the page to the browsers of this machine.
type Server struct {
	o        Options
	listener net.Listener
	door     *door
	hub      *hub
	deciding chan struct{} // one verdict at a time: each may run checks
	spans    spans
	answers  answers
}

// Open listens. Nothing is served before Serve. *handsel.BadOption refuses an
// address that others than this machine could reach; *Taken is a port in use.
func Open(o Options) (*Server, error) {
	at, err := loopback(o.Listen)
	if err != nil {
		return nil, err
	}
	o.pace = o.pace.orReal()
	l, err := net.Listen("tcp", at)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &Taken{at}
	case err != nil:
		return nil, fmt.Errorf("listen at %s: %w", at, err)
	}
	return &Server{o: o, listener: l, door: newDoor(l.Addr().String()), hub: newHub(o), deciding: make(chan struct{}, 1)}, nil
}

// loopback reads an address that only this machine reaches.
func loopback(text string) (string, error) {
	bad := &handsel.BadOption{Option: "listen", Value: text, Why: "it must be a loopback address with a port, such as 127.0.0.1:0: the page is for this machine alone"}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", bad
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return "", bad
	}
	if host == "localhost" { // whatever a resolver makes of it
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Unmap().IsLoopback() || ip.Zone() != "" {
		return "", bad
	}
	return net.JoinHostPort(ip.Unmap().String(), port), nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Link is what a browser opens. It works once. The token stands in the fragment,
// which no browser sends, so that it gets into no log and no Referer.
func (s *Server) Link() string { return "http://" + s.Addr() + "/#token=" + s.door.token }

// Serve serves until ctx ends, and returns when nothing of it is left.
func (s *Server) Serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	hubEnded := make(chan struct{})
	go func() {
		defer close(hubEnded)
		s.hub.run(ctx)
	}()
	srv := &http.Server{
		Handler: s.handler(ctx), ReadHeaderTimeout: headerPatience, ReadTimeout: readPatience, WriteTimeout: answerPatience,
		IdleTimeout: idlePatience, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true, // that one asks no guard
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.listener) }()
	var err error
	select {
	case err = <-served:
		stop()
		_ = srv.Close()
	case <-ctx.Done():
		late, enough := context.WithTimeout(context.Background(), goodbye)
		if srv.Shutdown(late) != nil {
			_ = srv.Close() // whoever has not heard by now hears it so
		}
		enough()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = e
		}
	}
	<-hubEnded
	s.answers.wait()
	return err
}

// answers are those under way. Once somebody waits for their end, none begins.
type answers struct {
	mu    sync.Mutex
	over  bool
	going sync.WaitGroup
}

func (a *answers) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.going.Add(1)
	}
	return !a.over
}

func (a *answers) wait() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.going.Wait()
}

// Close gives the address up where Serve was never called.
func (s *Server) Close() error { return s.listener.Close() }
