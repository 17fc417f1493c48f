package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// farewell is how long answers are waited for once the input has ended. What
	// waits for runs returns at once then.
	farewell = 1500 * time.Millisecond
	// maxCalls is how many requests may be under way. Beyond it the next is taken up
	// when one of them is answered.
	maxCalls = 256
	// maxUnderway is how many bytes their arguments may have together, but for the
	// last of them.
	maxUnderway = 2 * maxLine
)

// conn stands between the client and the SDK, as its transport: it takes up only
// messages that have the form of one, answers the others itself, and keeps the ids
// as they came. The SDK sees ids of ours, so that whatever may stand for one in
// JSON comes back byte for byte.
type conn struct {
	in  *intake
	out io.Writer

	writing sync.Mutex // held while a line is written

	mu      sync.Mutex
	calls   map[int64]*call  // by our id
	byRaw   map[string]int64 // those that are not being answered yet, by the client's id
	bytes   int              // of the arguments of calls
	last    int64
	greeted bool          // an initialize was answered with success
	settled chan struct{} // closed and made anew when a call was answered
	closed  chan struct{}
	once    sync.Once
	failure error // why nothing more can be written
}

// call is a request under way.
type call struct {
	id        json.RawMessage
	method    string
	bytes     int  // of its arguments
	cancelled bool // by the client, which expects no answer then
}

func newConn(in io.Reader, out io.Writer) *conn {
	c := &conn{in: newIntake(), out: out, calls: map[int64]*call{}, byRaw: map[string]int64{}, settled: make(chan struct{}), closed: make(chan struct{})}
	go c.in.read(in)
	return c
}

// Connect makes conn its own transport.
func (c *conn) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// SessionID is empty: there is one client.
func (c *conn) SessionID() string { return "" }

// Close ends the reading. The client's descriptors stay open.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.in.stop()
	return nil
}

// Read is the next message for the SDK. At the end of the input it waits for the
// answers that are still owed, for a bounded time.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if err := c.room(ctx); err != nil {
			return nil, err
		}
		p, err := c.in.take()
		if err != nil {
			return nil, c.end(ctx)
		}
		m, ok := judge(p)
		switch {
		case !ok:
			continue
		case m.fault != nil:
			for _, id := range append([]json.RawMessage{m.id}, m.also...) {
				if err := c.refuse(id, m.fault); err != nil {
					return nil, err
				}
			}
			continue
		}
		request, f := c.admit(&m)
		if f != nil {
			if err := c.refuse(m.id, f); err != nil {
				return nil, err
			}
		}
		if request != nil {
			return request, nil
		}
	}
}

