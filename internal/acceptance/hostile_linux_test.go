package acceptance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/fakeagent"
)

// plants are the things that somebody may put into a place of ours.
var plants = []string{"symlink", "dangling symlink", "FIFO", "hard link", "directory", "file", "writable by others", "owned by somebody else"}

// plant puts one of them at path. It reports false for what has no meaning
// there, such as a hard link to a directory.
func (p *place) plant(kind, path string, isDir bool) bool {
	p.t.Helper()
	victim, dir := p.file("victim"), p.file("victim-dir")
	own := func(path string, uid int) error { return os.Lchown(path, uid, -1) }
	var err error
	switch kind {
	case "symlink":
		target := victim
		if isDir {
			target = dir
		}
		err = errors.Join(os.Symlink(target, path), own(path, p.uid))
	case "dangling symlink":
		err = errors.Join(os.Symlink(p.file("not-yet"), path), own(path, p.uid))
	case "FIFO":
		err = errors.Join(unix.Mkfifo(path, 0o600), own(path, p.uid))
	case "hard link":
		if isDir {
			return false
		}
		err = os.Link(victim, path)
	case "directory":
		if isDir {
			return false
		}
		err = errors.Join(os.Mkdir(path, 0o700), own(path, p.uid))
	case "file":
		if !isDir {
			return false
		}
		err = errors.Join(os.WriteFile(path, []byte("x"), 0o600), own(path, p.uid))
	case "writable by others":
		// A mkdir or create that is narrowed by the umask would not do.
		if isDir {
			err = errors.Join(os.Mkdir(path, 0o700), own(path, p.uid), os.Chmod(path, 0o777))
			break
		}
		err = errors.Join(os.WriteFile(path, nil, 0o600), own(path, p.uid), os.Chmod(path, 0o666))
	case "owned by somebody else":
		if !isRoot {
			return false // only root can make one; a root's own is looked at below
		}
		if isDir {
			err = errors.Join(os.Mkdir(path, 0o755), own(path, 4711))
			break
		}
		err = errors.Join(os.WriteFile(path, nil, 0o644), own(path, 4711))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return true
}

// TestPlantedPathsAreRefused is C093, C134, S5 and the list of the issue: a
// symbolic link, FIFO, hard link, directory or foreign thing in the place of
// each path that we open refuses a capped start in one line that names it; it
// is neither followed nor waited for, and nothing has started.
func TestPlantedPathsAreRefused(t *testing.T) {
	t.Parallel()
	today, tomorrow := time.Now().UTC().Format("2006-01-02"), time.Now().UTC().Add(24*time.Hour).Format("2006-01-02")
	for _, tt := range []struct {
		path  string // below the home; "" is the home itself
		dir   bool
		runs  bool     // the run goes on, with a warning: a record never stops one (E13)
		fine  string   // a plant that is no trouble there: nobody else gets through to it
		needs []string // directories that are there already
	}{
		{path: "", dir: true},
		{path: "config"},
		{path: "leases", dir: true},
		{path: "leases/all", dir: true, needs: []string{"leases"}},
		{path: "leases/all/.admission", fine: "writable by others", needs: []string{"leases", "leases/all"}},
		{path: "leases/all/0.lock", fine: "writable by others", needs: []string{"leases", "leases/all"}},
		{path: "waiting", dir: true},
		{path: "waiting/.line", fine: "writable by others", needs: []string{"waiting"}},
		{path: "holds", dir: true},
		{path: "runs", dir: true, runs: true},
		{path: "runs/" + today, dir: true, runs: true, needs: []string{"runs"}},
	} {
		t.Run(tt.path, func(t *testing.T) {
			t.Parallel()
			for _, kind := range plants {
				p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
				p.write("victim", "precious")
				made := append([]string{p.file("victim-dir")}, func() (all []string) {
					for _, d := range tt.needs {
						all = append(all, filepath.Join(p.home, d))
					}
					return all
				}()...)
				for _, d := range made {
					if err := errors.Join(os.Mkdir(d, 0o700), os.Chown(d, p.uid, -1)); err != nil {
						t.Fatal(err)
					}
				}
				path := filepath.Join(p.home, tt.path)
				switch tt.path {
				case "":
					if err := os.Remove(p.home); err != nil {
						t.Fatal(err)
					}
				case "config":
					path = p.file("config.toml")
					p = p.with("HANDSEL_CONFIG=" + path)
				}
				if kind == tt.fine || !p.plant(kind, path, tt.dir) {
					continue
				}
				if tt.path == "runs/"+today {
					p.plant(kind, filepath.Join(p.home, "runs", tomorrow), true) // the day may turn meanwhile
				}
				if kind == "hard link" && tt.path == "config" {
					if err := os.WriteFile(p.file("victim"), nil, 0o600); err != nil { // no trouble by its content
						t.Fatal(err)
					}
				}
				victim, _ := os.ReadFile(p.file("victim"))
				end, _, errs := ends(t, p.agent("--wait", "0", "--", "touch", p.file("started")))
				named := tt.path
				if tt.path == "config" {
					named = "config.toml"
				}
				oneLine(t, errs, named)
				switch {
				case tt.runs:
					if end != "exit 0" || !exists(p.file("started")) {
						t.Errorf("%s: a run that cannot be recorded: %s, started %v: %q", kind, end, exists(p.file("started")), errs)
					}
				case end != "exit 77":
					t.Errorf("%s: %s, want exit 77: %q", kind, end, errs)
				case exists(p.file("started")):
					t.Errorf("%s: it started", kind)
				}
				if now, _ := os.ReadFile(p.file("victim")); string(now) != string(victim) {
					t.Errorf("%s: the victim holds %q", kind, now)
				}
				if list, _ := os.ReadDir(p.file("victim-dir")); len(list) != 0 || exists(p.file("not-yet")) {
					t.Errorf("%s was followed: %v, %v", kind, list, exists(p.file("not-yet")))
				}
				// Looking goes on as far as it can, hangs on nothing and changes nothing.
				if end, _, said := ends(t, p.handsel("status")); end != "exit 0" && end != "exit 77" {
					t.Errorf("%s: status: %s, %q", kind, end, said)
				}
			}
		})
	}
}

// TestForeignHomeIsRefused is C093, C111, C134: somebody else's home, a
// relative one, one that is no directory.
func TestForeignHomeIsRefused(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	foreign := "/usr" // root's, which nobody else's processes may count in
	if p.uid == 0 {
		foreign = p.file("foreign")
		if err := errors.Join(os.Mkdir(foreign, 0o700), os.Chown(foreign, nobody, -1)); err != nil {
			t.Fatal(err)
		}
	}
	shared := p.file("shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chown(shared, p.uid, -1), os.Chmod(shared, 0o1777)); err != nil {
		t.Fatal(err)
	}
	for home, want := range map[string]string{
		foreign: "exit 77", shared: "exit 77", "/dev/null": "exit 77", "relative/home": "exit 78", ".": "exit 78",
	} {
		end, _, errs := ends(t, p.with("HANDSEL_HOME="+home).agent("--", "touch", p.file("started")))
		if end != want || exists(p.file("started")) {
			t.Errorf("HANDSEL_HOME=%s: %s, want %s, started %v", home, end, want, exists(p.file("started")))
		}
		oneLine(t, errs, home)
	}
	// One below a place of root's that cannot be made: our failure, not a hang.
	if p.uid != 0 {
		end, _, errs := ends(t, p.with("HANDSEL_HOME=/usr/handsel-home").agent("--", "touch", p.file("started")))
		if end != "exit 125" || exists(p.file("started")) {
			t.Errorf("a home that cannot be made: %s, %q", end, errs)
		}
		oneLine(t, errs, "/usr/handsel-home")
	}
}

// TestRootsSlotsRefuseTheUser is C093: `sudo handsel run` once in a user's home.
func TestRootsSlotsRefuseTheUser(t *testing.T) {
	if !isRoot {
		t.Skip("only root can leave its files in a user's home; TestForeignHomeIsRefused has the user's half")
	}
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	must(t, "exit 0", p.agent("--", "exit", "0"))
	if err := os.Chown(filepath.Join(p.home, "leases", "all", "0.lock"), 0, 0); err != nil {
		t.Fatal(err)
	}
	end, _, errs := ends(t, p.agent("--", "touch", p.file("started")))
	if end != "exit 77" || exists(p.file("started")) {
		t.Errorf("%s, %q", end, errs)
	}
	oneLine(t, errs, "leases/all/0.lock", "owner", "mode")
	must(t, "exit 0", p.handsel("status"))
}

// TestBareEnvironment is C111: status and an uncapped run without any variable,
// and with odd values of HOME.
func TestBareEnvironment(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	for _, env := range [][]string{{}, {"HOME="}, {"HOME=."}, {"HOME=/no/such/home"}, {"XDG_RUNTIME_DIR=/tmp", "XDG_STATE_HOME=/tmp"}} {
		c := p.handsel("status")
		c.Env = env
		end, out, errs := ends(t, c)
		if end != "exit 0" || strings.Contains(out, "/tmp") {
			t.Errorf("%q: status: %s, %q, %q", env, end, out, errs)
		}
		if p.uid == 0 {
			continue // root's own home is no place for a test
		}
		c = p.agent("--", "print", "it runs")
		c.Env = env
		if end, out, errs := ends(t, c); end != "exit 0" || out != "it runs\n" {
			t.Errorf("%q: an uncapped run: %s, %q, %q", env, end, out, errs)
		}
	}
}

// inMount prepares a command that runs, as the place's user, in a mount
// namespace of its own in which a small file system lies at dir.
func (p *place) inMount(options, dir, script string, argv ...string) *exec.Cmd {
	p.t.Helper()
	become := ""
	if p.uid != 0 {
		become = fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups ", p.uid, p.uid)
	}
	text := fmt.Sprintf(`mount -t tmpfs -o %s none %q && cd / && %s && exec %s"$@"`, options, dir, script, become)
	c := exec.Command("unshare", append([]string{"-m", "--propagation", "private", "sh", "-c", text, "sh"}, argv...)...)
	c.Env, c.Dir = p.env, p.dir
	return c
}

// TestReadOnlyHome: a capped start is refused as our failure and names the
// path; an uncapped one runs (C093, S4).
func TestReadOnlyHome(t *testing.T) {
	t.Parallel()
	p := ordinary(t)
	agent := fakeagent.Build(t)
	run := func(p *place, flags ...string) *exec.Cmd {
		argv := append(append([]string{p.bin, "run"}, flags...), "--", agent, "print", "it runs")
		if isRoot {
			return p.inMount(fmt.Sprintf("ro,mode=0700,uid=%d", p.uid), p.home, "true", argv...)
		}
		return p.command(argv...)
	}
	if !isRoot { // its owner made it so
		if err := os.Chmod(p.home, 0o500); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(p.home, 0o700)
	}
	end, out, errs := ends(t, run(p.with("HANDSEL_MAX_AGENTS=1")))
	if end != "exit 125" || out != "" {
		t.Errorf("capped: %s, %q", end, out)
	}
	oneLine(t, errs, p.home)
	end, out, errs = ends(t, run(p))
	if end != "exit 0" || out != "it runs\n" {
		t.Errorf("uncapped: %s, %q, %q", end, out, errs)
	}
	oneLine(t, errs, p.home)
}

// TestFullDisk: a capped start is refused, in one line, and nothing of it runs;
// once there is room again the same home works.
func TestFullDisk(t *testing.T) {
	if !isRoot {
		t.Skip("only root can mount a small file system; the user's half is this test under root, which runs handsel as uid 65534")
	}
	t.Parallel()
	for _, before := range []string{"nothing there yet", "slots there already"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
			agent := fakeagent.Build(t)
			setup := "true"
			if before == "slots there already" {
				// One of the two is taken, so that the record goes into a new file.
				setup = `"$1" run --pool b -- true`
			}
			script := fmt.Sprintf(`%s
				cat /dev/zero >"$3/fill" 2>/dev/null
				"$1" run --wait 0 --pool c -- "$2" touch "$4"; echo full=$?
				"$1" status >/dev/null; echo status=$?
				rm "$3/fill"
				"$1" run --wait 0 --pool c -- true; echo room=$?
				"$1" status --json`, setup)
			c := p.inMount(fmt.Sprintf("size=64k,mode=0700,uid=%d", p.uid), p.home, "true",
				"sh", "-c", script, "sh", p.bin, agent, p.home, p.file("started"))
			out, errs := must(t, "exit 0", c)
			for _, want := range []string{"status=0\n", "room=0\n"} {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in %q", want, out)
				}
			}
			if !strings.Contains(out, "full=125\n") && !strings.Contains(out, "full=75\n") {
				t.Errorf("on a full disk: %q", out)
			}
			if exists(p.file("started")) {
				t.Error("it started uncounted")
			}
			refusals := slices.DeleteFunc(strings.SplitAfter(errs, "\n"), func(l string) bool {
				return l == "" || strings.Contains(l, `pool "c" has no cap`) || strings.Contains(l, `pool "b" has no cap`)
			})
			if len(refusals) == 0 || !strings.Contains(refusals[0], "no space left") {
				t.Errorf("it said %q", errs)
			}
			if strings.Contains(out, `"held": 1`) {
				t.Errorf("a slot is held afterwards: %s", out)
			}
		})
	}
}

