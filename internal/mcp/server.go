package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel"
)

// Options say what Serve serves.
type Options struct {
	Version string         // of the program
	Home    *handsel.Home  // whose work it is
	Detach  handsel.Detach // starts a process that does a submission
	Note    func(string)   // is told what a person should know; not nil
}

// instructions are what a client's model is told of the tools.
const instructions = "handsel decides when a command-line agent may start on this machine, and who owns each piece of work. " +
	"submit hands work in and gives the id of a run at once; wait waits for it (call it again while it says still_running); why says what holds it up; result gives the answer. " +
	"A refusal that says it is final stays so: do not repeat it."

// goodbye is how long after the end of the input Serve returns at the latest.
const goodbye = 1800 * time.Millisecond

// Serve serves one client until the input ends. The error is nil then, and says
// what broke when answers could not be written any more.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	c := newConn(in, out)
	s := &server{home: o.Home, detach: o.Detach, note: o.Note, gone: c.in.ended, inside: handsel.MayStart()}
	sdkServer := sdk.NewServer(&sdk.Implementation{Name: "handsel", Version: o.Version}, &sdk.ServerOptions{
		Instructions: instructions, Logger: slog.New(slog.DiscardHandler), PageSize: 100,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
	})
	for _, t := range s.tools() {
		sdkServer.AddTool(&sdk.Tool{Name: t.name, Description: t.about, InputSchema: schema(t.args), Annotations: t.annotations()}, s.handler(t))
	}
	done := make(chan error, 1)
	go func() { done <- sdkServer.Run(ctx, c) }()
	var err error
	select {
	case err = <-done:
	case <-late(c.in.ended):
	}
	_ = c.Close()
	switch {
	case c.broken() != nil:
		return c.broken()
	case ctx.Err() != nil:
		return nil
	}
	select {
	case <-c.in.ended: // which is how it ends
		return nil
	default:
		return err
	}
}

// late is closed some time after the input has ended.
func late(ended <-chan struct{}) <-chan struct{} {
	over := make(chan struct{})
	go func() { // for the life of the process, which ends then
		<-ended
		time.AfterFunc(goodbye, func() { close(over) })
	}()
	return over
}

// server is what the tools share. Nothing in it changes.
type server struct {
	home   *handsel.Home
	detach handsel.Detach
	note   func(string)
	gone   <-chan struct{} // closed at the end of the input
	inside error           // why nothing may be started from here: ancestors only become fewer, so that is asked when the server begins
}

// call1 is one call of a tool.
type call1 struct {
	args    values
	request *sdk.CallToolRequest
}

// handler is a tool as the SDK calls it. What goes wrong in it is an answer to that
// call alone.
func (s *server) handler(t tool) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (result *sdk.CallToolResult, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.note(fmt.Sprintf("tool %s: %v\n%s", t.name, p, debug.Stack()))
				result, err = failed(errors.New("the tool broke; the server's stderr says where"), time.Now()), nil
			}
		}()
		args, err := read(r.Params.Arguments, t.args)
		if err == nil {
			result, err = t.handle(ctx, &call1{args: args, request: r})
		}
		if err != nil {
			return failed(err, time.Now()), nil
		}
		return result, nil
	}
}
