package queue

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/machine"
)

//go:embed schema/*.sql
var schema embed.FS

// steps are the texts that make version 1 of nothing, version 2 of version 1,
// and so on. Version is their number.
var steps = sync.OnceValue(func() []string { return mustRead(schema) })

func mustRead(files fs.FS) (texts []string) {
	names, err := fs.Glob(files, "schema/*.sql")
	for _, name := range names { // in order of their names
		var text []byte
		if text, err = fs.ReadFile(files, name); err != nil {
			break
		}
		texts = append(texts, string(text))
	}
	if err != nil || len(texts) != Version || path.Base(names[Version-1]) != fmt.Sprintf("%04d.sql", Version) {
		panic("the embedded schema is not that of Version")
	}
	return texts
}

// Every connection waits as long for another process's lock (C086). Nobody
// holds one longer than a commit or a short read takes.
const busy = 5 * time.Second

// The sizes of one connection's cache, in KiB. The pages that change work are
// few; reading the whole table once gains nothing from a large one.
const (
	writerCache = 1024
	readerCache = 256
)

// The log is checkpointed once it has so many pages, and its file is made that
// long beforehand: writing over it costs half of what making it longer does,
// since the length need not be flushed.
const (
	logPages = 500
	logBytes = logHeader + logPages*frameSize
	// logLimit is what the file is cut back to when it grew because a reader kept
	// its pages in use (C095).
	logLimit = 2 * logBytes
)

// Open opens the database at path for the one process that may write it, and
// makes it when it is not there. An older one is copied beside itself, as
// path.vN.TIME.bak, and brought to Version.
//
// *Newer and *Damaged leave every byte as it was. A place that is not ours to
// trust, or cannot be used, is the error of package home.
func Open(ctx context.Context, path string) (*DB, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return openWith(path, steps())
}

func openWith(path string, steps []string) (*DB, error) {
	if err := prepare(path, steps); err != nil {
		return nil, err
	}
	conn, err := connect(path, sqlite3.OPEN_READWRITE, writerCache)
	if err != nil {
		return nil, err
	}
	w := &writer{path: path, conn: conn}
	if err := errors.Join(w.migrate(steps), w.ready()); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return start(w), nil
}

// prepare makes the files of the database ready to be opened: there, ours, of
// mode 0600, of a version we know, and undamaged.
func prepare(path string, steps []string) error {
	switch err := trust(path); {
	case errors.Is(err, fs.ErrNotExist):
		if err := create(path, steps); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := judgeAgain(path, len(steps)); err != nil {
			return err
		}
	}
	return makeSides(path, logBytes)
}

// judgeAgain gives damage a second look: another process that still writes may
// have changed a page while we read it. Damage does not mend itself.
func judgeAgain(path string, want int) (err error) {
	for range 3 {
		if err = judge(path, want); !isDamaged(err) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

func isDamaged(err error) bool {
	_, ok := errors.AsType[*Damaged](err)
	return ok
}

// create makes a database beside its place and moves it there, so that one that
// can be seen is whole.
func create(path string, steps []string) (err error) {
	name := filepath.Base(path)
	dir, err := home.OpenFolder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	temp := ".tmp-" + name
	if err := discard(dir, temp); err != nil { // of one that was killed here
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, discard(dir, temp))
		}
	}()
	f, err := dir.Create(temp)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := fill(filepath.Join(filepath.Dir(path), temp), steps); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return &home.Unusable{Path: path, Err: bare(err)}
	}
	failpoint.Hit("queue.create")
	if err := dir.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// discard removes a database that nobody uses.
func discard(dir *home.Folder, name string) error {
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		if err := dir.Remove(name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// fill writes the schema into an empty file.
func fill(path string, steps []string) (err error) {
	if err := makeSides(path, 0); err != nil {
		return err
	}
	conn, err := connect(path, sqlite3.OPEN_READWRITE, writerCache)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unusable(path, conn.Close())) }()
	if _, err := conn.FileControl("", sqlite3.FCNTL_RESERVE_BYTES, reserved); err != nil {
		return unusable(path, err)
	}
	err = conn.Exec(fmt.Sprintf("PRAGMA page_size = %d; PRAGMA journal_mode = WAL; PRAGMA application_id = %d", pageSize, application))
	if err != nil {
		return unusable(path, err)
	}
	return step(conn, path, 0, steps)
}

