package queue

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
)

// sides are the files of a database.
var sides = []string{"", "-wal", "-shm"}

// copyOf copies the files of a database as they are, in the middle of its life:
// what a process that is killed leaves behind.
func copyOf(t testing.TB, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "handsel.db")
	for _, side := range sides {
		data, err := os.ReadFile(path + side)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		must(t, os.WriteFile(to+side, data, 0o600))
	}
	return to
}

// content is every byte there is, by file.
func content(t testing.TB, path string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	must(t, err)
	hidden, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	must(t, err)
	for _, name := range append(names, hidden...) {
		info, err := os.Lstat(name)
		must(t, err)
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(name)
			must(t, err)
			text += string(data)
		}
		all[filepath.Base(name)] = text
	}
	return all
}

func unchanged(t testing.TB, before, after map[string]string) {
	t.Helper()
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s was made", name)
		}
	}
	for name, data := range before {
		if now, ok := after[name]; !ok || now != data {
			t.Errorf("%s was changed", name)
		}
	}
}

// ended is a database that was closed.
func ended(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	fillRows(t, db, 100)
	must(t, db.Close())
	return path
}

// lived is one with something in its file and something in its log, as a killed
// process leaves it.
func lived(t testing.TB) string {
	t.Helper()
	path := ended(t)
	db := open(t, path)
	for i := range 20 {
		accept(t, db, fmt.Sprint("late ", i))
	}
	return copyOf(t, path)
}

func flip(path string, at int64) func(*testing.T) {
	return func(t *testing.T) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		b := make([]byte, 1)
		if at < 0 {
			end, err := f.Seek(0, 2)
			must(t, err)
			at += end
		}
		_, err = f.ReadAt(b, at)
		must(t, err)
		b[0] ^= 0x10
		_, err = f.WriteAt(b, at)
		must(t, err)
	}
}

func TestKilledProcessLeavesAllThatWasAnswered(t *testing.T) {
	db := open(t, lived(t))
	if n := len(waitingRows(t, db)); n != 120 {
		t.Errorf("%d rows, want 120", n)
	}
}

// C094: damage is refused with the path and what can be done, and everything
// stays as it is.
func TestDamageIsRefusedAndLeftAlone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		from   func(testing.TB) string
		damage func(path string) func(*testing.T)
	}{
		{"the header's first byte", ended, func(p string) func(*testing.T) { return flip(p, 0) }},
		{"the page size", ended, func(p string) func(*testing.T) { return flip(p, 16) }},
		{"the journal mode", ended, func(p string) func(*testing.T) { return flip(p, 18) }},
		{"the reserved bytes", ended, func(p string) func(*testing.T) { return flip(p, 20) }},
		{"the schema's version", ended, func(p string) func(*testing.T) { return flip(p, 60) }},
		{"the application", ended, func(p string) func(*testing.T) { return flip(p, 68) }},
		{"the schema", ended, func(p string) func(*testing.T) { return flip(p, 3000) }},
		{"a byte in the middle", ended, func(p string) func(*testing.T) { return flip(p, 9*pageSize+2048) }},
		{"a byte at the end", ended, func(p string) func(*testing.T) { return flip(p, -1) }},
		{"the end is missing", ended, func(p string) func(*testing.T) {
			return func(t *testing.T) { truncate(t, p, -pageSize) }
		}},
		{"half a page is missing", ended, func(p string) func(*testing.T) {
			return func(t *testing.T) { truncate(t, p, -pageSize/2) }
		}},
		{"all is missing", ended, func(p string) func(*testing.T) {
			return func(t *testing.T) { must(t, os.Truncate(p, 0)) }
		}},
		{"the file is missing", lived, func(p string) func(*testing.T) {
			return func(t *testing.T) { must(t, os.Remove(p)) }
		}},
		{"the page size, with page 1 in the log", lived, func(p string) func(*testing.T) { return flip(p, 16) }},
		{"the journal mode, with page 1 in the log", lived, func(p string) func(*testing.T) { return flip(p, 19) }},
		{"another program's database", ended, func(p string) func(*testing.T) {
			return func(t *testing.T) { must(t, os.WriteFile(p, bytes.Repeat([]byte("not a database\n"), 1000), 0o600)) }
		}},
		{"the log is cut in its last frame", lived, func(p string) func(*testing.T) {
			return func(t *testing.T) { cutLog(t, p, -1) }
		}},
		{"the log is cut by a commit", lived, func(p string) func(*testing.T) {
			return func(t *testing.T) { cutLog(t, p, -frameSize) }
		}},
		{"the log is empty", lived, func(p string) func(*testing.T) {
			return func(t *testing.T) { must(t, os.Truncate(p+"-wal", 0)) }
		}},
		{"the log is missing", lived, func(p string) func(*testing.T) {
			return func(t *testing.T) { must(t, os.Remove(p+"-wal")) }
		}},
		{"the log ended later", lived, func(p string) func(*testing.T) {
			return func(t *testing.T) { claimFrames(t, p, 9000, 0) }
		}},
		{"a byte of the log", lived, func(p string) func(*testing.T) { return flip(p+"-wal", logHeader+frameHeader+5000) }},
		{"the log's header", lived, func(p string) func(*testing.T) { return flip(p+"-wal", 8) }},
		{"a directory", ended, func(p string) func(*testing.T) {
			return func(t *testing.T) {
				must(t, os.Remove(p))
				must(t, os.Mkdir(p, 0o700))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := tt.from(t)
			tt.damage(path)(t)
			before := content(t, path)
			db, err := Open(ctx, path)
			if err == nil {
				db.Close()
			}
			bad, ok := errors.AsType[*Damaged](err)
			if !ok || bad.Path != path || !strings.Contains(bad.Error(), "backup") {
				t.Fatalf("Open = %v, want *Damaged", err)
			}
			if strings.Contains(bad.Error(), "\n") {
				t.Errorf("%q is not one line", bad)
			}
			if _, err := Look(path); !isDamaged(err) {
				t.Errorf("Look = %v, want *Damaged", err)
			}
			unchanged(t, before, content(t, path))
		})
	}
}

