package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// adopt makes the test process a subreaper for one test.
func adopt(t *testing.T) {
	t.Helper()
	if err := SetSubreaper(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
}

// token is a duration for sleep(1) that no other process on the machine has,
// so that what a test started can be found again by its command line.
func token(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("300.%d%d", os.Getpid(), time.Now().UnixNano()%1e9)
}

// alive lists the processes whose command line contains tok.
func alive(t *testing.T, tok string) (found []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(tok)) {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			if st, err := ReadStat(pid); err == nil && !st.Zombie() && pid != os.Getpid() {
				found = append(found, pid)
			}
		}
	}
	return found
}

func killAll(t *testing.T, tok string) {
	t.Cleanup(func() {
		for _, pid := range alive(t, tok) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
}

// shell starts body under sh and returns once it has printed "ready".
func shell(t *testing.T, body string, change func(*Spec)) *Child {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec := Spec{Argv: []string{"sh", "-c", body}, Env: os.Environ(), Stdout: w, Session: Own}
	if change != nil {
		change(&spec)
	}
	c, err := Start(spec)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) || !strings.HasPrefix(line, "ready") {
		t.Fatalf("stub said %q, %v", line, err)
	}
	return c
}

// bodies are trees that outlive a naive end; T stands for the token.
var bodies = map[string]string{
	"background child":      `sleep T & echo ready; exit 0`,
	"two levels":            `sh -c 'sleep T & sleep T & wait' & echo ready; exit 0`,
	"ignores TERM":          `sh -c 'trap "" TERM; echo ready; while :; do sleep T; done' & wait`,
	"ignores HUP and TERM":  `trap "" HUP TERM; sleep T & echo ready; wait; sleep T; sleep T`,
	"session of its own":    `setsid sleep T & led $!; echo ready; exit 0`,
	"double fork, no marks": `env -i setsid sh -c '(trap "" TERM; echo ready; sleep T; sleep T) &'; exit 0`,
	"stopped":               `sleep T & kill -STOP $!; echo ready; wait`,
	"pipeline":              `sleep T | cat & echo ready; exit 0`,
	// (A shell's child has the shell's traps until it drops them, and loses a TERM
	// that comes before that: so they are dropped first.)
	"forks on TERM": `trap 'trap - TERM; sleep T & exit 0' TERM; echo ready; while :; do sleep 0.02; done`,
}

// stubborn are those of the bodies of which something heeds nothing but KILL.
var stubborn = map[string]bool{"ignores TERM": true, "ignores HUP and TERM": true, "double fork, no marks": true}

// hang is what no end takes whose reason was there long before. It asks for no
// speed: the machine may be busy.
const hang = time.Minute

// killed tells whether anybody was sent KILL.
func killed(list []sent) bool {
	return slices.ContainsFunc(list, func(s sent) bool { return s.sig == unix.SIGKILL })
}

// TestEndLeavesNothing: S21, S21a, C036, C038, C044. Who heeds TERM is not killed,
// and no time that an end may take is used up by one that came before.
func TestEndLeavesNothing(t *testing.T) {
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			adopt(t)
			tok := token(t)
			killAll(t, tok)
			c := shell(t, replaceToken(body, tok), nil)
			signals := countSignals(t)
			grace := 2 * hang
			if stubborn[name] {
				grace = 300 * time.Millisecond
			}
			start := time.Now()
			report, err := Ending{Child: c, Grace: grace, Kill: 2 * hang, Adopting: true}.End()
			if err != nil || !report.LeaderGone || len(report.Survivors) > 0 {
				t.Errorf("End = %+v, %v", report, err)
			}
			if took := time.Since(start); took > hang || killed(*signals) != stubborn[name] {
				t.Errorf("took %v with a grace of %v, and sent %+v", took, grace, *signals)
			}
			if left := alive(t, tok); len(left) > 0 {
				t.Errorf("still alive: %v", left)
			}
			if !noChildren() {
				t.Error("a child is left unreaped")
			}
		})
	}
}

