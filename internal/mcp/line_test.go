package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// first reads the first line of an input as the intake does.
func first(t testing.TB, input string) *parcel {
	t.Helper()
	p, err := nextLine(bufio.NewReader(strings.NewReader(input)))
	if p == nil {
		t.Fatalf("no line: %v", err)
	}
	return p
}

// TestEachLineIsJudged: C116. What has the form of a request is passed on, what has
// not is answered by the id it came with, and what nobody waits for by nothing.
func TestEachLineIsJudged(t *testing.T) {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	const none = "" // not answered, and not passed on
	for _, tt := range []struct {
		name, line string
		id         string // of the answer, or of what is passed on
		code       int64  // 0: it is passed on
		method     string
	}{
		{"a request", `{"jsonrpc":"2.0","id":7,"method":"ping"}`, "7", 0, "ping"},
		{"text as id", `{"jsonrpc":"2.0","id":"7","method":"ping"}`, `"7"`, 0, "ping"},
		{"zero", `{"jsonrpc":"2.0","id":0,"method":"ping"}`, "0", 0, "ping"},
		{"negative", `{"jsonrpc":"2.0","id":-3,"method":"ping"}`, "-3", 0, "ping"},
		{"beyond 2^53", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, "9007199254740993", 0, "ping"},
		{"a fraction", `{"jsonrpc":"2.0","id":1.50,"method":"ping"}`, "1.50", 0, "ping"},
		{"CRLF", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\r\n", "7", 0, "ping"},
		{"byte order mark", "\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":7,"method":"ping"}`, "7", 0, "ping"},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", 0, "notifications/initialized"},
		{"params null", `{"jsonrpc":"2.0","id":7,"method":"ping","params":null}`, "7", 0, "ping"},
		{"null as id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", jsonrpc.CodeInvalidRequest, ""},
		{"an object as id", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "null", jsonrpc.CodeInvalidRequest, ""},
		{"cut off", `{"jsonrpc":"2.0","id":7,"meth`, "null", jsonrpc.CodeParseError, ""},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"p\xff\"}", "null", jsonrpc.CodeParseError, ""},
		{"no version", `{"id":7,"method":"ping"}`, "7", jsonrpc.CodeInvalidRequest, ""},
		{"another version", `{"jsonrpc":"1.0","id":"x","method":"ping"}`, `"x"`, jsonrpc.CodeInvalidRequest, ""},
		{"no version and no id", `{"method":"ping"}`, none, 0, ""},
		{"empty method", `{"jsonrpc":"2.0","id":7,"method":""}`, "7", jsonrpc.CodeInvalidRequest, ""},
		{"method a number", `{"jsonrpc":"2.0","id":7,"method":1}`, "7", jsonrpc.CodeInvalidRequest, ""},
		{"no method", `{"jsonrpc":"2.0","id":7}`, "7", jsonrpc.CodeInvalidRequest, ""},
		{"nothing in it", `{}`, "null", jsonrpc.CodeInvalidRequest, ""},
		{"params an array", `{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}`, "7", jsonrpc.CodeInvalidParams, ""},
		{"a notification with an array", `{"jsonrpc":"2.0","method":"notifications/initialized","params":[1]}`, none, 0, ""},
		{"a greeting", `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"x"}}`, "7", 0, "initialize"},
		{"a greeting of no version", `{"jsonrpc":"2.0","id":7,"method":"initialize"}`, "7", jsonrpc.CodeInvalidParams, ""},
		{"a greeting of a number", `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":5}}`, "7", jsonrpc.CodeInvalidParams, ""},
		{"an array", `[{"jsonrpc":"2.0","id":7,"method":"ping"}]`, "7", jsonrpc.CodeInvalidRequest, ""},
		{"an empty array", `[]`, "null", jsonrpc.CodeInvalidRequest, ""},
		{"an array of notifications", `[{"jsonrpc":"2.0","method":"notifications/initialized"}]`, "null", jsonrpc.CodeInvalidRequest, ""},
		{"a number", `7`, "null", jsonrpc.CodeInvalidRequest, ""},
		{"two methods", `{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/list"}`, "7", jsonrpc.CodeInvalidRequest, ""},
		{"two ids", `{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}`, "null", jsonrpc.CodeInvalidRequest, ""},
		{"doubled below", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":{"b":1,"b":2}}}`, "7", jsonrpc.CodeInvalidParams, ""},
		{"names in other letters", `{"jsonrpc":"2.0","ID":7,"id":8,"Method":"x","method":"ping"}`, "8", 0, "ping"},
		{"nested deeply", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":` + deep + `}}`, "7", jsonrpc.CodeInvalidRequest, ""},
		{"nested deeply and cut off", `{"jsonrpc":"2.0","id":7,"method":"ping","params":` + deep[:100_000], "null", jsonrpc.CodeParseError, ""},
		{"an answer", `{"jsonrpc":"2.0","id":7,"result":{}}`, none, 0, ""},
		{"an error", `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}`, none, 0, ""},
		{"nothing", "", none, 0, ""},
		{"blank", " \t\r\n", none, 0, ""},
		{"too long", `{"jsonrpc":"2.0","method":"ping","params":{"id":3,"x":"` + strings.Repeat(`x`, maxLine) + `\""},"id":"7"}`, `"7"`, jsonrpc.CodeInvalidRequest, ""},
		{"too long without an id", `"` + strings.Repeat("x", maxLine+2), "null", jsonrpc.CodeInvalidRequest, ""},
	} {
		if tt.line == "" {
			tt.line = "\n"
		}
		m, ok := judge(first(t, tt.line))
		switch {
		case tt.id == none && tt.method == "":
			if ok {
				t.Errorf("%s: %+v, want nothing", tt.name, m)
			}
		case !ok:
			t.Errorf("%s: nothing", tt.name)
		case tt.code != 0 && (m.fault == nil || m.fault.code != tt.code || string(m.id) != tt.id):
			t.Errorf("%s: %+v (%+v), want %d for %s", tt.name, m, m.fault, tt.code, tt.id)
		case tt.code == 0 && (m.fault != nil || m.method != tt.method || string(m.id) != tt.id):
			t.Errorf("%s: %+v (%+v), want %s of %s", tt.name, m, m.fault, tt.method, tt.id)
		}
	}
}

// An array is refused to each of those who wait for an answer to something in it.
func TestEachRequestOfAnArrayIsRefused(t *testing.T) {
	m, ok := judge(first(t, `[{"jsonrpc":"2.0","id":1,"method":"ping"},3,{"jsonrpc":"2.0","method":"x"},{"id":"two","method":"ping"}]`))
	if !ok || m.fault == nil || string(m.id) != "1" || len(m.also) != 1 || string(m.also[0]) != `"two"` {
		t.Errorf("judge = %+v, %v", m, ok)
	}
}

// The memory that a line takes is bounded, however long it is.
func TestEndlessLineIsNotKept(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"x":"`), io.LimitReader(repeat('x'), maxLine+(1<<20)))
	p, err := nextLine(bufio.NewReaderSize(endless, 64<<10))
	if p == nil || !p.long || cap(p.text) != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("nextLine = %+v, %v", p, err)
	}
}

// What the calls under way have asked for together is bounded as well, and the next
// is taken up when one is answered.
func TestCallsUnderwayAreBoundedInBytes(t *testing.T) {
	in, feed := io.Pipe()
	c := newConn(in, io.Discard)
	for i := range 2 {
		if _, f := c.admit(&message{id: fmt.Appendf(nil, "%d", i), method: "x", params: make([]byte, maxLine+1)}); f != nil {
			t.Fatal(f.message)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if m, err := c.Read(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("beyond the bound: %v, %v", m, err)
	}
	c.settle(1)
	go func() { _, _ = io.WriteString(feed, `{"jsonrpc":"2.0","id":9,"method":"x","params":{"a":1}}`+"\n") }()
	if m, err := c.Read(t.Context()); err != nil || m == nil {
		t.Errorf("when one was answered: %v", err)
	}
	c.settle(2)
	c.settle(3)
	if c.bytes != 0 || len(c.calls) != 0 {
		t.Errorf("%d bytes of %d calls, want none", c.bytes, len(c.calls))
	}
	if err := errors.Join(c.Close(), feed.Close()); err != nil {
		t.Fatal(err)
	}
}

type repeat byte

func (r repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// FuzzLine: whatever comes, judging it ends, what is passed on is a request, and
// an answer has an id that is in the line, or null.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":[{"b":"\"\\"}]}}`, `[{"id":1}]`, `{"id":1,"id":2}`, "\xef\xbb\xbf{}", `{"id":"\u0000","method":""}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, "{\"a\":\"\xff\"}", strings.Repeat("[", 300),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		if len(line) == 0 {
			return
		}
		p := first(t, string(line))
		m, ok := judge(p)
		if !ok {
			return
		}
		for _, id := range append([]json.RawMessage{m.id}, m.also...) {
			if m.fault != nil && !bytes.Equal(id, null) && !bytes.Contains(line, id) {
				t.Errorf("%q is answered by %q", line, id)
			}
		}
		if m.fault != nil {
			if text, err := json.Marshal(envelope{Version: "2.0", ID: m.id, Error: &wireError{m.fault.code, m.fault.message, nil}}); err != nil || bytes.ContainsRune(text, '\n') {
				t.Errorf("the answer to %q is %q, %v", line, text, err)
			}
			return
		}
		if m.method == "" || m.params != nil && m.params[0] != '{' || !json.Valid(line) && !bytes.HasPrefix(line, []byte("\xef\xbb\xbf")) {
			t.Errorf("%q is passed on as %+v", line, m)
		}
		// What is known of a line that is not kept is what is known of one that is.
		if got := p.scan.id(); m.id != nil && !bytes.Equal(got, m.id) && !bytes.Contains(line, []byte(`\u`)) {
			t.Errorf("the scanner finds %q in %q, and the judge %q", got, line, m.id)
		}
	})
}