func truncate(t *testing.T, path string, by int64) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	must(t, os.Truncate(path, info.Size()+by))
}

// cutLog cuts the log so many bytes before the end of what is committed in it.
func cutLog(t testing.TB, path string, by int64) {
	t.Helper()
	l, err := readLog(path + "-wal")
	must(t, err)
	must(t, os.Truncate(path+"-wal", logHeader+int64(l.frames)*frameSize+by))
}

// claimFrames makes shared memory say that its log had so many frames, and
// another salt if salted is not 0.
func claimFrames(t *testing.T, path string, frames uint32, salted byte) {
	t.Helper()
	shm, err := os.ReadFile(path + "-shm")
	must(t, err)
	le.PutUint32(shm[16:], frames)
	shm[32] ^= salted
	a, b := sum(shm[:40], 0, 0)
	le.PutUint32(shm[40:], a)
	le.PutUint32(shm[44:], b)
	copy(shm[48:96], shm[:48])
	must(t, os.WriteFile(path+"-shm", shm, 0o600))
}

// What a killed process may leave is no damage.
func TestLeftoversAreNoDamage(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, path string)
		rows int
	}{
		{"nothing is wrong", func(*testing.T, string) {}, 120},
		{"shared memory is missing", func(t *testing.T, p string) { must(t, os.Remove(p+"-shm")) }, 120},
		{"shared memory is torn", func(t *testing.T, p string) { flip(p+"-shm", 17)(t) }, 120},
		{"shared memory is of an older log", func(t *testing.T, p string) { claimFrames(t, p, 9000, 1) }, 120},
		{"the log is gone after all of it was stored", func(t *testing.T, p string) {
			conn, err := sqlite3.OpenFlags(uri(p), sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
			must(t, err)
			_, err = number(conn, "SELECT count(*) FROM attempts") // it looks for a log when it reads
			must(t, err)
			_, _, err = conn.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
			must(t, err)
			kept := copyOf(t, p) // as it is while somebody has it open
			must(t, conn.Close())
			for _, side := range sides {
				must(t, os.Rename(kept+side, p+side))
			}
			must(t, os.Remove(p+"-wal"))
		}, 120},
		{"an unfinished commit in the log", func(t *testing.T, p string) {
			l, err := readLog(p + "-wal")
			must(t, err)
			f, err := os.OpenFile(p+"-wal", os.O_WRONLY, 0)
			must(t, err)
			defer f.Close()
			_, err = f.WriteAt(bytes.Repeat([]byte{9}, 5000), logHeader+int64(l.frames)*frameSize)
			must(t, err)
		}, 120},
		{"a log that was never written", func(t *testing.T, p string) {
			db, err := Open(ctx, p)
			must(t, err)
			must(t, db.Close())
			must(t, makeSides(p, logBytes))
		}, 120},
		{"a database that was being made", func(t *testing.T, p string) {
			for _, side := range sides {
				must(t, os.Rename(p+side, filepath.Join(filepath.Dir(p), ".tmp-handsel.db"+side)))
			}
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := lived(t)
			tt.do(t, path)
			db := open(t, path)
			if n := len(waitingRows(t, db)); n != tt.rows {
				t.Errorf("%d rows, want %d", n, tt.rows)
			}
			accept(t, db, "next")
		})
	}
}

