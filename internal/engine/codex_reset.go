package engine

import (
	"strconv"
	"time"
)

// codexClock is a time of the machine's own zone, with the date where it is not
// today: "try again at 3:07 PM.", "try again at Dec 3rd, 2026 7:38 AM."
var codexClock = pattern(`try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?(\d{1,2}):(\d{2})[  ]?([AP]M)`)

// codexReset reads when the service answers again, from its own hint, which codex
// passes on ("try again in 3.2s"), or from codex's words; zero: it is not told.
func codexReset(text string, now time.Time) time.Time {
	if wait := resetIn(text); wait > 0 {
		return now.Add(wait).UTC()
	}
	m := codexClock().FindStringSubmatch(text)
	if m == nil {
		return time.Time{}
	}
	hour, _ := strconv.Atoi(m[4]) // digits, both
	minute, _ := strconv.Atoi(m[5])
	return onClock(now, m[1], m[2], m[3], hour, minute, m[6])
}
