package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/handsel/handsel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a board that tests write, and a home that notes what it was told to do.
type stage struct {
	mu     sync.Mutex
	board  handsel.Board
	events []handsel.JournalEvent
	looks  int
	did    []string
	err    error // of the next thing that is done
	wait   chan struct{}
	stuck  chan struct{} // a look waits for its end
	takes  time.Duration // each look
	gone   atomic.Bool   // the dispatcher is
}

func (s *stage) Dispatched() bool { return !s.gone.Load() }

func (s *stage) Look(context.Context) *handsel.Board {
	if s.stuck != nil {
		<-s.stuck
	}
	gone := s.gone.Load() // seen first, and told last
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	b := s.board
	b.V, b.Root, b.Mode, b.At.Time = 1, "/somewhere", "waiter", time.Now()
	b.Dispatcher.State, b.Status = handsel.DispatcherNone, &handsel.Snapshot{}
	if !gone {
		b.Dispatcher.State = handsel.DispatcherAnswers
	}
	b.Cards = append([]handsel.Card{}, s.board.Cards...)
	return &b
}

func (s *stage) set(cards ...handsel.Card) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.board.Cards = cards
}

func (s *stage) note(format string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.did = append(s.did, fmt.Sprintf(format, args...))
	return nil
}

func (s *stage) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.did...)
}

