//go:build failpoint

package acceptance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

// Who is killed. Each has a log of the points at which it was.
const (
	launcher   = "launcher"   // handsel enqueue
	dispatcher = "dispatcher" // handsel dispatch
	relief     = "relief"     // handsel dispatch takeover
	driver     = "driver"     // handsel drive
	runner     = "runner"     // handsel run --lane
	sweeper    = "sweeper"    // handsel gc
)

var crashRoles = []string{launcher, dispatcher, relief, driver, runner, sweeper}

// spot is a point at which somebody is killed.
type spot struct{ point, role string }

func (s spot) String() string { return s.point + "@" + s.role }

// unreached are the points that no scenario here surely comes to, and why.
var unreached = map[string]string{
	"queue.prune": "a dispatcher comes there when it has run for a while; internal/queue kills it there",
}

// scenario is a way through the handoff. Its play leaves nothing to be done but
// to wait for what was begun.
type scenario struct {
	name string
	all  int    // cap of the pool all
	hook string // sh, run by every driver before it is one
	own  spot   // where it kills or stops a driver, or kills a dispatcher, by itself
	arm  string // failpoints of every driver besides those of the case
	play func(c *crash)
}

var scenarios = []scenario{
	{name: "base", all: 2, play: playBase},
	// The first driver ends without a claim.
	{name: "unclaimed", all: 2, hook: `mkdir "$D/once" 2>/dev/null && exit 0`, play: func(c *crash) { c.open(); c.enqueue("a"); c.enqueue("b") }},
	// The first driver dies with the lane in its hands.
	{name: "silent", all: 2, own: spot{"claim.received", driver}, arm: "claim.received=once:kill", play: func(c *crash) { c.open(); c.enqueue("a"); c.enqueue("b") }},
	// The first driver dies with the outcome in its hands, and nobody is told.
	{name: "untold", all: 2, own: spot{"drive.outcome", driver}, arm: "drive.outcome=once:kill", play: func(c *crash) { c.open(); c.enqueue("a"); c.enqueue("b") }},
	// The first driver dies before its agent is there, and what is lost is tried again.
	{name: "lost", all: 2, own: spot{"drive.spawn", driver}, arm: "drive.spawn=once:kill", play: func(c *crash) { c.open(); c.enqueue("a", "--retry-lost", "1"); c.enqueue("b", "--retry-lost", "1") }},
	// The first dispatcher dies with the answer in its hands.
	{name: "unanswered", all: 2, own: spot{"accept.entered", dispatcher}, play: func(c *crash) { c.open(); c.enqueue("a"); c.enqueue("b") }},
	{name: "cancel", all: 1, play: playCancel},
	{name: "recover", all: 4, own: spot{"claim.recorded", driver}, play: playRecover},
	{name: "takeover", all: 2, play: playTakeover},
	{name: "direct", all: 1, play: playDirect},
}

// playBase enqueues lanes, one of them twice and one that is refused.
func playBase(c *crash) {
	c.open()
	c.enqueue("a")
	c.enqueue("b")
	c.enqueue("ghost", "--after", "lane:nowhere")
	c.enqueue("c")
	c.enqueue("a", "--wait", "50s")
}

// playCancel cancels a lane that waits for another.
func playCancel(c *crash) {
	c.gate("a")
	c.open()
	c.enqueue("a")
	if b := c.enqueue("b"); b.kept {
		eventually(c.t, "it is cancelled, or over", func() bool {
			b.cancel, _, b.answer = ends(c.t, c.command("", "cancel", "lane:b"))
			return b.cancel == "exit 0"
		})
	}
	c.gates["a"].pass()
}

// playTakeover relieves the dispatcher while a lane runs and another waits.
func playTakeover(c *crash) {
	c.gate("a")
	c.open()
	c.enqueue("a")
	c.ran("S a")
	c.enqueue("b", "--after", "lane:a:any")
	c.relieve()
	c.gates["a"].pass()
}

// playDirect runs in a lane without the dispatcher, and waits for it.
func playDirect(c *crash) {
	c.open()
	first := start(c.t, c.command(runner, c.direct("--lane", "x")...))
	first.closeIn()
	c.run(runner, c.direct("--lane", "x", "--wait", "50s")...)
	c.enqueue("x", "--wait", "50s")
	first.wait()
}

