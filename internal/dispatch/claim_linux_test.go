package dispatch

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// granted claims, and returns the connection, the answer and the descriptors.
func (w *world) granted(id, token string) (*handoff.Conn, handoff.Granted, []int) {
	w.Helper()
	conn, err := handoff.Dial(w.Context(), w.home)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(conn.Close)
	f, err := conn.Exchange(w.Context(), handoff.Claim{Attempt: id, Token: token})
	if err != nil {
		w.Fatal(err)
	}
	var g handoff.Granted
	if err := f.Decode(&g); err != nil {
		w.Fatal(err)
	}
	return conn, g, f.Take()
}

func begun() attempt.Begun {
	me := proc.Self()
	return attempt.Begun{What: attempt.Began, Pid: me.Pid, Ticks: me.Ticks, BootID: me.Boot}
}

// Only the token of the offer that stands is good, and a wrong one changes
// nothing: row, offer and descriptor stay (L14).
func TestOnlyTheOfferedTokenClaims(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.AckWindow = 500 * time.Millisecond }) // nothing is acknowledged
	l := w.enqueue("x")
	token := w.token(l.row.ID)
	w.until(l.row.ID, attempt.Starting)
	upper := []byte(token)
	for i, c := range upper {
		if c >= 'a' && c <= 'f' {
			upper[i] = c - 'a' + 'A'
		}
	}
	before := openFDs(t)
	for name, try := range map[string]string{"another": "0000", "none": "", "a part": token[:32], "in capitals": string(upper), "longer": token + "0"} {
		conn, g, fds := w.granted(l.row.ID, try)
		if g.OK || len(fds) != 0 || g.Message != errNoRow.Error() {
			t.Errorf("%s token: %+v with %d descriptors", name, g.Answer, len(fds))
		}
		conn.Close()
	}
	conn, g, fds := w.granted(w.launcher("y").row.ID, token)
	if g.OK || len(fds) != 0 || g.Message != errNoRow.Error() {
		t.Errorf("the token for another attempt: %+v", g.Answer)
	}
	conn.Close()
	w.settledFDs(before + 1)
	if r := w.until(l.row.ID, attempt.Starting); r.Starts != 1 {
		t.Errorf("the offer moved: %+v", r)
	}
	_, g, fds = w.granted(l.row.ID, token)
	if !g.OK || len(fds) != 1 || g.Fence != 1 || g.Start != 1 {
		t.Fatalf("the right token: %+v with %d descriptors", g, len(fds))
	}
	unix.Close(fds[0])
	conn, g, fds = w.granted(l.row.ID, token)
	conn.Close()
	if g.OK || len(fds) != 0 {
		t.Errorf("the token was good twice: %+v", g.Answer)
	}
}

func TestQueuedRowIsNotClaimed(t *testing.T) {
	w := newWorld(t, false, nil)
	l := w.enqueue("x")
	conn, g, fds := w.granted(l.row.ID, "")
	defer conn.Close()
	if g.OK || len(fds) != 0 || g.Message != errNoRow.Error() {
		t.Errorf("a queued row was claimed: %+v", g.Answer)
	}
}

// drive claims an attempt as a driver does, up to its acknowledgement.
func (w *world) drive(l *launcher) *lane.Hold {
	w.Helper()
	conn, h, g := w.claims(l)
	w.begins(l, g)
	if err := conn.Send(w.Context(), handoff.Ack{Attempt: l.row.ID, Start: g.Start, Begun: true}); err != nil {
		w.Fatal(err)
	}
	return h
}

// claims is a driver's way up to its beginning.
func (w *world) claims(l *launcher) (*handoff.Conn, *lane.Hold, handoff.Granted) {
	w.Helper()
	token := w.token(l.row.ID)
	conn, g, fds := w.granted(l.row.ID, token)
	if !g.OK || len(fds) != 1 {
		w.Fatalf("claim: %+v with %d descriptors", g.Answer, len(fds))
	}
	if w.free(l.row.Lane) {
		w.Error("the lane is free while it changes hands")
	}
	h, err := lane.Adopt(w.home, l.row.Lane, fds[0])
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(h.Keep)
	rec := lane.Mine(lane.RoleDriver)
	rec.Attempt, rec.Fence = l.row.ID, g.Fence
	if err := h.SetOwner(rec); err != nil {
		w.Fatal(err)
	}
	return conn, h, g
}

func (w *world) begins(l *launcher, g handoff.Granted) {
	w.Helper()
	if err := attempt.Begin(w.home, l.row.ID, g.Start, begun()); err != nil {
		w.Fatal(err)
	}
}

// A driver that has begun and could not say so goes on, whether it began before
// the dispatcher noticed that nothing comes or after: whoever created begun.N
// decided (L15).
func TestDriverThatBeganAndCouldNotSaySoGoesOn(t *testing.T) {
	for name, part := range map[string]func(conn *handoff.Conn, begins func()){
		"before": func(conn *handoff.Conn, begins func()) { begins(); conn.Close() },
		"after":  func(conn *handoff.Conn, begins func()) { conn.Close(); begins() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, nil)
			l := w.enqueue("x")
			conn, h, g := w.claims(l)
			part(conn, func() { w.begins(l, g) })
			for {
				at, err := w.d.db.Find(l.row.ID)
				if err != nil || at == nil || at.Row.Starts != 1 {
					t.Fatalf("the attempt is %+v, %v; want its first start to stand", at, err)
				}
				if at.State == "running" {
					break
				}
				if at.State == attempt.Queued {
					t.Fatal("a driver that has begun was withdrawn")
				}
				w.breathe()
			}
			if w.free("x") {
				t.Error("the lane is free while its driver has it")
			}
			h.Keep()
			if !w.freed("x") {
				t.Error("the dispatcher kept a copy of the lane")
			}
		})
	}
}