// A newer schema is refused without a byte written, wherever its version is: in
// the file, or still in the log.
func TestNewerIsRefusedUntouched(t *testing.T) {
	newer := append(slices.Clone(steps()), "CREATE TABLE later (a TEXT) STRICT;")
	for _, tt := range []struct {
		name  string
		clean bool
	}{{"in the file", true}, {"in the log", false}} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "handsel.db")
			must(t, open(t, path).Close())
			db, err := openWith(path, newer)
			must(t, err)
			accept(t, db, "a")
			if tt.clean {
				must(t, db.Close())
			} else {
				defer db.Close()
				path = copyOf(t, path)
			}
			before := content(t, path)
			_, err = Open(ctx, path)
			if got, ok := errors.AsType[*Newer](err); !ok || got.Have != Version+1 || got.Want != Version || got.Path != path {
				t.Errorf("Open = %v, want *Newer", err)
			}
			unchanged(t, before, content(t, path))
			if _, err = Look(path); err == nil {
				t.Error("Look reads it")
			} else if _, ok := errors.AsType[*Newer](err); !ok {
				t.Errorf("Look = %v, want *Newer", err)
			}
		})
	}
}

// An older database is copied beside itself and then brought up in one
// transaction, with all that is in it.
func TestOlderIsBackedUpAndBroughtUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	r := claimed(t, db, "a")
	must(t, db.Close())

	broken := append(slices.Clone(steps()), "ALTER TABLE attempts ADD COLUMN colour TEXT; INSERT INTO nowhere VALUES (1);")
	if db, err := openWith(path, broken); err == nil {
		db.Close()
		t.Fatal("a step that fails succeeded")
	}
	better := append(slices.Clone(steps()), "ALTER TABLE attempts ADD COLUMN colour TEXT;", "UPDATE attempts SET colour = 'blue';")
	db, err := openWith(path, better)
	must(t, err)
	must(t, db.use(func() error {
		n, err := number(db.conn, "SELECT count(*) FROM attempts WHERE colour = 'blue'")
		if n != 1 {
			t.Errorf("%d attempts were brought up", n)
		}
		return err
	}))
	must(t, db.Close())
	baks, err := filepath.Glob(path + ".v1.*.bak")
	must(t, err)
	if len(baks) != 2 {
		t.Fatalf("backups %q, want one for each try", baks)
	}
	for _, bak := range baks {
		onlyOurs(t, bak)
		if a := find(t, open(t, bak), r.ID); a.Fence != 1 {
			t.Errorf("the backup has %+v", a)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	must(t, err)
	for _, name := range left {
		if base := filepath.Base(name); strings.HasSuffix(base, "-journal") {
			t.Errorf("%s is left", base)
		}
	}
}

func TestPlaceWithOddCharacters(t *testing.T) {
	for _, name := range []string{"a b+c", "50%&x=y", "a#b", "q?mode=memory", "ünï'cödé\"", ";,:@$"} {
		dir := filepath.Join(t.TempDir(), name)
		must(t, os.Mkdir(dir, 0o700))
		path := filepath.Join(dir, "handsel.db")
		db := open(t, path)
		accept(t, db, "a")
		for _, side := range sides {
			onlyOurs(t, path+side)
		}
		must(t, db.Close())
		if n := len(waitingRows(t, open(t, path))); n != 1 {
			t.Errorf("%q: %d rows after a restart", name, n)
		}
	}
}

func TestLookNeedsADatabase(t *testing.T) {
	dir := t.TempDir()
	if _, err := Look(filepath.Join(dir, "handsel.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Look = %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("looking made %v", left)
	}
}

func TestLookReadsBesideAndWithoutAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	r := accept(t, db, "a")
	for _, writer := range []bool{true, false} {
		look, err := Look(path)
		must(t, err)
		a, err := look.Find(r.ID)
		if err != nil || a == nil {
			t.Errorf("writer %v: Find = %v, %v", writer, a, err)
		}
		must(t, look.Close())
		if _, err := look.Find(r.ID); !errors.Is(err, ErrClosed) {
			t.Errorf("Find after Close = %v", err)
		}
		must(t, db.Close())
	}
	if n := len(waitingRows(t, open(t, path))); n != 1 {
		t.Errorf("%d rows after looking", n)
	}
}

// C095: the log stays bounded however much is written beside readers.
func TestLogStaysBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handsel.db")
	db := open(t, path)
	const bound = 16 << 20
	look, err := Look(path)
	must(t, err)
	defer look.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, err := look.Events(Filter{Limit: mostEvents})
			if err == nil {
				_, err = db.Events(Filter{Limit: mostEvents})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	most, rounds := int64(0), 12 // of some 400 pages each
	if os.Getenv("HANDSEL_SOAK") != "" {
		rounds = 2000
	}
	for range rounds {
		fillRows(t, db, 64)
		must(t, db.Rows(func(r *attempt.Row, _ []byte) error {
			return db.End(ctx, r.ID, End{Outcome: "cancelled", At: noon})
		}))
		info, err := os.Stat(path + "-wal")
		must(t, err)
		most = max(most, info.Size())
	}
	close(stop)
	<-stopped
	if most > bound {
		t.Errorf("the log grew to %d bytes", most)
	}
}

// Whatever the files of a database hold, judging them ends, and with an answer.
func FuzzFilesOfOthers(f *testing.F) {
	path := lived(f)
	cutLog(f, path, 0) // without the zeros that follow
	whole := map[string][]byte{}
	for _, side := range sides {
		data, err := os.ReadFile(path + side)
		must(f, err)
		whole[side] = data[:min(len(data), 40*frameSize)]
		f.Add(side, uint32(0), data[:48])
	}
	many := []byte{0xff, 0xff, 0xff, 0xff}
	f.Add("", uint32(28), many)                           // pages
	f.Add("-wal", uint32(logHeader), many)                // a frame's page
	f.Add("-wal", uint32(logHeader+4), many)              // a commit's size
	f.Add("-wal", uint32(logHeader+frameSize), many)      // the next one
	f.Add("-shm", uint32(16), many)                       // committed frames
	f.Add("-shm", uint32(96), []byte{0xff, 0xff, 0, 0x1}) // stored frames
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, side string, at uint32, data []byte) {
		if !slices.Contains(sides, side) || at > 1<<18 || len(data) > 64 {
			return
		}
		path := filepath.Join(dir, "handsel.db")
		for s, old := range whole {
			if s == side {
				old = slices.Clone(old)
				if grown := int(at) + len(data) - len(old); grown > 0 {
					old = append(old, make([]byte, grown)...)
				}
				copy(old[at:], data)
			}
			must(t, os.WriteFile(path+s, old, 0o600))
		}
		err := judge(path, Version)
		if err == nil || isDamaged(err) {
			return
		}
		if _, ok := errors.AsType[*Newer](err); ok {
			return
		}
		if _, ok := errors.AsType[*home.Unusable](err); !ok {
			t.Errorf("judge = %v", err)
		}
	})
}
