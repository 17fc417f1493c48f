package acceptance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/api"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

// life is all that the dispatcher says of one attempt.
type life struct {
	api.Attempt
	events []api.Event
}

func (l *life) seq(what string) int64 {
	for _, e := range l.events {
		if e.What == what {
			return e.Seq
		}
	}
	return 0
}

// lives asks for every attempt of ids, which maps lanes to attempts.
func (h *hub) lives(ids map[string]string) map[string]*life {
	h.t.Helper()
	all := map[string]*life{}
	for _, id := range ids {
		all[id] = &life{Attempt: h.attempt(id)}
	}
	for after := int64(0); ; {
		e := asks(h, func(ctx context.Context, c *api.Client) (*api.Events, error) {
			return c.Events(ctx, api.Filter{After: after, Limit: 1000})
		})
		if len(e.Events) == 0 {
			return all
		}
		for _, one := range e.Events {
			if l := all[one.Attempt]; l != nil {
				l.events = append(l.events, one)
			} else if !strings.HasPrefix(one.Lane, "steady") {
				h.t.Errorf("an event of an attempt that nobody enqueued: %+v", one)
			}
			after = one.Seq
		}
	}
}

// explained checks that the events of an attempt are one story from its
// acceptance to its end.
func (l *life) explained() error {
	if len(l.events) < 2 || l.events[0].What != "accepted" || l.events[len(l.events)-1].What != "ended" || l.State != "ended" {
		return fmt.Errorf("it is %s, and its events are %s", l.State, l.story())
	}
	at := ""
	for i, e := range l.events {
		if e.From != at || (e.What == "ended") != (i == len(l.events)-1) || (e.What == "accepted") != (i == 0) {
			return fmt.Errorf("its events do not follow from each other: %s", l.story())
		}
		at = e.To
	}
	return nil
}

func (l *life) story() string {
	var words []string
	for _, e := range l.events {
		words = append(words, fmt.Sprintf("%s %s>%s %q", e.What, e.From, e.To, e.Detail))
	}
	return strings.Join(words, "; ")
}

// overtaken is how many offers later than a better row another may be made: four
// are open at once, and which of them is committed first is not decided.
const overtaken = 8

// inOrder checks the order of first offers: a row that was there is offered
// before those behind it. Late says of which it is not certain when they were.
func inOrder(t *testing.T, all map[string]*life, late func(*life) bool) {
	t.Helper()
	var list []*life
	for _, l := range all {
		if l.seq("offered") != 0 {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *life) int { return int(a.seq("offered") - b.seq("offered")) })
	best := make([]*life, len(list)+1) // of those offered at i or later
	for i := len(list) - 1; i >= 0; i-- {
		best[i] = list[i]
		for j := i + 1; j < len(list); j++ {
			if attempt.Before(&list[j].Row, &best[i].Row) && i >= overtaken && list[j].seq("accepted") < list[i-overtaken].seq("offered") && !late(list[j]) {
				best[i] = list[j]
			}
		}
	}
	for i, l := range list {
		if i+overtaken < len(list) && best[i] != l && slices.Index(list, best[i]) > i+overtaken {
			t.Errorf("%s was offered %d offers before %s, which had waited in front of it", l.Row.Lane, slices.Index(list, best[i])-i, best[i].Row.Lane)
		}
	}
}

// riot is a home in which much is enqueued while its processes are killed.
type riot struct {
	*hub
	t    *testing.T
	log  string
	dice *rand.Rand

	mu       sync.Mutex
	accepted map[string]string // lane → attempt
	answered map[string]time.Time
	outages  []outage
	struck   map[string]bool // attempts whose driver we killed
	last     atomic.Pointer[process]
	unsure   atomic.Int64

	over   chan struct{} // no more work is to be had
	clerks sync.WaitGroup
	off    func()
}

// outage is when no dispatcher was there.
type outage struct{ from, to time.Time }

// late tells of an attempt whose launcher had no answer when its dispatcher was
// killed: it holds its lane until it has one, and its row waits for that.
func (r *riot) late(l *life) bool {
	for _, o := range r.outages {
		if l.events[0].At.Before(o.to) && r.answered[l.Row.Lane].After(o.from) {
			return true
		}
	}
	return false
}

func newRiot(t *testing.T, settings string) *riot {
	h := newHub(t, settings)
	n := seed(t)
	r := &riot{
		hub: h, t: t, log: h.file("log"), dice: rand.New(rand.NewPCG(n, 1)), accepted: map[string]string{}, answered: map[string]time.Time{}, struck: map[string]bool{},
		over: make(chan struct{}),
	}
	r.off = sync.OnceFunc(func() { close(r.over) })
	return r
}

