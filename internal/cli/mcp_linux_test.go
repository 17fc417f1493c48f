package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/handsel/handsel/internal/fakeagent"
)

// place is a home of its own with the programs that servers of a test may start.
type place struct {
	t         *testing.T
	dir, home string
	handsel   string
	env       []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	p.home = filepath.Join(p.dir, "home")
	bin := filepath.Join(p.dir, "bin")
	p.handsel = filepath.Join(bin, "handsel")
	built := os.Getenv("HANDSEL_BIN")
	if built == "" {
		var err error
		if built, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
	}
	agent := fakeagent.Build(t)
	p.must(os.Mkdir(bin, 0o755))
	p.must(os.WriteFile(filepath.Join(p.dir, "config.toml"), nil, 0o600))
	if os.Link(built, p.handsel) != nil { // another's file, or on another disk
		program, err := os.ReadFile(built)
		p.must(err)
		p.must(os.WriteFile(p.handsel, program, 0o755)) // no symbolic link: a dispatcher starts what the kernel says it is
	}
	for _, name := range []string{"fakeagent", "claude"} {
		p.must(os.Symlink(agent, filepath.Join(bin, name)))
	}
	p.env = []string{
		"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + p.dir, "HANDSEL_HOME=" + p.home, "HANDSEL_CONFIG=" + filepath.Join(p.dir, "config.toml"),
		"GORACE=atexit_sleep_ms=0", "FAKEAGENT_LIFE=60s", mark + "=" + p.dir,
	}
	t.Cleanup(func() { killAll(p.dir) })
	return p
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// command is a handsel in the place.
func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.handsel, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// lineServer is a server that is spoken to in lines of our own making.
type lineServer struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	said chan string // closed at the end of its stdout
	err  *bytes.Buffer
	end  chan struct{} // closed when it has ended
}

func (p *place) serve() *lineServer { return p.serveAs(p.command("mcp")) }

func (p *place) serveAs(cmd *exec.Cmd) *lineServer {
	p.t.Helper()
	s := &lineServer{t: p.t, cmd: cmd, said: make(chan string, 1<<12), err: &bytes.Buffer{}, end: make(chan struct{})}
	in, err := cmd.StdinPipe()
	p.must(err)
	out, err := cmd.StdoutPipe()
	p.must(err)
	s.in, cmd.Stderr = in, s.err
	p.must(cmd.Start())
	go func() {
		lines := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				s.said <- line
			}
			if err != nil {
				close(s.said)
				_ = cmd.Wait()
				close(s.end)
				return
			}
		}
	}()
	p.t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); <-s.end })
	return s
}

