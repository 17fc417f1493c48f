package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/fakeagent"
)

// outcomeOf runs handsel with --outcome and returns what that says.
func (p *place) outcomeOf(name string, argv ...string) (end, errs string, o struct {
	Outcome  string
	ExitCode *int `json:"exit_code"`
	Signal   int
	Reason   *struct{ Code, Class string }
}) {
	p.t.Helper()
	path := p.file("outcome-" + name)
	end, _, errs = ends(p.t, p.handsel(append([]string{"run", "--wait", "0", "--outcome", path, "--"}, argv...)...))
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		p.t.Errorf("%s: outcome: %v", name, err)
	}
	return end, errs, o
}

// TestEndsAsWithoutUs is C114 and S22: statuses and signals pass through, and
// --outcome tells an agent's own 75 from a refusal.
func TestEndsAsWithoutUs(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	agent := fakeagent.Build(t)
	for _, status := range []int{0, 1, 2, 75, 77, 124, 125, 126, 127, 128, 130, 137, 255} {
		argv := []string{agent, "exit", fmt.Sprint(status)}
		plain, _, _ := ends(t, p.command(argv...))
		end, errs, o := p.outcomeOf(fmt.Sprint(status), argv...)
		if end != plain || errs != "" {
			t.Errorf("exit %d: %s and %q, without us %s", status, end, errs, plain)
		}
		if o.Outcome != "exited" || o.ExitCode == nil || *o.ExitCode != status || o.Reason != nil {
			t.Errorf("exit %d: outcome %+v", status, o)
		}
	}
	for _, sig := range []syscall.Signal{unix.SIGKILL, unix.SIGSEGV, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGABRT, unix.SIGPIPE, unix.SIGUSR1} {
		name := unix.SignalName(sig)
		argv := []string{agent, "kill", strings.TrimPrefix(name, "SIG")}
		plain, _, _ := ends(t, p.command(argv...))
		end, errs, o := p.outcomeOf(name, argv...)
		if end != plain || plain != "signal "+name || errs != "" {
			t.Errorf("%s: %s and %q, without us %s", name, end, errs, plain)
		}
		if o.Outcome != "signaled" || o.Signal != int(sig) || o.ExitCode != nil {
			t.Errorf("%s: outcome %+v", name, o)
		}
	}
	holder, _ := p.holding("holder")
	if end, errs, o := p.outcomeOf("refused", agent, "exit", "0"); end != "exit 75" || o.Outcome != "refused" || o.Reason == nil || o.Reason.Code != "pool_full" {
		t.Errorf("refused: %s, %q, %+v", end, errs, o)
	}
	holder.closeIn()
	holder.wait()
	p.settled()
}

