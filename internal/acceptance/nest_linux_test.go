package acceptance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/fakeagent"
)

// runs counts the runs that were recorded.
func (p *place) runs() int {
	all, _ := filepath.Glob(filepath.Join(p.home, "runs", "*", "*", "run.json"))
	return len(all)
}

// TestInnerStartIsRefusedAtOnce is S26 and C003: two agents fill the cap and
// each starts another; neither inner start waits, and the outer ones end well.
func TestInnerStartIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=2")
	script := `"$1" run -- true; echo "inner=$?" >&2; cat`
	var outer []*process
	for range 2 {
		outer = append(outer, start(t, p.handsel("run", "--", "sh", "-c", script, "sh", p.bin)))
	}
	for _, o := range outer {
		o.says("inner=1")
		first, _, _ := strings.Cut(o.said(), "\n")
		oneLine(t, first+"\n", "refused: inside an agent", "process ", "HANDSEL_AGENT_DEPTH=1")
		if strings.Contains(o.said(), "waiting") {
			t.Errorf("it waited: %q", o.said())
		}
	}
	// Refused is fast, whatever the pools are at.
	out, _ := must(t, "exit 0", p.with("HANDSEL_MAX_AGENTS").handsel("status"))
	if !strings.Contains(out, "all 2") {
		t.Errorf("the outer ones hold no slot:\n%s", out)
	}
	for _, o := range outer {
		o.closeIn()
		if end := o.wait(); end != "exit 0" {
			t.Errorf("an outer one: %s", end)
		}
	}
	if n := p.runs(); n != 2 {
		t.Errorf("%d runs are recorded, the inner ones are none", n)
	}
	p.settled()
}

// TestAgentsDoNotMultiply is C049: an agent that starts five of itself, capped
// and uncapped; and no name hides it (C050): a link, a copy, a shell, a path.
func TestAgentsDoNotMultiply(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"HANDSEL_MAX_AGENTS=3", "HANDSEL_MAX_AGENTS"} {
		p := ordinary(t).with(limit)
		link, replica, log := p.file("T2"), p.file("another-name"), p.file("log")
		if err := errors.Join(os.Symlink(p.bin, link), exec.Command("cp", p.bin, replica).Run()); err != nil {
			t.Fatal(err)
		}
		script := p.write("agent.sh", fmt.Sprintf(`echo alive >>%s
for i in 1 2; do
  %[2]s run -- sh "$0"; echo $?
  %[3]s run -- sh "$0"; echo $?
  %[4]s run -- sh "$0"; echo $?
  sh -c '%[2]s run -- sh "$0"; exit $?' "$0"; echo $?
  PATH=%[5]s:$PATH; T2 run -- sh "$0"; echo $?
  env -u HANDSEL_AGENT_DEPTH -u HANDSEL_RUN %[2]s run -- sh "$0"; echo $?
  HANDSEL_AGENT_DEPTH=0 %[2]s run -- sh "$0"; echo $?
  setsid %[2]s run --wait 0 -- sh "$0"; echo $?
  %[2]s gate build -- claude; echo $?
done
`, log, p.bin, link, replica, p.dir))
		out, _ := must(t, "exit 0", p.handsel("run", "--", "sh", script)) // who waited would do so for ten minutes
		if want := strings.Repeat("1\n", 18); out != want {
			t.Errorf("%s: the inner ones ended with %q", limit, out)
		}
		if text, _ := os.ReadFile(log); string(text) != "alive\n" {
			t.Errorf("%s: agents alive: %q", limit, text)
		}
		if n := p.runs(); n != 1 {
			t.Errorf("%s: %d runs", limit, n)
		}
		p.settled()
	}
}

// TestAdoptedOrphanIsNested is S25: two forks, a session of its own and no
// environment hide nothing, since its supervisor adopts it.
func TestAdoptedOrphanIsNested(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	out := p.file("out")
	script := `"$2" orphan-status "$3" "$1" run -- "$2" touch "$4"; "$2" until "$3" 2`
	must(t, "exit 0", p.handsel("run", "--", "sh", "-c", script, "sh", p.bin, fakeagent.Build(t), out, p.file("started")))
	text, _ := os.ReadFile(out)
	if !strings.HasSuffix(string(text), "status 1\n") || exists(p.file("started")) {
		t.Errorf("the orphan's start: %q", text)
	}
	oneLine(t, strings.TrimSuffix(string(text), "status 1\n"), "refused: inside an agent", "supervises")
	p.settled()
}