func (s *lineServer) send(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(s.in, line+"\n"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// reply is a message of the server.
type reply struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// next is its next message, which must be one line of the protocol.
func (s *lineServer) next() *reply {
	s.t.Helper()
	select {
	case line, more := <-s.said:
		if !more {
			s.t.Fatalf("it ended: %s", s.err)
		}
		var r reply
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Version != "2.0" {
			s.t.Fatalf("stdout has %q: %v", line, err)
		}
		return &r
	case <-time.After(patience):
		s.t.Fatal("no answer")
	}
	return nil
}

const (
	hello       = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func (s *lineServer) greet() {
	s.t.Helper()
	s.send(hello)
	if r := s.next(); string(r.ID) != `"hello"` || r.Error != nil {
		s.t.Fatalf("initialize: %+v", r)
	}
	s.send(initialized)
}

func toolCall(id, name, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name, args)
}

// toolResult is what a tool answers.
type toolResult struct {
	IsError bool `json:"isError"`
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	Data struct {
		V     int    `json:"v"`
		Says  string `json:"says"`
		Run   string `json:"run"`
		Known bool   `json:"known"`
		State string `json:"state"`
		Text  string `json:"text"`
		Error struct {
			Kind      string `json:"kind"`
			Code      string `json:"code"`
			Message   string `json:"message"`
			Argument  string `json:"argument"`
			Retryable bool   `json:"retryable"`
		} `json:"error"`
		Did  string `json:"did"`
		Runs []struct {
			ID      string `json:"run"`
			State   string `json:"state"`
			Outcome string `json:"outcome"`
		} `json:"runs"`
		StillRunning []string `json:"still_running"`
		Dropped      []string `json:"env_dropped"`
	} `json:"structuredContent"`
}

// call calls a tool and returns its answer.
func (s *lineServer) call(name, args string) *toolResult {
	s.t.Helper()
	s.send(toolCall(`"`+name+`"`, name, args))
	return s.answer(`"` + name + `"`)
}

// answer is the answer to a call, whatever came before it.
func (s *lineServer) answer(id string) *toolResult {
	s.t.Helper()
	for {
		r := s.next()
		if string(r.ID) != id {
			continue
		}
		var out toolResult
		if err := json.Unmarshal(r.Result, &out); err != nil || r.Error != nil {
			s.t.Fatalf("%s: %+v, %v", id, r.Error, err)
		}
		if out.Data.V != 1 || len(out.Content) == 0 || out.Data.Says == "" || !strings.HasPrefix(out.Content[0].Text, out.Data.Says[:min(20, len(out.Data.Says))]) {
			s.t.Fatalf("%s: the answer has no v, or no words: %s", id, r.Result)
		}
		return &out
	}
}

// ends waits for it to end by itself.
func (s *lineServer) ends(status int) {
	s.t.Helper()
	select {
	case <-s.end:
	case <-time.After(patience):
		s.t.Fatal("it goes on")
	}
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.t.Errorf("status %d (%s), want %d; stderr: %s", got, s.cmd.ProcessState, status, s.err)
	}
	if strings.Contains(s.err.String(), "panic") {
		s.t.Errorf("stderr: %s", s.err)
	}
}

// TestMalformedInputNeverEndsTheSession: C116. Each of these lines gets the answer
// that it should, or none, and the session goes on.
func TestMalformedInputNeverEndsTheSession(t *testing.T) {
	p := newPlace(t)
	s := p.serve()
	s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if r := s.next(); string(r.ID) != "1" || r.Error == nil || r.Error.Code != -32600 {
		t.Errorf("a method before initialize: %+v", r)
	}
	s.send(`{"jsonrpc":"2.0","id":"v","method":"initialize","params":{"protocolVersion":"1789-07-14","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	var greeting struct{ ProtocolVersion string }
	if r := s.next(); r.Error != nil || json.Unmarshal(r.Result, &greeting) != nil || greeting.ProtocolVersion == "" || greeting.ProtocolVersion == "1789-07-14" {
		t.Errorf("a version nobody knows: %+v", r)
	}
	s.send(initialized)
	for i, tt := range []struct {
		name, line, id string
		code           int // 0: no answer; 1: a result
	}{
		{"truncated", `{"jsonrpc":"2.0","id":5,"method":"pi`, "null", -32700},
		{"no jsonrpc", `{"id":5,"method":"ping"}`, "5", -32600},
		{"empty method", `{"jsonrpc":"2.0","id":5,"method":""}`, "5", -32600},
		{"unknown method", `{"jsonrpc":"2.0","id":5,"method":"tools/eat"}`, "5", -32601},
		{"unknown notification", `{"jsonrpc":"2.0","method":"notifications/eat"}`, "", 0},
		{"batch", `[{"jsonrpc":"2.0","id":5,"method":"ping"}]`, "5", -32600},
		{"text as id", `{"jsonrpc":"2.0","id":"x","method":"ping"}`, `"x"`, 1},
		{"zero", `{"jsonrpc":"2.0","id":0,"method":"ping"}`, "0", 1},
		{"negative", `{"jsonrpc":"2.0","id":-5,"method":"ping"}`, "-5", 1},
		{"beyond 2^53", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, "9007199254740993", 1},
		{"fraction", `{"jsonrpc":"2.0","id":0.5,"method":"ping"}`, "0.5", 1},
		{"null as id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", -32600},
		{"no id", `{"jsonrpc":"2.0","method":"ping"}`, "", 0},
		{"array of params", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":["submit"]}`, "5", -32602},
		{"no params", `{"jsonrpc":"2.0","id":5,"method":"tools/call"}`, "5", -32600},
		{"unknown tool", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"eat"}}`, "5", -32602},
		{"params of another kind", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":7}}`, "5", -32602},
		{"double keys", `{"jsonrpc":"2.0","id":5,"method":"ping","method":"tools/list"}`, "5", -32600},
		{"deep", `{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`, "5", -32600},
		{"byte order mark", "\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":5,"method":"ping"}`, "5", 1},
		{"CRLF", `{"jsonrpc":"2.0","id":5,"method":"ping"}` + "\r", "5", 1},
		{"50 MB", `{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"` + strings.Repeat("x", 50<<20) + `"}}`, "5", -32600},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"p\xff\"}", "null", -32700},
		{"blank", "", "", 0},
		{"an answer nobody asked for", `{"jsonrpc":"2.0","id":5,"result":{}}`, "", 0},
		{"second initialize", strings.Replace(hello, `"hello"`, "5", 1), "5", -32600},
		{"cancelling nothing", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, "", 0},
		{"cancelling no id", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`, "", 0},
	} {
		ping := fmt.Sprintf(`"ping %d"`, i)
		s.send(tt.line, `{"jsonrpc":"2.0","id":`+ping+`,"method":"ping"}`)
		got, ponged := []*reply{}, false
		for !ponged || len(got) == 0 && tt.code != 0 {
			r := s.next()
			if string(r.ID) == ping {
				ponged = true
				continue
			}
			got = append(got, r)
		}
		switch {
		case tt.code == 0 && len(got) > 0, len(got) > 1:
			t.Errorf("%s: answered %d times: %+v", tt.name, len(got), got[0])
		case tt.code == 1 && (got[0].Error != nil || string(got[0].ID) != tt.id):
			t.Errorf("%s: %s %+v, want a result for %s", tt.name, got[0].ID, got[0].Error, tt.id)
		case tt.code < 0 && (got[0].Error == nil || got[0].Error.Code != tt.code || string(got[0].ID) != tt.id):
			t.Errorf("%s: %s %+v, want %d for %s", tt.name, got[0].ID, got[0].Error, tt.code, tt.id)
		}
	}
	s.must(s.in.Close())
	s.ends(0)
	if _, err := os.Stat(p.home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the home was made by talking: %v", err)
	}
}

