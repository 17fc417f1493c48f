package handsel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/record"
)

// dispatching is a home whose mode is dispatcher.
func dispatching(t testing.TB, vars map[string]string) (*handsel.Home, home.Dir) {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "config.toml")
	must(t, os.WriteFile(conf, []byte("[admission]\nmode = \"dispatcher\"\n[env]\nallow = [\"FOO\", \"MY_\"]\n"), 0o600))
	d := home.Dir{Path: filepath.Join(dir, "home"), From: home.Variable}
	h, err := handsel.OpenWith(func(name string) string {
		switch name {
		case home.Variable:
			return d.Path
		case "HANDSEL_CONFIG":
			return conf
		}
		return vars[name]
	})
	must(t, err)
	return h, d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// standIn plays the dispatcher on the bare socket: it reads frames by itself, so
// that what is tested is what travels.
type standIn struct {
	t    testing.TB
	sock *net.UnixListener
	done sync.WaitGroup

	// answer is what becomes of a frame; nil accepts and answers all. It is
	// called with the mutex held.
	answer func(s *standIn, n int, f *frame) reply

	mu    sync.Mutex
	n     int // frames so far
	rows  map[string]attempt.Row
	kept  map[string]int // the lane's descriptor, by attempt
	kinds []string       // of every frame
}

// frame is one that came, with its descriptors.
type frame struct {
	Type    string      `json:"type"`
	V       int         `json:"v"`
	Row     attempt.Row `json:"row"`
	Attempt string      `json:"attempt"`
	fds     []int
}

// reply is what is sent back: the first bytes of it and then the end, unless it
// is cut nowhere.
type reply struct {
	body map[string]any // nil: nothing
	cut  int            // −1: all of it
	hang bool           // then do not close
}

func listen(t testing.TB, d home.Dir) *standIn {
	t.Helper()
	must(t, d.Ensure())
	sock, err := d.ListenUnix(home.HandoffSocket)
	must(t, err)
	s := &standIn{t: t, sock: sock, rows: map[string]attempt.Row{}, kept: map[string]int{}}
	s.done.Go(s.serve)
	t.Cleanup(s.stop)
	return s
}