// playRecover leaves the next dispatcher everything there is to recover: a lane
// that runs, one between grant and begin, one that is offered, one that waits,
// and one that somebody has taken meanwhile.
func playRecover(c *crash) {
	c.gate("a")
	c.disarm(true)
	c.open()
	c.enqueue("a")
	c.ran("S a")
	slow := c.gate("slow")
	e := c.enqueue("e", c.driven(`if mkdir "$D/offered" 2>/dev/null; then read x <"$D/gate.slow"; fi`)...)
	b := c.enqueue("b", c.driven("more=claim.recorded=once:stop")...)
	c.enqueue("c", "--after", "lane:a:any")
	d := c.enqueue("d", "--after", "lane:a:any")
	var frozen identity
	if b.kept {
		frozen = c.stoppedAt("claim.recorded")
	}
	if e.kept {
		eventually(c.t, "a lane is offered", func() bool { return exists(c.p.file("offered")) })
	}

	c.down() // and what was armed comes with the next one
	c.disarm(false)
	frozen.signal(unix.SIGKILL)
	other := lane.Mine(lane.RoleRun)
	var h *lane.Hold
	eventually(c.t, "the lane is free", func() bool {
		var err error
		h, err = lane.Take(c.d, "d", other)
		return err == nil
	})
	c.displaced = "d"
	c.up()
	slow.pass()
	eventually(c.t, "the displaced row has ended", func() bool { return c.stateOf(d.attempt) == record.Ended })
	if err := h.Release(); err != nil {
		c.t.Error(err)
	}
	c.gates["a"].pass()
}

// crash is one case: a place, who is to die in it where, and what was asked.
type crash struct {
	t    testing.TB
	p    *place
	d    home.Dir
	sc   *scenario
	arms []spot // in the order in which they are to fire
	all  string // instead of them: every point, to be noted only

	gates map[string]*gate
	sent  []*sending
	hooks int
	// displaced is the lane that somebody else has taken while no dispatcher ran.
	displaced string

	mu       sync.Mutex
	keepers  []*process // dispatchers and reliefs, of which at most one serves
	wanted   bool       // one is to be there
	unarmed  bool       // the next ones
	starts   int
	watching sync.WaitGroup
	over     chan struct{}
}

// sending is an enqueue, as its asker saw it.
type sending struct {
	lane, attempt string
	began, ended  time.Time
	end           string // exit N, or a signal
	said          string
	kept          bool   // it exited 0
	unknown       bool   // it died, or said that it does not know
	cancel        string // how that ended, empty when nobody did
	answer        string // what it said
}

// crashPriority is what every enqueue here asks for.
const crashPriority = 3

