//go:build engines

package enginetest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// slot is one lock file as the kernel and its bytes describe it.
type slot struct {
	pool   string
	path   string
	held   bool
	record struct {
		ChildPid   int    `json:"child_pid"`
		ChildTicks uint64 `json:"child_ticks"`
		Run        string `json:"run"`
		Engine     string `json:"engine"`
		Workload   string `json:"workload"`
	}
}

// slots reads every slot on disk and asks the kernel for each lock.
func (c *cell) slots() []slot {
	c.t.Helper()
	paths, err := filepath.Glob(filepath.Join(c.state, "leases", "*", "[0-9]*.lock"))
	c.must(err)
	var found []slot
	for _, path := range paths {
		one := slot{pool: filepath.Base(filepath.Dir(path)), path: path, held: locked(c, path)}
		body, err := os.ReadFile(path)
		c.must(err)
		if text := strings.Trim(string(body), " \n\x00"); text != "" {
			if err := json.Unmarshal([]byte(text), &one.record); err != nil {
				c.t.Errorf("%s: %v: %q", path, err, text)
			}
		}
		found = append(found, one)
	}
	return found
}

// locked asks the kernel whether somebody else holds the lock (S5).
func locked(c *cell, path string) bool {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	c.must(err)
	defer unix.Close(fd)
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		c.t.Error(err)
	}
	return err != nil
}

// expectHeld checks, while the agent runs, that it holds one slot in each of
// its pools (S1) and that each names a living process as the child (S12).
func (c *cell) expectHeld() {
	c.t.Helper()
	want := c.pools()
	var got []string
	for _, one := range c.slots() {
		if !one.held {
			continue
		}
		got = append(got, one.pool)
		if child := (process{one.record.ChildPid, one.record.ChildTicks}); !child.alive() {
			c.t.Errorf("slot %s names child %+v, which is not alive", one.path, child)
		}
		if one.record.Engine != c.engine.pool || one.record.Workload != "heavy" {
			c.t.Errorf("slot %s is for a %s %s, want heavy %s", one.path, one.record.Workload, one.record.Engine, c.engine.pool)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.t.Errorf("slots held during the turn: %v, want %v", got, want)
	}
}

// expectFree checks that no slot is held and none names a living child. A lock
// that was just closed can look held for some 20 ms while a process forks
// (S8), so one look is not believed.
func (c *cell) expectFree() {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	var held []string
	for {
		held = nil
		for _, one := range c.slots() {
			child := process{one.record.ChildPid, one.record.ChildTicks}
			if one.held || child.alive() {
				held = append(held, one.path)
			}
		}
		if len(held) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(held) > 0 {
		c.t.Errorf("slots still held after the run: %v", held)
	}
}
