package acceptance

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/fakeagent"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/record"
)

// clerk stands in for the dispatcher: it has one admitted row, whose lane and
// slots it really holds, and grants it over the real socket to real drivers.
type clerk struct {
	t     testing.TB
	p     *place
	h     *handsel.Home
	d     home.Dir
	row   attempt.Row
	start int
	fence uint64
	token string
	hold  *lane.Hold
	lease *handsel.Lease
	ln    *handoff.Listener
}

// hire makes a clerk with a row for the stand-in with these words. Its user is
// the test's own: the socket takes nobody else.
func hire(t testing.TB, p *place, input string, words ...string) *clerk {
	t.Helper()
	getenv := func(name string) string {
		for _, e := range p.env {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				return value
			}
		}
		return ""
	}
	c := &clerk{t: t, p: p, start: 1, fence: 7, token: "5ec2e7" + strings.Repeat("0123456789abcdef", 3)}
	var err error
	if c.h, err = handsel.OpenWith(getenv); err == nil {
		c.d, err = home.Locate(getenv)
	}
	if err != nil {
		t.Fatal(err)
	}
	work := p.file("work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	argv := append([]string{fakeagent.Build(t)}, words...)
	c.row = attempt.Row{
		V: 1, Lane: "the lane", ID: record.NewID(), QueueStart: attempt.At(time.Now()), Priority: 3, State: attempt.Starting,
		Placement: attempt.Placement{Cwd: work, Workload: handsel.Heavy, Confinement: "none"}, Argv0: "fakeagent", Argc: len(argv), Starts: 1,
	}
	err = attempt.Write(c.d, c.row.ID, &attempt.Payload{
		Argv: attempt.Bytes(argv), Cwd: []byte(work), Stdin: []byte(input), HasStdin: input != "",
		Env: attempt.Bytes([]string{"PATH=/usr/bin:/bin", "FOO=new", "BAR=1", "FAKEAGENT_LIFE=90s", p.mark}),
	})
	if err != nil {
		t.Fatal(err)
	}
	rec := lane.Mine(lane.RoleDispatcher)
	rec.Attempt = c.row.ID
	if c.hold, err = lane.Take(c.d, c.row.Lane, rec); err != nil {
		t.Fatal(err)
	}
	if c.lease, err = c.h.Acquire(t.Context(), handsel.Start{Run: c.row.ID}); err != nil {
		t.Fatal(err)
	}
	if c.ln, err = handoff.Listen(c.d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.ln.Close()
		c.leave()
	})
	return c
}

// leave closes the clerk's copies and leaves what they say to whoever has others.
func (c *clerk) leave() {
	if c.hold != nil {
		c.hold.Keep()
		c.hold = nil
	}
	if c.lease != nil {
		_ = c.lease.HandOver() // an empty one has nothing to hand over
		c.lease = nil
	}
}

// driver starts one with the offer, on descriptor 3, in the environment of a
// dispatcher.
func (c *clerk) driver(words ...string) *process {
	c.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	fmt.Fprintf(w, "%s\n%s\n", c.row.ID, c.token)
	w.Close()
	cmd := c.p.with("HANDSEL_TOKEN_FD=3", "FOO=old", "DISPATCHERS_OWN=1").handsel(words...)
	cmd.ExtraFiles = []*os.File{r}
	p := start(c.t, cmd)
	p.closeIn()
	return p
}