func newCrash(t testing.TB, sc *scenario, all string, arms ...spot) *crash {
	t.Helper()
	p := here(t)
	c := &crash{t: t, sc: sc, all: all, arms: arms, gates: map[string]*gate{}, over: make(chan struct{})}
	c.p = p
	t.Cleanup(func() {
		if t.Failed() {
			c.tell()
		}
	})
	words, err := json.Marshal(c.driver("driver", ""))
	if err != nil {
		t.Fatal(err)
	}
	c.p = p.config(fmt.Sprintf("[admission]\nmode = \"dispatcher\"\n[env]\nallow = [%q]\n[pools]\nall = %d\n[dispatch]\ndriver = %s\n", marker, sc.all, words))
	if c.d, err = home.Locate(func(name string) string {
		for _, e := range c.p.env {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				return value
			}
		}
		return ""
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// log is where the points are noted at which role was.
func (c *crash) log(role string) string { return c.p.file("log." + role) }

// rules are the failpoints of role, before and after the first of the arms has
// fired. A dispatcher that nothing restarts must be armed from the beginning.
func (c *crash) rules(role string) (before, after string) {
	if c.all != "" {
		return c.all, c.all
	}
	var first, second []string
	for i, a := range c.arms {
		if a.role != role {
			continue
		}
		rule := a.point + "=once:kill"
		second = append(second, rule)
		if i == 0 || role == dispatcher && c.arms[0].role != dispatcher {
			first = append(first, rule)
		}
	}
	return strings.Join(first, ","), strings.Join(second, ",")
}

func (c *crash) marker(s spot) string { return c.log(s.role) + "." + s.point }

func (c *crash) fired(s spot) bool { return exists(c.marker(s)) }

// armed are the failpoints for a process of role that starts now.
func (c *crash) armed(role string) string {
	rules, after := c.rules(role)
	if len(c.arms) > 0 && c.fired(c.arms[0]) {
		rules = after
	}
	if own := c.sc.own; own.role == role && role == dispatcher {
		rules = own.point + "=once:kill," + rules
	}
	return rules
}

// driver is the command of a driver that keeps its token for later, does what
// the scenario wants, and is handsel's own then.
func (c *crash) driver(name, hook string) []string {
	before, after := c.rules(driver)
	first := "/nowhere"
	if len(c.arms) > 0 {
		first = c.marker(c.arms[0])
	}
	return []string{"/bin/sh", c.p.write(name, fmt.Sprintf(`IFS= read -r id <&3; IFS= read -r tok <&3
D=%s; echo "$id $tok" >>"$D/tokens"
export %s; more=%s
%s
%s
if [ -e %s ]; then r=%s; else r=%s; fi
export HANDSEL_FAILPOINT="$more,$r" HANDSEL_FAILPOINT_LOG=%s
exec %s drive 3<<END
$id
$tok
END
`, c.p.dir, c.p.mark, c.sc.arm, c.sc.hook, hook, first, after, before, c.log(driver), c.p.bin))}
}

// driven are the flags of an enqueue whose driver does this first.
func (c *crash) driven(hook string) []string {
	c.hooks++
	words := c.driver("driver."+strconv.Itoa(c.hooks), hook)
	return []string{"--driver", words[0], "--driver", words[1]}
}

// agentScript is an agent that notes its start, its end, and any other that is
// in its lane meanwhile.
const agentScript = `d=$1 l=$2
mkdir "$d/in.$l" || echo "X $l $HANDSEL_RUN" >>"$d/ran"
echo "S $l $HANDSEL_RUN" >>"$d/ran"
if [ -e "$d/gate.$l" ]; then read x <"$d/gate.$l"; else sleep 0.1; fi
rmdir "$d/in.$l"
echo "E $l $HANDSEL_RUN" >>"$d/ran"
`

func (c *crash) agent(lane string) []string {
	return []string{"--", "/bin/sh", "-c", agentScript, "agent", c.p.dir, lane}
}

func (c *crash) direct(flags ...string) []string {
	return append(append([]string{"run"}, flags...), c.agent(flags[1])...)
}

// gate holds an agent, or a driver, until it may pass.
type gate struct{ file *os.File }

func (c *crash) gate(name string) *gate {
	path := c.p.file("gate." + name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		c.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // so that nobody waits for a writer
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { f.Close() })
	g := &gate{f}
	c.gates[name] = g
	return g
}

// pass lets through whoever stands there, and all that come.
func (g *gate) pass() {
	_, _ = g.file.WriteString(strings.Repeat("go\n", 20))
}

// command is handsel in a role.
func (c *crash) command(role string, words ...string) *exec.Cmd {
	p := c.p
	if role != "" {
		p = p.with("HANDSEL_FAILPOINT="+c.armed(role), "HANDSEL_FAILPOINT_LOG="+c.log(role))
	}
	return p.handsel(words...)
}

// run runs handsel to its end, however it comes.
func (c *crash) run(role string, words ...string) (end string) {
	end, _, _ = ends(c.t, c.command(role, words...))
	return end
}

// enqueue asks for a lane once, when somebody listens.
func (c *crash) enqueue(lane string, flags ...string) *sending {
	c.listening()
	s := &sending{lane: lane, began: time.Now()}
	words := append([]string{"enqueue", "--json", "--priority", strconv.Itoa(crashPriority)}, flags...)
	words = append(append(words, lane), c.agent(lane)...)
	var out string
	s.end, out, s.said = ends(c.t, c.command(launcher, words...))
	s.ended = time.Now()
	s.kept = s.end == "exit 0"
	s.unknown = strings.HasPrefix(s.end, "signal") || s.end == "exit 69" && strings.Contains(s.said, "unknown")
	var said struct{ Attempt string }
	if err := json.Unmarshal([]byte(out), &said); s.kept && err != nil {
		c.t.Errorf("%v: %q", err, out)
	}
	s.attempt = said.Attempt
	c.sent = append(c.sent, s)
	return s
}

// open starts the first dispatcher, and from then on another whenever none is
// left.
func (c *crash) open() {
	c.watching.Go(c.watch)
	c.t.Cleanup(c.close)
	c.up()
}

func (c *crash) close() {
	select {
	case <-c.over:
	default:
		close(c.over)
	}
	c.watching.Wait()
}

// maxStarts bounds the dispatchers of a case: more would be a loop.
const maxStarts = 30

func (c *crash) watch() {
	for {
		select {
		case <-c.over:
			return
		case <-time.After(5 * time.Millisecond):
		}
		c.mu.Lock()
		alive := slices.ContainsFunc(c.keepers, func(p *process) bool { return !p.ended() })
		if c.wanted && !alive {
			if c.starts++; c.starts > maxStarts {
				c.wanted = false
				c.t.Errorf("%d dispatchers ended", maxStarts)
			} else {
				c.keep(dispatcher, "dispatch")
			}
		}
		c.mu.Unlock()
	}
}

func (c *crash) keep(role string, words ...string) *process {
	if c.unarmed {
		role = ""
	}
	p := start(c.t, c.command(role, words...))
	p.closeIn()
	c.keepers = append(c.keepers, p)
	return p
}

// disarm says whether dispatchers that start now are spared.
func (c *crash) disarm(spare bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unarmed = spare
}

func (c *crash) up() {
	c.mu.Lock()
	c.wanted = true
	c.mu.Unlock()
}

// down kills the dispatcher and keeps another from coming.
func (c *crash) down() {
	c.mu.Lock()
	c.wanted = false
	all := slices.Clone(c.keepers)
	c.mu.Unlock()
	for _, p := range all {
		p.id.signal(unix.SIGKILL)
		p.wait()
	}
}

// relieve lets another dispatcher take over, and returns when that is decided.
func (c *crash) relieve() {
	c.listening()
	c.mu.Lock()
	old := c.keepers[len(c.keepers)-1]
	p := c.keep(relief, "dispatch", "takeover")
	c.mu.Unlock()
	eventually(c.t, "the takeover is decided", func() bool { return p.ended() || old.ended() })
}

// ask calls the dispatcher, if one answers.
func (c *crash) ask(call func(context.Context, *api.Client) error) bool {
	ctx, stop := context.WithTimeout(context.Background(), patience/3)
	defer stop()
	client, err := api.Dial(c.d)
	if err != nil {
		return false
	}
	defer client.Close()
	return call(ctx, client) == nil
}

func (c *crash) listening() {
	eventually(c.t, "a dispatcher listens", func() bool {
		return c.ask(func(ctx context.Context, client *api.Client) error {
			_, err := client.Status(ctx)
			return err
		})
	})
}

func (c *crash) stateOf(id string) (state string) {
	if id == "" {
		return record.Ended
	}
	c.ask(func(ctx context.Context, client *api.Client) error {
		all, err := client.Attempts(ctx, api.Filter{Attempt: id})
		if err == nil && len(all.Attempts) == 1 {
			state = all.Attempts[0].State
		}
		return err
	})
	return state
}

// left counts what waits, runs or is under way; unknown when nobody says. That
// everything has ended and nothing is owed stays so; that the dispatcher has let
// go of it is asked afterwards.
func (c *crash) left() int {
	left := unknown
	c.ask(func(ctx context.Context, client *api.Client) error {
		n := 0
		for _, s := range c.sent {
			all, err := client.Attempts(ctx, api.Filter{Lane: s.lane})
			if err != nil {
				return err
			}
			for _, at := range all.Attempts {
				if unfinished(at) {
					n++
				}
			}
		}
		s, err := client.Status(ctx)
		if err == nil {
			left = n + s.Offers + s.Attempts + s.Rows[attempt.Queued] + s.Rows[attempt.Starting]
		}
		return err
	})
	if left == unknown {
		return left
	}
	processes := len(c.p.left()) // the dispatcher stays
	return left + max(processes-1, 1-processes)
}

// idle tells whether nothing is left.
func (c *crash) idle() bool { return c.left() == 0 }

// unfinished tells of the last attempt of a lane that there is more to come.
func unfinished(at api.Attempt) bool {
	return at.State != record.Ended || at.Outcome == record.Lost && at.Row.RetryLost > 0
}

// ran waits until an agent has noted something, unless its enqueue failed.
func (c *crash) ran(what string) {
	if last := c.sent[len(c.sent)-1]; !last.kept {
		return
	}
	eventually(c.t, "an agent notes "+what, func() bool { return strings.Contains(c.notes(), what+" ") || c.idle() })
}

func (c *crash) notes() string {
	return lines(c.p.file("ran"))
}

// stoppedAt waits until a driver has stopped at a point.
func (c *crash) stoppedAt(point string) (id identity) {
	eventually(c.t, "a driver stops at "+point, func() bool {
		for line := range strings.Lines(c.readLog(driver)) {
			pid, step, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, err := strconv.Atoi(pid); err == nil && step == point {
				if id = identify(n); id.stopped() {
					return true
				}
			}
		}
		return false
	})
	return id
}

func (c *crash) readLog(role string) string {
	return lines(c.log(role))
}

// passed are the points at which each role was.
func (c *crash) passed() map[spot]bool {
	all := map[spot]bool{}
	for _, role := range crashRoles {
		for line := range strings.Lines(c.readLog(role)) {
			if _, step, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				all[spot{step, role}] = true
			}
		}
	}
	return all
}

// play runs the case to its end and checks what must hold after it.
func (c *crash) play() {
	defer c.close() // or it would start a dispatcher for each that a cleanup kills
	c.sc.play(c)
	dwindles(c.t, "all comes to rest", c.left, c.p.says)
	c.oldTokens()
	// Of lanes that anybody had the files stay, with their fences: here is one of a
	// taker that was killed before it wrote anything.
	if err := os.WriteFile(c.p.laneFile("idle"), nil, 0o600); err != nil {
		c.t.Error(err)
	}
	c.run(sweeper, "gc", "--yes")
	must(c.t, "exit 0", c.command("", "gc", "--yes"))
	c.mu.Lock()
	c.wanted = false
	last := slices.Clone(c.keepers)
	c.mu.Unlock()
	for _, p := range last {
		p.id.signal(unix.SIGTERM)
		p.wait()
	}
	c.close()
	c.nothingLeft()
	c.accounted()
}

// oldTokens presents every token there ever was: none is good any more (L14).
func (c *crash) oldTokens() {
	for line := range strings.Lines(lines(c.p.file("tokens"))) {
		id, token, _ := strings.Cut(strings.TrimSpace(line), " ")
		var answer handoff.Answer
		eventually(c.t, "a claim is answered", func() bool { // it may be the one that a dispatcher dies over
			var err error
			answer, err = c.claim(id, token)
			return err == nil
		})
		if answer.OK || answer.Code != "no_offer" {
			c.t.Errorf("the token of an offer that is over: %+v", answer)
		}
	}
}

func (c *crash) claim(id, token string) (answer handoff.Answer, err error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	conn, err := handoff.Dial(ctx, c.d)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	if err := conn.Send(ctx, handoff.Claim{Attempt: id, Token: token}); err != nil {
		return answer, err
	}
	f, err := conn.Receive(ctx)
	if err != nil {
		return answer, err
	}
	defer f.CloseFds()
	return answer, f.Decode(&answer)
}

// nothingLeft is the outside view: no process, no lock, no entry, no ticket.
func (c *crash) nothingLeft() {
	until(c.t, "no process is left", func() string { return fmt.Sprint(c.p.left()) }, "[]")
	for _, dir := range []string{"lanes", "leases"} {
		_ = filepath.WalkDir(filepath.Join(c.p.home, dir), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() && strings.HasSuffix(path, ".lock") {
				eventually(c.t, path+" is free", func() bool { return canLock(path) })
			}
			return err
		})
	}
	// Who starts a process in another test takes what was just closed along for a
	// moment (S8).
	until(c.t, "no lane is owned", c.ownedLanes, "")
	names, _ := os.ReadDir(filepath.Join(c.p.home, "queue"))
	for _, e := range names {
		c.t.Errorf("an entry is left: %s", e.Name())
	}
	if names := c.p.waiting(); len(names) != 0 {
		c.t.Errorf("left in waiting/: %q", names)
	}
}