// callOff ends whoever enqueues. A test defers it, since no cleanup may take the
// dispatcher from them.
func (r *riot) callOff() {
	r.off()
	r.clerks.Wait()
}

// calledOff tells whether it is over.
func (r *riot) calledOff() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// unstarted counts the lanes whose agents have not said yet that they began.
func (r *riot) unstarted(lanes int) int { return lanes - len(starts(r.t, r.log)) }

// lacking counts the lanes that are not accepted yet.
func (r *riot) lacking(lanes int) int { return max(lanes-len(r.known()), 0) }

// client enqueues lanes until every one is accepted, whoever is killed meanwhile.
func (r *riot) client(names []string) {
	for _, name := range names {
		for end := time.Now().Add(4 * patience); !r.calledOff(); {
			id, err := r.gives(name, handsel.EnqueueOptions{}, "log", r.log, "id", name, "hold", "5ms")
			var unknown *handsel.Unknown
			if errors.As(err, &unknown) { // L9: ask, and only then try again
				r.unsure.Add(1)
				if r.became(unknown.Attempt) {
					id, err = unknown.Attempt, nil
				}
			}
			if err == nil {
				r.mu.Lock()
				r.accepted[name], r.answered[name] = id, time.Now()
				r.mu.Unlock()
				break
			}
			if r.calledOff() {
				return
			}
			if time.Now().After(end) {
				r.t.Errorf("lane %s is never accepted: %v", name, err)
				return
			}
			if !passing(err) {
				r.t.Errorf("enqueue %s: %v", name, err)
			}
			time.Sleep(10 * time.Millisecond) // somebody is starting a dispatcher
		}
	}
}

// passing tells whether a refusal is one that a killed dispatcher explains.
func passing(err error) bool {
	var declined *handsel.Declined
	return errors.As(err, new(*handsel.NoDispatcher)) || errors.As(err, new(*handsel.SilentDispatcher)) ||
		errors.As(err, new(*handsel.Unknown)) || errors.As(err, &declined) && declined.Reason.Retryable
}

// became asks until a dispatcher answers whether it knows an attempt.
func (r *riot) became(id string) bool {
	for end := time.Now().Add(patience); time.Now().Before(end) && !r.calledOff(); time.Sleep(10 * time.Millisecond) {
		a, err := tries(r.hub, func(ctx context.Context, c *api.Client) (*api.Attempts, error) {
			return c.Attempts(ctx, api.Filter{Attempt: id})
		})
		if err == nil {
			return len(a.Attempts) == 1
		}
	}
	if !r.calledOff() {
		r.t.Errorf("nobody says what became of %s", id)
	}
	return false
}

// progress is how much the agents have written.
func (r *riot) progress() int64 {
	info, err := os.Stat(r.log)
	if err != nil {
		return 0
	}
	return info.Size()
}

// restart kills the dispatcher and starts another.
func (r *riot) restart() {
	o := outage{from: time.Now()}
	r.last.Load().kill()
	r.last.Store(r.dispatcher())
	o.to = time.Now()
	r.outages = append(r.outages, o)
}

// strike kills the dispatcher, which is then started again, or a driver.
func (r *riot) strike() {
	if r.dice.IntN(2) == 0 {
		r.restart()
		return
	}
	all := r.drivers()
	if len(all) == 0 {
		return
	}
	id := all[r.dice.IntN(len(all))]
	r.mu.Lock()
	r.struck[fmt.Sprint(id.pid, " ", id.ticks)] = true
	r.mu.Unlock()
	id.signal(syscall.SIGKILL)
}

// TestDispatcherStormLosesNothing is L8, L9, L14, L18, L20 and L24: thousands of
// enqueues while dispatchers and drivers are killed, and every lane ends exactly
// once, in order, started at most once, with a story that explains it.
func TestDispatcherStormLosesNothing(t *testing.T) {
	t.Parallel()
	lanes, clients, kills := part(160, 10_000), part(8, 64), part(10, 200)
	r := newRiot(t, "[pools]\nall = 4\n")
	defer r.callOff()
	r.last.Store(r.dispatcher())
	for i := range clients {
		var names []string
		for n := i; n < lanes; n += clients {
			names = append(names, fmt.Sprintf("l%05d", n))
		}
		r.clerks.Go(func() { r.client(names) })
	}
	line := int64(60) // bytes of a start and half of its end, roughly
	for i := range kills {
		at := int64(i) * int64(lanes) * line / int64(kills)
		for end := time.Now().Add(2 * time.Second); r.progress() < at && time.Now().Before(end); {
			time.Sleep(time.Duration(r.dice.IntN(5)+1) * time.Millisecond) // kills come at no certain moment
		}
		r.strike()
	}
	r.brought(lanes)
	r.ends(lanes)
}