// accepts takes the next connection with the claim that comes on it.
func (c *clerk) accepts() *handoff.Conn {
	c.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	conn, err := c.ln.Accept(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	f, err := conn.Receive(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	var claim handoff.Claim
	if err := f.Decode(&claim); err != nil || claim != (handoff.Claim{Attempt: c.row.ID, Token: c.token}) || f.Came != 0 {
		c.t.Fatalf("the driver said %s: %+v, %v", f.Type, claim, err)
	}
	return conn
}

// goods are a grant and the descriptors that go with it, in their order.
func (c *clerk) goods() (handoff.Granted, []int) {
	g := handoff.Granted{Answer: handoff.Answer{OK: true, Attempt: c.row.ID}, Row: c.row, Fence: c.fence, Start: c.start}
	fds := []int{c.hold.Fd()}
	for _, s := range c.lease.Slots() {
		g.Slots = append(g.Slots, handoff.SlotRef{Pool: s.Pool, Index: s.Index, Cap: s.Cap})
		fds = append(fds, s.Fd)
	}
	return g, fds
}

func (c *clerk) send(conn *handoff.Conn) {
	c.t.Helper()
	g, fds := c.goods()
	if err := conn.Send(c.t.Context(), g, fds...); err != nil {
		c.t.Error(err)
	}
}

// acked waits for the driver's word; false when it left without one.
func (c *clerk) acked(conn *handoff.Conn) (ack handoff.Ack, ok bool) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	f, err := conn.Receive(ctx)
	if err != nil {
		return ack, false
	}
	return ack, f.Decode(&ack) == nil && f.Type == ack.Type()
}

// settles closes the clerk's copies once the start is begun.
func (c *clerk) settles(conn *handoff.Conn) {
	c.t.Helper()
	if ack, ok := c.acked(conn); !ok || ack != (handoff.Ack{Attempt: c.row.ID, Start: c.start, Begun: true}) {
		c.t.Fatalf("acknowledged with %+v", ack)
	}
	conn.Close()
	c.leave()
}

// listens hears how the attempt ended, and answers.
func (c *clerk) listens() (e handoff.Ended) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	conn, err := c.ln.Accept(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	f, err := conn.Receive(ctx)
	if err != nil || f.Decode(&e) != nil || f.Type != e.Type() {
		c.t.Fatalf("told %+v, %v", f, err)
	}
	_ = conn.Send(ctx, handoff.Answer{OK: true})
	return e
}

// withdraws decides the start as the dispatcher does; false when a driver was
// faster.
func (c *clerk) withdraws() bool {
	c.t.Helper()
	err := attempt.Begin(c.d, c.row.ID, c.start, attempt.Begun{What: attempt.Withdrawn, Pid: os.Getpid()})
	if err != nil && !errors.Is(err, attempt.ErrTaken) {
		c.t.Fatal(err)
	}
	return err == nil
}

// again makes a new offer of the same row.
func (c *clerk) again() {
	c.t.Helper()
	c.start++
	c.fence++
	c.token = "a11" + c.token[3:]
	rec := lane.Mine(lane.RoleDispatcher)
	rec.Attempt, rec.Fence = c.row.ID, c.fence
	if err := c.hold.SetOwner(rec); err != nil {
		c.t.Fatal(err)
	}
}

// probe is what a third party finds: it tries to take lane and slots.
func (c *clerk) probe() string {
	c.t.Helper()
	var found []string
	h, err := lane.Take(c.d, c.row.Lane, lane.Mine(lane.RoleRun))
	var held *lane.Held
	switch {
	case err == nil:
		found = append(found, "lane free")
		_ = h.Release()
	case errors.As(err, &held):
		found = append(found, "lane "+held.State.String())
	default:
		c.t.Fatal(err)
	}
	for pool, s := range c.h.Status(context.Background()).Pools {
		if s.Held > 0 {
			found = append(found, pool+" "+s.Holders[0].State)
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

const (
	allOwned = "all running, heavy running, lane held"
	allFree  = "lane free"
)

// atStart is allOwned before there is an agent.
var atStart = strings.ReplaceAll(allOwned, "running", "starting")

func (c *clerk) mustFind(when, want string) {
	c.t.Helper()
	until(c.t, when+", a third party finds", c.probe, want)
}

func (c *clerk) decided() string {
	c.t.Helper()
	by, err := attempt.ReadBegun(c.d, c.row.ID, c.start)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return by.What
}

func (c *clerk) recorded() *record.Run {
	c.t.Helper()
	rec, err := record.Load(c.d, c.row.ID)
	if err != nil {
		c.t.Fatal(err)
	}
	return rec
}

func (c *clerk) output(name string) string {
	c.t.Helper()
	r, err := record.OpenOutput(c.d, c.row.ID, name)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

func (p *place) capped() *place {
	return p.with("HANDSEL_MAX_AGENTS=1", "HANDSEL_MAX_AGENTS_HEAVY=1")
}

// TestDriveRunsWhatWasEnqueued is L11, L14, L17 and C052, C062, C109, C139: the
// agent is started with what was stored, byte for byte, sees none of the
// dispatcher's variables, no descriptor and no token; our own exit status says
// that the driver did its work, however the agent ended.
func TestDriveRunsWhatWasEnqueued(t *testing.T) {
	t.Parallel()
	p := here(t).capped()
	note := p.file("note")
	words := []string{"a b", "it's", "", "$(touch X)", "--", "-n", "*", "line1\nline2", "ä☃", "\xff"}
	c := hire(t, p, "the prompt", append([]string{"pid", note, "then", "until", p.file("go"), "1", "then", "stdin", "then", "fds", "then", "cwd", "then", "env", "then", "args"}, words...)...)
	d := c.driver("drive")
	c.settlesFirst()
	agent := p.noted(note)
	c.mustFind("while it runs", allOwned)
	if st, _, _, _ := stat(d.id.pid); st != d.id || sessionOf(d.id.pid) != d.id.pid {
		t.Errorf("the driver is in session %d", sessionOf(d.id.pid))
	}
	for _, pid := range []int{d.id.pid, agent.pid} {
		for _, what := range []string{"cmdline", "environ"} {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, what))
			if bytes.Contains(text, []byte(c.token)) {
				t.Errorf("the token is in %s of %d", what, pid)
			}
		}
	}
	p.write("go", "\n")
	if e := c.listens(); e.Outcome != "exited" || *e.ExitCode != 0 {
		t.Errorf("told %+v", e)
	}
	if end := d.wait(); end != "exit 0" || d.said() != "" {
		t.Errorf("the driver: %s, %q", end, d.said())
	}
	out := c.output("stdout")
	want := make([]string, len(words))
	for i, w := range words {
		want[i] = fmt.Sprintf("%q", w)
	}
	if !strings.HasSuffix(out, "\n"+strings.Join(want, "\n")+"\n") {
		t.Errorf("the arguments came as %q", out)
	}
	for _, line := range []string{"FOO=new", "BAR=1", "HANDSEL_LANE=the lane", "HANDSEL_ATTEMPT=" + c.row.ID, "HANDSEL_FENCE=7", "HANDSEL_AGENT_DEPTH=1"} {
		if !strings.Contains(out, "\n\""+line+"\"\n") {
			t.Errorf("%s is not in %q", line, out)
		}
	}
	for _, not := range []string{"DISPATCHERS_OWN", "TOKEN", "\n3 "} {
		if strings.Contains(out, not) {
			t.Errorf("%q is in %q", not, out)
		}
	}
	c.mustFind("at the end", allFree)
	tokenNowhere(t, c)
	p.settled()
}

// settlesFirst answers the first claim and closes the clerk's copies.
func (c *clerk) settlesFirst() {
	c.t.Helper()
	conn := c.accepts()
	c.send(conn)
	c.settles(conn)
}

func sessionOf(pid int) int {
	sid, _ := unix.Getsid(pid)
	return sid
}

// tokenNowhere checks that the home holds no token, and that status shows none.
func tokenNowhere(t *testing.T, c *clerk) {
	t.Helper()
	err := filepath.WalkDir(c.p.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(c.token)) {
			t.Errorf("the token is in %s", path)
		}
		return err
	})
	out, _ := must(t, "exit 0", c.p.handsel("status", "--json"))
	if err != nil || strings.Contains(out, c.token) {
		t.Errorf("status: %s, %v", out, err)
	}
}

// TestDriversStatusIsItsOwn: the agent's failure is no failure of the driver.
func TestDriversStatusIsItsOwn(t *testing.T) {
	t.Parallel()
	p := here(t).capped()
	c := hire(t, p, "", "exit", "3")
	d := c.driver("drive")
	c.settlesFirst()
	if e := c.listens(); *e.ExitCode != 3 {
		t.Errorf("told %+v", e)
	}
	if end := d.wait(); end != "exit 0" {
		t.Errorf("the driver: %s, %q", end, d.said())
	}
	if r := c.recorded(); r.Outcome != "exited" || *r.ExitCode != 3 || r.Lane != c.row.Lane || r.Fence != 7 {
		t.Errorf("the record says %+v", r)
	}
	p.settled()
}

// TestClaimEndsAsItsCommandEnds: a driver of one's own runs its own command in
// what was claimed, sees its output, and gets its status or signal.
func TestClaimEndsAsItsCommandEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ step, end string }{{"exit 7", "exit 7"}, {"kill TERM", "signal SIGTERM"}} {
		p := here(t).capped()
		c := hire(t, p, "in", "exit", "0")
		words := append([]string{"claim", "--outcome", p.file("outcome"), "--", fakeagent.Build(t), "print", "hi", "then", "stdin", "then"}, strings.Fields(tt.step)...)
		d := c.driver(words...)
		c.settlesFirst()
		c.listens()
		if end := d.wait(); end != tt.end || !strings.HasPrefix(d.printed(), "hi\n2 ") {
			t.Errorf("claim: %s, %q, %q", end, d.printed(), d.said())
		}
		if text, err := os.ReadFile(p.file("outcome")); err != nil || !strings.Contains(string(text), c.row.ID) {
			t.Errorf("the outcome's file: %s, %v", text, err)
		}
		p.settled()
	}
}

