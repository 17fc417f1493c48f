//go:build browser

package browsertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel"
)

// Ten thousand lanes: what is in the page is bounded, whatever changes is shown,
// and the page answers (W13).
func TestTenThousandLanes(t *testing.T) {
	h := few()
	at := h.board.Cards[0]
	h.set(func(b *handsel.Board) {
		b.Cards = b.Cards[:0]
		for i := range 10000 {
			c := at
			c.ID, c.Lane, c.Place, c.Priority = fmt.Sprintf("id-%05d", i), fmt.Sprintf("lane/%05d", i), i+1, 0
			b.Cards = append(b.Cards, c)
		}
	})
	b := browse(t, h.serve(t))
	b.until("the first lane", `document.querySelector(".box-resource").textContent.includes("lane/00000")`)
	b.until("the count", `document.querySelector(".box-resource .counts").textContent === "10,000 wait"`)
	for n := range 5 { // a thousand change at each look
		h.set(func(b *handsel.Board) {
			for i := range 1000 {
				b.Cards[i*10].Message += "."
			}
			b.Cards[9999].Box, b.Cards[9999].Answer, b.Cards[9999].State = "ownership", "go", "running"
		})
		b.until("the change", `document.querySelector('[data-id="id-00000"] .msg').textContent.endsWith(arguments[0])`, strings.Repeat(".", n+1))
	}
	b.box("ownership", "lane/09999", "running")
	if n := eval[int](b, `document.getElementsByTagName("*").length`); n > 2500 {
		t.Errorf("%d elements are in the page", n)
	}
	start := time.Now()
	b.click(".box-resource .card")
	b.until("the panel of the first", `document.querySelector("#side .perms")?.textContent.includes("run:id-00000")`)
	t.Logf("a click among 10,000 lanes was answered after %v", time.Since(start).Round(time.Millisecond))
	b.must(b.Keys(Escape))
	b.until("the focus back", `document.activeElement.dataset.id === "id-00000"`)
	b.must(b.Keys(End))
	b.until("the last lane", `document.activeElement.dataset.id === "id-09998"`)
	if n := eval[int](b, `document.getElementsByTagName("*").length`); n > 2500 {
		t.Errorf("at the end, %d elements are in the page", n)
	}
	b.click("#find")
	b.must(b.Keys("lane/05555"))
	b.until("the one that fits", `document.querySelectorAll(".box-resource .card").length === 1`)
}

// Everything that a pointer does, keys do (W14).
func TestKeysAreEnough(t *testing.T) {
	b := browse(t, few().serve(t))
	b.until("the map", `document.querySelectorAll(".card").length > 9 && document.querySelectorAll("#spans figure").length === 6 && document.querySelector("#pools li")`)
	b.must(b.Eval(nil, "document.body.focus()"))
	focus := func() string {
		return eval[string](b, `(document.activeElement.id || document.activeElement.dataset.id || document.activeElement.className || document.activeElement.textContent)`)
	}
	seen := func() bool { // the focus can be seen
		return eval[bool](b, `(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 || document.activeElement.matches(".cross") })()`)
	}
	var order []string
	for range 60 {
		b.must(b.Keys(Tab))
		if eval[bool](b, "document.activeElement === document.body") {
			break // past the last one
		}
		at := focus()
		if !seen() {
			t.Errorf("the focus on %s cannot be seen", at)
		}
		if len(order) > 0 && slices.Contains(order, at) {
			break
		}
		order = append(order, at)
	}
	for _, want := range []string{"skip", "find", "drain", "r1", "cross at-0", "q1", "o1", "a1", "l1", "cross at-4", "e2", "heavy2 of 2", "Resume…", "ref wait", "place-row"} {
		if !slices.ContainsFunc(order, func(at string) bool { return strings.HasPrefix(at, want) }) {
			t.Errorf("Tab never comes to %s: %q", want, order)
		}
	}
	if slices.Contains(order, "r2") || slices.Contains(order, "a2") {
		t.Errorf("Tab goes through every row: %q", order)
	}
	b.must(b.Eval(nil, `document.querySelector('[data-id="r1"]').focus()`))
	b.must(b.Keys(Down))
	if at := focus(); at != "r2" {
		t.Errorf("Down from the first comes to %s", at)
	}
	b.must(b.Keys(Down + Down + Down))
	if at := focus(); at != "r3" {
		t.Errorf("Down at the last comes to %s", at)
	}
	b.must(b.Keys(HomeKey))
	b.must(b.Keys(Enter))
	b.until("the panel, with the focus in it", `!document.querySelector("#side").hidden && document.querySelector("#side").contains(document.activeElement)`)
	b.must(b.Keys(Escape))
	b.until("the focus back on the row", `document.querySelector("#side").hidden && document.activeElement.dataset.id === "r1"`)

	// A verdict by keys alone, as far as the question; Escape takes it back.
	b.must(b.Eval(nil, `document.querySelector('[data-id="a1"]').focus()`))
	b.must(b.Keys(Enter))
	b.until("the panel's buttons", `document.querySelector("#side .acts .good")`)
	b.must(b.Keys(Tab + Tab))
	b.until("the focus on Accept", `document.activeElement.textContent === "Accept…"`)
	b.must(b.Keys(Enter))
	b.until("the question, with the focus in it", `document.querySelector("#confirm").open && document.activeElement.name === "evidence"`)
	b.must(b.Keys(Escape))
	b.until("the focus back on Accept", `!document.querySelector("#confirm").open && document.activeElement.textContent === "Accept…"`)
	b.must(b.Keys(Escape))
	b.until("the focus back on the row", `document.querySelector("#side").hidden && document.activeElement.dataset.id === "a1"`)
	b.must(b.Keys("/"))
	b.until("the focus in the filter", `document.activeElement.id === "find"`)
}

