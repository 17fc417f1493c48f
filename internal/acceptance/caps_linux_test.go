package acceptance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/fakeagent"
)

// TestCapsThatParse is S3, C008 and C107: only plain decimal whole numbers are
// caps; everything else refuses the start and is named, escaped.
func TestCapsThatParse(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	for _, tt := range []struct {
		text  string
		bound bool // a cap of 4
		ok    bool
		shown string // how the refusal shows it
	}{
		{text: "4", ok: true, bound: true},
		{text: " 4 ", ok: true, bound: true},
		{text: "4\n", ok: true, bound: true},
		{text: "\t4", ok: true, bound: true},
		{text: "04", ok: true, bound: true},
		{text: "", ok: true},
		{text: " ", ok: true},
		{text: "0", ok: true},
		{text: "00", ok: true},
		{text: "thirty", shown: "thirty"},
		{text: "-1", shown: "-1"},
		{text: "2.5", shown: "2.5"},
		{text: "+4", shown: "+4"},
		{text: "0x4", shown: "0x4"},
		{text: "1e3", shown: "1e3"},
		{text: "1_000", shown: "1_000"},
		{text: "\uff14", shown: `"`}, // a digit, but not a plain one
		{text: "9999999999999999999999", shown: "9999999999999999999999"},
		{text: "18446744073709551617", shown: "18446744073709551617"}, // 2^64+1 would wrap to 1
		{text: "4 # four", shown: "4 # four"},
		{text: "4\x1b[2J", shown: `4\x1b[2J`},
		{text: "4\n5", shown: `4\n5`},
		{text: "nan", shown: "nan"},
		{text: "inf", shown: "inf"},
		{text: "''", shown: "''"},
	} {
		for _, name := range []string{"HANDSEL_MAX_AGENTS", "HANDSEL_MAX_AGENTS_HEAVY", "HANDSEL_MAX_AGENTS_CODEX"} {
			q := ordinary(t).with(name + "=" + tt.text)
			end, _, errs := ends(t, q.agent("--wait", "0", "--", "touch", q.file("started")))
			if tt.ok {
				if end != "exit 0" || errs != "" || exists(filepath.Join(q.home, "leases")) != tt.bound {
					t.Errorf("%s=%q: %s, counted %v: %q", name, tt.text, end, exists(filepath.Join(q.home, "leases")), errs)
				}
				continue
			}
			if end != "exit 78" || exists(q.file("started")) {
				t.Errorf("%s=%q: %s, started %v", name, tt.text, end, exists(q.file("started")))
			}
			oneLine(t, errs, name, tt.shown)
		}
	}
	// In a file, with the line and the place.
	for _, text := range []string{`"4"`, "-1", "2.5", "0x4", "1e3", "1_0", "true", "nan", "[4]", "9999999999999999999999", "thirty"} {
		end, _, errs := ends(t, p.config("# caps\n[pools]\nall = "+text+"\n").agent("--", "touch", p.file("started")))
		if end != "exit 78" || exists(p.file("started")) {
			t.Errorf("all = %s: %s", text, end)
		}
		if !strings.Contains(errs, "config.toml:3") || !strings.Contains(errs, "^") && !strings.Contains(errs, "all") {
			t.Errorf("all = %s: %q", text, errs)
		}
		must(t, "exit 0", p.config("# caps\n[pools]\nall = "+text+"\n").handsel("status")) // looking goes on
	}
	for _, text := range []string{"[pools]\nallx = 1\nAll = 2\n", "[pool]\nall = 1\n", "all = 1\n", "[pools]\nall = 1\nall = 2\n", "not toml at all", "[admission]\nwait = \"soon\"\n"} {
		if end, _, errs := ends(t, p.config(text).agent("--", "exit", "0")); end != "exit 78" {
			t.Errorf("%q: %s, %q", text, end, errs)
		}
	}
	if end, _, errs := ends(t, p.with("HANDSEL_CONFIG="+p.file("missing.toml")).agent("--", "exit", "0")); end != "exit 78" {
		t.Errorf("a file that is named and not there: %s, %q", end, errs)
	}
	p.settled()
}