// play says what becomes of frames from now on.
func (s *standIn) play(answer func(s *standIn, n int, f *frame) reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// stop ends it as a crash would: what it holds is closed.
func (s *standIn) stop() {
	s.sock.Close()
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, fd := range s.kept {
		unix.Close(fd)
		delete(s.kept, id)
	}
}

func (s *standIn) serve() {
	var conns []*net.UnixConn
	for {
		conn, err := s.sock.AcceptUnix()
		if err != nil {
			break
		}
		conns = append(conns, conn)
		s.done.Go(func() { s.talk(conn) })
	}
	for _, conn := range conns {
		conn.Close()
	}
}

func (s *standIn) talk(conn *net.UnixConn) {
	for {
		f, err := readFrame(conn)
		if err != nil {
			conn.Close()
			return
		}
		s.mu.Lock()
		s.n++
		s.kinds = append(s.kinds, f.Type)
		r := reply{cut: -1}
		if s.answer != nil {
			r = s.answer(s, s.n, f)
		} else {
			r.body = s.accept(f)
		}
		s.mu.Unlock()
		for _, fd := range f.fds {
			unix.Close(fd)
		}
		if r.body != nil {
			data := encodeFrame(r.body)
			if r.cut >= 0 {
				data = data[:min(r.cut, len(data))]
			}
			_, _ = conn.Write(data)
		}
		if (r.body == nil || r.cut >= 0) && !r.hang {
			conn.Close()
			return
		}
	}
}

// accept does what the dispatcher does: an id is accepted once, however often
// it comes.
func (s *standIn) accept(f *frame) map[string]any {
	id := f.Row.ID
	if f.Type == "ask" {
		id = f.Attempt
	}
	if row, known := s.rows[id]; known {
		return yes(row)
	}
	if f.Type == "ask" {
		return no("unknown_attempt", "ownership", false)
	}
	if len(f.fds) != 1 {
		return no("one_descriptor", "ownership", false)
	}
	s.rows[id], s.kept[id] = f.Row, f.fds[0]
	f.fds = nil
	return yes(f.Row)
}

func yes(row attempt.Row) map[string]any {
	return map[string]any{"v": 1, "type": "answer", "ok": true, "state": "queued", "lane": row.Lane, "attempt": row.ID}
}

func no(code, class string, retryable bool) map[string]any {
	return map[string]any{"v": 1, "type": "answer", "ok": false, "code": code, "class": class, "message": "no: " + code, "retryable": retryable}
}

func encodeFrame(body map[string]any) []byte {
	text, _ := json.Marshal(body)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

func readFrame(conn *net.UnixConn) (*frame, error) {
	f := &frame{}
	var text []byte
	for len(text) < 4 || len(text) < 4+int(binary.BigEndian.Uint32(text)) {
		buf, control := make([]byte, 64<<10), make([]byte, 1<<10)
		n, c, _, _, err := conn.ReadMsgUnix(buf, control)
		messages, _ := unix.ParseSocketControlMessage(control[:max(c, 0)])
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			f.fds = append(f.fds, fds...)
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			for _, fd := range f.fds {
				unix.Close(fd)
			}
			return nil, err
		}
		text = append(text, buf[:n]...)
	}
	return f, json.Unmarshal(text[4:], f)
}

// free asks the kernel whether anybody has a lane.
func free(t testing.TB, d home.Dir, name string) bool {
	t.Helper()
	seen, err := lane.Look(d, name)
	must(t, err)
	return seen.State == lane.Free
}

// nothingLeft claims that a lane's request has left nothing but, at most, an
// idle lane.
func nothingLeft(t *testing.T, d home.Dir, name string) {
	t.Helper()
	if !free(t, d, name) {
		t.Error("somebody still has the lane")
	}
	if _, err := attempt.ReadEntry(d, name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its entry is %v", err)
	}
	if ids, _, err := record.Unrecorded(d, time.Now().Add(time.Hour)); len(ids) > 0 || err != nil {
		t.Errorf("payloads of %v are left, %v", ids, err)
	}
	if _, err := os.Stat(filepath.Join(d.Lanes(), lane.FileName(name))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lane's file is still there: %v", err)
	}
}

func TestEnqueueHandsTheLaneOver(t *testing.T) { // L5, L8, L9
	h, d := dispatching(t, map[string]string{"HANDSEL_MAX_AGENTS": "3"})
	s := listen(t, d)
	stdin := "input\x00\xff"
	env := []string{"LANG=C", "FOO=new", "MY_BYTES=\xff", "BAR=1", "MY_TOKEN=hunter2", "x_secret=hunter2", "TZ=" + strings.Repeat("x", 4095), "TERM=" + strings.Repeat("x", 4096)}
	argv := []string{"/bin/claude", "a b", "it's", "", "$(touch X)", "--", "-n", "*", "line1\nline2", "ä☃", "\xff"} // C109
	dir := t.TempDir()
	before := openFDs(t)
	began := time.Now().Truncate(time.Millisecond)
	out, err := h.Enqueue(t.Context(), "api/review ä", argv, handsel.EnqueueOptions{
		Priority: 7, Pools: []string{"gpu"}, Timeout: time.Minute, Idle: 90 * time.Second, Dir: dir, Env: env, Stdin: strings.NewReader(stdin),
		LeaveDaemons: true, NotBefore: began.Add(time.Hour), RetryLost: 2, Driver: []string{"./drive", "-v"}, Author: "me", Labels: map[string]string{"k": "v"},
	})
	must(t, err)
	if after := openFDs(t); after != before+2 { // the stand-in's: a connection at most, and the lane
		s.mu.Lock()
		held := len(s.kept)
		s.mu.Unlock()
		if after-held > before+1 {
			t.Errorf("%d descriptors open, had %d, and %d are the dispatcher's", after, before, held)
		}
	}
	if free(t, d, "api/review ä") {
		t.Error("nobody has the lane")
	}
	if out.Lane != "api/review ä" || out.State != "queued" || !slices.Equal(out.Dropped, []string{"BAR", "MY_TOKEN", "TERM", "x_secret"}) {
		t.Errorf("Enqueue = %+v", out)
	}
	s.mu.Lock()
	r := s.rows[out.Attempt]
	s.mu.Unlock()
	must(t, r.Check())
	p := r.Placement
	if r.Lane != out.Lane || r.Priority != 7 || r.State != "queued" || r.QueueStart.Before(began) || r.BootStartNS == 0 || r.BootID == "" ||
		r.Argv0 != "claude" || r.Argc != len(argv) || r.Command != record.Digest(argv) || r.Author != "me" || r.Labels["k"] != "v" ||
		r.RetryLost != 2 || !slices.Equal(r.Driver, []string{"./drive", "-v"}) || !r.NotBefore.Equal(began.Add(time.Hour)) {
		t.Errorf("the row is %+v", r)
	}
	if p.Cwd != dir || p.Engine != "claude" || p.Workload != "heavy" || p.Confinement != "none" || !slices.Equal(p.Pools, []string{"gpu"}) ||
		p.Caps["HANDSEL_MAX_AGENTS"] != "3" || len(p.Caps) != 1 || p.TimeoutS != 60 || p.IdleS != 90 || !p.LeaveDaemons {
		t.Errorf("its placement is %+v", p)
	}
	e, err := attempt.ReadEntry(d, out.Lane)
	must(t, err)
	if e.Attempt != out.Attempt || !e.QueueStart.Equal(r.QueueStart.Time) || e.Priority != 7 {
		t.Errorf("its entry is %+v", e)
	}
	pay, err := attempt.Read(d, out.Attempt)
	must(t, err)
	if !slices.Equal(attempt.Strings(pay.Argv), argv) || string(pay.Stdin) != stdin || !pay.HasStdin || string(pay.Cwd) != dir ||
		!slices.Equal(attempt.Strings(pay.Env), []string{"LANG=C", "FOO=new", "MY_BYTES=\xff", env[6]}) {
		t.Errorf("its payload is %q %q", pay.Argv, pay.Env)
	}
	for _, secret := range []string{"hunter2", "MY_TOKEN", "x_secret"} { // C113
		if path := containing(t, d.Path, secret); path != "" {
			t.Errorf("%s has %q", path, secret)
		}
	}
	for _, prompt := range []string{"$(touch X)", "line1"} { // L10: not even encoded, outside the payload
		if path := containing(t, d.Path, prompt); path != "" {
			t.Errorf("%s has %q", path, prompt)
		}
	}
	s.stop()
	if !free(t, d, out.Lane) {
		t.Error("a copy of the lane's descriptor is left in the launcher")
	}
}

// containing is a file below dir that has text, empty if none has.
func containing(t *testing.T, dir, text string) (found string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = path
		}
		return err
	}))
	return found
}

