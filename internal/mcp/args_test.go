package mcp

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel"
)

// TestArgumentsAreRefusedByName: C121. What is refused is named, with what may
// stand there; nothing is guessed.
func TestArgumentsAreRefusedByName(t *testing.T) {
	s := &server{home: open(t)}
	for _, tt := range []struct{ tool, args, field, why string }{
		{"submit", `{"prompt":"x","engine":"claude","workload":"Light"}`, "workload", "one of heavy, light"},
		{"submit", `{"prompt":"x","engine":"claude","workload":1}`, "workload", "one of heavy, light"},
		{"submit", `{"prompt":"x","engine":"cluade"}`, "engine", "one of claude, codex, gemini, pi"},
		{"submit", `{"prompt":"x","engine":"claude","timeout_s":"60"}`, "timeout_s", "whole number from 1 to 2592000"},
		{"submit", `{"prompt":"x","engine":"claude","timeout_s":1e400}`, "timeout_s", "whole number"},
		{"submit", `{"prompt":"x","engine":"claude","timeout_s":0}`, "timeout_s", "whole number from 1"},
		{"submit", `{"prompt":"x","engine":"claude","priority":1.5}`, "priority", "from -1000 to 1000"},
		{"submit", `{"prompt":"x","engine":"claude","dir":"/"}`, "dir", "no such argument; there are prompt, command"},
		{"submit", `{"prompt":"x\u0000","engine":"claude"}`, "prompt", "NUL"},
		{"submit", `{"prompt":"","engine":"claude"}`, "prompt", "empty"},
		{"submit", `{"prompt":"` + strings.Repeat("x", handsel.MaxPrompt+1) + `","engine":"claude"}`, "prompt", "is the most"},
		{"submit", `{"prompt":"x","engine":"claude","lane":""}`, "lane", "empty"},
		{"submit", `{"prompt":"x","engine":"claude","labels":{"a":1}}`, "labels", "values are strings"},
		{"submit", `{"command":"claude -p x"}`, "command", "an array of strings"},
		{"submit", `{"prompt":"x","engine":"claude","review":"yes"}`, "review", "true or false"},
		{"submit", `[]`, "arguments", "an object"},
		{"wait", `{}`, "runs", "needed"},
		{"wait", `{"runs":[]}`, "runs", "empty"},
		{"wait", `{"runs":7}`, "runs", "a string"},
		{"list", `{"state":"sleeping"}`, "state", "one of queued"},
		{"gate", `{"command":["true"]}`, "pools", "needed"},
		{"status", `{"x":1}`, "x", "there are none"},
		{"submit", `{"command":[""]}`, "command", "element 0 is empty"},
		{"submit", `{"command":["x","` + strings.Repeat("x", longestWord+1) + `"]}`, "command", "element 1 has 131072 bytes"},
		{"submit", `{"command":["x"],"pools":["` + strings.Repeat("x", longestName+1) + `"]}`, "pools", "is the most"},
		{"submit", `{"command":["x"],"cwd":"/` + strings.Repeat("x", longestPath) + `"}`, "cwd", "is the most"},
		{"submit", `{"command":["x"],"labels":{"a":"` + strings.Repeat("x", longestLabel+1) + `"}}`, "labels", "a: it has 1025 bytes"},
		{"submit", `{"command":["x"],"labels":{"` + strings.Repeat("x", longestLabel+1) + `":"a"}}`, "labels", "is the most"},
		{"submit", `{"command":["x"],"labels":{"a":null}}`, "labels", "must be a string, not null"},
		{"submit", `{"command":["x"],"labels":{"":"a"}}`, "labels", "no name"},
		{"submit", `{"command":["x"],"labels":{"a":"\u0000"}}`, "labels", "NUL"},
		{"wait", `{"runs":"` + strings.Repeat("x", longestName+1) + `"}`, "runs", "is the most"},
		{"wait", `{"runs":["a","` + strings.Repeat("x", longestName+1) + `"]}`, "runs", "is the most"},
		{"wait", `{"runs":["a",""]}`, "runs", "element 1 is empty"},
	} {
		var of tool
		for _, one := range s.tools() {
			if one.name == tt.tool {
				of = one
			}
		}
		_, err := read(json.RawMessage(tt.args), of.args)
		bad, ok := err.(*badArgument) //nolint:errorlint // read returns it bare
		if !ok || bad.Name != tt.field || !strings.Contains(bad.Why, tt.why) {
			t.Errorf("%s %.80s: %v, want %q of %s", tt.tool, tt.args, err, tt.why, tt.field)
		}
	}
}

