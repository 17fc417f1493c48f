package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/proc"
)

func TestMain(m *testing.M) {
	if os.Getenv("HANDSEL_TEST_STUB") == "agent" {
		stubAgent()
	}
	if err := proc.CloseOnExecFrom(3); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// stubAgent is `handsel run -- CMD` without pools: what the command line's
// room does around Agent, and nothing else.
func stubAgent() {
	_ = os.Unsetenv("HANDSEL_TEST_STUB")
	_ = proc.CloseOnExecFrom(3)
	signals := make(chan os.Signal, 8)
	for _, sig := range proc.EndSignals() {
		signal.Notify(signals, sig)
	}
	grace, _ := time.ParseDuration(os.Getenv("STUB_GRACE"))
	timeout, _ := time.ParseDuration(os.Getenv("STUB_TIMEOUT"))
	out, err := Agent(context.Background(), Spec{
		Argv: os.Args[1:], Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Record: os.Getenv("STUB_RECORD") != "", Timeout: timeout, RunID: "stub-" + strconv.Itoa(os.Getpid()), Depth: 1,
		Subreaper: true, Signals: signals, Grace: grace, Kill: 2 * time.Second,
	}, Deps{})
	if path := os.Getenv("STUB_OUTCOME"); path != "" {
		text, _ := json.Marshal(out)
		_ = os.WriteFile(path+".new", text, 0o600)
		_ = os.Rename(path+".new", path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stub:", err)
		os.Exit(125)
	}
	if sig := out.Raise(); sig != 0 {
		proc.DieBy(sig)
	}
	if out.Outcome == TimedOut {
		os.Exit(124)
	}
	os.Exit(out.ExitCode)
}

var tokens atomic.Int64

// token is a duration for sleep(1) that nothing else on the machine has.
func token(t *testing.T) string {
	t.Helper()
	tok := fmt.Sprintf("300.%d%03d%d", os.Getpid(), tokens.Add(1), time.Now().UnixNano()%1e6)
	t.Cleanup(func() {
		for _, pid := range alive(t, tok) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	return tok
}

// alive lists the living processes whose command line contains tok.
func alive(t *testing.T, tok string) (found []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(tok)) {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			if st, err := proc.ReadStat(pid); err == nil && !st.Zombie() && pid != os.Getpid() {
				found = append(found, pid)
			}
		}
	}
	return found
}

// until waits for a claim about other processes to come true.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// fakeLease notes what is done with it.
type fakeLease struct {
	mu       sync.Mutex
	did      []string
	empty    bool
	recorded proc.ID
	record   error
	keep     error
	atEnd    func() // when Release or Keep is called
}

func (l *fakeLease) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.did = append(l.did, what)
}

func (l *fakeLease) RecordChild(id proc.ID) error {
	l.note("record")
	l.recorded = id
	return l.record
}

func (l *fakeLease) Release() error {
	l.note("release")
	if l.atEnd != nil {
		l.atEnd()
	}
	return nil
}

func (l *fakeLease) Keep() error {
	l.note("keep")
	return l.keep
}

func (l *fakeLease) Empty() bool { return l.empty }

func (l *fakeLease) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.did, " ")
}

// admits returns deps whose admission gives l at once.
func admits(l *fakeLease) Deps {
	return Deps{Admit: func(context.Context) (Lease, error) { return l, nil }}
}

// sh is a run of a shell body, with short graces.
func sh(body string) Spec {
	return Spec{
		Argv: []string{"sh", "-c", body}, Env: os.Environ(), RunID: fmt.Sprintf("run-%d-%d", os.Getpid(), time.Now().UnixNano()),
		Depth: 1, Subreaper: true, Grace: 300 * time.Millisecond, Kill: 2 * time.Second,
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func childrenOf(pid int) (kids []proc.Stat) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range all {
		n, _ := strconv.Atoi(filepath.Base(path))
		if st, err := proc.ReadStat(n); err == nil && st.PPid == pid {
			kids = append(kids, st)
		}
	}
	return kids
}
