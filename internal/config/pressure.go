package config

import (
	"strconv"
	"time"
)

// The defaults of [pressure], which do nothing until a limit is set.
const (
	DefaultMaxHold = 2 * time.Minute
	DefaultMargin  = 10
)

// PressureConf is [pressure]: how much of the machine must be free for a start.
// A limit of 0 is not set.
type PressureConf struct {
	MinFreeMemory     int64   // bytes
	MaxMemoryPressure float64 // percent of ten seconds
	MaxCPUPressure    float64
	MaxIOPressure     float64
	MinFreeDisk       int64    // bytes
	DiskPaths         []string // besides the home
	MaxLoadPerCore    float64

	MaxHold time.Duration
	Fail    string  // "open" or "closed"
	Margin  float64 // percent
}

// On tells whether a limit is set.
func (p PressureConf) On() bool {
	return p.MinFreeMemory > 0 || p.MaxMemoryPressure > 0 || p.MaxCPUPressure > 0 || p.MaxIOPressure > 0 ||
		p.MinFreeDisk > 0 || p.MaxLoadPerCore > 0
}

var percent = upTo(100)

func upTo(most float64) func(any) string {
	return func(v any) string {
		if v.(float64) > most {
			return "it is a percentage, and must be at most " + strconv.FormatFloat(most, 'f', -1, 64)
		}
		return ""
	}
}

func absolutes(v any) string {
	for _, path := range v.([]string) {
		if why := absolute(path); why != "" {
			return "each must be an absolute path: " + escape(path) + ": " + why
		}
	}
	return ""
}

func expandAll(paths []string) []string {
	all := make([]string, len(paths))
	for i, path := range paths {
		all[i] = expand(path)
	}
	return all
}

// showPressure lists what is set of [pressure], and once a limit is, all that
// it goes by.
func (s *Settings) showPressure(add func(string, any)) {
	p := s.Pressure
	for _, f := range []struct {
		key    string
		value  any
		always bool
	}{
		{"min_free_memory", p.MinFreeMemory, false},
		{"max_memory_pressure", p.MaxMemoryPressure, false},
		{"max_cpu_pressure", p.MaxCPUPressure, false},
		{"max_io_pressure", p.MaxIOPressure, false},
		{"min_free_disk", p.MinFreeDisk, false},
		{"disk_paths", p.DiskPaths, false},
		{"max_load_per_core", p.MaxLoadPerCore, false},
		{"max_hold", p.MaxHold, true},
		{"fail", p.Fail, true},
		{"margin", p.Margin, true},
	} {
		if key := "pressure." + f.key; s.from[key] != "" || f.always && p.On() {
			add(key, f.value)
		}
	}
}
