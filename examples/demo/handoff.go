package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/handsel/handsel"
)

// seat is one lane of the story.
type seat struct {
	name, engine string
	work         time.Duration
	attempt      string
	start        time.Time // its place in line
	taker        *taker
}

// handOver enqueues three lanes while the only slot is taken.
func (s *stage) handOver() error {
	s.log = filepath.Join(s.dir, "lanes.log")
	s.config = filepath.Join(s.dir, "dispatcher.toml")
	text := "[admission]\nmode = \"dispatcher\"\n[pools]\nall = 1\n[env]\nallow = [\"DEMO_\"]\n"
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		return err
	}
	if err := s.startDispatcher("dispatch"); err != nil {
		return err
	}
	s.holder = s.handsel(time.Minute, "run", "--", "pi")
	if err := s.start(s.holder); err != nil {
		return err
	}
	if _, err := s.look("pi to run", func(snap *handsel.Snapshot) bool { return snap.Pools["pi"].Held == 1 }); err != nil {
		return err
	}
	fmt.Printf("   The dispatcher is pid %d. There is room for one agent, and pi has it.\n", s.dispatcher.Process.Pid)
	for _, l := range []*seat{{name: "review", engine: "claude", work: time.Minute}, {name: "docs", engine: "codex"}, {name: "tests", engine: "gemini"}} {
		if err := s.enqueue(l); err != nil {
			return err
		}
	}
	if err := s.allWait("handed over"); err != nil {
		return err
	}
	fmt.Printf("   The launchers have left; the dispatcher has what they held. In line: %s. %s\n", s.names(), s.whyFirst())
	return s.inVain("from before the launcher had a lane until now")
}

// enqueue hands one lane over. The taker is there before the launcher.
func (s *stage) enqueue(l *seat) error {
	path := filepath.Join(s.dir, "home", "lanes", l.name+".lock")
	l.taker = newTaker(l.name, path, func() bool { return s.ended(l) })
	s.lanes = append(s.lanes, l)
	launcher := s.handsel(max(l.work, 300*time.Millisecond), "enqueue", l.name, "--", l.engine)
	out, err := launcher.Output()
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", l.name, err)
	}
	words := strings.Fields(string(out))
	if len(words) != 2 || words[0] != l.name {
		return fmt.Errorf("enqueue %s said %q, want the lane and an attempt", l.name, out)
	}
	l.taker.mu.Lock() // it asks by the attempt whether the work is over
	l.attempt = words[1]
	l.taker.mu.Unlock()
	return nil
}

// startDispatcher starts one and returns when it answers.
func (s *stage) startDispatcher(args ...string) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "dispatcher.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.handsel(0, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := s.start(cmd); err != nil {
		return err
	}
	err = wait("the dispatcher to answer", func() bool {
		at, err := s.home.DispatcherStatus(context.Background())
		return err == nil && at.Pid == cmd.Process.Pid
	})
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w; it said: %s", err, said)
	}
	s.dispatcher = cmd
	return nil
}

// allWait proves by the dispatcher's word, by the lanes' records and by the
// kernel that every lane waits, in order, at the place it came to, and that this
// dispatcher has it.
func (s *stage) allWait(since string) error {
	q := s.home.Queue(context.Background())
	if q.Source != handsel.FromDispatcher || q.Dispatcher.Pid != s.dispatcher.Process.Pid {
		return fmt.Errorf("the queue is told by %s, pid %d", q.Source, q.Dispatcher.Pid)
	}
	if len(q.Rows) != len(s.lanes) {
		return fmt.Errorf("%d lanes wait of the %d that were %s", len(q.Rows), len(s.lanes), since)
	}
	for i, l := range s.lanes {
		switch r := q.Rows[i]; {
		case r.Lane != l.name:
			return fmt.Errorf("lane %s stands in the place of %s", r.Lane, l.name)
		case r.ID != l.attempt:
			return fmt.Errorf("lane %s has the attempt %s, not %s", l.name, r.ID, l.attempt)
		case l.start.IsZero():
			l.start = r.QueueStart.Time
		case !l.start.Equal(r.QueueStart.Time):
			return fmt.Errorf("lane %s came at %v, and now at %v", l.name, l.start, r.QueueStart)
		}
	}
	all := lanesOf(s.home.Status(context.Background()))
	for _, l := range s.lanes {
		if !slices.ContainsFunc(all, func(at lane) bool { return at.name == l.name && at.state == "held" && at.role == "dispatcher" }) {
			return fmt.Errorf("lane %s is not held by the dispatcher: %+v", l.name, all)
		}
	}
	return nil
}

