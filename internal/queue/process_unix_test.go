//go:build unix

package queue

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/record"
)

func init() {
	children["read"], children["write"], children["full"], children["modes"] = readChild, writeChild, fullChild, modesChild
}

// start starts this test binary as a child. Its standard input ends when the
// test does.
func startChild(t *testing.T, name, path string) (child *exec.Cmd, in io.WriteCloser, out *strings.Builder) {
	t.Helper()
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "HANDSEL_TEST_CHILD="+name, "CHILD_DB="+path)
	out = new(strings.Builder)
	child.Stdout, child.Stderr = out, out
	in, err := child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	return child, in, out
}

func runChild(t *testing.T, name, path string) string {
	t.Helper()
	child, in, out := startChild(t, name, path)
	in.Close()
	if err := child.Wait(); err != nil {
		t.Fatalf("child %s: %v\n%s", name, err, out)
	}
	return out.String()
}

func fail(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// readChild looks at everything, again and again, until its input ends. What it
// sees must add up each time.
func readChild() {
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	for reads := 0; ; reads++ {
		select {
		case <-done:
			fmt.Println(reads, "reads")
			return
		default:
		}
		db, err := Look(os.Getenv("CHILD_DB"))
		fail(err)
		for range 5 {
			fail(db.Rows(func(*attempt.Row, []byte) error { return nil }))
			fail(db.Attempts(func(*Attempt) error { return nil }))
			_, err = db.Events(Filter{})
			fail(err)
			_, err = db.Totals()
			fail(err)
		}
		fail(db.Close())
	}
}

// C086: fifty who change, one who prunes, and another process that reads: nobody
// is told that the database is locked.
func TestManyAtOnceMeetNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	child, in, out := startChild(t, "read", path)
	var left atomic.Int64
	left.Store(600)
	if os.Getenv("HANDSEL_SOAK") != "" {
		left.Store(200_000)
	}
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := oneRound(db, fmt.Sprint("lane ", n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() {
		for left.Load() > 0 {
			if _, err := db.Prune(ctx, time.Now(), 100); err != nil {
				t.Error(err)
				return
			}
			if _, err := db.Totals(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	all.Wait()
	in.Close()
	if err := child.Wait(); err != nil {
		t.Errorf("the reader: %v\n%s", err, out)
	}
	got, err := db.Totals()
	must(t, err)
	if got.Started != got.Succeeded+got.Failed+got.Lost+got.Running || got.Waiting+got.Claimed+got.Running != 0 {
		t.Errorf("totals %+v", got)
	}
}

func oneRound(db *DB, lane string) error {
	r, code := row(lane), 0
	err := db.Accept(ctx, r)
	if err != nil {
		return err
	}
	if _, err = db.Offer(ctx, r.ID, token, time.Now()); err != nil {
		return err
	}
	if _, err = db.Grant(ctx, r.ID, token, Driver{Pid: 1}, 0); err != nil {
		return err
	}
	if _, err = db.Find(r.ID); err != nil {
		return err
	}
	return errors.Join(db.Begun(ctx, r.ID), db.End(ctx, r.ID, End{Outcome: record.Exited, ExitCode: &code, At: time.Now()}))
}

// writeChild tries to become a second writer and says how that went.
func writeChild() {
	conn, err := sqlite3.OpenFlags(uri(os.Getenv("CHILD_DB")), sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	fail(err)
	fail(conn.BusyTimeout(0))
	switch err := conn.Exec("BEGIN IMMEDIATE"); {
	case errors.Is(err, sqlite3.BUSY):
		fmt.Println("refused")
	case err == nil:
		fail(conn.Exec("DELETE FROM events; COMMIT"))
		fmt.Println("wrote")
	default:
		fail(err)
	}
	fail(conn.Close())
}

// Whoever opens and closes a file of the database in our process, to copy or to
// judge it, must not drop our locks with it.
func TestStrayCloseLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	accept(t, db, "a")
	hold, held, done := make(chan struct{}), make(chan struct{}), make(chan error)
	r := row("b")
	go func() {
		done <- db.change(ctx, func(w *writer) error { // in a transaction that has written
			if err := bindRow(w.run(sqlInsert), r, record.Queued, stamp(noon)).exec(); err != nil {
				return err
			}
			close(held)
			<-hold
			return w.event(stamp(noon), w.conn.LastInsertRowID(), Accepted, "", record.Queued, "")
		})
	}()
	<-held
	for _, side := range sides {
		f, err := os.OpenFile(path+side, os.O_RDWR, 0)
		must(t, err)
		must(t, f.Close())
		if said := runChild(t, "write", path); strings.TrimSpace(said) != "refused" {
			t.Errorf("after a stray close of %q a second writer is told %q", side, said)
		}
	}
	close(hold)
	must(t, <-done)
	if got := whats(t, db, Filter{}); len(got) != 2 {
		t.Errorf("events %q", got)
	}
}

// fullChild finds no more room at some point, and then room again.
func fullChild() {
	signal.Ignore(syscall.SIGXFSZ)
	path := os.Getenv("CHILD_DB")
	db, err := Open(ctx, path)
	fail(err)
	first := row("first")
	fail(db.Accept(ctx, first))

	var old unix.Rlimit
	fail(unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	fail(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 3 * frameSize, Max: old.Max}))
	var all sync.WaitGroup
	var unusable, done atomic.Int32
	for n := range 40 {
		all.Go(func() {
			err := db.Accept(ctx, row(fmt.Sprint("no room ", n)))
			if _, ok := errors.AsType[*home.Unusable](err); ok {
				unusable.Add(1)
			} else if err == nil {
				done.Add(1)
			} else {
				fail(fmt.Errorf("a full disk: %w", err))
			}
		})
	}
	all.Wait()
	if _, err := db.Offer(ctx, first.ID, token, time.Now()); err == nil {
		fail(errors.New("an offer was stored without room"))
	}
	if unusable.Load() != 40 {
		fail(fmt.Errorf("%d refused, %d stored without room", unusable.Load(), done.Load()))
	}
	rows := 0
	fail(db.Rows(func(r *attempt.Row, token []byte) error {
		if rows++; r.ID != first.ID || r.State != record.Queued || token != nil {
			return fmt.Errorf("row %+v", r)
		}
		return nil
	}))
	fail(unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	fail(db.Accept(ctx, row("room again")))
	if rows != 1 {
		fail(fmt.Errorf("%d rows", rows))
	}
	fail(db.Close())
}

// A full disk fails everybody who asked, half of nothing is left, and when there
// is room again it goes on.
func TestFullDiskLeavesNothingHalfDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	runChild(t, "full", path)
	db := open(t, path)
	var lanes []string
	for _, r := range waitingRows(t, db) {
		lanes = append(lanes, r.Lane)
	}
	if strings.Join(lanes, " ") != "first room again" {
		t.Errorf("rows %q", lanes)
	}
	if got := whats(t, db, Filter{}); len(got) != 2 {
		t.Errorf("events %q", got)
	}
}

// A disk that cannot hold what a database begins with leaves none behind.
func TestNoRoomToBeginLeavesNoDatabase(t *testing.T) {
	t.Setenv("CHILD_LIMIT", "8192")
	path := filepath.Join(t.TempDir(), "handsel.db")
	if said := runChild(t, "modes", path); !strings.Contains(said, "cannot be used") {
		t.Errorf("the child says %q", said)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	accept(t, open(t, path), "room again")
}

// modesChild makes a database under the umask and the limit it is given.
func modesChild() {
	signal.Ignore(syscall.SIGXFSZ)
	var mask int
	var limit uint64
	_, _ = fmt.Sscan(os.Getenv("CHILD_UMASK"), &mask)
	if _, err := fmt.Sscan(os.Getenv("CHILD_LIMIT"), &limit); err == nil {
		fail(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}))
	}
	unix.Umask(mask)
	path := os.Getenv("CHILD_DB")
	for range 2 { // made, and opened again
		db, err := Open(ctx, path)
		if err != nil {
			fmt.Println(err)
			return
		}
		fail(db.Accept(ctx, row(record.NewID())))
		fail(db.Rows(func(*attempt.Row, []byte) error { return nil }))
		for _, side := range sides {
			info, err := os.Stat(path + side)
			fail(err)
			fmt.Printf("%s %o\n", info.Name(), info.Mode().Perm())
		}
		fail(db.Close())
	}
}

func TestFilesAreOursAloneWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o277, 0o777} {
		t.Setenv("CHILD_UMASK", fmt.Sprint(mask))
		said := runChild(t, "modes", filepath.Join(t.TempDir(), "handsel.db"))
		if n := strings.Count(said, " 600\n"); n != 6 || strings.Count(said, "\n") != 6 {
			t.Errorf("umask %o:\n%s", mask, said)
		}
	}
}

func TestPlaceThatIsNotOursIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(t *testing.T, path string)
	}{
		{"a link to a database", func(t *testing.T, p string) {
			must(t, os.Rename(p, p+".there"))
			must(t, os.Symlink(p+".there", p))
		}},
		{"a link to nothing", func(t *testing.T, p string) {
			must(t, os.Remove(p))
			must(t, os.Symlink(p+".nowhere", p))
		}},
		{"a FIFO", func(t *testing.T, p string) {
			must(t, os.Remove(p))
			must(t, unix.Mkfifo(p, 0o600))
		}},
		{"a file with two names", func(t *testing.T, p string) { must(t, os.Link(p, p+".too")) }},
		{"a file others can write", func(t *testing.T, p string) { must(t, os.Chmod(p, 0o622)) }},
		{"a log that is a link", func(t *testing.T, p string) { must(t, os.Symlink(p, p+"-wal")) }},
		{"shared memory that is a link", func(t *testing.T, p string) { must(t, os.Symlink(p, p+"-shm")) }},
		{"a directory others can write", func(t *testing.T, p string) { must(t, os.Chmod(filepath.Dir(p), 0o777)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := ended(t)
			tt.plant(t, path)
			before := content(t, path)
			for name, try := range map[string]func() error{
				"Open": func() error { _, err := Open(ctx, path); return err },
				"Look": func() error { _, err := Look(path); return err },
			} {
				if err := try(); err == nil {
					t.Errorf("%s takes it", name)
				} else if _, ok := errors.AsType[*home.Untrusted](err); !ok {
					t.Errorf("%s = %v, want *home.Untrusted", name, err)
				}
			}
			unchanged(t, before, content(t, path))
		})
	}
}
