package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel"
)

// submitted is the data of submit's answer.
type submitted struct {
	V     int    `json:"v"`
	Run   string `json:"run"`
	Known bool   `json:"known"` // the key was used before, and nothing was started now
	Lane  string `json:"lane,omitempty"`

	Dropped []string `json:"env_dropped,omitempty"` // variables of the server's that the run will not have
}

// submit hands work in.
func (s *server) submit(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	if s.inside != nil {
		return nil, s.inside
	}
	a := c.args
	if err := shape(a); err != nil {
		return nil, err
	}
	sub := s.submission(a)
	sub.Prompt, sub.Model, sub.Resume = a.text("prompt"), a.text("model"), a.text("resume")
	sub.Engine, sub.Profile, sub.Account = a.text("engine"), a.text("profile"), a.text("account")
	sub.Workload, sub.Confine, sub.Lane = a.text("workload"), a.text("confine"), a.text("lane")
	sub.Idle, sub.Author, sub.Review = seconds(a.number("idle_s", 0)), a.text("author"), a.flag("review")
	out, err := s.home.Submit(ctx, sub, s.detach)
	if err != nil {
		return nil, withRun(err, out)
	}
	did := "submitted: it goes on by itself"
	if out.Known {
		did = "known: this key was used for the same request before, and nothing was started now"
	}
	if len(out.Dropped) > 0 {
		did += "\nof the server's environment it will not have " + plain(strings.Join(out.Dropped, " "))
	}
	return told(submitted{V: 1, Run: out.Run, Known: out.Known, Lane: sub.Lane, Dropped: out.Dropped}, "run %s %s\nnext: wait {\"runs\": \"%s\"}", out.Run, did, out.Run), nil
}

// withRun names the run of a request of which nobody knows whether it was
// accepted.
func withRun(err error, out *handsel.Submitted) error {
	if out != nil && errors.As(err, new(*handsel.Unknown)) {
		return fmt.Errorf("run %s: %w", out.Run, err)
	}
	return err
}

// shape refuses arguments of submit that do not go together.
func shape(a values) error {
	prompt, command := a.text("prompt") != "", len(a.list("command")) > 0
	switch {
	case prompt && command:
		return &badArgument{"command", "prompt and command exclude each other"}
	case !prompt && !command:
		return &badArgument{"prompt", "one of prompt and command is needed"}
	case prompt && a.text("engine") == "" && a.text("profile") == "":
		return &badArgument{"engine", "a prompt needs an engine, or a profile that names one"}
	case command && a.text("model") != "":
		return &badArgument{"model", "it goes with prompt only; a command has its own"}
	case command && a.text("resume") != "":
		return &badArgument{"resume", "it goes with prompt only; a command has its own"}
	}
	return nil
}

// submission is what submit and gate have in common.
func (s *server) submission(a values) handsel.Submission {
	return handsel.Submission{
		Argv: a.list("command"), Dir: a.text("cwd"), Pools: a.list("pools"), Priority: a.number("priority", 0), Timeout: seconds(a.number("timeout_s", 0)),
		Labels: a.words("labels"), Key: a.text("key"),
	}
}

// gate runs a heavy command in a process of its own, and waits for it.
func (s *server) gate(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	sub := s.submission(c.args)
	sub.Gate = true
	out, err := s.home.Submit(ctx, sub, s.detach)
	if err != nil {
		return nil, err
	}
	v, err := s.await(ctx, c, []string{"run:" + out.Run}, false)
	if err != nil {
		return nil, err
	}
	k := &v.runs[0]
	if !k.Ended() {
		return told(waited{V: 1, Runs: briefs(v.runs), Waiting: 1, StillRunning: v.going()}, "run %s is still_running (%s)\nIt goes on by itself. next: wait {\"runs\": \"%s\"}", k.ID, plain(k.Word()), k.ID), nil
	}
	return s.resultOf(ctx, k, fewBytes)
}