// lane is what status shows of one that somebody has.
type lane struct {
	name, state, role string
	owner, child      int
}

func lanesOf(snap *handsel.Snapshot) (all []lane) {
	for _, l := range snap.Lanes {
		all = append(all, lane{l.Name, l.State, l.Role, l.Owner, l.Child})
	}
	return all
}

func (s *stage) names() string {
	var all []string
	for _, l := range s.lanes {
		all = append(all, l.name)
	}
	return strings.Join(all, ", ")
}

// whyFirst is what keeps the first lane waiting, in handsel's own words.
func (s *stage) whyFirst() string {
	y, err := s.home.Why(context.Background(), s.lanes[0].name)
	if err != nil {
		return ""
	}
	for _, p := range y.Permissions {
		if p.Answer == "wait" {
			return fmt.Sprintf("Why %s waits: %s, %s.", s.lanes[0].name, p.Class, p.Code)
		}
	}
	return ""
}

// inVain says how often the third process tried since the last time, in each
// lane that still has one, and fails if it got one.
func (s *stage) inVain(when string) error {
	all := 0
	for _, l := range s.lanes {
		n, err := l.taker.inVain()
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("nobody tried lane %s: this proves nothing", l.name)
		}
		all += n
	}
	fmt.Printf("   A third process tried their locks %d times, %s: never free.\n", all, when)
	return nil
}

// killedDispatcher kills the dispatcher while lanes wait, and starts the next.
func (s *stage) killedDispatcher() error {
	for _, l := range s.lanes {
		l.taker.rest(true)
	}
	pid := s.dispatcher.Process.Pid
	if err := s.dispatcher.Process.Kill(); err != nil {
		return err
	}
	_ = s.dispatcher.Wait()
	q := s.home.Queue(context.Background())
	fmt.Printf("   kill -9 %d. Nobody answers, and handsel queue still shows %d lanes, from the files.\n", pid, len(q.Rows))
	if err := s.startDispatcher("dispatch"); err != nil {
		return err
	}
	if err := s.allWait("accepted before the kill"); err != nil {
		return err
	}
	for _, l := range s.lanes {
		l.taker.rest(false)
	}
	if err := s.tried(); err != nil {
		return err
	}
	fmt.Printf("   The next one (pid %d) took each lane again and knows each attempt: nobody lost, the order kept.\n", s.dispatcher.Process.Pid)
	fmt.Println("   (Between the two the kernel had freed the locks. Who had taken a lane then would be its owner, and the row would say so.)")
	return s.inVain("since it answers")
}

// tried returns when the third process has tried each lane again.
func (s *stage) tried() error {
	return wait("the third process to try each lane", func() bool {
		return !slices.ContainsFunc(s.lanes, func(l *seat) bool {
			n, err := l.taker.soFar()
			return n == 0 && err == nil
		})
	})
}

