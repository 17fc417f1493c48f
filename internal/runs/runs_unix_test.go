//go:build unix

package runs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/fakeagent"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

func TestMain(m *testing.M) { os.Exit(fakeagent.Main(m)) }

func newPlace(t *testing.T) Place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := home.Dir{Path: dir, From: home.Variable}
	return Place{Home: d, Leases: d.Leases(), Waiting: d.Waiting()}
}

// keep writes a record.
func keep(t *testing.T, p Place, fill func(*record.Run)) *record.Run {
	t.Helper()
	r := &record.Run{ID: record.NewID(), Verb: "run", State: record.Running, Argv0: "agent", Confinement: "none",
		StartedAt: record.At(machine.Now()), HostBoot: machine.BootID()}
	fill(r)
	if _, err := record.Create(p.Home, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// stranger is a process that lives until the test ends, or it is ended. It is
// reaped at once.
type stranger struct {
	process *os.Process
	reaped  chan struct{}
}

func someone(t *testing.T, env ...string) (*stranger, record.Identity) {
	t.Helper()
	cmd := exec.Command(fakeagent.Build(t), "sleep", "60s")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := proc.Identify(cmd.Process.Pid)
	s := &stranger{cmd.Process, make(chan struct{})}
	go func() {
		defer close(s.reaped)
		cmd.Wait()
	}()
	t.Cleanup(s.end)
	if err != nil {
		t.Fatal(err)
	}
	return s, *identity(id.Claim())
}

func (s *stranger) end() {
	s.process.Kill()
	<-s.reaped
}

// ended is the identity of a process that has ended.
func ended(t *testing.T) record.Identity {
	t.Helper()
	s, id := someone(t)
	s.end()
	return id
}

func one(t *testing.T, p Place, id string) Run {
	t.Helper()
	found, err := p.Find("run:"+id, true)
	if err != nil || len(found) != 1 {
		t.Fatalf("Find(%s) = %v, %v", id, found, err)
	}
	return found[0]
}

func TestKernelOverrulesTheRecord(t *testing.T) { // C024, C032
	p := newPlace(t)
	_, alive := someone(t)
	gone := ended(t)
	otherBoot := alive
	otherBoot.BootID = "11111111-1111-4111-8111-111111111111"
	otherNS := alive
	otherNS.PidNS = 1
	unknown := record.Identity{Pid: alive.Pid, BootID: machine.BootID()}
	for _, tt := range []struct {
		name              string
		supervisor, child *record.Identity
		word, code        string
	}{
		{"both live", &alive, &alive, record.Running, ""},
		{"the supervisor lives", &alive, &gone, record.Running, ""},
		{"the agent lives", &gone, &alive, "orphaned", ""},
		{"nobody lives", &gone, &gone, record.Lost, SupervisorLost},
		{"nobody lives, and no agent was recorded", &gone, nil, record.Lost, SupervisorLost},
		{"another boot", &otherBoot, &otherBoot, record.Lost, HostRestarted},
		{"another pid namespace", &otherNS, &otherNS, "unverifiable", ""},
		{"a record that names no start", &unknown, nil, "unverifiable", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := keep(t, p, func(r *record.Run) {
				r.Handsel, r.Child = *tt.supervisor, tt.child
				r.HostBoot = tt.supervisor.BootID
			})
			r := one(t, p, rec.ID)
			if r.Word() != tt.word {
				t.Errorf("it is %s, want %s", r.Word(), tt.word)
			}
			if code := codeOf(r); code != tt.code {
				t.Errorf("the reason is %q, want %q", code, tt.code)
			}
			if r.Ended() && (r.EndedAt.Before(r.StartedAt.Time) || r.EndedAt.After(machine.Now())) {
				t.Errorf("it ended at %v, started at %v", r.EndedAt, r.StartedAt)
			}
			again, err := record.Load(p.Home, rec.ID)
			if err != nil || again.State != record.Running {
				t.Errorf("looking changed the record: %v, %v", again, err)
			}
		})
	}
	list, err := p.List(Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if s := list.Totals; s.Started != s.Succeeded+s.Failed+s.Lost+s.Running || s.Started != 8 || s.Lost != 3 {
		t.Errorf("the totals do not add up: %+v", s)
	}
}

func codeOf(r Run) string {
	if r.Reason == nil {
		return ""
	}
	return r.Reason.Code
}

func TestEndIsNeverBeforeStart(t *testing.T) { // C024, C14: a clock that stepped back
	p := newPlace(t)
	gone := ended(t)
	later := record.At(machine.Now().Add(24 * time.Hour))
	rec := keep(t, p, func(r *record.Run) { r.Handsel, r.StartedAt = gone, later })
	if r := one(t, p, rec.ID); r.EndedAt.Before(later.Time) || r.RanS < 0 {
		t.Errorf("ended %v after %v s, started %v", r.EndedAt, r.RanS, later)
	}
}

func TestRunWithoutChildIsFoundByItsMark(t *testing.T) { // C022
	if _, err := proc.FindMarked("HANDSEL_RUN"); err != nil {
		t.Skip(err)
	}
	p := newPlace(t)
	gone := ended(t)
	rec := keep(t, p, func(r *record.Run) { r.Handsel = gone })
	agent, child := someone(t, "HANDSEL_RUN="+rec.ID)
	r := one(t, p, rec.ID)
	if !r.Orphaned || r.Child == nil || r.Child.Pid != child.Pid {
		t.Fatalf("found %+v, want an orphan with child %d", r, child.Pid)
	}
	agent.end()
	if r := one(t, p, rec.ID); r.Outcome != record.Lost {
		t.Errorf("after its end it is %s", r.Word())
	}
}

func TestCloseWritesOnlyWhatIsProven(t *testing.T) { // C148
	p := newPlace(t)
	agent, alive := someone(t)
	gone := ended(t)
	orphan := keep(t, p, func(r *record.Run) { r.Handsel, r.Child = gone, &alive })
	if err := p.Close(one(t, p, orphan.ID)); err == nil {
		t.Error("the record of a living agent was closed")
	}
	agent.end()
	if err := p.Close(one(t, p, orphan.ID)); err != nil {
		t.Error(err)
	}
	if rec, err := record.Load(p.Home, orphan.ID); err != nil || rec.State != record.Ended || rec.Outcome != record.Lost {
		t.Errorf("the record says %+v, %v", rec, err)
	}
	if lost, err := p.Lost(); err != nil || len(lost) != 0 {
		t.Errorf("a second look finds %v, %v", lost, err)
	}
}

func TestCancelEndsOnlyTheProven(t *testing.T) { // C053, C148
	p := newPlace(t)
	_, bystander := someone(t)
	reused := bystander
	reused.Ticks-- // the number was given away: another start
	rec := keep(t, p, func(r *record.Run) { r.Handsel, r.Child = reused, &reused })
	for _, want := range []string{WasLost, AlreadyEnded, AlreadyEnded} {
		got, err := p.Cancel(context.Background(), one(t, p, rec.ID))
		if err != nil || got.Did != want {
			t.Errorf("Cancel = %+v, %v, want %s", got, err, want)
		}
	}
	if proc.Judge(claim(bystander)) != proc.Alive {
		t.Error("somebody else's process was ended")
	}
}

func TestCancelSignalsNeitherUsNorInit(t *testing.T) { // C15: never pid 0, 1, -1, self, an ancestor
	p := newPlace(t)
	self := *identity(proc.Self().Claim())
	ids := []record.Identity{self, {Pid: -1, Ticks: 1, BootID: self.BootID}, {Pid: 0, Ticks: 1, BootID: self.BootID}}
	for _, up := range proc.Ancestors(os.Getpid()) {
		ids = append(ids, *identity(up.ID().Claim()))
	}
	for _, id := range ids {
		rec := keep(t, p, func(r *record.Run) { r.Handsel = id })
		r := one(t, p, rec.ID)
		got, err := p.Cancel(context.Background(), r)
		if err == nil && got.Did != WasLost {
			t.Errorf("pid %d: Cancel = %+v", id.Pid, got)
		}
		if err != nil && !errors.Is(err, proc.ErrNotToEnd) {
			t.Errorf("pid %d: %v", id.Pid, err)
		}
	}
}

func TestOrphanIsEndedAndItsEndRecorded(t *testing.T) { // C020, S23
	p := newPlace(t)
	_, child := someone(t)
	gone := ended(t)
	rec := keep(t, p, func(r *record.Run) { r.Handsel, r.Child = gone, &child })
	got, err := p.Cancel(context.Background(), one(t, p, rec.ID))
	if err != nil || got.Did != WasCancelled {
		t.Fatalf("Cancel = %+v, %v", got, err)
	}
	if proc.Judge(claim(child)) == proc.Alive {
		t.Error("the agent lives")
	}
	after, err := record.Load(p.Home, rec.ID)
	if err != nil || after.Outcome != record.Cancelled || after.Reason == nil || after.Reason.Code != EndedByCancel {
		t.Errorf("the record says %+v, %v", after, err)
	}
}

// byEvent is how late an end may be noticed that raises an event. It does not ask
// for speed: who sees is only then ended by a look when slowPoll is over.
const byEvent = slowPoll - 5*time.Second

func TestWaitWakesByEvent(t *testing.T) { // wait is not a poll
	p := newPlace(t)
	agent, supervisor := someone(t)
	rec := keep(t, p, func(r *record.Run) { r.Handsel = supervisor })
	noticed := make(chan time.Time, 1)
	result := make(chan error, 1)
	armed := make(chan struct{})
	go func() {
		close(armed)
		result <- p.Wait(context.Background(), []Run{one(t, p, rec.ID)}, func(Run) { noticed <- time.Now() })
	}()
	<-armed
	select {
	case <-result:
		t.Fatal("the wait ended before the run")
	case <-time.After(100 * time.Millisecond): // it is asleep by now, or will not sleep at all
	}
	eyes, err := newEyes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer eyes.close()
	r := one(t, p, rec.ID)
	if eyes.watch(p, &r); eyes.blind([]Run{r}) {
		t.Error("its end may come without an event, so it would be looked for often")
	}
	killed := time.Now()
	agent.end()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if late := (<-noticed).Sub(killed); late > byEvent {
		t.Errorf("noticed after %s: by looking, not by an event", late)
	}
}

func TestWaitSeesTheRecordWritten(t *testing.T) { // a supervisor that goes on with other runs
	p := newPlace(t)
	_, supervisor := someone(t)
	rec := keep(t, p, func(r *record.Run) { r.Handsel = supervisor })
	result := make(chan error, 1)
	var seen Run
	go func() {
		result <- p.Wait(context.Background(), []Run{one(t, p, rec.ID)}, func(r Run) { seen = r })
	}()
	w, again, err := record.Reopen(p.Home, rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	code := 3
	again.State, again.Outcome, again.ExitCode = record.Ended, record.Exited, &code
	if err := w.Save(again); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil || seen.Outcome != record.Exited || *seen.ExitCode != 3 || seen.Succeeded() {
		t.Errorf("Wait = %v, saw %+v", err, seen)
	}
}

func TestWaitCanBeGivenUp(t *testing.T) {
	p := newPlace(t)
	_, supervisor := someone(t)
	rec := keep(t, p, func(r *record.Run) { r.Handsel = supervisor })
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	began := time.Now()
	if err := p.Wait(ctx, []Run{one(t, p, rec.ID)}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait = %v", err)
	}
	if took := time.Since(began); took > byEvent {
		t.Errorf("given up after %s: by looking", took)
	}
	if proc.Judge(claim(supervisor)) != proc.Alive {
		t.Error("giving up touched the run")
	}
}

func TestRunIsFoundInSlotsWithoutARecord(t *testing.T) {
	p := newPlace(t)
	id := record.NewID()
	l, err := lease.Acquire(context.Background(), lease.Places{Leases: p.Leases, Waiting: p.Waiting, Holds: p.Home.Holds()}, lease.Want{
		Pools:  func() ([]lease.Pool, error) { return []lease.Pool{{Name: "all", Cap: 2}, {Name: "codex"}}, nil },
		Engine: "codex", Workload: "heavy", Run: id, Argv0: "codex",
	})
	if err != nil {
		t.Fatal(err)
	}
	r := one(t, p, id)
	if r.State != record.Starting || r.Engine != "codex" || len(r.Pools) != 2 || r.Handsel.Pid != os.Getpid() {
		t.Errorf("found %+v", r)
	}
	for _, x := range []string{"engine:codex", "codex", "pool:all", "all", id[len(id)-MinSuffix:], strings.ToUpper(id)} {
		if found, err := p.Find(x, false); err != nil || len(found) != 1 || found[0].ID != id {
			t.Errorf("Find(%q) = %v, %v", x, found, err)
		}
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Find("run:"+id, true); err == nil {
		t.Error("a run that left nothing is still found")
	}
}

// A run that ended between the reading of its record and the look at its
// processes is not lost: its supervisor's last word counts (C024, C053).
func TestEndedWhileLookedAtIsNotLost(t *testing.T) {
	p := newPlace(t)
	code := 0
	stale := keep(t, p, func(r *record.Run) {})
	w, said, err := record.Reopen(p.Home, stale.ID)
	if err != nil {
		t.Fatal(err)
	}
	said.State, said.Outcome, said.ExitCode, said.EndedAt = record.Ended, record.Exited, &code, record.At(machine.Now())
	if err := w.Save(said); err != nil {
		t.Fatal(err)
	}
	if r := p.look().judge(stale); !r.Ended() || r.Outcome != record.Exited || r.Recorded != "" {
		t.Errorf("judged from what was read before: %s %s", r.State, r.Outcome)
	}
	out := &Cancelled{Run: Run{Run: *stale, Sources: []string{FromRecord}}, Did: WasLost}
	if err := p.close(out, nil); err != nil || out.Did != AlreadyEnded || out.Run.Outcome != record.Exited {
		t.Errorf("close: %s %s, %v; want the end as its supervisor wrote it", out.Did, out.Run.Outcome, err)
	}
}
