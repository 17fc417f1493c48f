package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/queue"
	"github.com/handsel/handsel/internal/record"
)

// That old attempts are kept no longer is said, and is no failure of an export
// that has all there is.
func TestExportOfABeginningThatIsNotKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	t.Setenv(home.Variable, dir)
	t.Setenv("HANDSEL_CONFIG", "")
	if err := (home.Dir{Path: dir, From: home.Variable}).Ensure(); err != nil {
		t.Fatal(err)
	}
	db, err := queue.Open(t.Context(), filepath.Join(dir, "handsel.db"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, end := range []time.Time{now.Add(-time.Hour), now} {
		row := &attempt.Row{
			V: 1, Lane: "l", ID: record.NewID(), State: attempt.Queued, QueueStart: attempt.At(end), StateSince: attempt.At(end),
			Placement: attempt.Placement{Cwd: "/", Workload: "heavy", Confinement: "none"}, Argv0: "true", Argc: 1, Command: strings.Repeat("0", 64),
		}
		if err := db.Accept(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if err := db.End(t.Context(), row.ID, queue.End{Outcome: record.Cancelled, At: end}); err != nil {
			t.Fatal(err)
		}
	}
	n, err := db.Prune(t.Context(), now.Add(-time.Minute), 0)
	if err != nil || n != 1 {
		t.Fatalf("%d pruned, %v", n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	out, said := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "said")
	export := func() (status int, lines, told string) {
		var files []*os.File
		for _, name := range []string{out, said} {
			f, err := os.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			files = append(files, f)
		}
		status = Main([]string{"journal", "export"}, Stdio{Out: files[0], Err: files[1]})
		text, err := os.ReadFile(out)
		also, err2 := os.ReadFile(said)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return status, string(text), string(also)
	}
	if status, lines, told := export(); status != 0 || strings.Count(lines, "\n") != 2 || !strings.Contains(told, "of 1 attempts that ended long ago are kept no longer") {
		t.Errorf("status %d: %s%s", status, lines, told)
	}
	if err := os.WriteFile(filepath.Join(dir, "journal.ndjson"), []byte("no event\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := export(); status != 1 {
		t.Errorf("with a line that cannot be read: status %d", status)
	}
}