func (s *lineServer) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestSubmissionsOutliveTheirServer: C119, W2. Any later server waits for a run by
// its id, and the same key starts nothing again, also from two servers at once.
func TestSubmissionsOutliveTheirServer(t *testing.T) {
	p := newPlace(t)
	one := p.serve()
	one.greet()
	work := `{"command":["fakeagent","pid","agent","then","until","go","then","print","done"],"key":"k 1","lane":"api/x"}`
	first := one.call("submit", work)
	if first.IsError || first.Data.Run == "" {
		t.Fatalf("submit: %+v", first)
	}
	one.must(one.cmd.Process.Kill())
	<-one.end

	two, three := p.serve(), p.serve()
	two.greet()
	three.greet()
	for _, s := range []*lineServer{two, three} {
		if again := s.call("submit", work); again.Data.Run != first.Data.Run || !again.Data.Known {
			t.Errorf("the same again: %+v", again)
		}
		if other := s.call("submit", `{"command":["fakeagent","print","other"],"key":"k 1"}`); other.Data.Error.Kind != "conflict" || other.Data.Error.Code != "other_request" {
			t.Errorf("another request under the key: %+v", other)
		}
		if owned := s.call("submit", `{"command":["fakeagent","print","x"],"lane":"api/x"}`); owned.Data.Error.Kind != "conflict" || owned.Data.Error.Code != "lane_owned" || !strings.Contains(owned.Content[0].Text, "owned by") {
			t.Errorf("an occupied lane: %+v", owned)
		}
	}
	if early := two.call("wait", `{"runs":"`+first.Data.Run+`","wait_s":0}`); len(early.Data.StillRunning) != 1 {
		t.Errorf("wait of no time: %+v", early)
	}
	two.send(toolCall("1", "wait", `{"runs":["`+first.Data.Run+`"]}`))
	p.must(os.WriteFile(filepath.Join(p.dir, "go"), []byte("1\n"), 0o600))
	if end := two.answer("1"); len(end.Data.StillRunning) != 0 || end.Data.Runs[0].Outcome != "exited" {
		t.Errorf("wait: %+v", end)
	}
	if got := three.call("result", `{"run":"`+first.Data.Run+`"}`); got.Data.Text != "done\n" {
		t.Errorf("result: %+v", got)
	}
	if again := three.call("submit", work); again.Data.Run != first.Data.Run || !again.Data.Known {
		t.Errorf("the same again, after its end: %+v", again)
	}

	// Two at once: one run, one answer.
	race := `{"command":["fakeagent","print","raced"],"key":"race"}`
	two.send(toolCall("2", "submit", race))
	three.send(toolCall("2", "submit", race))
	a, b := two.answer("2"), three.answer("2")
	if a.Data.Run == "" || a.Data.Run != b.Data.Run || a.Data.Known == b.Data.Known {
		t.Errorf("two at once: %+v and %+v", a, b)
	}
	if runs := p.runs(); len(runs) != 2 {
		t.Errorf("%d runs, want 2: %q", len(runs), runs)
	}
}

