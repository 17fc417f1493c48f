package mcp

import (
	"encoding/json"
	"strings"
	"testing"

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