func TestRefusedEnqueueLeavesNothing(t *testing.T) { // L5, L7
	for _, tt := range []struct {
		code, class string
		retryable   bool
		want        func(error) bool
	}{
		{"lane_queued", "ownership", true, func(err error) bool {
			no, ok := errors.AsType[*handsel.Declined](err)
			return ok && no.Code() == "lane_queued" && no.Reason.Retryable && no.Reason.Class == "ownership"
		}},
		{"bad_row", "config", false, func(err error) bool {
			no, ok := errors.AsType[*handsel.Declined](err)
			return ok && !no.Reason.Retryable
		}},
		{"waiter_mode", "config", false, func(err error) bool { return errors.As(err, new(*handsel.WrongMode)) }},
		{"cyclic", "dependency", false, func(err error) bool { return errors.As(err, new(*handsel.BadAfter)) }},
		{"unknown_dependency", "dependency", false, func(err error) bool { return errors.As(err, new(*handsel.BadAfter)) }},
	} {
		h, d := dispatching(t, nil)
		s := listen(t, d)
		s.play(func(*standIn, int, *frame) reply { return reply{no(tt.code, tt.class, tt.retryable), -1, false} })
		before := openFDs(t)
		_, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
		if !tt.want(err) || err != nil && !strings.Contains(err.Error(), "dispatcher") && !strings.Contains(err.Error(), tt.code) {
			t.Errorf("%s: Enqueue = %v", tt.code, err)
		}
		s.stop()
		nothingLeft(t, d, "a")
		if after := openFDs(t); after > before {
			t.Errorf("%s: %d descriptors open, had %d", tt.code, after, before)
		}
	}
}

