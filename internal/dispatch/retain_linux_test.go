package dispatch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/record"
)

// idAt is an id made at a moment.
func idAt(at time.Time) string {
	u := uuid.MustParse(record.NewID())
	for i := range 6 {
		u[i] = byte(at.UnixMilli() >> (40 - 8*i))
	}
	return u.String()
}

// dir is the directory of a run, which need not be there.
func (w *world) dir(id string) string {
	u := uuid.MustParse(id)
	sec, nsec := u.Time().UnixTime()
	return filepath.Join(w.home.Runs(), time.Unix(sec, nsec).UTC().Format(time.DateOnly), id)
}

func (w *world) has(id string) bool {
	_, err := os.Stat(w.dir(id))
	return err == nil
}

// orphan is a payload that a launcher left which was killed before it could send
// its row.
func (w *world) orphan(at time.Time) string {
	w.Helper()
	id := idAt(at)
	if err := attempt.Write(w.home, id, &attempt.Payload{Argv: attempt.Bytes([]string{"true"}), Cwd: []byte("/")}); err != nil {
		w.Fatal(err)
	}
	return id
}

// over is the record of a run that ended at a moment, with bytes of output.
func (w *world) over(id string, at time.Time, bytes int) string {
	w.Helper()
	run := newRecord(&attempt.Row{ID: id})
	run.State, run.Outcome, run.EndedAt = record.Ended, record.Exited, record.At(at)
	writer, err := record.Create(w.home, run)
	if err != nil {
		w.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		w.Fatal(err)
	}
	for _, name := range []string{"stdout", "events.ndjson"} {
		if err := os.WriteFile(filepath.Join(w.dir(id), name), []byte(strings.Repeat("x", bytes/2)), 0o600); err != nil {
			w.Fatal(err)
		}
	}
	return id
}

// The dispatcher removes by itself what has been kept long enough, and payloads
// that no row was ever accepted for; what a row or an attempt names stays (E14).
func TestWhatIsOldGoesByItself(t *testing.T) {
	const day = 24 * time.Hour
	w := newWorld(t, false, func(c *Config) { c.KeepDays, c.KeepBytes = 30, 1<<20 })
	long, lately := time.Now().Add(-40*day), time.Now().Add(-2*day)
	waits := w.launcherOf("waits", idAt(lately))
	w.accepted(waits)
	kept := w.launcherOf("kept", idAt(long))
	w.accepted(kept)
	w.over(kept.row.ID, long, 0) // its driver has written how it ended, and told nobody yet
	w.stop()
	old := w.over(idAt(long), long, 0)
	large := w.over(idAt(lately), lately, 3<<19) // with its events it is beyond what may be kept
	small := w.over(record.NewID(), time.Now(), 100)
	orphan, young := w.orphan(lately), w.orphan(time.Now().Add(-day/2))
	w.start()
	for w.has(orphan) || w.has(old) || w.has(large) {
		w.breathe()
	}
	for what, id := range map[string]string{"of a row that waits": waits.row.ID, "of an attempt that has not ended": kept.row.ID, "of a run of today": small, "of a launcher of today": young} {
		if !w.has(id) {
			t.Errorf("what is kept %s is gone", what)
		}
	}
}
