package modelstub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asking is one protocol as an engine would speak it.
type asking struct {
	api   API
	path  string
	shell string // the shell tool's name
	body  func(tool string, results []Result) obj
	end   string // what the last line of a stream has to contain
}

var askings = []asking{
	{
		api: Anthropic, path: "/v1/messages?beta=true", shell: "Bash", end: "message_stop",
		body: func(tool string, results []Result) obj {
			messages := []obj{{"role": "user", "content": "go"}}
			for _, r := range results {
				messages = append(messages, obj{"role": "user", "content": []obj{
					{"type": "tool_result", "tool_use_id": r.ID, "content": []obj{{"type": "text", "text": r.Text}}},
				}})
			}
			return obj{"model": "m", "stream": true, "tools": []obj{{"name": "Read"}, {"name": tool}}, "messages": messages}
		},
	},
	{
		api: Responses, path: "/v1/responses", shell: "exec_command", end: "response.completed",
		body: func(tool string, results []Result) obj {
			input := []obj{{"type": "message", "role": "user"}}
			for _, r := range results {
				input = append(input, obj{"type": "function_call_output", "call_id": r.ID, "output": r.Text})
			}
			return obj{"model": "m", "stream": true, "tools": []obj{{"type": "web_search"}, {"type": "function", "name": tool}}, "input": input}
		},
	},
	{
		api: Chat, path: "/v1/chat/completions", shell: "bash", end: "[DONE]",
		body: func(tool string, results []Result) obj {
			messages := []obj{{"role": "user", "content": "go"}}
			for _, r := range results {
				messages = append(messages, obj{"role": "tool", "tool_call_id": r.ID, "content": r.Text})
			}
			return obj{"model": "m", "stream": true, "tools": []obj{{"type": "function", "function": obj{"name": tool}}}, "messages": messages}
		},
	},
	{
		api: Gemini, path: "/v1beta/models/m:streamGenerateContent?alt=sse", shell: "run_shell_command", end: `"finishReason":"STOP"`,
		body: func(tool string, results []Result) obj {
			contents := []obj{{"role": "user", "parts": []obj{{"text": "go"}}}}
			for _, r := range results {
				contents = append(contents, obj{"role": "user", "parts": []obj{
					{"functionResponse": obj{"id": r.ID, "response": obj{"output": r.Text}}},
				}})
			}
			return obj{"tools": []obj{{"functionDeclarations": []obj{{"name": tool}}}}, "contents": contents}
		},
	},
}