func TestWithoutDispatcherNothingIsLeft(t *testing.T) {
	h, d := dispatching(t, nil)
	before := openFDs(t)
	for range 2 {
		_, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
		if !errors.As(err, new(*handsel.NoDispatcher)) {
			t.Fatalf("Enqueue = %v", err)
		}
		nothingLeft(t, d, "a")
	}
	s := listen(t, d) // it was there, and died
	s.stop()
	if _, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{}); !errors.As(err, new(*handsel.NoDispatcher)) {
		t.Errorf("with a socket that nobody listens at, Enqueue = %v", err)
	}
	nothingLeft(t, d, "a")
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
}

// The answer is lost after k bytes: the row is accepted, once, and the launcher
// finds that out (L9, C029).
func TestLostAnswerIsAskedFor(t *testing.T) {
	h, d := dispatching(t, nil)
	s := listen(t, d)
	whole := len(encodeFrame(yes(attempt.Row{Lane: "lane-000", ID: record.NewID()})))
	for cut := 0; cut < whole; cut += 1 + cut/40 {
		name := fmt.Sprintf("lane-%03d", cut)
		first := true
		s.play(func(s *standIn, _ int, f *frame) reply {
			r := reply{s.accept(f), -1, false}
			if first {
				first, r.cut = false, cut
			}
			return r
		})
		out, err := h.Enqueue(t.Context(), name, []string{"true"}, handsel.EnqueueOptions{})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		s.mu.Lock()
		row, accepted := s.rows[out.Attempt]
		s.mu.Unlock()
		if !accepted || row.Lane != name || free(t, d, name) {
			t.Fatalf("cut at %d: accepted %v, row %+v", cut, accepted, row)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := map[string]int{}
	for _, row := range s.rows {
		lanes[row.Lane]++
	}
	for name, n := range lanes {
		if n != 1 {
			t.Errorf("lane %s was accepted %d times", name, n)
		}
	}
}

// The dispatcher dies before it has read the row: nobody accepted it, and it is
// offered again under the same id.
func TestRowThatWasNeverReadIsOfferedAgain(t *testing.T) {
	h, d := dispatching(t, nil)
	s := listen(t, d)
	var ids []string
	s.play(func(s *standIn, n int, f *frame) reply {
		if f.Type == "enqueue" {
			ids = append(ids, f.Row.ID)
		}
		if n == 1 {
			return reply{}
		}
		return reply{s.accept(f), -1, false}
	})
	out, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
	must(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ids) != 2 || ids[0] != out.Attempt || ids[1] != out.Attempt || !slices.Equal(s.kinds, []string{"enqueue", "ask", "enqueue"}) {
		t.Errorf("it was offered as %v: %v", ids, s.kinds)
	}
}

// Once the first connection is closed, a refusal of the second offer is one.
func TestRefusalAfterALostAnswerCounts(t *testing.T) {
	h, d := dispatching(t, nil)
	s := listen(t, d)
	s.play(func(s *standIn, n int, f *frame) reply {
		if n == 1 {
			return reply{}
		}
		if f.Type == "ask" {
			return reply{s.accept(f), -1, false}
		}
		return reply{no("descriptors", "resource", true), -1, false}
	})
	if _, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{}); !errors.As(err, new(*handsel.Declined)) {
		t.Errorf("Enqueue = %v", err)
	}
	nothingLeft(t, d, "a")
}

// While the first offer may still lie unread, a refusal of the second proves
// nothing: what belongs to the attempt stays, and the launcher says that it does
// not know.
func TestRefusalWhileTheFirstOfferIsOpenIsUnknown(t *testing.T) {
	defer handsel.ShortenPatience(50*time.Millisecond, 200*time.Millisecond)()
	h, d := dispatching(t, nil)
	s := listen(t, d)
	s.play(func(s *standIn, n int, f *frame) reply {
		if n == 1 {
			s.rows["late"], s.kept["late"] = f.Row, f.fds[0] // it is to be accepted later
			f.fds = nil
			return reply{hang: true}
		}
		if f.Type == "ask" {
			return reply{no("unknown_attempt", "ownership", false), -1, false}
		}
		return reply{no("descriptors", "resource", true), -1, false}
	})
	_, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
	unknown, ok := errors.AsType[*handsel.Unknown](err)
	if !ok || !strings.Contains(err.Error(), "handsel reconcile "+unknown.Attempt) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("Enqueue = %v", err)
	}
	if free(t, d, "a") {
		t.Error("the dispatcher's copy of the lane is gone")
	}
	if _, err := attempt.Read(d, unknown.Attempt); err != nil {
		t.Errorf("its payload is %v", err)
	}
	if e, err := attempt.ReadEntry(d, "a"); err != nil || e.Attempt != unknown.Attempt {
		t.Errorf("its entry is %v, %v", e, err)
	}
}