func (c *crash) ownedLanes() (owned string) {
	lanes, problems, err := lane.List(c.d)
	for _, s := range lanes {
		if s.State != lane.Free {
			owned += fmt.Sprintf("%s: %s by %s\n", s.Name, s.State, s.Owner())
		}
	}
	if len(problems) > 0 || err != nil {
		owned += fmt.Sprint(problems, err)
	}
	return owned
}

func canLock(path string) bool {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
}

// known are all attempts that the database has ever had.
func (c *crash) known() map[string]*queue.Attempt {
	all := map[string]*queue.Attempt{}
	db, err := queue.Look(filepath.Join(c.p.home, "handsel.db"))
	if err != nil {
		c.t.Error(err)
		return all
	}
	defer db.Close()
	events, err := db.Events(queue.Filter{})
	if err != nil {
		c.t.Error(err)
	}
	for _, e := range events {
		at, err := db.Find(e.Attempt)
		if err != nil || at == nil {
			c.t.Errorf("attempt %s has events and no row: %v", e.Attempt, err)
			continue
		}
		all[e.Attempt] = at
	}
	return all
}

// accounted is the inside view: whatever was accepted has ended, in a way that
// says what happened, in the place it was given (L25).
func (c *crash) accounted() {
	known := c.known()
	lanes := map[string][]*queue.Attempt{}
	for id, at := range known {
		c.ended(id, at)
		if at.Row.RetryOf == "" {
			lanes[at.Row.Lane] = append(lanes[at.Row.Lane], at)
			c.triedAgain(at, known)
		}
	}
	asked := map[string][2]int{} // accepted, and at most accepted
	for _, s := range c.sent {
		if len(c.arms) == 0 && s.kept == (s.lane == "ghost") {
			c.t.Errorf("lane %s: %s %q, %s %q", s.lane, s.end, s.said, s.cancel, s.answer)
		}
		n := asked[s.lane]
		switch {
		case s.kept:
			n[0]++
			n[1]++
			if known[s.attempt] == nil {
				c.t.Errorf("lane %s was accepted as %s and is not known", s.lane, s.attempt)
			} else {
				c.inPlace(s, known[s.attempt])
			}
		case s.unknown:
			n[1]++
		}
		asked[s.lane] = n
	}
	for name, n := range asked {
		if have := len(lanes[name]); have < n[0] || have > n[1] {
			c.t.Errorf("lane %s has %d attempts, and %d to %d were accepted", name, have, n[0], n[1])
		}
	}
	if notes := c.notes(); strings.Contains(notes, "X ") {
		c.t.Errorf("two agents were in one lane:\n%s", notes)
	}
}