// runs are the directories of the runs of the home.
func (p *place) runs() []string {
	p.t.Helper()
	all, err := filepath.Glob(filepath.Join(p.home, "runs", "*", "*", "run.json"))
	p.must(err)
	return all
}

// TestEndOfInputEndsTheServer: C117. In the middle of a call as well; what was
// submitted goes on.
func TestEndOfInputEndsTheServer(t *testing.T) {
	p := newPlace(t)
	null := p.command("mcp") // stdin is the null device
	if out, err := null.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("with nothing to read: %q, %v", out, err)
	}
	s := p.serve()
	s.greet()
	run := s.call("submit", `{"command":["fakeagent","pid","agent","then","sleep","60s"]}`).Data.Run
	s.send(toolCall("7", "wait", `{"runs":"`+run+`","wait_s":600}`))
	s.must(s.in.Close())
	if last := s.answer("7"); len(last.Data.StillRunning) != 1 {
		t.Errorf("the wait under way: %+v", last)
	}
	s.ends(0)

	// The client does not read, and then closes what it writes to.
	blind, out := p.blind()
	s.must(blind.in.Close())
	blind.ends(0)
	out.Close()
	// It closes what it reads from only: that is noticed with the next answer.
	blind, out = p.blind()
	out.Close()
	blind.ends(125)

	end := p.serve()
	end.greet()
	if got := end.call("cancel", `{"run":"`+run+`"}`); got.Data.Did != "cancelled" {
		t.Errorf("cancel: %+v", got)
	}
}