// TestClaimOfWhatIsNoLongerOffered is C029 and C030: an old token and a
// withdrawn offer are refused in one line, with a status of their own.
func TestClaimOfWhatIsNoLongerOffered(t *testing.T) {
	t.Parallel()
	p := here(t).capped()
	c := hire(t, p, "", "touch", p.file("started"))
	refused := c.driver("claim")
	conn := c.accepts()
	if err := conn.Send(t.Context(), handoff.Answer{Code: "no_such_row", Message: "no admitted row for this token"}); err != nil {
		t.Error(err)
	}
	if end := refused.wait(); end != "exit 1" {
		t.Errorf("refused: %s", end)
	}
	oneLine(t, refused.said(), "no admitted row for this token")

	withdrawn := c.driver("drive")
	conn = c.accepts()
	if !c.withdraws() {
		t.Error("a driver was faster than any could be")
	}
	c.send(conn)
	if ack, ok := c.acked(conn); !ok || ack.Begun {
		t.Errorf("acknowledged with %+v, %v", ack, ok)
	}
	if end := withdrawn.wait(); end != "exit 1" {
		t.Errorf("withdrawn: %s", end)
	}
	oneLine(t, withdrawn.said(), "withdrawn")
	c.mustFind("after both", atStart)

	c.ln.Close()
	alone := c.driver("drive")
	if end := alone.wait(); end != "exit 69" {
		t.Errorf("without a dispatcher: %s", end)
	}
	oneLine(t, alone.said())
	_, errs := must(t, "exit 78", p.handsel("claim"))
	oneLine(t, errs, "HANDSEL_TOKEN_FD")
	c.leave()
	c.mustFind("at the end", allFree)
	if exists(p.file("started")) {
		t.Error("something was started")
	}
	p.settled()
}