// room waits until another request may be taken up.
func (c *conn) room(ctx context.Context) error {
	for {
		c.mu.Lock()
		full, settled := len(c.calls) >= maxCalls || c.bytes > maxUnderway, c.settled
		c.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-settled:
		case <-c.closed:
			return io.EOF
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// admit gives a request an id of ours. A notification passes as it is, but for the
// call it names.
func (c *conn) admit(m *message) (*jsonrpc.Request, *fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	request := &jsonrpc.Request{Method: m.method, Params: m.params}
	if m.id == nil {
		if m.method == "notifications/cancelled" {
			return c.cancel(request), nil
		}
		return request, nil
	}
	if _, busy := c.byRaw[string(m.id)]; busy {
		return nil, &fault{jsonrpc.CodeInvalidRequest, "a request with this id is under way"}
	}
	c.last++
	id, err := jsonrpc.MakeID(float64(c.last))
	if err != nil {
		return nil, &fault{jsonrpc.CodeInternalError, err.Error()}
	}
	request.ID = id
	c.calls[c.last], c.byRaw[string(m.id)] = &call{id: m.id, method: m.method, bytes: len(m.params)}, c.last
	c.bytes += len(m.params)
	return request, nil
}

// cancel names the call of a cancellation by our id. It needs mu. One that names
// no call that can be cancelled is dropped.
func (c *conn) cancel(request *jsonrpc.Request) *jsonrpc.Request {
	var params struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(request.Params, &params) != nil {
		return nil
	}
	ours, ok := c.byRaw[string(params.ID)]
	if !ok || c.calls[ours].method == "initialize" {
		return nil
	}
	c.calls[ours].cancelled = true
	delete(c.byRaw, string(params.ID)) // it is not answered any more, so its id is free
	request.Params = json.RawMessage(fmt.Sprintf(`{"requestId":%d}`, ours))
	return request
}

// end waits for what is still owed, and is the error that ends the session.
func (c *conn) end(ctx context.Context) error {
	late := time.NewTimer(farewell)
	defer late.Stop()
	for {
		c.mu.Lock()
		owed, settled, failure := len(c.calls), c.settled, c.failure
		c.mu.Unlock()
		if owed == 0 || failure != nil {
			return io.EOF
		}
		select {
		case <-settled:
		case <-late.C:
			return io.EOF
		case <-c.closed:
			return io.EOF
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Write writes what the SDK has to say, under the id that the client knows.
func (c *conn) Write(_ context.Context, m jsonrpc.Message) error {
	response, ok := m.(*jsonrpc.Response)
	if !ok {
		text, err := jsonrpc.EncodeMessage(m)
		if err != nil {
			return err
		}
		return c.line(text)
	}
	ours, _ := response.ID.Raw().(int64)
	c.mu.Lock()
	of := c.calls[ours]
	unwanted := of == nil || of.cancelled
	early := of != nil && (of.method == "initialize" || !c.greeted)
	if early && of.method == "initialize" && response.Error == nil {
		c.greeted = true
	}
	if of != nil && !unwanted {
		delete(c.byRaw, string(of.id)) // who reads the answer may use the id again at once
	}
	c.mu.Unlock()
	if of == nil {
		return nil
	}
	defer c.settle(ours)
	if unwanted {
		return nil
	}
	text, err := answer(of, response, early)
	if err != nil {
		return err
	}
	return c.line(text)
}

// settle notes that the answer to a call is written.
func (c *conn) settle(ours int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= c.calls[ours].bytes
	delete(c.calls, ours)
	close(c.settled)
	c.settled = make(chan struct{})
}

type envelope struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *wireError      `json:"error,omitempty"`
}

type wireError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// answer is a response as it is written. The SDK has no code of its own for what
// comes at the wrong time.
func answer(of *call, r *jsonrpc.Response, early bool) ([]byte, error) {
	e := envelope{Version: "2.0", ID: of.id, Result: r.Result}
	if r.Error != nil {
		e.Result, e.Error = nil, &wireError{Code: jsonrpc.CodeInternalError, Message: r.Error.Error()}
		if known, ok := errors.AsType[*jsonrpc.Error](r.Error); ok {
			e.Error.Code, e.Error.Message, e.Error.Data = known.Code, known.Message, known.Data
		}
		if e.Error.Code == 0 || early && e.Error.Code == jsonrpc.CodeInternalError {
			e.Error.Code = jsonrpc.CodeInvalidRequest
		}
	}
	return json.Marshal(e)
}

// refuse answers a message that the SDK does not see.
func (c *conn) refuse(id json.RawMessage, f *fault) error {
	text, err := json.Marshal(envelope{Version: "2.0", ID: id, Error: &wireError{Code: f.code, Message: f.message}})
	if err != nil {
		return err
	}
	return c.line(text)
}

// line writes a message, which is one line. An error is the last thing that is
// tried.
func (c *conn) line(text []byte) error {
	var one bytes.Buffer
	one.Grow(len(text) + 1)
	if err := json.Compact(&one, text); err != nil {
		return err
	}
	one.WriteByte('\n')
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.out.Write(one.Bytes()); err != nil {
		c.mu.Lock()
		if c.failure == nil {
			c.failure = fmt.Errorf("write an answer: %w", err)
		}
		c.mu.Unlock()
		_ = c.Close()
		return err
	}
	return nil
}

// broken is why nothing more could be written, nil when that was possible.
func (c *conn) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}