// After the acknowledgement the dispatcher has no copy of the lane left: it is
// free as soon as the driver closes its own.
func TestAcknowledgedLaneIsTheDriversAlone(t *testing.T) {
	w := newWorld(t, true, nil)
	l := w.enqueue("x")
	h := w.drive(l)
	for {
		if at, _ := w.d.db.Find(l.row.ID); at != nil && at.State == "running" {
			break
		}
		w.breathe()
	}
	if w.free("x") {
		t.Error("the lane is free while its driver has it")
	}
	h.Keep()
	if !w.freed("x") {
		t.Error("the dispatcher kept a copy of the lane")
	}
}

// A driver that takes the descriptors and says nothing is withdrawn: the row
// waits again in its old place, the lane was free at no moment, and begun.N
// keeps the driver from starting anything, whenever it wakes (L15).
func TestSilentDriverIsWithdrawn(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.AckWindow = 100 * time.Millisecond; c.Unclaimed = 100 })
	l := w.enqueue("x")
	token := w.token(l.row.ID)
	// The claim comes from a process of its own, which stops once it has been
	// answered: it is ended when it is withdrawn.
	w.exec(t, "claims", l.row.ID, token)
	second := w.token(l.row.ID)
	if second == token {
		t.Error("the next offer has the old token")
	}
	b, err := attempt.ReadBegun(w.home, l.row.ID, 1)
	if err != nil || b.What != attempt.Withdrawn {
		t.Errorf("the first start is %+v, %v; want it withdrawn", b, err)
	}
	if err := attempt.Begin(w.home, l.row.ID, 1, begun()); !errors.Is(err, attempt.ErrTaken) {
		t.Errorf("a withdrawn start can begin: %v", err)
	}
	if r, ok := w.rowOf(l.row.ID); !ok || !r.QueueStart.Equal(l.row.QueueStart.Time) || r.Starts != 2 {
		t.Errorf("the row is %+v (%v), want its old place and a second start", r, ok)
	}
	if w.free("x") {
		t.Error("the lane was let go")
	}
}

// At 60 s exactly the offer stands, and a moment later it does not (L15a).
func TestOfferStandsAtTheDeadlineAndNotAfter(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		after time.Duration
		late  bool
	}{
		{"just before", ClaimWindow - 1, false},
		{"at the deadline", ClaimWindow, false},
		{"a moment later", ClaimWindow + 1, true},
	} {
		if got := late(noon, noon.Add(tt.after), ClaimWindow); got != tt.late {
			t.Errorf("%s: late = %v, want %v", tt.name, got, tt.late)
		}
	}
}

// An offer that nobody claims comes back: same start, same priority, another
// token; after some in a row the lane is held, with the reason.
func TestUnclaimedOffersComeBackAndHoldTheLane(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.ClaimWindow = 2 * time.Second; c.Unclaimed = 2 })
	l := w.enqueue("x")
	first := w.token(l.row.ID)
	second := w.token(l.row.ID)
	if first == second {
		t.Error("two offers had one token")
	}
	for {
		r, ok := w.rowOf(l.row.ID)
		if ok && r.Reason != nil && r.Reason.Class == "hold" {
			if !r.QueueStart.Equal(l.row.QueueStart.Time) || r.State != attempt.Queued || r.Reason.Code != "unclaimed" {
				t.Errorf("the row is %+v with %+v", r.Row, r.Reason)
			}
			break
		}
		w.breathe()
	}
	conn, g, fds := w.granted(l.row.ID, second)
	conn.Close()
	if g.OK || len(fds) != 0 {
		t.Error("a burned token claims")
	}
	if w.free("x") {
		t.Error("the lane was let go")
	}
}

// A driver that ends without claiming withdraws the offer at once.
func TestDriverThatLeavesWithdrawsTheOffer(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Env = append([]string{"HANDSEL_TEST_DRIVER=leaves"}, c.Env[1:]...) })
	l := w.enqueue("x")
	first := w.token(l.row.ID)
	second := w.token(l.row.ID)
	if first == second {
		t.Error("two offers had one token")
	}
}

// exec runs this test binary as a driver that claims and then stops.
func (w *world) exec(t *testing.T, role, id, token string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{
		Env:   []string{"HANDSEL_TEST_DRIVER=" + role, "HANDSEL_HOME=" + w.home.Path, "ATTEMPT=" + id, "TOKEN=" + token},
		Files: []*os.File{nil, nil, os.Stderr},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
}

// claimAndStop is the process that exec starts: it has the lane and says nothing,
// or that it has begun, and then is gone.
func claimAndStop() {
	at := home.Dir{Path: os.Getenv("HANDSEL_HOME"), From: "HANDSEL_HOME"}
	conn, err := handoff.Dial(context.Background(), at)
	if err != nil {
		os.Exit(5)
	}
	f, err := conn.Exchange(context.Background(), handoff.Claim{Attempt: os.Getenv("ATTEMPT"), Token: os.Getenv("TOKEN")})
	if err != nil || len(f.Take()) != 1 {
		os.Exit(6)
	}
	if os.Getenv("HANDSEL_TEST_DRIVER") == "drives" {
		id := os.Getenv("ATTEMPT")
		if attempt.Begin(at, id, 1, begun()) != nil ||
			conn.Send(context.Background(), handoff.Ack{Attempt: id, Start: 1, Begun: true}) != nil {
			os.Exit(7)
		}
		os.Exit(0)
	}
	proc.StopSelf()
	os.Exit(0) // somebody let it go on
}
