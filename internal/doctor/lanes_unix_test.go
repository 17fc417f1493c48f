//go:build unix

package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/record"
)

func own(t *testing.T, w World, name string, fence uint64) *lane.Hold {
	t.Helper()
	rec := lane.Mine(lane.RoleRun)
	rec.Fence = fence
	h, err := lane.Take(w.Home, name, rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Keep)
	return h
}

func release(t *testing.T, h *lane.Hold) {
	t.Helper()
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
}

// L2: idle lanes go, those that were ever granted and those that somebody has do
// not, and none is anything wrong.
func TestOnlyIdleLanesAreLeftOver(t *testing.T) {
	w := newWorld(t)
	release(t, own(t, w, "idle", 0))
	release(t, own(t, w, "granted", 3))
	own(t, w, "owned", 0)
	for _, f := range w.Examine() {
		if f.Code == KindLane {
			t.Errorf("the doctor finds %+v", f)
		}
	}
	items, problems := w.Leftovers(0)
	path := filepath.Join(w.Home.Lanes(), lane.FileName("idle"))
	if len(items) != 1 || items[0].Kind != KindLane || items[0].Path != path || len(problems) != 0 {
		t.Fatalf("found %+v, %v; want the idle lane alone", items, problems)
	}
	items[0].Do()
	if _, err := os.Lstat(path); !items[0].Done || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("done %v, %q; the file: %v", items[0].Done, items[0].Error, err)
	}
	if again, _ := w.Leftovers(0); len(again) != 0 {
		t.Errorf("a second look finds %+v", again)
	}
}

// L16: an entry of a lane that nobody has counts as absent, as soon as a dispatcher
// is known to have the lane of whatever waits; one of a lane that somebody has
// stays.
func TestStaleEntriesGo(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"stale", "kept"} {
		if err := attempt.WriteEntry(w.Home, &attempt.Entry{Lane: name, Attempt: record.NewID(), State: "queued"}); err != nil {
			t.Fatal(err)
		}
	}
	own(t, w, "kept", 0)
	answers := false
	w.Dispatching = func() bool { return answers }
	if items, problems := w.Leftovers(0); len(items) != 0 || len(problems) != 0 {
		t.Errorf("without a dispatcher: %+v, %v", items, problems)
	}
	answers = true
	items, problems := w.Leftovers(0)
	if len(items) != 1 || items[0].Kind != KindEntry || len(problems) != 0 {
		t.Fatalf("with one: %+v, %v; want the stale entry alone", items, problems)
	}
	h := own(t, w, "stale", 0)
	if items[0].Do(); items[0].Done || items[0].Error != "" {
		t.Errorf("while somebody has the lane: done %v, %q", items[0].Done, items[0].Error)
	}
	release(t, h)
	if items[0].Do(); !items[0].Done {
		t.Errorf("not done: %q", items[0].Error)
	}
	if entries, _, err := attempt.Entries(w.Home); err != nil || len(entries) != 1 || entries[0].Lane != "kept" {
		t.Errorf("entries left: %+v, %v", entries, err)
	}
}

// A lane that is taken between the look and the deed is left alone, and that is
// no failure.
func TestLaneTakenMeanwhileIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	release(t, own(t, w, "l", 0))
	items, _ := w.Leftovers(0)
	own(t, w, "l", 0)
	items[0].Do()
	if items[0].Done || items[0].Error != "" {
		t.Errorf("done %v, %q; want it left alone", items[0].Done, items[0].Error)
	}
	if s, err := lane.Look(w.Home, "l"); err != nil || s.State != lane.Owned {
		t.Errorf("the lane is %s, %v", s.State, err)
	}
}
