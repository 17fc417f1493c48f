package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel"
)

const (
	// fewBytes is how much of an answer is told unless more is asked for, mostAnswer
	// how much at most.
	fewBytes   = 32 << 10
	mostAnswer = 1 << 20
	// mostEvent bounds one line of a run's events that is read.
	mostEvent = 4 << 20
)

// Where the text of a result is from.
const (
	fromAnswer = "answer" // what the agent said at the end
	fromStdout = "stdout" // the end of what was printed
	fromStderr = "stderr"
)

// outcome is the data of result's answer.
type outcome struct {
	V int `json:"v"`
	brief
	Session string         `json:"session_id,omitempty"`
	Usage   *handsel.Usage `json:"usage,omitempty"`
	Text    string         `json:"text,omitempty"`
	From    string         `json:"text_from,omitempty"`
	Cut     int64          `json:"text_cut_bytes,omitempty"` // how many bytes of it are missing
	Note    string         `json:"note,omitempty"`           // why there is no text
}

// result tells what came of a run.
func (s *server) result(ctx context.Context, c *call1) (*sdk.CallToolResult, error) {
	k, err := s.one(ctx, c.args.text("run"))
	if err != nil {
		return nil, err
	}
	return s.resultOf(ctx, k, c.args.number("max_bytes", fewBytes))
}

func (s *server) resultOf(ctx context.Context, k *handsel.KnownRun, most int) (*sdk.CallToolResult, error) {
	out := outcome{V: 1, brief: briefOf(k), Session: k.Session, Usage: k.Usage}
	if !k.Ended() {
		out.Note = "it has not ended"
		return told(out, "%s\nIt is still_running. next: wait {\"runs\": \"%s\"}", runLine(k), k.ID), nil
	}
	if err := s.text(ctx, k, most, &out); err != nil {
		return nil, err
	}
	head := runLine(k)
	if out.Note != "" {
		head += "\n" + plain(out.Note)
	}
	text := head
	if out.Text != "" {
		text += "\n" + out.From + ":"
		if out.Cut > 0 && out.From != fromAnswer {
			text += fmt.Sprintf(" (the last of it; %d bytes before are left out)", out.Cut)
		}
		text += "\n" + lines(out.Text)
		if out.Cut > 0 && out.From == fromAnswer {
			text += fmt.Sprintf("\n[cut: %d bytes more; handsel logs %s has all of it]", out.Cut, k.ID)
		}
		if out.Cut > 0 {
			head += fmt.Sprintf("\nthe text is cut: %d bytes of it are missing", out.Cut)
		}
	}
	return both(out, text, head), nil
}

// text finds what is to be read of an ended run: the agent's answer, else the end
// of what was printed.
func (s *server) text(ctx context.Context, k *handsel.KnownRun, most int, out *outcome) error {
	said := &answerReader{}
	err := s.home.Logs(ctx, *k, handsel.LogTo{Events: said}, false)
	if errors.As(err, new(*handsel.NoOutput)) {
		err = nil
	}
	if err != nil {
		return err
	}
	if said.found {
		out.From, out.Text, out.Cut = fromAnswer, said.text, said.cut
		if len(out.Text) > most {
			out.Text = strings.ToValidUTF8(said.text[:most], "")
			out.Cut += int64(len(said.text) - len(out.Text))
		}
		return nil
	}
	stdout, stderr := &tail{most: most}, &tail{most: most}
	err = s.home.Logs(ctx, *k, handsel.LogTo{Stdout: stdout, Stderr: stderr}, false)
	if none, ok := errors.AsType[*handsel.NoOutput](err); ok {
		out.Note = none.Error()
		return nil
	}
	if err != nil {
		return err
	}
	from := stdout
	if out.From = fromStdout; stdout.seen == 0 || !k.Succeeded() && len(bytes.TrimSpace(stdout.kept)) == 0 {
		out.From, from = fromStderr, stderr
	}
	out.Text, out.Cut = strings.ToValidUTF8(string(from.kept), "\uFFFD"), from.seen-int64(len(from.kept))
	if out.Text == "" {
		out.From, out.Note = "", "it printed nothing"
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct {
	most int
	kept []byte
	seen int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.seen += int64(len(p))
	if len(p) >= t.most {
		t.kept = append(t.kept[:0], p[len(p)-t.most:]...)
		return len(p), nil
	}
	if over := len(t.kept) + len(p) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	t.kept = append(t.kept, p...)
	return len(p), nil
}

// answerReader reads events, one on each line, for the answer that came last.
type answerReader struct {
	line  []byte
	long  bool
	found bool
	text  string
	cut   int64
}

func (r *answerReader) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece, after, whole := bytes.Cut(rest, []byte("\n"))
		if rest = after; len(r.line)+len(piece) > mostEvent {
			r.long = true
		} else {
			r.line = append(r.line, piece...)
		}
		if whole {
			r.take()
		}
	}
	return len(p), nil
}

func (r *answerReader) take() {
	var e handsel.Event
	if !r.long && json.Unmarshal(r.line, &e) == nil && e.Kind == "result" && !e.Failed {
		r.found, r.text, r.cut = true, e.Text, e.Cut
	}
	r.line, r.long = r.line[:0], false
}
