package engine

import (
	"strconv"
	"strings"
	"time"
)

// claudeEpoch is the older form: "Claude AI usage limit reached|1753077600".
var claudeEpoch = pattern(`limit reached\|(\d{9,12})\b`)

// claudeClock is the newer one: "resets 7:10am (UTC)", with the date where it is
// more than a day away: "resets Oct 3 at 5pm (Europe/Paris)", "Oct 3, 2027, 5pm".
var claudeClock = pattern(`resets (?:([A-Z][a-z]{2}) (\d{1,2})(?:, (\d{4}))?(?: at|,) )?(\d{1,2})(?::(\d{2}))?[  ]?([ap]m)(?: \(([A-Za-z0-9_+/-]+)\))?`)

// claudeReset reads when a limit is over from the message of a failure; limited
// tells whether it speaks of a used-up limit. A time that cannot be read, as in a
// zone that is not known here, is zero.
func claudeReset(text string, now time.Time) (until time.Time, limited bool) {
	if m := claudeEpoch().FindStringSubmatch(text); m != nil {
		seconds, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || seconds > farthest {
			return time.Time{}, true
		}
		return time.Unix(seconds, 0).UTC(), true
	}
	limited = strings.Contains(text, "You've hit your") || strings.Contains(text, "usage limit reached") ||
		strings.Contains(text, "out of usage credits") || strings.Contains(text, "redit balance is too low")
	m := claudeClock().FindStringSubmatch(text)
	if m == nil {
		return time.Time{}, limited
	}
	zone := now.Location()
	if m[7] != "" {
		loaded, err := time.LoadLocation(m[7])
		if err != nil || m[7] == "Local" {
			return time.Time{}, true
		}
		zone = loaded
	}
	hour, _ := strconv.Atoi(m[4]) // digits, as the others
	minute, _ := strconv.Atoi(m[5])
	return onClock(now.In(zone), m[1], m[2], m[3], hour, minute, m[6]), true
}

// passedToday is how long ago a reset without a date may have been and still be
// the one of today, not of tomorrow: a limit's window is some hours, and what is
// further away than a day has a date.
const passedToday = time.Hour

// onClock is the time that a clock of twelve hours and, where it is told, a date
// say, in the zone of now; zero where they say none. Without a year it is the one
// that is nearest ahead.
func onClock(now time.Time, month, day, year string, hour, minute int, half string) time.Time {
	if hour < 1 || hour > 12 || minute > 59 {
		return time.Time{}
	}
	if hour %= 12; strings.EqualFold(half, "pm") {
		hour += 12
	}
	if month == "" {
		at := time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, now.Location())
		if now.Sub(at) > passedToday {
			at = time.Date(now.Year(), now.Month(), now.Day()+1, hour, minute, 0, 0, now.Location())
		}
		return at.UTC()
	}
	given := year
	if year == "" {
		given = strconv.Itoa(now.Year())
	}
	date, err := time.ParseInLocation("Jan 2 2006", month+" "+day+" "+given, now.Location())
	if err != nil || date.Year() < 1970 {
		return time.Time{}
	}
	at := time.Date(date.Year(), date.Month(), date.Day(), hour, minute, 0, 0, now.Location())
	if year == "" && now.Sub(at) > 30*24*time.Hour {
		at = time.Date(date.Year()+1, date.Month(), date.Day(), hour, minute, 0, 0, now.Location())
	}
	return at.UTC()
}
