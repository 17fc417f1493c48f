package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

// Codes that both ends know.
const (
	CodeNotFound  = "not_found"
	CodeFailed    = "failed"
	CodeNotThere  = "no_dispatcher"
	CodeNoAnswer  = "dispatcher_silent"
	CodeLaneOwned = "lane_owned"
	CodeQueued    = "lane_queued"
	CodeEnded     = "already_ended"
)

// NotRunning reports that no dispatcher has this home.
type NotRunning struct{ Home string }

func (e *NotRunning) Error() string {
	return "no dispatcher is running here (handsel dispatch starts one)"
}

// Code is the reason code.
func (e *NotRunning) Code() string { return CodeNotThere }

// NotAnswering reports a dispatcher that has the home and does not answer. It
// may be stopped, starting, or busy; nothing of it was touched (C028).
type NotAnswering struct {
	Pid   int // 0: not known
	State string
	Err   error
}

func (e *NotAnswering) Error() string {
	who := "the dispatcher"
	if e.Pid != 0 {
		who += ", pid " + strconv.Itoa(e.Pid) + ","
	}
	text := who + " is not answering"
	if e.State != "" {
		text += ": " + e.State
	}
	return text
}

// Code is the reason code.
func (e *NotAnswering) Code() string { return CodeNoAnswer }

func (e *NotAnswering) Unwrap() error { return e.Err }

// Refused is an answer that is a no, with its reason.
type Refused struct {
	Status int // of HTTP
	Reason record.Reason
}

func (e *Refused) Error() string { return e.Reason.Message }

// Code is the reason code.
func (e *Refused) Code() string { return e.Reason.Code }

// Client asks one home's dispatcher. It is safe for several goroutines.
type Client struct {
	home home.Dir
	http *http.Client
}

// Dial finds out whether a dispatcher listens. The error is *NotRunning,
// *NotAnswering, or one of the home itself.
func Dial(d home.Dir) (*Client, error) {
	ctx, stop := context.WithTimeout(context.Background(), Patience)
	defer stop()
	c := &Client{home: d}
	first := make(chan net.Conn, 1)
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case conn := <-first:
				return conn, nil
			default:
				return d.DialUnix(ctx, Socket)
			}
		},
		DisableCompression: true, MaxIdleConns: 2, IdleConnTimeout: 5 * time.Second,
	}}
	conn, err := d.DialUnix(ctx, Socket)
	if err != nil {
		return nil, c.unreachable(err)
	}
	first <- conn
	return c, nil
}

// Close lets go of idle connections.
func (c *Client) Close() {
	if conn, err := c.http.Transport.(*http.Transport).DialContext(closed, "", ""); err == nil {
		conn.Close() // the one that Dial made and nobody used
	}
	c.http.CloseIdleConnections()
}

// closed is a context in which nothing new is dialled.
var closed = func() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}()

// unreachable says why nobody could be asked: the lock tells whether a
// dispatcher has the home, never a connection that failed.
func (c *Client) unreachable(err error) error {
	who, held := Judge(c.home)
	if !held {
		if ours(err) {
			return fmt.Errorf("reach the dispatcher: %w", err)
		}
		return &NotRunning{c.home.Path}
	}
	silent := &NotAnswering{Err: err}
	if who != nil {
		silent.Pid, silent.State = who.Pid, who.doing()
	}
	return silent
}

// ours tells an error of the place, or of this process, from one of a peer that
// is not there.
func ours(err error) bool {
	return errors.As(err, new(*home.Untrusted)) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Status asks for the dispatcher's status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return get[Status](ctx, c, PathStatus, nil)
}

// Queue asks for the waiting rows, of one lane if it is not empty.
func (c *Client) Queue(ctx context.Context, lane string) (*Queue, error) {
	q := url.Values{}
	set(q, "lane", lane)
	return get[Queue](ctx, c, PathQueue, q)
}

