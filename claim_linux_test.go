package handsel_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/record"
)

// clerk stands in for the dispatcher: it has one admitted row, whose lane and
// slots it really holds, and grants it over the real socket.
type clerk struct {
	mu    sync.Mutex // guards hold and lease
	t     *testing.T
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

// hire makes a clerk with a row for argv in a home of the test's own.
func hire(t *testing.T, vars map[string]string, p attempt.Payload) *clerk {
	t.Helper()
	h := open(t, vars)
	d, err := home.Locate(func(name string) string {
		if name == "HANDSEL_HOME" {
			return h.Path()
		}
		return ""
	})
	if err == nil {
		err = d.Ensure()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &clerk{t: t, h: h, d: d, start: 1, fence: 7, token: "0123456789abcdef0123456789abcdef"}
	c.row = attempt.Row{
		V: 1, Lane: "a lane/1", ID: record.NewID(), QueueStart: attempt.At(time.Now()), State: attempt.Starting,
		Placement: attempt.Placement{Cwd: t.TempDir(), Workload: handsel.Heavy, Confinement: "none"},
		Author:    "me", Labels: map[string]string{"batch": "7"}, Argv0: "sh", Argc: len(p.Argv), Starts: 1,
	}
	if p.Cwd == nil {
		p.Cwd = []byte(c.row.Placement.Cwd)
	}
	if err := attempt.Write(d, c.row.ID, &p); err != nil {
		t.Fatal(err)
	}
	rec := lane.Mine(lane.RoleDispatcher)
	rec.Attempt = c.row.ID
	if c.hold, err = lane.Take(d, c.row.Lane, rec); err != nil {
		t.Fatal(err)
	}
	if c.lease, err = h.Acquire(t.Context(), handsel.Start{Run: c.row.ID}); err != nil {
		t.Fatal(err)
	}
	if c.ln, err = handoff.Listen(d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.ln.Close()
		c.leave()
	})
	return c
}

func shell(script string) attempt.Payload {
	return attempt.Payload{
		Argv: attempt.Bytes([]string{"sh", "-c", script}),
		Env:  attempt.Bytes([]string{"PATH=/usr/bin:/bin", "FOO=new", "HANDSEL_FENCE=99"}),
	}
}

// leave closes the clerk's copies and leaves what they say to whoever has others.
func (c *clerk) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold != nil {
		c.hold.Keep()
		c.hold = nil
	}
	if c.lease != nil {
		_ = c.lease.HandOver() // an empty one has nothing to hand over
		c.lease = nil
	}
}

// goods are the descriptors that go with a grant, in their order.
func (c *clerk) goods() (refs []handoff.SlotRef, fds []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fds = []int{c.hold.Fd()}
	for _, s := range c.lease.Slots() {
		refs = append(refs, handoff.SlotRef{Pool: s.Pool, Index: s.Index, Cap: s.Cap})
		fds = append(fds, s.Fd)
	}
	return refs, fds
}

func (c *clerk) granted(refs []handoff.SlotRef) handoff.Granted {
	return handoff.Granted{Answer: handoff.Answer{OK: true, Attempt: c.row.ID}, Row: c.row, Fence: c.fence, Start: c.start, Slots: refs}
}

// answers accepts one connection, receives what is said there and has reply
// answer it. What reply returns is sent on the channel once all is closed.
func (c *clerk) answers(reply func(*handoff.Conn, *handoff.Frame) any) <-chan any {
	done := make(chan any, 1)
	go func() { done <- c.answer(reply) }()
	return done
}

