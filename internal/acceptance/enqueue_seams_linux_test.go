//go:build failpoint

package acceptance

import (
	"testing"
	"time"

	"github.com/handsel/handsel/internal/lane"
)

// TestSeamLaneIsHandedOverAgain is L6, L9 and L20: a dispatcher dies after it has
// accepted a lane, before it answers. The next one finds the lane with its
// launcher, who asks what became of it and lets go once it knows. Nobody gets the
// lane in between, and nobody is displaced.
func TestSeamLaneIsHandedOverAgain(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"accept.committed", "accept.entered"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, "")
			d := h.with("HANDSEL_FAILPOINT=" + step + "=kill").dispatcher()
			launcher := start(t, h.handsel("enqueue", "l", "--json", "--not-before", "1h", "--", "true"))
			if end := d.wait(); end != "signal SIGKILL" {
				t.Fatalf("the dispatcher: %s, %q", end, d.said())
			}
			next := h.dispatcher()
			if end := launcher.wait(); end != "exit 0" {
				t.Fatalf("the launcher: %s, %q", end, launcher.said())
			}
			// From here on nobody but the dispatcher can have it.
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
				if canLock(h.laneFile("l")) {
					t.Fatal("the lane was free although its row waits")
				}
			}
			rows := h.queue()
			if len(rows) != 1 || rows[0].Lane != "l" || rows[0].Reason == nil || rows[0].Reason.Code != "not_before" {
				t.Errorf("what waits is %+v", rows)
			}
			if seen, err := lane.Look(h.dir, "l"); err != nil || seen.State != lane.Owned || seen.Record.Role != lane.RoleDispatcher || seen.Record.Holder.Pid != next.id.pid {
				t.Errorf("the lane is %s %+v, %v; want it to be the dispatcher's", seen.State, seen.Record, err)
			}
			if used := h.state().Descriptors.Used; used != 1 {
				t.Errorf("%d descriptors are counted, want 1", used)
			}
			must(t, "exit 0", h.handsel("cancel", "l"))
			h.idle()
			h.stops(next)
		})
	}
}