// blind is a server whose answers nobody reads, until it can write no more. out is
// the end from which they could be read.
func (p *place) blind() (s *lineServer, out *os.File) {
	p.t.Helper()
	out, theirs, err := os.Pipe()
	p.must(err)
	cmd := p.command("mcp")
	s = &lineServer{t: p.t, cmd: cmd, err: &bytes.Buffer{}, end: make(chan struct{})}
	s.in, err = cmd.StdinPipe()
	p.must(err)
	cmd.Stdout, cmd.Stderr = theirs, s.err
	p.must(cmd.Start())
	theirs.Close()
	go func() { _ = cmd.Wait(); close(s.end) }()
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); <-s.end })
	for range 40 { // of tools/list, an answer has some 10 kB, and a pipe holds 64
		s.send(strings.Replace(hello, "\"hello\"", "1", 1), `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	}
	return s, out
}

// TestCancelledCallEndsAlone: C118. Neither the run nor another call nor the server
// ends with a call that the client gives up.
func TestCancelledCallEndsAlone(t *testing.T) {
	p := newPlace(t)
	s := p.serve()
	s.greet()
	run := s.call("submit", `{"command":["fakeagent","pid","agent","then","until","go"]}`).Data.Run
	const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`
	s.send(toolCall("1", "wait", `{"runs":"`+run+`","wait_s":600}`), toolCall(`"other"`, "wait", `{"runs":"`+run+`"}`))
	s.send(fmt.Sprintf(cancelled, "1"), fmt.Sprintf(cancelled, "1"), fmt.Sprintf(cancelled, `"nobody"`))
	if got := s.call("why", `{"about":"`+run+`"}`); got.IsError {
		t.Errorf("why: %+v", got)
	}
	p.must(os.WriteFile(filepath.Join(p.dir, "go"), []byte("1\n"), 0o600))
	if end := s.answer(`"other"`); len(end.Data.Runs) != 1 || end.Data.Runs[0].Outcome != "exited" {
		t.Errorf("the other wait: %+v", end)
	}
	s.send(fmt.Sprintf(cancelled, `"other"`), `{"jsonrpc":"2.0","id":1,"method":"ping"}`) // too late, and an id that is free again
	if r := s.next(); string(r.ID) != "1" || r.Error != nil {
		t.Errorf("after its answer: %+v", r)
	}
	s.must(s.in.Close())
	s.ends(0)
}

// TestNestedAskerStartsNothing: C120, W4. By the environment, and by ancestry where
// a client scrubs it. Looking, gate and the refusal's words are all it gets.
func TestNestedAskerStartsNothing(t *testing.T) {
	p := newPlace(t)
	for name, below := range map[string][]string{
		"environment": {"handsel", "mcp"},
		"ancestry":    {"env", "-i", "PATH=" + strings.TrimPrefix(p.env[0], "PATH="), "HANDSEL_HOME=" + p.home, "HANDSEL_CONFIG=" + filepath.Join(p.dir, "config.toml"), mark + "=" + p.dir, "handsel", "mcp"},
	} {
		before := len(p.runs())
		s := p.serveAs(p.command(append([]string{"run", "--"}, below...)...))
		s.greet()
		for _, work := range []string{`{"command":["fakeagent","print","x"]}`, `{"prompt":"x","engine":"claude","key":"k","lane":"l"}`} {
			got := s.call("submit", work)
			if e := got.Data.Error; !got.IsError || e.Kind != "conflict" || e.Code != "nested" || e.Retryable || !strings.Contains(got.Content[0].Text, "final") {
				t.Errorf("%s: submit: %+v", name, got)
			}
		}
		if got := s.call("gate", `{"pools":["build"],"command":["claude","-p","x"]}`); got.Data.Error.Kind != "conflict" || got.Data.Error.Code != "nested" {
			t.Errorf("%s: an engine behind a gate: %+v", name, got)
		}
		if made := len(p.runs()) - before; made != 1 { // that which the server is in
			t.Errorf("%s: %d runs were made", name, made)
		}
		if _, err := os.Stat(filepath.Join(p.home, "lanes")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: lanes were made: %v", name, err)
		}
		keys, err := filepath.Glob(filepath.Join(p.home, "keys", "*.json"))
		if err != nil || len(keys) > 0 {
			t.Errorf("%s: keys were made: %q, %v", name, keys, err)
		}
		if got := s.call("status", `{}`); got.IsError {
			t.Errorf("%s: status: %+v", name, got)
		}
		if got := s.call("gate", `{"pools":["build"],"command":["fakeagent","print","built"]}`); got.IsError || got.Data.Text != "built\n" {
			t.Errorf("%s: gate: %+v", name, got)
		}
		gated := s.call("gate", `{"pools":["build"],"command":["fakeagent","pid","gated-`+name+`","then","sleep","60s"],"wait_s":0}`)
		if gated.IsError || len(gated.Data.StillRunning) != 1 {
			t.Errorf("%s: a long gate: %+v", name, gated)
		}
		s.must(s.in.Close())
		s.ends(0)
		for _, left := range leftBy(p.dir) { // the gate is the agent's, and ended with it
			t.Errorf("%s: still there: %d %s", name, left.Pid, left.Comm)
		}
	}
}

// TestNothingStaysOfAServer: C122. Of fifty servers whose clients are killed nothing
// is left, neither a process nor a file.
func TestNothingStaysOfAServer(t *testing.T) {
	p := newPlace(t)
	s := p.serve()
	s.greet()
	if got := s.call("submit", `{"command":["fakeagent","print","x"],"key":"k"}`); got.IsError {
		t.Fatalf("submit: %+v", got)
	}
	if got := s.call("wait", `{"runs":"label:none"}`); got.Data.Error.Kind != "not_found" || !strings.Contains(got.Data.Error.Message, "not ended yet; list tells") {
		t.Errorf("a label of nothing that goes on: %+v", got)
	}
	s.must(s.in.Close())
	s.ends(0)
	p.settled()
	before := p.files()
	for i := range 50 {
		fifo := filepath.Join(p.dir, fmt.Sprintf("fifo%d", i))
		p.must(syscall.Mkfifo(fifo, 0o600))
		client := exec.Command("sh", "-c", `exec 3<>"$0"; handsel mcp <"$0" >said 3>&- & echo ready; wait`, fifo)
		client.Dir, client.Env = p.dir, p.env
		out, err := client.StdoutPipe()
		p.must(err)
		p.must(client.Start())
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		p.must(client.Process.Kill())
		_ = client.Wait()
	}
	p.settled()
	if after := p.files(); !slices.Equal(after, before) {
		t.Errorf("files before %q\nafter %q", before, after)
	}
}

// settled waits until nothing of the place runs.
func (p *place) settled() {
	p.t.Helper()
	for until := time.Now().Add(patience); len(leftBy(p.dir)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			p.t.Fatalf("still there: %+v", leftBy(p.dir))
		}
	}
}