func (c *clerk) answer(reply func(*handoff.Conn, *handoff.Frame) any) any {
	conn, err := c.ln.Accept(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	f, err := conn.Receive(context.Background())
	if err != nil {
		return err
	}
	f.CloseFds()
	return reply(conn, f)
}

// grants answers one claim as the dispatcher does, with fds instead of the right
// ones if there are any, and returns what is acknowledged: a handoff.Ack.
func (c *clerk) grants(edit func(*handoff.Granted, []int) []int) <-chan any {
	return c.answers(func(conn *handoff.Conn, f *handoff.Frame) any {
		refs, fds := c.goods()
		g := c.granted(refs)
		if edit != nil {
			fds = edit(&g, fds)
		}
		if err := conn.Send(context.Background(), g, fds...); err != nil {
			return err
		}
		return receive[handoff.Ack](conn)
	})
}

func receive[M handoff.Message](conn *handoff.Conn) any {
	var m M
	f, err := conn.Receive(context.Background())
	if err != nil {
		return err
	}
	defer f.CloseFds()
	if f.Type != m.Type() {
		return fmt.Errorf("a message of type %q", f.Type)
	}
	if err := f.Decode(&m); err != nil {
		return err
	}
	return m
}

func (c *clerk) claim() (*handsel.Claimed, error) {
	return c.h.Claim(c.t.Context(), handsel.ClaimOptions{Attempt: c.row.ID, Token: c.token})
}

// owner is who has the lane as a third party sees it, by trying to take it.
func (c *clerk) owner() *lane.Record {
	c.t.Helper()
	h, err := lane.Take(c.d, c.row.Lane, lane.Mine(lane.RoleRun))
	var held *lane.Held
	switch {
	case err == nil:
		if err := h.Release(); err != nil {
			c.t.Error(err)
		}
		return nil
	case !errors.As(err, &held):
		c.t.Fatal(err)
	}
	return held.Record
}

// mustOwn checks that a third party finds the lane owned in that role.
func (c *clerk) mustOwn(role string) {
	c.t.Helper()
	if r := c.owner(); r == nil || r.Role != role || r.Attempt != c.row.ID {
		c.t.Errorf("the lane is %+v's, want the %s's", r, role)
	}
	if l, err := c.h.Acquire(c.t.Context(), handsel.Start{}); err == nil && !l.Empty() {
		c.t.Error("somebody else was admitted")
		_ = l.Release()
	}
}

// mustFree checks that nobody has a copy of lane or slots.
func (c *clerk) mustFree() {
	c.t.Helper()
	if r := c.owner(); r != nil {
		c.t.Errorf("the lane is still owned: %+v", r)
	}
	l, err := c.h.Acquire(c.t.Context(), handsel.Start{})
	if err != nil {
		c.t.Error("a slot is still held:", err)
		return
	}
	_ = l.Release()
}

// undecided checks that nothing was begun.
func (c *clerk) undecided() {
	c.t.Helper()
	if by, err := attempt.ReadBegun(c.d, c.row.ID, c.start); !errors.Is(err, fs.ErrNotExist) {
		c.t.Errorf("the start was decided: %+v, %v", by, err)
	}
	if _, err := record.Load(c.d, c.row.ID); !errors.Is(err, fs.ErrNotExist) {
		c.t.Errorf("there is a record: %v", err)
	}
}

var capped = map[string]string{"HANDSEL_MAX_AGENTS": "1", "HANDSEL_MAX_AGENTS_HEAVY": "1", "HANDSEL_ADMIT_WAIT": "0"}

// L14, L17: what came is ours from the moment it came, the dispatcher is needed
// for nothing, and the lane is closed last.
func TestClaimedAttemptRunsAndClosesItsLaneLast(t *testing.T) {
	p := shell(`cat; pwd; env | sort; exit 3`)
	p.Stdin, p.HasStdin = []byte("the prompt\n"), true
	c := hire(t, capped, p)
	before := openFDs(t)
	acked := c.grants(nil)
	claimed, err := c.claim()
	if err != nil {
		t.Fatal(err)
	}
	if ack := <-acked; ack != (handoff.Ack{Attempt: c.row.ID, Start: 1, Begun: true}) {
		t.Fatalf("acknowledged with %+v", ack)
	}
	if by, err := attempt.ReadBegun(c.d, c.row.ID, 1); err != nil || by.What != attempt.Began || by.Pid != os.Getpid() {
		t.Errorf("begun: %+v, %v", by, err)
	}
	c.leave()
	c.mustOwn(lane.RoleDriver)
	told := c.answers(func(conn *handoff.Conn, f *handoff.Frame) any {
		var e handoff.Ended
		if err := f.Decode(&e); err != nil {
			return err
		}
		rec, err := record.Load(c.d, c.row.ID)
		if err != nil || rec.State != record.Ended || c.owner() == nil {
			t.Errorf("the dispatcher was told while the record says %+v, %v and the lane is %+v's", rec, err, c.owner())
		}
		_ = conn.Send(context.Background(), handoff.Answer{OK: true})
		return e
	})
	out, err := claimed.Run(t.Context(), handsel.RunOptions{})
	if err != nil || out.ExitCode != 3 || out.Run != c.row.ID || len(out.Warnings) > 0 {
		t.Errorf("Run = %+v, %v", out, err)
	}
	if e, ok := (<-told).(handoff.Ended); !ok || e.Outcome != "exited" || e.ExitCode == nil || *e.ExitCode != 3 || e.Start != 1 {
		t.Errorf("told %+v", e)
	}
	c.mustFree()
	if rec := c.recorded(); rec.Outcome != "exited" || *rec.ExitCode != 3 || rec.Lane != c.row.Lane || rec.Fence != 7 || rec.Author != "me" ||
		rec.Labels["batch"] != "7" || len(rec.Pools) != 2 || rec.QueuedAt.UnixMilli() != c.row.QueueStart.UnixMilli() {
		t.Errorf("the record says %+v", rec)
	}
	if seen, err := lane.Look(c.d, c.row.Lane); err != nil || seen.Record == nil || seen.Record.Fence != 7 || seen.Record.Holder != nil {
		t.Errorf("the free lane says %+v, %v; want its name and fence", seen.Record, err)
	}
	c.output("stdout", "the prompt", c.row.Placement.Cwd, "FOO=new", "HANDSEL_LANE="+c.row.Lane, "HANDSEL_ATTEMPT="+c.row.ID,
		"HANDSEL_FENCE=7", "HANDSEL_RUN="+c.row.ID, "HANDSEL_AGENT_DEPTH=1", "HANDSEL_HOME="+c.h.Path())
	if after := openFDs(t); after >= before {
		t.Errorf("%d descriptors open, had %d with the clerk's", after, before)
	}
}

func (c *clerk) recorded() *record.Run {
	c.t.Helper()
	rec, err := record.Load(c.d, c.row.ID)
	if err != nil {
		c.t.Fatal(err)
	}
	return rec
}

// output checks that what was kept has these lines.
func (c *clerk) output(name string, lines ...string) string {
	c.t.Helper()
	r, err := record.OpenOutput(c.d, c.row.ID, name)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	buf := make([]byte, 1<<16)
	n, _ := r.Read(buf)
	text := "\n" + string(buf[:n])
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			c.t.Errorf("%q is not a line of %q", line, text)
		}
	}
	return text
}