// brought waits until the clients have brought all there is.
func (r *riot) brought(lanes int) {
	r.t.Helper()
	dwindles(r.t, "all are accepted", func() int { return r.lacking(lanes) }, r.says)
	r.clerks.Wait()
}

// ends waits for the end of everything and judges it.
func (r *riot) ends(lanes int) {
	r.t.Helper()
	if len(r.accepted) != lanes {
		r.t.Fatalf("%d lanes of %d were accepted", len(r.accepted), lanes)
	}
	r.idle()
	all := r.lives(r.accepted)
	begun := starts(r.t, r.log)
	outcomes := map[string]int{}
	for name, id := range r.accepted {
		l := all[id]
		outcomes[l.Outcome]++
		if err := l.explained(); err != nil {
			r.t.Errorf("%s: %v", name, err)
		}
		struck := l.Driver != nil && r.struck[fmt.Sprint(l.Driver.Pid, " ", l.Driver.Ticks)]
		switch n := begun[name]; {
		case n > 1:
			r.t.Errorf("%s was started %d times: %s", name, n, l.story())
		case !struck && (n != 1 || l.Outcome != "exited"):
			r.t.Errorf("%s was started %d times, %s, and nobody killed its driver: %s", name, n, l.Outcome, l.story())
		case struck && l.Outcome != "exited" && l.Outcome != "lost":
			r.t.Errorf("%s: %s: %s", name, l.Outcome, l.story())
		}
		if rec := r.runRecord(id); rec.State != "ended" || rec.Outcome != l.Outcome {
			r.t.Errorf("%s: its record says %s %s, the dispatcher %s", name, rec.State, rec.Outcome, l.Outcome)
		}
		if free(r.t, r.hub, name) != "free" {
			r.t.Errorf("lane %s is still held", name)
		}
	}
	if n := zombies(r.last.Load().id.pid); n != 0 {
		r.t.Errorf("the dispatcher has %d dead children", n) // C050
	}
	inOrder(r.t, all, r.late)
	totals := r.state().Totals
	if totals.Accepted != int64(lanes)+totals.Unstarted || totals.Waiting+totals.Claimed+totals.Running != 0 || totals.Started != totals.Succeeded+totals.Failed+totals.Lost {
		r.t.Errorf("totals: %+v", totals)
	}
	r.t.Logf("%d lanes: %v; %d answers were lost, %d drivers killed", lanes, outcomes, r.unsure.Load(), len(r.struck))
	r.stops(r.last.Load())
}