// ended judges how one attempt ended.
func (c *crash) ended(id string, at *queue.Attempt) {
	if at.State != record.Ended {
		c.t.Errorf("lane %s, attempt %s is %s", at.Row.Lane, id, at.State)
		return
	}
	notes := c.notes()
	s, e := strings.Count(notes, "S "+at.Row.Lane+" "+id+"\n"), strings.Count(notes, "E "+at.Row.Lane+" "+id+"\n")
	if s > 1 {
		c.t.Errorf("attempt %s was started %d times", id, s)
	}
	begun := false
	if b, err := attempt.ReadBegun(c.d, id, at.Row.Starts); err == nil {
		begun = b.What == attempt.Began
	}
	if s > 0 && !begun {
		c.t.Errorf("attempt %s ran and was not begun", id)
	}
	ok := false
	switch at.Outcome {
	case record.Exited:
		ok = s == 1 && e == 1 && begun && at.ExitCode != nil && *at.ExitCode == 0
	case record.Lost:
		ok = begun && c.killed(driver)
	case record.NotStarted:
		ok = s == 0 && at.Reason != nil && at.Reason.Code == "displaced" && at.Row.Lane == c.displaced
	case record.Cancelled:
		ok = c.wasSent(id).cancel != "" && (s == 0 || begun) // its agent may have been done, and not have ended
	}
	if !ok {
		c.t.Errorf("lane %s, attempt %s: %q, %+v, with %d starts and %d ends noted, begun %v", at.Row.Lane, id, at.Outcome, at.Reason, s, e, begun)
	}
	if run, err := record.Load(c.d, id); err != nil || run.State != record.Ended || run.Outcome != at.Outcome {
		c.t.Errorf("attempt %s is %q, and its record says %+v, %v", id, at.Outcome, run, err)
	}
}