// C052: of the variables of whoever drives, none reaches the agent.
func TestAgentGetsNothingOfItsDriversEnvironment(t *testing.T) {
	t.Setenv("DRIVERS_OWN", "x")
	t.Setenv("FOO", "old")
	c := hire(t, capped, shell(`env`))
	acked := c.grants(nil)
	claimed, err := c.claim()
	if err != nil {
		t.Fatal(err, <-acked)
	}
	c.leave()
	c.ln.Close()
	if _, err := claimed.Run(t.Context(), handsel.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{
		"PATH": true, "FOO": true, "HANDSEL_LANE": true, "HANDSEL_ATTEMPT": true, "HANDSEL_FENCE": true, "HANDSEL_RUN": true,
		"HANDSEL_AGENT_DEPTH": true, "HANDSEL_HOME": true, "PWD": true, "OLDPWD": true, "_": true, "SHLVL": true, // the last four are the shell's
	}
	for entry := range strings.FieldsSeq(c.output("stdout", "FOO=new")) {
		if name, _, ok := strings.Cut(entry, "="); ok && !allowed[name] {
			t.Errorf("the agent has %s", entry)
		}
	}
}

// L6, L7, L14: what does not prove the lane and every slot starts nothing, is
// closed to the last descriptor, and leaves lane, slots and records to the
// dispatcher, which is told so.
func TestUnprovenGrantStartsNothing(t *testing.T) {
	for name, edit := range map[string]func(c *clerk, g *handoff.Granted, fds []int) []int{
		"a slot where the lane should be": func(_ *clerk, _ *handoff.Granted, fds []int) []int { return []int{fds[1], fds[0], fds[2]} },
		"slots in another order":          func(_ *clerk, _ *handoff.Granted, fds []int) []int { return []int{fds[0], fds[2], fds[1]} },
		"no slot's descriptor":            func(_ *clerk, _ *handoff.Granted, fds []int) []int { return fds[:2] },
		"no descriptor":                   func(_ *clerk, _ *handoff.Granted, fds []int) []int { return nil },
		"one too many":                    func(_ *clerk, _ *handoff.Granted, fds []int) []int { return append(fds, fds[0]) },
		"the same slot twice":             func(_ *clerk, _ *handoff.Granted, fds []int) []int { return []int{fds[0], fds[1], fds[1]} },
		"another lane's": func(c *clerk, _ *handoff.Granted, fds []int) []int {
			other, err := lane.Take(c.d, "other", lane.Mine(lane.RoleDispatcher))
			if err != nil {
				c.t.Error(err)
			}
			c.t.Cleanup(other.Keep)
			return []int{other.Fd(), fds[1], fds[2]}
		},
		"the lane's file without its lock": func(c *clerk, _ *handoff.Granted, fds []int) []int {
			fd, err := unix.Open(filepath.Join(c.d.Lanes(), lane.FileName(c.row.Lane)), unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				c.t.Error(err)
			}
			c.t.Cleanup(func() { unix.Close(fd) })
			return []int{fd, fds[1], fds[2]}
		},
		"a pipe": func(c *clerk, _ *handoff.Granted, fds []int) []int {
			r, w, _ := os.Pipe()
			c.t.Cleanup(func() { r.Close(); w.Close() })
			return []int{int(w.Fd()), fds[1], fds[2]}
		},
		"a slot that is not named": func(_ *clerk, g *handoff.Granted, fds []int) []int {
			g.Slots = g.Slots[:1]
			return fds
		},
		"a pool that is none": func(_ *clerk, g *handoff.Granted, fds []int) []int {
			g.Slots[0].Pool = "../lanes"
			return fds
		},
		"a lane that is not the row's": func(_ *clerk, g *handoff.Granted, fds []int) []int {
			g.Row.Lane = "other"
			return fds
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := hire(t, capped, shell("true"))
			acked := c.grants(func(g *handoff.Granted, fds []int) []int { return edit(c, g, fds) })
			began := false
			claimed, err := c.h.Claim(t.Context(), handsel.ClaimOptions{Attempt: c.row.ID, Token: c.token, Beginning: func() { began = true }})
			var unproven *handsel.NotProven
			if !errors.As(err, &unproven) || claimed != nil || began {
				t.Fatalf("Claim = %v, %v; want *NotProven", claimed, err)
			}
			if ack := <-acked; ack != (handoff.Ack{Attempt: c.row.ID, Start: 1}) {
				t.Errorf("the dispatcher was told %+v", ack)
			}
			c.undecided()
			c.mustOwn(lane.RoleDispatcher)
			c.leave()
			c.mustFree()
		})
	}
}