// runRecord reads a run's record without a process.
func (h *hub) runRecord(id string) *record.Run {
	h.t.Helper()
	run, err := record.Load(h.dir, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return run
}

// probe tries for a lane as a third party. It says whether it got it although
// its agent has not begun: while it has the lock, nobody can start it.
func (r *riot) probe(name string) (gap bool) {
	fd, err := unix.Open(filepath.Join(r.dir.Lanes(), home.LaneFile(name)+".lock"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	return !exists(r.file("began-" + name))
}

// known lists the lanes that were accepted so far.
func (r *riot) known() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.accepted {
		names = append(names, name)
	}
	return names
}

// load enqueues without an end, and without a refusal, until that is called off.
func (r *riot) load(worker int) {
	for n := 0; !r.calledOff(); n++ {
		name := fmt.Sprintf("w%d-%d", worker, n)
		id, err := r.gives(name, handsel.EnqueueOptions{}, "touch", r.file("began-"+name), "then", "log", r.log, "id", name)
		if err != nil {
			r.t.Errorf("enqueue %s: %v", name, err)
			return
		}
		r.mu.Lock()
		r.accepted[name], r.answered[name] = id, time.Now()
		r.mu.Unlock()
		for len(r.known())-len(starts(r.t, r.log)) > 60 { // it is the takeover that is tested
			select {
			case <-r.over:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// probes tries every lane that was accepted, over and over, until quiet is
// closed. It tells once of each that it was free.
func (r *riot) probes(quiet <-chan struct{}, steady []string, pause time.Duration, looks *atomic.Int64) {
	told := map[string]bool{}
	for {
		names := slices.DeleteFunc(r.known(), func(name string) bool { return exists(r.file("began-" + name)) })
		names = append(names, steady...)
		for _, name := range names {
			select {
			case <-quiet:
				return
			default:
			}
			looks.Add(1)
			if !told[name] && r.probe(name) {
				told[name] = true
				r.t.Errorf("lane %s was free while its work waited", name)
			}
			time.Sleep(pause)
		}
	}
}

// TestTakeoverLeavesNoGap is L21, L6 and G14: one dispatcher relieves the other
// under load, and no lane is free, no enqueue refused or lost.
func TestTakeoverLeavesNoGap(t *testing.T) {
	t.Parallel()
	r := newRiot(t, "[pools]\nall = 2\n")
	defer r.callOff()
	r.last.Store(r.dispatcher())
	quiet := make(chan struct{})
	var watch sync.WaitGroup
	hush := sync.OnceFunc(func() { close(quiet); watch.Wait() })
	defer hush() // whatever happens, before a cleanup kills the dispatcher
	var looks atomic.Int64
	var steady []string // they wait all the time
	for i := range 20 {
		name := fmt.Sprint("steady", i)
		if _, err := r.gives(name, handsel.EnqueueOptions{NotBefore: time.Now().Add(time.Hour)}, "true"); err != nil {
			t.Fatal(err)
		}
		steady = append(steady, name)
	}
	watch.Go(func() { r.probes(quiet, steady, 50*time.Microsecond, &looks) })
	for i := range 3 {
		r.clerks.Go(func() { r.load(i) })
	}
	times := part(5, 100)
	for i := range times {
		dwindles(t, "there is work", func() int { return r.lacking(10*i + 1) }, r.says)
		old := r.last.Load()
		r.last.Store(r.dispatcher("takeover"))
		if end := old.wait(); end != "exit 0" {
			t.Fatalf("relieved, a dispatcher ended with %s: %q", end, old.said())
		}
	}
	r.callOff()
	lanes := len(r.known())
	dwindles(t, "all have run", func() int { return r.unstarted(lanes) }, r.says)
	hush()
	must(t, "exit 0", r.handsel(append([]string{"cancel"}, steady...)...))
	if looks.Load() == 0 { // how many there were is the machine's business
		t.Error("it was over before anybody looked")
	}
	r.ends(lanes)
}

// outsider is the variable that makes this test binary the process of
// TestProbesDisplaceNobody.
const outsider = "ACCEPTANCE_OUTSIDER"

// TestOutsiderProcess is no test: it has ten thousand descriptors, forks in a
// loop and tries the lanes of a home at 1 kHz, until its input ends. A lock it
// gets lives on in each child until that has closed all of them (S8).
func TestOutsiderProcess(t *testing.T) {
	lanes := os.Getenv(outsider)
	if lanes == "" {
		return
	}
	for range 10_000 {
		if _, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3); err != nil {
			break // the limit is lower here
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = os.Stdin.Read(make([]byte, 1))
	}()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				_ = exec.Command("true").Run()
			}
		}
	})
	tick := time.NewTicker(time.Millisecond)
	for {
		names, _ := os.ReadDir(lanes)
		for _, e := range names {
			select {
			case <-over:
				all.Wait()
				return
			case <-tick.C:
			}
			fd, err := unix.Open(filepath.Join(lanes, e.Name()), unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err == nil {
				_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
				unix.Close(fd)
			}
		}
		select {
		case <-over:
			all.Wait()
			return
		case <-tick.C:
		}
	}
}

// TestProbesDisplaceNobody is S8, L6 and L20: whoever only looks, however often
// and however badly, changes no outcome, also while dispatchers come and go.
func TestProbesDisplaceNobody(t *testing.T) {
	t.Parallel()
	r := newRiot(t, "[pools]\nall = 2\n")
	defer r.callOff()
	r.last.Store(r.dispatcher())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := r.with("FAKEAGENT=", outsider+"="+r.dir.Lanes()).command(self, "-test.run=^TestOutsiderProcess$")
	out := start(t, c)
	lanes, clients := part(60, 2000), 4
	for i := range clients {
		var names []string
		for n := i; n < lanes; n += clients {
			names = append(names, fmt.Sprintf("l%05d", n))
		}
		r.clerks.Go(func() { r.client(names) })
	}
	for i := range part(3, 50) {
		dwindles(t, "there is work", func() int { return r.lacking(min(lanes, 15*(i+1))) }, r.says)
		r.restart()
	}
	r.brought(lanes)
	dwindles(t, "all have run", func() int { return r.unstarted(lanes) }, r.says)
	out.closeIn()
	if end := out.wait(); end != "exit 0" {
		t.Errorf("the outsider: %s, %q", end, out.said())
	}
	r.ends(lanes)
}
