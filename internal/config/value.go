package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// blanks may surround a value in a variable (S3).
const blanks = " \t\r\n"

// notWhole is why a text is no cap.
const notWhole = "it must be a whole number in plain decimal digits; nothing starts uncounted"

// parseCap reads a cap from a variable: plain decimal digits, blanks around them
// allowed. Empty is 0, and 0 is "not set here". why is empty when it parses.
func parseCap(text string) (n int, why string) {
	text = strings.Trim(text, blanks)
	if text == "" {
		return 0, ""
	}
	if !digits(text) {
		return 0, notWhole
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, "it is too large a number; nothing starts uncounted"
	}
	return n, ""
}

func digits(text string) bool {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return text != ""
}

const notSpan = `it must be a duration such as "90s" or "10m", or a number of seconds, finite and not negative`

// ParseDuration reads a duration as flags and variables have it: Go's form or a
// plain number of seconds, blanks around it allowed, finite and not negative
// (C3, S14). The error is a *Bad for the given key.
func ParseDuration(key, text string) (time.Duration, error) {
	d, why := parseSpan(text)
	if why == "" && strings.Trim(text, blanks) == "" {
		why = notSpan
	}
	if why != "" {
		return 0, badVariable(key, text, why)
	}
	return d, nil
}

func parseSpan(text string) (d time.Duration, why string) {
	text = strings.Trim(text, blanks)
	if text == "" {
		return 0, ""
	}
	whole, fraction, dotted := strings.Cut(text, ".")
	if digits(whole) && (!dotted || digits(fraction)) {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, notSpan
		}
		return seconds2span(seconds)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || text[0] == '+' || text[0] == '-' {
		return 0, notSpan
	}
	return d, ""
}

func seconds2span(seconds float64) (time.Duration, string) {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds < 0 || math.Signbit(seconds) {
		return 0, notSpan
	}
	if seconds >= float64(math.MaxInt64)/1e9 {
		return 0, "it is longer than can be waited"
	}
	return time.Duration(seconds * 1e9), ""
}

const notSize = `it must be a number of bytes, or a text such as "64MiB" (B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)`

var units = map[string]int64{
	"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
}

func parseSize(text string) (n int64, why string) {
	text = strings.Trim(text, blanks)
	end := len(text) - len(strings.TrimLeft(text, "0123456789"))
	unit, ok := units[strings.Trim(text[end:], blanks)]
	if !ok || end == 0 {
		return 0, notSize
	}
	n, err := strconv.ParseInt(text[:end], 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, "it is too large a number"
	}
	return n * unit, ""
}

// value judges what a file holds for a key of this kind. raw is how it is
// written there, v what the TOML library makes of it.
func (k kind) value(v any, raw string) (out any, why string) {
	switch k {
	case number, capacity:
		// S3 wants plain decimal digits of a cap in a file as well: 0x4, 1_0 and
		// +4 are whole numbers to TOML, but not to every reader of the file.
		n, ok := v.(int64)
		switch {
		case !ok || !digits(raw):
			return nil, notWhole
		case int64(int(n)) != n:
			return nil, "it is too large a number"
		}
		return int(n), ""
	case text:
		s, ok := v.(string)
		if !ok {
			return nil, "it must be a text in quotes"
		}
		return s, ""
	case yes:
		b, ok := v.(bool)
		if !ok {
			return nil, "it must be true or false"
		}
		return b, ""
	case duration:
		return spanValue(v)
	case size:
		return sizeValue(v, raw)
	case decimal:
		return decimalValue(raw)
	case words:
		return wordsValue(v)
	case ports:
		return portsValue(v)
	case commands:
		return commandsValue(v)
	}
	return v, ""
}

func spanValue(v any) (any, string) {
	switch v := v.(type) {
	case string:
		if strings.Trim(v, blanks) == "" {
			return nil, notSpan
		}
		return both(parseSpan(v))
	case int64:
		return both(seconds2span(float64(v)))
	case float64:
		return both(seconds2span(v))
	}
	return nil, notSpan
}

func sizeValue(v any, raw string) (any, string) {
	switch v := v.(type) {
	case string:
		return both(parseSize(v))
	case int64:
		if digits(raw) {
			return v, ""
		}
	}
	return nil, notSize
}

const notDecimal = `it must be a plain number such as 1.5 or 20, not negative`

// decimalValue judges a number as it is written: TOML has also inf, nan, signs,
// exponents, underscores and hexadecimal.
func decimalValue(raw string) (any, string) {
	whole, fraction, dotted := strings.Cut(raw, ".")
	if !digits(whole) || dotted && !digits(fraction) {
		return nil, notDecimal
	}
	n, err := strconv.ParseFloat(raw, 64)
	if err != nil {
		return nil, "it is too large a number"
	}
	return n, ""
}

func wordsValue(v any) (any, string) {
	const not = "it must be a list of texts"
	list, ok := v.([]any)
	if !ok {
		return nil, not
	}
	out := make([]string, 0, len(list))
	for _, item := range list {
		s, ok := item.(string)
		if !ok {
			return nil, not
		}
		out = append(out, s)
	}
	return out, ""
}

// commandsValue judges a list of command lines.
func commandsValue(v any) (any, string) {
	const not = `it must be a list of commands, each a list of texts, as [["make", "test"]]`
	list, ok := v.([]any)
	if !ok {
		return nil, not
	}
	out := make([][]string, 0, len(list))
	for _, item := range list {
		argv, why := wordsValue(item)
		if why != "" {
			return nil, not
		}
		if why := program(argv); why != "" || len(argv.([]string)) == 0 {
			return nil, not
		}
		out = append(out, argv.([]string))
	}
	return out, ""
}

// program is what is wrong with a command line; one without words is none.
func program(v any) string {
	argv := v.([]string)
	switch {
	case len(argv) > 0 && argv[0] == "":
		return "it names no program"
	case slices.ContainsFunc(argv, func(word string) bool { return strings.ContainsRune(word, 0) }):
		return "a NUL byte is in one of the texts"
	}
	return ""
}

// portsValue judges a list of ports; one with none in it is not nil.
func portsValue(v any) (any, string) {
	const not = "it must be a list of ports, 1 to 65535"
	list, ok := v.([]any)
	if !ok {
		return nil, not
	}
	out := make([]uint16, 0, len(list))
	for _, item := range list {
		n, ok := item.(int64)
		if !ok || n < 1 || n > math.MaxUint16 {
			return nil, not
		}
		out = append(out, uint16(n))
	}
	return out, ""
}

func both[T any](v T, why string) (any, string) {
	if why != "" {
		return nil, why
	}
	return v, ""
}
