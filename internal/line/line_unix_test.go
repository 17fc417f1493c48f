//go:build unix

package line

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) *Line {
	t.Helper()
	l, err := Open(t.TempDir()+"/waiting", true)
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

func mine() Record {
	me := proc.Self()
	return Record{V: 1, Boot: me.Boot, Pid: me.Pid, Ticks: me.Ticks, NS: me.NS, Pools: []Pool{{"all", 3}}}
}

func stand(t *testing.T, l *Line, name string) *Place {
	t.Helper()
	p, err := l.Stand(name, mine())
	must(t, err)
	t.Cleanup(p.Leave)
	return p
}

func left(t *testing.T, l *Line) []string {
	t.Helper()
	entries, err := os.ReadDir(l.dir.Path())
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// C5, S16: names sort by start less a minute for each step of priority, then by
// id, over the whole range of both.
func TestNamesSortAsTheLineStands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type start struct {
			at   time.Duration
			prio int
			id   string
		}
		draw := func(label string) start {
			return start{
				time.Duration(rapid.Int64Range(0, int64(200*24*time.Hour)).Draw(t, label+" at")),
				rapid.IntRange(-1000, 1000).Draw(t, label+" priority"),
				rapid.StringMatching(`[0-9a-f]{12}-[0-9a-f]{8}`).Draw(t, label+" id"),
			}
		}
		a, b := draw("a"), draw("b")
		if rapid.Bool().Draw(t, "equal keys") {
			b.at = a.at + time.Duration(b.prio-a.prio)*time.Minute
		}
		ka, kb := a.at-time.Duration(a.prio)*time.Minute, b.at-time.Duration(b.prio)*time.Minute
		want := ka < kb || ka == kb && a.id < b.id
		if got := Name(a.at, a.prio, a.id) < Name(b.at, b.prio, b.id); got != want {
			t.Fatalf("%+v before %+v: %v, want %v", a, b, got, want)
		}
	})
}

// The tag tells kinds apart without reading a ticket.
func TestTagNamesTheKind(t *testing.T) {
	a := Name(1, 0, Tagged("x", []Pool{{"all", 3}}))
	b := Name(2, 0, Tagged("y", []Pool{{"all", 3}}))
	c := Name(3, 0, Tagged("z", []Pool{{"all", 2}}))
	if Tag(a) == "" || Tag(a) != Tag(b) || Tag(a) == Tag(c) || Tag(Name(1, 0, "plain")) != "" {
		t.Errorf("tags %q %q %q %q", Tag(a), Tag(b), Tag(c), Tag(Name(1, 0, "plain")))
	}
}

// S16: a ticket that can be seen is whole and its owner alive; leaving takes it
// and its FIFO away; those behind hear it.
func TestTicketComesAndGoesWhole(t *testing.T) {
	l := open(t)
	p := stand(t, l, Name(5, 0, "a"))
	names, err := l.Names()
	must(t, err)
	if !slices.Equal(names, []string{p.Name}) {
		t.Fatalf("names %q", names)
	}
	got, err := l.Read(p.Name, true)
	if err != nil || got.Pid != os.Getpid() || got.Stopped() || len(got.Pools) != 1 {
		t.Fatalf("read %+v, %v", got, err)
	}
	fd, err := l.Follow(p.Name)
	must(t, err)
	defer unix.Close(fd)
	l.Wake(p.Name)
	if events := poll(t, p.WakeFd(), unix.POLLIN, 0); events&unix.POLLIN == 0 {
		t.Error("the owner was not woken")
	}
	p.Drain()
	if events := poll(t, fd, 0, 0); events != 0 {
		t.Errorf("events %x while the owner stands", events)
	}
	p.Leave()
	p.Leave()
	if events := poll(t, fd, 0, 10000); events&unix.POLLHUP == 0 {
		t.Error("those behind do not hear that the owner left")
	}
	if names := left(t, l); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
	if _, err := l.Read(p.Name, false); !errors.Is(err, ErrDead) {
		t.Errorf("Read = %v", err)
	}
	if _, err := l.Follow(p.Name); !errors.Is(err, ErrDead) {
		t.Errorf("Follow = %v", err)
	}
	l.Wake(p.Name) // and waking one that is gone is no error
}

func poll(t *testing.T, fd int, events int16, ms int) int16 {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	if _, err := unix.Poll(fds, ms); err != nil {
		t.Fatal(err)
	}
	return fds[0].Revents
}

