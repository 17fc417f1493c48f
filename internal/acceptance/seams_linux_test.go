//go:build failpoint

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// world returns a place in which the kernel says other things (C16).
func (p *place) world(files map[string]string) *place {
	p.t.Helper()
	dir := p.file("world")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	return p.with("HANDSEL_TEST_SYS=" + dir)
}

// TestSeamNetworkHomeIsRefused is C087: before anything is made or changed, and
// naming the kind and the setting; unknown kinds and local ones go on.
func TestSeamNetworkHomeIsRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"nfs", "cifs", "9p", "fuse.sshfs", "ceph"} {
		p := ordinary(t).world(map[string]string{"fs_kind": kind}).with("HANDSEL_MAX_AGENTS=1")
		end, _, errs := ends(t, p.agent("--", "touch", p.file("started")))
		if end != "exit 78" || exists(p.file("started")) {
			t.Errorf("%s: %s", kind, end)
		}
		oneLine(t, errs, kind, p.home, "HANDSEL_HOME")
		if list, _ := os.ReadDir(p.home); len(list) != 0 {
			t.Errorf("%s: %v was made", kind, list)
		}
		must(t, "exit 0", p.handsel("status"))
		// A home that is not there yet is judged by what is above it.
		if err := os.Remove(p.home); err != nil {
			t.Fatal(err)
		}
		must(t, "exit 78", p.agent("--", "exit", "0"))
		if exists(p.home) {
			t.Errorf("%s: the home was made", kind)
		}
	}
	for _, kind := range []string{"tmpfs", "overlay", "ext4", "btrfs"} {
		p := ordinary(t).world(map[string]string{"fs_kind": kind}).with("HANDSEL_MAX_AGENTS=1")
		must(t, "exit 0", p.agent("--", "exit", "0"))
	}
}

// TestSeamKilledAtEachStep is C022 and S23: SIGKILL at each step of a run. What
// is left is shown; no slot is held with nothing alive, and the next is
// admitted as soon as the orphan is gone.
func TestSeamKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ step, shown string }{
		{"run.spawned", "in its slot"}, // found by its run (decision 0004)
		{"run.identified", "in its slot"},
		{"run.recorded", "in its slot"},
		{"run.ended", "nothing"},
		{"run.released", "nothing"},
	} {
		t.Run(tt.step, func(t *testing.T) {
			t.Parallel()
			p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
			note, fired := p.file("note"), p.file("fired")
			steps := []string{"pid", note, "then", "sleep", "600"}
			if tt.shown == "nothing" {
				steps = []string{"pid", note}
			}
			q := p.with("HANDSEL_FAILPOINT="+tt.step+"=kill", "HANDSEL_FAILPOINT_LOG="+fired)
			c := start(t, q.agent(append([]string{"--"}, steps...)...))
			if end := c.wait(); end != "signal SIGKILL" {
				t.Fatalf("%s: %q", end, c.said())
			}
			if text, _ := os.ReadFile(fired); !strings.Contains(string(text), tt.step) {
				t.Fatalf("the step was not reached: %q", text)
			}
			p.noted(note)
			if tt.shown == "in its slot" {
				must(t, "exit 75", p.agent("--wait", "0", "--", "exit", "0"))
			}
			if shown := p.orphans(note); shown != tt.shown {
				t.Errorf("what is left is shown %s, want %s", shown, tt.shown)
			}
			must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
			p.settled()
		})
	}
}

