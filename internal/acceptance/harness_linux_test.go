package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/fakeagent"
)

// patience bounds every wait for something that must happen. It is long
// because the machine may be busy; nothing here is measured by it.
const patience = 60 * time.Second

// nobody is the ordinary user that root plays.
const nobody = 65534

var isRoot = os.Geteuid() == 0

func TestMain(m *testing.M) {
	if asHandsel() || withoutForks() || eatsMemory() {
		return
	}
	flag.Parse()
	if run := flag.Lookup("test.run"); seams && run.Value.String() == "" {
		_ = run.Value.Set("^TestSeam") // the others have run in the build without the seams
	}
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["test.parallel"] {
		_ = flag.Set("test.parallel", "16") // they wait most of their time
	}
	// Another user's part of a test must get through to what it runs.
	dir, err := os.MkdirTemp("", "acceptance")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scratch directory:", err)
		os.Exit(1)
	}
	built.dir = dir
	findPeer()
	status := fakeagent.Main(m)
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// findPeer says where the other implementation is: a test binary may not know
// its source, but it runs in its package's directory.
func findPeer() {
	if os.Getenv(fakeagent.PeerScript) == "" {
		if script, err := filepath.Abs("../../testdata/peer/peer.py"); err == nil {
			_ = os.Setenv(fakeagent.PeerScript, script)
		}
	}
}

// built is the executable under test, made at most once.
var built struct {
	sync.Mutex
	dir, path string
}

// executable returns the path of handsel.
func executable(t testing.TB) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.path == "" {
		path, err := theBuild()
		if err != nil {
			t.Fatal(err)
		}
		built.path = path
	}
	return built.path
}

// place is a home and an environment of a test's own.
type place struct {
	t    testing.TB
	bin  string
	dir  string // a scratch directory, with the home in it
	home string
	pool string // the directory that holds the pools' directories
	mark string // NAME=VALUE that everything started here carries, unless it clears it
	env  []string
	uid  int // who runs things here
}

// marker is the variable by which what a test started is found again.
const marker = "ACCEPTANCE_TEST"

// here makes a place for the test's own user.
func here(t testing.TB) *place {
	t.Helper()
	return placeOf(t, os.Geteuid())
}

// ordinary makes a place for an ordinary user: this one, or nobody for root.
func ordinary(t testing.TB) *place {
	t.Helper()
	if isRoot {
		return placeOf(t, nobody)
	}
	return here(t)
}

func placeOf(t testing.TB, uid int) *place {
	t.Helper()
	outside(t)
	dir := scratch(t, uid)
	p := &place{t: t, bin: executable(t), dir: dir, home: filepath.Join(dir, "home"), mark: marker + "=" + dir, uid: uid}
	p.pool = filepath.Join(p.home, "leases")
	for _, sub := range []string{p.home, filepath.Join(dir, "tmp")} {
		if err := errors.Join(os.Mkdir(sub, 0o700), os.Chown(sub, uid, -1)); err != nil {
			t.Fatal(err)
		}
	}
	p.env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm", "LANG=C.UTF-8",
		"HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"), "FAKEAGENT_LIFE=10m", "HANDSEL_HOME=" + p.home, p.mark,
	}
	t.Cleanup(p.killAll)
	return p
}

// scratch is a short-named directory of the user uid, which others can enter.
func scratch(t testing.TB, uid int) string {
	t.Helper()
	dir, err := os.MkdirTemp(built.dir, "t")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, uid, -1))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// outside stops a test that would be refused for what it was started from.
func outside(t testing.TB) {
	t.Helper()
	for pid := os.Getpid(); pid > 1; pid = parentOf(pid) {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(append([]byte{0}, env...), []byte("\x00HANDSEL_AGENT_DEPTH=1\x00")) {
			t.Fatalf("these tests start agents, so they cannot run inside one: process %d is", pid)
		}
	}
}

// with returns the same place with more in its environment. NAME alone removes
// a variable.
func (p *place) with(entries ...string) *place {
	q := *p
	q.env = slices.Clone(p.env)
	for _, e := range entries {
		name, _, set := strings.Cut(e, "=")
		q.env = slices.DeleteFunc(q.env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		if set {
			q.env = append(q.env, e)
		}
	}
	return &q
}

// file returns the path of a file in the place's scratch directory.
func (p *place) file(name string) string { return filepath.Join(p.dir, name) }

// write makes a file of the place's user.
func (p *place) write(name, text string) string {
	p.t.Helper()
	path := p.file(name)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chown(path, p.uid, -1)); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// program makes an executable file with this content. Another process writes
// it: one of ours that forks meanwhile would take the open descriptor along,
// and the file would be busy when it is started (C072).
func (p *place) program(name, text string) string {
	p.t.Helper()
	path := p.file(name)
	c := exec.Command("sh", "-c", `cat >"$1" && chmod 755 "$1"`, "sh", path)
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	return path
}

// config writes a configuration file and returns a place that reads it.
func (p *place) config(text string) *place {
	p.t.Helper()
	return p.with("HANDSEL_CONFIG=" + p.write("config.toml", text))
}

// command prepares any command here.
func (p *place) command(argv ...string) *exec.Cmd {
	c := exec.Command(argv[0], argv[1:]...)
	c.Env, c.Dir = p.env, p.dir
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if p.uid != os.Geteuid() {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}
	}
	return c
}