// TestKilledDriverLeavesTheLaneToItsAgent is S23 and L18: while the agent lives,
// no second owner is possible, for anybody; cancel ends it, and then the lane is
// free.
func TestKilledDriverLeavesTheLaneToItsAgent(t *testing.T) {
	t.Parallel()
	p := here(t).capped()
	note := p.file("note")
	c := hire(t, p, "", "pid", note, "then", "sleep", "600")
	d := c.driver("drive")
	c.settlesFirst()
	agent := p.noted(note)
	c.mustFind("while it runs", allOwned)
	d.id.signal(syscall.SIGKILL)
	d.wait()
	c.mustFind("with the driver dead", "all orphaned, heavy orphaned, lane orphaned")
	q := p.with("HANDSEL_MAX_AGENTS", "HANDSEL_MAX_AGENTS_HEAVY")
	_, errs := must(t, "exit 75", q.agent("--lane", c.row.Lane, "--wait", "0", "--", "touch", p.file("second")))
	oneLine(t, errs, c.row.Lane, fmt.Sprint(agent.pid))
	waiter := start(t, p.agent("--lane", c.row.Lane, "--", "touch", p.file("third")))
	waiter.says("waiting")
	if !agent.alive() || exists(p.file("second")) || exists(p.file("third")) {
		t.Errorf("alive %v, second %v, third %v", agent.alive(), exists(p.file("second")), exists(p.file("third")))
	}
	must(t, "exit 0", p.handsel("cancel", c.row.ID))
	if agent.alive() {
		t.Error("the agent is alive")
	}
	if end := waiter.wait(); end != "exit 0" || !exists(p.file("third")) {
		t.Errorf("the waiter: %s, %q", end, waiter.said())
	}
	if r := c.recorded(); r.State != "ended" || r.Outcome != "cancelled" {
		t.Errorf("the record says %+v", r)
	}
	p.settled()
}

