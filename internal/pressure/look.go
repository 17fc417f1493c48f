package pressure

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"strconv"

	"github.com/handsel/handsel/internal/machine"
)

// Look measures what has a limit, in the order of Codes. home is where the disk
// is looked at besides the paths that are named. It changes nothing.
func Look(s Settings, home string) (all []Measure) {
	if s.MinFreeMemory > 0 {
		for _, m := range memory() {
			m.Code, m.Key, m.Limit, m.Floor = Memory, "min_free_memory", float64(s.MinFreeMemory), true
			all = append(all, m)
		}
	}
	for _, p := range []struct {
		code, key, of string
		limit         float64
	}{
		{MemoryPressure, "max_memory_pressure", "memory", s.MaxMemoryPressure},
		{CPUPressure, "max_cpu_pressure", "cpu", s.MaxCPUPressure},
		{IOPressure, "max_io_pressure", "io", s.MaxIOPressure},
	} {
		if p.limit > 0 {
			m := stalled(p.of)
			m.Code, m.Key, m.Limit = p.code, p.key, p.limit
			all = append(all, m)
		}
	}
	if s.MinFreeDisk > 0 {
		for _, m := range disk(append([]string{home}, s.DiskPaths...)) {
			m.Code, m.Key, m.Limit, m.Floor = Disk, "min_free_disk", float64(s.MinFreeDisk), true
			all = append(all, m)
		}
	}
	if s.MaxLoadPerCore > 0 {
		m := load()
		m.Code, m.Key, m.Limit = Load, "max_load_per_core", s.MaxLoadPerCore
		all = append(all, m)
	}
	return all
}

// memory is the tighter of what the host and our control groups have free, and
// besides whichever of them gives no answer: what the other says holds all the
// same.
func memory() []Measure {
	const file = "/proc/meminfo"
	group, limited, err := tightest()
	least := []Measure{{Of: "the control group", Err: err}}
	if err == nil {
		least = nil
	}
	text, err := machine.Source("meminfo", file)
	var host int64
	if err == nil {
		host, err = available(text)
	}
	if err != nil {
		least = append(least, Measure{Of: file, Err: plain(err)})
		if limited {
			least = append(least, group.measure())
		}
		return least
	}
	m := Measure{Value: float64(host), Of: "of memory is free by MemAvailable of the host"}
	if limited && group.free < host {
		m = group.measure()
		m.Also += "; the host has " + Size(host)
	}
	return append(least, m)
}

func quote(text string) string { return strconv.QuoteToASCII(text) }

// free is what a control group with a limit has left.
type free struct {
	path        string
	free, limit int64
}

func (f free) measure() Measure {
	return Measure{
		Value: float64(f.free), Of: "of memory is free in the control group " + quote(f.path) + ", the tightest",
		Also: "of its limit of " + Size(f.limit),
	}
}

// hierarchy is one way in which control groups count memory.
type hierarchy struct {
	root   string // where it is mounted, below /sys/fs/cgroup
	limits []string
	usage  string
	prefix string // of a subtree's numbers in memory.stat
}