// TestStartErrorsNameTheCommand is C114, C129 and C072: as env(1), with the
// path named, in one line, the slot free at once, recorded as never started.
func TestStartErrorsNameTheCommand(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	foreign := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x08\x00" + strings.Repeat("\x00", 200) // MIPS
	for _, tt := range []struct {
		name string
		path string
		want string
		env  bool // env(1) ends alike
	}{
		{"not found", "no-such-engine", "exit 127", true},
		{"no such path", p.file("no-such-engine"), "exit 127", true},
		{"empty name", "", "exit 127", false},
		{"a directory", p.dir, "exit 126", true},
		{"not executable", p.write("plain", "#!/bin/sh\n"), "exit 126", true},
		{"missing interpreter", p.program("orphan", "#!/no/such/interpreter\n"), "exit 126", false}, // as bash says
		{"wrong format", p.program("garbage", "\x00\x01\x02\x03"), "exit 126", false},
		{"another processor", p.program("foreign", foreign), "exit 126", false},
		{"an empty file", p.program("empty", ""), "exit 126", false},
		{"below a file", filepath.Join(p.file("plain"), "x"), "exit 127", false},
	} {
		if tt.env {
			plain, _, _ := ends(t, p.command("env", "--", tt.path))
			if plain != tt.want {
				t.Errorf("%s: env(1) ends with %s, the table says %s", tt.name, plain, tt.want)
			}
		}
		end, errs, o := p.outcomeOf("start", tt.path)
		if end != tt.want {
			t.Errorf("%s: %s, want %s: %q", tt.name, end, tt.want, errs)
		}
		oneLine(t, errs, tt.path)
		if o.Outcome != "not_started" {
			t.Errorf("%s: outcome %+v", tt.name, o)
		}
		if held := p.locked("all"); held != 0 {
			t.Errorf("%s: a slot is held afterwards", tt.name)
		}
	}
	// Somebody writes it: the kernel says busy, and so do we after a moment.
	busy := p.program("busy", "#!/bin/true\n")
	f, err := os.OpenFile(busy, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	end, errs, _ := p.outcomeOf("busy", busy)
	if end != "exit 126" || !strings.Contains(errs, busy) {
		t.Errorf("busy: %s, %q", end, errs)
	}
	p.settled()
}

// TestMissingDirectoryIsNamed is C112: before a slot is taken, and naming the
// directory, not the command.
func TestMissingDirectoryIsNamed(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	file := p.write("a-file", "")
	for _, dir := range []string{p.file("gone"), file, p.file("with\nnewline\x1b[2J")} {
		end, _, errs := ends(t, p.agent("-C", dir, "--", "touch", p.file("started")))
		if end != "exit 125" {
			t.Errorf("%q: %s", dir, end)
		}
		oneLine(t, errs, filepath.Base(strings.Split(dir, "\n")[0]), "directory")
		if strings.Contains(errs, "fakeagent") {
			t.Errorf("it names the command: %q", errs)
		}
	}
	// We ourselves stand in a directory that was removed, and run it elsewhere.
	lost := p.file("lost")
	if err := os.Mkdir(lost, 0o700); err != nil {
		t.Fatal(err)
	}
	_ = os.Chown(lost, p.uid, -1)
	script := fmt.Sprintf(`cd %s && rmdir %s && exec "$@"`, lost, lost)
	out, _ := must(t, "exit 0", p.command("sh", "-c", script, "sh", p.bin, "run", "-C", p.dir, "--", fakeagent.Build(t), "cwd"))
	if strings.TrimSpace(out) != p.dir {
		t.Errorf("it ran in %q", out)
	}
	if exists(p.file("started")) {
		t.Error("something started")
	}
	p.settled()
}

// TestEnvironmentAndArgumentsAreUntouched is S4, C9, C109: but for our markers.
func TestEnvironmentAndArgumentsAreUntouched(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_OUTCOME="+"/nonexistent/x", "HANDSEL_TOKEN_FD=7", "ODD=a\nb", "EMPTY=", "HANDSEL_AGENT_DEPTH=0", "HANDSEL_RUN=stale")
	p = p.with("HANDSEL_OUTCOME=" + p.file("outcome"))
	agent := fakeagent.Build(t)
	out, _ := must(t, "exit 0", p.agent("--", "env"))
	got := strings.Split(strings.TrimSpace(out), "\n")
	var want []string
	for _, e := range p.env {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "HANDSEL_OUTCOME", "HANDSEL_TOKEN_FD":
		case "HANDSEL_AGENT_DEPTH":
			want = append(want, `"HANDSEL_AGENT_DEPTH=1"`)
		case "HANDSEL_RUN":
			want = append(want, "")
		default:
			want = append(want, fmt.Sprintf("%q", e))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if want[i] != got[i] && (want[i] != "" || !strings.HasPrefix(got[i], `"HANDSEL_RUN=0`)) {
			t.Errorf("variable %d is %s, want %s", i, got[i], want[i])
		}
	}
	args := []string{"", " ", "--", "-x", "a b", "'\"$HOME", "two\nlines", "ünï", "--wait", "0"}
	plain, _ := must(t, "exit 0", p.command(append([]string{agent, "args"}, args...)...))
	under, _ := must(t, "exit 0", p.agent(append([]string{"--", "args"}, args...)...))
	if plain != under {
		t.Errorf("arguments are\n%swithout us\n%s", under, plain)
	}
	p.settled()
}

// fdsOf runs the step fds and returns the numbers it saw.
func fdsOf(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, _ := must(t, "exit 0", c)
	var numbers []string
	for line := range strings.Lines(out) {
		n, _, _ := strings.Cut(line, " ")
		numbers = append(numbers, n)
	}
	return strings.Join(numbers, " ")
}

// TestAgentSeesNoDescriptorOfOurs is S9, S20, C054, C062: it has 0, 1 and 2,
// whatever we or our caller had open, and what it was given on purpose.
func TestAgentSeesNoDescriptorOfOurs(t *testing.T) {
	t.Parallel()
	p := ordinary(t).config("[pools]\nall = 2\nheavy = 2\nextra = 2\n")
	agent := fakeagent.Build(t)
	sh := func(script string) *exec.Cmd { return p.command("sh", "-c", script, "sh", p.bin, agent) }
	for _, tt := range []struct{ name, script, want string }{
		{"as it comes", `"$1" run --pool extra -- "$2" fds`, "0 1 2"},
		{"with 9 open", `exec 9>lock; "$1" run -- "$2" fds`, "0 1 2"},
		{"with many open", `exec 3<. 4<. 5<. 6<. 7<. 8<. 9<.; "$1" run -- "$2" fds`, "0 1 2"},
		{"with 0 closed", `"$1" run -- "$2" fds <&-`, "0 1 2"},
		{"with 2 closed", `"$1" run -- "$2" fds 2>&-`, "0 1 2"},
		{"recorded", `"$1" run --record -- "$2" fds`, "0 1 2"},
		{"recorded with 0 closed", `"$1" run --record -- "$2" fds <&-`, "0 1 2"},
		{"under a gate", `exec 8<.; "$1" gate extra -- "$2" fds`, "0 1 2"},
		{"9 kept", `exec 9>lock 8<.; "$1" run --keep-fd 9 -- "$2" fds`, "0 1 2 9"},
		{"two kept", `exec 5<. 7<.; "$1" run --keep-fd 5 --keep-fd 7 -- "$2" fds`, "0 1 2 5 7"},
	} {
		if got := fdsOf(t, sh(tt.script)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	// A closed one is the null device, not whatever came first into its place.
	out, _ := must(t, "exit 0", sh(`"$1" run -- "$2" fds <&-`))
	if !strings.HasPrefix(out, `0 "/dev/null"`) {
		t.Errorf("with 0 closed: %q", out)
	}
	if end, _, errs := ends(t, sh(`"$1" run --keep-fd 33 -- "$2" fds`)); end == "exit 0" {
		t.Errorf("a descriptor that is not there is kept: %q", errs)
	}
	p.settled()
}

// TestCallersLockEndsWithTheScript is C071: a script's own lock is not kept by
// a daemon that an agent left.
func TestCallersLockEndsWithTheScript(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	script := `( flock -n 9 && "$1" run --leave-daemons -- "$2" daemon note ) 9>lane.lock`
	must(t, "exit 0", p.command("bash", "-c", script, "bash", p.bin, fakeagent.Build(t)))
	list, err := fakeagent.ReadPids(p.file("note"))
	if err != nil || len(list) != 1 || !list[0].Alive() {
		t.Fatalf("the daemon: %v, %v", list, err)
	}
	must(t, "exit 0", p.command("flock", "-n", "lane.lock", "true"))
	p.killAll()
	p.settled()
}

// TestStdinIsTheCallers is C054: whatever the caller's stdin is, the agent
// reads that and no other, and nothing of ours hangs on it.
func TestStdinIsTheCallers(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	agent := fakeagent.Build(t)
	sh := func(script string) *exec.Cmd { return p.command("bash", "-c", script, "bash", p.bin, agent) }
	for _, tt := range []struct{ name, script, want string }{
		{"closed", `"$1" run -- "$2" stdin <&-`, "0 "},
		{"null", `"$1" run -- "$2" stdin </dev/null`, "0 "},
		{"10 MB", `head -c 10000000 /dev/zero | "$1" run -- "$2" stdin`, "10000000 "},
		{"recorded, from an open pipe", `sleep 60 | "$1" run --record -- "$2" stdin; kill %1 2>/dev/null; true`, "0 "},
	} {
		if tt.name == "recorded, from an open pipe" {
			// Its shell waits for the pipe's other end, so only the agent is looked at.
			c := start(t, sh(tt.script))
			eventually(t, tt.name, func() bool { return strings.HasPrefix(c.out.String(), tt.want) })
			continue
		}
		out, _ := must(t, "exit 0", sh(tt.script))
		if !strings.HasPrefix(out, tt.want) {
			t.Errorf("%s: %q", tt.name, out)
		}
	}
	p.killAll()
}

// TestReaderThatLeavesEndsTheRun is C105: the run ends, its tree and slot with
// it, and the status is not 0.
func TestReaderThatLeavesEndsTheRun(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	for _, tt := range []struct{ name, script, want string }{
		{"recorded", `"$1" run --record -- yes | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}`, "141"},
		{"handed over", `"$1" run -- yes | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}`, "141"},
		{"as without us", `yes | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}`, "141"},
		{"to a full disk, recorded", `"$1" run --record -- yes >/dev/full; echo $?`, "125"},
		{"to a full disk, handed over", `"$1" run -- yes >/dev/full; echo $?`, "1"},
	} {
		out, errs := must(t, "exit 0", p.command("bash", "-c", tt.script, "bash", p.bin))
		if got := strings.TrimSpace(out); got != tt.want {
			t.Errorf("%s: status %s, want %s; %q", tt.name, got, tt.want, errs)
		}
		must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
	}
	p.settled()
}

// TestNothingOnDiskHoldsSecrets is C137 and C093: neither the prompt nor a
// variable is stored, files are ours alone, and no process shows a variable.
func TestNothingOnDiskHoldsSecrets(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1", "SOME_API_KEY=sk-test-123456")
	link := p.file("claude")
	if err := os.Symlink(fakeagent.Build(t), link); err != nil {
		t.Fatal(err)
	}
	note := p.file("note")
	q := p.with("FAKEAGENT=pid " + note + " then stdin")
	c := start(t, q.handsel("run", "--label", "ticket=7", "--", link, "-p", "my-secret-prompt"))
	p.noted(note)
	if others := processes(func(pid int) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.Contains(string(line), "sk-test-123456")
	}); len(others) != 0 {
		t.Errorf("a variable is on the command line of %v", others)
	}
	status, _ := must(t, "exit 0", q.handsel("status", "--json"))
	waiter := start(t, q.handsel("run", "--", link, "-p", "my-secret-prompt"))
	waiter.says("waiting")
	refused, errs := "", ""
	if end, out, said := ends(t, q.handsel("run", "--wait", "0", "--", link, "-p", "my-secret-prompt")); end != "exit 75" {
		t.Errorf("%s: %q", end, said)
	} else {
		refused, errs = out, said
	}
	c.closeIn()
	c.wait()
	waiter.closeIn()
	waiter.wait()
	for _, said := range []string{status, refused, errs, c.said(), waiter.said()} {
		for _, secret := range []string{"my-secret-prompt", "sk-test-123456"} {
			if strings.Contains(said, secret) {
				t.Errorf("%q is in %q", secret, said)
			}
		}
	}
	files := 0
	err := filepath.WalkDir(p.home, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		for _, secret := range []string{"my-secret-prompt", "sk-test-123456"} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s holds %q", path, secret)
			}
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files, %v", files, err)
	}
	p.settled()
}