func (s *stage) journal(_ context.Context, x string, _ func(error)) (iter.Seq[handsel.JournalEvent], error) {
	if x == "nobody" {
		return nil, &handsel.NotFound{Name: x}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append([]handsel.JournalEvent{}, s.events...)
	return func(yield func(handsel.JournalEvent) bool) {
		for _, e := range all {
			if !yield(e) {
				return
			}
		}
	}, nil
}

func (s *stage) Why(_ context.Context, x string) (*handsel.Explained, error) {
	if x == "nobody" {
		return nil, &handsel.NotFound{Name: x}
	}
	return &handsel.Explained{V: 1, Name: x, Permissions: []handsel.Permission{}, Problems: []string{}}, nil
}

func (s *stage) Durations(handsel.RunFilter) (*handsel.DurationList, error) {
	return &handsel.DurationList{V: 1, Durations: map[string]handsel.DurationSum{}}, nil
}

func (s *stage) FindWork(_ context.Context, x string, _ bool) ([]handsel.KnownRun, error) {
	k := handsel.KnownRun{}
	k.ID = x
	if x == "many" {
		return []handsel.KnownRun{k, k}, nil
	}
	return []handsel.KnownRun{k}, nil
}

func (s *stage) Accept(ctx context.Context, x string, o handsel.VerdictOptions) (*handsel.Given, error) {
	if s.wait != nil {
		close(s.wait)
		select {
		case <-o.Signals: // as a check that is ended
			return nil, errors.New("a check was ended")
		case <-time.After(time.Minute):
		}
	}
	if err := s.note("accept %s %q %q", x, o.Evidence, o.Note); err != nil {
		return nil, err
	}
	return &handsel.Given{Verdict: &handsel.Verdict{Verdict: "accepted", Attempt: x, By: "me"}}, ctx.Err()
}

func (s *stage) Reject(_ context.Context, x string, o handsel.VerdictOptions) (*handsel.Given, error) {
	if err := s.note("reject %s %q", x, o.Note); err != nil {
		return nil, err
	}
	return &handsel.Given{Verdict: &handsel.Verdict{Verdict: "rejected", Attempt: x, By: "me"}, Warnings: []error{errors.New("look twice")}}, nil
}

func (s *stage) Cancel(_ context.Context, r handsel.KnownRun) (*handsel.Cancelled, error) {
	return &handsel.Cancelled{Run: r, Did: "cancelled", Message: "ended"}, s.note("cancel %s", r.ID)
}

func (s *stage) Hold(_ context.Context, x, reason string, until time.Time) (*handsel.Ordered, error) {
	return &handsel.Ordered{Order: handsel.Order{Scope: x}}, s.note("hold %s %q %v", x, reason, !until.IsZero())
}

func (s *stage) Drain(_ context.Context, reason string) (*handsel.Ordered, error) {
	return &handsel.Ordered{Silent: "it sleeps"}, s.note("drain %q", reason)
}

func (s *stage) Resume(_ context.Context, x string) ([]handsel.Order, string, error) {
	return []handsel.Order{{Scope: x, Kind: handsel.KindHold}}, "", s.note("resume %s", x)
}

func (s *stage) Retry(_ context.Context, x string) (*handsel.Acted, error) {
	return &handsel.Acted{}, s.note("retry %s", x)
}

func (s *stage) SetPriority(_ context.Context, x string, n int) (*handsel.Acted, error) {
	return &handsel.Acted{}, s.note("prio %s %d", x, n)
}

// site is a server that runs, and whoever talks to it.
type site struct {
	*stage
	t      *testing.T
	s      *Server
	client *http.Client
	cookie *http.Cookie
	key    string
	end    func() error
}

func open(t *testing.T) *site {
	t.Helper()
	st := &stage{}
	s, err := Open(Options{Listen: "127.0.0.1:0", Home: st, Look: st, Journal: st.journal, pace: pace{look: time.Millisecond, beat: 20 * time.Millisecond, sample: time.Hour, write: 200 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	w := &site{stage: st, t: t, s: s, client: &http.Client{Transport: &http.Transport{}}}
	w.end = sync.OnceValue(func() error {
		stop()
		w.client.CloseIdleConnections()
		return <-served
	})
	t.Cleanup(func() { _ = w.end() })
	return w
}

// enter opens the link.
func (w *site) enter() *site {
	w.t.Helper()
	res, body := w.ask("POST", "/api/session", fmt.Sprintf(`{"token":%q}`, w.s.door.token))
	if res.StatusCode != 200 || len(res.Cookies()) != 1 {
		w.t.Fatalf("the token was answered with %d, %s", res.StatusCode, body)
	}
	var got struct{ Key string }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		w.t.Fatal(err)
	}
	w.cookie, w.key = res.Cookies()[0], got.Key
	return w
}

// request is one as our page makes it.
func (w *site) request(method, path, body string) *http.Request {
	w.t.Helper()
	req, err := http.NewRequest(method, "http://"+w.s.Addr()+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if w.cookie != nil {
		req.AddCookie(w.cookie)
		req.Header.Set(keyHeader, w.key)
	}
	if method == "POST" {
		req.Header.Set("Origin", "http://"+w.s.Addr())
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

func (w *site) do(req *http.Request) (*http.Response, string) {
	w.t.Helper()
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res, string(text)
}

func (w *site) ask(method, path, body string) (*http.Response, string) {
	w.t.Helper()
	return w.do(w.request(method, path, body))
}

// code is the code of a refusal.
func code(body string) string {
	var r refusal
	if json.Unmarshal([]byte(body), &r) != nil || r.Error == nil {
		return ""
	}
	return r.Error.Code
}

func TestOnlyLoopbackIsListenedAt(t *testing.T) {
	for _, tt := range []struct{ at, want string }{
		{"127.0.0.1:0", "127.0.0.1:0"}, {"127.3.2.1:81", "127.3.2.1:81"}, {"[::1]:0", "[::1]:0"}, {"localhost:8484", "127.0.0.1:8484"}, {"[::ffff:127.0.0.1]:0", "127.0.0.1:0"},
		{"0.0.0.0:0", ""}, {":0", ""}, {"[::]:0", ""}, {"192.168.1.4:80", ""}, {"example.org:80", ""}, {"127.0.0.1", ""}, {"127.0.0.1:", ""}, {"127.0.0.1:http", ""}, {"127.0.0.1:70000", ""},
		{"127.0.0.1:-1", ""}, {"127.0.0.1:+80", ""}, {"127.0.0.1:080", ""}, {"[::1%lo]:80", ""}, {"127.0.0.1.nip.io:80", ""}, {"0x7f.1:80", ""}, {"2130706433:80", ""}, {"", ""}, {"\x00:1", ""},
	} {
		got, err := loopback(tt.at)
		if got != tt.want || (err == nil) != (tt.want != "") || err != nil && !errors.As(err, new(*handsel.BadOption)) {
			t.Errorf("loopback(%q) = %q, %v; want %q", tt.at, got, err, tt.want)
		}
	}
}

func TestTakenPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Open(Options{Listen: l.Addr().String()})
	taken, ok := errors.AsType[*Taken](err)
	if !ok || taken.Addr != l.Addr().String() || !strings.Contains(err.Error(), "another process has this port") {
		t.Errorf("Open at a taken port: %v", err)
	}
}

func TestTokenWorksOnce(t *testing.T) {
	w := open(t)
	if !strings.HasPrefix(w.s.Link(), "http://"+w.s.Addr()+"/#token=") {
		t.Errorf("the link is %s: its token must stand in the fragment", w.s.Link())
	}
	try := func(body string) (int, string, int) {
		res, text := w.ask("POST", "/api/session", body)
		return res.StatusCode, code(text), len(res.Cookies())
	}
	for _, bad := range []string{`{"token":""}`, `{"token":"x"}`, fmt.Sprintf(`{"token":%q}`, w.s.door.token[:42]), fmt.Sprintf(`{"token":%q}`, w.s.door.session)} {
		if status, why, cookies := try(bad); status != 403 || why != "bad_token" || cookies != 0 {
			t.Errorf("token %s was answered with %d, %s and %d cookies", bad, status, why, cookies)
		}
	}
	// Whoever guesses the session before the token was shown has nothing.
	w.cookie, w.key = &http.Cookie{Name: w.s.door.cookie, Value: w.s.door.session}, w.s.door.key
	if res, body := w.ask("GET", "/api/why?x=a", ""); res.StatusCode != 401 {
		t.Errorf("a session before the token: %d %s", res.StatusCode, body)
	}
	w.cookie = nil
	w.enter()
	if c := w.cookie; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge != 0 || !c.Expires.IsZero() {
		t.Errorf("the cookie is %v", c)
	}
	w2 := &site{stage: w.stage, t: t, s: w.s, client: w.client}
	res, text := w2.ask("POST", "/api/session", fmt.Sprintf(`{"token":%q}`, w.s.door.token))
	if res.StatusCode != 403 || code(text) != "used_token" || len(res.Cookies()) != 0 {
		t.Errorf("the second use was answered with %d, %s", res.StatusCode, text)
	}
	if res, _ := w.ask("GET", "/api/why?x=a", ""); res.StatusCode != 200 {
		t.Errorf("the first session ended with it: %d", res.StatusCode)
	}
}

// A request that did not come from our page with our session changes nothing and
// learns nothing, whatever else is right about it.
func TestStrangersAreRefused(t *testing.T) {
	w := open(t).enter()
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	paths := []struct{ method, path, body string }{
		{"GET", "/api/why?x=lane", ""}, {"GET", "/api/journal?x=lane", ""}, {"GET", "/api/durations", ""}, {"GET", "/api/board", ""}, {"GET", "/api/events", ""},
		{"POST", "/api/accept", `{"x":"lane","evidence":["e"]}`}, {"POST", "/api/cancel", `{"x":"lane"}`}, {"POST", "/api/drain", `{}`},
	}
	for _, tt := range []struct {
		name   string
		spoil  func(*http.Request)
		status int
		code   string
		page   bool // refused for the page itself, too
	}{
		{"another host", func(r *http.Request) { r.Host = "evil.example" }, 421, "foreign_host", true},
		{"another host at our port", func(r *http.Request) { _, p, _ := net.SplitHostPort(w.s.Addr()); r.Host = "evil.example:" + p }, 421, "foreign_host", true},
		{"our address without its port", func(r *http.Request) { r.Host = "127.0.0.1" }, 421, "foreign_host", true},
		{"another origin", set("Origin", "http://evil.example"), 403, "foreign_origin", true},
		{"no page's origin", set("Origin", "null"), 403, "foreign_origin", true},
		{"our origin by https", set("Origin", "https://"+w.s.Addr()), 403, "foreign_origin", true},
		{"another port's origin", set("Origin", "http://127.0.0.1:1"), 403, "foreign_origin", true},
		{"our other name's origin", func(r *http.Request) {
			_, p, _ := net.SplitHostPort(w.s.Addr())
			r.Header.Set("Origin", "http://localhost:"+p)
		}, 403, "foreign_origin", true},
		{"two origins", func(r *http.Request) { r.Header["Origin"] = []string{"http://" + w.s.Addr(), "http://evil.example"} }, 403, "foreign_origin", true},
		{"another site", set("Sec-Fetch-Site", "cross-site"), 403, "foreign_origin", false},
		{"another port of this machine", set("Sec-Fetch-Site", "same-site"), 403, "foreign_origin", false},
		{"an address that was typed", set("Sec-Fetch-Site", "none"), 403, "foreign_origin", false},
		{"no cookie", func(r *http.Request) { r.Header.Del("Cookie") }, 401, "no_session", false},
		{"another cookie", set("Cookie", w.cookie.Name+"="+w.s.door.key), 401, "no_session", false},
		{"no key", func(r *http.Request) { r.Header.Del(keyHeader) }, 401, "no_session", false},
		{"another key", set(keyHeader, w.cookie.Value), 401, "no_session", false},
	} {
		for _, p := range paths {
			req := w.request(p.method, p.path, p.body)
			tt.spoil(req)
			if res, body := w.do(req); res.StatusCode != tt.status || code(body) != tt.code {
				t.Errorf("%s: %s %s was answered with %d, %s", tt.name, p.method, p.path, res.StatusCode, body)
			}
		}
		req := w.request("GET", "/", "")
		tt.spoil(req)
		if res, body := w.do(req); (res.StatusCode == tt.status) != tt.page {
			t.Errorf("%s: the page itself was answered with %d, %.60s", tt.name, res.StatusCode, body)
		}
	}
	req := w.request("POST", "/api/cancel", `{"x":"lane"}`)
	req.Header.Del("Origin")
	if res, body := w.do(req); res.StatusCode != 403 || code(body) != "foreign_origin" {
		t.Errorf("a POST without an origin was answered with %d, %s", res.StatusCode, body)
	}
	for _, p := range paths[5:] {
		if res, _ := w.ask("GET", p.path, ""); res.StatusCode == 200 {
			t.Errorf("GET %s was let through", p.path)
		}
	}
	if did := w.done(); len(did) != 0 {
		t.Errorf("refused, and done all the same: %q", did)
	}
	w.mu.Lock()
	looks := w.looks
	w.mu.Unlock()
	if looks != 0 {
		t.Errorf("strangers had %d looks taken", looks)
	}
	if res, body := w.ask("POST", "/api/cancel", `{"x":"lane"}`); res.StatusCode != 200 || len(w.done()) != 1 {
		t.Errorf("our own page was answered with %d, %s", res.StatusCode, body)
	}
}

func TestWhatIsServedIsBoundByPolicy(t *testing.T) {
	w := open(t)
	for path, kind := range map[string]string{"/": "text/html", "/style.css": "text/css", "/app.js": "text/javascript", "/icon.svg": "image/svg+xml", "/nothing": "application/json", "/api/why?x=a": "application/json", "/..%2fweb.go": "application/json"} {
		res, body := w.ask("GET", path, "")
		if got := res.Header.Get("Content-Type"); !strings.HasPrefix(got, kind) {
			t.Errorf("%s is %s, want %s", path, got, kind)
		}
		if csp := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; script-src 'self';") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s has the policy %q", path, csp)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		for _, outside := range []string{"https://", "//cdn", "onclick=", "style=", "<script>"} {
			if strings.Contains(body, outside) {
				t.Errorf("%s has %q in it", path, outside)
			}
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	w := open(t).enter()
	for _, tt := range []struct {
		name, kind, body string
		status           int
	}{
		{"too long", "application/json", `{"x":"` + strings.Repeat("a", maxBody) + `"}`, 413},
		{"no JSON", "application/json", `x=1`, 400},
		{"a form", "application/x-www-form-urlencoded", `x=1`, 415},
		{"plain text, as other sites may send", "text/plain", `{"x":"lane"}`, 415},
		{"unknown field", "application/json", `{"x":"lane","y":1}`, 400},
		{"two values", "application/json", `{"x":"lane"}{}`, 400},
		{"no UTF-8", "application/json", "{\"x\":\"\xff\"}", 400},
		{"nothing named", "application/json", `{}`, 400},
		{"a long name", "application/json", `{"x":"` + strings.Repeat("a", maxName+1) + `"}`, 400},
		{"null", "application/json", `null`, 400},
		{"a list", "application/json", `[]`, 400},
		{"empty", "application/json", ``, 400},
	} {
		req := w.request("POST", "/api/cancel", tt.body)
		req.Header.Set("Content-Type", tt.kind)
		if res, body := w.do(req); res.StatusCode != tt.status || code(body) == "" {
			t.Errorf("%s: %d, %s; want %d", tt.name, res.StatusCode, body, tt.status)
		}
	}
	for _, q := range []string{"", "?x=", "?x=a&x=b", "?y=a", "?x=a&y=b", "?x=%ff", "?x=" + strings.Repeat("a", maxName+1)} {
		if res, body := w.ask("GET", "/api/why"+q, ""); res.StatusCode != 400 {
			t.Errorf("why%.20s: %d, %s", q, res.StatusCode, body)
		}
	}
	if did := w.done(); len(did) != 0 {
		t.Errorf("refused, and done all the same: %q", did)
	}
}

func TestVerbsAreTheLibrarys(t *testing.T) {
	w := open(t).enter()
	for _, tt := range []struct{ verb, body, did string }{
		{"accept", `{"x":"run:1","evidence":["a","b"],"note":"n"}`, `accept run:1 ["a" "b"] "n"`},
		{"reject", `{"x":"run:1","note":"no"}`, `reject run:1 "no"`},
		{"cancel", `{"x":"run:1"}`, `cancel run:1`},
		{"hold", `{"x":"lane:a","reason":"r","for_s":60}`, `hold lane:a "r" true`},
		{"hold", `{"x":"lane:a"}`, `hold lane:a "" false`},
		{"drain", `{"reason":"r"}`, `drain "r"`},
		{"resume", `{"x":"all"}`, `resume all`},
		{"retry", `{"x":"run:1"}`, `retry run:1`},
		{"prio", `{"x":"run:1","priority":-3}`, `prio run:1 -3`},
	} {
		before := len(w.done())
		res, body := w.ask("POST", "/api/"+tt.verb, tt.body)
		if did := w.done(); res.StatusCode != 200 || len(did) != before+1 || did[before] != tt.did {
			t.Errorf("%s %s: %d %s, did %q", tt.verb, tt.body, res.StatusCode, body, did[before:])
		}
	}
	before := len(w.done())
	for verb, want := range map[string]string{"release": "terminal_only", "session2": "not_found", "gc": "not_found"} {
		if res, body := w.ask("POST", "/api/"+verb, `{"x":"a"}`); res.StatusCode != 404 || code(body) != want {
			t.Errorf("%s: %d %s", verb, res.StatusCode, body)
		}
	}
	for body, why := range map[string]string{`{"x":"lane:a"}`: "a drain is of everything", `[]`: "of the kind array", `{"x":1}`: "x is of the kind number"} {
		res, answer := w.ask("POST", "/api/drain", body)
		if res.StatusCode != 400 || !strings.Contains(string(answer), why) || strings.Contains(string(answer), "Go ") || len(w.done()) != before {
			t.Errorf("drain %s: %d %s, did %q", body, res.StatusCode, answer, w.done()[before:])
		}
	}
	if res, body := w.ask("POST", "/api/cancel", `{"x":"many"}`); res.StatusCode != 400 || code(body) != "ambiguous" {
		t.Errorf("cancel of many: %d %s", res.StatusCode, body)
	}
	if res, body := w.ask("POST", "/api/hold", `{"x":"all","for_s":-1}`); res.StatusCode != 400 {
		t.Errorf("hold for less than nothing: %d %s", res.StatusCode, body)
	}
	if len(w.done()) != before {
		t.Errorf("refused, and done all the same: %q", w.done()[before:])
	}
}

func TestRefusalsAreShownWithTheirCode(t *testing.T) {
	w := open(t).enter()
	for _, tt := range []struct {
		err    error
		status int
		code   string
	}{
		{&handsel.ReviewRefused{Class: "acceptance", Why: handsel.CodeNoEvidence, Text: "accept needs evidence"}, 409, handsel.CodeNoEvidence},
		{&handsel.Decides{Verb: "accept", Inside: &handsel.Inside{}}, 403, handsel.CodeInside},
		{&handsel.NotFound{Name: "x"}, 404, "not_found"},
		{&handsel.BadOption{Option: "note", Why: "it is empty"}, 400, "config"},
		{&handsel.NoDispatcher{}, 503, "no_dispatcher"},
		{errors.New("the disk is on fire"), 500, "failed"},
	} {
		w.mu.Lock()
		w.err = tt.err
		w.mu.Unlock()
		res, body := w.ask("POST", "/api/accept", `{"x":"run:1","evidence":["e"]}`)
		var r refusal
		if err := json.Unmarshal([]byte(body), &r); err != nil || res.StatusCode != tt.status || r.Error.Code != tt.code || r.Error.Message != tt.err.Error() {
			t.Errorf("%v was answered with %d, %s", tt.err, res.StatusCode, body)
		}
	}
	if res, body := w.ask("GET", "/api/why?x=nobody", ""); res.StatusCode != 404 || code(body) != "not_found" {
		t.Errorf("why of nobody: %d %s", res.StatusCode, body)
	}
	if res, body := w.ask("GET", "/api/journal?x=nobody", ""); res.StatusCode != 404 || code(body) != "not_found" {
		t.Errorf("journal of nobody: %d %s", res.StatusCode, body)
	}
}

// A verdict whose checks run ends with the server, and the server waits for it.
func TestEndEndsWhatWasBegun(t *testing.T) {
	w := open(t).enter()
	w.wait = make(chan struct{})
	begun := w.wait
	answered := make(chan string, 1)
	go func() {
		res, err := w.client.Do(w.request("POST", "/api/accept", `{"x":"run:1"}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		answered <- string(text)
	}()
	<-begun
	if err := w.end(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve = %v", err)
	}
	if said := <-answered; !strings.Contains(said, "a check was ended") {
		t.Errorf("the verdict under way was answered with %s", said)
	}
}

// stream reads events as they come.
type stream struct {
	t    *testing.T
	res  *http.Response
	read *bufio.Reader
}

func (w *site) stream() *stream {
	w.t.Helper()
	res, err := w.client.Do(w.request("GET", "/api/events", ""))
	if err != nil {
		w.t.Fatal(err)
	}
	if kind := res.Header.Get("Content-Type"); res.StatusCode != 200 || kind != "text/event-stream" {
		w.t.Fatalf("events: %d, %s", res.StatusCode, kind)
	}
	w.t.Cleanup(func() { res.Body.Close() })
	return &stream{w.t, res, bufio.NewReader(res.Body)}
}

// event is what is read of one.
type event struct {
	Seq   uint64
	Cards []handsel.Card
	Gone  []string
	At    string
	Head  json.RawMessage
	Cross struct{ Release []struct{ Sentence string } } `json:"crossings"`
}

// next is the next event of a kind.
func (s *stream) next(kind string) (e event) {
	s.t.Helper()
	for {
		line, err := s.read.ReadString('\n')
		if err != nil {
			s.t.Fatalf("waiting for %s: %v", kind, err)
		}
		data, err := s.read.ReadString('\n')
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.read.ReadString('\n'); err != nil {
			s.t.Fatal(err)
		}
		if strings.TrimSpace(line) != "event: "+kind {
			continue
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &e); err != nil {
			s.t.Fatal(err)
		}
		return e
	}
}

func card(id, box string) handsel.Card {
	return handsel.Card{ID: id, Lane: "lane " + id, Box: box, Answer: "wait", Code: "pool_full"}
}

func TestStreamTellsTheWholeAndThenChanges(t *testing.T) {
	w := open(t).enter()
	w.set(card("1", "resource"), card("2", "resource"))
	w.mu.Lock()
	w.events = []handsel.JournalEvent{{V: 1, At: time.Now(), Permission: "release", What: "released", Lane: "lane 9", Attempt: "9", By: "mona"}}
	w.mu.Unlock()
	s := w.stream()
	whole := s.next("full")
	if len(whole.Cards) != 2 || len(whole.Head) == 0 || len(whole.Cross.Release) != 1 || !strings.Contains(whole.Cross.Release[0].Sentence, "lane 9") {
		t.Errorf("the whole is %+v", whole)
	}
	w.set(card("2", "ownership"), card("3", "resource"))
	c := s.next("change")
	if len(c.Cards) != 2 || c.Cards[0].Box != "ownership" || c.Cards[1].ID != "3" || len(c.Gone) != 1 || c.Gone[0] != "1" || c.Seq != whole.Seq+1 || c.Head != nil {
		t.Errorf("the change is %+v", c)
	}
	s.next("beat")
	// Who comes later gets the whole as it is by then.
	if late := w.stream().next("full"); late.Seq != c.Seq || len(late.Cards) != 2 || late.Cards[0].ID != "2" {
		t.Errorf("who comes later gets %+v", late)
	}
	res, body := w.ask("GET", "/api/board", "")
	if res.StatusCode != 200 || !strings.Contains(body, `"id":"3"`) {
		t.Errorf("board: %d %s", res.StatusCode, body)
	}
}

// While the first look goes on, a page is told that somebody is there.
func TestAPageHearsOfALookThatGoesOn(t *testing.T) {
	w := open(t)
	w.stuck = make(chan struct{})
	s := w.enter().stream()
	if e := s.next("beat"); e.At != "" {
		t.Errorf("before the first look, a beat is of %s", e.At)
	}
	board := make(chan string, 1)
	go func() {
		_, body := w.ask("GET", "/api/board", "")
		board <- body
	}()
	s.next("beat")
	close(w.stuck)
	s.next("full")
	if body := <-board; !strings.Contains(body, `"cards":[]`) {
		t.Errorf("board: %s", body)
	}
	if e := s.next("beat"); e.At == "" {
		t.Error("after the first look, a beat has no time")
	}
}

// What comes when the server has ended is not done (a POST in the last moment).
func TestNothingBeginsAfterTheEnd(t *testing.T) {
	w := open(t).enter()
	ended, stop := context.WithCancel(t.Context())
	stop()
	for i, h := range []http.Handler{w.s.handler(ended), w.s.handler(t.Context())} {
		if i == 1 {
			_ = w.end()
		}
		res, req := &recorded{}, w.request("POST", "/api/hold", `{"x":"all"}`)
		h.ServeHTTP(res, req)
		if res.status != 503 || code(res.body.String()) != "ending" || len(w.done()) != 0 {
			t.Errorf("a hold at the end: %d %s, did %q", res.status, res.body.String(), w.done())
		}
	}
}

// The port that browsers leave out may be left out.
func TestPort80HasNoName(t *testing.T) {
	for addr, hosts := range map[string][]string{"127.0.0.1:80": {"127.0.0.1", "localhost", "127.0.0.1:80"}, "[::1]:80": {"[::1]", "localhost:80"}} {
		for _, host := range hosts {
			if d := newDoor(addr); !d.hosts[host] {
				t.Errorf("%s: %s is foreign", addr, host)
			}
		}
	}
	if d := newDoor("127.0.0.1:8080"); d.hosts["127.0.0.1"] || d.hosts["localhost"] {
		t.Error("at port 8080 a host without a port is ours")
	}
}

// OPTIONS * passes no guard of its own.
func TestTheWholeServerIsGuarded(t *testing.T) {
	w := open(t)
	conn, err := net.Dial("tcp", w.s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "OPTIONS * HTTP/1.1\r\nHost: example.org\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "421") {
		t.Errorf("it was answered with %q, %v", line, err)
	}
}

// A clock that is set back stops no gauge, and nothing is of later than now.
func TestSamplesGoOnWhenTheClockIsSetBack(t *testing.T) {
	h := newHub(Options{pace: pace{sample: time.Minute}})
	b := &handsel.Board{Status: &handsel.Snapshot{}}
	for _, after := range []time.Duration{0, time.Second, time.Minute, -time.Hour, time.Minute - time.Hour} {
		b.At.Time = time.Unix(1e9, 0).Add(after)
		h.sample(b)
	}
	all := h.pools.all()
	if len(all) != 2 || all[1].when != b.At.Time {
		t.Errorf("the samples are %+v", all)
	}
}

func TestNobodyLooksWhileNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{}
		h := newHub(Options{Look: s, Journal: s.journal, pace: pace{}.orReal()})
		ctx, stop := context.WithCancel(t.Context())
		go h.run(ctx)
		read := func() (full string) {
			c, ok := h.join(ctx)
			if !ok {
				t.Fatal("no reader is let in")
			}
			defer h.leave(c)
			for m := range c.messages {
				if m.kind == "full" {
					return string(m.data)
				}
			}
			t.Fatal("the reader was dropped")
			return ""
		}
		read()
		synctest.Wait()
		before := s.looks
		time.Sleep(time.Hour)
		synctest.Wait()
		if before == 0 || s.looks != before {
			t.Errorf("%d looks while somebody read, %d after an hour in which nobody did", before, s.looks)
		}
		s.set(card("7", "resource"))
		if full := read(); !strings.Contains(full, `"id":"7"`) {
			t.Errorf("after a pause, the whole is old: %s", full)
		}
		stop()
		<-h.ended
	})
}

// However long a look takes and the rest after it, a dispatcher that is killed is
// seen within the beat and one look (W14).
func TestKilledDispatcherIsSeenInTheRestAfterALongLook(t *testing.T) {
	for at := time.Second; at < 12*time.Second; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{takes: 900 * time.Millisecond}
			h := newHub(Options{Look: s, Journal: s.journal, pace: pace{}.orReal()})
			ctx, stop := context.WithCancel(t.Context())
			go h.run(ctx)
			began := time.Now()
			c, ok := h.join(ctx)
			if !ok {
				t.Fatal("no reader is let in")
			}
			until := func(text string) {
				for m := range c.messages {
					if strings.Contains(string(m.data), text) {
						return
					}
				}
				t.Fatalf("dropped before %s was said", text)
			}
			until(`"state":"answers"`)
			time.Sleep(time.Until(began.Add(at)))
			s.gone.Store(true)
			until(`"state":"none"`)
			if took := time.Since(began) - at; took > 3*time.Second {
				t.Errorf("killed at %v, it was said after %v", at, took)
			}
			stop()
			h.leave(c)
			<-h.ended
		})
	}
}

// A reader that takes nothing is dropped; the others, and it when it comes again,
// get everything.
func TestSlowReaderIsDropped(t *testing.T) {
	w := open(t).enter()
	const many = 50
	big := func(n int) (all []handsel.Card) {
		for i := range many {
			c := card(fmt.Sprint(i), "resource")
			c.Message = strings.Repeat("x", 16<<10) + fmt.Sprint(n)
			all = append(all, c)
		}
		return all
	}
	w.set(big(0)...)
	conn, err := net.Dial("tcp", w.s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Else the kernel may take all of it: up to tcp_rmem's most, often 32 MiB.
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /api/events HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\n%s: %s\r\n\r\n", w.s.Addr(), w.cookie.Name, w.cookie.Value, keyHeader, w.key)
	fast := w.stream()
	fast.next("full")
	// What fills the kernel's buffers, and on for longer than a write may take: who
	// began to read before that would be none that takes nothing.
	for n, end := 0, time.Now().Add(10*w.s.o.pace.write); n < 14 || time.Now().Before(end); n++ {
		w.set(big(n + 1)...)
		if e := fast.next("change"); len(e.Cards) != many {
			t.Fatalf("change %d has %d cards", n, len(e.Cards))
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := io.Copy(io.Discard, conn)
	if err != nil && errors.As(err, new(net.Error)) && err.(net.Error).Timeout() { //nolint:errorlint // as io.Copy returned it
		t.Fatalf("it was not dropped after %d bytes", got)
	}
	if whole := int64(len(mustJSON(big(0)))); got > int64(mostUnread)*whole {
		t.Errorf("it got %d bytes: more than was kept for it", got)
	}
	if e := w.stream().next("full"); len(e.Cards) != many {
		t.Errorf("coming again it gets %d cards", len(e.Cards))
	}
}

// Nobody waits for a reader: what it has not taken is bounded, and at the bound it
// is dropped, once.
func TestFullReaderIsDropped(t *testing.T) {
	h := newHub(Options{})
	slow, fast := h.enter(t.Context()), h.enter(t.Context())
	for range mostUnread + 1 {
		h.send(message{"beat", nil})
		<-fast.messages
	}
	kept := 0
	for range slow.messages {
		kept++
	}
	if kept != mostUnread || h.reading() != 1 {
		t.Errorf("it was left %d messages, and %d go on reading", kept, h.reading())
	}
	h.forget(slow)
	h.send(message{"beat", nil})
	if len(fast.messages) != 1 || len(h.clients) != 1 {
		t.Error("the other does not go on")
	}
}

func TestReadersAreBounded(t *testing.T) {
	w := open(t).enter()
	for range mostClients {
		w.stream().next("full")
	}
	if res, body := w.ask("GET", "/api/events", ""); res.StatusCode != 503 || code(body) != "too_many" {
		t.Errorf("one too many: %d %s", res.StatusCode, body)
	}
}

func TestEndSaysGoodbye(t *testing.T) {
	w := open(t).enter()
	s := w.stream()
	s.next("full")
	ended := make(chan error, 1)
	go func() { ended <- w.end() }()
	s.next("bye")
	if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve = %v", err)
	}
	if _, err := net.Dial("tcp", w.s.Addr()); err == nil {
		t.Error("the port is still open")
	}
}

func TestJournalOfAThingEndsWithTheNewest(t *testing.T) {
	w := open(t).enter()
	for i := range 2*mostTold + 50 {
		w.events = append(w.events, handsel.JournalEvent{V: 1, At: time.Unix(int64(i), 0), Permission: "ownership", What: "ended", Attempt: fmt.Sprint(i)})
	}
	_, body := w.ask("GET", "/api/journal?x=lane", "")
	var got struct {
		Chosen int
		Events []struct{ Attempt, Sentence, At string }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if last := len(got.Events) - 1; got.Chosen != 2*mostTold+50 || last+1 != mostTold || got.Events[last].Attempt != fmt.Sprint(got.Chosen-1) || got.Events[last].Sentence == "" || !strings.HasSuffix(got.Events[0].At, ".000Z") {
		t.Errorf("chosen %d, told %d, the last %+v", got.Chosen, last+1, got.Events[last])
	}
}

func TestRequestsHaveTheirTime(t *testing.T) {
	w := open(t)
	conn, err := net.Dial("tcp", w.s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nX-Long: %s\r\n\r\n", w.s.Addr(), strings.Repeat("a", 4*maxHeader))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "431") {
		t.Errorf("a header without end was answered with %q, %v", line, err)
	}
}

func FuzzBody(f *testing.F) {
	for _, s := range []string{`{"x":"a"}`, `{"x":"\u202e"}`, `{"x":1}`, `{"evidence":["a",null]}`, `{"for_s":1e99}`, `[`, "\xff", `{"X":"a","x":"b"}`, `{"x":"a"} `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var in ask
		if err := decode(text, &in); err != nil {
			return
		}
		again, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var back ask
		if err := decode(again, &back); err != nil || back.X != in.X || back.ForS != in.ForS || back.Priority != in.Priority {
			t.Fatalf("%q is read as %+v, and that as %+v, %v", text, in, back, err)
		}
		if badName(in.X) == "" && (in.X == "" || len(in.X) > maxName) {
			t.Fatalf("%q names something", in.X)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"x=a", "x=%ff", "x=a&x=b", "x=lane%3Aapi%2Freview", ";x=a", "x=%zz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		w := &recorded{}
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/api/why", RawQuery: query}}
		x, ok := subject(w, r)
		if ok != (w.status == 0) || ok && badName(x) != "" || !ok && code(w.body.String()) == "" {
			t.Fatalf("%q: %q, %v, answered %d %s", query, x, ok, w.status, w.body.String())
		}
	})
}

// recorded is an answer that nobody reads.
type recorded struct {
	head   http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header {
	if r.head == nil {
		r.head = http.Header{}
	}
	return r.head
}
func (r *recorded) WriteHeader(status int)         { r.status = status }
func (r *recorded) Write(text []byte) (int, error) { return r.body.Write(text) }