// handsel prepares handsel with words.
func (p *place) handsel(words ...string) *exec.Cmd {
	return p.command(append([]string{p.bin}, words...)...)
}

// agent is `handsel run FLAGS… -- fakeagent STEPS…`; flags end at "--".
func (p *place) agent(words ...string) *exec.Cmd {
	at := slices.Index(words, "--")
	argv := append([]string{"run"}, words[:max(at, 0)]...)
	argv = append(argv, "--", fakeagent.Build(p.t))
	return p.handsel(append(argv, words[at+1:]...)...)
}

// identity is a process as the kernel tells it apart from every other.
type identity struct {
	pid   int
	ticks uint64
}

// stat reads start, parent and state of a process; false when there is none or
// it is a zombie, which runs nothing and holds nothing.
func stat(pid int) (id identity, parent int, state byte, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, 0, 0, false
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return identity{}, 0, 0, false
	}
	parent, _ = strconv.Atoi(f[1])
	ticks, err := strconv.ParseUint(f[19], 10, 64)
	return identity{pid, ticks}, parent, f[0][0], err == nil
}

func parentOf(pid int) int {
	_, parent, _, _ := stat(pid)
	return parent
}

func identify(pid int) identity {
	id, _, _, _ := stat(pid)
	return id
}

func (id identity) alive() bool {
	now, _, _, ok := stat(id.pid)
	return ok && now == id
}

func (id identity) stopped() bool {
	now, _, state, ok := stat(id.pid)
	return ok && now == id && state == 'T'
}

// signal reaches this very process and nothing that got its number later.
func (id identity) signal(sig syscall.Signal) bool {
	fd, err := unix.PidfdOpen(id.pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return id.alive() && unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

func (id identity) String() string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.pid))
	return fmt.Sprintf("%d (%s)", id.pid, strings.ReplaceAll(strings.Trim(string(text), "\x00"), "\x00", " "))
}

// processes lists the living processes that accept takes.
func processes(accept func(pid int) bool) (found []identity) {
	names, _ := os.ReadDir("/proc")
	for _, e := range names {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if id, _, _, ok := stat(pid); ok && accept(pid) && id.alive() {
			found = append(found, id)
		}
	}
	return found
}

// left lists the living processes that were started in this place: by the
// marker they carry, or by a path of the place on their command line.
func (p *place) left() []identity {
	mark, path := []byte("\x00"+p.mark+"\x00"), []byte(p.dir+"/")
	return processes(func(pid int) bool {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(append([]byte{0}, env...), mark) {
			return true
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return bytes.Contains(line, path)
	})
}

func (p *place) killAll() {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		all := p.left()
		if len(all) == 0 {
			return
		}
		for _, id := range all {
			id.signal(syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond) // the kernel takes them away by itself
	}
}

// settled waits until nothing is left of what was started here: no process, no
// slot held, nobody in line.
func (p *place) settled() {
	p.t.Helper()
	until(p.t, "no process is left", func() string { return fmt.Sprint(p.left()) }, "[]")
	s := p.status()
	for name, pool := range s.Pools {
		if pool.Held != 0 {
			p.t.Errorf("pool %s still has %d slots held: %+v", name, pool.Held, pool.Holders)
		}
	}
	if len(s.Waiting) != 0 {
		p.t.Errorf("still in line: %+v", s.Waiting)
	}
	if names := p.waiting(); len(names) != 0 {
		p.t.Errorf("left in waiting/: %q", names)
	}
}

// waiting lists what is in waiting/ besides the lock of the line.
func (p *place) waiting() (names []string) {
	all, _ := os.ReadDir(filepath.Join(p.home, "waiting"))
	for _, e := range all {
		if e.Name() != ".line" {
			names = append(names, e.Name())
		}
	}
	return names
}

// until waits for ask to answer want.
func until[T comparable](t testing.TB, what string, ask func() T, want T) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(3 * time.Millisecond) {
		got := ask()
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never: %s (want %v, have %v)", what, want, got)
		}
	}
}