// replaceToken puts tok where a body says "sleep T".
// led waits in a body until the process it is given leads a session of its own.
const led = `led() { until [ "$(cut -d" " -f6 "/proc/$1/stat")" = "$1" ]; do sleep 0.01; done; }; `

func replaceToken(body, tok string) string {
	return led + strings.ReplaceAll(body, "sleep T", "sleep "+tok)
}

// TestStoppedProcessHeedsTerm: it is continued to do so, and the grace is not
// used up.
func TestStoppedProcessHeedsTerm(t *testing.T) {
	adopt(t)
	tok := token(t)
	killAll(t, tok)
	c := shell(t, replaceToken(`sleep T & kill -STOP $!; setsid sh -c 'kill -STOP $$; sleep T' & led $!; echo ready; kill -STOP $$`, tok), nil)
	<-c.Stops()
	signals := countSignals(t)
	start := time.Now()
	report, err := Ending{Child: c, Grace: 2 * hang, Adopting: true}.End()
	if took := time.Since(start); err != nil || !report.LeaderGone || took > hang || killed(*signals) || len(alive(t, tok)) > 0 {
		t.Errorf("End = %+v, %v after %v; sent %+v", report, err, took, *signals)
	}
}

// TestStraysAreFoundByMarker: C2, without a subreaper.
func TestStraysAreFoundByMarker(t *testing.T) {
	tok := token(t)
	killAll(t, tok)
	run := "run-" + tok
	c := shell(t, replaceToken(`setsid sh -c 'sleep T & sleep T & wait' & led $!; echo ready; exit 0`, tok), func(s *Spec) {
		s.Env, s.Run = append(s.Env, "HANDSEL_RUN="+run), run
	})
	<-c.Exited()
	report, err := Ending{Child: c, Grace: 300 * time.Millisecond, Run: run}.End()
	if err != nil || !report.LeaderGone || len(report.Survivors) > 0 {
		t.Errorf("End = %+v, %v", report, err)
	}
	if left := alive(t, tok); len(left) > 0 {
		t.Errorf("still alive: %v", left)
	}
}

// TestSharedGroupIsNeverSignalled: S20, C040. The child is in the group of
// this test, which lives to tell.
func TestSharedGroupIsNeverSignalled(t *testing.T) {
	adopt(t)
	tok := token(t)
	killAll(t, tok)
	c := shell(t, replaceToken(`sleep T & setsid sleep T & led $!; echo ready; wait`, tok), func(s *Spec) { s.Session = Shared })
	signals := countSignals(t)
	report, err := Ending{Child: c, Grace: 300 * time.Millisecond, Adopting: true}.End()
	if err != nil || !report.LeaderGone || len(alive(t, tok)) > 0 {
		t.Errorf("End = %+v, %v; alive %v", report, err, alive(t, tok))
	}
	for _, s := range *signals {
		if s.pid < 0 || s.group {
			t.Errorf("a group was signalled: %+v", s)
		}
	}
	if err := c.SignalGroup(unix.SIGCONT); err == nil {
		t.Error("SignalGroup of a shared group was allowed")
	}
}

// TestHoldersArePassedOver: S21a.
func TestHoldersArePassedOver(t *testing.T) {
	adopt(t)
	tok, held := token(t), token(t)
	killAll(t, tok)
	killAll(t, held)
	body := `setsid sh -c 'sleep HELD & sleep HELD; wait' & echo $!; setsid sleep T & led $!; exit 0`
	r, w, _ := os.Pipe()
	c, err := Start(Spec{Argv: []string{"sh", "-c", strings.ReplaceAll(replaceToken(body, tok), "HELD", held)}, Env: os.Environ(), Stdout: w, Session: Own})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(r).ReadString('\n')
	r.Close()
	holder, _ := strconv.Atoi(strings.TrimSpace(line))
	<-c.Exited()
	waitFor0(t, func() bool { return len(alive(t, held)) == 3 })
	report, err := Ending{Child: c, Grace: 300 * time.Millisecond, Adopting: true, PassOver: func(pid int, id ID) bool {
		return pid == holder && id.Ticks != 0
	}}.End()
	if err != nil || len(alive(t, tok)) > 0 {
		t.Errorf("End = %+v, %v; alive %v", report, err, alive(t, tok))
	}
	if got := alive(t, held); len(got) != 3 || len(report.Kept) != 3 {
		t.Errorf("holder and below: %v alive, kept %+v; want 3", got, report.Kept)
	}
	for _, pid := range alive(t, held) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	waitFor0(t, func() bool { ReapAdopted(); return noChildren() })
}

