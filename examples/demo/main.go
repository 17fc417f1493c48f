// Command demo shows what handsel is for, on real processes in a temporary
// home: a cap that binds every start, a line that moves, a slot that outlives
// its holder, an agent that cannot start another, and lanes that go from process
// to process while a third one wants them.
//
// It drives the handsel executable as a user would and looks through the public
// library and at the kernel's locks. Each step says what it proves, and proves
// it: given a program that merely runs its command, or one that cheats in a
// single step, the demo fails (tools/demo-proves.sh).
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/handsel/handsel"
)

// The demo's own executable plays the agents: called by an engine's name, it is
// a stand-in for that engine.
var engines = []string{"claude", "codex", "gemini", "pi", "codex", "claude"}

const (
	limit   = 2
	logVar  = "DEMO_LOG"
	workVar = "DEMO_WORK"
)

func main() {
	if os.Getenv(logVar) != "" && filepath.Base(os.Args[0]) != "demo" {
		os.Exit(standIn())
	}
	bin := flag.String("handsel", "bin/handsel", "the handsel executable to show")
	from := flag.Int("from", 1, "begin with this step: 1, or the first about lanes")
	flag.Parse()
	if err := run(*bin, *from); err != nil {
		fmt.Fprintln(os.Stderr, "demo failed:", err)
		os.Exit(1)
	}
}