// A refused claim takes nothing and leaves no descriptor behind, also when a
// refusal brings some.
func TestRefusedClaimKeepsNothing(t *testing.T) {
	c := hire(t, capped, shell("true"))
	for _, reply := range []handoff.Message{
		handoff.Answer{Code: "no_such_row", Message: "no admitted row for this token"},
		handoff.Granted{Answer: handoff.Answer{Message: "no admitted row for this token"}},
	} {
		done := c.answers(func(conn *handoff.Conn, _ *handoff.Frame) any {
			_, fds := c.goods()
			return conn.Send(context.Background(), reply, fds...)
		})
		before := openFDs(t)
		_, err := c.claim()
		<-done
		var refused *handsel.ClaimRefused
		if !errors.As(err, &refused) || refused.Message != "no admitted row for this token" || strings.Contains(err.Error(), c.token) {
			t.Errorf("Claim = %v, want the refusal", err)
		}
		if after := openFDs(t); after > before {
			t.Errorf("%d descriptors open, had %d", after, before)
		}
	}
	c.undecided()
	c.mustOwn(lane.RoleDispatcher)
	c.leave()
	c.mustFree()
}

// An answer that is none to this claim is no grant.
func TestStrangeGrantStartsNothing(t *testing.T) {
	c := hire(t, capped, shell("true"))
	for name, edit := range map[string]func(*handoff.Granted){
		"another attempt": func(g *handoff.Granted) { g.Row.ID = record.NewID() },
		"no start":        func(g *handoff.Granted) { g.Start = 0 },
	} {
		done := c.grants(func(g *handoff.Granted, fds []int) []int { edit(g); return fds })
		if _, err := c.claim(); err == nil {
			t.Errorf("%s: it was taken for a grant", name)
		}
		<-done
		c.undecided()
		c.mustOwn(lane.RoleDispatcher)
	}
	c.leave()
	c.mustFree()
}

