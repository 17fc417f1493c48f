//go:build browser

package browsertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// One lane, from the queue to its release, as a person at the page sees it: with a
// real dispatcher and real processes, accepted by a click, released in a terminal
// (W13, W14, C140). Then the dispatcher dies, and the page says so (C146).
func TestLaneIsFollowedThroughTheBoxes(t *testing.T) {
	s := stage(t, "[admission]\nmode = \"dispatcher\"\n[pools]\nall = 1\n[review]\nlanes = [\"api/*\"]\n[quota.claude]\n")
	run := func(args ...string) string {
		t.Helper()
		out, err := s.Run(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	tell := func(file string) {
		t.Helper()
		if err := s.Tell(file); err != nil {
			t.Fatal(err)
		}
	}
	dispatcher, err := s.Dispatcher()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start("run", "--lane", "other", "--", "fakeagent", "until", "other"); err != nil {
		t.Fatal(err)
	}
	served, link, err := s.Web()
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t, link, "409 (Conflict)", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED")

	b.box("ownership", "other", "running")
	if hash := eval[string](b, "location.href"); strings.Contains(hash, "token") {
		t.Errorf("the address still has the token: %s", hash)
	}
	run("quota", "set", "claude", "--for", "1h", "--reason", "the limit of the week")
	run("enqueue", "api/review", "--engine", "claude", "--author", "mona", "--", "fakeagent", "until", "review")
	b.box("quota", "api/review", "waits", "the limit of the week")
	run("quota", "clear", "claude")
	b.box("resource", "api/review", "waits", "pool", "#1")
	b.until("the lane in the line", `document.querySelector("#line").textContent.includes("api/review")`)
	tell("other")
	b.box("ownership", "api/review", "running", "claude")
	b.box("ended", "other", "done")
	b.until("what crossed", `/granted.*api\/review/.test(document.querySelector(".cross.at-1").textContent) && document.querySelector(".cross.at-1").textContent.includes("token shown")`)
	b.until("the gauge", `document.querySelector("#pools").textContent.includes("1 of 1")`)
	tell("review")
	b.box("acceptance", "api/review", "waits", "verdict")

	// Why, the journal, and the verdict.
	b.click(".box-acceptance .card")
	b.until("why", `/acceptance.*wait/.test(document.querySelector("#side .perms")?.textContent) && document.querySelector("#side .perms").textContent.includes("review_pending")`)
	b.until("the journal", `document.querySelector("#side .events")?.textContent.includes("handed lane \"api/review\" to the dispatcher")`)
	b.click("#side .acts .good")
	b.click("#confirm .primary")
	b.until("the refusal with its code", `document.querySelector("#confirm .answer").textContent.includes("no_evidence")`)
	b.box("acceptance", "api/review", "waits")
	b.click("#confirm textarea")
	b.must(b.Keys("https://ci.example.org/71"))
	b.click("#confirm .primary")
	b.box("release", "api/review", "waits", "accepted")
	b.until("what was done, said", `document.querySelector("#toast").textContent.startsWith("accepted run")`)
	b.until("the command of a release", `document.querySelector("#side .release .line")?.textContent.startsWith("handsel release ")`)
	b.until("the evidence on the arrow", `document.querySelector(".cross.at-3").textContent.includes("accepted") && document.querySelector(".cross.at-3").textContent.includes("verdict 1")`)
	line := eval[string](b, `document.querySelector("#side .release .line").textContent`)
	words := strings.Fields(strings.Replace(line, "COMMAND", "fakeagent touch out", 1))
	run(words[1:]...)
	if _, err := os.Stat(filepath.Join(s.Dir, "out")); err != nil {
		t.Errorf("the release ran nothing: %v", err)
	}
	b.box("release", "api/review", "released")
	b.until("the release on its arrow", `document.querySelector(".cross.at-4").textContent.includes("released")`)
	b.must(b.Keys(Escape))
	b.until("no panel", `document.querySelector("#side").hidden`)
	namesEverybody(t, run("journal", "lane:api/review", "--json"))

	// The dispatcher dies. What holds a lock is shown all the same.
	if _, err := s.Start("run", "--lane", "long", "--", "fakeagent", "until", "never"); err != nil {
		t.Fatal(err)
	}
	b.box("ownership", "long", "running")
	if err := dispatcher.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.until("the dispatcher's silence", `document.querySelector("#banner-dispatcher")?.textContent.includes("does not answer") && document.querySelector("#dispatcher").textContent.startsWith("◷ dispatcher is silent")`)
	if err := dispatcher.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.until("its answer", `!document.querySelector("#banner-dispatcher") && document.querySelector("#dispatcher").textContent.startsWith("● dispatcher answers")`)
	killed := time.Now()
	if err := dispatcher.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.until("the dispatcher's end", `document.querySelector("#banner-dispatcher")?.textContent.includes("The dispatcher is gone") && document.querySelector("#dispatcher").textContent === "✕ no dispatcher"`)
	t.Logf("the page said that the dispatcher is gone %v after its SIGKILL (W14 promises 3 s)", time.Since(killed).Round(time.Millisecond))
	b.box("ownership", "long", "running")
	b.until("its slot", `document.querySelector("#pools").textContent.includes("1 of 1")`)
	if _, err := s.Dispatcher(); err != nil {
		t.Fatal(err)
	}
	b.until("the next dispatcher", `!document.querySelector("#banner-dispatcher") && document.querySelector("#dispatcher").textContent.startsWith("● dispatcher answers")`)

	// So does handsel web.
	if err := served.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.until("the server's end", `document.querySelector("#banner-server")?.textContent.includes("handsel web does not answer")`)
	b.box("ownership", "long", "running")
}

// namesEverybody checks that the journal has every party, and what each showed.
func namesEverybody(t *testing.T, text string) {
	t.Helper()
	var list struct {
		Events []struct {
			What, From, To, By string
			Evidence           []string
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ what, from, to, evidence string }{
		{"accepted", "launcher", "dispatcher", "the lane's lock was passed"}, {"offered", "pools", "dispatcher", "slot locks held"}, {"granted", "dispatcher", "driver", "token shown"},
		{"begun", "driver", "agent", ""}, {"ended", "driver", "nobody", ""}, {"accepted", "pending", "accepted", "https://ci.example.org/71"}, {"released", "", "", ""},
	} {
		found := false
		for _, e := range list.Events {
			found = found || e.What == want.what && strings.HasPrefix(e.From, want.from) && strings.HasPrefix(e.To, want.to) && (want.evidence == "" || slices.Contains(e.Evidence, want.evidence)) &&
				(want.from != "pending" && want.what != "released" || e.By != "")
		}
		if !found {
			t.Errorf("the journal has no %+v:\n%s", want, text)
		}
	}
}

// A server that comes back at its address is another one: the page has no session
// with it, and says how to get one.
func TestLinkWorksOnceInTheBrowser(t *testing.T) {
	link := few().serve(t)
	b := browse(t, link, "403 (Forbidden)")
	b.until("the map", `document.querySelectorAll(".card").length > 5`)
	b.must(b.Open("about:blank"))
	b.must(b.Open(link)) // this tab has its session, and goes on
	b.until("the map again", `document.querySelectorAll(".card").length > 5`)
	b.must(b.Eval(nil, "sessionStorage.clear()"))
	b.must(b.CDP(nil, "Network.clearBrowserCookies", nil))
	b.must(b.Open("about:blank"))
	b.must(b.Open(link))
	b.until("the refusal", `document.querySelector("#gate").innerText.includes("opened before") && document.querySelector("#gate").innerText.includes("start it again")`)
	if n := eval[int](b, `document.querySelectorAll(".card").length`); n != 0 {
		t.Errorf("without a session, %d cards are shown", n)
	}
}