func waitFor0(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not come to rest")
		}
	}
}

// TestDaemonsAreLeftWhenAsked: S21a, --leave-daemons.
func TestDaemonsAreLeftWhenAsked(t *testing.T) {
	adopt(t)
	tok, daemon := token(t), token(t)
	killAll(t, tok)
	killAll(t, daemon)
	body := strings.ReplaceAll(`sleep T & setsid sleep D & led $!; echo ready; exit 0`, "sleep D", "sleep "+daemon)
	c := shell(t, replaceToken(body, tok), nil)
	report, err := Ending{Child: c, Grace: 300 * time.Millisecond, Adopting: true, LeaveDaemons: true}.End()
	if err != nil || !report.LeaderGone || len(alive(t, tok)) > 0 {
		t.Errorf("End = %+v, %v; alive %v", report, err, alive(t, tok))
	}
	if len(alive(t, daemon)) != 1 || len(report.Kept) != 1 {
		t.Errorf("daemon: alive %v, kept %+v", alive(t, daemon), report.Kept)
	}
	for _, pid := range alive(t, daemon) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	waitFor0(t, func() bool { ReapAdopted(); return noChildren() })
}

// TestSecondRequestEndsAtOnce: S22.
func TestSecondRequestEndsAtOnce(t *testing.T) {
	adopt(t)
	tok := token(t)
	killAll(t, tok)
	c := shell(t, replaceToken(`trap "" TERM; echo ready; while :; do sleep T; done`, tok), nil)
	now := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { close(now) })
	start := time.Now()
	report, err := Ending{Child: c, Grace: 2 * hang, Now: now, Adopting: true}.End()
	if took := time.Since(start); err != nil || !report.LeaderGone || took > hang {
		t.Errorf("End = %+v, %v after %v", report, err, took)
	}
	if c.Status().Signal != unix.SIGKILL {
		t.Errorf("status %+v, want SIGKILL", c.Status())
	}
}

type sent struct {
	pid   int // negative: a group; 0 when it went through a descriptor
	sig   syscall.Signal
	group bool
}

// countSignals notes every signal that leaves this room during the test.
func countSignals(t *testing.T) *[]sent {
	t.Helper()
	was := kernel
	t.Cleanup(func() { kernel = was })
	list := &[]sent{}
	kernel.kill = func(pid int, sig syscall.Signal) error {
		*list = append(*list, sent{pid: pid, sig: sig})
		return was.kill(pid, sig)
	}
	kernel.pidfd = func(fd int, sig syscall.Signal, flags int) error {
		*list = append(*list, sent{sig: sig, group: flags == signalGroup})
		return was.pidfd(fd, sig, flags)
	}
	return list
}