func eventually(t testing.TB, what string, claim func() bool) {
	t.Helper()
	until(t, what, claim, true)
}

// dwindles waits until nothing is left to come, however long that takes: it gives
// up only when there has not been less for as long as patience lasts. What else
// whoever has to find out should know is asked of tell then.
func dwindles(t testing.TB, what string, left func() int, tell ...func() string) {
	t.Helper()
	most, least, since := math.MinInt, math.MaxInt, time.Now()
	for ; ; time.Sleep(3 * time.Millisecond) {
		n := left()
		if n == 0 {
			return
		}
		if n != unknown {
			most = max(most, n)
		}
		if 0 <= n && n < least {
			least, since = n, time.Now()
		}
		if still := time.Since(since); still > patience {
			var said strings.Builder
			for _, f := range tell {
				said.WriteString("\n" + f())
			}
			t.Fatalf("never: %s (%d left of at most %d, at least %d, and no less for %v)%s", what, n, most, least, still.Round(time.Second), &said)
		}
	}
}

// unknown is what is left when nobody says.
const unknown = math.MaxInt

// allEnd waits until every process has ended.
func allEnd(t testing.TB, what string, all []*process) {
	t.Helper()
	dwindles(t, what, func() (left int) {
		for _, p := range all {
			if !p.ended() {
				left++
			}
		}
		return left
	})
}

// says is what handsel itself says of this place, for whoever has to find out
// why something does not go on.
func (p *place) says() string {
	var all strings.Builder
	for _, words := range [][]string{{"dispatch", "status"}, {"queue"}, {"status"}} {
		ctx, stop := context.WithTimeout(context.Background(), patience)
		as := p.handsel(words...)
		c := exec.CommandContext(ctx, as.Path, words...)
		c.Env, c.Dir, c.SysProcAttr, c.WaitDelay = as.Env, as.Dir, as.SysProcAttr, time.Second
		out, err := c.CombinedOutput()
		stop()
		fmt.Fprintf(&all, "handsel %s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return all.String()
}

// lines reads the lines of a file to which others append: the last one is not
// there before its newline, since a look may meet a write that is on its way.
func lines(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[:bytes.LastIndexByte(text, '\n')+1])
}

// process is a command that was started.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	id   identity
	in   *os.File // our end of its stdin, if it was not given one
	out  *text
	err  *text
	done chan struct{}
	end  time.Time // when it was seen to have ended
}

// text collects what somebody writes.
type text struct {
	mu   sync.Mutex
	seen bytes.Buffer
	over chan struct{}
	from *os.File
}

// unread tells whether the pipe has what was not collected yet.
func (x *text) unread() (more bool) {
	raw, err := x.from.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		more = err == nil && n > 0
	})
	return more && err == nil
}

func collect(r *os.File) *text {
	x := &text{over: make(chan struct{}), from: r}
	go func() {
		defer close(x.over)
		defer r.Close()
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			x.mu.Lock()
			x.seen.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen.String()
}

// start starts a command with pipes for what it was not given. Waiting for its
// end does not wait for whoever holds its output open.
func start(t testing.TB, c *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: c, done: make(chan struct{})}
	var theirs []*os.File
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	}
	if c.Stdin == nil {
		r, w := pipe()
		c.Stdin, p.in = r, w
		theirs = append(theirs, r)
	}
	if c.Stdout == nil {
		r, w := pipe()
		c.Stdout, p.out = w, collect(r)
		theirs = append(theirs, w)
	}
	if c.Stderr == nil {
		r, w := pipe()
		c.Stderr, p.err = w, collect(r)
		theirs = append(theirs, w)
	}
	err := c.Start()
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		t.Fatalf("%q: %v", c.Args, err)
	}
	p.id = identify(c.Process.Pid)
	go func() {
		_ = c.Wait() // how it ended is read from ProcessState
		p.end = time.Now()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.closeIn()
		p.id.signal(syscall.SIGKILL)
		<-p.done
	})
	return p
}

func (p *process) closeIn() {
	if p.in != nil {
		p.in.Close()
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// says waits for a text on stderr.
func (p *process) says(part string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q says %q", p.cmd.Args, part), func() bool {
		if p.ended() && !strings.Contains(p.said(), part) {
			p.t.Fatalf("%q ended with %v and never said %q, but %q", p.cmd.Args, p.cmd.ProcessState, part, p.said())
		}
		return strings.Contains(p.err.String(), part)
	})
}

// wait waits for the end and returns how it ended: "exit N" or "signal NAME".
func (p *process) wait() string {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%q does not end; it said %q", p.cmd.Args, p.said())
	}
	return how(p.cmd.ProcessState)
}

// said is what it has written to stderr: at its end all of it, but a survivor
// that holds stderr open is not waited for.
func (p *process) said() string { return p.err.all() }