// takeover relieves the dispatcher, while the third process tries all the time.
func (s *stage) takeover() error {
	old := s.dispatcher
	if err := s.startDispatcher("dispatch", "takeover"); err != nil {
		return err
	}
	if err := old.Wait(); err != nil {
		return fmt.Errorf("the dispatcher that was relieved: %w", err)
	}
	if err := s.allWait("waiting before"); err != nil {
		return err
	}
	fmt.Printf("   handsel dispatch takeover: pid %d has lock, sockets and lanes; pid %d has ended, with status 0.\n", s.dispatcher.Process.Pid, old.Process.Pid)
	return s.inVain("from before the handover until after it")
}

// killedDriver lets the first lane start, and kills the process that drives it.
func (s *stage) killedDriver() error {
	first := s.lanes[0]
	_ = s.holder.Process.Signal(syscall.SIGTERM)
	_ = s.holder.Wait()
	at, err := s.lane("lane "+first.name+" to be driven", func(l lane) bool {
		return l.name == first.name && l.role == "driver" && l.state == "held" && l.child != 0
	})
	if err != nil {
		return err
	}
	if err := wait(first.engine+" to say that it began", func() bool {
		order, _, err := s.readLog()
		return err == nil && slices.Contains(order, first.engine)
	}); err != nil {
		return err
	}
	fmt.Printf("   pi has ended. Lane %s went on to driver %d, which runs %s as pid %d.\n", first.name, at.owner, first.engine, at.child)
	if err := s.inVain("while it went from the dispatcher to the driver"); err != nil {
		return err
	}
	first.taker.end() // the lock is about to be free; the lane is not
	fmt.Printf("   kill -9 %d.\n", at.owner)
	if err := kill(at.owner); err != nil {
		return err
	}
	if _, err := s.lane("the lane to stay with the living agent", func(l lane) bool {
		return l.name == first.name && l.state == "orphaned" && l.child == at.child
	}); err != nil {
		return err
	}
	fmt.Println("   The kernel freed the lock; the record names the living agent. handsel status: orphaned. Who wants the lane is told:")
	for _, args := range [][]string{{"run", "--wait", "0", "--lane", first.name, "--", "pi"}, {"enqueue", first.name, "--", "pi"}} {
		if err := s.refused(at, args...); err != nil {
			return err
		}
	}
	if out, err := s.handsel(0, "cancel", first.name).CombinedOutput(); err != nil {
		return fmt.Errorf("cancel: %w: %s", err, out)
	}
	if err := wait("the agent of lane "+first.name+" to be gone, and the lane free", func() bool {
		snap := s.home.Status(context.Background())
		return snap.Pools[first.engine].Held == 0 && len(snap.Strays) == 0 &&
			!slices.ContainsFunc(lanesOf(snap), func(l lane) bool { return l.name == first.name })
	}); err != nil {
		return err
	}
	fmt.Printf("   handsel cancel %s ended the agent, and the lane was free.\n", first.name)
	return nil
}