// TestFrozenDriverComesTooLate is C030: a driver that is frozen with everything
// in its hands, and thawed when another has the lane, starts nothing and writes
// over nothing.
func TestFrozenDriverComesTooLate(t *testing.T) {
	t.Parallel()
	p := here(t).capped()
	note := p.file("note")
	c := hire(t, p, "", "log", p.file("ran"), "then", "pid", note, "then", "until", p.file("go"), "1")
	a := c.driver("drive")
	first := c.accepts()
	a.id.signal(syscall.SIGSTOP)
	eventually(t, "it is frozen", func() bool { return allStopped(a.id.pid) })
	c.send(first)
	if !c.withdraws() {
		t.Fatal("a frozen driver decided")
	}
	c.mustFind("with the first frozen", atStart)
	c.again()
	b := c.driver("drive")
	c.settlesFirst()
	p.noted(note)
	c.mustFind("with the second running", allOwned)
	seen, err := lane.Look(c.d, c.row.Lane)
	if err != nil || seen.Record.Holder.Pid != b.id.pid {
		t.Fatalf("the lane is %+v's, %v", seen.Record, err)
	}
	a.id.signal(syscall.SIGCONT)
	if ack, ok := c.acked(first); !ok || ack != (handoff.Ack{Attempt: c.row.ID, Start: 1}) {
		t.Errorf("the first acknowledged with %+v, %v", ack, ok)
	}
	if end := a.wait(); end != "exit 1" {
		t.Errorf("the first: %s, %q", end, a.said())
	}
	oneLine(t, a.said(), "withdrawn")
	after, err := lane.Look(c.d, c.row.Lane)
	if err != nil || after.State != lane.Owned || after.Record.Holder.Pid != b.id.pid || after.Record.Fence != c.fence || after.Record.Child == nil {
		t.Errorf("the lane is %+v's, %v; want the second's still", after.Record, err)
	}
	p.write("go", "\n")
	c.listens()
	if end := b.wait(); end != "exit 0" {
		t.Errorf("the second: %s, %q", end, b.said())
	}
	if text, err := os.ReadFile(p.file("ran")); err != nil || strings.Count(string(text), "S ") != 1 {
		t.Errorf("it ran %q, %v", text, err)
	}
	c.mustFind("at the end", allFree)
	p.settled()
}