// triedAgain checks that what was lost was tried again as often as was asked
// for, in its old place.
func (c *crash) triedAgain(at *queue.Attempt, known map[string]*queue.Attempt) {
	want, have := 0, 0
	if at.Outcome == record.Lost {
		want = at.Row.RetryLost
	}
	for _, next := range known {
		if next.Row.RetryOf == at.Row.ID {
			have++
			if !next.Row.QueueStart.Equal(at.Row.QueueStart.Time) || next.Row.Priority != at.Row.Priority || next.Row.RetryLost != want-1 {
				c.t.Errorf("attempt %s was tried again as %+v", at.Row.ID, next.Row)
			}
		}
	}
	if have != want {
		c.t.Errorf("attempt %s is %q, was to be tried again %d times when lost, and was %d times", at.Row.ID, at.Outcome, at.Row.RetryLost, have)
	}
}

// killed tells whether somebody in that role was.
func (c *crash) killed(role string) bool {
	return slices.ContainsFunc(append(slices.Clone(c.arms), c.sc.own), func(s spot) bool { return s.role == role && c.fired(s) })
}

func (c *crash) wasSent(id string) *sending {
	for _, s := range c.sent {
		if s.attempt == id {
			return s
		}
	}
	return &sending{}
}

// inPlace checks that a row kept its place in line from beginning to end.
func (c *crash) inPlace(s *sending, at *queue.Attempt) {
	if at.Row.Priority != crashPriority {
		c.t.Errorf("attempt %s has priority %d", s.attempt, at.Row.Priority)
	}
	began, ended := s.began.Truncate(time.Millisecond), s.ended.Add(time.Millisecond)
	if q := at.Row.QueueStart.Time; q.Before(began) || q.After(ended) {
		c.t.Errorf("attempt %s was enqueued between %v and %v, and queued since %v", s.attempt, began, ended, q)
	}
}