// TestStuckLineIsNamed is S10, S28 and C146: whoever holds an admission lock
// without end is named, in bounded time, and status answers without it.
func TestStuckLineIsNamed(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	must(t, "exit 0", p.agent("--", "exit", "0"))
	for _, path := range []string{"waiting/.line", "leases/all/.admission"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			q := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
			must(t, "exit 0", q.agent("--", "exit", "0"))
			note := q.file("note")
			holder := start(t, q.command("flock", "-F", filepath.Join(q.home, path), fakeagent.Build(t), "pid", note, "then", "sleep", "600"))
			q.noted(note)
			holder.id.signal(unix.SIGSTOP)
			out, errs := must(t, "exit 0", q.handsel("status")) // the lock is never let go of
			if !strings.Contains(errs, "without it") {
				t.Errorf("status says %q, %q", out, errs)
			}
			end, _, errs := ends(t, q.agent("--wait", "0", "--", "touch", q.file("started")))
			if end != "exit 75" || exists(q.file("started")) {
				t.Errorf("%s, started %v", end, exists(q.file("started")))
			}
			oneLine(t, errs, fmt.Sprint("pid ", holder.id.pid), "stopped")
			holder.id.signal(unix.SIGKILL)
			must(t, "exit 0", q.agent("--", "exit", "0"))
			q.settled()
		})
	}
}