// C029: the answer is lost at any of its bytes. Nothing is started, and no copy
// of what had come stays anywhere.
func TestAnswerLostAtEachByteStartsNothing(t *testing.T) {
	c := hire(t, capped, shell("true"))
	refs, fds := c.goods()
	frame := frameOf(t, c.granted(refs))
	step := 1
	if testing.Short() {
		step = 97
	}
	before := 0
	for cut := 0; cut < len(frame); cut += step {
		done := make(chan error, 1)
		sock := c.raw()
		go func() { done <- loseAnswer(sock, frame[:cut], fds) }()
		if _, err := c.claim(); err == nil {
			t.Fatalf("cut at %d of %d bytes: it was taken for a grant", cut, len(frame))
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		sock.Close()
		now := openFDs(t)
		if before == 0 {
			before = now
		}
		if now != before {
			t.Fatalf("cut at %d: %d descriptors open, had %d", cut, now, before)
		}
	}
	c.undecided()
	c.mustOwn(lane.RoleDispatcher)
	c.leave()
	c.mustFree()
}

// frameOf is a message as it travels (L23).
func frameOf(t *testing.T, msg handoff.Message) []byte {
	t.Helper()
	text, err := json.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte(`{"v":1,"type":"`+msg.Type()+`",`), text[1:]...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// raw is the socket without its protocol, instead of the clerk's listener.
func (c *clerk) raw() *net.UnixListener {
	c.t.Helper()
	sock, err := c.d.ListenUnix(home.HandoffSocket)
	if err != nil {
		c.t.Fatal(err)
	}
	return sock
}

// loseAnswer reads a claim, answers with a part of a frame, and is gone.
func loseAnswer(sock *net.UnixListener, part []byte, fds []int) error {
	conn, err := sock.AcceptUnix()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 4096)); err != nil || len(part) == 0 {
		return err
	}
	_, _, err = conn.WriteMsgUnix(part, unix.UnixRights(fds...), nil)
	return err
}

// L14: an acknowledgement that cannot be delivered stops nothing.
func TestUndeliverableAckStopsNothing(t *testing.T) {
	c := hire(t, capped, shell("exit 4"))
	done := c.answers(func(conn *handoff.Conn, _ *handoff.Frame) any {
		refs, fds := c.goods()
		err := conn.Send(context.Background(), c.granted(refs), fds...)
		c.ln.Close()
		return err
	})
	claimed, err := c.claim()
	if err != nil {
		t.Fatal(err)
	}
	<-done
	c.leave()
	c.mustOwn(lane.RoleDriver)
	out, err := claimed.Run(t.Context(), handsel.RunOptions{})
	if err != nil || out.ExitCode != 4 {
		t.Errorf("Run = %+v, %v", out, err)
	}
	if rec := c.recorded(); rec.Outcome != "exited" || *rec.ExitCode != 4 {
		t.Errorf("the record says %+v", rec)
	}
	c.mustFree()
}

