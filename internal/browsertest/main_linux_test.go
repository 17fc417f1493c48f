//go:build browser

package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/fakeagent"
	"github.com/handsel/handsel/internal/web"
)

// One browser is enough for all tests: each opens a server of its own.
var shared struct {
	browser *Browser
	err     error
	once    sync.Once
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	status := fakeagent.Main(m)
	if shared.browser != nil {
		if err := shared.browser.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the browser:", err)
			return 1
		}
	}
	return status
}

// page is the browser, in one test.
type page struct {
	*Browser
	t testing.TB
}

// browse opens a link, in a browser that knows of no other. At the end, the page
// must have asked nobody else for anything, and must not have complained but in
// the words that are expected.
func browse(t testing.TB, link string, expected ...string) *page {
	t.Helper()
	shared.once.Do(func() { shared.browser, shared.err = Start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	b := &page{shared.browser, t}
	b.must(b.Open("about:blank"))
	b.must(b.Logs())
	b.Asked, b.Said = nil, nil
	b.must(b.CDP(nil, "Network.clearBrowserCookies", nil))
	b.must(b.Prefers("prefers-color-scheme", "light"))
	b.must(b.Size(1280, 800))
	b.must(b.Open(link))
	t.Cleanup(func() {
		b.must(b.Logs())
		for _, url := range b.Asked {
			if !strings.HasPrefix(url, "http://127.0.0.1:") && url != "about:blank" && !strings.HasPrefix(url, "data:") {
				t.Errorf("the page asked for %s", url)
			}
		}
	said:
		for _, line := range b.Said {
			for _, ok := range expected {
				if strings.Contains(line, ok) {
					continue said
				}
			}
			t.Errorf("the page complained: %s", line)
		}
		b.must(b.Open("about:blank"))
	})
	return b
}

func (b *page) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// until waits for a JavaScript expression to be true.
func (b *page) until(what, expression string, args ...any) {
	b.t.Helper()
	b.must(b.Until(what, "return !!("+expression+")", args...))
}

// eval is the value of an expression.
func eval[T any](b *page, expression string, args ...any) (v T) {
	b.t.Helper()
	b.must(b.Eval(&v, "return "+expression, args...))
	return v
}

func (b *page) click(css string) {
	b.t.Helper()
	b.until(css, "document.querySelector(arguments[0])", css)
	b.must(b.Click(css))
}

// box waits until the card of a lane stands in a box, with these words on it.
func (b *page) box(box, lane string, words ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf("lane %s in box %s with %q", lane, box, words), `[...document.querySelectorAll(".box-" + arguments[0] + " .card")].some((c) =>
		c.querySelector(".name").textContent === arguments[1] && arguments[2].every((w) => c.textContent.includes(w))) &&
		[...document.querySelectorAll(".card .name")].filter((n) => n.textContent === arguments[1]).length === 1`, box, lane, words)
}

// stage is a Stage that ends with the test.
func stage(t testing.TB, config string) *Stage {
	t.Helper()
	bin := os.Getenv("HANDSEL_BIN")
	if bin == "" {
		bin = filepath.Join(t.TempDir(), "handsel")
		build := exec.Command("go", "build", "-o", bin, "github.com/handsel/handsel/cmd/handsel")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build handsel: %v\n%s", err, out)
		}
	}
	s, err := NewStage(t.TempDir(), bin, fakeagent.Build(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// boards is a home of which the tests say what is seen, and of which nothing is
// asked but why.
type boards struct {
	web.Home
	mu     sync.Mutex
	board  handsel.Board
	events []handsel.JournalEvent

	verdict chan error // what becomes of the next one
}

func (h *boards) Dispatched() bool { return true }

func (h *boards) Look(context.Context) *handsel.Board {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.board
	b.V, b.Root, b.Mode, b.At.Time = 1, "/somewhere", "dispatcher", time.Now()
	b.Dispatcher = handsel.SeenDispatcher{State: handsel.DispatcherAnswers, Pid: 7}
	b.Cards = append([]handsel.Card{}, h.board.Cards...)
	b.Boxes = map[string]handsel.BoxCount{}
	for i := range b.Cards {
		n := b.Boxes[b.Cards[i].Box]
		switch b.Cards[i].Answer {
		case "go":
			n.Go++
		case "wait":
			n.Wait++
		default:
			n.Deny++
		}
		b.Boxes[b.Cards[i].Box] = n
	}
	if b.Status == nil {
		b.Status = &handsel.Snapshot{}
	}
	return &b
}

func (h *boards) Why(_ context.Context, x string) (*handsel.Explained, error) {
	return &handsel.Explained{V: 1, Name: x, Kind: "lane", Problems: []string{}, Permissions: []handsel.Permission{
		{Class: "resource", Answer: "wait", Code: "pool_full", Message: "pool heavy is full: " + x, Ends: "one of those that hold it ends"},
		{Class: "quota", Answer: "deny", Code: "command_deny", Message: "no"}, {Class: "ownership", Answer: "go", Code: "owner", Message: "it has it"},
	}}, nil
}

func (h *boards) Accept(_ context.Context, x string, _ handsel.VerdictOptions) (*handsel.Given, error) {
	if err := <-h.verdict; err != nil {
		return nil, err
	}
	return &handsel.Given{Verdict: &handsel.Verdict{Verdict: "accepted", Attempt: strings.TrimPrefix(x, "run:"), By: "me"}}, nil
}

func (h *boards) Durations(handsel.RunFilter) (*handsel.DurationList, error) {
	d := handsel.DurationSum{Count: 3, MedianS: 1, P90S: 2, MaxS: 70, UpTo: []handsel.Counted{{LeS: 0.1, Count: 1}, {LeS: 60, Count: 2}}}
	l := &handsel.DurationList{Durations: map[string]handsel.DurationSum{}}
	for _, name := range handsel.DurationNames() {
		l.Durations[name] = d
	}
	return l, nil
}

func (h *boards) journal(context.Context, string, func(error)) (iter.Seq[handsel.JournalEvent], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := append([]handsel.JournalEvent{}, h.events...)
	return func(yield func(handsel.JournalEvent) bool) {
		for _, e := range all {
			if !yield(e) {
				return
			}
		}
	}, nil
}

// set changes what is seen.
func (h *boards) set(change func(b *handsel.Board)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.board)
}

// serve serves it, for one test.
func (h *boards) serve(t testing.TB) (link string) {
	t.Helper()
	s, err := web.Open(web.Options{Listen: "127.0.0.1:0", Home: h, Look: h, Journal: h.journal})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Log("Serve:", err)
		}
	})
	return s.Link()
}