// Attempts asks for attempts: with f.Open those that have not ended.
func (c *Client) Attempts(ctx context.Context, f Filter) (*Attempts, error) {
	q := url.Values{}
	set(q, "lane", f.Lane)
	set(q, "id", f.Attempt)
	if f.Open {
		q.Set("open", "1")
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return get[Attempts](ctx, c, PathAttempts, q)
}

// Events asks for events, oldest first.
func (c *Client) Events(ctx context.Context, f Filter) (*Events, error) {
	return get[Events](ctx, c, PathEvents, f.events())
}

func (f Filter) events() url.Values {
	q := url.Values{"after": {strconv.FormatInt(f.After, 10)}}
	set(q, "lane", f.Lane)
	set(q, "attempt", f.Attempt)
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

func set(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

// Cancel ends an attempt in whatever state it is.
func (c *Client) Cancel(ctx context.Context, t Target) (*Done, error) {
	return post[Done](ctx, c, PathCancel, t)
}

// Prio changes a waiting row's priority.
func (c *Client) Prio(ctx context.Context, t Target, priority int) (*Done, error) {
	return post[Done](ctx, c, PathPrio, Prio{t, priority})
}

// Retry queues an attempt that ended once more.
func (c *Client) Retry(ctx context.Context, t Target) (*Done, error) {
	return post[Done](ctx, c, PathRetry, t)
}

// Reconcile asks what became of an attempt, after the dispatcher has looked.
func (c *Client) Reconcile(ctx context.Context, t Target) (*Done, error) {
	return post[Done](ctx, c, PathReconcile, t)
}

// Stop asks the dispatcher to end.
func (c *Client) Stop(ctx context.Context, s Stop) (*Stopping, error) {
	return post[Stopping](ctx, c, PathStop, s)
}

// Wake says that something on disk has changed.
func (c *Client) Wake(ctx context.Context) error {
	_, err := post[Woken](ctx, c, PathWake, struct{}{})
	return err
}

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (*T, error) {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return call[T](ctx, c, http.MethodGet, path, nil)
}

func post[T any](ctx context.Context, c *Client, path string, body any) (*T, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return call[T](ctx, c, http.MethodPost, path, data)
}

func call[T any](ctx context.Context, c *Client, method, path string, body []byte) (*T, error) {
	ctx, stop := bounded(ctx)
	defer stop()
	resp, err := c.send(ctx, method, path, body, "application/json")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(T)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return nil, c.broken(ctx, err)
	}
	return out, nil
}

// bounded gives a call its time where the caller has set none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, Patience)
}

// send makes one request and reads the answer's head. The body is the
// caller's to close.
func (c *Client) send(ctx context.Context, method, path string, body []byte, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://handsel"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

func refusal(resp *http.Response) error {
	var f failure
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&f); err != nil || f.Error.Code == "" {
		f.Error = record.Reason{Class: "resource", Code: CodeFailed, Message: "the dispatcher answered " + resp.Status}
	}
	return &Refused{resp.StatusCode, f.Error}
}

// broken says why a call ended early. A caller that gave up says so itself.
func (c *Client) broken(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return c.unreachable(err)
}

// Follow tells fn of events as they come, those after f.After first, until ctx
// ends, fn returns an error, or the dispatcher is gone: then the error says so,
// and the caller may ask again from the last seq it saw.
func (c *Client) Follow(ctx context.Context, f Filter, fn func(Event) error) error {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	silence := time.AfterFunc(Patience, stop)
	defer silence.Stop()
	err := c.follow(inner, f, func(e *Event) error {
		silence.Stop() // what fn takes is not the dispatcher's silence
		defer silence.Reset(3 * Beat)
		if e == nil {
			return nil
		}
		return fn(*e)
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case inner.Err() != nil:
		return c.unreachable(errSilent)
	}
	return err
}

var errSilent = errors.New("it sent nothing for too long")

// follow tells fn of each event, and of signs of life by nil.
func (c *Client) follow(ctx context.Context, f Filter, fn func(*Event) error) error {
	resp, err := c.send(ctx, http.MethodGet, PathEvents+"?"+f.events().Encode(), nil, StreamType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e *Event
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			e = new(Event)
			if err := json.Unmarshal([]byte(data), e); err != nil {
				return fmt.Errorf("read an event: %w", err)
			}
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return c.unreachable(err)
	}
	return c.unreachable(io.EOF)
}