// TestWeirdNumbersAreNeverSignalled: C040, C132. Records may name anything.
func TestWeirdNumbersAreNeverSignalled(t *testing.T) {
	self := Self()
	parent, err := ReadStat(os.Getppid())
	if err != nil {
		t.Skipf("no parent to name: %v", err) // init of a pid namespace
	}
	group, _ := ReadStat(unix.Getpgrp())
	claims := map[string]Claim{
		"own pid":        self.Claim(),
		"own parent":     parent.ID().Claim(),
		"other start":    {Pid: os.Getppid(), Ticks: parent.Ticks + 1, Boot: self.Boot},
		"no start":       {Pid: os.Getppid()},
		"another boot":   {Pid: os.Getppid(), Ticks: parent.Ticks, Boot: "elsewhere"},
		"another pid ns": {Pid: os.Getppid(), Ticks: parent.Ticks, Boot: self.Boot, NS: self.NS + 1},
	}
	if group.Pid != 0 {
		claims["leader of own group"] = group.ID().Claim()
	}
	for _, pid := range []int{0, 1, -1, -os.Getpid(), math.MinInt32, math.MaxInt32, 1 << 31, 1 << 32, 1<<32 + os.Getppid()} {
		claims[strconv.Itoa(pid)] = Claim{Pid: pid, Ticks: 1, Boot: self.Boot}
	}
	if init, err := ReadStat(1); err == nil {
		claims["init by its start"] = init.ID().Claim()
	}
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			signals := countSignals(t)
			_, _ = EndOrphan(Orphan{Child: claim, Grace: time.Millisecond, Kill: time.Millisecond})
			if len(*signals) > 0 {
				t.Errorf("signals were sent: %+v", *signals)
			}
		})
	}
	for _, pid := range []int{0, 1, -1, os.Getpid(), -os.Getpid(), 1 << 31} {
		signals := countSignals(t)
		if err := signalExactly(Stat{Pid: pid}, unix.SIGTERM); err == nil || len(*signals) > 0 {
			t.Errorf("signalExactly(%d) = %v, sent %v", pid, err, *signals)
		}
	}
}

// TestReapedChildIsNeverSignalled: C039. After Reap the number is not ours.
func TestReapedChildIsNeverSignalled(t *testing.T) {
	c := shell(t, `echo ready`, nil)
	c.Reap()
	signals := countSignals(t)
	if err := c.SignalGroup(unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("SignalGroup = %v", err)
	}
	if err := c.Signal(unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("Signal = %v", err)
	}
	if _, err := (Ending{Child: c, Grace: time.Millisecond}).End(); err != nil || len(*signals) > 0 {
		t.Errorf("End: %v, sent %v", err, *signals)
	}
}

// TestGroupOutlivesItsLeader: C040. The leader has exited, unreaped; the group
// is still ended.
func TestGroupOutlivesItsLeader(t *testing.T) {
	tok := token(t)
	killAll(t, tok)
	c := shell(t, replaceToken(`sleep T & echo ready; exit 3`, tok), nil)
	<-c.Exited()
	report, err := Ending{Child: c, Grace: 300 * time.Millisecond}.End()
	if err != nil || !report.LeaderGone || len(alive(t, tok)) > 0 || c.Status().Code != 3 {
		t.Errorf("End = %+v, %v; status %+v, alive %v", report, err, c.Status(), alive(t, tok))
	}
}

// TestOlderKernelsStillEndTheGroup takes away, one after the other, what
// kernels before 6.9 and before 5.3 do not have.
func TestOlderKernelsStillEndTheGroup(t *testing.T) {
	for name, pidfd := range map[string]func(fd int, sig syscall.Signal, flags int) error{
		"no group flag": func(fd int, sig syscall.Signal, flags int) error {
			if flags != 0 {
				return unix.EINVAL
			}
			return pidfdSignal(fd, sig, flags)
		},
	} {
		t.Run(name, func(t *testing.T) {
			was := kernel
			defer func() { kernel = was }()
			kernel.pidfd = pidfd
			tok := token(t)
			killAll(t, tok)
			c := shell(t, replaceToken(`sleep T & echo ready; wait`, tok), nil)
			report, err := Ending{Child: c, Grace: 300 * time.Millisecond}.End()
			if err != nil || !report.LeaderGone || len(alive(t, tok)) > 0 {
				t.Errorf("End = %+v, %v; alive %v", report, err, alive(t, tok))
			}
		})
	}
}