var (
	version1 = hierarchy{"/memory", []string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_"}
	// From memory.high on a group is slowed down, before memory.max ends it.
	version2 = hierarchy{"", []string{"memory.max", "memory.high"}, "memory.current", ""}
	hybrid   = hierarchy{"/unified", version2.limits, version2.usage, ""}
)

// tightest is the one with the least free of our own control group and those
// above it, as far as they have a limit. Groups that are not to be seen from
// here, as in a container, count by what is to be seen above them.
func tightest() (least free, found bool, err error) {
	text, err := machine.Source("cgroup", "/proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return free{}, false, nil // a system without
	}
	if err != nil {
		return free{}, false, plain(err)
	}
	unified, apart := own(text)
	for _, in := range []struct {
		hierarchy
		group string
	}{{version2, unified}, {hybrid, unified}, {version1, apart}} {
		if in.group == "" {
			continue
		}
		for _, group := range upward(in.group) {
			f, ok, err := in.left(group)
			if err != nil {
				return free{}, false, err
			}
			if ok && (!found || f.free < least.free) {
				least, found = f, true
			}
		}
	}
	return least, found, nil
}

// left is what a group has left under its limit; ok is false if it has none.
func (h hierarchy) left(group string) (f free, ok bool, err error) {
	f.path = path.Join("/sys/fs/cgroup", h.root, group)
	read := func(name string) ([]byte, error) {
		below := path.Join(h.root, group, name)
		return machine.Source("cgroup.d"+path.Join("/", below), path.Join("/sys/fs/cgroup", below))
	}
	bad := func(name string, err error) (free, bool, error) {
		return free{}, false, fmt.Errorf("%s: %w", path.Join(f.path, name), plain(err))
	}
	for _, name := range h.limits {
		text, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the root has none, nor has a group without the controller
		}
		if err != nil {
			return bad(name, err)
		}
		n, limited, err := limitOf(text)
		if err != nil {
			return bad(name, err)
		}
		if limited && (!ok || n < f.limit) {
			f.limit, ok = n, true
		}
	}
	if !ok {
		return f, false, nil
	}
	text, err := read(h.usage)
	if err != nil {
		return bad(h.usage, err)
	}
	used, err := whole(string(bytes.TrimSpace(text)))
	if err != nil {
		return bad(h.usage, err)
	}
	if text, err = read("memory.stat"); err != nil {
		return bad("memory.stat", err)
	}
	back, err := reclaimable(text, h.prefix)
	if err != nil {
		return bad("memory.stat", err)
	}
	f.free = max(f.limit-(used-min(back, used)), 0)
	return f, true, nil
}

// stalled is the pressure of one resource.
func stalled(of string) Measure {
	file := "/proc/pressure/" + of
	text, err := machine.Source("psi_"+of, file)
	if err != nil {
		return Measure{Of: file, Err: plain(err)}
	}
	some, full, err := stalls(text)
	if err != nil {
		return Measure{Of: file, Err: err}
	}
	m := Measure{Value: some, Of: "of the last ten seconds some task stalled, by " + file}
	if full > 0 {
		m.Also = strconv.FormatFloat(full, 'f', 2, 64) + " % all tasks"
	}
	return m
}

// disk is the least that is free at the paths, and besides those that give no
// answer.
func disk(paths []string) (all []Measure) {
	var least *Measure
	for _, p := range paths {
		n, err := machine.FreeDisk(existing(p))
		if err != nil {
			all = append(all, Measure{Of: "the disk of " + quote(p), Err: plain(err)})
			continue
		}
		if least == nil || float64(n) < least.Value {
			least = &Measure{Value: float64(n), Of: "of disk is free at " + quote(p)}
		}
	}
	if least != nil {
		all = append(all, *least)
	}
	return all
}

// load is the load for each processor.
func load() Measure {
	const file = "/proc/loadavg"
	text, err := machine.Source("loadavg", file)
	if err != nil {
		return Measure{Of: file, Err: plain(err)}
	}
	now, err := loadavg(text)
	if err != nil {
		return Measure{Of: file, Err: err}
	}
	n := cpus()
	return Measure{
		Value: now / float64(n), Of: "is the load for each processor, by " + file,
		Also: strconv.FormatFloat(now, 'f', 2, 64) + " on " + strconv.Itoa(n),
	}
}

// cpus are the processors that the load is spread over: the host's, however few
// of them are ours.
func cpus() int {
	text, err := machine.Source("cpu_online", "/sys/devices/system/cpu/online")
	if err == nil {
		if n, err := online(text); err == nil {
			return n
		}
	}
	return max(runtime.NumCPU(), 1)
}

// plain leaves out the path, which is named besides.
func plain(err error) error {
	if p := new(fs.PathError); errors.As(err, &p) {
		return p.Err
	}
	return err
}
