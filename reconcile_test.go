package handsel

import (
	"fmt"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/runs"
)

const tried = "01a22e44-7433-79d0-a8bb-65700782c11a"

// L15, L18: what the facts prove is said, and what they do not prove is not.
func TestReconcileNeverGuesses(t *testing.T) {
	began := &attempt.Begun{V: 1, What: attempt.Began, Pid: 1 << 22, Ticks: 1}
	withdrawn := &attempt.Begun{V: 1, What: attempt.Withdrawn, Pid: 1 << 22}
	seen := func(s lane.State, role, id string) *lane.Seen {
		return &lane.Seen{Name: "x", State: s, Record: &lane.Record{V: 1, Lane: "x", Role: role, Attempt: id, Holder: &lane.Process{Pid: 1 << 22}, Fence: 3}}
	}
	free := &lane.Seen{Name: "x"}
	entry := func(state, role string) *attempt.Entry {
		return &attempt.Entry{V: 1, Lane: "x", Attempt: tried, State: state, Owner: attempt.Owner{Role: role}}
	}
	ran := func(state, outcome string) *runs.Run {
		return &runs.Run{Run: record.Run{ID: tried, State: state, Outcome: outcome}}
	}
	far := ran(record.Running, "")
	far.Unverifiable = true
	for _, tt := range []struct {
		name string
		f    facts
		want string // state and outcome; "" = not known
	}{
		{"its record says how it ended", facts{run: ran(record.Ended, record.Exited), begun: began, seen: free}, "ended exited"},
		{"cancelled before it began", facts{run: ran(record.Ended, record.Cancelled)}, "ended cancelled"},
		{"begun, and its driver has the lane", facts{begun: began, seen: seen(lane.Owned, lane.RoleDriver, tried)}, "running "},
		{"begun, its driver gone, its agent alive", facts{begun: began, seen: seen(lane.Orphaned, lane.RoleDriver, tried)}, "running "},
		{"begun, and nothing is left", facts{begun: began, seen: free}, "ended lost"},
		{"begun, and the lane is another's by now", facts{begun: began, seen: seen(lane.Owned, lane.RoleDispatcher, "other")}, "ended lost"},
		{"begun, in another pid namespace", facts{begun: began, seen: seen(lane.Unverifiable, lane.RoleDriver, tried)}, ""},
		{"begun, and the owner of the lane has not said who it is", facts{begun: began, seen: &lane.Seen{Name: "x", State: lane.Owned}}, ""},
		{"begun, and no lane is known", facts{begun: began}, ""},
		{"begun, with a record that cannot be judged", facts{begun: began, run: far, seen: free}, ""},
		{"a start that was withdrawn began nothing", facts{begun: withdrawn, seen: free, entry: entry(record.Queued, "dispatcher"), dispatcher: DispatcherNone}, "queued "},
		{"waits for a dispatcher", facts{seen: free, entry: entry(record.Starting, "dispatcher"), dispatcher: DispatcherNone}, "queued "},
		{"as a silent dispatcher wrote", facts{seen: seen(lane.Owned, lane.RoleDispatcher, tried), entry: entry(record.Starting, "dispatcher"), dispatcher: DispatcherSilent}, "starting "},
		{"a driver that has not begun", facts{seen: seen(lane.Owned, lane.RoleDriver, tried), entry: entry(record.Starting, "dispatcher"), dispatcher: DispatcherSilent}, "starting "},
		{"kept by a dispatcher without an entry", facts{seen: seen(lane.Owned, lane.RoleDispatcher, tried), dispatcher: DispatcherSilent}, "queued "},
		{"still its launcher's", facts{seen: seen(lane.Owned, lane.RoleLauncher, tried), entry: entry(record.Queued, "launcher"), dispatcher: DispatcherNone}, ""},
		{"its launcher is gone, and nobody knows whether it was accepted", facts{seen: free, entry: entry(record.Queued, "launcher"), dispatcher: DispatcherNone}, ""},
		{"its lane was taken by somebody else", facts{seen: seen(lane.Owned, lane.RoleRun, "other"), entry: entry(record.Queued, "dispatcher"), dispatcher: DispatcherNone}, ""},
		{"only its directory is there", facts{payload: true, dispatcher: DispatcherNone}, ""},
		{"a dispatcher that does not know it", facts{seen: free, entry: entry(record.Queued, "dispatcher"), dispatcher: DispatcherAnswers}, ""},
		{"something could not be read", facts{unread: fmt.Errorf("eio"), seen: free, entry: entry(record.Queued, "dispatcher"), dispatcher: DispatcherNone}, ""},
		{"a direct run that goes on", facts{run: ran(record.Running, "")}, "running "},
	} {
		tt.f.id, tt.f.lane, tt.f.now = tried, "x", time.Now()
		got := tt.f.judge()
		if said := got.State + " " + got.Outcome; got.Known != (tt.want != "") || got.Known && said != tt.want || !got.Known && got.State+got.Outcome != "" {
			t.Errorf("%s: known %v, %q; want %q (%s)", tt.name, got.Known, said, tt.want, got.Message)
		}
		if got.Message == "" || len(got.Evidence) == 0 {
			t.Errorf("%s: it does not say by what", tt.name)
		}
	}
}