func start(t *testing.T, script ...Step) *Stub {
	t.Helper()
	s, err := Start(script...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// post sends a request and returns the answer with its body read whole.
func post(t *testing.T, s *Stub, path string, body any) (*http.Response, string) {
	t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(s.URL+path, "application/json", bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(got)
}

func TestEveryProtocolPlaysTheSameScript(t *testing.T) {
	for _, a := range askings {
		t.Run(string(a.api), func(t *testing.T) {
			s := start(t, Step{Text: "I will.", Shell: `echo "hi" >x`}, Step{Text: "Done."})

			_, first := post(t, s, a.path, a.body(a.shell, nil))
			checkStream(t, first, a.end)
			if !strings.Contains(first, "I will.") || !strings.Contains(first, a.shell) {
				t.Errorf("first answer has not both text and call: %s", first)
			}
			if command := marshal(`echo "hi" >x`); !strings.Contains(strings.ReplaceAll(first, `\`, ""), strings.ReplaceAll(command, `\`, "")) {
				t.Errorf("first answer has no command %s: %s", command, first)
			}

			result := Result{ID: "call_p1_0", Text: "out of the tool"}
			_, second := post(t, s, a.path, a.body(a.shell, []Result{result}))
			checkStream(t, second, a.end)
			if !strings.Contains(second, "Done.") {
				t.Errorf("second answer is not the second step: %s", second)
			}

			log := s.Log()
			if len(log) != 2 || log[0].Step != 0 || log[1].Step != 1 || log[1].API != a.api || log[1].Model != "m" {
				t.Errorf("log = %+v", log)
			}
			if got := s.Results(); len(got) != 1 || got[0].ID != result.ID || !strings.Contains(got[0].Text, result.Text) {
				t.Errorf("Results = %+v, want %+v", got, result)
			}
		})
	}
}

// checkStream: every event's data is JSON (or the mark that ends a stream) and
// the last one ends the answer.
func checkStream(t *testing.T, stream, end string) {
	t.Helper()
	var last string
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if last = data; data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Errorf("not JSON: %s", data)
		}
	}
	if !strings.Contains(last, end) {
		t.Errorf("last event %s, want %s in it", last, end)
	}
}

func TestARepeatedRequestGetsTheSameAnswer(t *testing.T) {
	s := start(t, Step{Shell: "true"}, Step{Text: "Done."})
	a := askings[0]
	_, first := post(t, s, a.path, a.body(a.shell, nil))
	_, again := post(t, s, a.path, a.body(a.shell, nil))
	if first != again {
		t.Errorf("answers differ:\n%s\n%s", first, again)
	}
}

func TestANewScriptDoesNotCountOldResults(t *testing.T) {
	s := start(t, Step{Shell: "true"}, Step{Text: "Done."})
	s.Play(Step{Shell: "second script"}, Step{Text: "Done again."})
	a := askings[0]
	old := []Result{{ID: "call_p1_0", Text: "of the first script"}}
	if _, got := post(t, s, a.path, a.body(a.shell, old)); !strings.Contains(got, "second script") {
		t.Errorf("answer is not the second script's first step: %s", got)
	}
}

func TestAFailureIsGivenAsOftenAsAskedFor(t *testing.T) {
	for _, a := range askings {
		t.Run(string(a.api), func(t *testing.T) {
			s := start(t,
				Step{Fail: &Fail{Status: 429, Message: "slow down", Header: map[string]string{"Retry-After": "7"}}, Times: 2},
				Step{Text: "Done."})
			for range 2 {
				answer, body := post(t, s, a.path, a.body(a.shell, nil))
				if answer.StatusCode != 429 || answer.Header.Get("Retry-After") != "7" || !strings.Contains(body, "slow down") {
					t.Errorf("answer %d %v %s", answer.StatusCode, answer.Header, body)
				}
			}
			if answer, body := post(t, s, a.path, a.body(a.shell, nil)); answer.StatusCode != 200 || !strings.Contains(body, "Done.") {
				t.Errorf("third answer %d %s", answer.StatusCode, body)
			}
		})
	}
}

func TestRequestsWithoutToolsDoNotTouchTheScript(t *testing.T) {
	s := start(t, Step{Shell: "true"})
	answer, body := post(t, s, "/v1/messages", obj{"model": "small", "messages": []obj{{"role": "user", "content": "a title?"}}})
	if answer.StatusCode != 200 || !json.Valid([]byte(body)) {
		t.Errorf("answer %d %s", answer.StatusCode, body)
	}
	if answer, body := post(t, s, "/v1/messages/count_tokens", obj{"messages": []obj{}}); answer.StatusCode != 200 || !strings.Contains(body, "input_tokens") {
		t.Errorf("count %d %s", answer.StatusCode, body)
	}
	if answer, _ := post(t, s, "/v1/elsewhere", obj{}); answer.StatusCode != 404 {
		t.Errorf("an unknown path is answered %d", answer.StatusCode)
	}
	for _, one := range s.Log() {
		if one.Step != -1 {
			t.Errorf("side request took step %d: %+v", one.Step, one)
		}
	}
}

func TestAStallEndsWithTheEngineOrTheStub(t *testing.T) {
	a := askings[0]
	body, err := json.Marshal(a.body(a.shell, nil))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan Request, 1)
	s := start(t, Step{Stall: true, Before: func(r Request) { asked <- r }})
	ctx, hangUp := context.WithTimeout(context.Background(), time.Minute)
	defer hangUp()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+a.path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	<-asked
	lines := bufio.NewReader(answer.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "message_start") {
		t.Errorf("head of the answer: %q, %v", line, err)
	}
	// The stub's own Close, at the end of the test, must not wait for us.
}

func TestALongTextComesWholeInPieces(t *testing.T) {
	long := strings.Repeat("héllo ", 200_000) // 1.4 MB, with characters of two bytes
	for _, a := range askings {
		t.Run(string(a.api), func(t *testing.T) {
			s := start(t, Step{Text: long, Piece: 1001})
			_, body := post(t, s, a.path, a.body(a.shell, nil))
			if strings.Contains(body, "\ufffd") {
				t.Error("a character was split")
			}
			if n := strings.Count(body, "data: "); n < len(long)/1001 {
				t.Errorf("%d events for %d bytes", n, len(long))
			}
		})
	}
	if got := strings.Join(pieces(long, 1001), ""); got != long {
		t.Error("the pieces are not the text")
	}
}

func TestWholeAnswersCarryTextAndCall(t *testing.T) {
	for _, a := range askings {
		t.Run(string(a.api), func(t *testing.T) {
			s := start(t, Step{Text: "I will.", Shell: "true"})
			body := a.body(a.shell, nil)
			delete(body, "stream")
			path := strings.Replace(a.path, "streamGenerateContent?alt=sse", "generateContent", 1)
			_, got := post(t, s, path, body)
			var whole obj
			if err := json.Unmarshal([]byte(got), &whole); err != nil {
				t.Fatalf("%v: %s", err, got)
			}
			for _, want := range []string{"I will.", a.shell, "true"} {
				if !strings.Contains(fmt.Sprint(whole), want) {
					t.Errorf("no %q in %s", want, got)
				}
			}
		})
	}
}