// C030: an offer that was withdrawn is begun by nobody, at whatever step that is
// noticed; and before anything is written if it was withdrawn before.
func TestWithdrawnOfferStartsNothing(t *testing.T) {
	withdraw := func(c *clerk) {
		if err := attempt.Begin(c.d, c.row.ID, c.start, attempt.Begun{What: attempt.Withdrawn, Pid: os.Getpid()}); err != nil {
			c.t.Error(err)
		}
	}
	for name, tt := range map[string]struct {
		before, beginning func(*clerk)
		role              string
	}{
		"before the claim is granted": {before: withdraw, role: lane.RoleDispatcher},
		"at the last moment":          {beginning: withdraw, role: lane.RoleDriver},
		"by a later grant": {before: func(c *clerk) {
			rec := c.hold.Record()
			rec.Fence = c.fence + 1
			if err := c.hold.SetOwner(rec); err != nil {
				c.t.Error(err)
			}
		}, role: lane.RoleDispatcher},
	} {
		t.Run(name, func(t *testing.T) {
			c := hire(t, capped, shell("true"))
			if tt.before != nil {
				tt.before(c)
			}
			acked := c.grants(nil)
			before := openFDs(t)
			claimed, err := c.h.Claim(t.Context(), handsel.ClaimOptions{Attempt: c.row.ID, Token: c.token, Beginning: func() {
				if tt.beginning != nil {
					tt.beginning(c)
				}
			}})
			if !errors.Is(err, handsel.ErrWithdrawn) || claimed != nil {
				t.Fatalf("Claim = %v, %v; want ErrWithdrawn", claimed, err)
			}
			if ack := <-acked; ack != (handoff.Ack{Attempt: c.row.ID, Start: 1}) {
				t.Errorf("the dispatcher was told %+v", ack)
			}
			if after := openFDs(t); after > before {
				t.Errorf("%d descriptors open, had %d", after, before)
			}
			c.mustOwn(tt.role) // who wrote last; the lock is the clerk's
			c.leave()
			c.mustFree()
			if _, err := record.Load(c.d, c.row.ID); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("there is a record: %v", err)
			}
		})
	}
}