// What a client sends comes back in a refusal only in part: an answer is not as long
// as what it answers.
func TestRefusalsAreShort(t *testing.T) {
	s, long := &server{home: open(t)}, strings.Repeat("x", 1<<20)
	for _, args := range []string{`{"` + long + `":1}`, `{"about":{"` + long + `":1}}`, `{"about":"` + long + `"}`} {
		if _, err := read(json.RawMessage(args), s.whyTool().args); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.20s: %.200v", args, err)
		}
	}
	for _, line := range []string{`{"jsonrpc":"2.0","id":1,"method":"x","` + long + `":1,"` + long + `":2}`, `{"jsonrpc":"2.0","id":1,"method":"x","params":{"` + long + `":1,"` + long + `":2}}`} {
		if m, _ := judge(first(t, line)); m.fault == nil || len(m.fault.message) > 1000 {
			t.Errorf("%.20s: %.200v", line, m.fault)
		}
	}
}

// TestFinalIsSaidOfRefusalsOnly: W3. A model is told not to repeat what is refused
// for good, and not that of a fault of ours, or of what may have been accepted.
func TestFinalIsSaidOfRefusalsOnly(t *testing.T) {
	for _, tt := range []struct {
		err             error
		kind, says, not string
	}{
		{errors.New("eio"), internal, "fault of handsel", "final"},
		{&handsel.Unheard{Run: "r", Err: errors.New("silence")}, unavailable, "may have been accepted", "final"},
		{&handsel.KeyBusy{Pid: 7}, unavailable, "process 7, which is starting something", "final"},
		{&handsel.NotSupervised{Because: handsel.Reason{Code: "nested"}}, conflict, "final", "fault"},
		{&handsel.BadLane{Name: strings.Repeat("x", 10_000), Why: "too long"}, invalidInput, "lane xxx", strings.Repeat("x", 100)},
	} {
		r := failed(tt.err, time.Now())
		text := r.Content[0].(*sdk.TextContent).Text
		if got := explain(tt.err, time.Now()).Kind; got != tt.kind || !strings.Contains(text, tt.says) || strings.Contains(text, tt.not) {
			t.Errorf("%.80v: %s: %q", tt.err, got, text)
		}
	}
	if f := explain(&handsel.Unheard{Run: "r"}, time.Now()); f.Run != "r" || f.Code != codeUnknown {
		t.Errorf("unheard: %+v", f)
	}
	if f := explain(&handsel.BadLane{Name: "x"}, time.Now()); f.Argument != "lane" {
		t.Errorf("a lane: %+v", f)
	}
}

// A value that is absent or null is what the schema says it is without it.
func TestAbsentArgumentsAreNone(t *testing.T) {
	s := &server{home: open(t)}
	v, err := read(json.RawMessage(`{"runs":"a","wait_s":null}`), s.waitTool().args)
	if err != nil || v.number("wait_s", patience) != patience || len(v.list("runs")) != 1 {
		t.Errorf("read = %v, %v", v, err)
	}
}

func open(t *testing.T) *handsel.Home {
	t.Helper()
	t.Setenv("HANDSEL_HOME", t.TempDir()+"/home")
	t.Setenv("HANDSEL_CONFIG", "")
	h, err := handsel.Open()
	if err != nil {
		t.Fatal(err)
	}
	return h
}