// TestInsideAllowsLookingAndGates is S26 and S24: status and a gate work inside
// an agent, and a seat may start agents.
func TestInsideAllowsLookingAndGates(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nall = 2\nbuild = 1\n[nesting]\nseats = [\"lead\"]\n")
	out, _ := must(t, "exit 0", p.handsel("run", "--", p.bin, "status"))
	if !strings.Contains(out, "all 1/2") {
		t.Errorf("status inside says %q", out)
	}
	must(t, "exit 0", p.handsel("run", "--", p.bin, "gate", "build", "--wait", "0", "--", "true"))
	must(t, "exit 0", p.handsel("run", "--profile", "lead", "--", p.bin, "run", "--wait", "0", "--", "true"))
	if err := errors.Join(os.Mkdir(p.file("profiles"), 0o700), os.Chown(p.file("profiles"), p.uid, -1)); err != nil {
		t.Fatal(err)
	}
	p.write("profiles/other.md", "no seat")
	must(t, "exit 1", p.handsel("run", "--profile", "other", "--", p.bin, "run", "--wait", "0", "--", "true"))
	must(t, "exit 78", p.handsel("run", "--profile", "nobody", "--", p.bin, "run", "--wait", "0", "--", "true"))
	// A gate in a gate, in name order only (S13).
	q := p.config("[pools]\na = 1\nb = 1\n")
	must(t, "exit 0", q.handsel("gate", "a", "--", q.bin, "gate", "b", "--wait", "0", "--", "true"))
	must(t, "exit 2", q.handsel("gate", "b", "--", q.bin, "gate", "a", "--wait", "0", "--", "true"))
	must(t, "exit 2", q.handsel("gate", "b", "--", q.bin, "gate", "b", "--wait", "0", "--", "true"))
	p.settled()
}

// TestOwnAncestorsAreNotWaitedFor is S13: refused at once and for good.
func TestOwnAncestorsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nall = 1\nheavy = 1\n[nesting]\nseats = [\"lead\"]\n")
	for _, agent := range [][]string{
		{"sh", "-c", `"$1" run --wait 10 -- true; exit $?`, "sh", p.bin},
		{p.bin, "run", "--wait", "10", "--", "true"}, // the agent itself is who asks
	} {
		end, _, errs := ends(t, p.handsel(append([]string{"run", "--profile", "lead", "--"}, agent...)...))
		if end != "exit 1" {
			t.Errorf("%q: %s, want exit 1", agent, end)
		}
		oneLine(t, errs, "refused", `pool "all" is at its cap of 1`)
	}
	p.settled()
}

// TestForkThatFailsIsOneLine is C050: when no process can be made, that is said
// in one line, at once, and no slot leaks. A system call filter refuses forks
// and lets threads be made, as it happens on a machine that is nearly full.
func TestForkThatFailsIsOneLine(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	self, err := os.Executable()
	forkless := p.file(noForks)
	if err := errors.Join(err, exec.Command("cp", self, forkless).Run(), os.Chmod(forkless, 0o755)); err != nil {
		t.Fatal(err)
	}
	end, _, errs := ends(t, p.command(forkless, p.bin, "run", "--", fakeagent.Build(t), "touch", p.file("started")))
	if end != "exit 125" && end != "exit 75" {
		t.Errorf("%s, want exit 125 or 75", end)
	}
	oneLine(t, errs, "resource temporarily unavailable")
	if exists(p.file("started")) {
		t.Error("it started")
	}
	must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
	p.settled()
}

// noForks is the name under which this test binary runs another program that
// can make threads, but no process.
const noForks = "no-forks"

func withoutForks() bool {
	if filepath.Base(os.Args[0]) != noForks {
		return false
	}
	runtime.LockOSThread() // the filter is this thread's, and exec keeps it
	const flagsAt, ok = 16, unix.SECCOMP_RET_ALLOW
	refuse := func(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jt: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: flagsAt},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_THREAD, Jt: 2},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse(unix.EAGAIN)},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: ok},
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	}
	if err == nil {
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "no-forks:", err)
	os.Exit(99)
	return true
}