// TestWaitsThatParse is S14 and C005: a wait is finite and not negative.
func TestWaitsThatParse(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, _ := p.holding("holder")
	for _, text := range []string{"nan", "NaN", "inf", "+Inf", "-1", "-0.5s", "-1h", "soon", "1e3", "0x10", "9999999999999999999", "1d", "1 2", "+5", "5s\x1b[2J"} {
		for _, c := range []*exec.Cmd{
			p.agent("--wait", text, "--", "touch", p.file("started")),
			p.with("HANDSEL_ADMIT_WAIT="+text).agent("--", "touch", p.file("started")),
		} {
			end, _, errs := ends(t, c)
			if end != "exit 78" || exists(p.file("started")) {
				t.Errorf("%q: %s, %q", text, end, errs)
			}
			oneLine(t, strings.ReplaceAll(errs, "HANDSEL_ADMIT_WAIT", "--wait"), "--wait")
		}
	}
	for _, tt := range []struct {
		text string
		took time.Duration
	}{{"0", 0}, {"0s", 0}, {"2", 2 * time.Second}, {"2.0", 2 * time.Second}, {"2000ms", 2 * time.Second}, {" 2s ", 2 * time.Second}} {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			from := time.Now()
			end, _, errs := ends(t, p.with("HANDSEL_ADMIT_WAIT="+tt.text).agent("--", "touch", p.file("started")))
			took := time.Since(from)
			if end != "exit 75" || took < tt.took {
				t.Errorf("%s after %v", end, took)
			}
			last := errs[strings.LastIndex(strings.TrimSuffix(errs, "\n"), "\n")+1:]
			oneLine(t, last, "refused: heavy agent", `pool "all" is at its cap of 1 (HANDSEL_MAX_AGENTS)`, fmt.Sprint("held by pid ", holder.id.pid))
			waited := regexp.MustCompile(` waited (\d+)s`).FindStringSubmatch(last) // longer where the machine is busy
			if tt.took > 0 && (waited == nil || waited[1] < "2" && len(waited[1]) == 1) {
				t.Errorf("it said %q", last)
			}
		})
	}
	t.Cleanup(func() {
		holder.closeIn()
		holder.wait()
		if exists(p.file("started")) {
			t.Error("something started")
		}
		p.settled()
	})
}

// TestNoCapTouchesNothing is S4 and C008: unset, empty and 0 are alike, as is a
// file that sets no cap; nothing is made for slots, and nothing is waited for.
func TestNoCapTouchesNothing(t *testing.T) {
	t.Parallel()
	for _, p := range []*place{
		ordinary(t), ordinary(t).with("HANDSEL_MAX_AGENTS=0"), ordinary(t).with("HANDSEL_MAX_AGENTS="),
		ordinary(t).config("[pools]\nall = 0\n"), ordinary(t).config("# nothing\n"),
	} {
		a := start(t, p.agent("--", "pid", p.file("note"), "then", "stdin"))
		p.noted(p.file("note"))
		must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
		for _, dir := range []string{"leases", "waiting", "holds"} {
			if exists(filepath.Join(p.home, dir)) {
				t.Errorf("%q: %s was made", p.env, dir)
			}
		}
		out, _ := must(t, "exit 0", p.handsel("status"))
		if strings.Contains(out, "agents:") {
			t.Errorf("nothing is capped, and status says %q", out)
		}
		a.closeIn()
		if end := a.wait(); end != "exit 0" || a.said() != "" {
			t.Errorf("%s, %q", end, a.said())
		}
	}
	// A home that does not exist is nothing configured, and stays so (C146).
	p := ordinary(t)
	if err := os.Remove(p.home); err != nil {
		t.Fatal(err)
	}
	must(t, "exit 0", p.handsel("status"))
	must(t, "exit 0", p.handsel("status", "--json"))
	if exists(p.home) {
		t.Error("status made the home")
	}
}