func TestSilenceIsUnknown(t *testing.T) { // L9, C028
	defer handsel.ShortenPatience(50*time.Millisecond, 200*time.Millisecond)()
	h, d := dispatching(t, nil)
	s := listen(t, d)
	s.play(func(*standIn, int, *frame) reply { return reply{hang: true} })
	before := openFDs(t)
	_, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
	if !errors.As(err, new(*handsel.Unknown)) {
		t.Fatalf("Enqueue = %v", err)
	}
	s.stop()
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
	if !free(t, d, "a") {
		t.Error("the launcher still has the lane")
	}
}

func TestDispatcherThatComesBackIsAsked(t *testing.T) { // C029
	h, d := dispatching(t, nil)
	s := listen(t, d)
	gone := make(chan struct{})
	leave := sync.OnceFunc(func() { s.sock.Close(); close(gone) }) // it may be asked before it is gone
	s.play(func(*standIn, int, *frame) reply {
		go leave()
		return reply{}
	})
	var next *standIn
	var started sync.WaitGroup
	started.Go(func() {
		<-gone
		s.done.Wait()
		next = listen(t, d)
	})
	out, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
	started.Wait()
	must(t, err)
	next.mu.Lock()
	defer next.mu.Unlock()
	if _, ok := next.rows[out.Attempt]; !ok {
		t.Error("the dispatcher that came back does not have it")
	}
}

func TestDispatcherThatStaysAwayIsUnknown(t *testing.T) {
	defer handsel.ShortenPatience(time.Second, 200*time.Millisecond)()
	h, d := dispatching(t, nil)
	s := listen(t, d)
	s.play(func(s *standIn, _ int, f *frame) reply {
		s.accept(f)
		go s.sock.Close()
		return reply{}
	})
	if _, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{}); !errors.As(err, new(*handsel.Unknown)) {
		t.Errorf("Enqueue = %v", err)
	}
}

func TestOwnedLaneIsRefusedAtOnceAndWaitedFor(t *testing.T) { // L5
	h, d := dispatching(t, nil)
	s := listen(t, d)
	must(t, d.Ensure())
	own, err := lane.Take(d, "a", lane.Mine(lane.RoleRun))
	must(t, err)
	_, err = h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
	owned, ok := errors.AsType[*handsel.LaneOwned](err)
	if !ok || !owned.Retryable() || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatalf("Enqueue = %v", err)
	}
	waits := make(chan handsel.Waiting, 8)
	var out *handsel.Enqueued
	var done sync.WaitGroup
	done.Go(func() {
		out, err = h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{Wait: time.Minute, OnWait: func(w handsel.Waiting) { waits <- w }})
	})
	if w := <-waits; w.Code != "lane_owned" {
		t.Errorf("it waits for %+v", w)
	}
	must(t, own.Release())
	done.Wait()
	must(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := s.rows[out.Attempt]; row.StateSince.Before(row.QueueStart.Time) {
		t.Errorf("the row is %+v", row)
	}
}

func TestEndedContextLeavesNothing(t *testing.T) {
	h, d := dispatching(t, nil)
	listen(t, d)
	own, err := lane.Take(d, "a", lane.Mine(lane.RoleRun))
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	waits := make(chan struct{}, 8)
	done.Go(func() {
		_, err = h.Enqueue(ctx, "a", []string{"true"}, handsel.EnqueueOptions{Wait: time.Minute, OnWait: func(handsel.Waiting) { waits <- struct{}{} }})
	})
	<-waits
	stop()
	done.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Enqueue = %v", err)
	}
	must(t, own.Release())
	if _, err := h.Enqueue(ctx, "b", []string{"true"}, handsel.EnqueueOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Enqueue = %v", err)
	}
	nothingLeft(t, d, "b")
}