// printed is what it has written to stdout, likewise.
func (p *process) printed() string { return p.out.all() }

func (x *text) all() string {
	if x == nil {
		return ""
	}
	for unread := true; unread; {
		select {
		case <-x.over:
			return x.String()
		case <-time.After(time.Second):
			unread = x.unread() // the machine may be busy
		}
	}
	return x.String()
}

func how(ps *os.ProcessState) string {
	ws, ok := ps.Sys().(syscall.WaitStatus)
	if !ok {
		return ps.String()
	}
	if ws.Signaled() {
		return "signal " + unix.SignalName(ws.Signal())
	}
	return "exit " + strconv.Itoa(ws.ExitStatus())
}

// ends runs a command to its end, with nothing on its stdin, and returns how it
// ended, and what it wrote.
func ends(t testing.TB, c *exec.Cmd) (end, out, errs string) {
	t.Helper()
	p := start(t, c)
	p.closeIn()
	end = p.wait()
	return end, p.printed(), p.said()
}

// must runs a command that has to end in this way.
func must(t testing.TB, want string, c *exec.Cmd) (out, errs string) {
	t.Helper()
	end, out, errs := ends(t, c)
	if end != want {
		t.Fatalf("%q: %s, want %s; it said %q", c.Args, end, want, errs)
	}
	return out, errs
}

// oneLine checks that errs is exactly one line of ours that contains parts.
func oneLine(t testing.TB, errs string, parts ...string) {
	t.Helper()
	if strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "handsel: ") {
		t.Errorf("not one line: %q", errs)
	}
	for _, part := range parts {
		if !strings.Contains(errs, part) {
			t.Errorf("%q does not contain %q", errs, part)
		}
	}
	if strings.ContainsFunc(strings.ReplaceAll(errs, "\n", ""), func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		t.Errorf("control bytes in %q", errs)
	}
}

// snapshot is what `handsel status --json` says, as far as it matters here.
type snapshot struct {
	Root  string
	Caps  []struct{ Pool, From string }
	Pools map[string]struct {
		Cap, Held int
		Holders   []taken
	}
	Waiting []struct {
		Place, Pid, Priority int
		Reason, Run          string
	}
	Strays   []struct{ Pid int }
	Problems []string
}

// taken is one slot that is held.
type taken struct {
	Slot       int
	State, Run string
	Holder     int `json:"holder_pid"`
	Child      int `json:"child_pid"`
}

func (p *place) status() (s snapshot) {
	p.t.Helper()
	out, _ := must(p.t, "exit 0", p.handsel("status", "--json"))
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	return s
}

// states lists the states of a pool's slots.
func (s snapshot) states(pool string) string {
	var all []string
	for _, h := range s.Pools[pool].Holders {
		all = append(all, h.State)
	}
	return strings.Join(all, " ")
}

// holding starts an agent that holds its slots until its input ends, and waits
// until it is recorded. The name makes its note unique.
func (p *place) holding(name string, flags ...string) (holder *process, agent identity) {
	p.t.Helper()
	note := p.file("pid-" + name)
	h := start(p.t, p.agent(append(flags, "--", "pid", note, "then", "stdin")...))
	agent = p.noted(note)
	eventually(p.t, name+" is in its slot", func() bool {
		return slices.ContainsFunc(p.status().Pools["all"].Holders, func(s taken) bool { return s.Child == agent.pid })
	})
	return h, agent
}

// noted waits until a stand-in has noted itself.
func (p *place) noted(note string) identity {
	p.t.Helper()
	eventually(p.t, note+" names a process", func() bool {
		list, err := fakeagent.ReadPids(note)
		return err == nil && len(list) > 0
	})
	list, _ := fakeagent.ReadPids(note)
	return identity{list[0].Pid, list[0].Ticks}
}

// locked counts the files of a pool that the kernel says are locked, without
// touching them.
func (p *place) locked(pool string) int {
	inodes := map[string]bool{}
	dir := filepath.Join(p.pool, pool)
	names, _ := os.ReadDir(dir)
	for _, e := range names {
		var st unix.Stat_t
		if strings.HasSuffix(e.Name(), ".lock") && unix.Lstat(filepath.Join(dir, e.Name()), &st) == nil {
			inodes[fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino)] = true
		}
	}
	n := 0
	for _, key := range flocks() {
		if inodes[key] {
			n++
			delete(inodes, key)
		}
	}
	return n
}

// flocks lists "major:minor:inode" of every flock(2) lock there is.
func flocks() (keys []string) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		if len(w) >= 6 && w[1] == "FLOCK" {
			keys = append(keys, w[5])
		}
	}
	return keys
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