// TestSmallestCapBinds is S2, S11 and C009, in both orders: a cap that a holder
// read binds as long as it holds, and an environment can only lower.
func TestSmallestCapBinds(t *testing.T) {
	t.Parallel()
	for _, order := range [][2]string{{"2", "5"}, {"5", "2"}} {
		p := ordinary(t)
		strict, loose := p.with("HANDSEL_MAX_AGENTS=2"), p.with("HANDSEL_MAX_AGENTS=5")
		by := map[string]*place{"2": strict, "5": loose}
		first, _ := by[order[0]].holding("first")
		second, _ := by[order[1]].holding("second", "--wait", "0")
		for name, q := range by {
			if end, _, errs := ends(t, q.agent("--wait", "0", "--", "exit", "0")); end != "exit 75" || !strings.Contains(errs, "at its cap of 2") {
				t.Errorf("order %v: a third with a cap of %s: %s, %q", order, name, end, errs)
			}
		}
		// Whoever read 2 leaves; then 5 counts.
		leaving, staying := first, second
		if order[0] == "5" {
			leaving, staying = second, first
		}
		leaving.closeIn()
		leaving.wait()
		third, _ := loose.holding("third", "--wait", "0")
		fourth, _ := loose.holding("fourth", "--wait", "0")
		if end, _, _ := ends(t, strict.agent("--wait", "0", "--", "exit", "0")); end != "exit 75" {
			t.Errorf("order %v: the strict one is admitted with three held: %s", order, end)
		}
		for _, h := range []*process{staying, third, fourth} {
			h.closeIn()
			h.wait()
		}
		p.settled()
	}
	p := ordinary(t).config("[pools]\nall = 2\n")
	a, _ := p.holding("a")
	_, errs := must(t, "exit 75", p.with("HANDSEL_MAX_AGENTS=1").agent("--wait", "0", "--", "exit", "0"))
	oneLine(t, errs, "cap of 1 (HANDSEL_MAX_AGENTS)")
	b, _ := p.with("HANDSEL_MAX_AGENTS=9").holding("b")
	_, errs = must(t, "exit 75", p.with("HANDSEL_MAX_AGENTS=9").agent("--wait", "0", "--", "exit", "0"))
	oneLine(t, errs, "cap of 2 (", "config.toml")
	for _, h := range []*process{a, b} {
		h.closeIn()
		h.wait()
	}
	p.settled()
}

// TestEnginePoolsCount is S1: an engine's pool is known by its command, through
// the usual wrappers; a pool without a cap is named on stderr (C008).
func TestEnginePoolsCount(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\ncodex = 1\nextra = 1\n")
	codex := p.file("codex")
	if err := os.Symlink(fakeagent.Build(t), codex); err != nil {
		t.Fatal(err)
	}
	note := p.file("note")
	h := start(t, p.handsel("run", "--", "env", "A=b", codex, "pid", note, "then", "stdin"))
	p.noted(note)
	eventually(t, "codex is counted", func() bool { return p.status().states("codex") == "running" })
	_, errs := must(t, "exit 75", p.handsel("run", "--wait", "0", "--", codex, "exit", "0"))
	oneLine(t, errs, "heavy codex agent", `pool "codex" is at its cap of 1`)
	must(t, "exit 75", p.handsel("run", "--wait", "0", "--engine", "openai-codex", "--", "true"))
	must(t, "exit 0", p.handsel("run", "--wait", "0", "--engine", "claude", "--", "true"))
	must(t, "exit 0", p.handsel("run", "--wait", "0", "--pool", "extra", "--", "true"))
	must(t, "exit 78", p.handsel("run", "--wait", "0", "--engine", "nonesuch", "--", "true"))
	must(t, "exit 78", p.handsel("run", "--wait", "0", "--pool", "Not A Pool", "--", "true"))
	must(t, "exit 78", p.handsel("run", "--workload", "light", "--", "true"))
	_, errs = must(t, "exit 0", p.handsel("run", "--wait", "0", "--pool", "uncapped", "--", "true"))
	oneLine(t, errs, "uncapped", "no cap")
	h.closeIn()
	h.wait()
	p.settled()
}

// TestKilledHoldersDelayNobody is C012: two holders and their agents are killed
// while two wait; both are admitted, no file is removed by hand.
func TestKilledHoldersDelayNobody(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nall = 2\n" + hourly)
	var holders []*process
	var agents []identity
	for i := range 2 {
		h, a := p.holding(fmt.Sprint("h", i))
		holders, agents = append(holders, h), append(agents, a)
	}
	var waiters []*process
	for range 2 {
		waiters = append(waiters, start(t, p.agent("--", "exit", "0")))
	}
	p.awaits(2)
	for i := range holders {
		holders[i].id.signal(syscall.SIGKILL)
		agents[i].signal(syscall.SIGKILL)
	}
	for _, w := range waiters { // by the poll it would be an hour
		if end := w.wait(); end != "exit 0" {
			t.Errorf("%s, %q", end, w.said())
		}
	}
	p.settled()
}