// TestSeamStoppedAtEachStep: a supervisor that is stopped at any step keeps its
// slot, holds up nobody else, and goes on where it was.
func TestSeamStoppedAtEachStep(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"run.spawned", "run.identified", "run.recorded", "run.ended"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			p := ordinary(t).with("HANDSEL_MAX_AGENTS=2")
			// The signal may need a moment until it has stopped every thread.
			c := start(t, p.with("HANDSEL_FAILPOINT="+step+"=stop,"+step+"=sleep:50ms").agent("--", "exit", "4"))
			eventually(t, "it is stopped", func() bool { return allStopped(c.id.pid) })
			if held := p.status().Pools["all"].Held; held != 1 {
				t.Errorf("%d slots are held", held)
			}
			must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
			_, errs := must(t, "exit 75", p.with("HANDSEL_MAX_AGENTS=1").agent("--wait", "0", "--", "exit", "0"))
			oneLine(t, errs, fmt.Sprint("pid ", c.id.pid))
			c.id.signal(unix.SIGCONT)
			if end := c.wait(); end != "exit 4" {
				t.Errorf("%s: %q", end, c.said())
			}
			p.settled()
		})
	}
}

// TestSeamClockThatJumps is C091, C092 and S7: the wall clock goes back an hour,
// or ten years ahead, while one runs and one waits. Nothing is judged dead, the
// wait is as long as it was to be, and no duration is negative.
func TestSeamClockThatJumps(t *testing.T) {
	t.Parallel()
	for _, offset := range []string{"-1h", "-17520h", "87600h"} {
		t.Run(offset, func(t *testing.T) {
			t.Parallel()
			p := ordinary(t).world(map[string]string{"wall_offset": "0s"}).with("HANDSEL_MAX_AGENTS=1")
			holder, agent := p.holding("holder")
			from := time.Now()
			waiter := start(t, p.agent("--wait", "3", "--", "touch", p.file("started")))
			waiter.says("waiting")
			p.world(map[string]string{"wall_offset": offset})
			if end, took := waiter.wait(), time.Since(from); end != "exit 75" || took < 3*time.Second { // an hour longer, it would not end here
				t.Errorf("%s after %v", end, took)
			}
			if state := p.status().states("all"); state != "running" {
				t.Errorf("the holder is %q", state)
			}
			if out, _ := must(t, "exit 0", p.handsel("status")); strings.Contains(out, " -") && strings.Contains(out, "-1h") {
				t.Errorf("a negative duration:\n%s", out)
			}
			// An orphan is alive by its ticks, whatever the wall clock says.
			holder.id.signal(unix.SIGKILL)
			holder.wait()
			must(t, "exit 75", p.agent("--wait", "0", "--", "touch", p.file("started")))
			if !agent.alive() || exists(p.file("started")) {
				t.Errorf("alive %v, started %v", agent.alive(), exists(p.file("started")))
			}
			holder.closeIn()
			eventually(t, "the orphan is gone", func() bool { return !agent.alive() })
			must(t, "exit 0", p.agent("--wait", "0", "--", "exit", "0"))
			text, err := os.ReadFile(p.recordFile())
			if err != nil || strings.Contains(string(text), `_s": -`) {
				t.Errorf("%v: %s", err, text)
			}
			p.settled()
		})
	}
}

// recordFile is the newest record of a run.
func (p *place) recordFile() string {
	files, _ := filepath.Glob(filepath.Join(p.home, "runs", "*", "*", "run.json"))
	newest, at := "", time.Time{}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.ModTime().After(at) {
			newest, at = f, info.ModTime()
		}
	}
	return newest
}

// TestSeamAnotherBoot is S7 and C057: a record of another boot holds nothing,
// whatever runs under its number now.
func TestSeamAnotherBoot(t *testing.T) {
	t.Parallel()
	p := ordinary(t).with("HANDSEL_MAX_AGENTS=1")
	holder, agent := p.holding("holder")
	holder.id.signal(unix.SIGKILL)
	holder.wait()
	must(t, "exit 75", p.agent("--wait", "0", "--", "exit", "0"))
	must(t, "exit 0", p.world(map[string]string{"boot_id": "00000000-0000-4000-8000-000000000000"}).agent("--wait", "0", "--", "exit", "0"))
	if !agent.alive() {
		t.Error("somebody ended what has that number now")
	}
	holder.closeIn()
	p.settled()
}