// few is a board with something in every box.
func few() *boards {
	at := handsel.Card{}.Since
	at.Time = time.Now().Add(-time.Minute)
	c := func(id, lane, box, answer, state, code, review string) handsel.Card {
		return handsel.Card{ID: id, Lane: lane, Box: box, Answer: answer, State: state, Code: code, Class: box, Review: review, Message: "because of " + code, Since: at, Verb: "enqueue", Engine: "claude", Argv0: "claude"}
	}
	h := &boards{}
	h.board.Cards = []handsel.Card{
		c("r1", "api/one", "resource", "wait", "queued", "pool_full", ""), c("r2", "api/two", "resource", "wait", "queued", "pool_full", ""), c("r3", "api/three", "resource", "deny", "queued", "dependency_failed", ""),
		c("q1", "docs/one", "quota", "wait", "queued", "parked", ""), c("o1", "web/one", "ownership", "go", "running", "owner", ""), c("a1", "web/two", "acceptance", "wait", "exited", "review_pending", "pending"),
		c("a2", "web/three", "acceptance", "deny", "exited", "rejected", "rejected"), c("l1", "web/four", "release", "wait", "exited", "accepted", "accepted"), c("l2", "web/five", "release", "go", "exited", "released", "released"),
		c("e1", "", "ended", "go", "exited", "exited", ""), c("e2", "old", "ended", "deny", "exited", "exited", ""),
	}
	h.board.Cards[0].Place, h.board.Cards[1].Place, h.board.Cards[0].Priority = 1, 2, 5
	h.board.Status = &handsel.Snapshot{}
	pools := `{"heavy":{"cap":2,"held":2,"effective_cap":2,"holders":[]},"all":{"cap":8,"held":3,"effective_cap":8,"holders":[]}}`
	holds := `[{"scope":"lane:api/two","kind":"hold","reason":"freeze","by":"mona","since":null}]`
	if json.Unmarshal([]byte(pools), &h.board.Status.Pools) != nil || json.Unmarshal([]byte(holds), &h.board.Status.Holds) != nil {
		panic("the words of the test are wrong")
	}
	h.board.Accounts = []handsel.QuotaAccount{{Engine: "gemini", Answer: "wait", Code: "parked", Message: "it has reached its limit"}}
	h.events = []handsel.JournalEvent{
		{V: 1, At: time.Now().Add(-time.Hour), Permission: "resource", What: "admitted", Attempt: "r0", Lane: "api/zero", Identity: "pid 4", Evidence: []string{"all/0"}, To: "handsel, pid 3"},
		{V: 1, At: time.Now().Add(-time.Minute), Permission: "acceptance", What: "accepted", Attempt: "l1", Lane: "web/four", Identity: "tree:1f", Evidence: []string{"verdict 1", "https://ci.example.org/71"}, By: "mona"},
	}
	return h
}