// makeSides makes the files beside the database that SQLite would make with
// whatever mode the umask leaves. The log begins as so many zeros, which is an
// empty log. Files that are there are never replaced: somebody may read them.
func makeSides(path string, log int) error {
	dir, err := home.OpenFolder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, side := range []string{path + "-wal", path + "-shm"} {
		f, err := dir.Create(filepath.Base(side))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.Close()
	}
	if info, err := os.Lstat(path + "-wal"); err == nil && info.Size() == 0 && log > 0 {
		lengthen(path+"-wal", log)
	}
	return nil
}

// lengthen fills an empty log with zeros, a page at a time: what was written in
// larger pieces the kernel keeps in larger pieces, and each small write into
// one costs as if it were large. Where there is no room for them, the log does
// without: they make commits quicker and nothing else.
func lengthen(path string, size int) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	page := make([]byte, pageSize)
	for at := 0; at < size && err == nil; at += len(page) {
		_, err = f.WriteAt(page, int64(at))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(0)
	}
}

// connect opens one connection. Whatever it will be used for, its commits are
// flushed, and it waits for locks.
func connect(path string, flags sqlite3.OpenFlag, cache int) (*sqlite3.Conn, error) {
	conn, err := sqlite3.OpenFlags(uri(path), flags|sqlite3.OPEN_URI)
	if err != nil {
		return nil, unusable(path, err)
	}
	err = errors.Join(conn.BusyTimeout(busy), conn.Exec(fmt.Sprintf(
		"PRAGMA synchronous = FULL; PRAGMA cache_size = -%d; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON", cache)))
	if err != nil {
		_ = conn.Close()
		return nil, unusable(path, err)
	}
	return conn, nil
}

// uri names the file to SQLite. What it makes beside the file gets the file's
// mode, shared memory excepted.
func uri(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive
	}
	name := url.URL{Scheme: "file", Path: path}
	mode := strings.ReplaceAll(url.QueryEscape(path), "+", "%20") // a plus is a plus to SQLite
	return name.String() + "?modeof=" + mode
}

// migrate brings the database to the version of steps.
func (w *writer) migrate(steps []string) error {
	have, err := number(w.conn, "PRAGMA user_version")
	if err != nil || have == len(steps) {
		return unusable(w.path, err)
	}
	name := fmt.Sprintf("%s.v%d.%s.bak", w.path, have, machine.Now().UTC().Format("20060102T150405.000Z"))
	if err := backup(w.conn, name); err != nil {
		return err
	}
	return step(w.conn, w.path, have, steps)
}

// step brings a database of version have to that of steps, in one transaction.
func step(conn *sqlite3.Conn, path string, have int, steps []string) error {
	text := strings.Join(steps[have:], "\n") + "\nPRAGMA user_version = " + strconv.Itoa(len(steps)) + ";"
	err := conn.Exec("BEGIN IMMEDIATE; " + text)
	if err == nil {
		failpoint.Hit("queue.migrate")
		err = conn.Exec("COMMIT")
	}
	if err != nil {
		if !conn.GetAutocommit() {
			_ = conn.Exec("ROLLBACK")
		}
		return unusable(path, fmt.Errorf("bring it to version %d: %w", len(steps), err))
	}
	return nil
}

// backup copies the database of conn to a new file.
func backup(conn *sqlite3.Conn, name string) error {
	dir, err := home.OpenFolder(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := dir.Create(filepath.Base(name))
	if err != nil {
		return err
	}
	defer f.Close()
	err = conn.Backup("main", uri(name))
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = dir.Remove(filepath.Base(name))
		return unusable(name, bare(err))
	}
	return syncDir(filepath.Dir(name))
}

// number is the one integer that a statement tells.
func number(conn *sqlite3.Conn, sql string) (int, error) {
	s, _, err := conn.Prepare(sql)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if !s.Step() {
		return 0, errors.Join(s.Err(), fmt.Errorf("%s: no answer", sql))
	}
	return s.ColumnInt(0), nil
}

// unusable is the error of SQLite as its callers know it: *Damaged when what was
// read is not what was written, otherwise *home.Unusable.
func unusable(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB), errors.Is(err, sqlite3.IOERR_DATA), errors.Is(err, sqlite3.IOERR_CORRUPTFS):
		return &Damaged{Path: path, Err: err}
	}
	return &home.Unusable{Path: path, Err: err}
}
