// Package pressure asks whether this machine should take more now (P2): what
// memory and disk are free, how long tasks stall for memory, processor and
// disk, how many processes want to run. It is off until a limit is set.
//
// It looks and judges. It holds back new starts only, and ends nothing. What
// cannot be read is no answer, neither good nor bad: Settings.FailClosed says
// what that means for a start. A count of agents says nothing about any of
// this, and this says nothing about the next second: a start that is admitted
// takes its memory later, so a cap is needed besides.
package pressure

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The codes of what is measured (C13), in the order in which they decide.
const (
	Memory         = "memory"
	MemoryPressure = "memory_pressure"
	CPUPressure    = "cpu_pressure"
	IOPressure     = "io_pressure"
	Disk           = "disk"
	Load           = "load"
	NoAnswer       = "no_answer" // something cannot be read, and that holds starts back
)

// Codes of answers that are go.
const (
	Enough        = "enough"         // all that is measured keeps its limits
	NotConfigured = "not_configured" // no limit is set, so nothing is measured
)

// Codes are all codes with which a start may be held back.
var Codes = []string{Memory, MemoryPressure, CPUPressure, IOPressure, Disk, Load, NoAnswer}

// Settings are the limits. A limit of 0 is none, and is not measured.
type Settings struct {
	MinFreeMemory     int64   // bytes
	MaxMemoryPressure float64 // percent of the last ten seconds in which some task stalled
	MaxCPUPressure    float64
	MaxIOPressure     float64
	MinFreeDisk       int64    // bytes
	DiskPaths         []string // besides the home
	MaxLoadPerCore    float64

	MaxHold    time.Duration // longest wait for this alone while nothing runs
	FailClosed bool          // what cannot be read holds starts back
	Margin     float64       // percent by which what was held back must be better than the limit
}

// On tells whether anything is to be measured.
func (s Settings) On() bool {
	return s.MinFreeMemory > 0 || s.MaxMemoryPressure > 0 || s.MaxCPUPressure > 0 || s.MaxIOPressure > 0 ||
		s.MinFreeDisk > 0 || s.MaxLoadPerCore > 0
}

// Measure is one thing that was looked at.
type Measure struct {
	Code  string
	Key   string  // of the setting with the limit
	Value float64 // bytes, percent, or processes for each processor
	Limit float64
	Floor bool   // Value must not be less than Limit; else not more
	Of    string // what was measured, in words: "memory free, MemAvailable of the host"
	Also  string // what else was seen there
	Err   error  // no answer: Value means nothing
}

// maxSlack bounds the margin of memory and disk, in bytes: ten percent of a
// floor of 100 GiB would keep what was held back once waiting for ever.
const maxSlack = 256 << 20

// bound is the limit for somebody who was held back by it before, or not.
func (m Measure) bound(margin float64, held bool) float64 {
	switch {
	case !held:
		return m.Limit
	case m.Floor:
		return m.Limit + min(m.Limit*margin/100, maxSlack)
	}
	return m.Limit * (1 - margin/100)
}

func (m Measure) blind() bool { return m.Err != nil || math.IsNaN(m.Value) }

// short tells whether the measure holds a start back.
func (m Measure) short(s Settings, held bool) bool {
	switch bound := m.bound(s.Margin, held); {
	case m.blind():
		return s.FailClosed
	case m.Floor:
		return m.Value < bound
	default:
		return m.Value > bound
	}
}

// Told is what one waiter was told before. The zero value is nothing.
type Told struct {
	Held []string      // codes of the measures that held it back
	Idle time.Duration // since when nothing ran while it was held back, CLOCK_BOOTTIME; 0 = something ran
}

// Answer is what the machine says to one start.
type Answer struct {
	Short []Measure // what holds it back, in the order of Codes; none = go
	Blind []Measure // what gave no answer and does not hold it back

	// Idle tells that nothing runs; then Over, or a Left until it is.
	Idle bool
	Over bool // it was held back for MaxHold: one start may go all the same
	Left time.Duration

	margin float64
	told   Told
}

// Decide judges what was measured for one start, at a time of CLOCK_BOOTTIME.
// idle tells whether nothing runs here, and is asked only where that matters.
// It gives what the start is to be judged by the next time.
func Decide(s Settings, all []Measure, told Told, now time.Duration, idle func() bool) (Answer, Told) {
	a := Answer{margin: s.Margin, told: told}
	var next Told
	for _, m := range all {
		switch {
		case m.short(s, slices.Contains(told.Held, m.Code)):
			a.Short = append(a.Short, m)
			if !slices.Contains(next.Held, m.Code) {
				next.Held = append(next.Held, m.Code)
			}
		case m.blind():
			a.Blind = append(a.Blind, m)
		}
	}
	if len(a.Short) == 0 {
		return a, Told{}
	}
	if a.Idle = idle(); !a.Idle {
		return a, next
	}
	next.Idle = told.Idle
	if next.Idle == 0 || next.Idle > now {
		next.Idle = max(now, 1)
	}
	a.Left = max(s.MaxHold-(now-next.Idle), 0)
	a.Over = a.Left == 0
	return a, next
}

// Code is that of the first thing that holds back, empty for none.
func (a Answer) Code() string {
	switch {
	case len(a.Short) == 0:
		return ""
	case a.Short[0].blind():
		for _, m := range a.Short {
			if !m.blind() {
				return m.Code
			}
		}
		return NoAnswer
	}
	return a.Short[0].Code
}

// String names what holds back, with what was measured and the limits.
func (a Answer) String() string {
	var parts []string
	for _, m := range a.Short {
		parts = append(parts, m.say(a.margin, slices.Contains(a.told.Held, m.Code)))
	}
	return strings.Join(parts, "; ")
}

// Say is the present value beside its limit.
func (m Measure) Say() string {
	if m.blind() {
		return fmt.Sprintf("%s gives no answer for %s: %s", m.Of, m.Key, m.trouble())
	}
	return m.say(0, false)
}

func (m Measure) trouble() string {
	if m.Err == nil {
		return "it is no number"
	}
	return m.Err.Error()
}

func (m Measure) say(margin float64, held bool) string {
	if m.blind() {
		return m.Say() + `, and fail = "closed" holds starts back then`
	}
	text := fmt.Sprintf("%s %s", m.show(m.Value), m.Of)
	if m.Also != "" {
		text += " (" + m.Also + ")"
	}
	text += fmt.Sprintf(", and %s is %s", m.Key, m.show(m.Limit))
	if bound := m.bound(margin, held); bound != m.Limit {
		text += fmt.Sprintf(" (%s for what was held back)", m.show(bound))
	}
	return text
}

func (m Measure) show(v float64) string {
	switch m.Code {
	case Memory, Disk:
		return Size(int64(v))
	case Load:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64) + " %"
}

// Size is a number of bytes for people.
func Size(n int64) string {
	switch v := float64(n); {
	case n < 0:
		return "0 B"
	case n >= 1<<40:
		return fmt.Sprintf("%.2f TiB", v/(1<<40))
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", v/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", v/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
