package hook

import (
	"encoding/json"
	"strings"
	"testing"
)

const callOfBash = `{"session_id":"s","cwd":"/x","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"echo <\"é\">\n","description":"d","timeout":1e3,"x":{"y":[null]}}}`

func TestAnswerChangesTheCommandAlone(t *testing.T) {
	for _, tt := range []struct {
		client   Client
		decision any
	}{{Claude, nil}, {Codex, "allow"}} {
		call, err := ReadCall(tt.client, strings.NewReader(callOfBash))
		if err != nil || call.Line != "echo <\"é\">\n" {
			t.Fatalf("%+v, %v", call, err)
		}
		answer, err := call.Answer("other <é> 'line'\n")
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ HookSpecificOutput map[string]any }
		if err := json.Unmarshal(answer, &got); err != nil {
			t.Fatal(err)
		}
		out := got.HookSpecificOutput
		if out["hookEventName"] != "PreToolUse" || out["permissionDecision"] != tt.decision {
			t.Errorf("%s", answer)
		}
		input, _ := out["updatedInput"].(map[string]any)
		if len(input) != 4 || input["command"] != "other <é> 'line'\n" || input["description"] != "d" || !strings.Contains(string(answer), `"timeout":1e3,"x":{"y":[null]}`) {
			t.Errorf("%s", answer)
		}
	}
}

func TestCallsOfOthersHaveNoLine(t *testing.T) {
	for _, text := range []string{
		strings.Replace(callOfBash, "PreToolUse", "PostToolUse", 1), strings.Replace(callOfBash, `"Bash"`, `"Read"`, 1), "{}", "null",
		strings.Replace(callOfBash, `"command":"echo <\"é\">\n"`, `"command":""`, 1),
	} {
		if call, err := ReadCall(Claude, strings.NewReader(text)); err != nil || call.Line != "" {
			t.Errorf("%s: %+v, %v", text, call, err)
		}
	}
}

func TestCallsThatCannotBeReadAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "{", "a list": "[]", "a number for a command": strings.Replace(callOfBash, `"echo <\"é\">\n"`, "1", 1),
		"no command": strings.Replace(callOfBash, `"command"`, `"c"`, 1), "no text": strings.Replace(callOfBash, "é", "\xff", 1),
		"half a character": strings.Replace(callOfBash, "é", `\ud800`, 1), "a NUL": strings.Replace(callOfBash, "é", `\u0000`, 1),
		"a long command": strings.Replace(callOfBash, "é", strings.Repeat("x", MaxLine), 1), "too much": callOfBash + strings.Repeat(" ", MaxCall),
	} {
		if call, err := ReadCall(Claude, strings.NewReader(text)); err == nil || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %+v, %v", name, call, err)
		}
	}
}

func TestOnlyOurOwnCommandIsOurs(t *testing.T) {
	for line, want := range map[string]bool{
		"handsel hook run claude": true, "/opt/handsel hook run claude": true, "'/a b/handsel' hook run claude": true, "/opt/handsel-1.2 hook run claude": true,
		"handsel hook run codex": false, "handsel hook run claude; x": false, "x handsel hook run claude": false, "handsel hook run claude x": false, "": false, "'": false,
		"/opt/other hook run claude": false,
	} {
		if ours(line, Claude) != want {
			t.Errorf("ours(%q) = %v", line, !want)
		}
	}
}

func TestDiffShowsTheChangeAndLittleAround(t *testing.T) {
	c := &Change{Place: Place{Path: "/x"}, Before: []byte("1\n2\n3\n4\n5\n6\n7\n"), After: []byte("1\n2\n3\n4\nnew\n5\n6\n7\n")}
	if got, want := strings.Join(c.Diff(), "\n"), "--- /x\n+++ /x\n@@ -2,6 +2,7 @@\n 2\n 3\n 4\n+new\n 5\n 6\n 7"; got != want {
		t.Errorf("%s", got)
	}
	c = &Change{Place: Place{Path: "/x"}, New: true, After: []byte("a\n")}
	if got, want := strings.Join(c.Diff(), "\n"), "--- /dev/null\n+++ /x\n@@ -0,0 +1 @@\n+a"; got != want {
		t.Errorf("%s", got)
	}
}