// TestLostAnswers is C029: whatever becomes of the answer, lane and slots are in
// a living process's hands or free, the row keeps its place, and another driver
// takes it then.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		lose func(*testing.T, *clerk)
	}{
		{"the driver closes without reading", func(t *testing.T, c *clerk) {
			sock := c.asks(t)
			conn := c.accepts()
			sock.Close()
			g, fds := c.goods()
			_ = conn.Send(t.Context(), g, fds...) // it may or may not arrive
			c.silent(conn)
		}},
		{"the driver shuts its read side down", func(t *testing.T, c *clerk) {
			sock := c.asks(t)
			conn := c.accepts()
			if err := sock.CloseRead(); err != nil {
				t.Error(err)
			}
			g, fds := c.goods()
			_ = conn.Send(t.Context(), g, fds...)
			sock.Close()
			c.silent(conn)
		}},
		{"the driver is killed with everything unread", func(t *testing.T, c *clerk) {
			d := c.driver("drive")
			conn := c.accepts()
			d.id.signal(syscall.SIGSTOP)
			eventually(t, "it is stopped", func() bool { return allStopped(d.id.pid) })
			c.send(conn)
			c.mustFind("with everything on its way", atStart)
			d.id.signal(syscall.SIGKILL)
			d.wait()
			c.silent(conn)
		}},
		{"the driver reads the text and not what came with it", func(t *testing.T, c *clerk) {
			sock := c.asks(t)
			conn := c.accepts()
			c.send(conn)
			buf := make([]byte, 1<<16)
			if n, err := sock.Read(buf); err != nil || !bytes.Contains(buf[:n], []byte(c.row.Lane)) {
				t.Errorf("read %q, %v", buf[:n], err)
			}
			sock.Close()
			c.silent(conn)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := here(t).capped()
			c := hire(t, p, "", "log", p.file("ran"))
			tt.lose(t, c)
			if !c.withdraws() {
				t.Error("it was begun")
			}
			c.mustFind("afterwards", atStart)
			c.again()
			d := c.driver("drive")
			c.settlesFirst()
			c.listens()
			if end := d.wait(); end != "exit 0" {
				t.Errorf("the next driver: %s, %q", end, d.said())
			}
			if text, err := os.ReadFile(p.file("ran")); err != nil || strings.Count(string(text), "S ") != 1 {
				t.Errorf("it ran %q, %v", text, err)
			}
			if r := c.recorded(); r.QueuedAt.UnixMilli() != c.row.QueueStart.UnixMilli() {
				t.Errorf("queued at %v, want %v", r.QueuedAt, c.row.QueueStart)
			}
			c.mustFind("at the end", allFree)
			p.settled()
		})
	}
}

// asks presents the claim by hand.
func (c *clerk) asks(t *testing.T) *net.UnixConn {
	t.Helper()
	sock, err := c.d.DialUnix(t.Context(), home.HandoffSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	text, err := json.Marshal(map[string]any{"v": handoff.Protocol, "type": "claim", "attempt": c.row.ID, "token": c.token})
	if err == nil {
		_, err = sock.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sock
}

// silent checks that nothing was acknowledged.
func (c *clerk) silent(conn *handoff.Conn) {
	c.t.Helper()
	if ack, ok := c.acked(conn); ok {
		c.t.Errorf("acknowledged with %+v", ack)
	}
}

// TestToldDriverEndsItsAgent: TERM to a driver ends the agent's tree, is on
// record as that, and closes the lane; so does cancel.
func TestToldDriverEndsItsAgent(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"signal", "cancel"} {
		p := here(t).capped()
		file := p.file("tree")
		c := hire(t, p, "", "tree", file, "daemon", "shell", "then", "sleep", "600")
		d := c.driver("drive")
		c.settlesFirst()
		tree := p.tree(file, []string{"daemon", "shell"})
		c.mustFind("while it runs", allOwned)
		var cancel *process
		if by == "cancel" {
			cancel = start(t, p.handsel("cancel", c.row.ID))
		} else {
			d.id.signal(syscall.SIGTERM)
		}
		if e := c.listens(); e.Outcome != "cancelled" {
			t.Errorf("%s: told %+v", by, e)
		}
		if end := d.wait(); end != "exit 0" {
			t.Errorf("%s: the driver: %s, %q", by, end, d.said())
		}
		if cancel != nil {
			if end := cancel.wait(); end != "exit 0" {
				t.Errorf("cancel: %s, %q", end, cancel.said())
			}
		}
		for _, m := range tree {
			if m.alive() {
				t.Errorf("%s: %v is alive", by, m)
			}
		}
		if r := c.recorded(); r.State != "ended" || r.Outcome != "cancelled" {
			t.Errorf("%s: the record says %+v", by, r)
		}
		c.mustFind("at the end", allFree)
		p.settled()
	}
}

// TestLimitsOfAnAttempt is L22: what the row says ends the agent.
func TestLimitsOfAnAttempt(t *testing.T) {
	t.Parallel()
	for limit, set := range map[string]func(*attempt.Placement){
		"total": func(p *attempt.Placement) { p.TimeoutS = 0.3 },
		"idle":  func(p *attempt.Placement) { p.IdleS = 0.3 },
	} {
		p := here(t).capped()
		c := hire(t, p, "", "sleep", "600")
		set(&c.row.Placement)
		d := c.driver("claim")
		c.settlesFirst()
		if e := c.listens(); e.Outcome != "timed_out" {
			t.Errorf("%s: told %+v", limit, e)
		}
		if end := d.wait(); end != "exit 124" {
			t.Errorf("%s: claim: %s, %q", limit, end, d.said())
		}
		if r := c.recorded(); r.Outcome != "timed_out" || r.Reason == nil || r.Reason.Code != "limit_"+limit {
			t.Errorf("%s: the record says %+v", limit, r)
		}
		p.settled()
	}
}

// TestDriverReapsWhatItAdopts is C046: a driver adopts what its agent leaves
// behind, and keeps no corpses.
func TestDriverReapsWhatItAdopts(t *testing.T) {
	t.Parallel()
	p := here(t).capped()
	c := hire(t, p, "", "exit", "9")
	d := c.driver("claim", "--", "sh", "-c", `i=0; while [ $i -lt 100 ]; do (setsid true &); i=$((i+1)); done; echo left; until [ -e "$1" ]; do sleep 0.05; done; exit 6`, "sh", p.file("go"))
	c.settlesFirst()
	eventually(t, "all were left", func() bool { return d.out.String() == "left\n" })
	until(t, "dead children of the driver", func() int { return zombies(d.id.pid) }, 0)
	p.write("go", "")
	c.listens()
	if end := d.wait(); end != "exit 6" {
		t.Errorf("claim: %s, %q", end, d.said())
	}
	p.settled()
}

// zombies counts the dead children of a process.
func zombies(pid int) (n int) {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		text, _ := os.ReadFile(name)
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(f) > 2 && f[0] == "Z" && f[1] == fmt.Sprint(pid) {
			n++
		}
	}
	return n
}