// A gauge that is drawn anew keeps the focus.
func TestFocusStaysOnAGauge(t *testing.T) {
	h := few()
	b := browse(t, h.serve(t))
	b.until("the gauges", `document.querySelectorAll("#pools li").length === 2`)
	b.must(b.Eval(nil, `document.querySelector("#pools li button").focus()`))
	h.set(func(b *handsel.Board) {
		p := b.Status.Pools["heavy"]
		p.Held = 1
		b.Status.Pools["heavy"] = p
	})
	b.until("the gauge drawn anew", `document.querySelector("#pools").textContent.includes("heavy1 of 2")`)
	if !eval[bool](b, `document.activeElement.closest("#pools li") !== null`) {
		t.Error("the focus is lost")
	}
}

// What was asked for, and is over when something else is asked, closes nothing of
// that; and a refusal is told, whoever waits for it or not.
func TestALateAnswerClosesNoOtherQuestion(t *testing.T) {
	h := few()
	h.verdict = make(chan error)
	b := browse(t, h.serve(t), "409", "500")
	for _, tt := range []struct {
		err  error
		told string
	}{{nil, "accepted run a1"}, {&handsel.ReviewRefused{Class: "acceptance", Why: "changed", Text: "it is another"}, "it is another"}} {
		b.click(`[data-id="a1"]`)
		b.click("#side .acts .good")
		b.click("#confirm .primary")
		b.until("at it", `document.querySelector("#confirm .answer").textContent === "at it …"`)
		b.must(b.Keys(Escape))
		b.until("the question closed", `!document.querySelector("#confirm").open && !document.querySelector("#confirm form")`)
		b.click("#side .acts .bad")
		h.verdict <- tt.err
		b.until("what became of it", `document.querySelector("#toast").textContent.includes(arguments[0])`, tt.told)
		if !eval[bool](b, `document.querySelector("#confirm").open && document.querySelector("#confirm").textContent.includes("Reject")`) {
			t.Error("the other question is closed")
		}
		b.must(b.Keys(Escape))
		b.until("the question closed", `!document.querySelector("#confirm").open && !document.querySelector("#confirm form")`)
		b.must(b.Keys(Escape))
		b.until("the panel closed", `document.querySelector("#side").hidden`)
	}
}

// An answer that breaks off is none, whatever its status.
func TestABrokenAnswerIsNone(t *testing.T) {
	b := browse(t, few().serve(t))
	b.until("the map", `document.querySelectorAll(".card").length > 9`)
	got := eval[string](b, `import("/link.js").then(async (link) => {
		const real = window.fetch;
		window.fetch = async () => new Response('{"v":1,"ev', { status: 200 });
		try { return await link.ask("journal", "x").then((a) => JSON.stringify(a), (e) => e.code); } finally { window.fetch = real; }
	})`)
	if got != "failed" {
		t.Errorf("it is taken for %s", got)
	}
}