func TestMalformedRequestTouchesNothing(t *testing.T) {
	h, d := dispatching(t, nil)
	many := make([]string, 300)
	for i := range many {
		many[i] = "lane:x"
	}
	option := func(name string) func(error) bool {
		return func(err error) bool {
			bad, ok := errors.AsType[*handsel.BadOption](err)
			return ok && bad.Option == name
		}
	}
	after := func(err error) bool { return errors.As(err, new(*handsel.BadAfter)) }
	for _, tt := range []struct {
		what string
		lane string
		o    handsel.EnqueueOptions
		is   func(error) bool
	}{
		{"no lane", "", handsel.EnqueueOptions{}, func(err error) bool { return errors.As(err, new(*handsel.BadLane)) }},
		{"a lane that is no text", "\xff", handsel.EnqueueOptions{}, func(err error) bool { return errors.As(err, new(*handsel.BadLane)) }},
		{"priority", "a", handsel.EnqueueOptions{Priority: 1001}, option("priority")},
		{"label", "a", handsel.EnqueueOptions{Labels: map[string]string{"k": strings.Repeat("x", 2000)}}, option("label")},
		{"author", "a", handsel.EnqueueOptions{Author: "\xff"}, option("author")},
		{"driver", "a", handsel.EnqueueOptions{Driver: []string{""}}, option("driver")},
		{"retry-lost", "a", handsel.EnqueueOptions{RetryLost: -1}, option("retry-lost")},
		{"engine", "a", handsel.EnqueueOptions{Engine: "nobody"}, option("engine")},
		{"workload", "a", handsel.EnqueueOptions{Workload: "medium"}, option("workload")},
		{"light", "a", handsel.EnqueueOptions{Workload: "light"}, func(err error) bool { return errors.As(err, new(*handsel.Unconfined)) }},
		{"pool", "a", handsel.EnqueueOptions{Pools: []string{"../x"}}, option("pool")},
		{"stdin", "a", handsel.EnqueueOptions{Stdin: io.LimitReader(zeros{}, 17<<20)}, option("stdin")},
		{"after itself", "a", handsel.EnqueueOptions{After: []string{"lane:a:any"}}, after},
		{"after nothing", "a", handsel.EnqueueOptions{After: []string{"nobody"}}, after},
		{"after no run", "a", handsel.EnqueueOptions{After: []string{"run:0123456789"}}, after},
		{"after too much", "a", handsel.EnqueueOptions{After: many}, option("after")},
		{"directory", "a", handsel.EnqueueOptions{Dir: filepath.Join(t.TempDir(), "nowhere")}, func(err error) bool { return errors.As(err, new(*handsel.StartError)) }},
	} {
		if _, err := h.Enqueue(t.Context(), tt.lane, []string{"true"}, tt.o); !tt.is(err) {
			t.Errorf("%s: Enqueue = %v", tt.what, err)
		}
	}
	if _, err := h.Enqueue(t.Context(), "a", nil, handsel.EnqueueOptions{}); err == nil {
		t.Error("no command was enqueued")
	}
	if _, err := os.Stat(d.Lanes()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a lane was made: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestWaiterModeRefusesBeforeAnythingExists(t *testing.T) { // L4
	h := open(t, nil)
	_, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
	wrong, ok := errors.AsType[*handsel.WrongMode](err)
	if !ok || wrong.Mode != "waiter" || !strings.Contains(err.Error(), "handsel config set admission.mode dispatcher") {
		t.Errorf("Enqueue = %v", err)
	}
	if _, err := os.Stat(h.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the home was made: %v", err)
	}
}

func TestAfterMeansALaneOrAnAttempt(t *testing.T) { // C4, L10
	h, d := dispatching(t, nil)
	s := listen(t, d)
	first, err := h.Enqueue(t.Context(), "first", []string{"true"}, handsel.EnqueueOptions{})
	must(t, err)
	tail := first.Attempt[len(first.Attempt)-8:]
	twin, err := h.Enqueue(t.Context(), tail, []string{"true"}, handsel.EnqueueOptions{}) // a lane called like the end of an id
	must(t, err)
	if _, err := h.Enqueue(t.Context(), "x", []string{"true"}, handsel.EnqueueOptions{After: []string{tail}}); !errors.As(err, new(*handsel.BadAfter)) {
		t.Errorf("what means two things is %v", err)
	}
	out, err := h.Enqueue(t.Context(), "second", []string{"true"}, handsel.EnqueueOptions{
		After: []string{"first", "lane:not yet there:any", "run:" + tail, twin.Attempt[24:] + ":any", "lane:" + tail},
	})
	must(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []attempt.After{{Lane: "first"}, {Lane: "not yet there", Any: true}, {Attempt: first.Attempt}, {Attempt: twin.Attempt, Any: true}, {Lane: tail}}
	if got := s.rows[out.Attempt].After; !slices.Equal(got, want) {
		t.Errorf("After = %+v, want %+v", got, want)
	}
}

func TestOtherVersionIsToldInOneLine(t *testing.T) { // L23, C096
	h, d := dispatching(t, nil)
	s := listen(t, d)
	s.play(func(*standIn, int, *frame) reply {
		return reply{map[string]any{"v": 2, "type": "answer", "ok": false, "code": "version"}, -1, false}
	})
	_, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
	if !errors.As(err, new(*handsel.WrongVersion)) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Enqueue = %v", err)
	}
	nothingLeft(t, d, "a")
}

func TestManyEnqueuesAtOnce(t *testing.T) {
	h, d := dispatching(t, nil)
	s := listen(t, d)
	before := openFDs(t)
	const clients, each = 16, 8
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for j := range each {
				if _, err := h.Enqueue(t.Context(), fmt.Sprintf("%d/%d", i, j), []string{"true"}, handsel.EnqueueOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.mu.Lock()
	rows := len(s.rows)
	s.mu.Unlock()
	if rows != clients*each {
		t.Errorf("%d rows, want %d", rows, clients*each)
	}
	s.stop()
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors open, had %d", after, before)
	}
}

// The caps of the asker's variables go with the row whatever their names are
// shaped like: losing one would start something uncounted (S2, L13).
func TestCapsGoWithTheRowWhateverTheirName(t *testing.T) {
	t.Setenv("HANDSEL_MAX_AGENTS_KEYS", " 2 ")
	t.Setenv("HANDSEL_MAX_AGENTS_GPU", "0")
	h, d := dispatching(t, map[string]string{"HANDSEL_MAX_AGENTS_KEYS": " 2 ", "HANDSEL_MAX_AGENTS_HEAVY": "4"})
	s := listen(t, d)
	out, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{})
	must(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, want := s.rows[out.Attempt].Placement.Caps, (map[string]string{"HANDSEL_MAX_AGENTS_KEYS": "2", "HANDSEL_MAX_AGENTS_HEAVY": "4"}); !maps.Equal(got, want) {
		t.Errorf("the row's caps are %v, want %v", got, want)
	}
	if !slices.Contains(out.Dropped, "HANDSEL_MAX_AGENTS_KEYS") {
		t.Error("a name that is shaped like a secret's is in the payload")
	}
}

func TestHomeThatCannotBeWrittenLeavesNothing(t *testing.T) {
	for _, name := range []string{"runs", "queue"} {
		h, d := dispatching(t, nil)
		listen(t, d)
		must(t, os.WriteFile(filepath.Join(d.Path, name), nil, 0o600)) // a file where a directory should be
		before := openFDs(t)
		if out, err := h.Enqueue(t.Context(), "a", []string{"true"}, handsel.EnqueueOptions{}); err == nil {
			t.Errorf("%s is a file, and Enqueue = %+v", name, out)
		}
		if after := openFDs(t); after != before {
			t.Errorf("%s: %d descriptors open, had %d", name, after, before)
		}
		must(t, os.Remove(filepath.Join(d.Path, name)))
		nothingLeft(t, d, "a")
	}
}