// TestTimeoutCoversTheWait is S22 and C149: the total limit runs in line, too.
func TestTimeoutCoversTheWait(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, _ := p.holding("holder")
	_, errs := must(t, "exit 124", p.agent("--timeout", "1", "--", "touch", p.file("started"))) // without it, it waits for ten minutes
	if exists(p.file("started")) {
		t.Errorf("it started: %q", errs)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		w := start(t, p.agent("--", "touch", p.file("started")))
		w.says("waiting")
		w.id.signal(sig)
		if end := w.wait(); !strings.HasPrefix(end, "signal SIG") || exists(p.file("started")) {
			t.Errorf("%v: %s", sig, end)
		}
	}
	holder.closeIn()
	holder.wait()
	p.settled()
}

// TestLimitsEndEveryShape is C044: a limit works whatever shape the command has.
func TestLimitsEndEveryShape(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "dash"} {
		for _, body := range []string{"sleep 600", "sleep 600; true", "sleep 600 & wait", "(sleep 600)", "sleep 600 | cat"} {
			t.Run(shell+" "+body, func(t *testing.T) {
				t.Parallel()
				p := ordinary(t)
				from := time.Now()
				must(t, "exit 124", p.handsel("run", "--timeout", "2", "--", shell, "-c", body))
				if took := time.Since(from); took < 2*time.Second {
					t.Errorf("it took %v", took)
				}
				p.settled()
			})
		}
	}
}

// TestKilledAtAnyMoment is C022 on the release build: handsel is killed at many
// moments around the start of its agent. Whatever is left is shown, a slot is
// never held with nothing alive, and nobody waits for it.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	shown := map[string]int{}
	for i := range part(40, 1000) {
		note := p.file(fmt.Sprint("note", i))
		c := start(t, p.agent("--wait", "0", "--", "pid", note, "then", "sleep", "600"))
		timer := time.NewTimer(time.Duration(i*7%20) * time.Millisecond) // all of them in twenty rounds, and of few rounds a spread
		<-timer.C
		c.id.signal(syscall.SIGKILL)
		c.wait()
		shown[p.orphans(note)]++
		must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
	}
	t.Logf("%v", shown)
	p.settled()
}

// orphans checks what the death of a supervisor has left: no agent, or one that
// status shows; it ends the agent, after which nothing is held. The answer says
// how it was shown.
func (p *place) orphans(note string) string {
	p.t.Helper()
	how, agents, seen := p.orphansNow(note)
	// One look is no proof: an agent that has just been executed lets go of its
	// supervisor's lock on its way back from the kernel (S8).
	for end := time.Now().Add(patience); strings.HasPrefix(how, "!") && time.Now().Before(end); how, agents, seen = p.orphansNow(note) {
		time.Sleep(5 * time.Millisecond)
	}
	if strings.HasPrefix(how, "!") {
		p.t.Errorf("%s: %+v", how[1:], seen)
	}
	if len(agents) > 1 {
		p.t.Errorf("several agents: %v", agents)
	}
	for _, a := range agents {
		a.signal(syscall.SIGKILL)
		eventually(p.t, "the orphan is gone", func() bool { return !a.alive() })
	}
	return how
}

// orphansNow is one look. What must not stay as it is begins with "!".
func (p *place) orphansNow(note string) (how string, agents []identity, s snapshot) {
	p.t.Helper()
	agents = processes(func(pid int) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.Contains(string(line), "fakeagent\x00") && strings.Contains(string(line), note+"\x00")
	})
	s = p.status()
	if len(agents) == 0 {
		for name, pool := range s.Pools {
			if pool.Held != 0 {
				return "!nothing is alive, and a slot is held in pool " + name, nil, s
			}
		}
		return "nothing", nil, s
	}
	how = fmt.Sprintf("!%v lives, and status does not show it", agents[0])
	for _, h := range s.Pools["all"].Holders {
		if h.Child == agents[0].pid && h.State == "orphaned" {
			how = "in its slot"
		}
	}
	for _, st := range s.Strays {
		if st.Pid == agents[0].pid {
			how = "not counted"
		}
	}
	return how, agents, s
}