// The names that others chose are text, and nothing else (C135).
func TestHostileNamesAreText(t *testing.T) {
	h := few()
	const bad = "x\x1b[2J\u202e\r\n\u009b<img src=x onerror=\"document.title='owned'\">\u0301\u0301\u0301\u0301"
	h.set(func(b *handsel.Board) {
		for i := range b.Cards {
			c := &b.Cards[i]
			c.Lane, c.Message, c.Author, c.Engine, c.Code = bad+c.ID, bad, bad, bad, bad
		}
		b.Problems = []string{bad}
		b.Accounts[0].Message, b.Status.Holds[0].Reason, b.Status.Holds[0].Scope = bad, bad, "lane:"+bad
		h.events[0].Lane, h.events[0].Identity, h.events[1].By = bad, bad, bad
	})
	b := browse(t, h.serve(t))
	b.until("the cards", `document.querySelectorAll(".card").length > 9`)
	b.click(".box-resource .card")
	b.until("the panel", `document.querySelectorAll("#side .event").length === 2`)
	if found := eval[string](b, `(() => {
		if (document.title !== "handsel") return "the title is " + document.title;
		if (document.querySelector("img")) return "an element was made of a name";
		const bad = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u0301]/;
		const walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
		while (walk.nextNode()) if (bad.test(walk.currentNode.data)) return "shown: " + escape(walk.currentNode.data);
		for (const e of document.querySelectorAll("[title],[aria-label]")) if (bad.test(e.title + e.getAttribute("aria-label"))) return "in an attribute: " + escape(e.outerHTML);
		return "";
	})()`); found != "" {
		t.Error(found)
	}
	b.until("the name, written out", `document.querySelector(".card .name").textContent.startsWith("x\\x1b[2J\\u202e\\r\\n\\x9b<img src=x")`)
}

// What gets into the page all the same finds the policy in its way.
func TestPolicyHolds(t *testing.T) {
	b := browse(t, few().serve(t), "Content Security Policy", "TrustedHTML", "TrustedScript")
	b.until("the map", `document.querySelectorAll(".card").length > 9`)
	b.must(b.Eval(nil, `
		window.hit = []; window.refused = [];
		document.addEventListener("securitypolicyviolation", (e) => refused.push(e.effectiveDirective));
		const s = document.createElement("script");
		try { s.textContent = "hit.push('inline')"; document.head.append(s); } catch { refused.push("text"); }
		const far = document.createElement("img"); far.src = "http://127.0.0.1:9/x.png"; document.body.append(far);
		try { document.querySelector("#gate-why").innerHTML = "<b id=made>x</b>"; } catch { refused.push("html"); }
		const st = document.createElement("style"); st.textContent = "body { outline: 9px solid red }"; document.head.append(st);
		const f = document.createElement("iframe"); f.src = "/"; document.body.append(f);
		fetch("http://127.0.0.1:9/").catch(() => refused.push("fetch"));
	`))
	b.until("every refusal", `["img-src", "html", "style-src-elem", "frame-src", "fetch"].every((d) => refused.includes(d)) && (refused.includes("text") || refused.includes("script-src-elem"))`)
	if got := eval[string](b, `hit.join() + (document.querySelector("#made") ? "html" : "") + getComputedStyle(document.body).outlineWidth.replace(/^(0px|3px)$/, "")`); got != "" {
		t.Errorf("this got through: %s", got)
	}
	if got := eval[string](b, `document.cookie`); got != "" {
		t.Errorf("a script reads the cookie: %s", got)
	}
}

// contrasts finds text that stands out too little from what is behind it (AA).
const contrasts = `(() => {
	const rgb = (c) => (c.match(/[\d.]+/g) ?? []).map(Number);
	const lum = ([r, g, b]) => { const f = (v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > .99) return c; } return [255, 255, 255]; };
	const bad = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility({ checkVisibilityCSS: true }) || e.closest(".unseen, .skip, noscript, svg")) continue;
		const a = lum(rgb(getComputedStyle(e).color)), b = lum(behind(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) bad.push(ratio.toFixed(2) + " " + e.className + " " + e.textContent.slice(0, 30));
	}
	return bad.join("\n");
})()`