func init() {
	// A supervisor that starts a child and waits to be killed.
	stubs["supervisor"] = func() {
		c, err := Start(Spec{
			Argv: []string{"sh", "-c", os.Getenv("BODY")}, Env: append(os.Environ(), "HANDSEL_TEST_STUB="), Session: Own, Stdout: os.Stdout, Stderr: os.Stderr,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		<-c.Exited()
		select {}
	}
}

// TestOrphanIsEndedByProvenIdentity: S23, C020.
func TestOrphanIsEndedByProvenIdentity(t *testing.T) {
	exe, _ := os.Executable()
	tok := token(t)
	killAll(t, tok)
	run := "run-" + tok
	r, w, _ := os.Pipe()
	sup, err := Start(Spec{
		Argv: []string{exe}, Session: Own, Stdout: w, Stderr: os.Stderr,
		Env: append(os.Environ(), "HANDSEL_TEST_STUB=supervisor", "HANDSEL_RUN="+run,
			"BODY="+replaceToken(`sleep T & setsid sh -c 'sleep T; sleep T' & led $!; echo $$; wait`, tok)),
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(r).ReadString('\n')
	r.Close()
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	id, err := Identify(pid)
	if err != nil {
		t.Fatalf("child %q: %v", line, err)
	}
	_ = sup.Signal(unix.SIGKILL)
	sup.Reap()
	if len(alive(t, tok)) == 0 {
		t.Fatal("nothing was left to end")
	}
	for range 3 { // C053: again and again is no error
		report, err := EndOrphan(Orphan{Child: id.Claim(), Run: run, Grace: 300 * time.Millisecond})
		if err != nil || !report.LeaderGone || len(report.Survivors) > 0 {
			t.Errorf("EndOrphan = %+v, %v", report, err)
		}
	}
	if left := alive(t, tok); len(left) > 0 {
		t.Errorf("still alive: %v", left)
	}
}

// TestAdoptedZombiesAreReaped: C046. Own children keep their statuses.
func TestAdoptedZombiesAreReaped(t *testing.T) {
	adopt(t)
	stop := KeepReaping()
	defer stop()
	const rounds = 100
	long := shell(t, `echo ready; exec sleep 60`, nil)
	for i := range rounds {
		c := shell(t, fmt.Sprintf(`(sh -c 'sleep 0.0%d' &) ; echo ready; exit %d`, i%10, i), nil)
		<-c.Exited()
		if got := c.Status(); got != (Status{Code: i}) {
			t.Errorf("child %d ended as %+v", i, got)
		}
		c.Reap()
	}
	waitFor0(t, func() bool {
		table, err := readTable()
		if err != nil {
			t.Fatal(err)
		}
		return len(table.below()[os.Getpid()]) == 1
	})
	_ = long.Signal(unix.SIGKILL)
	long.Reap()
	if got := long.Status(); got.Signal != unix.SIGKILL {
		t.Errorf("long child ended as %+v", got)
	}
}

// TestConcurrentRunsDoNotEndEachOther: several runs in one subreaper.
func TestConcurrentRunsDoNotEndEachOther(t *testing.T) {
	adopt(t)
	a, b := token(t), token(t)
	killAll(t, a)
	killAll(t, b)
	start := func(tok string) *Child {
		return shell(t, replaceToken(`(setsid sleep T & led $!); echo ready; exec sleep T`, tok), func(s *Spec) {
			s.Env, s.Run = append(s.Env, "HANDSEL_RUN=run-"+tok), "run-"+tok
		})
	}
	ca, cb := start(a), start(b)
	for _, e := range []struct {
		c         *Child
		tok, rest string
		left      int
	}{{ca, a, b, 2}, {cb, b, a, 0}} {
		report, err := Ending{Child: e.c, Grace: 300 * time.Millisecond, Adopting: true, Run: "run-" + e.tok}.End()
		if err != nil || !report.LeaderGone || len(alive(t, e.tok)) != 0 {
			t.Errorf("End = %+v, %v, alive %v", report, err, alive(t, e.tok))
		}
		if got := alive(t, e.rest); len(got) != e.left {
			t.Errorf("the other run has %v alive, want %d", got, e.left)
		}
	}
}