// standIn is an agent: it notes that it began, works, and notes that it ended.
// One whose log is gone has nobody left to work for, and ends.
func standIn() int {
	note("begin")
	defer note("end")
	d, err := time.ParseDuration(os.Getenv(workVar))
	if err != nil {
		return 2
	}
	if len(os.Args) > 1 { // a command to run from inside the agent
		cmd := exec.Command(os.Args[1], os.Args[2:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		return 0
	}
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(min(20*time.Millisecond, time.Until(until))) {
		if _, err := os.Stat(os.Getenv(logVar)); err != nil {
			return 0
		}
	}
	return 0
}

func note(what string) {
	f, err := os.OpenFile(os.Getenv(logVar), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%s %s %d\n", what, filepath.Base(os.Args[0]), os.Getpid())
}

// stage is one demo: a temporary home, agents on a PATH, and a log that the
// agents write themselves.
type stage struct {
	bin    string
	dir    string
	log    string
	config string // of the steps about lanes; before them there is none
	home   *handsel.Home
	began  []*exec.Cmd // what is to be ended if a step fails

	dispatcher *exec.Cmd
	holder     *exec.Cmd // has the only slot while the lanes wait
	lanes      []*seat
}

func run(bin string, from int) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "handsel-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := newStage(bin, dir)
	if err != nil {
		return err
	}
	defer s.strike()
	began := time.Now()
	for i, step := range []struct {
		title string
		do    func() error
	}{
		{"Six agents of four engines, and room for two", s.sixAgents},
		{"A holder is killed with SIGKILL; its agent lives on", s.killedHolder},
		{"An agent tries to start an agent", s.nested},
		{"Three lanes are handed to a dispatcher, and a third process wants each of them", s.handOver},
		{"The dispatcher is killed with SIGKILL while they wait", s.killedDispatcher},
		{"Another dispatcher takes over", s.takeover},
		{"A driver is killed with SIGKILL; its agent lives on", s.killedDriver},
		{"What became of each lane", s.account},
		{"Afterwards", s.idle},
	} {
		if i+1 < from {
			continue
		}
		fmt.Printf("\n%d. %s\n", i+1, step.title)
		if err := step.do(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	fmt.Printf("\nAll of it held, in %.1f s.\n", time.Since(began).Seconds())
	return nil
}

func newStage(bin, dir string) (*stage, error) {
	if _, err := os.Stat(bin); err != nil {
		return nil, err
	}
	me, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, e := range engines {
		if err := os.Symlink(me, filepath.Join(dir, e)); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	s := &stage{bin: bin, dir: dir, log: filepath.Join(dir, "agents.log")}
	env := map[string]string{"HANDSEL_HOME": filepath.Join(dir, "home"), "HANDSEL_MAX_AGENTS": fmt.Sprint(limit)}
	s.home, err = handsel.OpenWith(func(name string) string { return env[name] })
	fmt.Printf("A home of its own, with HANDSEL_MAX_AGENTS=%d: on this machine, never more than %d agents.\n", limit, limit)
	return s, err
}

// handsel is one call of the executable. Agents it starts work for d.
func (s *stage) handsel(d time.Duration, args ...string) *exec.Cmd {
	cmd := exec.Command(s.bin, args...)
	cmd.Env = append(os.Environ(),
		"PATH="+s.dir+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HANDSEL_HOME="+filepath.Join(s.dir, "home"), fmt.Sprintf("HANDSEL_MAX_AGENTS=%d", limit), "HANDSEL_CONFIG="+s.config, "HANDSEL_AGENT_DEPTH=",
		logVar+"="+s.log, workVar+"="+d.String())
	return cmd
}

// look waits until the status satisfies want, and returns it.
func (s *stage) look(what string, want func(*handsel.Snapshot) bool) (*handsel.Snapshot, error) {
	deadline := time.Now().Add(patience)
	for {
		snap := s.home.Status(context.Background())
		if want(snap) {
			return snap, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("waited in vain for: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *stage) sixAgents() error {
	var all []*exec.Cmd
	defer func() {
		for _, cmd := range all {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}()
	for i, e := range engines {
		// The second works longer, so that the two slots never come free at
		// once and the order in which agents begin is the order of admission.
		work := 500 * time.Millisecond
		if i == 1 {
			work = 800 * time.Millisecond
		}
		cmd := s.handsel(work, "run", "--", e)
		if err := cmd.Start(); err != nil {
			return err
		}
		all = append(all, cmd)
		// The next one comes when this one runs or stands in line.
		if _, err := s.look(e+" to be admitted or in line", func(snap *handsel.Snapshot) bool {
			return known(snap, cmd.Process.Pid)
		}); err != nil {
			return err
		}
	}
	var last string
	for {
		snap := s.home.Status(context.Background())
		if p := snap.Pools["all"]; p.Held > limit {
			return fmt.Errorf("%d agents hold slots", p.Held)
		}
		if line := picture(snap); line != last {
			fmt.Println("   " + line)
			last = line
		}
		if snap.Pools["all"].Held == 0 && len(snap.Waiting) == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("an agent's exit status did not pass through: %w", err)
		}
	}
	all = nil
	order, most, err := s.readLog()
	if err != nil {
		return err
	}
	if most > limit {
		return fmt.Errorf("the agents' own log shows %d at once", most)
	}
	if strings.Join(order, " ") != strings.Join(engines, " ") {
		return fmt.Errorf("they began in the order %v, and came in the order %v", order, engines)
	}
	fmt.Printf("   Proven by the log the agents wrote: %d ran, never more than %d at once, in the order they came.\n", len(order), most)
	return nil
}

// known tells whether the handsel process pid holds a slot or waits for one.
func known(snap *handsel.Snapshot, pid int) bool {
	for _, h := range snap.Pools["all"].Holders {
		if h.Holder == pid {
			return true
		}
	}
	for _, w := range snap.Waiting {
		if w.Pid == pid {
			return true
		}
	}
	return false
}

// picture is the state of the pool in one line.
func picture(snap *handsel.Snapshot) string {
	var running, waiting []string
	for _, h := range snap.Pools["all"].Holders {
		running = append(running, h.Engine)
	}
	for _, w := range snap.Waiting {
		waiting = append(waiting, w.Engine)
	}
	return fmt.Sprintf("running %-16s in line: %s", strings.Join(running, " "), strings.Join(waiting, " "))
}

// readLog gives the engines in the order they began, and the most at once.
func (s *stage) readLog() (order []string, most int, err error) {
	f, err := os.Open(s.log)
	if err != nil {
		return nil, 0, fmt.Errorf("no agent ran: %w", err)
	}
	defer f.Close()
	now := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(rest, " ")
		if what == "begin" {
			order = append(order, name)
			now++
			most = max(most, now)
		} else {
			now--
		}
	}
	return order, most, nil
}

func (s *stage) killedHolder() error {
	holder := s.handsel(time.Minute, "run", "--", "codex")
	if err := holder.Start(); err != nil {
		return err
	}
	snap, err := s.look("codex to run", func(snap *handsel.Snapshot) bool {
		h := snap.Pools["codex"].Holders
		return len(h) == 1 && h[0].State == "running"
	})
	if err != nil {
		_ = holder.Process.Kill()
		_ = holder.Wait()
		return err
	}
	h := snap.Pools["codex"].Holders[0]
	fmt.Printf("   codex runs as pid %d under handsel %d. kill -9 %d.\n", h.Child, h.Holder, h.Holder)
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if _, err = s.look("the slot to stay with the living agent", func(snap *handsel.Snapshot) bool {
		h := snap.Pools["codex"].Holders
		return len(h) == 1 && h[0].State == "orphaned"
	}); err != nil {
		return err
	}
	fmt.Println("   The kernel freed the lock; the record names the living agent, so the slot still counts: orphaned.")
	cancel := s.handsel(0, "cancel", h.Run)
	if out, err := cancel.CombinedOutput(); err != nil {
		return fmt.Errorf("cancel: %w: %s", err, out)
	}
	if _, err := s.look("the slot to be free", func(snap *handsel.Snapshot) bool { return snap.Pools["codex"].Held == 0 }); err != nil {
		return err
	}
	fmt.Println("   handsel cancel ended it by pid and start time, and the slot was free.")
	return nil
}

func (s *stage) nested() error {
	outer := s.handsel(0, "run", "--", "claude", s.bin, "run", "--", "pi")
	out, err := outer.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return fmt.Errorf("the inner start ended with %v, want status 1: %s", err, out)
	}
	text := strings.TrimSpace(string(out))
	if !strings.Contains(text, "inside an agent") {
		return fmt.Errorf("the refusal does not say why: %q", text)
	}
	fmt.Println("   " + text)
	return nil
}

func (s *stage) idle() error {
	snap, err := s.look("an idle pool", func(snap *handsel.Snapshot) bool {
		return snap.Pools["all"].Held == 0 && len(snap.Waiting) == 0 && len(snap.Lanes) == 0 && len(snap.Strays) == 0
	})
	if err != nil {
		return err
	}
	fmt.Printf("   %d of %d slots held, nobody in line, no lane owned, nothing left behind.\n", snap.Pools["all"].Held, snap.Pools["all"].Cap)
	return nil
}