// A decision that cannot be read may be either: nothing is begun on it.
func TestUnreadableDecisionBeginsNothing(t *testing.T) {
	c := hire(t, capped, shell("true"))
	dirs, _ := filepath.Glob(filepath.Join(c.d.Runs(), "*", c.row.ID))
	if len(dirs) != 1 {
		t.Fatal(dirs)
	}
	if err := os.WriteFile(filepath.Join(dirs[0], "begun.1"), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	acked := c.grants(nil)
	if claimed, err := c.claim(); err == nil || claimed != nil {
		t.Errorf("Claim = %v, %v", claimed, err)
	}
	if ack := <-acked; ack != (handoff.Ack{Attempt: c.row.ID, Start: 1}) {
		t.Errorf("the dispatcher was told %+v", ack)
	}
	c.leave()
	c.mustFree()
}

// Without a payload there is nothing to run, which is found out while nothing is
// begun.
func TestMissingPayloadBeginsNothing(t *testing.T) {
	c := hire(t, capped, shell("true"))
	if err := attempt.Discard(c.d, c.row.ID); err != nil {
		t.Fatal(err)
	}
	acked := c.grants(nil)
	if _, err := c.claim(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Claim = %v", err)
	}
	if ack := <-acked; ack != (handoff.Ack{Attempt: c.row.ID, Start: 1}) {
		t.Errorf("the dispatcher was told %+v", ack)
	}
	c.undecided()
	c.mustOwn(lane.RoleDispatcher)
	c.leave()
	c.mustFree()
}

// Where nothing is counted, a lane comes without slots.
func TestUncountedClaimNeedsNoSlots(t *testing.T) {
	c := hire(t, nil, shell("exit 5"))
	acked := c.grants(nil)
	claimed, err := c.claim()
	if err != nil {
		t.Fatal(err)
	}
	<-acked
	c.leave()
	c.ln.Close()
	if r := c.owner(); r == nil || r.Role != lane.RoleDriver {
		t.Errorf("the lane is %+v's", r)
	}
	if out, err := claimed.Run(t.Context(), handsel.RunOptions{}); err != nil || out.ExitCode != 5 {
		t.Errorf("Run = %+v, %v", out, err)
	}
	if r := c.owner(); r != nil {
		t.Errorf("the lane is %+v's after the run", r)
	}
	if exists, _ := filepath.Glob(c.d.Leases() + "/*"); len(exists) != 0 {
		t.Errorf("slots were made: %q", exists)
	}
}

// A claimed attempt that is given up is on record as not started, and everything
// is free.
func TestAbandonedAttemptIsRecorded(t *testing.T) {
	c := hire(t, capped, shell("true"))
	acked := c.grants(nil)
	claimed, err := c.claim()
	if err != nil {
		t.Fatal(err)
	}
	<-acked
	c.leave()
	told := c.answers(func(_ *handoff.Conn, f *handoff.Frame) any {
		var e handoff.Ended
		_ = f.Decode(&e)
		return e
	})
	if err := claimed.Abandon(); err != nil {
		t.Error(err)
	}
	if e, ok := (<-told).(handoff.Ended); !ok || e.Outcome != "not_started" || e.ExitCode != nil {
		t.Errorf("told %+v", e)
	}
	if rec := c.recorded(); rec.State != "ended" || rec.Outcome != "not_started" || rec.Reason == nil || rec.Lane != c.row.Lane || rec.ExitCode != nil {
		t.Errorf("the record says %+v", rec)
	}
	c.mustFree()
}

// The command of a claim may be another than the one that was enqueued; all
// else is the attempt's.
func TestClaimMayRunAnotherCommand(t *testing.T) {
	p := shell("exit 9")
	p.Stdin, p.HasStdin = []byte("in\n"), true
	c := hire(t, capped, p)
	acked := c.grants(nil)
	claimed, err := c.claim()
	if err != nil {
		t.Fatal(err)
	}
	<-acked
	c.leave()
	c.ln.Close()
	argv := []string{"sh", "-c", `cat; for a; do echo "<$a>"; done; pwd; echo $FOO`, "sh", "a b", "", "$(touch X)", "--", "\xff"}
	if out, err := claimed.Run(t.Context(), handsel.RunOptions{Argv: argv}); err != nil || out.ExitCode != 0 {
		t.Errorf("Run = %+v, %v", out, err)
	}
	c.output("stdout", "in", "<a b>", "<>", "<$(touch X)>", "<-->", "<\xff>", c.row.Placement.Cwd, "new")
	c.mustFree()
}

// C139: an offer is read from its descriptor once, and is nobody else's then.
func TestOfferIsReadOnce(t *testing.T) {
	c := hire(t, capped, shell("true"))
	c.ln.Close()
	r, w := openPipe(t, c.row.ID+"\n"+c.token+"\n")
	defer unix.Close(w) // whoever starts a driver may keep its end
	t.Setenv("HANDSEL_TOKEN_FD", fmt.Sprint(r))
	_, err := c.h.Claim(t.Context(), handsel.ClaimOptions{})
	var nobody *handsel.NoDispatcher
	if !errors.As(err, &nobody) {
		t.Errorf("Claim = %v; want *NoDispatcher", err)
	}
	if text, set := os.LookupEnv("HANDSEL_TOKEN_FD"); set {
		t.Errorf("the variable is still there: %q", text)
	}
	if _, err := unix.FcntlInt(uintptr(r), unix.F_GETFD, 0); err == nil {
		t.Error("the descriptor is still open")
	}
}

// pipeWith is the number of a pipe's end from which text can be read, then the
// end of file.
func pipeWith(t *testing.T, text string) int {
	t.Helper()
	r, w := openPipe(t, text)
	unix.Close(w)
	return r
}

func openPipe(t *testing.T, text string) (r, w int) {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(ends[1], []byte(text)); err != nil {
		t.Fatal(err)
	}
	return ends[0], ends[1]
}

// What is no offer is refused, without a word of what was there: it may be a
// token. A descriptor that is no pipe is somebody's, and is left alone.
func TestBadOffersAreRefused(t *testing.T) {
	h := open(t, nil)
	id := record.NewID()
	for name, text := range map[string]string{
		"nothing": "", "a line": id + "\n", "no hex": id + "\nhunter2\n", "empty token": id + "\n\n", "empty attempt": "\nabcd\n",
		"odd digits": id + "\nabc\n", "too much": id + "\n" + strings.Repeat("ab", 2000) + "\n",
	} {
		fd := pipeWith(t, text)
		t.Setenv("HANDSEL_TOKEN_FD", fmt.Sprint(fd))
		_, err := h.Claim(t.Context(), handsel.ClaimOptions{})
		var bad *handsel.BadOffer
		if !errors.As(err, &bad) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "abab") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			t.Errorf("%s: the pipe is still open", name)
			unix.Close(fd)
		}
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, text := range []string{"", "x", "-1", "0", "2", "99999", fmt.Sprint(file.Fd())} {
		t.Setenv("HANDSEL_TOKEN_FD", text)
		_, err := h.Claim(t.Context(), handsel.ClaimOptions{})
		var bad *handsel.BadOffer
		if !errors.As(err, &bad) {
			t.Errorf("HANDSEL_TOKEN_FD=%q: %v", text, err)
		}
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0); err != nil {
		t.Error("a descriptor that is no offer was closed")
	}
	for _, o := range []handsel.ClaimOptions{{Attempt: id}, {Token: "ab"}, {Attempt: id, Token: "x"}} {
		if _, err := h.Claim(t.Context(), o); !errors.As(err, new(*handsel.BadOffer)) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// configured are the variables of a clerk whose user has this configuration.
func configured(t *testing.T, text string) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"HANDSEL_CONFIG": file}
	for name, value := range capped {
		vars[name] = value
	}
	return vars
}