// tell says what the case was, for whoever has to find out.
func (c *crash) tell() {
	c.t.Logf("scenario %s, killed %v", c.sc.name, c.arms)
	for _, s := range c.sent {
		c.t.Logf("enqueue %s: %s %s %q", s.lane, s.end, s.attempt, s.said)
	}
	c.t.Logf("left: %v", c.p.left())
	c.t.Logf("agents:\n%s", c.notes())
	log, _ := os.ReadFile(filepath.Join(c.p.home, "log", "dispatch.log"))
	c.t.Logf("dispatchers:\n%s", log)
	for _, role := range crashRoles {
		c.t.Logf("%s was at:\n%s", role, c.readLog(role))
	}
}

// pointsInCode are the failpoints of this module, from its source.
func pointsInCode(t testing.TB) []string {
	t.Helper()
	points := map[string]bool{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case e.IsDir() && path != root && (strings.HasPrefix(name, ".") && name != ".." || name == "node_modules" || name == "testdata"):
			return fs.SkipDir
		case e.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
			return nil
		}
		return pointsOf(path, points)
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(points))
}

// pointsOf adds the points of one file. One whose name is not written there
// could not be found, so it is refused.
func pointsOf(path string, points map[string]bool) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Hit" || len(call.Args) != 1 {
			return true
		} else if room, ok := f.X.(*ast.Ident); !ok || room.Name != "failpoint" {
			return true
		}
		name, ok := call.Args[0].(*ast.BasicLit)
		if !ok || name.Kind != token.STRING {
			err = errors.Join(err, fmt.Errorf("%v: a failpoint whose name is not written there", set.Position(call.Pos())))
			return true
		}
		text, uerr := strconv.Unquote(name.Value)
		err = errors.Join(err, uerr)
		points[text] = true
		return true
	})
	return err
}

// crashSurvey is who comes where, in which scenario.
type crashSurvey struct {
	points  []string
	passed  map[string]map[spot]bool // by scenario
	singles []single
}

// single is a case with one death.
type single struct {
	spot
	sc *scenario
}

// survey plays every scenario with nobody killed and every point noted.
func survey(t *testing.T) *crashSurvey {
	s := &crashSurvey{points: pointsInCode(t), passed: map[string]map[spot]bool{}}
	var mu sync.Mutex
	rules := strings.Join(s.points, "=sleep:0,") + "=sleep:0"
	t.Run("nobody", func(t *testing.T) {
		for i := range 2 * len(scenarios) { // twice: what depends on who is faster is left out
			sc := &scenarios[i/2]
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				c := newCrash(t, sc, rules)
				c.play()
				mu.Lock()
				defer mu.Unlock()
				now := c.passed()
				if first, again := s.passed[sc.name]; again {
					maps.DeleteFunc(now, func(at spot, _ bool) bool { return !first[at] })
				}
				s.passed[sc.name] = now
			})
		}
	})
	s.choose(t)
	return s
}

// choose makes the cases: each spot in the first scenario that comes there.
func (s *crashSurvey) choose(t *testing.T) {
	seen := map[spot]bool{}
	reached := map[string]bool{}
	for i := range scenarios {
		sc := &scenarios[i]
		for _, at := range slices.SortedFunc(maps.Keys(s.passed[sc.name]), func(a, b spot) int { return cmp.Compare(a.String(), b.String()) }) {
			if !seen[at] && unreached[at.point] == "" {
				seen[at] = true
				s.singles = append(s.singles, single{at, sc})
			}
			reached[at.point] = true
		}
	}
	for _, point := range s.points {
		if !reached[point] && unreached[point] == "" {
			t.Errorf("no scenario comes to failpoint %s", point)
		}
	}
}