// TestDriveLeavesTheRunItWasStartedIn is S21a: a driver that was started inside
// a run is no part of it.
func TestDriveLeavesTheRunItWasStartedIn(t *testing.T) {
	t.Parallel()
	p := here(t).capped()
	c := hire(t, p, "", "until", p.file("go"), "1")
	c.p = p.with("HANDSEL_RUN=" + record.NewID())
	d := c.driver("drive")
	c.settlesFirst()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", d.id.pid))
	if err != nil || bytes.Contains(text, []byte("HANDSEL_RUN=")) {
		t.Errorf("the driver carries %q, %v", text, err)
	}
	p.write("go", "\n")
	c.listens()
	if end := d.wait(); end != "exit 0" {
		t.Errorf("the driver: %s, %q", end, d.said())
	}
	p.settled()
}

// detached starts `run --detach` and returns the run's id.
func (p *place) detached(words ...string) string {
	p.t.Helper()
	c := p.agent(append([]string{"--detach"}, words...)...)
	out, errs := must(p.t, "exit 0", c)
	id := strings.TrimSuffix(out, "\n")
	if len(id) != 36 || errs != "" {
		p.t.Fatalf("%q said %q, %q", c.Args, out, errs)
	}
	return id
}

// TestDetachedRunWaitsByItself: it returns at once, is queued on record, holds
// up nobody's pipes or locks, is waited for, and gets its turn.
func TestDetachedRunWaitsByItself(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, _ := p.holding("holder")
	lock := p.write("outer.lock", "")
	c := p.command("sh", "-c", `exec 9>>"$1"; flock 9; shift; "$@"`, "sh", lock, p.bin, "run", "--detach", "--lane", "L", "--label", "batch=7", "--", fakeagent.Build(t), "print", "done", "then", "exit", "3")
	out, errs := must(t, "exit 0", c)
	id := strings.TrimSuffix(out, "\n")
	if errs != "" {
		t.Errorf("it said %q", errs)
	}
	if end, _, _ := ends(t, p.command("flock", "-n", lock, "true")); end != "exit 0" {
		t.Errorf("the caller's lock is kept: %s", end)
	}
	until(t, "it waits", func() string { return p.recordFor(id).State }, "queued")
	p.awaits(1)
	waiter := start(t, p.handsel("wait", id))
	_, lane := must(t, "exit 75", p.with("HANDSEL_MAX_AGENTS").agent("--lane", "L", "--wait", "0", "--", "exit", "0"))
	oneLine(t, lane, "L")
	holder.closeIn()
	if end := waiter.wait(); end != "exit 1" || !strings.Contains(waiter.printed(), id) {
		t.Errorf("wait: %s, %q, %q", end, waiter.printed(), waiter.said())
	}
	if r := p.recordFor(id); r.State != "ended" || r.Outcome != "exited" {
		t.Errorf("its record says %+v", r)
	}
	files, _ := filepath.Glob(filepath.Join(p.home, "runs", "*", id, "stdout"))
	if len(files) != 1 {
		t.Fatalf("%d outputs", len(files))
	}
	if text, err := os.ReadFile(files[0]); err != nil || string(text) != "done\n" {
		t.Errorf("its output is %q, %v", text, err)
	}
	p.settled()
}