// TestHostileNamesStayInTheirRow is C135: what others chose reaches a terminal
// escaped, one row for each, and JSON whole.
func TestHostileNamesStayInTheirRow(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	name := "x\x1b[2J\x1b]0;p0wn\a\rfake 0 running\u202e\u009b" + strings.Repeat("\u0301", 50)
	link := p.file(name)
	if err := os.Symlink(fakeagent.Build(t), link); err != nil {
		t.Fatal(err)
	}
	note := p.file("note")
	c := start(t, p.handsel("run", "--author", name, "--label", "k="+name, "--", link, "pid", note, "me", "then", "stdin"))
	eventually(t, "the agent runs or is refused", func() bool { return exists(note) || c.ended() })
	if c.ended() {
		t.Fatalf("%s: %q", c.wait(), c.said())
	}
	p.noted(note)
	eventually(t, "it is recorded", func() bool { return p.status().states("all") == "running" })
	out, errs := must(t, "exit 0", p.handsel("status"))
	_, refusal := must(t, "exit 75", p.handsel("run", "--wait", "0", "--", link))
	c.closeIn()
	c.wait()
	_, missing := must(t, "exit 127", p.handsel("run", "--", link+"\x1b[2J\n2026-01-01 ERROR"))
	for _, said := range []string{out, errs, refusal, missing} {
		for _, r := range strings.ReplaceAll(said, "\n", "") {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u202e' {
				t.Errorf("%q reaches the terminal in %q", r, said)
			}
		}
	}
	if rows := strings.Count(out, "running"); rows != 2+2 { // pools all and heavy, and the name in each row
		t.Errorf("%d times running:\n%s", rows, out)
	}
	oneLine(t, missing)
	p.settled()
}