// pairs are two deaths each, in this order, in a scenario that comes to both.
func (s *crashSurvey) pairs() (all [][2]single, never int) {
	for _, p := range s.singles {
		for _, q := range s.singles {
			switch {
			case p.spot == q.spot:
				continue
			case s.passed[q.sc.name][p.spot] && q.sc.own != p.spot:
				p.sc = q.sc
			case !s.passed[p.sc.name][q.spot] || p.sc.own == q.spot:
				never++
				continue
			}
			all = append(all, [2]single{p, q})
		}
	}
	return all, never
}

// crashesAtOnce is how many cases are played at a time: they wait most of it.
const crashesAtOnce = 8

// crashSample is how many of the pairs `make test` plays, and crashSeed which.
const (
	crashSample = 40
	crashSeed   = 25
)

// TestSeamCrash is L25: whoever is killed at whatever step, alone or in pairs,
// no lane has two agents, nothing that was accepted is forgotten, nothing is
// held by nobody, and no place in line is lost.
func TestSeamCrash(t *testing.T) {
	t.Parallel()
	s := survey(t)
	if t.Failed() {
		return
	}
	var ones, twos crashTally
	chairs := make(chan struct{}, crashesAtOnce)
	t.Run("one", func(t *testing.T) {
		for _, one := range s.singles {
			ones.play(t, chairs, one.sc, one.spot)
		}
	})
	pairs, never := s.pairs()
	pairs = chosen(t, pairs)
	t.Run("two", func(t *testing.T) {
		for _, two := range pairs {
			twos.play(t, chairs, two[0].sc, two[0].spot, two[1].spot)
		}
	})
	t.Logf("%d failpoints in the code; one death: %s; two deaths: %s; %d pairs never meet", len(s.points), &ones, &twos, never)
}

// chosen are the pairs to be played, in an order of no meaning but always the
// same: some, or as HANDSEL_CRASH says, "all", a number of them, or "I/N", the
// I-th of N parts.
func chosen(t *testing.T, pairs [][2]single) [][2]single {
	rand.New(rand.NewPCG(crashSeed, crashSeed)).Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	most := crashSample
	switch text := os.Getenv("HANDSEL_CRASH"); {
	case text == "":
	case text == "all":
		most = len(pairs)
	case strings.Contains(text, "/"):
		part, parts := 0, 0
		if _, err := fmt.Sscanf(text, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
			t.Fatalf("HANDSEL_CRASH=%q is no part of the pairs", text)
		}
		return pairs[len(pairs)*(part-1)/parts : len(pairs)*part/parts]
	default:
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			t.Fatalf("HANDSEL_CRASH=%q is no number of pairs", text)
		}
		most = n
	}
	return pairs[:min(most, len(pairs))]
}

// crashTally counts cases.
type crashTally struct{ cases, fired, both atomic.Int64 }

func (n *crashTally) String() string {
	return fmt.Sprintf("%d cases, %d fired, %d of them twice", n.cases.Load(), n.fired.Load(), n.both.Load())
}

// play plays one case beside the others. Each proves that its point fired: of
// two, the death of one may keep the other from coming to its own.
func (n *crashTally) play(t *testing.T, chairs chan struct{}, sc *scenario, arms ...spot) {
	name := sc.name
	for _, a := range arms {
		name += "/" + a.String()
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		chairs <- struct{}{}
		defer func() { <-chairs }()
		n.cases.Add(1)
		fired := playOnce(t, sc, arms)
		for try := 1; fired == 0 && try < crashTries; try++ {
			fired = playOnce(t, sc, arms)
		}
		switch {
		case fired == 0:
			t.Errorf("%v was never reached", arms)
		case fired == 2:
			n.both.Add(1)
		}
		n.fired.Add(int64(min(fired, 1)))
	})
}

// crashTries is how often a case is played whose point is not always come to.
const crashTries = 8

// playOnce plays a case and counts the points that fired.
func playOnce(t *testing.T, sc *scenario, arms []spot) (fired int) {
	c := newCrash(t, sc, "", arms...)
	c.play()
	for _, a := range arms {
		if c.fired(a) {
			fired++
		}
	}
	return fired
}