// Narrow and wide, light and dark: nothing is cut off sideways, and everything can
// be read (W14).
func TestEverySizeAndSchemeIsReadable(t *testing.T) {
	h := few()
	h.set(func(b *handsel.Board) {
		b.Cards[0].Lane = "a/very/long/name/" + strings.Repeat("of-a-lane-", 20)
		b.Cards[0].Message = strings.Repeat("without-a-space", 30)
		b.Problems = []string{strings.Repeat("/a/long/path", 30)}
	})
	b := browse(t, h.serve(t))
	b.until("the map", `document.querySelectorAll(".card").length > 9 && document.querySelectorAll("#spans figure").length === 6`)
	bg := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		b.must(b.Prefers("prefers-color-scheme", scheme, "prefers-reduced-motion", "reduce"))
		bg[scheme] = eval[string](b, `getComputedStyle(document.body).backgroundColor`)
		for _, size := range [][2]int{{1280, 800}, {360, 740}, {768, 1024}} {
			b.must(b.Size(size[0], size[1]))
			check := func(what string) {
				t.Helper()
				b.until("the size", "innerWidth === arguments[0]", size[0])
				if w := eval[int](b, `Math.max(document.documentElement.scrollWidth, document.body.scrollWidth, ...[...document.querySelectorAll("main, #side .body, dialog")].map((e) => e.scrollWidth > e.clientWidth ? e.scrollWidth + 1e4 : 0))`); w > size[0] {
					t.Errorf("%s, %s, at %d wide: %d wide inside", what, scheme, size[0], w)
				}
				if bad := eval[string](b, contrasts); bad != "" {
					t.Errorf("%s, %s, at %d wide, too little contrast:\n%s", what, scheme, size[0], bad)
				}
			}
			check("the map")
			b.must(b.Eval(nil, `document.querySelector('[data-id="a1"]').click()`))
			b.until("the panel", `document.querySelectorAll("#side .event").length === 2`)
			check("the panel")
			b.must(b.Eval(nil, `document.querySelector("#side .acts .good").click()`))
			check("the question")
			b.must(b.Keys(Escape))
			b.must(b.Keys(Escape))
			b.until("the map alone", `document.querySelector("#side").hidden`)
		}
	}
	if bg["light"] == bg["dark"] {
		t.Errorf("light and dark are both %s", bg["light"])
	}
	if moving := eval[int](b, "document.getAnimations().length"); moving != 0 {
		t.Errorf("%d things move where less motion is preferred", moving)
	}
}

// node is one of the accessibility tree.
type node struct {
	Ignored    bool
	Role, Name struct{ Value any }
}

// A screen reader finds landmarks, headings in order, and a name on whatever can be
// used; and it is told what matters, and no more (W14).
func TestScreenReaderFindsNames(t *testing.T) {
	h := few()
	b := browse(t, h.serve(t))
	b.until("the map", `document.querySelectorAll(".card").length > 9 && document.querySelectorAll("#spans figure").length === 6`)
	b.click(".box-acceptance .card")
	b.until("the panel", `document.querySelectorAll("#side .event").length === 2`)
	var tree struct{ Nodes []node }
	b.must(b.CDP(nil, "Accessibility.enable", nil))
	b.must(b.CDP(&tree, "Accessibility.getFullAXTree", nil))
	roles := map[string]int{}
	names := map[string]bool{}
	for i := range tree.Nodes {
		n := &tree.Nodes[i]
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		if n.Ignored {
			continue
		}
		roles[role]++
		names[role+" "+name] = true
		switch role {
		case "button", "link", "searchbox", "textbox", "image", "img", "dialog", "region", "heading", "spinbutton":
			if strings.TrimSpace(name) == "" {
				t.Errorf("a %s has no name", role)
			}
		}
	}
	level := 0
	for _, to := range eval[[]int](b, `[...document.querySelectorAll("h1,h2,h3,h4")].filter((h) => h.checkVisibility()).map((h) => Number(h.tagName[1]))`) {
		if to > level+1 {
			t.Errorf("a heading of level %d comes after one of %d", to, level)
		}
		level = to
	}
	for role, least := range map[string]int{"main": 1, "banner": 1, "heading": 12, "region": 8, "list": 6, "listitem": 10, "status": 2, "dialog": 1, "searchbox": 1} {
		if roles[role] < least {
			t.Errorf("%d of the role %s, want %d at least: %v", roles[role], role, least, roles)
		}
	}
	for _, want := range []string{"region Resource", "region Release", "heading Pools held of cap, over time", "dialog web/two", "button Close"} {
		if !names[want] {
			t.Errorf("there is no %q", want)
		}
	}
	if html := eval[string](b, "document.documentElement.lang"); html != "en" {
		t.Errorf("the page is in the language %q", html)
	}
	// A result that waits for a verdict is said; a lane that moves up in line is not.
	b.must(b.Keys(Escape))
	h.set(func(b *handsel.Board) {
		b.Cards[4].Box, b.Cards[4].Answer, b.Cards[4].Review, b.Cards[4].State = "acceptance", "wait", "pending", "exited"
		b.Cards[1].Place = 9
	})
	b.until("the news", `document.querySelector("#say").textContent === "web/one waits for a verdict"`)
	for _, answer := range []string{"wait", "go", "deny"} { // said in words and marks, not by colour alone
		if got := eval[string](b, `(document.querySelector(".card." + arguments[0] + " .mark").textContent + document.querySelector(".card." + arguments[0] + " .word").textContent)`, answer); len([]rune(got)) < 4 {
			t.Errorf("%s is told by %q", answer, got)
		}
	}
}