// files are all files of the home.
func (p *place) files() (all []string) {
	p.t.Helper()
	p.must(filepath.WalkDir(p.home, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	return all
}

// TestStdoutCarriesTheProtocolOnly: C115. With a configuration that is wrong, and
// with children that print and look for what they could inherit.
func TestStdoutCarriesTheProtocolOnly(t *testing.T) {
	p := newPlace(t)
	p.must(os.WriteFile(filepath.Join(p.dir, "config.toml"), []byte("nonsense = 1\n"), 0o600))
	p.env = append(p.env, "HANDSEL_MAX_AGENTS=many", "MCPGODEBUG=", "GODEBUG=")
	s := p.serve()
	s.greet()
	if got := s.call("submit", `{"command":["fakeagent","print","x"]}`); got.Data.Error.Kind != "invalid_input" || got.Data.Error.Code != "config" {
		t.Errorf("submit: %+v", got)
	}
	if got := s.call("status", `{}`); got.IsError || !strings.Contains(got.Content[0].Text, "problem: ") {
		t.Errorf("status: %+v", got)
	}
	s.must(s.in.Close())
	s.ends(0)

	p.must(os.WriteFile(filepath.Join(p.dir, "config.toml"), nil, 0o600))
	p.env = append(p.env, "HANDSEL_MAX_AGENTS=2")
	s = p.serve()
	s.greet()
	for _, name := range []string{"submit", "gate"} {
		got := s.call(name, strings.Replace(`{"command":["fakeagent","print","x","then","fds"]POOLS}`, "POOLS", map[string]string{"gate": `,"pools":["g"]`}[name], 1))
		run := got.Data.Run
		if got.IsError || run == "" {
			t.Fatalf("%s: %+v", name, got)
		}
		if name == "submit" {
			s.call("wait", `{"runs":"`+run+`"}`)
			got = s.call("result", `{"run":"`+run+`"}`)
		}
		text := got.Data.Text
		if !strings.HasPrefix(text, "x\n") || strings.Contains(text, fmt.Sprintf("pipe:[%d]", inode(t, s.cmd))) {
			t.Errorf("%s: the child has %q", name, text)
		}
	}
	s.must(s.in.Close())
	s.ends(0)
}

// TestRefusalsNameTheArgument: C121, also where the process that was to do the work
// is who refuses; in the words of the tools, not of the command line.
func TestRefusalsNameTheArgument(t *testing.T) {
	p := newPlace(t)
	s := p.serve()
	s.greet()
	for _, tt := range []struct{ tool, args, argument string }{
		{"submit", `{"command":["fakeagent","exit","0"],"pools":["Not A Pool"]}`, "pools"},
		{"gate", `{"command":["fakeagent","exit","0"],"pools":["Not A Pool"]}`, "pools"},
		{"submit", `{"prompt":" ","engine":"claude"}`, "prompt"},
		{"submit", `{"command":["fakeagent","exit","0"],"lane":"` + strings.Repeat("x", 201) + `"}`, "lane"},
		{"quota", `{"account":"nobody"}`, "account"},
	} {
		got := s.call(tt.tool, tt.args)
		if e := got.Data.Error; e.Kind != "invalid_input" || e.Code != "argument" || e.Argument != tt.argument || strings.Contains(got.Content[0].Text, "--") {
			t.Errorf("%s %.60s: %+v", tt.tool, tt.args, got)
		}
	}
	if runs := p.runs(); len(runs) != 0 {
		t.Errorf("runs were made: %q", runs)
	}
}

// inode is that of a server's stdout.
func inode(t *testing.T, cmd *exec.Cmd) (n uint64) {
	t.Helper()
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(target, "pipe:[%d]", &n); err != nil {
		t.Fatalf("stdout is %s: %v", target, err)
	}
	return n
}

// TestTheSDKsClientIsServed: the official client lists the tools and calls them, in
// the protocol's newest version, with progress told while it waits.
func TestTheSDKsClientIsServed(t *testing.T) {
	p := newPlace(t)
	var mu sync.Mutex
	var told []string
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, r.Params.Message)
		},
	})
	session, err := client.Connect(t.Context(), &sdk.CommandTransport{Command: p.command("mcp")}, nil)
	p.must(err)
	defer session.Close()
	tools, err := session.ListTools(t.Context(), nil)
	p.must(err)
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	if want := []string{"cancel", "gate", "list", "quota", "result", "status", "submit", "wait", "why"}; !slices.Equal(names, want) {
		t.Errorf("tools %q, want %q", names, want)
	}
	call := func(name string, args map[string]any) map[string]any {
		t.Helper()
		params := &sdk.CallToolParams{Name: name, Arguments: args}
		params.SetProgressToken("token of " + name)
		got, err := session.CallTool(t.Context(), params)
		p.must(err)
		data, _ := got.StructuredContent.(map[string]any)
		if got.IsError || data["v"] != 1.0 {
			t.Fatalf("%s: %+v", name, data)
		}
		return data
	}
	run := call("submit", map[string]any{"prompt": "say it", "engine": "claude", "workload": "heavy", "labels": map[string]any{"a": "b"}})["run"]
	call("wait", map[string]any{"runs": []any{run}})
	call("why", map[string]any{"about": run})
	call("quota", map[string]any{})
	if listed := call("list", map[string]any{"labels": map[string]any{"a": "b"}}); len(listed["runs"].([]any)) != 1 {
		t.Errorf("list: %+v", listed)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) == 0 {
		t.Error("no progress was told")
	}
}