// S16: marks that others leave survive what the owner writes, and the owner's
// look ends the mark that it did not act.
func TestMarks(t *testing.T) {
	l := open(t)
	p := stand(t, l, Name(5, 0, "a"))
	seen, err := l.Read(p.Name, false)
	must(t, err)
	seen.Passes, seen.Admissible = 3, 77
	l.Mark(seen)
	rec := mine()
	rec.Parked = &Parked{Code: "hold"}
	must(t, p.Amend(rec))
	seen, err = l.Read(p.Name, false)
	if err != nil || seen.Passes != 3 || seen.Admissible != 77 || seen.Parked == nil {
		t.Fatalf("%+v, %v", seen, err)
	}
	must(t, p.Acted())
	if seen, err = l.Read(p.Name, false); err != nil || seen.Passes != 3 || seen.Admissible != 0 {
		t.Fatalf("after acting: %+v, %v", seen, err)
	}
	must(t, p.Move(Name(1, 0, "a"), rec))
	if seen, err = l.Read(Name(1, 0, "a"), false); err != nil || seen.Passes != 3 {
		t.Fatalf("after moving: %+v, %v", seen, err)
	}
}

// S16: whoever looks removes a dead owner's ticket, and only that; what was left
// by one killed between two steps goes too.
func TestOnlyTheDeadAreSwept(t *testing.T) {
	l := open(t)
	alive := stand(t, l, Name(5, 0, "alive"))
	dead := stand(t, l, Name(6, 0, "dead"))
	dead.file.Close() // as the kernel does
	unix.Close(dead.wake)
	dead.file, dead.wake = nil, -1
	must(t, os.WriteFile(l.dir.Path()+"/."+Name(7, 0, "half"), nil, 0o600))
	must(t, unix.Mkfifo(l.dir.Path()+"/"+wakeName(Name(7, 0, "half")), 0o600))
	must(t, os.WriteFile(l.dir.Path()+"/foreign", nil, 0o600))

	names, err := l.Names()
	must(t, err)
	l.Tidy()
	for _, name := range names {
		if t2, err := l.Read(name, true); name == alive.Name && (err != nil || t2.Pid != os.Getpid()) {
			t.Errorf("the living ticket: %+v, %v", t2, err)
		}
	}
	want := []string{alive.Name, wakeName(alive.Name), "foreign"}
	got := left(t, l)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// S16: a stopped owner, and one that has ended while somebody's look makes its
// ticket read locked, will not act.
func TestStoppedAndEndedOwnersDoNotAct(t *testing.T) {
	c := exec.Command("sleep", "1000")
	must(t, c.Start())
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	id, err := proc.Identify(c.Process.Pid)
	must(t, err)
	ticket := &Ticket{Record: Record{Pid: id.Pid, Ticks: id.Ticks, Boot: id.Boot, NS: id.NS}}
	if ticket.Stopped() {
		t.Error("a sleeping owner is said to be stopped")
	}
	other := *ticket
	other.Ticks++
	if !other.Stopped() {
		t.Error("another process with the owner's pid is taken for it")
	}
	must(t, c.Process.Signal(syscall.SIGSTOP))
	for limit := time.Now().Add(time.Minute); !ticket.Stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("a stopped owner is said to act")
		}
	}
	must(t, c.Process.Kill())
	_ = c.Wait()
	if !ticket.Stopped() {
		t.Error("an owner that is gone is said to act")
	}
	if machine.PidNS() != 0 {
		ticket.NS = 1
		if ticket.Stopped() {
			t.Error("a number of another pid namespace was looked up in ours")
		}
	}
}

// What was planted or broken in the line holds nobody up.
func TestBrokenTicketsBlockNobody(t *testing.T) {
	l := open(t)
	f, err := flock.Take(l.dir, Name(1, 0, "broken"), flock.Own)
	must(t, err)
	defer f.Close()
	for _, text := range []string{"", "{", "[]", `{"pools":7}`, strings.Repeat("[", 6000)} {
		must(t, f.Truncate(0))
		if text != "" {
			must(t, f.WriteAt([]byte(text), 0))
		}
		got, err := l.Read(Name(1, 0, "broken"), true)
		if err != nil || len(got.Pools) != 0 {
			t.Errorf("%.10q: %+v, %v", text, got, err)
		}
	}
	must(t, os.Symlink("/etc/passwd", l.dir.Path()+"/"+Name(2, 0, "link")))
	var odd *flock.Untrusted
	if _, err := l.Read(Name(2, 0, "link"), true); !errors.As(err, &odd) {
		t.Errorf("Read of a link = %v", err)
	}
}