// refused proves that a start is refused for now because an orphan has its lane.
func (s *stage) refused(at lane, args ...string) error {
	out, err := s.handsel(0, args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 75 {
		return fmt.Errorf("handsel %s ended with %v, want status 75: %s", args[0], err, out)
	}
	text := strings.TrimSpace(string(out))
	if !strings.Contains(text, "orphaned agent "+fmt.Sprint(at.child)) {
		return fmt.Errorf("handsel %s was refused, but not for the agent that lives in the lane: %q", args[0], text)
	}
	fmt.Println("   " + text)
	return nil
}

// lane waits until a lane is as wanted.
func (s *stage) lane(what string, want func(lane) bool) (at lane, err error) {
	_, err = s.look(what, func(snap *handsel.Snapshot) bool {
		all := lanesOf(snap)
		i := slices.IndexFunc(all, want)
		if i >= 0 {
			at = all[i]
		}
		return i >= 0
	})
	return at, err
}

// account waits for the rest and says of each lane what became of it.
func (s *stage) account() error {
	rest := []string{"wait"}
	for _, l := range s.lanes[1:] {
		rest = append(rest, "run:"+l.attempt)
	}
	if out, err := s.handsel(0, rest...).CombinedOutput(); err != nil {
		return fmt.Errorf("wait: %w: %s", err, out)
	}
	for i, l := range s.lanes {
		l.taker.end()
		if _, err := l.taker.soFar(); err != nil {
			return err
		}
		r, err := s.record(l)
		if err != nil {
			return err
		}
		if want := map[bool]string{true: "cancelled", false: "exited"}[i == 0]; !r.Ended() || r.Outcome != want {
			return fmt.Errorf("lane %s is %s, want %s", l.name, r.Word(), want)
		}
		fmt.Printf("   %-6s  attempt %s  %-6s  %s\n", l.name, l.attempt[len(l.attempt)-8:], l.engine, r.Word())
	}
	if err := s.agentsRan(); err != nil {
		return err
	}
	at, err := s.home.DispatcherStatus(context.Background())
	if err != nil {
		return err
	}
	if n := at.Totals; n.Accepted != 3 || n.Succeeded != 2 || n.Waiting+n.Claimed+n.Running+n.Lost != 0 {
		return fmt.Errorf("the dispatcher's account is %+v", n)
	}
	fmt.Println("   Three accepted, three accounted for; by the agents' own log each ran once, in the order they came.")
	return s.stopDispatcher()
}

// agentsRan proves by what the agents wrote that each ran once and in order.
func (s *stage) agentsRan() error {
	order, _, err := s.readLog()
	if err != nil {
		return err
	}
	want := []string{"pi"}
	for _, l := range s.lanes {
		want = append(want, l.engine)
	}
	if !slices.Equal(order, want) {
		return fmt.Errorf("the agents began in the order %v, want %v", order, want)
	}
	return nil
}

func (s *stage) stopDispatcher() error {
	if out, err := s.handsel(0, "dispatch", "stop").CombinedOutput(); err != nil {
		return fmt.Errorf("dispatch stop: %w: %s", err, out)
	}
	if err := s.dispatcher.Wait(); err != nil {
		return fmt.Errorf("the dispatcher that was stopped: %w", err)
	}
	_, err := s.home.DispatcherStatus(context.Background())
	if !errors.As(err, new(*handsel.NoDispatcher)) {
		return fmt.Errorf("after dispatch stop a dispatcher is there: %w", err)
	}
	return nil
}

// record is what is known of a lane's attempt.
func (s *stage) record(l *seat) (handsel.KnownRun, error) {
	found, err := s.home.FindRuns("run:"+l.attempt, true)
	if err != nil {
		return handsel.KnownRun{}, err
	}
	if len(found) != 1 {
		return handsel.KnownRun{}, fmt.Errorf("%d runs are attempt %s", len(found), l.attempt)
	}
	return found[0], nil
}

func (s *stage) ended(l *seat) bool {
	if l.attempt == "" {
		return false
	}
	r, err := s.record(l)
	return err == nil && r.Ended()
}

// start starts a process that a failing step must not leave behind.
func (s *stage) start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	s.began = append(s.began, cmd)
	return nil
}

// strike ends whatever a step that failed has left, agents included: they end
// when their log is gone.
func (s *stage) strike() {
	for _, l := range s.lanes {
		l.taker.end()
	}
	for _, cmd := range s.began {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	_ = os.Remove(filepath.Join(s.dir, "agents.log"))
	_ = os.Remove(filepath.Join(s.dir, "lanes.log"))
	_ = wait("everything to have ended", func() bool {
		snap := s.home.Status(context.Background())
		return snap.Pools["all"].Held == 0 && len(snap.Lanes) == 0 && len(snap.Strays) == 0
	})
}

// kill ends a process that is not our child.
func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// patience bounds every wait for something that must happen.
const patience = 15 * time.Second

// wait returns when a claim holds.
func wait(what string, claim func() bool) error {
	for deadline := time.Now().Add(patience); !claim(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for: %s", what)
		}
	}
	return nil
}
