package record

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// attemptDir makes an attempt's directory with its payload, as the room attempt
// does.
func attemptDir(t *testing.T, d home.Dir, id string) string {
	t.Helper()
	date, _ := dateOf(id)
	day, err := d.Make(runsDir, date)
	must(t, err)
	defer day.Close()
	must(t, day.Mkdir(id))
	dir := filepath.Join(day.Path(), id)
	must(t, os.WriteFile(filepath.Join(dir, "payload.json"), []byte("{}"), 0o600))
	return dir
}

func TestAttemptGetsItsRecordInItsDirectory(t *testing.T) {
	d := newHome(t)
	for _, long := range []bool{false, true} {
		r := small(Running)
		r.ID = NewID()
		if long {
			r.Author = strings.Repeat("x", space)
		}
		dir := attemptDir(t, d, r.ID)
		w, err := Create(d, r)
		must(t, err)
		must(t, w.Close())
		if w.Dir() != dir {
			t.Errorf("its directory is %s, want %s", w.Dir(), dir)
		}
		if got, err := Load(d, r.ID); err != nil || got.State != Running {
			t.Errorf("its record is %+v, %v", got, err)
		}
	}
}

func TestSecondRecordOfARunIsRefused(t *testing.T) {
	d := newHome(t)
	for _, long := range []bool{false, true} {
		r := small(Running)
		r.ID = NewID()
		dir := attemptDir(t, d, r.ID)
		w, err := Create(d, r)
		must(t, err)
		defer w.Close()
		second := small(Ended)
		second.ID = r.ID
		if long {
			second.Author = strings.Repeat("x", space)
		}
		if _, err := Create(d, second); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a second record is %v", err)
		}
		if got, err := Load(d, r.ID); err != nil || got.State != Running {
			t.Errorf("the first record is %+v, %v now", got, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "payload.json")); err != nil {
			t.Error(err)
		}
	}
}

func TestRecordThatCannotBeMadeLeavesTheAttempt(t *testing.T) {
	d := newHome(t)
	r := small(Running)
	r.ID = NewID()
	dir := attemptDir(t, d, r.ID)
	r.QueuedAt = Time{time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)} // cannot be written
	if _, err := Create(d, r); err == nil {
		t.Fatal("it was made")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 || names[0].Name() != "payload.json" {
		t.Errorf("the attempt's directory has %v, %v", names, err)
	}
	r.ID = NewID()
	if _, err := Create(d, r); err == nil {
		t.Fatal("it was made")
	}
	date, _ := dateOf(r.ID)
	if _, err := os.Stat(filepath.Join(d.Runs(), date, r.ID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory without anything was left: %v", err)
	}
}

func TestRetentionTakesAllOfAnAttemptOnceItEnded(t *testing.T) {
	d := newHome(t)
	waiting, running, ended := NewID(), NewID(), NewID()
	dirs := map[string]string{}
	for _, id := range []string{waiting, running, ended} {
		dirs[id] = attemptDir(t, d, id)
		must(t, os.WriteFile(filepath.Join(dirs[id], "begun.1"), []byte("{}"), 0o600))
	}
	for id, state := range map[string]string{running: Running, ended: Ended} {
		r := small(state)
		r.ID = id
		w, err := Create(d, r)
		must(t, err)
		must(t, w.Close())
	}
	old, problems, err := Expired(context.Background(), d, time.Now().AddDate(1, 0, 0), 30, 0)
	if len(old) != 1 || old[0].ID != ended || len(problems) > 0 || err != nil {
		t.Fatalf("Expired = %+v, %v, %v", old, problems, err)
	}
	must(t, Remove(d, old[0]))
	for id, dir := range dirs {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) != (id == ended) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	ids, problems, err := Unrecorded(d, time.Now().Add(time.Minute))
	if !slices.Equal(ids, []string{waiting}) || len(problems) > 0 || err != nil {
		t.Errorf("Unrecorded = %v, %v, %v", ids, problems, err)
	}
	if ids, _, _ := Unrecorded(d, time.Now().Add(-time.Hour)); ids != nil {
		t.Errorf("what was just made is %v", ids)
	}
	if runs, _, err := List(d, Filter{}); len(runs) != 1 || err != nil {
		t.Errorf("an attempt that waits is listed as a run: %v, %v", runs, err)
	}
}