// L12: secrets reach the agent over what was stored for it, and no file.
func TestSecretsReachTheAgentAndNoFile(t *testing.T) {
	p := shell(`test "$A_KEY" = hunter2 && test "$FOO" = hunter2`)
	c := hire(t, configured(t, "[credentials.claude]\ncommand = [\"printf\", \"A_KEY=hunter2\\nFOO=hunter2\\n\"]\n"), p)
	c.row.Placement.Engine, c.row.Placement.TimeoutS = "claude", 60
	acked := c.grants(nil)
	claimed, err := c.claim()
	if err != nil {
		t.Fatal(err)
	}
	<-acked
	c.leave()
	c.ln.Close()
	if out, err := claimed.Run(t.Context(), handsel.RunOptions{}); err != nil || out.ExitCode != 0 {
		t.Errorf("Run = %+v, %v", out, err)
	}
	c.mustFree()
	c.nowhere("hunter2")
}

// nowhere checks that no file of the home holds a text.
func (c *clerk) nowhere(text string) {
	c.t.Helper()
	err := filepath.WalkDir(c.h.Path(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			c.t.Errorf("%s holds it: %s", path, data)
		}
		return err
	})
	if err != nil {
		c.t.Error(err)
	}
}

// An attempt whose secrets cannot be had is on record as not started.
func TestAttemptWithoutItsSecretsIsNotStarted(t *testing.T) {
	for what, table := range map[string]string{
		"a command that fails": `command = ["sh", "-c", "echo K=hunter2; exit 1"]`,
		"a file that is gone":  `env_file = "` + filepath.Join(t.TempDir(), "gone") + `"`,
	} {
		t.Run(what, func(t *testing.T) { withoutSecrets(t, table) })
	}
}

func withoutSecrets(t *testing.T, table string) {
	p := shell("touch started")
	c := hire(t, configured(t, "[credentials.claude]\n"+table+"\n"), p)
	c.row.Placement.Engine = "claude"
	acked := c.grants(nil)
	claimed, err := c.claim()
	if err != nil {
		t.Fatal(err)
	}
	<-acked
	c.leave()
	c.ln.Close()
	out, err := claimed.Run(t.Context(), handsel.RunOptions{})
	if !errors.As(err, new(*handsel.NoCredentials)) || out.Outcome.Outcome != "not_started" {
		t.Errorf("Run = %+v, %v", out, err)
	}
	if rec := c.recorded(); rec.State != "ended" || rec.Outcome != "not_started" || rec.Reason == nil || !strings.Contains(rec.Reason.Message, "credentials of claude") {
		t.Errorf("the record says %+v", rec)
	}
	if _, err := os.Lstat(filepath.Join(c.row.Placement.Cwd, "started")); err == nil {
		t.Error("it was started")
	}
	c.mustFree()
	c.nowhere("hunter2")
}
