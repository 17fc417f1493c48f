package fakeagent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests hold the peer to the source's rules with nothing of ours near
// it, so that a test that sets the two side by side (S6) can trust it.

type peerCount struct {
	Held, Limit int
	Holders     []struct {
		Slot   int
		Record map[string]any
	}
}

func countPeer(t *testing.T, leases, pool string) peerCount {
	t.Helper()
	out, err := Peer(t, leases, "count", pool).Output()
	var c peerCount
	if err := errors.Join(err, json.Unmarshal(out, &c)); err != nil {
		t.Fatalf("count: %v: %s", err, out)
	}
	return c
}

// once tries to be admitted and tells how it went.
func once(t *testing.T, leases, pools, caps string) (said string, code int) {
	t.Helper()
	c := Peer(t, leases, "once", pools, caps)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), c.ProcessState.ExitCode()
}

// holder starts a peer that holds a slot for a stand-in until the input it
// returns is closed, and waits until it is in its slots.
func holder(t *testing.T, leases, pools, caps string) (agent Process, pid int, end func() error) {
	t.Helper()
	note := filepath.Join(t.TempDir(), "pid")
	c := Peer(t, leases, "hold", pools, caps, "--", Build(t), "pid", note, "then", "stdin")
	c.Env = append(os.Environ(), "FAKEAGENT_LIFE=30s")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var list []Process
	for limit := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		list, err = ReadPids(note)
		if err != nil || time.Now().After(limit) {
			t.Fatal("the holder's child never began: ", err)
		}
		// The record follows the start.
		if len(list) == 1 && slices.ContainsFunc(countPeer(t, leases, strings.Split(pools, ",")[0]).Holders, func(h struct {
			Slot   int
			Record map[string]any
		}) bool {
			return h.Record["child_pid"] == float64(list[0].Pid)
		}) {
			break
		}
	}
	return list[0], c.Process.Pid, func() error { return errors.Join(in.Close(), c.Wait()) }
}