// TestDispatcherKeepsWhatHasALane: in dispatcher mode a submission with a lane is
// enqueued where a dispatcher runs, and does without one where none does.
func TestDispatcherKeepsWhatHasALane(t *testing.T) {
	p := newPlace(t)
	p.must(os.WriteFile(filepath.Join(p.dir, "config.toml"), []byte("[admission]\nmode = \"dispatcher\"\n"), 0o600))
	s := p.serve()
	s.greet()
	alone := s.call("submit", `{"command":["fakeagent","print","alone"],"lane":"a"}`)
	if got := s.call("wait", `{"runs":"`+alone.Data.Run+`"}`); alone.IsError || got.Data.Runs[0].Outcome != "exited" {
		t.Fatalf("without a dispatcher: %+v, %+v", alone, got)
	}
	p.must(p.command("dispatch", "--background").Run())
	t.Cleanup(func() { _ = p.command("dispatch", "stop").Run() })
	p.env = append(p.env, "MY_SECRET_TOKEN=x") // C052: what the row cannot carry is named
	s = p.serve()
	s.greet()
	work := `{"command":["fakeagent","until","go","then","print","kept"],"lane":"b","key":"k"}`
	kept := s.call("submit", work)
	if again := s.call("submit", work); kept.IsError || again.Data.Run != kept.Data.Run || !again.Data.Known {
		t.Errorf("the same again: %+v, %+v", kept, again)
	}
	if !slices.Contains(kept.Data.Dropped, "MY_SECRET_TOKEN") || !strings.Contains(kept.Content[0].Text, "MY_SECRET_TOKEN") {
		t.Errorf("a variable that is not kept goes unsaid: %+v", kept)
	}
	if owned := s.call("submit", `{"command":["fakeagent","print","x"],"lane":"b"}`); owned.Data.Error.Kind != "conflict" {
		t.Errorf("an occupied lane: %+v", owned)
	}
	p.must(os.WriteFile(filepath.Join(p.dir, "go"), []byte("1\n"), 0o600))
	if got := s.call("wait", `{"runs":"lane:b"}`); len(got.Data.Runs) != 1 || got.Data.Runs[0].ID != kept.Data.Run {
		t.Errorf("wait: %+v", got)
	}
	if got := s.call("result", `{"run":"`+kept.Data.Run+`"}`); got.Data.Text != "kept\n" {
		t.Errorf("result: %+v", got)
	}
}