// TestDetachedRunIsCancelledWhileItWaits, and while it runs.
func TestDetachedRunIsCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	note := p.file("note")
	first := p.detached("--", "pid", note, "then", "sleep", "600")
	agent := p.noted(note)
	second := p.detached("--", "touch", p.file("started"))
	p.awaits(1)
	must(t, "exit 0", p.handsel("cancel", second))
	if r := p.recordFor(second); r.State != "ended" || r.Outcome != "cancelled" || exists(p.file("started")) {
		t.Errorf("the second: %+v", r)
	}
	must(t, "exit 0", p.handsel("cancel", first))
	if r := p.recordFor(first); r.State != "ended" || r.Outcome != "cancelled" || agent.alive() {
		t.Errorf("the first: %+v", r)
	}
	p.settled()
}

// TestDetachedRunIsRefusedInTheForeground: what cannot be started is said by the
// command that was typed, and leaves nothing behind.
func TestDetachedRunIsRefusedInTheForeground(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	for _, tt := range []struct {
		end  string
		part string
		cmd  *exec.Cmd
	}{
		{"exit 78", "--wait", p.agent("--detach", "--wait", "soon", "--", "exit", "0")},
		{"exit 78", "engine", p.agent("--detach", "--engine", "nobody", "--", "exit", "0")},
		{"exit 2", "command", p.handsel("run", "--detach")},
		{"exit 2", "keep-fd", p.agent("--detach", "--keep-fd", "3", "--", "exit", "0")},
		{"exit 2", "--detached", p.agent("--detached", "7", "--", "exit", "0")},
		{"exit 125", "directory", p.agent("--detach", "-C", p.file("nowhere"), "--", "exit", "0")},
		{"exit 78", "HANDSEL_MAX_AGENTS", p.with("HANDSEL_MAX_AGENTS=many").agent("--detach", "--", "exit", "0")},
		{"exit 1", "inside", p.with("HANDSEL_AGENT_DEPTH=1").agent("--detach", "--", "exit", "0")},
	} {
		out, errs := must(t, tt.end, tt.cmd)
		if out != "" {
			t.Errorf("%q: it printed %q", tt.cmd.Args, out)
		}
		oneLine(t, errs, tt.part)
	}
	if runs, _ := filepath.Glob(filepath.Join(p.home, "runs", "*", "*", "run.json")); len(runs) != 0 {
		t.Errorf("on record: %q", runs)
	}
	p.settled()
}

// TestDetachedRunGivesUpInTime: with --wait its refusal is its record.
func TestDetachedRunGivesUpInTime(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, _ := p.holding("holder")
	id := p.detached("--wait", "0.2", "--", "touch", p.file("started"))
	until(t, "it has given up", func() string { return p.recordFor(id).Outcome }, "refused")
	must(t, "exit 1", p.handsel("wait", id))
	holder.closeIn()
	holder.wait()
	if exists(p.file("started")) {
		t.Error("it was started")
	}
	p.settled()
}