func TestPeerWritesTheSourcesRecord(t *testing.T) {
	leases := t.TempDir()
	before := time.Now()
	agent, pid, end := holder(t, leases, "all", "3")
	path := filepath.Join(leases, "all", "0.lock")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(record) != 7 || record["cap"] != 3.0 || record["child_pid"] != float64(agent.Pid) || record["holder_pid"] != float64(pid) ||
		record["engine"] != "peer" || record["workload"] != "heavy" {
		t.Errorf("record is %s", text)
	}
	for _, field := range []string{"since", "child_started"} {
		at, ok := record[field].(float64)
		// A start is known by ticks since a boot of which the second is told.
		if from, to := float64(before.UnixNano())/1e9-3, float64(time.Now().UnixNano())/1e9+3; !ok || at < from || at > to {
			t.Errorf("%s is %v, the holder began between %f and %f", field, record[field], from, to)
		}
	}
	for name, mode := range map[string]os.FileMode{"all": 0o700, "all/0.lock": 0o600, "all/.admission": 0o600} {
		if info, err := os.Stat(filepath.Join(leases, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, %v, want %v", name, info.Mode(), err, mode)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || len(text) != 0 {
		t.Errorf("after the release the slot says %q, %v", text, err)
	}
}

func TestPeerAdmitsUpToTheSmallestCap(t *testing.T) {
	leases := t.TempDir()
	_, pid, end := holder(t, leases, "all", "2")
	if said, code := once(t, leases, "all", "9"); code != 0 || said != "admitted all/1" {
		t.Errorf("one of two: %q, %d", said, code)
	}
	if said, code := once(t, leases, "all", "1"); code != 75 || !strings.Contains(said, fmt.Sprintf("cap of 1, held by pid %d (child ", pid)) {
		t.Errorf("own cap of 1: %q, %d", said, code)
	}
	_, _, end2 := holder(t, leases, "all", "2")
	if said, code := once(t, leases, "all", "9"); code != 75 || !strings.Contains(said, "cap of 2") {
		t.Errorf("a holder's cap of 2: %q, %d", said, code)
	}
	if err := errors.Join(end(), end2()); err != nil {
		t.Error(err)
	}
	if c := countPeer(t, leases, "all"); c.Held != 0 {
		t.Errorf("afterwards %+v", c)
	}
}

func TestPeerTakesEveryPoolOrNone(t *testing.T) {
	leases := t.TempDir()
	_, _, end := holder(t, leases, "heavy", "1")
	if said, code := once(t, leases, "all,heavy", "5,1"); code != 75 || !strings.Contains(said, "'heavy'") {
		t.Errorf("heavy full: %q, %d", said, code)
	}
	if c := countPeer(t, leases, "all"); c.Held != 0 {
		t.Errorf("the refused one keeps a slot: %+v", c)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestPeerCountsTheChildOfADeadHolder(t *testing.T) {
	leases := t.TempDir()
	note := filepath.Join(t.TempDir(), "pid")
	c := Peer(t, leases, "hold", "all", "1", "--", Build(t), "stubborn", note)
	c.Env = append(os.Environ(), "FAKEAGENT_LIFE=30s")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for countPeer(t, leases, "all").Limit != 1 || !exists(note) || countPeer(t, leases, "all").Holders[0].Record["child_pid"] == nil {
		if t.Context().Err() != nil {
			t.Fatal("the holder never recorded its child")
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if said, code := once(t, leases, "all", "1"); code != 75 {
		t.Errorf("with its child alive: %q, %d", said, code)
	}
	list, err := ReadPids(note)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if err := syscall.Kill(list[0].Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, list)
	if said, code := once(t, leases, "all", "1"); code != 0 {
		t.Errorf("with its child gone: %q, %d", said, code)
	}
}

// TestPeerReadsOurRecords: more fields and padding change nothing, and a
// record that is none holds no free slot but counts under a lock.
func TestPeerReadsOurRecords(t *testing.T) {
	self := Process{Pid: os.Getpid()}
	started := startedEpoch(t, self.Pid)
	ours := func(pid int, at float64) []byte {
		text := fmt.Sprintf(`{"argv0":"x","boot_id":"b","cap":1,"child_pid":%d,"child_started":%f,"child_ticks":1,"engine":"codex","holder_pid":1,"holder_ticks":1,"pid_ns":1,"run":"r","since":1,"workload":"heavy"}`, pid, at)
		return append([]byte(text), bytes.Repeat([]byte(" "), 512-len(text))...)
	}
	for _, tt := range []struct {
		claim  string
		text   []byte
		locked bool
		held   int
	}{
		{"free, child alive", ours(self.Pid, started), false, 1},
		{"free, start within two seconds", ours(self.Pid, started+1.5), false, 1},
		{"free, another start", ours(self.Pid, started+60), false, 0},
		{"free, nobody", ours(1<<22+1, started), false, 0},
		{"free, no start", []byte(`{"cap":1,"child_pid":1,"child_started":null}`), false, 0},
		{"free, empty", nil, false, 0},
		{"free, torn", ours(self.Pid, started)[:100], false, 0},
		{"free, a list", []byte(`[1]`), false, 0},
		{"free, too long", append(ours(self.Pid, started), bytes.Repeat([]byte(" "), 64<<10)...), false, 0},
		{"free, too deep", []byte(`{"a":` + strings.Repeat("[", 60000)), false, 0},
		{"locked, no child yet", []byte(`{"cap":1,"child_pid":null,"child_started":null}`), true, 1},
		{"locked, empty", nil, true, 1},
		{"locked, torn", []byte(`{"cap":`), true, 1},
	} {
		leases := t.TempDir()
		if err := os.Mkdir(filepath.Join(leases, "all"), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(leases, "all", "7.lock") // beyond any cap: every index on disk counts
		if err := os.WriteFile(path, tt.text, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if tt.locked {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
				t.Fatal(err)
			}
		}
		if c := countPeer(t, leases, "all"); c.Held != tt.held {
			t.Errorf("%s: %d held, want %d", tt.claim, c.Held, tt.held)
		}
		f.Close()
	}
}

// startedEpoch computes a start as psutil does.
func startedEpoch(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var ticks, boot float64
	if _, err := fmt.Sscan(strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[19], &ticks); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text[bytes.Index(text, []byte("btime ")):]), "btime %f", &boot); err != nil {
		t.Fatal(err)
	}
	return boot + ticks/100
}

// TestPeersStormStaysWithinItsCap, with holders that die without releasing.
func TestPeersStormStaysWithinItsCap(t *testing.T) {
	leases, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	c := Peer(t, leases, "storm", "all,heavy", "3,2", "6", "2", log)
	c.Env = append(os.Environ(), "PEER_CRASH=20")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	events, err := ReadLog(log)
	if err != nil {
		t.Fatal(err)
	}
	if most, at := Peak(events); most != 2 {
		t.Errorf("%d at once at %d, the smaller cap is 2", most, at)
	}
	if n := len(events); n < 10 || n%2 != 0 {
		t.Errorf("%d events: lives without an end, or hardly any", n)
	}
	for _, pool := range []string{"all", "heavy"} {
		if c := countPeer(t, leases, pool); c.Held != 0 {
			t.Errorf("afterwards %s: %+v", pool, c)
		}
	}
}
