package acceptance

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// console is a person at a terminal: a pseudo-terminal with a program on it.
type console struct {
	t    testing.TB
	tty  *os.File
	cmd  *exec.Cmd
	id   identity
	seen *text
	from int // what was matched already
	done chan struct{}
}

// sit starts a command on a new terminal of 24 rows and 80 columns.
func sit(t testing.TB, c *exec.Cmd) *console {
	t.Helper()
	tty, err := pty.StartWithSize(c, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatalf("%q: %v", c.Args, err)
	}
	s := &console{t: t, cmd: c, id: identify(c.Process.Pid), done: make(chan struct{})}
	// Its reads must end when it is closed, as a terminal window's do.
	fd, err := unix.FcntlInt(tty.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	tty.Close()
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.tty = os.NewFile(uintptr(fd), "terminal")
	s.seen = collect(s.tty)
	go func() {
		_ = c.Wait() // how it ended is read from ProcessState
		close(s.done)
	}()
	t.Cleanup(func() {
		s.hangUp()
		s.id.signal(unix.SIGKILL)
		<-s.done
		if t.Failed() {
			t.Logf("the terminal showed:\n%q", s.seen)
		}
	})
	return s
}

func (s *console) hangUp() {
	s.tty.Close()
	<-s.seen.over
}

func (s *console) key(keys string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *console) resize(rows, columns uint16) {
	s.t.Helper()
	raw, err := s.tty.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
	if err != nil || failed != nil {
		s.t.Fatal(err, failed)
	}
}

// sees waits until what was not matched before matches pattern, and returns
// the submatches.
func (s *console) sees(pattern string) (found []string) {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(s.t, "the terminal shows "+pattern, func() bool {
		now := s.seen.String()[s.from:]
		at := re.FindStringSubmatchIndex(now)
		if at == nil {
			return false
		}
		for i := 0; i < len(at); i += 2 {
			if at[i] < 0 {
				found = append(found, "")
				continue
			}
			found = append(found, now[at[i]:at[i+1]])
		}
		s.from += at[1]
		return true
	})
	return found
}

func (s *console) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// wait waits for the end and returns how it ended.
func (s *console) wait() string {
	s.t.Helper()
	eventually(s.t, "the program on the terminal ends", s.ended)
	return how(s.cmd.ProcessState)
}

// foreground is the process group to which keys belong.
func (s *console) foreground() int {
	group := 0
	if raw, err := s.tty.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { group, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
	}
	return group
}

// shell is bash on a terminal, with $HANDSEL and $AGENT to type.
func (p *place) shell() *console {
	p.t.Helper()
	s := sit(p.t, p.with("PS1=ready> ", "HISTFILE=", "HANDSEL="+p.bin, "INPUTRC=/dev/null").command("bash", "--norc", "--noprofile", "--noediting", "-i"))
	s.sees(`ready> `)
	return s
}
